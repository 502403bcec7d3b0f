#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t hash_bytes(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t hash_number(uint64_t hash, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    return hash_bytes(hash, bytes, sizeof bytes);
}

uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

void hash_show(uint64_t hash, char ret_text[HASH_TEXT])
{
    snprintf(ret_text, HASH_TEXT, "%016" PRIx64, hash);
}
