#include "analysis/audit_work.h"
#include "analysis/audit_probe.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    FOREIGN_LISTED = 16,
    REQUESTS_LISTED = 1024,
};

/* Request ids that occurred, by a hash of their text. */
struct identity {
    char *text;
    bool own;           /* in the expected list, or none was given */
    uint32_t seen_rank; /* rank + 1 of the passes in which it was seen last */
    bool seen;
};

struct identities {
    struct identity *items;
    size_t count, capacity;
    uint32_t *slots;
    size_t slot_count;
};

static size_t slot_of(const struct identities *known, const char *text)
{
    uint64_t value = hash_text(HASH_BEGIN, text);
    size_t slot = (size_t)(value ^ value >> 29) & (known->slot_count - 1);
    while (known->slots[slot] != 0 && strcmp(known->items[known->slots[slot] - 1].text, text) != 0)
        slot = (slot + 1) & (known->slot_count - 1);
    return slot;
}

static struct identity *find(struct identities *known, const char *text, bool *ret_new)
{
    if (2 * (known->count + 1) > known->slot_count) {
        known->slot_count = known->slot_count == 0 ? 256 : 2 * known->slot_count;
        free(known->slots);
        known->slots = memory_new(known->slot_count * sizeof *known->slots);
        for (size_t i = 0; i < known->count; i++)
            known->slots[slot_of(known, known->items[i].text)] = (uint32_t)i + 1;
    }
    size_t slot = slot_of(known, text);
    *ret_new = known->slots[slot] == 0;
    if (*ret_new) {
        if (known->count == known->capacity) {
            known->capacity = known->capacity == 0 ? 64 : 2 * known->capacity;
            known->items = memory_resize(known->items, known->capacity, sizeof *known->items);
        }
        known->items[known->count++] = (struct identity){.text = memory_copy(text)};
        known->slots[slot] = (uint32_t)known->count;
    }
    return &known->items[known->slots[slot] - 1];
}

static void forget(struct identities *known)
{
    for (size_t i = 0; i < known->count; i++)
        free(known->items[i].text);
    free(known->items);
    free(known->slots);
}

/* The first appearance of a request id: is it ours? */
static void meet(struct audit_work *work, struct identity *identity)
{
    identity->own =
        work->expected->own_request_ids.count == 0 || list_has(&work->expected->own_request_ids, identity->text);
    if (work->audit->request_ids.count < REQUESTS_LISTED)
        list_add(&work->audit->request_ids, identity->text);
    if (identity->own)
        return;
    char shown[80];
    text_clean(identity->text, strlen(identity->text), shown, sizeof shown);
    audit_reasons_add(&work->reasons, AUDIT_REASON_FOREIGN_REQUEST, 1, "%s", shown);
    if (work->audit->foreign_request_ids.count < FOREIGN_LISTED)
        list_add(&work->audit->foreign_request_ids, identity->text);
}

/* Holds the pass's request ids against those of earlier passes of its rank; true when one of them is new. */
static bool take_request_ids(struct audit_work *work, struct identities *known, struct audit_pass *pass,
                             const struct list *ids)
{
    bool new_here = false;
    for (size_t i = 0; i < ids->count; i++) {
        bool first;
        struct identity *identity = find(known, ids->items[i], &first);
        if (first)
            meet(work, identity);
        if (!identity->own)
            pass->foreign++;
        /* Passes come rank by rank: a mark of another rank is an old one. */
        if (!identity->seen || identity->seen_rank != pass->rank)
            new_here = true;
    }
    for (size_t i = 0; i < ids->count; i++) {
        bool first;
        struct identity *identity = find(known, ids->items[i], &first);
        identity->seen = true;
        identity->seen_rank = pass->rank;
    }
    return new_here;
}

static enum audit_phase phase_of(const struct audit_pass *pass, uint64_t requests, bool new_request)
{
    if (!pass->has_request_ids || pass->tokens == 0 || requests == 0)
        return AUDIT_UNKNOWN;
    if (new_request || pass->tokens > requests)
        return AUDIT_EXTEND;
    return pass->tokens == requests ? AUDIT_DECODE : AUDIT_UNKNOWN;
}

/* Counts the files of one pass; gives the rids file, if there is one. `layer_marks` has for each layer the last pass in
 * which it was met. The first file of a core name counts: wrappers
 * inside a model that take the same argument write it again. */
