/* A6 to A9, each by itself. */
#include "analysis/proofs.h"

#include "analysis/evidence.h"
#include "analysis/history.h"
#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = OBSERVATIONS_NONE, NAMED = 3, STALE_LAYERS = 3 };

static void tell_program(struct diff *diff, const size_t counts[4], const char *names, bool more)
{
    static const char *const words[] = {"on one side only", "of another shape", "of another type", "in another order"};
    struct buffer text;
    buffer_init(&text);
    for (int i = 0; i < 4; i++)
        if (counts[i] > 0)
            buffer_format(&text, "%s%zu %s", text.length == 0 ? "" : ", ", counts[i], words[i]);
    diff_prove(diff, DIFF_PROOF_A6, DIFF_PROOF_FAILS, "%s%s%s", text.data, names, more ? ", ..." : "");
    buffer_fini(&text);
}

/* A6: what only one side has, what cannot be compared, and the order. */
static void prove_program(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    struct buffer names;
    size_t one_sided = 0, shapes = 0, dtypes = 0;
    buffer_init(&names);
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *observation = &diff->observations[i];
        bool one = observation->presence == DIFF_PRESENCE_A_ONLY || observation->presence == DIFF_PRESENCE_B_ONLY;
        bool shape =
            observation->presence == DIFF_PRESENCE_SHAPE || (!one && compare_found(scan->compare, i)->left_out);
        bool value = !one && !shape && compare_found(scan->compare, i)->other_types;
        one_sided += one;
        shapes += shape;
        dtypes += value;
        if ((one || shape || value) && one_sided + shapes + dtypes <= NAMED)
            buffer_format(&names, "%s%s%s", names.length == 0 ? ": " : ", ", observation->name,
                          observation->presence == DIFF_PRESENCE_A_ONLY   ? " (decode side)"
                          : observation->presence == DIFF_PRESENCE_B_ONLY ? " (reference)"
                                                                          : "");
    }
    if (one_sided + shapes + dtypes + scan->observations->moved == 0)
        diff_prove(diff, DIFF_PROOF_A6, DIFF_PROOF_HOLDS, "%zu tensors in %zu calls", diff->observation_count,
                   diff->call_count);
    else
        tell_program(diff, (size_t[]){one_sided, shapes, dtypes, scan->observations->moved}, names.data,
                     one_sided + shapes + dtypes > NAMED);
    buffer_fini(&names);
}

/* A7: of all calls that carry state up to the place of the verdict. */
static void prove_history(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    uint32_t place = diff->verdict.first_unequal;
    size_t calls = 0, unknown_calls = 0, rows = 0, equal = 0, unequal = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < diff->call_count; i++) {
        const struct observations_span *span = &scan->observations->spans[i];
        uint32_t end = span->output == NONE ? span->last : span->output;
        if (!span->stateful || end > place || end >= scan->compared || span->children > 0)
            continue;
        uint8_t *histories = history_make(scan, i);
        calls++;
        unknown_calls += histories == NULL;
        for (size_t k = 0; k < diff->pair_count && histories != NULL; k++) {
            if (!diff->pairs[k].target || evidence_of(scan, i, true, k) == EVIDENCE_NONE)
                continue;
            rows++;
            equal += histories[k] == HISTORY_EQUAL;
            unequal += histories[k] == HISTORY_UNEQUAL;
            if (histories[k] == HISTORY_UNEQUAL && first == NULL)
                first = diff->calls[i].name;
        }
        free(histories);
    }
    if (calls == 0)
        diff_prove(diff, DIFF_PROOF_A7, DIFF_PROOF_HOLDS, "nothing before this place carries state");
    else if (unequal > 0)
        diff_prove(diff, DIFF_PROOF_A7, DIFF_PROOF_FAILS,
                   "%zu of %zu in %zu calls have other rows before them, first in %s", unequal, rows, calls, first);
    else if (equal < rows || unknown_calls > 0)
        diff_prove(diff, DIFF_PROOF_A7, DIFF_PROOF_UNKNOWN,
                   "%zu of %zu proven; %zu of %zu calls have no key and value rows in the dump", equal, rows,
                   unknown_calls, calls);
    else
        diff_prove(diff, DIFF_PROOF_A7, DIFF_PROOF_HOLDS, "%zu of %zu in %zu calls", equal, rows, calls);
}

