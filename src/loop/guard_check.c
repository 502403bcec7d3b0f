/* Audits and seals. The guard opens no dump file: a child `kldumpctl check --json` does, with what the server's
 * counters said on its standard input. Happy path: guard_check_start -> child -> its JSON becomes struct audit ->
 * RUN_EVENT_JUDGED (the probe) or RUN_EVENT_AUDITED -> RUN_DO_SEAL -> guard_check_seal writes EXP.kldump.json.
 * Failures: the child cannot be started, crashes, says nonsense, takes too long: an audit that failed, sealed as
 * incomplete with that reason; never a seal that says complete. */
#include "config.h"
#include "loop/guard_private.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "sys/audit_json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_BYTES = 256 * 1024 };                     /* read, copied and printed in well under a heartbeat */
static const uint64_t check_limit_ms = 30 * 60000ull; /* a million files on a slow disk */

/* ---- what the counters say ---- */

static void expected_from(struct guard *guard, bool probe, struct audit_expected *ret_expected)
{
    const struct run *run = &guard->run;
    struct run_counts base = run->base, last = run->last;
    if (probe) {
        base.ranks = run->before.rank_count;
        for (uint32_t i = 0; i < base.ranks; i++) {
            base.rank[i].dump_index = run->before.rank[i].dump_index;
            base.rank[i].step = run->before.rank[i].step;
        }
    }
    uint32_t ranks = base.ranks < last.ranks ? base.ranks : last.ranks;
    *ret_expected =
        (struct audit_expected){.known = ranks > 0, .exact = probe || run->counts_exact, .rank_count = ranks};
    ret_expected->ranks = memory_new((ranks + 1u) * sizeof *ret_expected->ranks);
    for (uint32_t i = 0; i < ranks; i++)
        ret_expected->ranks[i] = (struct audit_expected_rank){base.rank[i].dump_index, last.rank[i].dump_index,
                                                              base.rank[i].step, last.rank[i].step};
    if (probe) {
        list_add(&ret_expected->own_request_ids, run->settings.probe_request);
        ret_expected->failed_saves = run->failed_saves;
        return;
    }
    for (size_t i = 0; i < guard->own_request_ids.count; i++)
        list_add(&ret_expected->own_request_ids, guard->own_request_ids.items[i]);
    ret_expected->failed_saves = run->failed_saves - run->failed_saves_base;
}

/* ---- the child ---- */

static void forget_audit(struct guard *guard)
{
    json_free(guard->check_json);
    guard->check_json = NULL;
    audit_fini(&guard->audit);
}

static void audit_failed(struct guard *guard, const char *why)
{
    forget_audit(guard);
    list_add_format(&guard->audit.reasons, "the audit failed: %s; run it by hand: kldumpctl check %s/%s", why,
                    guard->plan.directory, guard->check_experiment);
}

static void tell(struct guard *guard, bool ok)
{
    if (guard->check_probe) {
        struct server_judgement judgement = {.verdict = SERVER_FAILED};
        struct server_probe_evidence evidence = {&guard->audit,      &guard->run.facts,
                                                 &guard->run.before, &guard->run.after,
                                                 &guard->run.probe,  guard->run.settings.probe_request};
        if (ok) {
            guard->server->judge_probe(&evidence, &judgement);
        } else {
            text_copy(judgement.setting, sizeof judgement.setting, "audit");
            text_copy(judgement.text, sizeof judgement.text, guard->audit.reasons.items[0]);
        }
        guard_feed(guard, &(struct run_event){
                              .kind = RUN_EVENT_JUDGED, .number = guard->check_number, .judgement = &judgement});
        return;
    }
    guard_feed(guard,
               &(struct run_event){.kind = RUN_EVENT_AUDITED,
                                   .number = guard->check_number,
                                   .ok = ok,
                                   .complete = guard->audit.complete,
                                   .text = guard->audit.reasons.count > 0 ? guard->audit.reasons.items[0] : NULL});
}

