#include "fuzz.h"
#include "sglang/dump_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void lies_in(const char *name, const struct dump_name_text *text)
{
    FUZZ_MUST(text->length == 0 || (text->at >= name && text->at + text->length <= name + strlen(name)));
}

int fuzz_dump_name(const uint8_t *bytes, size_t length)
{
    char *name = malloc(length + 1);
    FUZZ_MUST(name != NULL);
    memcpy(name, bytes, length);
    name[length] = '\0';
    struct dump_name parsed;
    struct error err = ERROR_INIT;
    uint64_t rank, index;
    bool read = dump_name_read(name, &rank, &index);
    dump_name_is_candidate(name);
    if (dump_name_parse(name, &parsed, &err) == ERROR_NONE) {
        const struct dump_name_text *const texts[] = {&parsed.suffix,   &parsed.name, &parsed.module,
                                                      &parsed.argument, &parsed.item, &parsed.recompute,
                                                      &parsed.more};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
            lies_in(name, texts[i]);
        FUZZ_MUST(parsed.name.length > 0);
        FUZZ_MUST(!read || (rank == parsed.rank && index == parsed.dump_index));
    } else {
        FUZZ_MUST(err.message[0] != '\0');
    }
    free(name);
    return 0;
}
