#include "ctl/dump_session.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/size.h"
#include "core/space.h"
#include "ctl/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ENABLE_MS = 600000, END_PATIENCE_MS = 15000 };

enum error_code dump_session_directory(struct find *find, char **ret_directory, struct error *err)
{
    struct json *run = NULL;
    enum error_code code = find_status(find, &run, err);
    if (code == ERROR_NONE && show_is_plain(run))
        code = error_set(err, ERROR_USAGE,
                         "run %s is of the kind plain: its server was started without the settings that a dump needs; "
                         "start it with --kind dump",
                         find->name);
    if (code == ERROR_NONE)
        *ret_directory = memory_copy(show_member(run, "dir"));
    json_free(run);
    return code;
}

enum error_code dump_session_begin(struct find *find, const struct dump_session *session, struct json **ret_answer,
                                   struct error *err)
{
    struct json *parameters = json_object();
    json_set_string(parameters, "experiment", session->experiment);
    json_set_bool(parameters, "hold", session->hold);
    json_set_bool(parameters, "force", session->force);
    json_set_u64(parameters, "wait_idle_ms", session->wait_idle_ms);
    if (session->for_ms > 0)
        json_set_u64(parameters, "for_ms", session->for_ms);
    if (session->passes > 0)
        json_set_u64(parameters, "passes", session->passes);
    if (session->own_rids != NULL)
        json_set_list(parameters, "own_request_ids", session->own_rids);
    return find_call(find, "dump", parameters, (int64_t)session->wait_idle_ms + ENABLE_MS, ret_answer, err);
}

const struct json *dump_session_seal(const struct json *run, const char *experiment)
{
    const struct json *found = NULL;
    for (const struct json *s = json_first(json_member(run, "seals")); s != NULL; s = json_next(s))
        if (strcmp(show_member(s, "experiment"), experiment) == 0)
            found = s;
    return found;
}

/* The run has ended meanwhile: its record has the seal, made at its death. */
static void tell_ended(const struct find *find, const struct json *run, struct error *problem)
{
    error_set(problem, ERROR_STATE, "run %s is %s%s%s%s%s", find->name, show_member(run, "state"),
              show_member(run, "outcome")[0] != '\0' ? ": " : "", show_member(run, "outcome"),
              show_member(run, "message")[0] != '\0' ? ": " : "", show_member(run, "message"));
}

/* The run object of a run that may be ending just now. */
static enum error_code status_patiently(struct find *find, struct json **ret_run, struct error *err)
{
    enum error_code code = find_status(find, ret_run, err);
    if (code == ERROR_UNREACHABLE && find_again(find, END_PATIENCE_MS, err) == ERROR_NONE)
        code = find_status(find, ret_run, err);
    return code;
}

/* A run that is ending seals its dump on the way; *run is replaced. */
static enum error_code wait_for_end(struct find *find, struct json **run, struct error *err)
{
    struct json *parameters = json_object(), *ignored = NULL;
    json_set_string(parameters, "for", "ended");
    json_set_u64(parameters, "timeout_ms", END_PATIENCE_MS);
    (void)find_call(find, "wait", parameters, 2 * END_PATIENCE_MS, &ignored, NULL); /* what came is asked below */
    json_free(ignored);
    json_free(*run);
    *run = NULL;
    return status_patiently(find, run, err);
}

/* The run dies, and its end is told a moment after the seal. */
static bool is_of_death(const struct json *seal)
{
    return strcmp(show_member(seal, "sealed_by"), "death") == 0;
}

/* The dump is not ours to pause any more: it has ended with the run. */
static enum error_code find_over(struct find *find, const char *experiment, struct dump_session_end *ret_end,
                                 struct error *err)
{
    struct json *run = NULL;
    struct dump_session_end end = {0};
    enum error_code code = status_patiently(find, &run, err);
    const struct json *seal = dump_session_seal(run, experiment);
    if (code == ERROR_NONE && (seal == NULL || is_of_death(seal)) && strcmp(show_member(run, "state"), "ended") != 0)
        code = wait_for_end(find, &run, err);
    if (code != ERROR_NONE)
        return code;
    seal = dump_session_seal(run, experiment);
    if (seal != NULL)
        end.seal = json_copy(seal);
    if (seal == NULL || strcmp(show_member(run, "state"), "ended") == 0)
        tell_ended(find, run, &end.problem);
    json_free(run);
    *ret_end = end;
    return ERROR_NONE;
}

