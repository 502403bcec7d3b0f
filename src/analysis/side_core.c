/* The five core tensors of a pass: the records around `seq_lens`, which only the root's batch has; `positions` recurs
 * in every layer (SGLang 0.5.10 to 0.5.23, dumper.py: input_ids, seq_lens, positions, req_pool_indices, rids in this
 * order, without a layer). */
#include "analysis/side_work.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS_MAX = 4 * 1024 * 1024 }; /* of one core tensor: far above any batch */

struct records { /* the files of the core tensors; NULL: none */
    const struct audit_table_file *ids, *lengths, *positions, *slots, *rids;
};

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static void take_nearer(const struct audit_table_file **best, const struct audit_table_file *file, uint64_t anchor)
{
    if (*best == NULL || distance(file->dump_index, anchor) < distance((*best)->dump_index, anchor))
        *best = file;
}

/* Where each core name without a layer stands; of several, the one nearest to seq_lens. */
static enum error_code find_records(const struct side *side, const struct side_pass *pass, struct records *ret_records,
                                    struct error *err)
{
    const struct audit_table *table = &side->folders[pass->folder].table;
    struct records found = {0};
    for (size_t i = pass->first_file; i < pass->first_file + pass->file_count; i++) {
        const struct audit_table_suffix *suffix = &table->suffixes[table->files[i].suffix];
        if (suffix->core != DUMP_NAME_SEQ_LENS || suffix->hook || suffix->has_layer_tag)
            continue;
        if (found.lengths != NULL)
            return error_set(err, ERROR_FORMAT,
                             "seq_lens stands twice (dump_index %" PRIu64 " and %" PRIu64 "): two passes in one step",
                             found.lengths->dump_index, table->files[i].dump_index);
        found.lengths = &table->files[i];
    }
    if (found.lengths == NULL)
        return error_set(err, ERROR_FORMAT, "there is no seq_lens among its %zu files", pass->file_count);
    for (size_t i = pass->first_file; i < pass->first_file + pass->file_count; i++) {
        const struct audit_table_file *file = &table->files[i];
        const struct audit_table_suffix *suffix = &table->suffixes[file->suffix];
        if (suffix->hook || suffix->has_layer_tag)
            continue;
        if (suffix->core == DUMP_NAME_INPUT_IDS)
            take_nearer(&found.ids, file, found.lengths->dump_index);
        else if (suffix->core == DUMP_NAME_POSITIONS)
            take_nearer(&found.positions, file, found.lengths->dump_index);
        else if (suffix->core == DUMP_NAME_REQ_POOL_INDICES)
            take_nearer(&found.slots, file, found.lengths->dump_index);
        else if (suffix->core == DUMP_NAME_RIDS)
            take_nearer(&found.rids, file, found.lengths->dump_index);
    }
    *ret_records = found;
    return ERROR_NONE;
}

static enum error_code open_record(struct side_work *work, const struct side_pass *pass,
                                   const struct audit_table_file *file, const char *name, struct side_core *core,
                                   struct error *err)
{
    char text[AUDIT_TABLE_NAME];
    const struct side_folder *folder = &work->side->folders[pass->folder];
    if (file == NULL)
        return error_set(err, ERROR_FORMAT, "there is no %s among its %zu files", name, pass->file_count);
    enum error_code code = pt_file_open(work->file, folder->fd, audit_table_name(&folder->table, file, text), err);
    if (code == ERROR_NONE)
        return ERROR_NONE;
    core->unreadable = true;
    core->refused = pt_file_refuses(pt_file_problem(work->file));
    return error_prefix(err, "%s", name);
}