/* What somebody did to the dump meanwhile comes before anything that the files show. */
static void add_disturbance(struct guard *guard)
{
    struct list reasons = {0};
    if (guard->run.disturbance[0] == '\0')
        return;
    guard->audit.complete = false;
    list_add(&reasons, guard->run.disturbance);
    list_add_all(&reasons, list_vector(&guard->audit.reasons));
    list_fini(&guard->audit.reasons);
    guard->audit.reasons = reasons;
}

static void take_result(struct guard *guard, const struct child_result *result)
{
    struct error err = ERROR_INIT;
    forget_audit(guard);
    bool ran = result->exit_code == STATUS_DONE || result->exit_code == STATUS_INCOMPLETE;
    if (!ran || result->output_cut) {
        char text[512];
        child_describe(result, text, sizeof text);
        audit_failed(guard, text);
    } else if (json_parse(result->output, result->output_length,
                          (struct json_limits){AUDIT_JSON_LIMIT, JSON_DEPTH, JSON_ANY_VALUES}, &guard->check_json,
                          &err) != ERROR_NONE ||
               audit_json_take(guard->check_json, &guard->audit, &err) != ERROR_NONE) {
        audit_failed(guard, err.message);
        ran = false;
    }
    if (!guard->check_probe)
        add_disturbance(guard);
    tell(guard, ran && !result->output_cut);
}

static void checked(const struct child_result *result, void *user)
{
    struct guard *guard = user;
    struct guard_busy busy;
    bool large = result->output_length > BUSY_BYTES;
    guard->child = NULL;
    if (large)
        guard_busy_begin(guard, &busy);
    take_result(guard, result);
    if (large)
        guard_busy_end(&busy);
}

void guard_check_start(struct guard *guard, uint64_t number, const char *experiment, bool probe)
{
    if (guard->child != NULL)
        child_cancel(guard->child); /* its answer is not waited for any more */
    guard->check_number = number;
    guard->check_probe = probe;
    text_copy(guard->check_experiment, sizeof guard->check_experiment, experiment);
    struct audit_expected expected;
    expected_from(guard, probe, &expected);
    audit_expected_fini(&guard->expected);
    guard->expected = expected;
    struct buffer input;
    buffer_init(&input);
    audit_json_write_expected(&expected, &input);
    char *folder = memory_format("%s/%s", guard->plan.directory, experiment);
    char *argv[] = {guard->plan.check_program, "check", "--json", "--expect", "-", folder, NULL};
    struct child_request request = {.argv = argv,
                                    .input = input.data,
                                    .input_length = input.length,
                                    .output_max_bytes = AUDIT_JSON_LIMIT,
                                    .deadline_ms = check_limit_ms};
    struct error err = ERROR_INIT;
    if (child_start(&guard->loop, &request, checked, guard, &guard->child, &err) != ERROR_NONE) {
        guard->child = NULL;
        audit_failed(guard, err.message);
        guard->check_broken = true; /* told from the loop: the machine is in the middle of a step */
    }
    buffer_fini(&input);
    free(folder);
}

void guard_check_turn(struct guard *guard)
{
    if (!guard->check_broken)
        return;
    guard->check_broken = false;
    tell(guard, false);
}

/* ---- the seal ---- */

static void keep_seal(struct guard *guard)
{
    if (guard->seal_count == GUARD_SEALS_MAX) {
        list_fini(&guard->seals[0].reasons);
        memmove(guard->seals, guard->seals + 1, (GUARD_SEALS_MAX - 1) * sizeof guard->seals[0]);
        guard->seal_count--;
    }
    struct guard_seal *seal = &guard->seals[guard->seal_count++];
    *seal = (struct guard_seal){.complete = guard->audit.complete,
                                .by = guard->run.sealed_by,
                                .ranks = guard->audit.ranks,
                                .steps = guard->audit.steps,
                                .files = guard->audit.files,
                                .bytes = guard->audit.bytes};
    text_copy(seal->experiment, sizeof seal->experiment, guard->run.seal_experiment);
    for (size_t i = 0; i < guard->audit.reasons.count; i++)
        list_add(&seal->reasons, guard->audit.reasons.items[i]);
}

