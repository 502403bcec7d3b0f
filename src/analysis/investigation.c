/* What all steps together mean: the first row of the table whose looks fit. What a row says of its own steps is taken
 * from them; the lists beside it are investigation_evidence.c and investigation_gaps.c. */
#include "analysis/investigation.h"
#include "analysis/investigation_private.h"

#include "analysis/diff.h"
#include "analysis/invariance.h"
#include "analysis/report.h"
#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANY = 0xff,
    UNKNOWN = INVESTIGATION_READ_UNKNOWN,
    CLEAN = INVESTIGATION_READ_CLEAN,
    REFUSED = INVESTIGATION_READ_REFUSED,
    DIRTY = INVESTIGATION_READ_DIRTY,
    OPERATOR = INVESTIGATION_READ_OPERATOR,
    DECODE = INVESTIGATION_READ_DECODE,
    RESTORE = INVESTIGATION_READ_RESTORE,
    NO_DIFF = INVESTIGATION_DIFF_UNKNOWN,
    UNPROVEN = INVESTIGATION_DIFF_UNPROVEN,
    UNUSABLE = INVESTIGATION_DIFF_UNUSABLE,
    EQUAL = INVESTIGATION_DIFF_EQUAL,
    NAMED = INVESTIGATION_DIFF_OPERATOR,
    BETWEEN = INVESTIGATION_DIFF_BETWEEN,
    CONTEXT = INVESTIGATION_DIFF_CONTEXT,
    DIFFERENT = INVESTIGATION_DIFF_DIFFERENT,
};

enum condition {
    AS_READ, /* as the reading that the end goes on with says */
    NONE,
    NOTHING_SAID,
};

enum named { UNNAMED, BY_DIFF, BY_BATCH }; /* whose module is the answer's */

struct end {
    const char *name;
    unsigned own, dump; /* what kl reads under each */
    unsigned reading;   /* the one that the end goes on with */
    unsigned diff;
    bool (*also)(const struct investigation_facts *facts);
    enum condition condition;
    enum named named;
    enum status status;
    const char *text; /* words in braces: see tokens */
    const char *next[4];
};

/* ---- looks that are no bits ---- */

static bool always(const struct investigation_facts *facts)
{
    (void)facts;
    return true;
}

static bool is_shifted(const struct investigation_facts *facts)
{
    return facts->in->capture.known && facts->in->capture.shifted;
}

static bool has_failed_early(const struct investigation_facts *facts)
{
    return investigation_facts_has_failed(facts, INVESTIGATION_DOCTOR) ||
           investigation_facts_has_failed(facts, INVESTIGATION_KL_OWN);
}

static bool over_other_prompts(const struct investigation_facts *facts)
{
    return facts->other_prompts;
}

static bool some_not_compared(const struct investigation_facts *facts)
{
    return facts->some_not_compared;
}

static bool dump_flags_failed(const struct investigation_facts *facts)
{
    return investigation_facts_has_failed(facts, INVESTIGATION_KL_DUMP);
}

static bool dump_flags_needed(const struct investigation_facts *facts)
{
    return facts->dump_needed;
}

static bool readings_differ(const struct investigation_facts *facts)
{
    return facts->own != facts->dump;
}

static bool has_both(const struct investigation_facts *facts)
{
    return facts->basis->condition_2_in_restore;
}

static bool is_incomplete(const struct investigation_facts *facts)
{
    const struct investigation *in = facts->in;
    const struct investigation_step *check = &in->steps[INVESTIGATION_CHECK];
    bool ran = check->state == INVESTIGATION_DONE || check->state == INVESTIGATION_FAILED;
    return (in->capture.known && !in->capture.complete) || (ran && check->status == STATUS_INCOMPLETE);
}

static bool no_dump(const struct investigation_facts *facts)
{
    return investigation_facts_has_failed(facts, INVESTIGATION_CAPTURE) ||
           investigation_facts_has_failed(facts, INVESTIGATION_CHECK) ||
           investigation_facts_has_failed(facts, INVESTIGATION_DIFF);
}

