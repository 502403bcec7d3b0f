#include "analysis/verdict_text.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = OBSERVATIONS_NONE };

static const char *name_of(const struct scan *scan, uint32_t observation)
{
    return observation == NONE ? "the start" : scan->diff->observations[observation].name;
}

void verdict_text_blind(const struct scan *scan, uint32_t index, size_t pair, struct list *list)
{
    const struct diff_observation *observation = &scan->diff->observations[index];
    const char *note = observation->note == NULL ? "" : observation->note;
    if (scan->observations->slots[index].place)
        return;
    if (observation->presence == DIFF_PRESENCE_A_ONLY)
        list_add_format(list, "%s: only on the decode side", observation->name);
    else if (observation->presence == DIFF_PRESENCE_B_ONLY)
        list_add_format(list, "%s: only on the reference side", observation->name);
    else if (observation->presence == DIFF_PRESENCE_UNREADABLE)
        list_add_format(list, "%s: not readable: %s", observation->name, note);
    else if (observation->presence == DIFF_PRESENCE_SHAPE)
        list_add_format(list, "%s: %s", observation->name, note);
    else if (observation->rows == DIFF_ROWS_NONE)
        list_add_format(list, "%s: its rows are no tokens%s%s", observation->name, note[0] == '\0' ? "" : ": ", note);
    else if (observation->rows == DIFF_ROWS_UNCLEAR)
        list_add_format(list, "%s: which rows are tokens is not clear: %s", observation->name, note);
    else if (pair != SIZE_MAX && observation->rows != DIFF_ROWS_REQUEST && observation->marks != NULL &&
             observation->marks[pair] == DIFF_MARK_NONE)
        list_add_format(list, "%s: not in this pass", observation->name);
}

void verdict_text_producer(const struct scan *scan, uint32_t producer, bool in_b)
{
    struct diff_verdict *verdict = &scan->diff->verdict;
    free(verdict->what);
    verdict->what = memory_format("The %s side hands on %s unchanged, the other does not: look at what lies between. ",
                                  in_b ? "reference" : "decode", name_of(scan, producer));
}

/* Behind a router: how many of the experts that were chosen are others. */
static void add_flips(const struct scan *scan, const struct diff_verdict *verdict, struct buffer *text)
{
    const struct diff *diff = scan->diff;
    const struct diff_call *call = &diff->calls[verdict->call];
    if (!call->class->router || !call->has_layer)
        return;
    for (size_t i = verdict->first_unequal; i < scan->compared; i++) {
        const struct diff_observation *observation = &diff->observations[i];
        enum pt_dtype_kind kind = pt_dtype_kind(observation->dtype);
        bool ids = observation->marks != NULL && observation->rows == DIFF_ROWS_TOKEN &&
                   observation->row_elements > 1 && (kind == PT_DTYPE_KIND_SIGNED || kind == PT_DTYPE_KIND_UNSIGNED);
        if (!ids || !observation->has_layer || observation->layer != call->layer)
            continue;
        buffer_format(text, "%" PRIu64 " of %" PRIu64 " choices of experts are others (%s). ",
                      observation->numbers.unequal, (uint64_t)observation->tested * observation->row_elements,
                      observation->name);
        return;
    }
    buffer_text(text, "Which experts were chosen was not dumped. ");
}

/* Tensors that other code dumped inside the call, such as the part of one rank before it is summed. */
static bool has_equal_part(const struct scan *scan, const struct diff_verdict *verdict)
{
    const struct observations_span *span = &scan->observations->spans[verdict->call];
    for (uint32_t i = span->first; i < verdict->first_unequal; i++)
        if (scan->observations->slots[i].name.slot == DUMP_NAME_NO_SLOT &&
            scan->observations->slots[i].name.core == DUMP_NAME_NOT_CORE && scan->diff->observations[i].tested > 0)
            return true;
    return false;
}

