/* Numbers texts in the order of first sight: 0, 1, 2, ... Not shared between threads. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct text_map {
    char **texts; /* [count] */
    size_t count, capacity;
    uint32_t *slots; /* number + 1; 0: free */
    size_t slot_count;
};

void text_map_fini(struct text_map *map); /* also of a zeroed one */

/* The number of the text; of a new one, it is copied (and ended by a NUL). */
uint32_t text_map_number(struct text_map *map, const char *text, size_t length);
