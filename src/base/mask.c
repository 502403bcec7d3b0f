#include "base/mask.h"

#include <stdbool.h>
#include <string.h>

void mask_init(struct mask *mask, const struct list *secrets)
{
    mask->secrets = secrets;
    buffer_init(&mask->bytes);
}

void mask_fini(struct mask *mask)
{
    buffer_fini(&mask->bytes);
}

static void cover(const char *secret, size_t size, char *text, size_t length)
{
    char *end = text + length;
    for (char *at = text; (at = memmem(at, (size_t)(end - at), secret, size)) != NULL; at += size)
        memset(at, '*', size);
}

void mask_text(const struct list *secrets, char *text, size_t length)
{
    size_t longest = 0;
    for (size_t i = 0; i < secrets->count; i++)
        if (strlen(secrets->items[i]) > longest)
            longest = strlen(secrets->items[i]);
    for (size_t size = longest; size >= MASK_LEAST; size--) /* there are two or three of them */
        for (size_t i = 0; i < secrets->count; i++)
            if (strlen(secrets->items[i]) == size)
                cover(secrets->items[i], size, text, length);
}

/* How many of the last bytes are the beginning of a secret that is not whole yet. */
static size_t unfinished(const struct list *secrets, const char *text, size_t length)
{
    size_t most = 0;
    for (size_t i = 0; i < secrets->count; i++) {
        const char *secret = secrets->items[i];
        size_t size = strlen(secret), part = size > 0 ? size - 1 : 0;
        if (part > length)
            part = length;
        while (part > most && size >= MASK_LEAST && memcmp(text + length - part, secret, part) != 0)
            part--;
        if (size >= MASK_LEAST && part > most)
            most = part;
    }
    return most;
}

void mask_feed(struct mask *mask, const char *data, size_t length,
               void (*take)(const char *data, size_t length, void *user), void *user)
{
    if (mask->secrets->count == 0) { /* the usual case costs nothing */
        take(data, length, user);
        return;
    }
    buffer_append(&mask->bytes, data, length);
    mask_text(mask->secrets, mask->bytes.data, mask->bytes.length);
    size_t ready = mask->bytes.length - unfinished(mask->secrets, mask->bytes.data, mask->bytes.length);
    if (ready == 0)
        return;
    take(mask->bytes.data, ready, user);
    buffer_consume(&mask->bytes, ready);
}

void mask_flush(struct mask *mask, void (*take)(const char *data, size_t length, void *user), void *user)
{
    if (mask->bytes.length > 0)
        take(mask->bytes.data, mask->bytes.length, user);
    buffer_clear(&mask->bytes);
}