/* A8: rows of prompts, which both sides prefilled. */
static void prove_control(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    size_t rows = 0, unequal = 0;
    const char *first = NULL;
    for (size_t i = 0; i < scan->compared; i++) {
        const struct diff_observation *observation = &diff->observations[i];
        const struct compare_found *found = compare_found(scan->compare, i);
        rows += observation->control_tested;
        unequal += observation->control_unequal;
        diff->control_elements += found->control_elements;
        diff->control_unequal += found->control_unequal;
        if (observation->control_unequal > 0 && first == NULL)
            first = observation->name;
    }
    if (rows == 0)
        diff_prove(diff, DIFF_PROOF_A8, DIFF_PROOF_UNKNOWN, "no row of a prompt was prefilled on both sides");
    else if (unequal > 0)
        diff_prove(diff, DIFF_PROOF_A8, DIFF_PROOF_FAILS,
                   "%zu of %zu rows differ (%" PRIu64 " of %" PRIu64
                   " elements), first in %s: two prefills differ, too",
                   unequal, rows, diff->control_unequal, diff->control_elements, first);
    else
        diff_prove(diff, DIFF_PROOF_A8, DIFF_PROOF_HOLDS, "%zu rows, 0 of %" PRIu64 " elements differ", rows,
                   diff->control_elements);
}

static bool is_usable(const struct audit *audit, uint64_t step)
{
    for (size_t i = 0; i < audit->usable_count; i++)
        if (step >= audit->usable[i].first && step <= audit->usable[i].last)
            return true;
    return false;
}

/* Tells of the holes in the numbers of a pass, with what stands around them; returns how many files are missing. */
static uint64_t tell_holes(const struct scan *scan, const struct side *side, const struct side_pass *pass)
{
    const struct audit_table *table = &side->folders[pass->folder].table;
    uint64_t missing = 0;
    for (size_t i = 1; i < pass->file_count; i++) {
        const struct audit_table_file *before = &table->files[pass->first_file + i - 1], *after = before + 1;
        if (after->dump_index <= before->dump_index + 1)
            continue;
        char from[AUDIT_TABLE_NAME], to[AUDIT_TABLE_NAME];
        uint64_t gap = after->dump_index - before->dump_index - 1;
        missing += gap;
        diff_tell(scan->diff, DIFF_MESSAGE_M5,
                  "rank %" PRIu32 ", step %" PRIu64 ": dump_index %" PRIu64 " to %" PRIu64 " (%" PRIu64
                  " files), between %s and %s",
                  pass->rank, pass->step, before->dump_index + 1, after->dump_index - 1, gap,
                  audit_table_describe(table, before, from), audit_table_describe(table, after, to));
    }
    return missing;
}

/* Counts the passes of a side that pairs use, and of those the ones that are not whole. */
static void audit_side(const struct scan *scan, const struct side *side, const struct observations_files *files,
                       size_t *passes, size_t *broken, uint64_t *missing, const char **reason)
{
    for (size_t i = 0; i < side->pass_count; i++) {
        if (files->of_pass[i] == NULL)
            continue;
        const struct side_pass *pass = &side->passes[i];
        const struct audit *audit = &side->folders[pass->folder].audit;
        uint64_t holes = tell_holes(scan, side, pass);
        bool whole = audit->complete || is_usable(audit, pass->step);
        ++*passes;
        *missing += holes;
        *broken += holes > 0 || !whole;
        if (!whole && *reason == NULL && audit->reasons.count > 0)
            *reason = audit->reasons.items[0];
    }
}

/* A9: the passes that were used. */
static void prove_complete(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    size_t passes = 0, broken = 0, unreadable = 0;
    uint64_t missing = 0;
    const char *reason = NULL, *trouble = NULL;
    audit_side(scan, scan->a, &scan->observations->a, &passes, &broken, &missing, &reason);
    audit_side(scan, scan->b, &scan->observations->b, &passes, &broken, &missing, &reason);
    if (missing > 0 && diff->proven && diff->verdict.kind == DIFF_KIND_NONE)
        diff->usable = false; /* "equal" is not said over files that are missing, as over those that are damaged */
    for (size_t i = 0; i < scan->compared; i++) {
        const struct compare_trouble *found = &compare_found(scan->compare, i)->trouble;
        unreadable += found->files;
        if (found->text != NULL && trouble == NULL)
            trouble = found->text;
    }
    if (unreadable > 0)
        diff_prove(diff, DIFF_PROOF_A9, DIFF_PROOF_FAILS, "%zu file%s cannot be used, first %s", unreadable,
                   unreadable == 1 ? "" : "s", trouble);
    else if (broken > 0)
        diff_prove(diff, DIFF_PROOF_A9, DIFF_PROOF_FAILS,
                   "%zu of %zu passes are not whole, %" PRIu64 " files missing%s%s", broken, passes, missing,
                   reason == NULL ? "" : ": ", reason == NULL ? "" : reason);
    else
        diff_prove(diff, DIFF_PROOF_A9, DIFF_PROOF_HOLDS, "%zu passes", passes);
}