static struct json *expected_tree(const struct guard *guard)
{
    struct buffer text;
    struct json *tree = NULL;
    buffer_init(&text);
    audit_json_write_expected(&guard->expected, &text);
    if (json_parse(text.data, text.length, (struct json_limits){text.length, JSON_DEPTH, JSON_ANY_VALUES}, &tree,
                   NULL) != ERROR_NONE)
        tree = json_object();
    buffer_fini(&text);
    return tree;
}

void guard_check_seal(struct guard *guard)
{
    keep_seal(guard);
    const struct run *run = &guard->run;
    char at[CLOCK_TEXT];
    struct json *object = json_object();
    json_set_string(object, "schema", "kldump.seal/1");
    json_set_string(object, "experiment", run->seal_experiment);
    json_set_string(object, "run", guard->plan.settings.name);
    json_set_bool(object, "complete", guard->audit.complete);
    json_set_list(object, "reasons", &guard->audit.reasons);
    json_set_string(object, "sealed_by", run_sealed_by_name(run->sealed_by));
    json_set_string(object, "at", clock_text(clock_wall_ms(), at));
    struct json *versions = json_set_object(object, "versions");
    json_set_string(versions, "kldump", PACKAGE_VERSION);
    json_set_string(versions, "sglang", guard->plan.version[0] != '\0' ? guard->plan.version : NULL);
    json_set_child(object, "expected", expected_tree(guard));
    if (guard->check_json != NULL)
        json_set_child(object, "check", guard->check_json);
    else
        json_set_null(object, "check");
    guard->check_json = NULL;
    struct buffer text;
    buffer_init(&text);
    json_print_pretty(object, &text);
    buffer_text(&text, "\n");
    json_free(object);
    char *path = memory_format("%s/%s.kldump.json", guard->plan.directory, run->seal_experiment);
    sink_replace(guard->dump_sink, path, text.data, text.length);
    free(path);
    buffer_fini(&text);
    list_fini(&guard->own_request_ids);
    guard->holder = NULL;
}

/* ---- the probe's folder goes, on libuv's pool: only names that a dumper writes, then the folder itself ---- */

struct discard {
    uv_work_t work;
    int directory_fd;
    char experiment[SERVER_NAME_MAX];
    bool (*is_dump)(const char *name, uint64_t *ret_rank, uint64_t *ret_dump_index);
};

static void discard_work(uv_work_t *work)
{
    struct discard *discard = work->data;
    int fd = openat(discard->directory_fd, discard->experiment, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return; /* nothing was written, or it is not ours to remove */
    }
    uint64_t rank, dump_index;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (discard->is_dump(entry->d_name, &rank, &dump_index))
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    unlinkat(discard->directory_fd, discard->experiment, AT_REMOVEDIR);
}

static void discard_done(uv_work_t *work, int status)
{
    (void)status;
    struct discard *discard = work->data;
    close(discard->directory_fd);
    free(discard);
}

void guard_check_discard(struct guard *guard, const char *experiment)
{
    struct discard *discard = memory_new(sizeof *discard);
    discard->work.data = discard;
    discard->is_dump = guard->server->read_dump_name;
    discard->directory_fd = fcntl(guard->plan.directory_fd, F_DUPFD_CLOEXEC, 3);
    text_copy(discard->experiment, sizeof discard->experiment, experiment);
    if (discard->directory_fd < 0 || uv_queue_work(&guard->loop, &discard->work, discard_work, discard_done) != 0) {
        if (discard->directory_fd >= 0)
            close(discard->directory_fd);
        free(discard);
    }
}

void guard_check_fini(struct guard *guard)
{
    if (guard->child != NULL)
        child_cancel(guard->child);
    guard->child = NULL;
    forget_audit(guard);
    audit_expected_fini(&guard->expected);
}
