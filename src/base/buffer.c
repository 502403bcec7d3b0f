#include "base/buffer.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_init(struct buffer *buffer)
{
    buffer->capacity = 64;
    buffer->data = memory_new(buffer->capacity);
    buffer->length = 0;
}

void buffer_fini(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
    buffer->data[0] = '\0';
}

static void reserve(struct buffer *buffer, size_t more)
{
    size_t needed = buffer->length + more + 1;
    if (needed <= buffer->capacity)
        return;
    size_t capacity = buffer->capacity != 0 ? buffer->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    buffer->data = memory_resize(buffer->data, capacity, 1);
    buffer->capacity = capacity;
}

void buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    reserve(buffer, length);
    if (length != 0)
        memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
}

void buffer_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_format_list(struct buffer *buffer, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length > 0) {
        reserve(buffer, (size_t)length);
        vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
}

void buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(buffer, format, arguments);
    va_end(arguments);
}

void buffer_consume(struct buffer *buffer, size_t count)
{
    buffer->length -= count;
    memmove(buffer->data, buffer->data + count, buffer->length + 1);
}

char *buffer_steal(struct buffer *buffer)
{
    char *data = buffer->data;
    buffer_init(buffer);
    return data;
}
