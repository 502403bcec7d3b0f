#include "analysis/invariance.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one case ---- */

/* float32 in the order of their values; +0 and -0 are one apart from nothing. */
static int64_t ordered(double value)
{
    float single = (float)value;
    int32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

static uint64_t ulps_between(double a, double b)
{
    if (isnan(a) || isnan(b))
        return UINT64_MAX;
    int64_t difference = ordered(a) - ordered(b);
    return (uint64_t)(difference < 0 ? -difference : difference);
}

static bool is_before(const struct invariance_change *a, const struct invariance_change *b)
{
    return a->request != b->request ? a->request < b->request : a->position < b->position;
}

static void note_change(struct invariance_case *one, const struct invariance_change *change, bool is_last)
{
    bool is_first = one->stray + one->beyond == 0;
    one->stray += change->class == KL_CLASS_STRAY;
    one->beyond += change->class == KL_CLASS_BEYOND;
    one->last += is_last;
    one->max_abs = fmax(one->max_abs, fabs(change->found - change->reference));
    if (is_first || is_before(change, &one->first))
        one->first = *change;
}

/* Another token is a change whatever its logprob is. */
static enum kl_class class_of(const struct invariance_change *change)
{
    return change->reference_id != change->found_id ? KL_CLASS_BEYOND : kl_class_of(change->found, change->reference);
}

void invariance_compare(struct invariance_case *one, size_t request, const struct invariance_tokens *reference,
                        const struct invariance_tokens *found)
{
    size_t begin = reference->first > found->first ? reference->first : found->first;
    size_t reference_end = reference->first + reference->count, found_end = found->first + found->count;
    for (size_t p = begin; p < reference_end && p < found_end; p++) {
        struct invariance_change change = {.request = request,
                                           .position = p,
                                           .reference_id = reference->ids[p - reference->first],
                                           .found_id = found->ids[p - found->first],
                                           .reference = reference->logprobs[p - reference->first],
                                           .found = found->logprobs[p - found->first]};
        bool is_scored = !isnan(change.reference) && !isnan(change.found);
        if (is_scored) {
            one->compared++;
            change.class = class_of(&change);
            change.ulp = ulps_between(change.reference, change.found);
            if (change.class == KL_CLASS_EQUAL)
                one->bit_equal++;
            else
                note_change(one, &change, p + 1 == found_end);
        }
        if (change.reference_id != change.found_id)
            return;
    }
}

bool invariance_changed(const struct invariance_case *one)
{
    return one->compared > one->bit_equal;
}

/* ---- an axis ---- */

static bool comes_before(const struct invariance_case *a, const struct invariance_case *b)
{
    return a->cached != b->cached ? a->cached : a->size < b->size;
}

struct invariance_case *invariance_case_at(struct invariance_axis *axis, size_t size, bool cached)
{
    const struct invariance_case one = {.size = size, .cached = cached};
    size_t at = 0;
    while (at < axis->case_count && comes_before(&axis->cases[at], &one))
        at++;
    if (at < axis->case_count && !comes_before(&one, &axis->cases[at]))
        return &axis->cases[at];
    axis->cases = memory_resize(axis->cases, axis->case_count + 1, sizeof axis->cases[0]);
    memmove(axis->cases + at + 1, axis->cases + at, (axis->case_count++ - at) * sizeof axis->cases[0]);
    axis->cases[at] = one;
    return &axis->cases[at];
}

const struct invariance_case *invariance_first(const struct invariance_axis *axis,
                                               const struct invariance_case **ret_unchanged)
{
    const struct invariance_case *before = NULL;
    for (size_t i = 0; i < axis->case_count; i++) {
        const struct invariance_case *one = &axis->cases[i];
        if (invariance_changed(one)) {
            *ret_unchanged = before;
            return one;
        }
        before = one->compared > 0 && !one->cached ? one : before;
    }
    *ret_unchanged = before;
    return NULL;
}

enum invariance_state invariance_state_of(const struct invariance_axis *axis)
{
    const struct invariance_case *before;
    size_t compared = 0;
    for (size_t i = 0; i < axis->case_count; i++)
        compared += axis->cases[i].compared;
    if (!axis->measured || compared == 0)
        return INVARIANCE_NOT_MEASURED;
    if (invariance_changed(&axis->again))
        return INVARIANCE_NOT_REPEATABLE;
    return invariance_first(axis, &before) != NULL ? INVARIANCE_CHANGED : INVARIANCE_UNCHANGED;
}

void invariance_axis_fini(struct invariance_axis *axis)
{
    free(axis->why_not);
    free(axis->cases);
    *axis = (struct invariance_axis){0};
}

/* ---- what it means ---- */

static char *list_axes(const enum invariance_state states[INVARIANCE_AXES], enum invariance_state wanted)
{
    char *text = memory_copy("");
    for (size_t id = 0; id < INVARIANCE_AXES; id++) {
        if (states[id] != wanted)
            continue;
        char *longer = memory_format("%s%s%s", text, text[0] != '\0' ? ", " : "",
                                     invariance_axis_word((enum invariance_axis_id)id));
        free(text);
        text = longer;
    }
    return text;
}

static void say(struct invariance_reading *reading, enum invariance_condition condition, char *text, const char *next)
{
    *reading = (struct invariance_reading){
        .condition = condition, .text = text, .next = next != NULL ? memory_copy(next) : NULL};
}

static bool is_any(const enum invariance_state states[INVARIANCE_AXES], enum invariance_state wanted)
{
    for (size_t id = 0; id < INVARIANCE_AXES; id++)
        if (states[id] == wanted)
            return true;
    return false;
}

static void read_match(const struct invariance_match *match, struct invariance_reading *reading)
{
    const char *together = kl_grade_word(match->together), *alone = kl_grade_word(match->alone);
    if (!match->given)
        say(reading, INVARIANCE_NOT_SHOWN,
            memory_copy(
                "No size changes a result, so no operator was seen to depend on its batch. That is one half: the "
                "kernels of prefill and those of decode were not held against each other."),
            "kldumpctl kl over the same prompts and settings, then again with --kl and its result");
    else if (kl_grade_clean(match->together) && kl_grade_clean(match->alone))
        say(reading, INVARIANCE_HOLDS,
            memory_format(
                "Condition 1 holds for these prompts, lengths and sizes: no size changes a result, and match is "
                "%s in a batch and %s one request at a time.",
                together, alone),
            NULL);
    else if (match->together == KL_GRADE_NOT_MEASURED || match->alone == KL_GRADE_NOT_MEASURED)
        say(reading, INVARIANCE_NOT_SHOWN,
            memory_format(
                "No size changes a result, but the KL result lacks match %s; expected both, in a batch and one "
                "request at a time.",
                match->together == KL_GRADE_NOT_MEASURED ? "in a batch" : "one request at a time"),
            "kldumpctl kl with both paths of match");
    else
        say(reading, INVARIANCE_NOT_SHOWN,
            memory_format(
                "No size changes a result, yet match is %s in a batch and %s one request at a time: prefill and "
                "decode differ for another reason than the size of a batch. Either their kernels differ "
                "(condition 1), or they do not compute the same function (condition 2).",
                together, alone),
            "the reading of kldumpctl kl; then capture and diff, which name the operator");
}

/* And no dump has proven that an operator does it. */
static bool only_extend_changes(const struct invariance_axis axes[INVARIANCE_AXES])
{
    for (size_t id = 0; id < INVARIANCE_AXES; id++)
        if (id != INVARIANCE_EXTEND && invariance_state_of(&axes[id]) == INVARIANCE_CHANGED)
            return false;
    return invariance_state_of(&axes[INVARIANCE_EXTEND]) == INVARIANCE_CHANGED &&
           !axes[INVARIANCE_EXTEND].operator_proven;
}

/* Of extend: the case on a cached prefix, if that changes a result. */
static bool restored_changes(const struct invariance_axis *extend)
{
    return extend->case_count > 0 && extend->cases[0].cached && invariance_changed(&extend->cases[0]);
}

/* Of extend: no change but of what was restored from the cache. */
static bool only_restored(const struct invariance_axis *extend)
{
    for (size_t i = 0; i < extend->case_count; i++)
        if (!extend->cases[i].cached && invariance_changed(&extend->cases[i]))
            return false;
    return true;
}

/* Of extend: beside what was restored from the cache, the last token of each short one, and of each length. The last of
 * two is the only one that is scored, so it says nothing. */
static bool only_last_tokens(const struct invariance_axis *extend)
{
    size_t seen = 0;
    for (size_t i = 0; i < extend->case_count; i++) {
        const struct invariance_case *one = &extend->cases[i];
        if (one->cached || one->compared == 0)
            continue;
        if (one->last == 0 || one->last < one->compared - one->bit_equal)
            return false;
        seen += one->size > 2;
    }
    return seen > 0;
}

static void read_restored(const struct invariance_match *match, struct invariance_reading *reading)
{
    bool is_clean = match->given && kl_grade_clean(match->together) && kl_grade_clean(match->alone);
    say(reading, INVARIANCE_NOT_SHOWN,
        memory_format("Not decided: one row on a cached prefix gets another result than as a row of its whole prompt, "
                      "and nothing else changes one. Either an operator depends on that (condition 1), or what comes "
                      "back from the prefix cache is not what a prefill computes (condition 2).%s",
                      is_clean ? " Match is clean, one request at a time, too, so that it points at condition 2." : ""),
        "kldumpctl kl over the same prompts: match clean and restore dirty is condition 2; or --dump EXP: an operator "
        "that reads no cache, named with equal inputs, is condition 1");
}

static void read_last_tokens(const struct invariance_axis *extend, struct invariance_reading *reading)
{
    say(reading, INVARIANCE_NOT_SHOWN,
        memory_format("Not decided: of each short extend the last token alone gets another logprob%s, and nothing else "
                      "changes. So it looks where the logprobs are shifted, each that of the token behind: at the end "
                      "of a short extend there is none. An operator would have to treat the last row alone otherwise.",
                      restored_changes(extend) ? ", and so does one row on a cached prefix" : ""),
        "kldumpctl kl over the same prompts: it refuses logprobs that are shifted");
}

void invariance_read(const struct invariance_axis axes[INVARIANCE_AXES], const struct invariance_match *match,
                     const char *foreign, struct invariance_reading *ret_reading)
{
    if (foreign != NULL) {
        say(ret_reading, INVARIANCE_REFUSED,
            memory_format(
                "Incomplete: %s. Their requests change the batches and the cache, so the numbers are shown but "
                "not read.",
                foreign),
            "measure again while nobody else uses the server");
        return;
    }
    enum invariance_state states[INVARIANCE_AXES];
    bool is_partial = false;
    for (size_t id = 0; id < INVARIANCE_AXES; id++) {
        states[id] = invariance_state_of(&axes[id]);
        is_partial |= axes[id].partial;
    }
    char *changed = list_axes(states, INVARIANCE_CHANGED), *shaky = list_axes(states, INVARIANCE_NOT_REPEATABLE),
         *missing = list_axes(states, INVARIANCE_NOT_MEASURED);
    const struct invariance_axis *extend = only_extend_changes(axes) ? &axes[INVARIANCE_EXTEND] : NULL;
    if (extend != NULL && only_restored(extend))
        read_restored(match, ret_reading);
    else if (extend != NULL && only_last_tokens(extend))
        read_last_tokens(extend, ret_reading);
    else if (is_any(states, INVARIANCE_CHANGED))
        say(ret_reading, INVARIANCE_BROKEN,
            memory_format(
                "Condition 1 is broken (%s): the same token of the same request gets another result when the "
                "size changes, so an operator depends on the number of rows. Settle this first: its noise hides "
                "condition 2.",
                changed),
            "--dump EXP names the operator, from dumps of the smallest change; with --repro it becomes a script");
    else if (is_any(states, INVARIANCE_NOT_REPEATABLE))
        say(ret_reading, INVARIANCE_NOT_SHOWN,
            memory_format(
                "The same request alone gives different results from one time to the next (%s), so nothing can "
                "be said about sizes: an operator that is not deterministic, or requests of others beside ours.",
                shaky),
            "keep other clients away; start the server with deterministic inference");
    else if (is_any(states, INVARIANCE_NOT_MEASURED) || is_partial)
        say(ret_reading, INVARIANCE_NOT_SHOWN,
            memory_format("No size changes a result as far as it was measured; not measured: %s.",
                          missing[0] != '\0' ? missing : "a part of extend"),
            "what was not measured, and kldumpctl kl over the same prompts");
    else
        read_match(match, ret_reading);
    free(changed);
    free(shaky);
    free(missing);
}

void invariance_reading_fini(struct invariance_reading *reading)
{
    free(reading->text);
    free(reading->next);
    *reading = (struct invariance_reading){0};
}

/* ---- words ---- */

static const struct {
    const char *word, *what;
} axis_table[INVARIANCE_AXES] = {
    {"prefill", "each prompt scored alone and in a batch, and the first new token, which its last row gives"},
    {"extend", "each position as a row of the whole prompt, of a short extend, and of one row on a cached prefix"},
    {"decode", "each request decoded alone, and in a batch"},
};

const char *invariance_axis_word(enum invariance_axis_id id)
{
    return axis_table[id].word;
}

const char *invariance_axis_what(enum invariance_axis_id id)
{
    return axis_table[id].what;
}

const char *invariance_state_word(enum invariance_state state)
{
    static const char *const words[] = {"not measured", "not repeatable", "changed", "unchanged"};
    return words[state];
}

const char *invariance_condition_word(enum invariance_condition condition)
{
    static const char *const words[] = {"broken", "not shown", "holds", "refused"};
    return words[condition];
}
