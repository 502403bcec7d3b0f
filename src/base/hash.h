/* A hash that says whether two inputs are the same, the same on every machine (FNV-1a, 64 bits): against mistakes, not
 * against whoever looks for a collision. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)
enum { HASH_TEXT = 17 }; /* of 16 hexadecimal digits, with the NUL */

uint64_t hash_bytes(uint64_t hash, const void *data, size_t length);
uint64_t hash_number(uint64_t hash, uint64_t value);
uint64_t hash_text(uint64_t hash, const char *text); /* its end included: "ab","c" is not "a","bc" */
void hash_show(uint64_t hash, char ret_text[HASH_TEXT]);
