#include "analysis/kl_explain.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Positions [from, to) of what lies before a token. */
struct span {
    size_t from, to;
};

/* The span before own token `token`; false: the alteration does not apply, and says why. */
typedef bool span_function(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                           const char **ret_why_not);

/* ---- spans ---- */

static bool up_to(size_t to, struct span *ret_span)
{
    *ret_span = (struct span){0, to};
    return true;
}

static bool nothing(const struct kl_explain_case *about, size_t token, struct span *ret_span, const char **ret_why_not)
{
    (void)about, (void)token, (void)ret_why_not;
    return up_to(0, ret_span);
}

/* The end of the prefix from the last whole multiple of `unit` in it on, but never nothing. */
static struct span behind_multiple(const struct kl_explain_case *about, size_t unit)
{
    return (struct span){(about->prefix - 1) / unit * unit, about->prefix};
}

static bool last_of_prefix(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                           const char **ret_why_not)
{
    (void)token, (void)ret_why_not;
    *ret_span = behind_multiple(about, 1);
    return true;
}

static bool page_of_prefix(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                           const char **ret_why_not)
{
    (void)token;
    if (about->server.page_size <= 1)
        *ret_why_not = "pages have one token";
    else
        *ret_span = behind_multiple(about, about->server.page_size);
    return *ret_why_not == NULL;
}

static bool checkpoint_of_prefix(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                                 const char **ret_why_not)
{
    (void)token;
    if (about->server.state_checkpoint_interval == 0)
        *ret_why_not = "the server keeps no checkpoints of a state";
    else
        *ret_span = behind_multiple(about, about->server.state_checkpoint_interval);
    return *ret_why_not == NULL;
}

static bool whole_prefix(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                         const char **ret_why_not)
{
    (void)token, (void)ret_why_not;
    return up_to(about->prefix, ret_span);
}

/* The pass that gave the logprob of a token consumed the token before it. */
static bool before_first_wrong(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                               const char **ret_why_not)
{
    (void)token, (void)ret_why_not;
    return up_to(about->dirty - 1, ret_span);
}

static bool first(const struct kl_explain_case *about, size_t token, struct span *ret_span, const char **ret_why_not)
{
    (void)about, (void)token, (void)ret_why_not;
    return up_to(1, ret_span);
}

enum { SINKS = 4 };

static bool first_four(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                       const char **ret_why_not)
{
    (void)about, (void)token, (void)ret_why_not;
    return up_to(SINKS, ret_span);
}

static bool first_page(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                       const char **ret_why_not)
{
    (void)token;
    if (about->server.page_size <= 1)
        *ret_why_not = "pages have one token";
    return up_to(about->server.page_size, ret_span) && *ret_why_not == NULL;
}

static bool newest(const struct kl_explain_case *about, size_t token, struct span *ret_span, const char **ret_why_not)
{
    (void)about, (void)ret_why_not;
    *ret_span = (struct span){token - 1, token};
    return true;
}

/* All but the last `seen` tokens. */
static bool beyond_last(const struct kl_explain_case *about, size_t token, int64_t more, struct span *ret_span,
                        const char **ret_why_not)
{
    int64_t seen = (int64_t)about->server.sliding_window + more;
    if (about->server.sliding_window == 0)
        *ret_why_not = "the model has no sliding window";
    else if (seen < 1)
        *ret_why_not = "nothing is left of the window";
    else
        up_to(token > (size_t)seen ? token - (size_t)seen : 0, ret_span);
    return *ret_why_not == NULL;
}

static bool beyond_window(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                          const char **ret_why_not)
{
    return beyond_last(about, token, 0, ret_span, ret_why_not);
}

static bool beyond_smaller_window(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                                  const char **ret_why_not)
{
    return beyond_last(about, token, -1, ret_span, ret_why_not);
}

static bool beyond_larger_window(const struct kl_explain_case *about, size_t token, struct span *ret_span,
                                 const char **ret_why_not)
{
    return beyond_last(about, token, +1, ret_span, ret_why_not);
}

/* ---- the table ---- */

#define ALWAYS   "always"
#define MOVED    "in models of recurrent layers alone: what follows stands at other positions"
#define MADE     "in a model with one attention layer, up to what other positions do to last bits"
#define REPEATED "where the pass before is repeated; an attention that misses the newest key alone is no prefill's"
#define SLIDING  "never but in a model with one attention layer: more layers see further than the window"
#define DEEPER   "in a model with one layer: deeper keys and values there were made with the other request in view"

