/* Groups files into passes, and tells passes of another model by their modules.
 *
 * A draft model (speculative decoding) shares step, names and dump_index with the main one. A pass is taken for its if
 * it is whole (no dump_index missing inside it, and the root gave an output) and has modules in fewer layers than other
 * passes of the rank, or modules that no pass with all layers has. */
#include "analysis/side_work.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct shape { /* of the modules of one pass */
    uint32_t layers;
    bool whole;
};

/* "output..." of the root: nothing stands before it. */
static bool is_root_output(const struct audit_table_suffix *suffix)
{
    static const char prefix[] = "non_intrusive__output";
    const char *end = strstr(suffix->text, prefix);
    return suffix->hook && end != NULL && end == suffix->text + strlen("name=");
}

static void look(const struct audit_table *table, struct side_pass *pass, struct shape *shape, uint32_t *layer_marks,
                 uint32_t mark)
{
    bool root_output = false, rids = false, below_layer = false;
    const struct audit_table_file *files = table->files + pass->first_file;
    for (size_t i = 0; i < pass->file_count; i++) {
        const struct audit_table_suffix *suffix = &table->suffixes[files[i].suffix];
        pass->hooks |= suffix->hook;
        root_output |= is_root_output(suffix);
        rids |= suffix->core == DUMP_NAME_RIDS;
        below_layer |= suffix->hook && suffix->has_layer;
        if (suffix->hook && suffix->has_layer && layer_marks[suffix->layer] != mark) {
            layer_marks[suffix->layer] = mark;
            shape->layers++;
        }
    }
    pass->first_index = files[0].dump_index;
    pass->replayed = pass->hooks && !below_layer && !rids;
    shape->whole = root_output && files[pass->file_count - 1].dump_index - files[0].dump_index + 1 == pass->file_count;
}

/* Passes `first` to the end are one rank's in one folder. */
static void mark_drafts(struct side *side, const struct audit_table *table, size_t first, const struct shape *shapes)
{
    uint32_t most = 0;
    bool *known = memory_new(table->suffix_count + 1);
    for (size_t i = first; i < side->pass_count; i++)
        most = shapes[i - first].layers > most ? shapes[i - first].layers : most;
    for (size_t i = first; i < side->pass_count; i++)
        for (size_t k = 0; k < side->passes[i].file_count && shapes[i - first].layers == most; k++)
            known[table->files[side->passes[i].first_file + k].suffix] = true;
    for (size_t i = first; i < side->pass_count; i++) {
        struct side_pass *pass = &side->passes[i];
        const struct shape *shape = &shapes[i - first];
        bool other = shape->layers > 0;
        for (size_t k = 0; k < pass->file_count && !other; k++) {
            uint32_t suffix = table->files[pass->first_file + k].suffix;
            other = table->suffixes[suffix].hook && !known[suffix];
        }
        pass->draft = shape->whole && shape->layers < most && other;
        side->draft_pass_count += pass->draft;
    }
    side->draft_passes = side->draft_pass_count > 0;
    free(known);
}

void side_passes_add(struct side *side, uint32_t folder)
{
    const struct audit_table *table = &side->folders[folder].table;
    const struct audit_table_file *files = table->files;
    uint32_t *layer_marks = memory_new((DUMP_NAME_LAYER_MAX + 1) * sizeof *layer_marks);
    size_t count = 0, base = side->pass_count;
    for (size_t i = 0; i < table->file_count; i++)
        count += i == 0 || files[i].rank != files[i - 1].rank || files[i].step != files[i - 1].step;
    struct shape *shapes = memory_new((count + 1) * sizeof *shapes);
    side->passes = memory_resize(side->passes, side->pass_count + count + 1, sizeof *side->passes);
    for (size_t i = 0, first_of_rank = base; i < table->file_count;) {
        struct side_pass *pass = &side->passes[side->pass_count];
        *pass = (struct side_pass){.folder = folder, .rank = files[i].rank, .step = files[i].step, .first_file = i};
        while (i < table->file_count && files[i].rank == pass->rank && files[i].step == pass->step)
            i++;
        pass->file_count = i - pass->first_file;
        look(table, pass, &shapes[side->pass_count - base], layer_marks, (uint32_t)(side->pass_count - base) + 1);
        side->pass_count++;
        if (i == table->file_count || files[i].rank != pass->rank) {
            mark_drafts(side, table, first_of_rank, shapes + (first_of_rank - base));
            first_of_rank = side->pass_count;
        }
    }
    free(shapes);
    free(layer_marks);
}