/* Of [3, T] (mrope) the first row: text has the same position in all three. */
static enum error_code read_integers(struct side_work *work, const struct side_pass *pass,
                                     const struct audit_table_file *file, const char *name, struct side_core *core,
                                     int64_t **ret_values, size_t *ret_count, struct error *err)
{
    enum error_code code = open_record(work, pass, file, name, core, err);
    if (code != ERROR_NONE)
        return code;
    const struct pt_file_tensor *tensor = pt_file_tensor(work->file);
    if (tensor == NULL || tensor->rank < 1 || tensor->rank > 2 ||
        (tensor->dtype != PT_DTYPE_INT64 && tensor->dtype != PT_DTYPE_INT32))
        return error_set(err, ERROR_FORMAT, "%s is no list of integers (%s with %u dimensions)", name,
                         tensor == NULL ? "no tensor" : pt_dtype_name(tensor->dtype),
                         tensor == NULL ? 0 : tensor->rank);
    uint64_t count = tensor->elements == 0 ? 0 : tensor->size[tensor->rank - 1];
    size_t bytes = pt_dtype_bytes(tensor->dtype);
    if (count > ELEMENTS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "%s has %" PRIu64 " elements, more than %d", name, count, ELEMENTS_MAX);
    int64_t *values = malloc((size_t)count * sizeof *values + 1);
    if (values == NULL)
        return error_set(err, ERROR_MEMORY, "%s has %" PRIu64 " elements", name, count);
    bool wide = bytes == 8;
    for (uint64_t at = 0; at < count && code == ERROR_NONE;) {
        uint64_t part = count - at < PT_FILE_WINDOW / bytes ? count - at : PT_FILE_WINDOW / bytes;
        const void *elements;
        code = pt_file_elements(work->file, at, part, &elements, err);
        for (uint64_t i = 0; i < part && code == ERROR_NONE; i++) {
            int32_t narrow;
            if (wide)
                memcpy(&values[at + i], (const char *)elements + i * 8, 8);
            else
                memcpy(&narrow, (const char *)elements + i * 4, 4);
            if (!wide)
                values[at + i] = narrow;
        }
        at += part;
    }
    if (code != ERROR_NONE) {
        core->unreadable = true;
        free(values);
        return error_prefix(err, "%s", name);
    }
    *ret_values = values;
    *ret_count = (size_t)count;
    return ERROR_NONE;
}

/* How the ranks share the work: said in the meta of every file. */
static void read_layout(struct side_work *work)
{
    int64_t value;
    if (pt_file_meta_integer(work->file, "sglang_parallel_info.tp_size", &value) && value > 0 && value <= UINT32_MAX)
        work->side->tp_size = (unsigned)value;
    if (pt_file_meta_integer(work->file, "sglang_parallel_info.attn_dp_size", &value) && value > 1)
        work->side->replicas = true;
}

static enum error_code read_rids(struct side_work *work, const struct side_pass *pass,
                                 const struct audit_table_file *file, struct side_core *core, struct error *err)
{
    if (file == NULL)
        return ERROR_NONE;
    enum error_code code = open_record(work, pass, file, "rids", core, err);
    if (code == ERROR_NONE && pt_file_kind(work->file) != PT_FILE_TEXTS)
        code = error_set(err, ERROR_FORMAT, "rids is no list of strings");
    if (code == ERROR_NONE)
        code = pt_file_texts(work->file, &core->rids, err);
    core->has_rids = code == ERROR_NONE;
    return code;
}

enum error_code side_core_read(struct side_work *work, const struct side_pass *pass, struct side_core *ret_core,
                               struct error *err)
{
    struct records records = {0};
    size_t positions, slots = 0;
    *ret_core = (struct side_core){0};
    enum error_code code = find_records(work->side, pass, &records, err);
    if (code == ERROR_NONE)
        code = read_rids(work, pass, records.rids, ret_core, err);
    if (code == ERROR_NONE)
        code = read_integers(work, pass, records.lengths, "seq_lens", ret_core, &ret_core->lengths, &ret_core->requests,
                             err);
    if (code == ERROR_NONE && ret_core->requests > SIDE_REQUESTS_MAX)
        code = error_set(err, ERROR_TOO_LARGE, "seq_lens has %zu entries, more than %d", ret_core->requests,
                         SIDE_REQUESTS_MAX);
    if (code == ERROR_NONE)
        read_layout(work);
    if (code == ERROR_NONE)
        code = read_integers(work, pass, records.ids, "input_ids", ret_core, &ret_core->ids, &ret_core->tokens, err);
    if (code == ERROR_NONE)
        code =
            read_integers(work, pass, records.positions, "positions", ret_core, &ret_core->positions, &positions, err);
    if (code == ERROR_NONE && positions != ret_core->tokens)
        code = error_set(err, ERROR_FORMAT, "input_ids has %zu rows, positions %zu", ret_core->tokens, positions);
    if (code == ERROR_NONE && !ret_core->has_rids && records.slots != NULL)
        code = read_integers(work, pass, records.slots, "req_pool_indices", ret_core, &ret_core->slots, &slots, err);
    if (code == ERROR_NONE && ret_core->slots != NULL && slots != ret_core->requests)
        code =
            error_set(err, ERROR_FORMAT, "seq_lens has %zu entries, req_pool_indices %zu", ret_core->requests, slots);
    return code;
}

void side_core_free(struct side_core *core)
{
    free(core->ids);
    free(core->positions);
    free(core->lengths);
    free(core->slots);
    list_fini(&core->rids);
    *core = (struct side_core){0};
}