static const struct alteration {
    const char *name, *text, *limit;
    span_function *span;
    bool foreign; /* another request's ids stand there; else nothing does */
    bool moves;   /* with the token */
} table[] = {
    {"unaltered", "the context as it is", ALWAYS, nothing, false, false},
    {"prefix-without-last", "the prefix without its last token", MOVED, last_of_prefix, false, false},
    {"prefix-missing", "no prefix (an empty state)", MOVED, whole_prefix, false, false},
    {"prefix-page-short", "the prefix down to the page before its end", MOVED, page_of_prefix, false, false},
    {"prefix-checkpoint-short", "the prefix down to the checkpoint before its end", MOVED, checkpoint_of_prefix, false,
     false},
    {"nothing-before", "nothing before the first wrong pass (an empty state)", MOVED, before_first_wrong, false, false},
    {"first-missing", "the first token not seen", MADE, first, false, false},
    {"first-four-missing", "the first four tokens not seen (attention sinks)", MADE, first_four, false, false},
    {"first-page-missing", "the first page not seen", MADE, first_page, false, false},
    {"newest-missing", "the newest token not read (the logits of the pass before)", REPEATED, newest, false, true},
    {"window", "only the last tokens seen, as many as the window has", SLIDING, beyond_window, false, true},
    {"window-less-one", "only the last tokens seen, one less than the window", SLIDING, beyond_smaller_window, false,
     true},
    {"window-plus-one", "only the last tokens seen, one more than the window", SLIDING, beyond_larger_window, false,
     true},
    {"foreign-prefix", "another request's prefix", ALWAYS, whole_prefix, true, false},
    {"foreign-page", "another request's tokens in the last page of the prefix", DEEPER, page_of_prefix, true, false},
    {"foreign-last", "another request's token at the end of the prefix", DEEPER, last_of_prefix, true, false},
};

size_t kl_explain_alterations(void)
{
    return sizeof table / sizeof table[0];
}

const char *kl_explain_name(size_t alteration)
{
    return table[alteration].name;
}

const char *kl_explain_text(size_t alteration)
{
    return table[alteration].text;
}

const char *kl_explain_limit(size_t alteration)
{
    return table[alteration].limit;
}

/* ---- prefills ---- */

struct prefills {
    struct kl_explain_prefill *items;
    size_t count;
};

/* Own tokens `from` to `end` behind a context in which `span` is missing, or is `other`'s. A token that would stand at
 * the very beginning has no logprob: it is left out. */
static void add(struct prefills *prefills, const struct kl_explain_case *about, size_t from, size_t end,
                struct span span, const struct kl_explain_sequence *other, size_t variant)
{
    size_t missing = other == NULL ? span.to - span.from : 0;
    if (from == missing)
        from++;
    if (from >= end)
        return;
    struct kl_explain_prefill prefill = {.count = end - missing,
                                         .from = from,
                                         .tokens = end - from,
                                         .at = from - missing,
                                         .variant = variant,
                                         .other = other != NULL ? other->number : SIZE_MAX};
    const int64_t *own = about->own.ids;
    prefill.ids = memory_new((prefill.count + 1) * sizeof prefill.ids[0]);
    memcpy(prefill.ids, own, (missing > 0 ? span.from : end) * sizeof own[0]);
    if (missing > 0)
        memcpy(prefill.ids + span.from, own + span.to, (end - span.to) * sizeof own[0]);
    if (other != NULL)
        memcpy(prefill.ids + span.from, other->ids + span.from, (span.to - span.from) * sizeof own[0]);
    prefills->items = memory_resize(prefills->items, prefills->count + 1, sizeof prefills->items[0]);
    prefills->items[prefills->count++] = prefill;
}

static const char *add_foreign(struct prefills *prefills, const struct kl_explain_case *about, struct span span)
{
    size_t tried = about->other_count < KL_EXPLAIN_OTHERS ? about->other_count : KL_EXPLAIN_OTHERS;
    for (size_t i = 0; i < tried; i++) {
        const struct kl_explain_sequence *other = &about->others[i];
        bool same = other->count >= span.to && memcmp(about->own.ids + span.from, other->ids + span.from,
                                                      (span.to - span.from) * sizeof other->ids[0]) == 0;
        if (other->count >= span.to && !same)
            add(prefills, about, about->dirty, about->own.count, span, other, i);
    }
    return prefills->count > 0 ? NULL : "no other request of the path is as long and has other ids there";
}

static const char *add_moving(struct prefills *prefills, const struct kl_explain_case *about,
                              const struct alteration *alteration)
{
    const char *why_not = NULL;
    bool altered = false;
    for (size_t token = about->dirty; token < about->own.count && prefills->count < KL_EXPLAIN_TOKENS; token++) {
        struct span span;
        if (!alteration->span(about, token, &span, &why_not))
            return why_not;
        altered = altered || span.to > span.from;
        add(prefills, about, token, token + 1, span, NULL, 0);
    }
    return altered ? NULL : "the context is not longer than that";
}

