/* The fuzzers' entries: each takes any bytes, and ends the program where something does not hold. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int fuzz_container(const uint8_t *bytes, size_t length); /* pt_zip: from memory and from a file alike */
int fuzz_pickle(const uint8_t *bytes, size_t length);    /* pt_pickle, and walks over its tree */
int fuzz_dump_name(const uint8_t *bytes, size_t length); /* dump_name: what is parsed lies in the name */
int fuzz_meta(const uint8_t *bytes, size_t length);      /* whole files: pt_file with all its questions */

/* abort() with the place where it did not. */
#define FUZZ_MUST(what)                                                               \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                                  \
        }                                                                             \
    } while (0)
