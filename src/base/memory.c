#include "base/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *block)
{
    if (block == NULL) {
        fputs("kldump: out of memory\n", stderr);
        abort();
    }
    return block;
}

void *memory_new(size_t size)
{
    return checked(calloc(1, size != 0 ? size : 1));
}

void *memory_resize(void *block, size_t count, size_t size)
{
    return checked(reallocarray(block, count != 0 ? count : 1, size));
}

char *memory_copy(const char *text)
{
    return checked(strdup(text));
}

char *memory_copy_n(const char *text, size_t length)
{
    return checked(strndup(text, length));
}

char *memory_format(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return checked(length < 0 ? NULL : text);
}