/* A step that failed or found too little is the reason by itself why there is no diff. */
static bool stopped_before_diff(const struct investigation_facts *facts)
{
    return facts->in->steps[INVESTIGATION_DIFF].state == INVESTIGATION_NOT_REACHED && !no_dump(facts) &&
           !is_incomplete(facts);
}

static bool of_prefills(const struct investigation_facts *facts)
{
    return facts->in->diff.prefills;
}

static bool batch_names(const struct investigation_facts *facts)
{
    return facts->batch != NULL;
}

static bool is_weak(const struct investigation_facts *facts)
{
    const char *confidence = facts->in->diff.confidence;
    return confidence == NULL || strcmp(confidence, diff_confidence_word(DIFF_CONFIDENCE_UNPROVEN)) == 0;
}

/* ---- the table ---- */

#define AGAIN   "kldumpctl investigate with the same options: it goes on where it stopped"
#define SETTLE  "make the operator batch-invariant, then investigate again"
#define EXPLAIN "kldumpctl kl --explain: which other context gives the logprobs that came out"
#define RECIPE  "kldumpctl diff shows what is missing, and the recipe of a dump that makes every proof possible"

static const struct end ends[] = {
#define X(name, own, dump, reading, diff, also, condition, named, status, text, ...) \
    {name, own, dump, reading, diff, also, condition, named, STATUS_##status, text, {__VA_ARGS__}},
#include "analysis/investigation_ends.def"
#undef X
};
enum { ENDS = sizeof ends / sizeof ends[0] };

static bool matches(const struct end *end, const struct investigation_facts *facts)
{
    return (end->own & facts->own) && (end->dump & facts->dump) && (end->reading & facts->reading) &&
           (end->diff & facts->diff) && end->also(facts);
}

/* ---- the words in braces ---- */

static void add_reading(struct buffer *text, unsigned reading, bool begins)
{
    const char *word = investigation_facts_reading_word(reading);
    char first[2] = {word[0], '\0'};
    if (begins && word[0] >= 'a' && word[0] <= 'z')
        first[0] = (char)(word[0] - 'a' + 'A');
    buffer_format(text, "%s%s", first, word + 1);
    if (begins && (reading & INVESTIGATION_READ_DIRTY))
        buffer_text(text, " is broken");
}

static void add_own(const struct investigation_facts *facts, struct buffer *text)
{
    add_reading(text, facts->own, false);
}

static void begin_own(const struct investigation_facts *facts, struct buffer *text)
{
    add_reading(text, facts->own, true);
}

static void add_dump(const struct investigation_facts *facts, struct buffer *text)
{
    add_reading(text, facts->dump, false);
}

static void add_basis(const struct investigation_facts *facts, struct buffer *text)
{
    add_reading(text, facts->reading, false);
}

static void begin_basis(const struct investigation_facts *facts, struct buffer *text)
{
    add_reading(text, facts->reading, true);
}

static void add_text(const char *text, struct buffer *out)
{
    buffer_text(out, text != NULL ? text : "it does not say why.");
}

static void add_own_text(const struct investigation_facts *facts, struct buffer *text)
{
    add_text(facts->in->own.text, text);
}

static void add_dump_text(const struct investigation_facts *facts, struct buffer *text)
{
    add_text(facts->in->dump.text, text);
}

static void add_amount(const struct investigation_facts *facts, struct buffer *text)
{
    char *amount = investigation_facts_clean(&facts->in->own);
    buffer_text(text, amount);
    free(amount);
}

static void add_not_compared(const struct investigation_facts *facts, struct buffer *text)
{
    const char *before = "";
    for (int id = 0; id < KL_PATHS; id++) {
        if (!facts->not_compared[id])
            continue;
        buffer_format(text, "%s%s", before, kl_path_word((enum kl_path_id)id));
        before = ", ";
    }
}

static void add_step(const struct investigation_facts *facts, enum investigation_step_id id, struct buffer *text)
{
    const struct investigation_step *step = &facts->in->steps[id];
    buffer_format(text, "the step \"%s\" failed", investigation_step_word(id));
    if (step->why != NULL)
        buffer_format(text, ": %s", step->why);
}

static void add_failed(const struct investigation_facts *facts, struct buffer *text)
{
    static const enum investigation_step_id early[] = {INVESTIGATION_KL_OWN, INVESTIGATION_KL_DUMP};
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++)
        if (investigation_facts_has_failed(facts, early[i])) {
            add_step(facts, early[i], text);
            return;
        }
    add_step(facts, INVESTIGATION_DOCTOR, text);
}

