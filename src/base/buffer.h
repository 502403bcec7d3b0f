/* A growing byte buffer that always ends in a NUL byte beyond `length`. Not shared between threads. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct buffer {
    char *data; /* never NULL after buffer_init */
    size_t length;
    size_t capacity;
};

void buffer_init(struct buffer *buffer);
void buffer_fini(struct buffer *buffer); /* also of a zeroed one */
void buffer_clear(struct buffer *buffer);
void buffer_append(struct buffer *buffer, const void *data, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_format_list(struct buffer *buffer, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* Drops `count` bytes at the front (count <= length). */
void buffer_consume(struct buffer *buffer, size_t count);

/* Hands the bytes over: the caller frees them; the buffer is empty and usable again. */
char *buffer_steal(struct buffer *buffer);
