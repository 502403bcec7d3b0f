/* Secrets in a stream of bytes, covered by '*', wherever the stream is cut into pieces. One owner.
 *
 * Bytes at the end of a piece that may be the beginning of a secret are held back until more comes or mask_flush. What
 * is shorter than MASK_LEAST bytes is no secret: covering it would spoil lines that mean something. */
#pragma once

#include "base/buffer.h"
#include "base/list.h"

#include <stddef.h>

enum { MASK_LEAST = 6 };

struct mask {
    const struct list *secrets; /* borrowed */
    struct buffer bytes;        /* held back from the last piece */
};

void mask_init(struct mask *mask, const struct list *secrets);
void mask_fini(struct mask *mask);

/* Takes a piece; `take` gets what can be said now (not called when that is nothing). */
void mask_feed(struct mask *mask, const char *data, size_t length,
               void (*take)(const char *data, size_t length, void *user), void *user);

/* Says what was held back: the stream rests or has ended. */
void mask_flush(struct mask *mask, void (*take)(const char *data, size_t length, void *user), void *user);

/* Covers each whole secret in `text`, in place; of two that begin alike the longer one. */
void mask_text(const struct list *secrets, char *text, size_t length);
