/* Why nothing could be paired, in the order in which a user would want to hear it. */
#include "analysis/alignment_work.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TOLD_MAX = 3, LOOKED_AT_MAX = 256 }; /* requests that are told of; sequences that are compared to tell more */

char *alignment_tell_request(const struct side_sequence *sequence)
{
    return sequence->incarnation == 0 ? memory_format("'%s'", sequence->rid)
                                      : memory_format("'%s' (begun again, %u)", sequence->rid, sequence->incarnation);
}

void alignment_tell_pass(const struct side_pass *pass, struct diff *diff)
{
    diff_tell(diff, pass->unreadable ? DIFF_MESSAGE_M14 : DIFF_MESSAGE_M1, "%s", pass->problem);
    diff_prove(diff, DIFF_PROOF_A1, DIFF_PROOF_FAILS, "%s", pass->problem);
    diff->refused_needed |= pass->refused;
    diff->usable &= !pass->unreadable || pass->refused;
}

static bool tell_broken(const struct side *side, struct diff *diff)
{
    uint32_t broken = side->broken_pass;
    for (size_t i = 0; i < side->sequence_count && broken == SIDE_NOWHERE; i++)
        broken = side->sequences[i].broken_pass;
    if (broken == SIDE_NOWHERE)
        return false;
    alignment_tell_pass(&side->passes[broken], diff);
    return true;
}

static bool tell_hole(const struct side *side, struct diff *diff)
{
    for (size_t i = 0; i < side->sequence_count; i++) {
        const struct side_sequence *sequence = &side->sequences[i];
        if (sequence->hole_pass == SIDE_NOWHERE)
            continue;
        char *request = alignment_tell_request(sequence);
        diff_tell(diff, DIFF_MESSAGE_M5,
                  "request %s: positions %zu to %zu were computed in no pass of the folder (step %" PRIu64
                  " goes on at %zu)",
                  request, sequence->hole_first, sequence->hole_last, side->passes[sequence->hole_pass].step,
                  sequence->hole_last + 1);
        diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_FAILS, "positions %zu to %zu are missing", sequence->hole_first,
                   sequence->hole_last);
        free(request);
        diff->usable = false;
        return true;
    }
    return false;
}

/* Nothing speaks against the reference holding decode's tokens, and its cache is why there are no pairs. */
static bool is_cached_away(const struct side_sequence *decode, const struct side_sequence *reference)
{
    bool known = reference->known_length > 0;
    size_t position = known ? 0 : reference->cached_length;
    if (reference->cached_length == 0)
        return false;
    while (position < decode->known_length && position < reference->length &&
           decode->tokens[position].id == reference->tokens[position].id)
        position++;
    return known ? position > decode->prompt_length : position >= decode->known_length || position == reference->length;
}

/* A reference whose rows begin behind the decoded positions, or whose cached tokens are not known. */
static bool tell_cached(const struct alignment_view *view, const struct side *decodes, const struct side *references,
                        struct diff *diff)
{
    for (size_t i = 0; i < decodes->sequence_count && i < LOOKED_AT_MAX; i++) {
        for (size_t k = 0; k < references->sequence_count && k < LOOKED_AT_MAX; k++) {
            const struct side_sequence *decode = &decodes->sequences[i], *reference = &references->sequences[k];
            if ((view->same && i == k) || !is_cached_away(decode, reference))
                continue;
            char *request = alignment_tell_request(reference);
            bool known = reference->known_length > 0;
            size_t rows = reference->cached_length;
            if (known)
                diff_tell(diff, DIFF_MESSAGE_M3,
                          "request %s: positions 0 to %zu came from the cache (its rows start at %zu), decoding starts "
                          "at %zu",
                          request, rows - 1, rows, decode->prompt_length);
            else
                diff_tell(diff, DIFF_MESSAGE_M3,
                          "request %s: positions 0 to %zu came from the cache (its rows start at %zu), and the folder "
                          "does not say which tokens they hold",
                          request, rows - 1, rows);
            diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_FAILS, "the tokens at positions 0 to %zu of request %s are %s",
                       rows - 1, request, known ? "cached" : "not known");
            free(request);
            return true;
        }
    }
    return false;
}