static void add_failed_dump(const struct investigation_facts *facts, struct buffer *text)
{
    enum investigation_step_id id = INVESTIGATION_CAPTURE;
    while (id < INVESTIGATION_DIFF && !investigation_facts_has_failed(facts, id))
        id++;
    add_step(facts, id, text);
}

static void add_incomplete(const struct investigation_facts *facts, struct buffer *text)
{
    char *const *reasons = facts->in->capture.reasons;
    const char *why = facts->in->steps[INVESTIGATION_CHECK].why;
    if (reasons != NULL && reasons[0] != NULL)
        buffer_text(text, reasons[0]);
    else
        buffer_text(text, why != NULL ? why : "check says that files or passes are missing");
}

static void add_against(const struct investigation_facts *facts, struct buffer *text)
{
    char *const *against = facts->in->diff.against, *const *certificate = facts->in->diff.certificate;
    if (against != NULL && against[0] != NULL)
        buffer_text(text, against[0]);
    else if (certificate != NULL && certificate[0] != NULL)
        buffer_text(text, certificate[0]);
    else
        buffer_text(text, "its result does not say why");
}

static void add_no_dump(const struct investigation_facts *facts, struct buffer *text)
{
    const char *why = facts->in->steps[INVESTIGATION_CAPTURE].why;
    if (facts->diff != NO_DIFF)
        buffer_text(text, "what was dumped has no restored prefix");
    else
        buffer_format(text, "nothing was dumped%s%s", why != NULL ? ", as " : "", why != NULL ? why : "");
}

/* Why a restore that is broken has no layer. */
static void add_no_layer(const struct investigation_facts *facts, struct buffer *text)
{
    if ((facts->diff & (UNPROVEN | UNUSABLE)) != 0)
        add_against(facts, text);
    else if (is_incomplete(facts))
        add_incomplete(facts, text);
    else if (no_dump(facts))
        add_failed_dump(facts, text);
    else
        add_no_dump(facts, text);
}

static void add_operator(const struct investigation_facts *facts, struct buffer *text)
{
    char *name = investigation_facts_operator(facts);
    buffer_text(text, name);
    free(name);
}

static void add_place(const struct investigation_facts *facts, struct buffer *text)
{
    if (facts->in->diff.has_position)
        buffer_format(text, ", first at position %" PRId64, facts->in->diff.position);
}

/* Of what carries state: whether what earlier passes left is known to be equal. */
static void add_history(const struct investigation_facts *facts, struct buffer *text)
{
    bool is_proven = strcmp(facts->in->diff.kind, diff_kind_word(DIFF_KIND_OP_CACHE)) == 0;
    buffer_text(text, is_proven ? " and equal keys and values written before"
                                : ", while what it carries from earlier passes is not proven equal");
}

static void add_likely(const struct investigation_facts *facts, struct buffer *text)
{
    if (strcmp(facts->in->diff.confidence, diff_confidence_word(DIFF_CONFIDENCE_LIKELY)) == 0)
        buffer_text(text, " (likely: a proof beside it is weak)");
}

/* A kernel that depends on the number of rows shows by itself; a context that is lost does not. */
static void add_batch(const struct investigation_facts *facts, struct buffer *text)
{
    if (facts->axes == INVESTIGATION_AXES_UNCHANGED)
        buffer_text(text, " That no size of a batch changes a result (invariance) speaks for the context.");
    else if (facts->axes == INVESTIGATION_AXES_CHANGED)
        buffer_text(text, " That the size of a batch changes results (invariance) speaks for the kernel.");
}

