#include "analysis/side_work.h"
#include "analysis/audit_folder.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROGRESS_EVERY = 256 }; /* passes */

static enum error_code open_folder(struct side *side, const char *path, unsigned threads, struct error *err)
{
    struct side_folder *folder = &side->folders[side->folder_count];
    *folder = (struct side_folder){.fd = -1};
    audit_table_init(&folder->table);
    audit_init(&folder->audit);
    const struct audit_folder_options options = {.threads = threads, .core_only = true, .ret_table = &folder->table};
    enum error_code code = audit_folder(path, NULL, &options, &folder->audit, err);
    if (code != ERROR_NONE)
        return code;
    folder->path = memory_copy(path);
    side->folder_count++;
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot open the folder '%.200s'", path);
    if (folder->table.file_count == 0)
        return error_set(err, ERROR_INCOMPLETE, "'%s' is no dump: %s", path,
                         folder->audit.reasons.count > 0 ? folder->audit.reasons.items[0] : "it is empty");
    return ERROR_NONE;
}

/* By rank, then folder, then step: within a folder they are in that order already. */
static int compare_passes(const void *a, const void *b)
{
    const struct side_pass *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? 1 : -1;
    if (x->folder != y->folder)
        return x->folder > y->folder ? 1 : -1;
    return (x->step > y->step) - (x->step < y->step);
}

/* Positions that no model has would cost memory for every one before them. */
static enum error_code check_positions(const struct side_pass *pass, struct error *err)
{
    for (size_t i = 0; i < pass->segment_count; i++)
        if (pass->segments[i].position + pass->segments[i].rows > SIDE_POSITION_MAX)
            return error_set(err, ERROR_TOO_LARGE, "positions[%" PRIu32 "] is %" PRId64 ", more than %d",
                             pass->segments[i].row, pass->segments[i].position, SIDE_POSITION_MAX);
    return ERROR_NONE;
}

static void read_pass(struct side_work *work, uint32_t number)
{
    struct side_pass *pass = &work->side->passes[number];
    struct side_core core;
    struct error err = ERROR_INIT;
    if (pass->draft)
        return;
    enum error_code code = side_core_read(work, pass, &core, &err);
    pass->tokens = code == ERROR_NONE ? core.tokens : 0;
    pass->requests = code == ERROR_NONE ? core.requests : 0;
    if (code == ERROR_NONE) {
        struct segment_input input = {.ids = core.ids,
                                      .positions = core.positions,
                                      .tokens = core.tokens,
                                      .lengths = core.lengths,
                                      .requests = core.requests,
                                      .named = core.has_rids ? core.rids.count : SIZE_MAX};
        pass->segments = memory_new((core.requests + 1) * sizeof *pass->segments);
        code = segment_cut(&input, pass->segments, &pass->segment_count, &err);
        if (code == ERROR_NONE)
            code = check_positions(pass, &err);
        pass->segments = memory_resize(pass->segments, pass->segment_count + 1, sizeof *pass->segments);
    }
    if (code != ERROR_NONE) {
        pass->problem = memory_format("step %" PRIu64 " rank %" PRIu32 ": %s", pass->step, pass->rank, err.message);
        pass->unreadable = core.unreadable;
        pass->refused = core.refused;
        pass->segment_count = 0;
        work->side->broken_pass_count++;
    }
    side_sequences_link(work, number, &core);
    side_core_free(&core);
}

static enum error_code read_passes(struct side *side, side_progress *progress, void *context, struct error *err)
{
    struct side_work work = {.side = side, .file = pt_file_new()};
    for (size_t i = 0; i < side->pass_count; i++) {
        if (progress != NULL && i % PROGRESS_EVERY == 0)
            progress(context, i, side->pass_count);
        side->ranks += i == 0 || side->passes[i].rank != side->passes[i - 1].rank;
        read_pass(&work, (uint32_t)i);
    }
    if (progress != NULL)
        progress(context, side->pass_count, side->pass_count);
    for (size_t i = 0; i < work.key_count; i++)
        free(work.keys[i].rid);
    free(work.keys);
    free(work.slots);
    pt_file_free(work.file);
    if (work.token_count > SIDE_TOKENS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "'%s': its requests have more than %d tokens together",
                         side->folders[side->folder_count - 1].path, SIDE_TOKENS_MAX);
    return ERROR_NONE;
}

enum error_code side_read(const char *const *paths, unsigned threads, side_progress *progress, void *context,
                          struct side *ret_side, struct error *err)
{
    struct side side = {.tp_size = 1, .broken_pass = SIDE_NOWHERE};
    size_t count = 0;
    enum error_code code = ERROR_NONE;
    while (paths[count] != NULL)
        count++;
    side.folders = memory_new((count + 1) * sizeof *side.folders);
    for (size_t i = 0; i < count && code == ERROR_NONE; i++)
        code = open_folder(&side, paths[i], threads, err);
    for (size_t i = 0; i < count && code == ERROR_NONE; i++)
        side_passes_add(&side, (uint32_t)i);
    if (code == ERROR_NONE && side.pass_count >= SIDE_NOWHERE)
        code = error_set(err, ERROR_TOO_LARGE, "'%s' has %zu passes", paths[count - 1], side.pass_count);
    if (code == ERROR_NONE && side.pass_count > 0)
        qsort(side.passes, side.pass_count, sizeof *side.passes, compare_passes);
    if (code == ERROR_NONE)
        code = read_passes(&side, progress, context, err);
    if (code != ERROR_NONE) {
        side_fini(&side);
        return code;
    }
    side_sequences_finish(&side);
    side_prefix_fill(&side);
    *ret_side = side;
    return ERROR_NONE;
}

void side_fini(struct side *side)
{
    for (size_t i = 0; i < side->folder_count; i++) {
        free(side->folders[i].path);
        if (side->folders[i].fd >= 0)
            close(side->folders[i].fd);
        audit_table_fini(&side->folders[i].table);
        audit_fini(&side->folders[i].audit);
    }
    free(side->folders);
    for (size_t i = 0; i < side->pass_count; i++) {
        free(side->passes[i].segments);
        free(side->passes[i].problem);
    }
    free(side->passes);
    for (size_t i = 0; i < side->sequence_count; i++) {
        free(side->sequences[i].rid);
        free(side->sequences[i].tokens);
    }
    free(side->sequences);
    *side = (struct side){0};
}