static const char *add_missing(struct prefills *prefills, const struct kl_explain_case *about, struct span span)
{
    if (span.to >= about->own.count || (span.to > about->dirty && span.from < about->dirty))
        return "it reaches into the wrong tokens themselves";
    add(prefills, about, about->dirty, about->own.count, span, NULL, 0);
    return prefills->count > 0 ? NULL : "no token that could be compared is left";
}

/* The text of an earlier alteration that takes the same span out; NULL: none. */
static const char *twin(const struct kl_explain_case *about, size_t number, struct span span)
{
    for (size_t i = 0; i < number; i++) {
        struct span other;
        const char *why_not = NULL;
        if (!table[i].moves && table[i].foreign == table[number].foreign &&
            table[i].span(about, about->dirty, &other, &why_not) && other.from == span.from && other.to == span.to)
            return table[i].text;
    }
    return NULL;
}

void kl_explain_prefills(const struct kl_explain_case *about, size_t number, struct kl_explain_prefill **ret_prefills,
                         size_t *ret_count, char **ret_why_not)
{
    const struct alteration *alteration = &table[number];
    const char *why_not = NULL, *as = NULL;
    struct prefills prefills = {0};
    struct span span;
    if (alteration->moves)
        why_not = add_moving(&prefills, about, alteration);
    else if (alteration->span(about, about->dirty, &span, &why_not) && (as = twin(about, number, span)) == NULL)
        why_not = alteration->foreign ? add_foreign(&prefills, about, span) : add_missing(&prefills, about, span);
    if (why_not != NULL) {
        kl_explain_prefills_fini(prefills.items, prefills.count);
        prefills = (struct prefills){0};
    }
    *ret_why_not = as != NULL        ? memory_format("here the same as \"%s\"", as)
                   : why_not != NULL ? memory_copy(why_not)
                                     : NULL;
    *ret_prefills = prefills.items;
    *ret_count = prefills.count;
}

void kl_explain_prefills_fini(struct kl_explain_prefill *prefills, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(prefills[i].ids);
    free(prefills);
}

/* ---- numbers ---- */

static void add_token(struct kl_explain_row *row, double found, double wrong)
{
    enum kl_class class = kl_class_of(found, wrong);
    double d = class == KL_CLASS_EQUAL ? 0 : fabs(found - wrong);
    row->compared++;
    row->bit_equal += class == KL_CLASS_EQUAL;
    row->stray += class == KL_CLASS_STRAY;
    row->beyond += class == KL_CLASS_BEYOND;
    row->mean_abs += d;
    if (!isnan(row->max_abs) && !(d <= row->max_abs)) /* a NaN stays the largest */
        row->max_abs = d;
}

void kl_explain_measure(const struct kl_explain_case *about, size_t alteration,
                        const struct kl_explain_prefill *prefills, size_t count, const double *const *logprobs,
                        struct kl_explain_row *ret_row)
{
    struct kl_explain_row best = {.alteration = alteration, .other = SIZE_MAX};
    size_t variants = 0;
    for (size_t i = 0; i < count; variants++) {
        struct kl_explain_row row = {.alteration = alteration, .other = prefills[i].other};
        for (size_t variant = prefills[i].variant; i < count && prefills[i].variant == variant; i++)
            for (size_t t = 0; t < prefills[i].tokens; t++)
                add_token(&row, logprobs[i][prefills[i].at + t], about->wrong[prefills[i].from + t - about->dirty]);
        row.mean_abs /= (double)row.compared;
        if (variants == 0 || row.mean_abs < best.mean_abs || isnan(best.mean_abs))
            best = row;
    }
    best.variants = variants;
    *ret_row = best;
}

/* ---- the answer ---- */

static bool is_fitting(const struct kl_explain_row *row)
{
    return row->why_not == NULL && row->compared > 0 && row->beyond == 0;
}

/* Fitting ones first, those with more bits equal and more tokens compared before others; then by mean difference. */
static bool is_better(const struct kl_explain_row *row, const struct kl_explain_row *than)
{
    if (is_fitting(row) != is_fitting(than))
        return is_fitting(row);
    if (is_fitting(row) && (row->stray == 0) != (than->stray == 0))
        return row->stray == 0;
    if (is_fitting(row) && row->compared != than->compared)
        return row->compared > than->compared;
    return row->mean_abs < than->mean_abs || (isnan(than->mean_abs) && !isnan(row->mean_abs));
}

static void say_name(const struct kl_explain_row *row, struct buffer *text)
{
    buffer_format(text, "\"%s\"", kl_explain_text(row->alteration));
    if (row->other != SIZE_MAX)
        buffer_format(text, " (request %zu)", row->other);
}

