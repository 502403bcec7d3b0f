#include "analysis/audit_work.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "sglang/request_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = DUMP_NAME_LAYER_MAX + 1,
    MODULES_MAX = 100 * 1000, /* kinds of modules; a hostile folder may name more: they are counted in "(other)" */
};

/* The tensors of one module in one layer, over all passes. */
struct place {
    char *module; /* NULL: none */
    uint32_t layer;
    bool has_layer;
    uint64_t files, bytes;
    bool in_phase[3]; /* by audit_phase */
};

/* "model.layers.*.mlp": the path without the number of the layer, which stands behind the first "layers.". */
static char *module_kind(const struct dump_name *name)
{
    if (!name->hook || name->slot == DUMP_NAME_NO_SLOT)
        return memory_copy("(core)");
    if (name->module.length == 0)
        return memory_copy("(root)");
    char *text = memory_copy_n(name->module.at, name->module.length);
    char *number = name->has_layer ? strstr(text, "layers.") : NULL;
    if (number == NULL)
        return text;
    number += strlen("layers.");
    size_t digits = strspn(number, "0123456789");
    if (digits > 0) {
        *number = '*';
        memmove(number + 1, number + digits, strlen(number + digits) + 1);
    }
    return text;
}

static struct place place_of(const struct audit_table_suffix *suffix)
{
    char *file_name = memory_format("step=0___rank=0___dump_index=0___%s", suffix->text);
    struct dump_name name;
    struct place place = {0};
    if (dump_name_parse(file_name, &name, NULL) == ERROR_NONE) {
        place.module = module_kind(&name);
        place.has_layer = name.has_layer_tag || name.has_layer;
        /* A module that layers share is named after one of them: then the tag tells. */
        place.layer = name.has_layer_tag ? name.layer_tag : name.layer;
        place.has_layer &= place.layer <= DUMP_NAME_LAYER_MAX;
    }
    free(file_name);
    return place;
}

static struct place *make_places(const struct audit_work *work)
{
    const struct audit_table *table = &work->table;
    struct place *places = memory_new((table->suffix_count + 1) * sizeof *places);
    for (size_t i = 0; i < table->suffix_count; i++)
        places[i] = place_of(&table->suffixes[i]);
    for (size_t p = 0; p < work->audit->pass_count; p++) {
        const struct audit_span *span = &work->spans[p];
        for (size_t i = span->first; i < span->first + span->count; i++) {
            struct place *place = &places[table->files[i].suffix];
            place->files++;
            place->bytes += table->files[i].size;
            place->in_phase[work->audit->passes[p].phase] = true;
        }
    }
    return places;
}

static int by_module(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->module, y->module);
    if (order != 0)
        return order;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer) : x->has_layer - y->has_layer;
}

static int by_size(const void *a, const void *b)
{
    const struct audit_module *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : strcmp(x->name, y->name);
}

/* Sums up the sorted places: first over the tensors of one module in one layer, then over its layers. */
static void add_modules(struct audit *audit, const struct place *places, size_t count)
{
    for (size_t i = 0; i < count;) {
        struct audit_module *module = audit_add_module(audit);
        module->name = memory_copy(audit->module_count == MODULES_MAX ? "(other)" : places[i].module);
        size_t end = i;
        while (end < count &&
               (audit->module_count == MODULES_MAX || strcmp(places[end].module, places[i].module) == 0)) {
            bool extend = false, decode = false;
            size_t layer = end;
            for (; layer < count && by_module(&places[layer], &places[end]) == 0; layer++) {
                module->files += places[layer].files;
                module->bytes += places[layer].bytes;
                extend |= places[layer].in_phase[AUDIT_EXTEND];
                decode |= places[layer].in_phase[AUDIT_DECODE];
            }
            module->extend_layers += extend;
            module->decode_layers += decode;
            end = layer;
        }
        i = end;
    }
    if (audit->module_count > 0)
        qsort(audit->modules, audit->module_count, sizeof *audit->modules, by_size);
}

/* ---- notes ---- */

/* "0-3, 7" of the layers that are in `here` and not in `there`; empty: none. */
static void layers_text(const bool *here, const bool *there, struct buffer *out)
{
    enum { RANGES = 8 };
    size_t ranges = 0;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        if (!here[layer] || there[layer])
            continue;
        size_t last = layer;
        while (last + 1 < LAYERS && here[last + 1] && !there[last + 1])
            last++;
        if (ranges == RANGES)
            buffer_text(out, ", ...");
        if (ranges++ < RANGES) {
            buffer_format(out, "%s%zu", ranges > 1 ? ", " : "", layer);
            if (last > layer)
                buffer_format(out, "-%zu", last);
        }
        layer = last;
    }
}