enum error_code dump_session_end(struct find *find, const char *experiment, struct dump_session_end *ret_end,
                                 struct error *err)
{
    struct json *seal = NULL, *parameters = json_object();
    json_set_string(parameters, "experiment", experiment); /* not another one, begun since ours ended by itself */
    enum error_code code = find_call(find, "pause", parameters, -1, &seal, err);
    bool died = code == ERROR_NONE && is_of_death(seal);
    if (died)
        json_free(seal);
    if (code == ERROR_UNREACHABLE || code == ERROR_NO_RUN || code == ERROR_STATE || died)
        return find_over(find, experiment, ret_end, err);
    if (code == ERROR_NONE)
        *ret_end = (struct dump_session_end){.seal = seal};
    return code;
}

void dump_session_end_fini(struct dump_session_end *end)
{
    json_free(end->seal);
    *end = (struct dump_session_end){0};
}

int dump_session_status(const struct dump_session_end *end)
{
    bool complete = false;
    (void)json_get_bool(end->seal, "complete", &complete, NULL);
    /* a dump that somebody else has ended before its time is not what was asked for, however complete */
    return complete && show_sealed_early(end->seal)[0] == '\0' ? STATUS_DONE : STATUS_INCOMPLETE;
}

enum error_code dump_session_close(struct find *find, const char *experiment, enum error_code code,
                                   struct json **ret_seal, struct error *err)
{
    struct dump_session_end end = {0};
    struct error other = ERROR_INIT;
    const char *reason = NULL;
    enum error_code ended = dump_session_end(find, experiment, &end, &other);
    if (ended == ERROR_NONE && end.problem.code != ERROR_NONE) {
        other = end.problem;
        ended = other.code;
        if (code != ERROR_NONE)
            error_prefix(err, "%.400s; before", other.message);
    } else if (ended == ERROR_NONE && dump_session_status(&end) != STATUS_DONE) {
        if (json_get_string(end.seal, "reasons.0", &reason, NULL) != ERROR_NONE)
            reason = show_sealed_early(end.seal);
        ended = error_set(&other, ERROR_INCOMPLETE, "%s is incomplete: %.400s", experiment, reason);
    }
    *ret_seal = end.seal;
    if (code != ERROR_NONE || ended == ERROR_NONE)
        return code;
    if (err != NULL)
        *err = other;
    return ended;
}

static enum error_code check_budget(const struct json *run, uint64_t needed, struct error *err)
{
    uint64_t budget = 0, written = 0;
    char needed_text[SIZE_TEXT], left[SIZE_TEXT];
    if (!show_number(run, "space.budget_bytes", &budget))
        return ERROR_NONE;
    show_number(run, "space.written_bytes", &written);
    if (needed <= number_subtract(budget, written))
        return ERROR_NONE;
    return error_set(err, ERROR_SPACE, "about %s are needed; %s of the byte budget are left (--budget)",
                     size_text(needed, needed_text), size_text(number_subtract(budget, written), left));
}

static enum error_code check_room(const struct json *run, const struct dump_session_load *load, struct error *err)
{
    uint64_t per_token = 0, per_decode = 0, free_bytes = 0, act = 0, soft = 0;
    char needed_text[SIZE_TEXT], left_text[SIZE_TEXT], level_text[SIZE_TEXT];
    bool known = show_number(run, "costs.bytes_per_prefill_token", &per_token) && per_token > 0 &&
                 (load->decode_tokens == 0 || show_number(run, "costs.bytes_per_decode_pass", &per_decode)) &&
                 show_number(run, "space.free_bytes", &free_bytes) && show_number(run, "space.act_bytes", &act);
    uint64_t tokens = number_add(load->prefill_tokens, load->decode_tokens);
    if (!known)
        return error_set(err, ERROR_NOT_FOUND,
                         "what a token costs is not known: it cannot be said whether %" PRIu64 " fit", tokens);
    show_number(run, "space.soft_bytes", &soft);
    uint64_t level = soft > act ? soft : act, left = number_subtract(free_bytes, level);
    uint64_t needed =
        number_add(number_multiply(load->prefill_tokens, per_token), number_multiply(load->decode_tokens, per_decode));
    if (needed <= left)
        return check_budget(run, needed, err);
    /* A decoded token costs far more than one of a prefill: how many of both fit is no number. */
    char *fit = load->decode_tokens == 0
                    ? memory_format("only about %" PRIu64 " fit", space_units_left(free_bytes, level, per_token))
                    : memory_format("%s are left", size_text(left, left_text));
    error_set(err, ERROR_SPACE, "%" PRIu64 " tokens need about %s; %s until %s at %s of free space", tokens,
              size_text(needed, needed_text), fit, soft > act ? "dumping is switched off" : "the run is killed",
              size_text(level, level_text));
    free(fit);
    return ERROR_SPACE;
}

enum error_code dump_session_room(struct find *find, const struct dump_session_load *load, struct error *err)
{
    struct json *run = NULL;
    enum error_code code = find_status(find, &run, err);
    if (code == ERROR_NONE)
        code = check_room(run, load, err);
    json_free(run);
    return code;
}