static void say_answer(const struct kl_explanation *explanation, struct buffer *text)
{
    const struct kl_explain_row *answer = &explanation->rows[explanation->answer];
    buffer_text(text, "The wrong output is the right answer to ");
    say_name(answer, text);
    buffer_format(text, ". Of %zu tokens %zu are bit-equal and %zu stray, none beyond.", answer->compared,
                  answer->bit_equal, answer->stray);
    const char *before = " As well: ";
    for (size_t i = 0; i < explanation->row_count; i++)
        if (i != explanation->answer && explanation->rows[i].reproduces) {
            buffer_format(text, "%s\"%s\"", before, kl_explain_text(explanation->rows[i].alteration));
            before = ", ";
        }
    buffer_text(text, before[0] == ',' ? "; longer answers would tell them apart." : "");
}

static void say_nearest(const struct kl_explanation *explanation, struct buffer *text)
{
    const struct kl_explain_row *right = &explanation->rows[0];
    if (is_fitting(right)) {
        buffer_text(text, "The context as it is gives these logprobs now: what was wrong then is not wrong when it is "
                          "asked again, so nothing can be named.");
        return;
    }
    buffer_text(text, "None of them reproduces the wrong output");
    if (explanation->nearest == SIZE_MAX) {
        buffer_format(text, ", and none is nearer than the context as it is (mean difference %.2g, largest %.2g).",
                      right->mean_abs, right->max_abs);
        return;
    }
    const struct kl_explain_row *row = &explanation->rows[explanation->nearest];
    buffer_text(text, "; nearest is ");
    say_name(row, text);
    buffer_format(text,
                  ", with a mean difference of %.2g, largest %.2g, where the context as it is has %.2g and %.2g. "
                  "It would be exact %s.",
                  row->mean_abs, row->max_abs, right->mean_abs, right->max_abs, kl_explain_limit(row->alteration));
}

void kl_explain_conclude(struct kl_explanation *explanation, bool noisy)
{
    struct kl_explain_row *rows = explanation->rows, *right = &rows[0];
    struct buffer text;
    size_t best = 0;
    for (size_t i = 1; i < explanation->row_count; i++) {
        rows[i].reproduces = is_fitting(&rows[i]) && !is_fitting(right);
        if (rows[i].why_not == NULL && is_better(&rows[i], &rows[best]))
            best = i;
    }
    explanation->answer = rows[best].reproduces ? best : SIZE_MAX;
    explanation->nearest = best > 0 && !is_fitting(right) ? best : SIZE_MAX;
    buffer_init(&text);
    if (explanation->answer != SIZE_MAX)
        say_answer(explanation, &text);
    else
        say_nearest(explanation, &text);
    if (noisy)
        buffer_text(&text, " Condition 1 is broken: its noise is in all of these numbers.");
    free(explanation->text);
    explanation->text = buffer_steal(&text);
    buffer_fini(&text);
}

void kl_explanation_fini(struct kl_explanation *explanation)
{
    for (size_t i = 0; i < explanation->row_count; i++)
        free(explanation->rows[i].why_not);
    free(explanation->rows);
    free(explanation->nothing);
    free(explanation->rid);
    free(explanation->text);
    *explanation = (struct kl_explanation){0};
}

/* ---- the worst request ---- */

bool kl_explain_worst(const struct kl_path paths[KL_PATHS], const struct kl_reading *reading, enum kl_path_id *ret_path,
                      size_t *ret_request)
{
    static const enum kl_path_id order[2][KL_PATHS] = {
        {KL_PATH_MATCH, KL_PATH_MATCH_ALONE, KL_PATH_RESTORE, KL_PATH_PREFILL_CACHE_HIT, KL_PATH_DECODE_CACHE_HIT},
        {KL_PATH_RESTORE, KL_PATH_PREFILL_CACHE_HIT, KL_PATH_DECODE_CACHE_HIT, KL_PATH_MATCH, KL_PATH_MATCH_ALONE},
    };
    bool restore = reading->where == KL_WHERE_RESTORE || reading->condition_2_in_restore;
    for (size_t i = 0; i < KL_PATHS; i++) {
        const struct kl_path *path = &paths[order[restore][i]];
        size_t worst = SIZE_MAX;
        for (size_t r = 0; path->measured && r < path->request_count; r++) {
            double mean = path->numbers[r].mean;
            bool dirty = path->requests[r].dropped == NULL && path->numbers[r].beyond > 0;
            if (dirty && (worst == SIZE_MAX || mean > path->numbers[worst].mean || isnan(mean)))
                worst = r;
        }
        if (worst == SIZE_MAX)
            continue;
        *ret_path = order[restore][i];
        *ret_request = worst;
        return true;
    }
    return false;
}