/* The reference that agrees longest with this sequence. */
static void tell_best(const struct alignment_view *view, const struct side *references, size_t number,
                      const struct side_sequence *decode, struct diff *diff)
{
    const struct side_sequence *best = NULL;
    size_t longest = 0;
    for (size_t k = 0; k < references->sequence_count; k++) {
        const struct side_sequence *reference = &references->sequences[k];
        size_t common = 0;
        if ((view->same && k == number) || (!view->any_rank && reference->rank != decode->rank))
            continue;
        while (common < decode->known_length && common < reference->known_length &&
               decode->tokens[common].id == reference->tokens[common].id)
            common++;
        if (best == NULL || common > longest) {
            best = reference;
            longest = common;
        }
    }
    char *request = alignment_tell_request(decode), *candidate = best != NULL ? alignment_tell_request(best) : NULL;
    size_t last = decode->known_length > 0 ? decode->known_length - 1 : 0;
    if (best == NULL)
        diff_tell(diff, DIFF_MESSAGE_M2, "request %s: the other side has no request at all", request);
    else if (decode->known_length == 0)
        diff_tell(diff, DIFF_MESSAGE_M2,
                  "request %s: its first pass begins at position %zu, and no pass says which tokens stand before",
                  request, decode->cached_length);
    else if (longest == best->known_length && longest < decode->known_length)
        diff_tell(
            diff, DIFF_MESSAGE_M2,
            "request %s: no reference has its ids at 0 to %zu; the best candidate %s ends at position %zu, before "
            "what was decoded from %zu on",
            request, last, candidate, longest, decode->prompt_length);
    else if (longest == decode->known_length)
        diff_tell(diff, DIFF_MESSAGE_M2,
                  "request %s: the best candidate %s has the same ids, but no prefill row at positions %zu to %zu",
                  request, candidate, decode->prompt_length, last);
    else
        diff_tell(diff, DIFF_MESSAGE_M2,
                  "request %s: no reference has its ids at 0 to %zu; the best candidate %s differs at position %zu (id "
                  "%" PRId64 ", there %" PRId64 ")",
                  request, last, candidate, longest, decode->tokens[longest].id, best->tokens[longest].id);
    if (diff->proofs[DIFF_PROOF_A2].state != DIFF_PROOF_FAILS)
        diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_FAILS, "%s", diff->messages[diff->message_count - 1].evidence);
    free(request);
    free(candidate);
}

/* `later` begins with one token more than `earlier` has, and goes on like it. */
static bool is_shifted(const struct side_sequence *earlier, const struct side_sequence *later)
{
    size_t count = 0;
    while (count < earlier->known_length && count + 1 < later->known_length &&
           earlier->tokens[count].id == later->tokens[count + 1].id)
        count++;
    return count > 0 && (count == earlier->known_length || count + 1 == later->known_length);
}

/* An extra token at the start of one side (a tokenizer's BOS). */
static bool tell_leading_token(const struct alignment_view *view, const struct side *decodes,
                               const struct side *references, struct diff *diff)
{
    for (size_t i = 0; i < decodes->sequence_count && i < LOOKED_AT_MAX; i++) {
        for (size_t k = 0; k < references->sequence_count && k < LOOKED_AT_MAX; k++) {
            const struct side_sequence *decode = &decodes->sequences[i], *reference = &references->sequences[k];
            bool more = is_shifted(decode, reference);
            if ((view->same && i == k) || !alignment_match_decodes(decode) || (!more && !is_shifted(reference, decode)))
                continue;
            const struct side_sequence *longer = more ? reference : decode, *shorter = more ? decode : reference;
            char *extra = alignment_tell_request(longer), *plain = alignment_tell_request(shorter);
            diff_tell(diff, DIFF_MESSAGE_M6,
                      "request %s begins with token %" PRId64 ", and behind it has the tokens of request %s", extra,
                      longer->tokens[0].id, plain);
            diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_FAILS, "the tokens of request %s fit when shifted by one",
                       plain);
            free(extra);
            free(plain);
            return true;
        }
    }
    return false;
}

static bool tell_other_tokens(const struct alignment_view *view, const struct side *decodes,
                              const struct side *references, struct diff *diff)
{
    size_t told = 0;
    for (size_t i = 0; i < decodes->sequence_count && told < TOLD_MAX; i++) {
        if (!alignment_match_decodes(&decodes->sequences[i]))
            continue;
        tell_best(view, references, i, &decodes->sequences[i], diff);
        told++;
    }
    return told > 0;
}

static size_t count_rows(const struct side *side)
{
    size_t count = 0;
    for (size_t i = 0; i < side->pass_count; i++)
        count += side->passes[i].draft ? 0 : side->passes[i].tokens;
    return count;
}

void alignment_tell_failure(const struct alignment_view *view, struct diff *diff)
{
    diff_prove(diff, DIFF_PROOF_A1, DIFF_PROOF_HOLDS, "%zu and %zu passes", view->a->pass_count, view->b->pass_count);
    diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_UNKNOWN, "no pair");
    diff_prove(diff, DIFF_PROOF_A3, DIFF_PROOF_UNKNOWN, "no pair");
    if (tell_broken(view->a, diff) || tell_broken(view->b, diff))
        return;
    if (tell_hole(view->a, diff) || tell_hole(view->b, diff))
        return;
    if (tell_cached(view, view->a, view->b, diff) || (!view->same && tell_cached(view, view->b, view->a, diff)))
        return;
    if (tell_leading_token(view, view->a, view->b, diff) ||
        (!view->same && tell_leading_token(view, view->b, view->a, diff)))
        return;
    if (tell_other_tokens(view, view->a, view->b, diff) || tell_other_tokens(view, view->b, view->a, diff))
        return;
    diff_tell(diff, DIFF_MESSAGE_M13, "%zu rows of %zu requests, and %zu rows of %zu requests", count_rows(view->a),
              view->a->sequence_count, count_rows(view->b), view->b->sequence_count);
    diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_FAILS, "no row of one side is a row of the other");
}
