/* text.c: see text.h. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *text_allocate(size_t size)
{
    void *memory = calloc(1, size > 0 ? size : 1);
    if (memory == NULL) {
        fprintf(stderr, "kldump-standin: out of memory (%zu bytes)\n", size);
        abort();
    }
    return memory;
}

char *text_duplicate(const char *string)
{
    size_t size = strlen(string) + 1;
    return memcpy(text_allocate(size), string, size);
}

void text_init(struct text *text)
{
    *text = (struct text){0};
}

void text_fini(struct text *text)
{
    free(text->data);
    text_init(text);
}

void text_clear(struct text *text)
{
    text->length = 0;
    if (text->data != NULL)
        text->data[0] = '\0';
}

static void reserve(struct text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    if (needed <= text->capacity)
        return;
    size_t capacity = text->capacity > 0 ? text->capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        fprintf(stderr, "kldump-standin: out of memory (%zu bytes)\n", capacity);
        abort();
    }
    text->data = data;
    text->capacity = capacity;
}

char *text_extend(struct text *text, size_t length)
{
    reserve(text, length);
    char *begin = text->data + text->length;
    text->length += length;
    text->data[text->length] = '\0';
    return begin;
}

void text_bytes(struct text *text, const void *bytes, size_t length)
{
    char *begin = text_extend(text, length);
    if (length > 0)
        memcpy(begin, bytes, length);
}

void text_string(struct text *text, const char *string)
{
    text_bytes(text, string, strlen(string));
}

void text_byte(struct text *text, unsigned char byte)
{
    text_bytes(text, &byte, 1);
}

void text_repeat(struct text *text, unsigned char byte, size_t count)
{
    memset(text_extend(text, count), byte, count);
}

static void little_endian(struct text *text, unsigned long long value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        text_byte(text, (unsigned char)(value >> (8 * i) & 0xff));
}

void text_u16(struct text *text, unsigned value)
{
    little_endian(text, value, 2);
}

void text_u32(struct text *text, unsigned long value)
{
    little_endian(text, value, 4);
}

void text_u64(struct text *text, unsigned long long value)
{
    little_endian(text, value, 8);
}

void text_format(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    reserve(text, (size_t)length);
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
}
