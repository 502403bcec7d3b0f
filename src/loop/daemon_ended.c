/* Happy path: a run is seen live and put down; at a later look it is no longer, its record tells how it ended, and it
 * is counted. Both in one file that is replaced as a whole: killed between two looks, the next daemon counts what ended
 * meanwhile, once.
 *
 * It ended without a record: it was refused before its server was started, and is not counted.
 * Its record cannot be read, or another run has taken its name while nobody looked: counted as "unknown".
 * The file is damaged: set aside, told, counted anew. It cannot be written: told once, kept in mind, tried again. */
#include "base/memory.h"
#include "base/text.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "sys/file.h"
#include "sys/file_below.h"
#include "sys/launch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema[] = "kldump.ended/1", file[] = "ended.json";
enum { ENDED_MAX = 1024 * 1024, ENDED_UNKNOWN = RUN_OUTCOMES, ENDED_KINDS };

struct daemon_ended {
    uint64_t counts[ENDED_KINDS];
    struct json *live; /* {NAME: pid of its guard, 0: not known yet} */
    bool unwritten, told;
};

static const char *kind_name(size_t kind)
{
    return kind == ENDED_UNKNOWN ? "unknown" : run_outcome_name((enum run_outcome)kind);
}

static size_t kind_of(const char *outcome)
{
    enum run_outcome kind = run_outcome_from_name(outcome);
    return kind != RUN_OUTCOME_NONE ? (size_t)kind : ENDED_UNKNOWN;
}

struct json *daemon_ended_counts(const struct daemon *daemon)
{
    const struct daemon_ended *ended = daemon->known->ended;
    struct json *counts = json_object();
    for (size_t kind = 0; kind < ENDED_KINDS; kind++)
        if (kind != RUN_OUTCOME_NONE && (kind != ENDED_UNKNOWN || ended->counts[kind] > 0))
            json_set_u64(counts, kind_name(kind), ended->counts[kind]);
    return counts;
}

/* ---- the file ---- */

static void write_file(const struct daemon *daemon)
{
    struct daemon_ended *ended = daemon->known->ended;
    struct error err = ERROR_INIT;
    struct json *object = json_object();
    json_set_string(object, "schema", schema);
    json_set_child(object, "ended", daemon_ended_counts(daemon));
    json_set_child(object, "live", json_copy(ended->live));
    struct buffer text;
    buffer_init(&text);
    json_print_pretty(object, &text);
    buffer_text(&text, "\n");
    char *path = memory_format("%s/%s", daemon->runtime, file);
    ended->unwritten = file_replace(path, text.data, text.length, 0600, FILE_NO_SYNC, &err) != ERROR_NONE;
    if (ended->unwritten && !ended->told)
        fprintf(stderr, "kldumpd: how many runs ended how is kept in mind alone: %s\n", err.message);
    ended->told = ended->unwritten;
    free(path);
    buffer_fini(&text);
    json_free(object);
}

static enum error_code parse(const struct buffer *text, struct daemon_ended *ended, struct error *err)
{
    struct json *object = NULL;
    const struct json *counts, *live;
    const char *found;
    uint64_t number, read[ENDED_KINDS] = {0};
    enum error_code code = json_parse(text->data, text->length,
                                      (struct json_limits){ENDED_MAX, JSON_DEPTH, JSON_ANY_VALUES}, &object, err);
    if (code == ERROR_NONE)
        code = json_get_string(object, "schema", &found, err);
    if (code == ERROR_NONE && strcmp(found, schema) != 0)
        code = error_set(err, ERROR_FORMAT, "schema is \"%.80s\", expected \"%s\"", found, schema);
    if (code == ERROR_NONE)
        code = json_get_object(object, "ended", &counts, err);
    if (code == ERROR_NONE)
        code = json_get_object(object, "live", &live, err);
    for (size_t kind = 0; code == ERROR_NONE && kind < ENDED_KINDS; kind++)
        code = json_optional_u64(counts, kind_name(kind), 0, &read[kind], err);
    for (const struct json *one = code == ERROR_NONE ? json_first(live) : NULL; one != NULL; one = json_next(one))
        if (code == ERROR_NONE && (code = json_get_u64(one, "", &number, err)) == ERROR_NONE &&
            !text_is_name(json_key(one)))
            code = error_set(err, ERROR_FORMAT, "a run has a name that is none");
    if (code == ERROR_NONE) {
        memcpy(ended->counts, read, sizeof read);
        json_free(ended->live);
        ended->live = json_copy(live);
    }
    json_free(object);
    return code;
}

