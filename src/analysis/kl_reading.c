/* Which condition is broken: the first row of the table whose looks fit. Signatures were seen on real servers with one
 * planted fault each (facts/kl-reading.md 2). */
#include "analysis/kl.h"
#include "analysis/kl_reading_private.h"

#include "base/buffer.h"
#include "base/list.h"

#include <stdlib.h>

enum look { ANY, CLEAN, DIRTY, NOT_DIRTY /* clean, or not measured */, UNMEASURED };

struct signature {
    const char *name;
    enum look match, alone, prefill_hit, decode_hit, restore;
    bool (*also)(const struct kl_facts *facts); /* NULL: nothing more */
    enum kl_condition condition;
    enum kl_where where;
    unsigned evidence;
    const char *text;
    const char *next[4];
};

static bool shifted(const struct kl_facts *facts)
{
    return facts->shifted;
}

static bool shared(const struct kl_facts *facts)
{
    return facts->server->foreign != NULL;
}

static bool nothing(const struct kl_facts *facts)
{
    return !facts->measured;
}

static bool one_position(const struct kl_facts *facts)
{
    return facts->one_position;
}

static bool from_index_1(const struct kl_facts *facts)
{
    return facts->from_index_1;
}

/* One token that gives half of the sum: seen were 0.88 beside 0.004. */
static bool one_flip(const struct kl_facts *facts)
{
    return facts->server->mixture_of_experts && facts->from_index_1 && facts->dominance > 0.5;
}

static bool same_alone(const struct kl_facts *facts)
{
    return facts->same_alone;
}

static bool prefix_dirty(const struct kl_facts *facts)
{
    return facts->prefix_dirty;
}

#define INVARIANCE "kldumpctl invariance: which operator depends on the number of rows, and from which size on"
#define DIFF       "kldumpctl capture, then kldumpctl diff: the operator and the position at which decode and prefill part"
#define SETTLE     "settle condition 1 first: make the operator batch-invariant, then measure again"

/* The order is the order of looks: what makes the numbers worthless, what is clean, what the cache paths say where
 * match is clean, what the position in match says, and only then that operators are not batch-invariant. */
