/* text.h: a growing run of bytes, for answers, log lines and files.
 *
 * Every function that grows a text ends the program when memory runs out: this is a test server. A text is owned by
 * whoever embeds it and belongs to one thread at a time.
 */
#ifndef KLDUMP_STANDIN_TEXT_H
#define KLDUMP_STANDIN_TEXT_H

#include <stddef.h>

struct text {
    char *data; /* always NUL-terminated once something was added; NULL before */
    size_t length;
    size_t capacity;
};

void text_init(struct text *text);
void text_fini(struct text *text);

/* Keeps the memory, drops the content. */
void text_clear(struct text *text);

/* Makes the text `length` bytes longer and returns where they begin; valid until the text grows again. */
char *text_extend(struct text *text, size_t length);

void text_bytes(struct text *text, const void *bytes, size_t length);
void text_string(struct text *text, const char *string);
void text_byte(struct text *text, unsigned char byte);

/* `count` times the same byte. */
void text_repeat(struct text *text, unsigned char byte, size_t count);

/* Little-endian integers. */
void text_u16(struct text *text, unsigned value);
void text_u32(struct text *text, unsigned long value);
void text_u64(struct text *text, unsigned long long value);

void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* malloc, calloc and strdup that end the program instead of returning NULL. */
void *text_allocate(size_t size);
char *text_duplicate(const char *string);

#endif