static void add_operator(const struct scan *scan, const struct diff_verdict *verdict, struct buffer *text)
{
    const struct diff *diff = scan->diff;
    const struct diff_call *call = &diff->calls[verdict->call];
    bool is_decode = diff->pairing == DIFF_PAIRING_PHASES;
    buffer_format(text, "Look at %s (%s, %s): it computed %zu row%s in %s and %zu in %s. ", call->name,
                  call->class->kind, module_class_name(call->class->class), verdict->a_rows,
                  verdict->a_rows == 1 ? "" : "s", is_decode ? "the decode pass" : "DEC", verdict->b_rows,
                  is_decode ? "the reference" : "PRE");
    if (call->class->all_reduce && diff->tp_size > 1) {
        if (has_equal_part(scan, verdict))
            buffer_text(text, "Its local parts are equal: the all-reduce. ");
        else
            buffer_text(text, "It ends in an all-reduce: the product of a rank or the sum over the ranks. ");
    }
    add_flips(scan, verdict, text);
}

static void add_cache(const struct scan *scan, const struct diff_verdict *verdict, struct buffer *text)
{
    const struct diff_call *call = &scan->diff->calls[verdict->call];
    if (scan->diff->pairing == DIFF_PAIRING_RESTORED) {
        buffer_format(
            text,
            "Rows behind the restored prefix: what goes into %s is equal, and so are the keys and values that "
            "filled the cache. Look at what was restored (pages, copies, which request they are of): the "
            "restored keys and values are not those of the prefill, or the kernel reads them in another way "
            "than its own. ",
            call->name);
        return;
    }
    if (verdict->one_position)
        buffer_format(text, "Look at the kernel of %s: how it splits the keys, and where a tile or page ends; ",
                      call->name);
    else
        buffer_format(text,
                      "Look at the cache that %s reads (its type, scales, pages of the request), then at its kernel; ",
                      call->name);
    buffer_text(text, "what was written to the cache is equal, what is stored is not seen. ");
}

static void add_shown(const struct scan *scan, const struct diff_verdict *verdict, struct buffer *text)
{
    const struct diff *diff = scan->diff;
    if (diff->observations[verdict->first_unequal].rows == DIFF_ROWS_SHARED)
        buffer_text(text, "It is one value for the whole batch, so it depends on the other tokens in it. ");
}

static void add_kind(const struct scan *scan, const struct diff_verdict *verdict, struct buffer *text)
{
    const struct diff_call *call = &scan->diff->calls[verdict->call];
    switch (verdict->kind) {
    case DIFF_KIND_OP:
        add_operator(scan, verdict, text);
        break;
    case DIFF_KIND_OP_CACHE:
        add_cache(scan, verdict, text);
        break;
    case DIFF_KIND_STATE:
        buffer_format(text,
                      "Look at the state that %s carries from pass to pass: that it was equal before is not "
                      "proven. ",
                      call->name);
        break;
    case DIFF_KIND_GLUE:
        buffer_format(text, "Look at the code of %s behind %s: additions, reshapes, fused kernels between its parts. ",
                      call->name, verdict->after == NONE ? "its first input" : scan->diff->calls[verdict->after].name);
        break;
    default:
        buffer_format(text, "Look at the code between %s and %s, which no hook sees. ",
                      name_of(scan, verdict->last_equal), name_of(scan, verdict->first_unequal));
        break;
    }
}

void verdict_text_fill(const struct scan *scan)
{
    struct diff_verdict *verdict = &scan->diff->verdict;
    struct buffer text;
    char reading[160] = "";
    buffer_init(&text);
    if (verdict->kind == DIFF_KIND_NONE) {
        buffer_text(&text, "A difference of the results, if there is one, lies behind the last tensor that was dumped: "
                           "log-probabilities, sampling.");
    } else {
        numbers_reading(&scan->diff->observations[verdict->first_unequal].numbers, reading, sizeof reading);
        if (verdict->what != NULL)
            buffer_text(&text, verdict->what);
        if (verdict->call != NONE)
            add_kind(scan, verdict, &text);
        add_shown(scan, verdict, &text);
        for (; text.length > 0 && text.data[text.length - 1] == ' '; text.length--) /* each sentence ends in one */
            text.data[text.length - 1] = '\0';
    }
    free(verdict->what);
    verdict->what = buffer_steal(&text);
    verdict->reading = memory_copy(reading);
    buffer_fini(&text);
}