static void read_file(const struct daemon *daemon, struct daemon_ended *ended)
{
    struct error err = ERROR_INIT;
    struct buffer text;
    struct stat status;
    int fd = -1, folder_fd = open(daemon->runtime, O_PATH | O_DIRECTORY | O_CLOEXEC);
    buffer_init(&text);
    enum error_code code = file_below_open(folder_fd, file, geteuid(), &fd, &status, &err);
    if (code == ERROR_NONE)
        code = file_below_read(fd, file, 0, ENDED_MAX + 1, &text, &err);
    if (code == ERROR_NONE)
        code = parse(&text, ended, &err);
    if (code != ERROR_NONE && code != ERROR_NOT_FOUND)
        fprintf(stderr, "kldumpd: damaged record %s/%s: %s; %s, and runs are counted anew\n", daemon->runtime, file,
                err.message,
                file_below_set_aside(folder_fd, file) ? "set aside as .damaged beside it" : "it cannot be renamed");
    if (fd >= 0)
        close(fd);
    close(folder_fd);
    buffer_fini(&text);
}

/* ---- looking ---- */

/* False: it never was a run. */
static bool count(const struct daemon *daemon, const char *name, bool taken)
{
    struct daemon_ended *ended = daemon->known->ended;
    struct json *run = NULL;
    const char *outcome = "";
    enum error_code code = taken ? ERROR_FORMAT : daemon_runs_run(daemon, name, false, &run, NULL);
    if (code == ERROR_NOT_FOUND)
        return false;
    if (code == ERROR_NONE)
        json_get_string(run, "outcome", &outcome, NULL);
    ended->counts[kind_of(outcome)]++;
    json_free(run);
    return true;
}

/* The pid of a live run's guard, as far as it is known. */
static uint64_t guard_of(const struct daemon *daemon, const char *name)
{
    struct json *run = NULL;
    uint64_t pid = 0;
    const struct daemon_owned *owned = daemon_keep_find(daemon, name);
    if (owned != NULL && owned->live)
        return (uint64_t)owned->launched->pid;
    if (daemon_runs_run(daemon, name, true, &run, NULL) == ERROR_NONE)
        json_get_u64(run, "guard_pid", &pid, NULL);
    json_free(run);
    return pid;
}

void daemon_ended_look(const struct daemon *daemon)
{
    struct daemon_ended *ended = daemon->known->ended;
    struct list names = {0};
    bool changed = false, counted = false;
    if (ended == NULL) /* not begun yet */
        return;
    daemon_keep_write_again(daemon);
    daemon_runs_names(daemon, true, &names);
    struct json *live = json_object();
    for (size_t i = 0; i < names.count; i++) {
        uint64_t before = 0, pid = guard_of(daemon, names.items[i]);
        const struct json *known = json_member(ended->live, names.items[i]);
        json_get_u64(known, "", &before, NULL);
        bool taken = known != NULL && before != 0 && pid != 0 && before != pid;
        if (taken)
            counted = count(daemon, names.items[i], true);
        changed = changed || known == NULL || taken || before != pid;
        json_set_u64(live, names.items[i], pid);
    }
    for (const struct json *one = json_first(ended->live); one != NULL; one = json_next(one)) {
        if (json_member(live, json_key(one)) != NULL)
            continue;
        counted = count(daemon, json_key(one), false) || counted;
        changed = true;
    }
    list_fini(&names);
    json_free(ended->live);
    ended->live = live;
    if (changed || ended->unwritten)
        write_file(daemon);
    if (counted)
        daemon_retain(daemon);
}

void daemon_ended_begin(struct daemon *daemon)
{
    struct daemon_ended *ended = memory_new(sizeof *ended);
    ended->live = json_object();
    read_file(daemon, ended);
    daemon->known->ended = ended;
    daemon_ended_look(daemon);
}

void daemon_ended_free(struct daemon_ended *ended)
{
    if (ended != NULL)
        json_free(ended->live);
    free(ended);
}
