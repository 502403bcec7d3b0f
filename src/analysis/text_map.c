/* Open addressing over FNV-1a; never more than half full. */
#include "analysis/text_map.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const char *text, size_t length)
{
    uint64_t value = 0xCBF29CE484222325;
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)text[i]) * 0x100000001B3;
    return value ^ value >> 29;
}

static uint32_t *find(const struct text_map *map, const char *text, size_t length)
{
    size_t at = hash(text, length) & (map->slot_count - 1);
    while (map->slots[at] != 0) {
        const char *there = map->texts[map->slots[at] - 1];
        if (strncmp(there, text, length) == 0 && there[length] == '\0')
            break;
        at = (at + 1) & (map->slot_count - 1);
    }
    return &map->slots[at];
}

static void grow(struct text_map *map)
{
    map->capacity = map->capacity == 0 ? 64 : 2 * map->capacity;
    map->texts = memory_resize(map->texts, map->capacity, sizeof *map->texts);
    free(map->slots);
    map->slot_count = 4 * map->capacity;
    map->slots = memory_new(map->slot_count * sizeof *map->slots);
    for (size_t i = 0; i < map->count; i++)
        *find(map, map->texts[i], strlen(map->texts[i])) = (uint32_t)i + 1;
}

void text_map_fini(struct text_map *map)
{
    for (size_t i = 0; i < map->count; i++)
        free(map->texts[i]);
    free(map->texts);
    free(map->slots);
    *map = (struct text_map){0};
}

uint32_t text_map_number(struct text_map *map, const char *text, size_t length)
{
    if (map->count == map->capacity)
        grow(map);
    uint32_t *slot = find(map, text, length);
    if (*slot == 0) {
        map->texts[map->count++] = memory_copy_n(text, length);
        *slot = (uint32_t)map->count;
    }
    return *slot - 1;
}