/* What stands behind the number of the layer: the same in every layer. */
static struct dump_name_text behind_layer(const struct dump_name *name)
{
    static const char word[] = "layers.";
    const char *at = memmem(name->name.at, name->name.length, word, sizeof word - 1);
    const char *end = name->name.at + name->name.length;
    if (at == NULL)
        return (struct dump_name_text){0};
    for (at += sizeof word - 1; at < end && *at >= '0' && *at <= '9'; at++)
        ;
    return (struct dump_name_text){at, (size_t)(end - at)};
}

/* The same slot in another layer. */
static bool is_same_slot(const struct scan *scan, uint32_t x, uint32_t y)
{
    const struct diff_observation *a = &scan->diff->observations[x], *b = &scan->diff->observations[y];
    if (!a->has_layer || !b->has_layer || a->layer == b->layer)
        return false;
    struct dump_name_text tail_a = behind_layer(&scan->observations->slots[x].name);
    struct dump_name_text tail_b = behind_layer(&scan->observations->slots[y].name);
    return tail_a.length > 0 && tail_a.length == tail_b.length && memcmp(tail_a.at, tail_b.at, tail_a.length) == 0;
}

static bool is_activation(const struct scan *scan, uint32_t index)
{
    const struct diff_observation *observation = &scan->diff->observations[index];
    enum pt_dtype_kind kind = pt_dtype_kind(observation->dtype);
    return compare_found(scan->compare, index)->fingerprint != 0 && !observation->input && observation->call != NONE &&
           scan->diff->calls[observation->call].leaf && (kind == PT_DTYPE_KIND_FLOAT || kind == PT_DTYPE_KIND_PACKED);
}

struct print {
    uint64_t value;
    uint32_t observation;
};

static int by_print(const void *x, const void *y)
{
    const struct print *a = x, *b = y;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return a->observation < b->observation ? -1 : 1;
}

/* M7: an output of an operator with the same bytes in several layers. */
static void tell_stale(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    struct print *prints = memory_new((scan->compared + 1) * sizeof *prints);
    size_t count = 0, end;
    for (uint32_t i = 0; i < scan->compared; i++)
        if (is_activation(scan, i))
            prints[count++] = (struct print){compare_found(scan->compare, i)->fingerprint, i};
    qsort(prints, count, sizeof *prints, by_print);
    for (size_t first = 0; first < count; first = end) {
        size_t layers = 1;
        for (end = first + 1; end < count && prints[end].value == prints[first].value; end++)
            layers += is_same_slot(scan, prints[first].observation, prints[end].observation);
        if (layers >= STALE_LAYERS)
            diff_tell(diff, DIFF_MESSAGE_M7, "%s is byte-identical in %zu layers at the first row compared",
                      diff->observations[prints[first].observation].name, layers);
    }
    free(prints);
}

/* M9: layers whose inputs were dumped and whose outputs were not, in all of them. */
static void tell_layers(const struct scan *scan)
{
    size_t without = 0, with = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < scan->diff->call_count; i++) {
        if (!evidence_is_layer(scan->diff->calls[i].module))
            continue;
        bool ends = scan->observations->spans[i].output != NONE;
        with += ends;
        without += !ends;
        if (!ends && first == NULL)
            first = scan->diff->calls[i].name;
    }
    if (without > 0 && with == 0)
        diff_tell(scan->diff, DIFF_MESSAGE_M9, "%zu layers have inputs and no output, first %s", without, first);
}

void proofs_all(const struct scan *scan)
{
    prove_program(scan);
    prove_history(scan);
    prove_control(scan);
    prove_complete(scan);
    tell_stale(scan);
    tell_layers(scan);
}
