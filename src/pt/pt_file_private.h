/* What pt_file.c and pt_file_elements.c share. */
#pragma once

#include "base/buffer.h"
#include "pt/pt_file.h"
#include "pt/pt_pickle.h"

enum {
    PT_FILE_SMALL = 64 * 1024,             /* a file up to this size is read whole, by one pread */
    PT_FILE_SPREAD_MAX = 32 * 1024 * 1024, /* bytes of a storage that are held to gather strided elements */
    PT_FILE_KEY_MAX = PT_ZIP_NAME_MAX,
    PT_FILE_LOCATION_MAX = 255,
};

struct pt_file {
    char name[256];       /* as pt_file_open got it, for errors */
    int fd;               /* of a file that is not in memory; -1 */
    uint64_t size;        /* bytes */
    const uint8_t *bytes; /* the whole file, where it is in memory; else NULL */
    uint8_t *small;       /* PT_FILE_SMALL bytes for it */
    struct pt_zip zip;
    struct pt_pickle pickle;
    struct buffer pickle_bytes; /* data.pkl of a file that is not in memory */
    enum pt_file_problem problem;
    enum pt_file_kind kind;
    bool bare, has_tensor;
    uint32_t value, meta; /* nodes */
    struct pt_file_tensor tensor;
    char location[PT_FILE_LOCATION_MAX + 1], key[PT_FILE_KEY_MAX + 1];
    struct list *texts; /* that getters handed out */

    uint8_t *window;                    /* PT_FILE_WINDOW bytes: what pt_file_elements hands out */
    uint8_t *spread;                    /* bytes of the storage, for elements that are not in row-major order */
    uint64_t spread_from, spread_bytes; /* which ones, from the storage's beginning */
    uint64_t spread_capacity;
};

/* Puts the file's name before the message of a failure; returns `code`. */
enum error_code pt_file_private_named(const struct pt_file *file, enum error_code code, struct error *err);

/* Reads bytes of the file; one that ends earlier is PT_FILE_UNREADABLE with ERROR_FORMAT. */
enum error_code pt_file_private_read(struct pt_file *file, uint64_t position, void *bytes, size_t length,
                                     struct error *err);