static const struct signature signatures[] = {
    {"foreign-requests",
     ANY,
     ANY,
     ANY,
     ANY,
     ANY,
     shared,
     KL_CONDITION_REFUSED,
     KL_WHERE_NONE,
     KL_EVIDENCE_FOREIGN,
     "Incomplete: somebody else has used the server meanwhile. Passes that are shared have other rows, and the cache "
     "was "
     "not ours alone, so the numbers are shown but not read.",
     {"measure again while nobody else uses the server"}},
    {"shifted-logprobs",
     ANY,
     ANY,
     ANY,
     ANY,
     ANY,
     shifted,
     KL_CONDITION_REFUSED,
     KL_WHERE_NONE,
     KL_EVIDENCE_SHIFT,
     "The logprobs of the prompt belong to the token beside: they are shifted by one. Numbers made of them say nothing "
     "about the model, and are not read.",
     {"look at where the server cuts and pads the logprobs of a prompt; then measure again"}},
    {"nothing-measured",
     ANY,
     ANY,
     ANY,
     ANY,
     ANY,
     nothing,
     KL_CONDITION_REFUSED,
     KL_WHERE_NONE,
     0,
     "No path has a token that counts: there is nothing to read.",
     {"see why each path was not measured; start the server with its radix cache on for the cache paths"}},
    {"clean",
     NOT_DIRTY,
     NOT_DIRTY,
     NOT_DIRTY,
     NOT_DIRTY,
     NOT_DIRTY,
     NULL,
     KL_CONDITION_NONE,
     KL_WHERE_NONE,
     KL_EVIDENCE_PATHS,
     "Every path that was measured is clean: no token differs by more than two ways of taking one logprob do.",
     {0}},
    {"match-missing",
     UNMEASURED,
     UNMEASURED,
     ANY,
     ANY,
     ANY,
     NULL,
     KL_CONDITION_REFUSED,
     KL_WHERE_NONE,
     KL_EVIDENCE_PATHS,
     "Some path is dirty, but match was not measured: without it the two conditions cannot be told apart.",
     {"measure match as well"}},
    {"restore-almost-all-cached",
     NOT_DIRTY,
     NOT_DIRTY,
     DIRTY,
     CLEAN,
     CLEAN,
     NULL,
     KL_CONDITION_2,
     KL_WHERE_RESTORE,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_FEW,
     "Condition 2 is broken in the prefix restore, only where almost all of the prompt is cached: match is clean, and "
     "so "
     "are the paths that leave more of it to compute.",
     {"vary how much of a prompt is cached, from one token short of all downwards",
      "kldumpctl capture --restore --new 0, which leaves one token to compute, then kldumpctl diff"}},
    {"restored-prefix",
     NOT_DIRTY,
     NOT_DIRTY,
     ANY,
     ANY,
     ANY,
     prefix_dirty,
     KL_CONDITION_2,
     KL_WHERE_RESTORE,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_FEW | KL_EVIDENCE_RESTORE,
     "Condition 2 is broken in the prefix restore: match is clean, so the operators agree, and what comes back from "
     "the "
     "cache is not what a prefill would compute.",
     {"kldumpctl capture --restore, then kldumpctl diff: equal inputs and another output at the first attention",
      "the same with pages of one token, and without the prefix cache, which must be clean"}},
    {"decode-forgets",
     ANY,
     ANY,
     ANY,
     ANY,
     NOT_DIRTY,
     one_position,
     KL_CONDITION_2,
     KL_WHERE_DECODE,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_POSITION | KL_EVIDENCE_RESTORE | KL_EVIDENCE_FEW,
     "Condition 2 is broken during decode: from one position on, decode computes with another context than prefill "
     "(a window handed over too early, an eviction, a checkpoint that rotates away). Operators that depend on the "
     "batch "
     "would not spare the tokens before it; only an attention that orders its sums otherwise from that length on "
     "(condition 1) would look the same, by last bits.",
     {"compare the position with the sliding window, the page size and the checkpoint interval",
      DIFF ": expected is attention with equal inputs, only in passes from that length on"}},
    {"decode-forgets-and-restore",
     ANY,
     ANY,
     ANY,
     ANY,
     DIRTY,
     one_position,
     KL_CONDITION_2,
     KL_WHERE_DECODE,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_POSITION | KL_EVIDENCE_RESTORE | KL_EVIDENCE_FEW,
     "Condition 2 is broken in two places: during decode, where every dirty request turns dirty at one position after "
     "clean tokens, and in the restored prefix, where prefill differs from prefill.",
     {"settle restore first: it needs no decode", DIFF}},
    {"second-turn",
     NOT_DIRTY,
     NOT_DIRTY,
     NOT_DIRTY,
     DIRTY,
     NOT_DIRTY,
     NULL,
     KL_CONDITION_REFUSED,
     KL_WHERE_NONE,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_LENGTHS | KL_EVIDENCE_INDEX | KL_EVIDENCE_RESTORE | KL_EVIDENCE_FEW,
     "Only the second turn is dirty, and it is longer than what match has measured. Three things look like that: what "
     "a "
     "decode leaves in the cache is not what a prefill would compute; decode computes with another context from such a "
     "length on (both condition 2); or an operator depends on a number of rows that match does not reach (condition "
     "1).",
     {"measure match past the lengths of the second turn, with twice the --new: what stays clean there leaves the "
      "cache",
      INVARIANCE, DIFF}},
    {"one-row-alone",
     CLEAN,
     DIRTY,
     ANY,
     ANY,
     ANY,
     NULL,
     KL_CONDITION_1,
     KL_WHERE_OPERATOR,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_ALONE | KL_EVIDENCE_INDEX | KL_EVIDENCE_RESTORE,
     "Condition 1 is broken at one row: match is clean in a batch and dirty with one request at a time, so an operator "
     "gives other numbers when its pass has a single row.",
     {INVARIANCE, DIFF, SETTLE}},
    {"router-flip",
     ANY,
     ANY,
     ANY,
     ANY,
     CLEAN,
     one_flip,
     KL_CONDITION_1,
     KL_WHERE_OPERATOR,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_INDEX | KL_EVIDENCE_RESTORE,
     "Condition 1 is broken, and a router makes one token of it: a last bit before the router chooses another expert. "
     "Restore is clean, so the cache is not to blame.",
     {INVARIANCE, DIFF ": it counts the choices of experts that are others", SETTLE}},
    {"one-row",
     DIRTY,
     ANY,
     ANY,
     ANY,
     CLEAN,
     from_index_1,
     KL_CONDITION_1,
     KL_WHERE_OPERATOR,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_INDEX | KL_EVIDENCE_RESTORE,
     "Decode passes differ: the first token of every request, which a prefill computes, is clean, the next ones are "
     "not, "
     "and prefill against prefill (restore) is clean. It is read as condition 1, an operator that depends on few rows. "
     "A "
     "decode that reads another context from its first pass on (condition 2) looks the same: a dump tells them apart.",
     {DIFF, INVARIANCE, SETTLE}},
    {"length-dependent",
     DIRTY,
     DIRTY,
     ANY,
     ANY,
     CLEAN,
     same_alone,
     KL_CONDITION_1,
     KL_WHERE_OPERATOR,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_ALONE | KL_EVIDENCE_INDEX | KL_EVIDENCE_RESTORE,
     "Condition 1 is broken, but not by what else is in a pass: match has the same bits in a batch and one request at "
     "a time. A token gets other bits when it is decoded, or when more tokens of its own request are computed with it, "
     "as in attention that orders its sums by the length.",
     {"kldumpctl invariance: its axis extend names the length from which on a result changes", DIFF, SETTLE}},
    {"not-batch-invariant",
     ANY,
     ANY,
     ANY,
     ANY,
     ANY,
     NULL,
     KL_CONDITION_1,
     KL_WHERE_OPERATOR,
     KL_EVIDENCE_PATHS | KL_EVIDENCE_INDEX | KL_EVIDENCE_RESTORE,
     "Condition 1 is broken: operators on the path are not batch-invariant. Settle it first; which requests are dirty "
     "means nothing while it is, and nothing is said about condition 2 but by restore.",
     {INVARIANCE, DIFF, SETTLE}},
};

