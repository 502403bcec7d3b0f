#include "sglang/respell.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "sglang/settings.h"
#include "sglang/versions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIR = 2 };

struct pair {
    const char *flag[PAIR];
};

static struct pair pair_of(const struct versions_spelling *spelling)
{
    return (struct pair){{spelling->decode_graphs_off, spelling->prefill_graphs_off}};
}

/* Whether every flag that `unknown` names is of this pair, and one is. */
static bool is_about(const char *unknown, const struct pair *pair)
{
    bool ours = false;
    for (const char *word = unknown; *(word += strspn(word, " ,")) != '\0'; word += strcspn(word, " ,")) {
        size_t length = strcspn(word, " ,");
        bool of_pair = false;
        if (length < 3 || strncmp(word, "--", 2) != 0)
            continue;
        for (size_t i = 0; i < PAIR; i++)
            of_pair = of_pair || (strlen(pair->flag[i]) == length && strncmp(word, pair->flag[i], length) == 0);
        if (!of_pair)
            return false;
        ours = true;
    }
    return ours;
}

/* The position of the pair, which always stands together; the last one is ours. */
static bool find_pair(const struct list *words, const struct pair *pair, size_t *ret_at)
{
    for (size_t i = words->count; i-- > 1;)
        if (strcmp(words->items[i - 1], pair->flag[0]) == 0 && strcmp(words->items[i], pair->flag[1]) == 0) {
            *ret_at = i - 1;
            return true;
        }
    return false;
}

static void split_words(const char *text, struct list *words)
{
    for (; *(text += strspn(text, " ")) != '\0'; text += strcspn(text, " "))
        list_add_format(words, "%.*s", (int)strcspn(text, " "), text);
}

static void join_words(const struct list *words, struct buffer *text)
{
    for (size_t i = 0; i < words->count; i++)
        buffer_format(text, "%s%s", i == 0 ? "" : " ", words->items[i]);
}

static void replace(struct list *words, size_t at, const struct pair *pair)
{
    for (size_t i = 0; i < PAIR; i++) {
        free(words->items[at + i]);
        words->items[at + i] = memory_copy(pair->flag[i]);
    }
}

bool respell_try(const struct server_command *command, const char *unknown, unsigned tried, struct list *argv,
                 struct list *environment, char *ret_note, size_t size)
{
    const char *handed = list_environment_get(environment, SETTINGS_WRAPPER_VARIABLE);
    struct list handed_words = {NULL, 0};
    struct list *words = argv;
    bool done = false;
    if (command->is_wrapper) {
        split_words(handed != NULL ? handed : "", &handed_words);
        words = &handed_words;
    }
    size_t count = versions_spelling_count();
    for (size_t i = 0; i < count && !done; i++) {
        struct pair now = pair_of(versions_spelling_at(i)), next = pair_of(versions_spelling_at((i + 1) % count));
        size_t at;
        /* launches walk through the table in a circle: one launch for each row, wherever the first guess was */
        if (!find_pair(words, &now, &at) || !is_about(unknown, &now) || tried >= count)
            continue;
        replace(words, at, &next);
        snprintf(ret_note, size,
                 "this server does not know%.120s: launched again with %s %s, as other releases spell it",
                 strstr(unknown, " --") != NULL ? strstr(unknown, " --") : "", next.flag[0], next.flag[1]);
        done = true;
    }
    if (done && command->is_wrapper) {
        struct buffer joined;
        buffer_init(&joined);
        join_words(&handed_words, &joined);
        list_environment_set(environment, SETTINGS_WRAPPER_VARIABLE, joined.data);
        buffer_fini(&joined);
    }
    list_fini(&handed_words);
    return done;
}
