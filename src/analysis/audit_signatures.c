#include "analysis/audit_work.h"
#include "analysis/audit_probe.h"

#include <inttypes.h>

/* ---- files ---- */

static const enum audit_reason kinds[AUDIT_TABLE_STATES] = {
    [AUDIT_TABLE_EMPTY] = AUDIT_REASON_EMPTY,
    [AUDIT_TABLE_TRUNCATED] = AUDIT_REASON_TRUNCATED,
    [AUDIT_TABLE_FOREIGN] = AUDIT_REASON_FOREIGN_FORMAT,
    [AUDIT_TABLE_DAMAGED] = AUDIT_REASON_DAMAGED,
    [AUDIT_TABLE_VALUELESS] = AUDIT_REASON_VALUELESS,
    [AUDIT_TABLE_ROWS] = AUDIT_REASON_ROWS,
    [AUDIT_TABLE_IRREGULAR] = AUDIT_REASON_IRREGULAR,
    [AUDIT_TABLE_UNREADABLE] = AUDIT_REASON_UNREADABLE,
};

static void check_files(struct audit_work *work, const struct audit_span *span)
{
    for (size_t i = span->first; i < span->first + span->count; i++) {
        const struct audit_table_file *file = &work->table.files[i];
        if (file->state == AUDIT_TABLE_FINE)
            continue;
        enum audit_reason kind = kinds[file->state];
        char text[AUDIT_TABLE_NAME];
        struct error err = ERROR_INIT;
        if (file->state == AUDIT_TABLE_EMPTY || !audit_reasons_wants(&work->reasons, kind))
            audit_reasons_add(&work->reasons, kind, 1, "%s", audit_table_describe(&work->table, file, text));
        else if (audit_probe_explain(&work->table, work->folder_fd, file, &err) != ERROR_NONE)
            audit_reasons_add(&work->reasons, kind, 1, "%s (%s)", audit_table_describe(&work->table, file, text),
                              err.message);
        else
            audit_reasons_add(&work->reasons, kind, 1, "%s (fine at a second look: it is still being written)",
                              audit_table_describe(&work->table, file, text));
    }
}

/* ---- what the pattern of files says ---- */

/* A replayed prefill graph writes the root's inputs, the logits and nothing between, and never rids. */
static bool is_graph_replay(const struct audit_pass *pass, const struct audit_span *span)
{
    return span->hooks && !span->no_inputs && span->no_ids_file && pass->layer_files == 0;
}

/* With data-parallel attention a rank that has nothing to do runs along with an empty batch. */
static bool is_idle(const struct audit_pass *pass, const struct audit_span *span)
{
    return !span->no_inputs && pass->tokens == 0 && pass->requests == 0;
}

static void check_patterns(struct audit_work *work)
{
    bool hooks = false;
    for (size_t i = 0; i < work->audit->pass_count; i++)
        hooks |= work->spans[i].hooks;
    if (work->audit->pass_count > 0 && !hooks)
        audit_reasons_add(&work->reasons, AUDIT_REASON_CORE_MODE, 1, "%s", "");
    for (size_t i = 0; i < work->audit->pass_count; i++) {
        const struct audit_pass *pass = &work->audit->passes[i];
        struct audit_span *span = &work->spans[i];
        span->replayed = is_graph_replay(pass, span);
        if (span->cut)
            continue;
        if (span->replayed)
            audit_reasons_add(&work->reasons, AUDIT_REASON_GRAPH_REPLAY, 1,
                              "step %" PRIu64 " rank %" PRIu32 " with %" PRIu64 " files", pass->step, pass->rank,
                              pass->files);
        else if (work->expected->own_request_ids.count > 0 && span->no_ids_file && !is_idle(pass, span))
            audit_reasons_add(&work->reasons, AUDIT_REASON_NO_REQUEST_IDS, 1, "step %" PRIu64 " rank %" PRIu32,
                              pass->step, pass->rank);
    }
}

void audit_signatures_check(struct audit_work *work)
{
    for (size_t i = 0; i < work->audit->pass_count; i++)
        if (!work->spans[i].cut)
            check_files(work, &work->spans[i]);
    check_patterns(work);
    if (work->expected->failed_saves > 0)
        audit_reasons_add(&work->reasons, AUDIT_REASON_FAILED_SAVES, work->expected->failed_saves, "%s", "");
}