/* The operator that invariance names, and by what. */
static void add_batch_operator(const struct investigation_facts *facts, struct buffer *text)
{
    const struct investigation_axis *axis = facts->batch;
    char shorter[REPORT_SHORT];
    buffer_format(text, "%s: with equal inputs its output depends on ", report_short(axis->module, shorter));
    if (axis->cached)
        buffer_text(text, "the number of rows (one row behind a cached prefix against the whole prompt)");
    else if (strcmp(axis->word, invariance_axis_word(INVARIANCE_EXTEND)) == 0)
        buffer_format(text, "the number of rows (%" PRIu64 " against the whole prompt)", axis->first_size);
    else
        buffer_format(text, "how many requests are in a %s (%" PRIu64 " against 1)", axis->word, axis->first_size);
}

/* What decode against prefill says beside it. */
static void add_beside(const struct investigation_facts *facts, struct buffer *text)
{
    if (facts->diff == INVESTIGATION_DIFF_UNKNOWN) {
        buffer_text(text, "Decode was not dumped beside a prefill.");
    } else if (facts->diff == INVESTIGATION_DIFF_EQUAL) {
        buffer_text(text, "In the capture, of another size, no tensor of decode differs from prefill.");
    } else {
        bool is_same = facts->in->diff.module != NULL && strcmp(facts->in->diff.module, facts->batch->module) == 0;
        buffer_text(text, is_same ? "It is there that decode and prefill part: "
                                  : "Decode and prefill part first at another place: ");
        add_operator(facts, text);
        add_place(facts, text);
        buffer_text(text, is_same ? "." : "; whether that is a second fault shows when the first is settled.");
    }
}

/* kl says the same of its own readings. */
static void add_faint(const struct investigation_facts *facts, struct buffer *text)
{
    for (int id = 0; id < KL_PATHS; id++)
        if (facts->basis->paths[id].grade == KL_GRADE_NONZERO)
            return;
    const char *how = facts->reading == RESTORE
                          ? "an operator that computes the rows behind a cached prefix in another "
                            "order"
                          : "an attention that orders its sums otherwise from that length on";
    buffer_format(text, " But no path is dirty by more than noise: %s (condition 1) looks the same.", how);
}

static void add_needs(const struct investigation_facts *facts, struct buffer *text)
{
    buffer_text(text, facts->in->diff.needs != NULL ? facts->in->diff.needs : "");
}

static void add_what(const struct investigation_facts *facts, struct buffer *text)
{
    add_text(facts->in->diff.what, text);
}

static void add_verdict(const struct investigation_facts *facts, struct buffer *text)
{
    if (facts->diff == INVESTIGATION_DIFF_EQUAL) {
        buffer_text(text, "no tensor that was dumped differs");
        return;
    }
    if ((facts->diff & INVESTIGATION_DIFF_DIFFERENT) == 0) {
        buffer_text(text, "no operator is named");
        return;
    }
    add_operator(facts, text);
    add_place(facts, text);
}

static const struct {
    const char *word;
    void (*add)(const struct investigation_facts *facts, struct buffer *text);
} tokens[] = {
    {"{own}", add_own},
    {"{Own}", begin_own},
    {"{dump}", add_dump},
    {"{reading}", add_basis},
    {"{Reading}", begin_basis},
    {"{own text}", add_own_text},
    {"{dump text}", add_dump_text},
    {"{amount}", add_amount},
    {"{not compared}", add_not_compared},
    {"{failed}", add_failed},
    {"{failed dump}", add_failed_dump},
    {"{incomplete}", add_incomplete},
    {"{against}", add_against},
    {"{no layer}", add_no_layer},
    {"{no dump}", add_no_dump},
    {"{operator}", add_operator},
    {"{place}", add_place},
    {"{history}", add_history},
    {"{batch}", add_batch},
    {"{batch operator}", add_batch_operator},
    {"{beside}", add_beside},
    {"{likely}", add_likely},
    {"{faint}", add_faint},
    {"{needs}", add_needs},
    {"{what}", add_what},
    {"{verdict}", add_verdict},
};

