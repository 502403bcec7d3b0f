#include "core/server.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const question_texts[SERVER_QUESTIONS] = {
    [SERVER_HEALTH] = "whether it is up",
    [SERVER_STATE] = "what the dumper's settings and counters are",
    [SERVER_INFO] = "what its settings are",
    [SERVER_LOAD] = "how many requests run",
    [SERVER_ENABLE] = "the call that switches dumping on",
    [SERVER_DISABLE] = "the call that switches dumping off",
    [SERVER_PROBE] = "the probe's request",
    [SERVER_FLUSH] = "the call that empties its cache",
};

const char *server_question_text(enum server_question question)
{
    return question_texts[question];
}

void server_request_fini(struct server_request *request)
{
    buffer_fini(&request->body);
    *request = (struct server_request){0};
}

/* Keys do not stay in freed memory. */
static void forget(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void server_command_fini(struct server_command *command)
{
    free(command->interpreter);
    free(command->filter);
    list_fini(&command->choosers);
    free(command->host);
    forget(command->api_key);
    forget(command->generate_key);
    for (size_t i = 0; i < command->secrets.count; i++)
        explicit_bzero(command->secrets.items[i], strlen(command->secrets.items[i]));
    list_fini(&command->secrets);
    *command = (struct server_command){0};
}

/* What tells two long texts apart is most often their end. */
static const char *tail(const char *text, size_t most)
{
    size_t length = strlen(text);
    return length > most ? text + length - most : text;
}

static void check_directory(const char *directory, struct server_answer *answer)
{
    enum { SHOWN = 80 };
    char expected[sizeof answer->directory];
    text_clean(directory, strlen(directory), expected, sizeof expected);
    if (strcmp(answer->directory, expected) == 0)
        return;
    answer->elsewhere = true;
    if (answer->wrong_setting[0] == '\0')
        snprintf(answer->wrong_setting, sizeof answer->wrong_setting, "dir is %s%.80s; expected %s%.80s",
                 strlen(answer->directory) > SHOWN ? "..." : "", tail(answer->directory, SHOWN),
                 strlen(expected) > SHOWN ? "..." : "", tail(expected, SHOWN));
}

static void check_filter(const struct server_command *command, struct server_answer *answer)
{
    char expected[sizeof answer->filter];
    text_clean(command->filter != NULL ? command->filter : "", command->filter != NULL ? strlen(command->filter) : 0,
               expected, sizeof expected);
    if (answer->wrong_setting[0] == '\0' && strcmp(answer->filter, expected) != 0)
        snprintf(answer->wrong_setting, sizeof answer->wrong_setting, "filter is %.70s%s; expected %.70s%s",
                 answer->filter[0] != '\0' ? answer->filter : "null", strlen(answer->filter) > 70 ? "..." : "",
                 expected[0] != '\0' ? expected : "null", strlen(expected) > 70 ? "..." : "");
}

void server_check_settings(const struct server_command *command, const char *directory, struct server_answer *answer)
{
    if (!answer->ok)
        return;
    check_directory(directory, answer);
    check_filter(command, answer);
}