static const struct audit_table_file *count_files(const struct audit_work *work, struct audit_pass *pass,
                                                  struct audit_span *span, uint32_t *layer_marks)
{
    const struct audit_table_file *ids = NULL, *inputs = NULL, *lengths = NULL;
    uint32_t mark = (uint32_t)(span - work->spans) + 1;
    for (size_t i = span->first; i < span->first + span->count; i++) {
        const struct audit_table_file *file = &work->table.files[i];
        const struct audit_table_suffix *suffix = &work->table.suffixes[file->suffix];
        pass->files++;
        pass->bytes += file->size;
        span->broken |= file->state != AUDIT_TABLE_FINE;
        span->hooks |= suffix->hook;
        if (suffix->has_layer) {
            pass->layer_files++;
            pass->layers += layer_marks[suffix->layer] != mark;
            layer_marks[suffix->layer] = mark;
        }
        if (suffix->core == DUMP_NAME_INPUT_IDS && inputs == NULL)
            inputs = file;
        if (suffix->core == DUMP_NAME_SEQ_LENS && lengths == NULL)
            lengths = file;
        if (suffix->core == DUMP_NAME_RIDS && ids == NULL)
            ids = file;
    }
    pass->tokens = inputs != NULL ? inputs->rows : 0;
    pass->requests = lengths != NULL ? lengths->rows : 0;
    span->no_inputs = inputs == NULL;
    span->no_ids_file = ids == NULL;
    return ids;
}

static void make_pass(struct audit_work *work, struct audit_pass *pass, struct audit_span *span,
                      struct identities *known, uint32_t *layer_marks)
{
    const struct audit_table_file *file = count_files(work, pass, span, layer_marks);
    bool new_request = false;
    uint64_t requests = pass->requests;
    if (file != NULL && file->state == AUDIT_TABLE_FINE) {
        struct list ids = {0};
        struct error err = ERROR_INIT;
        if (audit_probe_request_ids(&work->table, work->folder_fd, file, &ids, &err) == ERROR_NONE) {
            pass->has_request_ids = true;
            new_request = take_request_ids(work, known, pass, &ids);
            requests = requests != 0 ? requests : ids.count;
        } else {
            audit_reasons_add(&work->reasons, AUDIT_REASON_REQUEST_IDS, 1, "%s", err.message);
        }
        list_fini(&ids);
    }
    pass->phase = phase_of(pass, requests, new_request);
}

/* One pass and span for each (rank, step) of the sorted files. */
static void split(struct audit_work *work)
{
    const struct audit_table_file *files = work->table.files;
    size_t count = 0;
    for (size_t i = 0; i < work->table.file_count; i++)
        count += i == 0 || files[i].rank != files[i - 1].rank || files[i].step != files[i - 1].step;
    work->spans = memory_new((count + 1) * sizeof *work->spans);
    struct audit_span *span = work->spans - 1;
    for (size_t i = 0; i < work->table.file_count; i++) {
        if (i == 0 || files[i].rank != files[i - 1].rank || files[i].step != files[i - 1].step) {
            struct audit_pass *pass = audit_add_pass(work->audit);
            pass->rank = files[i].rank;
            pass->step = files[i].step;
            (++span)->first = i;
        }
        span->count++;
    }
}

static int by_step(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Ranks, and distinct steps over all ranks. */
static void count_all(struct audit_work *work)
{
    struct audit *audit = work->audit;
    uint64_t *steps = memory_new((audit->pass_count + 1) * sizeof *steps);
    for (size_t i = 0; i < audit->pass_count; i++) {
        steps[i] = audit->passes[i].step;
        audit->ranks += i == 0 || audit->passes[i].rank != audit->passes[i - 1].rank;
        audit->files += audit->passes[i].files;
        audit->bytes += audit->passes[i].bytes;
    }
    qsort(steps, audit->pass_count, sizeof *steps, by_step);
    for (size_t i = 0; i < audit->pass_count; i++)
        audit->steps += i == 0 || steps[i] != steps[i - 1];
    free(steps);
}

void audit_passes_make(struct audit_work *work)
{
    struct identities known = {0};
    uint32_t *layer_marks = memory_new((DUMP_NAME_LAYER_MAX + 1) * sizeof *layer_marks);
    split(work);
    for (size_t i = 0; i < work->audit->pass_count; i++)
        make_pass(work, &work->audit->passes[i], &work->spans[i], &known, layer_marks);
    for (size_t layer = 0; layer <= DUMP_NAME_LAYER_MAX; layer++)
        work->audit->layers += layer_marks[layer] != 0;
    count_all(work);
    free(layer_marks);
    forget(&known);
}
