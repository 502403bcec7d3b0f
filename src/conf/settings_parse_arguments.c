#include "base/memory.h"
#include "base/text.h"
#include "conf/settings_table.h"

#include <stdlib.h>
#include <string.h>

static bool is_flag(const char *flag, const char *word, size_t length)
{
    return flag[0] != '\0' && strlen(flag) == length && strncmp(flag, word, length) == 0;
}

static int find_flag(const char *word, size_t length)
{
    for (int id = 0; id < SETTINGS_COUNT; id++)
        if (is_flag(settings_table[id].flag, word, length))
            return id;
    return -1;
}

/* The flag that begins as the word does, for a hint; NULL for none. */
static const char *similar_flag(const char *word, size_t length)
{
    size_t needed = length < 3 ? length : 3;
    for (int id = 0; id < SETTINGS_COUNT && needed > 0; id++)
        if (settings_table[id].flag[0] != '\0' && strncmp(settings_table[id].flag, word, needed) == 0)
            return settings_table[id].flag;
    return NULL;
}

static void take(struct settings_texts *texts, int id, const char *text)
{
    if (texts->text[id] != NULL) {
        settings_fault(texts, "--%s is given twice: '%.60s' and '%.60s'", settings_table[id].flag, texts->text[id],
                       text);
        return;
    }
    texts->text[id] = memory_copy(text);
    texts->origin[id] = memory_format("--%s", settings_table[id].flag);
}

static void unknown_option(struct settings_texts *texts, const char *word, size_t length)
{
    const char *similar = word[1] == '-' ? similar_flag(word + 2, length - 2) : NULL;
    if (similar != NULL)
        settings_fault(texts, "unknown option '%.*s'; did you mean --%s?", (int)(length < 60 ? length : 60), word,
                       similar);
    else
        settings_fault(texts, "unknown option '%.*s'; 'kldumpctl help run' lists them",
                       (int)(length < 60 ? length : 60), word);
}

void settings_parse_arguments(int argc, char *const *argv, struct settings_texts *texts, int *ret_rest)
{
    int i = 0;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *word = argv[i];
        size_t length = strcspn(word, "=");
        bool has_text = word[length] == '=';
        int id = text_starts(word, "--") ? find_flag(word + 2, length - 2) : -1;
        bool next_is_text = i + 1 < argc && strcmp(argv[i + 1], "--") != 0;
        if (id >= 0 && has_text) {
            take(texts, id, word + length + 1);
        } else if (id >= 0 && next_is_text) {
            take(texts, id, argv[++i]);
        } else if (id >= 0) {
            settings_fault(texts, "--%s needs a value after it: --%s %s", settings_table[id].flag,
                           settings_table[id].flag, settings_table[id].metavar);
        } else if (word[0] == '-') {
            unknown_option(texts, word, length);
            i += !has_text && next_is_text && argv[i + 1][0] != '-'; /* most likely its value: no second fault */
        } else {
            settings_fault(texts, "'%.60s' is not an option; the command comes after ' -- '", word);
            while (i + 1 < argc && strcmp(argv[i + 1], "--") != 0)
                i++; /* one forgotten "--" is one fault */
        }
    }
    if (i == argc)
        settings_fault(texts, "the command is missing; write ' -- ' and then the command that starts the server");
    else if (i + 1 == argc)
        settings_fault(texts, "no command stands after ' -- '; write the command that starts the server there");
    *ret_rest = i < argc ? i + 1 : argc;
}