static char *expand(const char *text, const struct investigation_facts *facts)
{
    struct buffer out;
    buffer_init(&out);
    while (*text != '\0') {
        size_t i = 0, count = sizeof tokens / sizeof tokens[0];
        while (i < count && strncmp(text, tokens[i].word, strlen(tokens[i].word)) != 0)
            i++;
        if (i == count) {
            buffer_append(&out, text++, 1);
            continue;
        }
        tokens[i].add(facts, &out);
        text += strlen(tokens[i].word);
    }
    while (out.length > 0 && out.data[out.length - 1] == ' ')
        out.data[--out.length] = '\0';
    return out.data;
}

/* ---- the whole ---- */

static void add_next(const struct end *end, const struct investigation_facts *facts, struct list *next)
{
    if ((facts->reading & OPERATOR) && !facts->basis->deterministic && end->condition == AS_READ)
        list_add(next, "start the server with deterministic inference and measure again");
    for (size_t i = 0; i < sizeof end->next / sizeof end->next[0] && end->next[i] != NULL; i++)
        list_add(next, end->next[i]);
    const struct investigation_kl *kl = facts->basis;
    for (char **line = kl != NULL && kl->condition == KL_CONDITION_REFUSED ? kl->next : NULL;
         line != NULL && *line != NULL; line++)
        list_add(next, *line);
    bool at_operator = (facts->reading & OPERATOR) && (facts->diff & DIFFERENT) && end->named == BY_DIFF;
    bool is_said = strstr(end->text, "{needs}") != NULL;
    if (at_operator && !is_said && facts->in->diff.needs != NULL)
        list_add_format(next, "what it needs: %s", facts->in->diff.needs);
}

static void fill_condition(const struct end *end, const struct investigation_facts *facts,
                           struct investigation_end *result)
{
    const struct investigation_kl *basis = facts->basis;
    result->condition = end->condition == NONE ? KL_CONDITION_NONE : KL_CONDITION_REFUSED;
    if (end->condition != AS_READ || basis == NULL)
        return;
    result->condition = basis->condition;
    result->where = basis->where;
    result->condition_1_first = basis->condition == KL_CONDITION_1;
    result->condition_2_too = basis->condition == KL_CONDITION_1 && basis->condition_2_in_restore;
}

void investigation_conclude(const struct investigation *investigation, struct investigation_end *ret_end)
{
    struct investigation_facts facts;
    struct list evidence = {0}, gaps = {0}, next = {0};
    const struct end *end = ends;
    investigation_facts(investigation, &facts);
    while (end < ends + ENDS - 1 && !matches(end, &facts))
        end++;
    struct investigation_end result = {.name = end->name, .status = end->status};
    fill_condition(end, &facts, &result);
    if (end->named == BY_DIFF && (facts.diff & INVESTIGATION_DIFF_DIFFERENT))
        result.module = investigation->diff.module;
    else if (end->named == BY_BATCH)
        result.module = facts.batch->module;
    result.text = expand(end->text, &facts);
    investigation_evidence(&facts, &evidence);
    investigation_gaps(&facts, result.condition_1_first, &gaps);
    add_next(end, &facts, &next);
    result.evidence = list_vector(&evidence);
    result.not_measured = list_vector(&gaps);
    result.next = list_vector(&next);
    *ret_end = result;
}

const char *investigation_end_row(size_t row)
{
    return row < ENDS ? ends[row].name : NULL;
}

void investigation_end_fini(struct investigation_end *end)
{
    free(end->text);
    list_vector_free(end->evidence);
    list_vector_free(end->not_measured);
    list_vector_free(end->next);
    *end = (struct investigation_end){0};
}
