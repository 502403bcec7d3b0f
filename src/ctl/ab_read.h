/* A result that `kldumpctl ab` compares: what `kl` or `capture` wrote, or what a run says of its server. One thread. */
#pragma once

#include "analysis/ab.h"
#include "base/error.h"
#include "base/list.h"
#include "json/json.h"

enum ab_read_kind { AB_READ_KL, AB_READ_CAPTURE, AB_READ_KINDS };
const char *ab_read_kind_word(enum ab_read_kind kind); /* "kl", "capture" */

struct ab_read {
    const char *name; /* as it was given; the caller's */
    char *file;       /* where the result was read */
    enum ab_read_kind kind;
    struct json *json;           /* the result; what is below borrows from it */
    const struct json *settings; /* NULL: the result has none */
    struct ab_path *paths;       /* those that were measured */
    size_t path_count;
};

/* `name` is a result, a file with the schema kldump.kl/1 or kldump.capture/1; else a run, which stands for the capture
 * EXP.capture.json in its folder. ERROR_USAGE: a file that is neither. ERROR_NOT_FOUND: the run has no such capture.
 * ERROR_INCOMPLETE: the result says so of itself. ERROR_FORMAT: a member is not as expected. */
enum error_code ab_read_open(const char *name, const char *exp, struct ab_read *ret_read, struct error *err);
/* The same of a result that is at hand. `json` is taken over, also on failure; `name` stands for its file. */
enum error_code ab_read_take(const char *name, struct json *json, struct ab_read *ret_read, struct error *err);
void ab_read_fini(struct ab_read *read); /* also of a zeroed one */

/* What two results must have in common to be compared. ERROR_USAGE with both values of the first that differs: kind,
 * prompts, samples, new tokens, temperature and the like, lengths, no path in common. */
enum error_code ab_read_comparable(const struct ab_read *a, const struct ab_read *b, struct error *err);

/* The path of `read` with this name, or NULL. */
const struct ab_path *ab_read_path(const struct ab_read *read, const char *name);

/* One setting of the server that differs; a value is printed JSON, "-" where there is none. */
struct ab_read_setting {
    char *name, *a, *b; /* name: members with dots between */
    bool by_chance;     /* drawn at each start unless it was given: no switch */
};
struct ab_read_settings {
    bool known; /* both results have them */
    struct ab_read_setting *items;
    size_t count, switched; /* switched: without those by chance */
};
void ab_read_settings(const struct ab_read *a, const struct ab_read *b, struct ab_read_settings *ret_settings);
void ab_read_settings_fini(struct ab_read_settings *settings);