static bool fits(enum look look, const struct kl_path *path)
{
    bool measured = path->grade != KL_GRADE_NOT_MEASURED, dirty = kl_reading_dirty(path);
    switch (look) {
    case ANY:
        return true;
    case CLEAN:
        return measured && !dirty;
    case DIRTY:
        return dirty;
    case NOT_DIRTY:
        return !dirty;
    case UNMEASURED:
        return !measured;
    }
    return false;
}

static bool matches(const struct signature *s, const struct kl_facts *facts)
{
    const struct kl_path *paths = facts->paths;
    return fits(s->match, &paths[KL_PATH_MATCH]) && fits(s->alone, &paths[KL_PATH_MATCH_ALONE]) &&
           fits(s->prefill_hit, &paths[KL_PATH_PREFILL_CACHE_HIT]) &&
           fits(s->decode_hit, &paths[KL_PATH_DECODE_CACHE_HIT]) && fits(s->restore, &paths[KL_PATH_RESTORE]) &&
           (s->also == NULL || s->also(facts));
}

/* ---- what is said beside the table ---- */

static void add_sentences(const struct signature *signature, const struct kl_facts *facts, struct buffer *text)
{
    bool dirty = signature->condition == KL_CONDITION_1 || signature->condition == KL_CONDITION_2;
    if (signature->condition == KL_CONDITION_1 && facts->loud_restore)
        buffer_text(text,
                    " Restore is dirty far beyond that noise: condition 2 is broken in the prefix restore as well.");
    if (signature->condition == KL_CONDITION_1 && !facts->server->deterministic)
        buffer_text(text, " Deterministic inference is off: condition 1 cannot be expected to hold.");
    if (dirty && facts->server->mixture_of_experts)
        buffer_text(text,
                    " The model is a mixture of experts: a last bit before a router can choose another expert and "
                    "is amplified to a difference that is seen; that is a reason to look for the bit, not for "
                    "a looser threshold.");
    if (signature->where == KL_WHERE_RESTORE && facts->faint)
        buffer_text(text,
                    " But no path is dirty by more than noise: an operator that computes the rows behind a cached "
                    "prefix in another order (condition 1) looks the same.");
    const char *before = " Not measured: ";
    for (int id = 0; id < KL_PATHS && facts->measured; id++) {
        if (facts->paths[id].grade != KL_GRADE_NOT_MEASURED)
            continue;
        buffer_format(text, "%s%s", before, kl_path_word((enum kl_path_id)id));
        before = ", ";
    }
    if (before[0] == ',')
        buffer_text(text, ".");
}

static void add_next(const struct signature *signature, const struct kl_facts *facts, struct list *next)
{
    if (signature->condition == KL_CONDITION_1 && !facts->server->deterministic)
        list_add(next, "start the server with deterministic inference and measure again");
    for (size_t i = 0; i < sizeof signature->next / sizeof signature->next[0] && signature->next[i] != NULL; i++)
        list_add(next, signature->next[i]);
    if (signature->where == KL_WHERE_RESTORE && facts->faint)
        list_add(next,
                 "kldumpctl invariance first: its axis extend has the same rows with a cached prefix and without");
    bool restore_missing = facts->paths[KL_PATH_RESTORE].grade == KL_GRADE_NOT_MEASURED;
    if (restore_missing && facts->probe <= KL_PATH_MATCH_ALONE && !facts->shifted)
        list_add(next, "measure restore: dirty in match is not yet condition 1, restore and the position decide");
    if (facts->one_position && facts->same_lengths && facts->long_requests == 0)
        list_add(next,
                 "measure with prompts of several lengths: with one length a position cannot be told from an index");
}

void kl_read(const struct kl_path paths[KL_PATHS], const struct kl_server *server, struct kl_reading *ret_reading)
{
    struct kl_facts facts;
    struct buffer text;
    struct list evidence = {0}, next = {0};
    const struct signature *s = signatures;
    kl_reading_facts(paths, server, &facts);
    while (!matches(s, &facts)) /* the last row fits always */
        s++;
    buffer_init(&text);
    buffer_text(&text, s->text);
    add_sentences(s, &facts, &text);
    kl_reading_evidence(&facts, s->evidence, &evidence);
    add_next(s, &facts, &next);
    *ret_reading = (struct kl_reading){
        .signature = s->name,
        .condition = s->condition,
        .where = s->where,
        .shifted = facts.shifted,
        .few = s->condition == KL_CONDITION_2 && kl_reading_few(&facts, s->where),
        .condition_2_open = s->condition == KL_CONDITION_1,
        .condition_2_in_restore = s->condition == KL_CONDITION_1 && facts.loud_restore,
        .text = buffer_steal(&text),
        .evidence = list_vector(&evidence),
        .next = list_vector(&next),
    };
    buffer_fini(&text);
}

void kl_reading_fini(struct kl_reading *reading)
{
    free(reading->text);
    list_vector_free(reading->evidence);
    list_vector_free(reading->next);
    *reading = (struct kl_reading){0};
}
