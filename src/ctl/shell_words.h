/* Words as they can be typed into a shell again. Any thread. */
#pragma once

#include "base/buffer.h"

/* Appends the words with blanks between, each in quotes where a shell would read it otherwise; `words` ends in NULL. */
void shell_words(struct buffer *text, char *const *words);