static void note_one_phase(struct audit *audit, const bool *here, const bool *there, const char *phase,
                           const char *other)
{
    struct buffer text;
    buffer_init(&text);
    layers_text(here, there, &text);
    if (text.length > 0)
        list_add_format(&audit->notes,
                        "layers that only %s passes have: %s; the %s passes ran them without hooks (a CUDA graph), or "
                        "another filter was set then",
                        phase, text.data, other);
    buffer_fini(&text);
}

static void note_layers(struct audit_work *work, const struct place *places)
{
    uint64_t passes[3] = {0};
    for (size_t i = 0; i < work->audit->pass_count; i++)
        passes[work->audit->passes[i].phase]++;
    if (passes[AUDIT_EXTEND] == 0 || passes[AUDIT_DECODE] == 0)
        return;
    bool *seen = memory_new(2 * LAYERS * sizeof *seen);
    for (size_t i = 0; i < work->table.suffix_count; i++)
        if (places[i].has_layer) {
            seen[places[i].layer] |= places[i].in_phase[AUDIT_EXTEND];
            seen[LAYERS + places[i].layer] |= places[i].in_phase[AUDIT_DECODE];
        }
    note_one_phase(work->audit, seen, seen + LAYERS, "extend", "decode");
    note_one_phase(work->audit, seen + LAYERS, seen, "decode", "extend");
    free(seen);
}

static void note_requests(struct audit *audit)
{
    size_t probes = 0, made_up = 0;
    for (size_t i = 0; i < audit->request_ids.count; i++) {
        enum request_id_kind kind = request_id_kind(audit->request_ids.items[i]);
        probes += kind == REQUEST_ID_HEALTH_PROBE;
        made_up += kind == REQUEST_ID_MADE_UP;
    }
    if (probes > 0)
        list_add_format(&audit->notes, "health probes among the requests: %zu; their passes are no work of yours",
                        probes);
    if (made_up > 0)
        list_add_format(&audit->notes,
                        "requests that no client named: %zu; the server's own warm-up, or a client that sent no rid",
                        made_up);
}

/* ---- times ---- */

/* Each rank writes its files one after the other. A file that is much older than one before it was left by an earlier
 * run, unless the folder was copied: then the times go back all the time and say nothing. */
static void check_times(struct audit_work *work)
{
    enum { SLACK_S = 60, COPIED_PER_THOUSAND = 20, FEW = 3 };
    const struct audit_table *table = &work->table;
    uint64_t older = 0, backwards = 0;
    const struct audit_table_file *first = NULL, *before = NULL;
    uint32_t latest_s = 0;
    for (size_t i = 0; i < table->file_count; i++) {
        const struct audit_table_file *file = &table->files[i];
        if (file->modified_s == 0)
            continue;
        bool new_rank = before == NULL || file->rank != before->rank;
        backwards += !new_rank && file->modified_s < before->modified_s;
        latest_s = new_rank || file->modified_s > latest_s ? file->modified_s : latest_s;
        before = file;
        if (file->modified_s >= latest_s - (latest_s > SLACK_S ? SLACK_S : latest_s))
            continue;
        older++;
        first = first != NULL ? first : file;
    }
    if (older == 0 || work->expected->known || backwards > FEW + table->file_count * COPIED_PER_THOUSAND / 1000)
        return;
    char text[AUDIT_TABLE_NAME];
    audit_reasons_add(&work->reasons, AUDIT_REASON_OLDER, older, "first %s", audit_table_describe(table, first, text));
}

void audit_coverage_make(struct audit_work *work)
{
    struct place *places = make_places(work);
    size_t used = 0;
    note_layers(work, places);
    note_requests(work->audit);
    check_times(work);
    for (size_t i = 0; i < work->table.suffix_count; i++)
        if (places[i].module != NULL && places[i].files > 0)
            places[used++] = places[i];
        else
            free(places[i].module);
    qsort(places, used, sizeof *places, by_module);
    add_modules(work->audit, places, used);
    for (size_t i = 0; i < used; i++)
        free(places[i].module);
    free(places);
}
