#include "ctl/shell_words.h"

#include <string.h>

static void add_word(struct buffer *text, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        buffer_text(text, word);
        return;
    }
    buffer_text(text, "'");
    for (const char *c = word; *c != '\0'; c++)
        buffer_format(text, *c == '\'' ? "'\\%c'" : "%c", *c);
    buffer_text(text, "'");
}

void shell_words(struct buffer *text, char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        if (i > 0)
            buffer_text(text, " ");
        add_word(text, words[i]);
    }
}
