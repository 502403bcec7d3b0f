/* Small allocations: they end the process when memory is out (abort after a line on standard error), never return NULL.
 * For sizes that come from input use calloc/realloc under a cap and return ERROR_MEMORY. Any thread. */
#pragma once

#include <stddef.h>

void *memory_new(size_t size); /* zeroed */
void *memory_resize(void *block, size_t count, size_t size);
char *memory_copy(const char *text);
char *memory_copy_n(const char *text, size_t length);
char *memory_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
