/* Text from outside made safe to show. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Copies `length` bytes as valid UTF-8 without control characters into `out` (size out_size, always ended); a byte that
 * is neither becomes '?', tabs become blanks; cut with "..." when too long. Returns out. */
const char *text_clean(const char *bytes, size_t length, char *out, size_t out_size);

/* True when the bytes are well-formed UTF-8 (no overlong forms, no surrogates). */
bool text_is_utf8(const char *bytes, size_t length);

/* Bytes at the end that begin a UTF-8 sequence and do not finish it: 0 to 3. */
size_t text_unfinished(const char *bytes, size_t length);

bool text_starts(const char *text, const char *prefix);
bool text_ends(const char *text, const char *suffix);

/* A run's or an experiment's name: 1 to 64 of [A-Za-z0-9._-], not beginning with '.' or '-'. */
bool text_is_name(const char *text);

/* Copies, cutting if needed; `out` is always ended. */
void text_copy(char *out, size_t out_size, const char *text);
