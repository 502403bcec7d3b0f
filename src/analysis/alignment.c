#include "analysis/alignment_work.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PAIRS_MAX = 64 * 1024 * 1024 };

struct member { /* a sequence of a that has a counterpart */
    uint32_t a, b;
    size_t common;
    uint32_t group; /* index of the first member with the same request: the same on another rank */
};

/* ---- which mode, which direction ---- */

static bool is_same_folder(const struct side *a, const struct side *b)
{
    struct stat x, y;
    return a == b ||
           (fstat(a->folders[a->folder_count - 1].fd, &x) == 0 && fstat(b->folders[b->folder_count - 1].fd, &y) == 0 &&
            x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static bool any_decodes(const struct side *side)
{
    for (size_t i = 0; i < side->sequence_count; i++)
        if (alignment_match_decodes(&side->sequences[i]))
            return true;
    return false;
}

/* A folder given twice is compared with itself only if nothing in it can have been meant as the counterpart: no request
 * that was scored only, none whose rows are cached, missing or cannot be cut. */
static bool may_be_itself(const struct side *side)
{
    bool decodes = any_decodes(side);
    for (size_t i = 0; i < side->sequence_count; i++) {
        const struct side_sequence *sequence = &side->sequences[i];
        if ((decodes && !alignment_match_decodes(sequence)) || sequence->cached_length > 0 ||
            sequence->hole_pass != SIDE_NOWHERE || sequence->broken_pass != SIDE_NOWHERE)
            return false;
    }
    return side->broken_pass == SIDE_NOWHERE;
}

static bool any_restored(const struct side *side)
{
    for (size_t i = 0; i < side->sequence_count; i++)
        if (side->sequences[i].cached_length > 0 && side->sequences[i].known_length > 0)
            return true;
    return false;
}

/* Whether some rows of a's are behind a prefix that the counterpart has computed (or the other way round), and whatever
 * else is paired has filled the cache for them: then the question is what was restored. */
static bool is_about_restored(const struct side *a, const struct side *b, const struct alignment_match *matches)
{
    bool *fills = memory_new(a->sequence_count + 1), found = false, only = true;
    for (size_t i = 0; i < a->sequence_count; i++)
        if (a->sequences[i].prefix_source != SIDE_NOWHERE)
            fills[a->sequences[i].prefix_source] = true;
    for (size_t i = 0; i < a->sequence_count; i++) {
        if (matches[i].sequence == SIDE_NOWHERE)
            continue;
        bool is_restored = alignment_match_is_restored(&a->sequences[i], &b->sequences[matches[i].sequence]);
        found |= is_restored;
        only &= is_restored || fills[i];
    }
    free(fills);
    return found && only;
}

static void exchange(struct side *a, struct side *b, struct diff *diff)
{
    struct side side = *a;
    *a = *b;
    *b = side;
    char *path = diff->a_path;
    diff->a_path = diff->b_path;
    diff->b_path = path;
    diff->swapped = true;
}

static struct alignment_match *new_matches(const struct side *side)
{
    return memory_new((side->sequence_count + 1) * sizeof(struct alignment_match));
}

/* Returns the matches of the sequences of view->a, which is `a` or, exchanged, `b`. */
static struct alignment_match *choose(struct alignment_view *view, struct side *a, struct side *b, struct diff *diff)
{
    struct alignment_match *matches = new_matches(a), *other = new_matches(b);
    struct alignment_view turned = *view;
    turned.a = b;
    turned.b = a;
    size_t forward = alignment_match_all(view, matches), backward = 0;
    if (!view->same)
        backward = alignment_match_all(&turned, other);
    if (backward > forward || (forward == 0 && any_decodes(b) && !any_decodes(a) && !view->same)) {
        exchange(a, b, diff);
        free(matches);
        return other;
    }
    free(other);
    if (forward > 0)
        return matches;
    view->mode = any_decodes(a) || any_decodes(b) ? ALIGNMENT_RUNS : ALIGNMENT_WHOLE;
    if (view->mode == ALIGNMENT_WHOLE && !view->same && any_restored(b) && !any_restored(a)) {
        exchange(a, b, diff);
        free(matches);
        matches = new_matches(a);
    }
    forward = alignment_match_all(view, matches);
    if (view->mode == ALIGNMENT_WHOLE && is_about_restored(a, b, matches))
        view->mode = ALIGNMENT_RESTORED;
    if (forward == 0 && view->same && may_be_itself(a)) {
        view->self = true;
        alignment_match_all(view, matches);
    }
    return matches;
}

/* ---- requests and pairs ---- */

static int by_request(const void *x, const void *y, void *context)
{
    const struct side *side = context;
    const struct member *p = x, *q = y;
    int order = strcmp(side->sequences[p->a].rid, side->sequences[q->a].rid);
    if (order == 0 && side->sequences[p->a].incarnation != side->sequences[q->a].incarnation)
        return side->sequences[p->a].incarnation < side->sequences[q->a].incarnation ? -1 : 1;
    return order != 0 ? order : (p->a > q->a) - (p->a < q->a);
}

static int by_group(const void *x, const void *y)
{
    const struct member *p = x, *q = y;
    return p->group != q->group ? (p->group > q->group ? 1 : -1) : (p->a > q->a) - (p->a < q->a);
}

/* The same request on several ranks becomes one: members in the order of requests (by first sight), then ranks. */
static size_t make_members(const struct alignment_view *view, const struct alignment_match *matches,
                           struct member **ret_members)
{
    struct member *members = memory_new((view->a->sequence_count + 1) * sizeof *members);
    size_t count = 0;
    for (size_t i = 0; i < view->a->sequence_count; i++)
        if (matches[i].sequence != SIDE_NOWHERE)
            members[count++] = (struct member){(uint32_t)i, matches[i].sequence, matches[i].common, 0};
    qsort_r(members, count, sizeof *members, by_request, (void *)view->a);
    for (size_t i = 0; i < count; i++) {
        const struct side_sequence *own = &view->a->sequences[members[i].a];
        const struct side_sequence *before = i > 0 ? &view->a->sequences[members[i - 1].a] : NULL;
        bool again = before != NULL && strcmp(own->rid, before->rid) == 0 && own->incarnation == before->incarnation &&
                     own->rank != before->rank;
        members[i].group = again ? members[i - 1].group : members[i].a;
    }
    qsort(members, count, sizeof *members, by_group);
    *ret_members = members;
    return count;
}

static const struct segment *segment_of(const struct side_pass *pass, uint32_t row)
{
    size_t low = 0, high = pass->segment_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pass->segments[middle].row <= row)
            low = middle;
        else
            high = middle;
    }
    return &pass->segments[low];
}

static void add_pair(const struct alignment_view *view, const struct side_token *a, const struct side_token *b,
                     size_t position, bool target, uint32_t request, struct alignment *alignment)
{
    const struct segment *from = segment_of(&view->a->passes[a->pass], a->row);
    const struct segment *to = segment_of(&view->b->passes[b->pass], b->row);
    alignment->pairs[alignment->pair_count++] = (struct alignment_pair){.a_pass = a->pass,
                                                                        .a_row = a->row,
                                                                        .b_pass = b->pass,
                                                                        .b_row = b->row,
                                                                        .a_request = from->request,
                                                                        .b_request = to->request,
                                                                        .a_last = a->row + 1 == from->row + from->rows,
                                                                        .b_last = b->row + 1 == to->row + to->rows,
                                                                        .target = target,
                                                                        .request = request,
                                                                        .position = (int64_t)position};
    alignment->target_count += target;
}

/* The prefill row that computed what the sequence has at a position, or what its cached prefix was filled with. */
static const struct side_token *origin_of(const struct side *side, const struct side_sequence *sequence,
                                          size_t position)
{
    uint32_t rank = sequence->rank;
    while (position < sequence->cached_length && sequence->prefix_source != SIDE_NOWHERE)
        sequence = &side->sequences[sequence->prefix_source];
    const struct side_token *token = &sequence->tokens[position];
    bool prefill = token->pass != SIDE_NOWHERE && position < sequence->prompt_length && sequence->rank == rank;
    return prefill ? token : NULL;
}

/* A position of the prompt that one of them took from the cache: a control, by the row that filled it. */
static void add_cached(const struct alignment_view *view, const struct member *member, size_t position,
                       uint32_t request, struct alignment *alignment)
{
    const struct side_sequence *a = &view->a->sequences[member->a], *b = &view->b->sequences[member->b];
    if ((position >= a->cached_length && position >= b->cached_length) || position >= a->prompt_length ||
        position >= b->prompt_length)
        return;
    const struct side_token *one = origin_of(view->a, a, position), *other = origin_of(view->b, b, position);
    bool same_row = one != NULL && other != NULL && view->same && one->pass == other->pass && one->row == other->row;
    if (one != NULL && other != NULL && !same_row)
        add_pair(view, one, other, position, false, request, alignment);
}

static void add_request(const struct alignment_view *view, const struct member *member, struct diff *diff,
                        const struct alignment *alignment)
{
    const struct side_sequence *a = &view->a->sequences[member->a], *b = &view->b->sequences[member->b];
    diff->requests[diff->request_count++] = (struct diff_request){.a_rid = memory_copy(a->rid),
                                                                  .b_rid = memory_copy(b->rid),
                                                                  .prompt_length = a->prompt_length,
                                                                  .a_length = a->known_length,
                                                                  .b_length = b->known_length,
                                                                  .a_cached_length = a->cached_length,
                                                                  .b_cached_length = b->cached_length,
                                                                  .first_pair = alignment->pair_count};
}

/* Pairs of members first .. end-1, which are one request: by position, then rank. */
static void pair_request(const struct alignment_view *view, const struct member *first, const struct member *end,
                         struct diff *diff, struct alignment *alignment)
{
    size_t longest = 0, targets = alignment->target_count;
    uint32_t request = (uint32_t)diff->request_count;
    add_request(view, first, diff, alignment);
    for (const struct member *member = first; member < end; member++)
        longest = member->common > longest ? member->common : longest;
    for (size_t position = 0; position < longest; position++) {
        for (const struct member *member = first; member < end; member++) {
            const struct side_sequence *a = &view->a->sequences[member->a], *b = &view->b->sequences[member->b];
            bool target;
            if (position >= member->common)
                continue;
            if (alignment_match_is_pair(view->mode, a, b, position, &target))
                add_pair(view, &a->tokens[position], &b->tokens[position], position, target, request, alignment);
            else
                add_cached(view, member, position, request, alignment);
        }
    }
    diff->requests[request].pair_count = alignment->pair_count - diff->requests[request].first_pair;
    diff->requests[request].target_count = alignment->target_count - targets;
}

static enum error_code make_pairs(const struct alignment_view *view, const struct member *members, size_t count,
                                  struct diff *diff, struct alignment *alignment, struct error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++)
        most += members[i].common;
    alignment->pairs = most > PAIRS_MAX ? NULL : calloc(most + 1, sizeof *alignment->pairs);
    if (alignment->pairs == NULL)
        return error_set(err, ERROR_MEMORY, "%zu pairs of rows", most);
    diff->requests = memory_new((count + 1) * sizeof *diff->requests);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && members[end].group == members[i].group; end++)
            ;
        pair_request(view, &members[i], &members[end], diff, alignment);
    }
    return ERROR_NONE;
}

/* ---- what the pairs prove ---- */

/* Marks the passes that pairs use; returns how many, and with `bad` how many of them have no module's tensor. */
static size_t count_passes(const struct side *side, const struct alignment *alignment, bool of_b, size_t *ret_bad,
                           const struct side_pass **ret_first_bad, const struct side_pass **ret_last_bad)
{
    bool *used = memory_new(side->pass_count + 1);
    size_t count = 0;
    *ret_bad = 0;
    for (size_t i = 0; i < alignment->pair_count; i++)
        if (alignment->pairs[i].target)
            used[of_b ? alignment->pairs[i].b_pass : alignment->pairs[i].a_pass] = true;
    for (size_t i = 0; i < side->pass_count; i++) {
        const struct side_pass *pass = &side->passes[i];
        count += used[i];
        if (!used[i] || (pass->hooks && !pass->replayed))
            continue;
        *ret_first_bad = *ret_bad == 0 ? pass : *ret_first_bad;
        *ret_last_bad = pass;
        ++*ret_bad;
    }
    free(used);
    return count;
}

static bool has_hooks(const struct side *side)
{
    for (size_t i = 0; i < side->pass_count; i++)
        if (side->passes[i].hooks)
            return true;
    return side->pass_count == 0;
}

static bool tell_core_mode(const struct side *side, const char *path, struct diff *diff)
{
    if (has_hooks(side))
        return false;
    diff_tell(diff, DIFF_MESSAGE_M11, "%s: none of its %zu passes has a tensor of a module", path, side->pass_count);
    diff->usable = false;
    return true;
}

/* Rows whose pass has no module's tensor cannot be compared. Where no target is left, M4; else the pairs go. */
static void leave_out_graphs(const struct alignment_view *view, struct diff *diff, struct alignment *alignment,
                             size_t *ret_left_out)
{
    const struct side *sides[] = {view->a, view->b};
    *ret_left_out = 0;
    for (unsigned k = 0; k < 2; k++) {
        size_t bad;
        const struct side_pass *first = NULL, *last = NULL;
        size_t used = count_passes(sides[k], alignment, k == 1, &bad, &first, &last);
        *ret_left_out += bad;
        if (bad == 0 || bad < used || !has_hooks(sides[k]))
            continue;
        diff_tell(diff, DIFF_MESSAGE_M4,
                  "%s: steps %" PRIu64 " to %" PRIu64 " of rank %" PRIu32 " (%zu passes, the first with %zu files) %s",
                  sides[k]->folders[sides[k]->folder_count - 1].path, first->step, last->step, first->rank, bad,
                  first->file_count, first->hooks ? "have no layer and no request ids" : "have no module");
        diff->usable = false;
    }
    for (size_t i = 0; i<alignment->pair_count && * ret_left_out> 0 && diff->usable; i++) {
        struct alignment_pair *pair = &alignment->pairs[i];
        const struct side_pass *a = &view->a->passes[pair->a_pass], *b = &view->b->passes[pair->b_pass];
        bool good = a->hooks && !a->replayed && b->hooks && !b->replayed;
        alignment->target_count -= pair->target && !good;
        diff->requests[pair->request].target_count -= pair->target && !good;
        pair->target &= good;
    }
}

static const struct side_pass *broken_pass_of(const struct side *side, uint32_t pass)
{
    return pass == SIDE_NOWHERE ? NULL : &side->passes[pass];
}

static void prove_cut(const struct alignment_view *view, const struct member *members, size_t count, size_t left_out,
                      struct diff *diff)
{
    const struct side_pass *bad = broken_pass_of(view->a, view->a->broken_pass);
    if (bad == NULL)
        bad = broken_pass_of(view->b, view->b->broken_pass);
    for (size_t i = 0; i < count && bad == NULL; i++) {
        bad = broken_pass_of(view->a, view->a->sequences[members[i].a].broken_pass);
        if (bad == NULL)
            bad = broken_pass_of(view->b, view->b->sequences[members[i].b].broken_pass);
    }
    if (bad != NULL) {
        alignment_tell_pass(bad, diff);
        return;
    }
    char *drafts = view->a->draft_pass_count + view->b->draft_pass_count == 0
                       ? memory_copy("")
                       : memory_format("; %" PRIu64 " of a draft model left out",
                                       view->a->draft_pass_count + view->b->draft_pass_count);
    char *graphs = left_out == 0 ? memory_copy("") : memory_format("; %zu without modules left out", left_out);
    char *broken = view->a->broken_pass_count + view->b->broken_pass_count == 0
                       ? memory_copy("")
                       : memory_format("; %" PRIu64 " of other requests could not be cut",
                                       view->a->broken_pass_count + view->b->broken_pass_count);
    diff_prove(diff, DIFF_PROOF_A1, DIFF_PROOF_HOLDS, "%zu and %zu passes%s%s%s", view->a->pass_count,
               view->b->pass_count, drafts, graphs, broken);
    free(drafts);
    free(graphs);
    free(broken);
}

/* Sequences that were linked by slot: told; and whether a slot had several of them. */
static bool tell_slots(const struct alignment_view *view, const struct member *members, size_t count, struct diff *diff)
{
    const struct side_sequence *linked = NULL, *reused = NULL;
    for (size_t i = 0; i < 2 * count; i++) {
        const struct side_sequence *sequence =
            i % 2 == 0 ? &view->a->sequences[members[i / 2].a] : &view->b->sequences[members[i / 2].b];
        linked = linked == NULL && sequence->linked_by_slot ? sequence : linked;
        reused = sequence->reused && (reused == NULL || (reused->incarnation == 0 && sequence->incarnation > 0))
                     ? sequence
                     : reused;
    }
    if (reused != NULL)
        diff_tell(diff, DIFF_MESSAGE_M8, "%s was used again at step %" PRIu64 ": whose rows are whose is not certain",
                  reused->rid, reused->first_step);
    else if (linked != NULL)
        diff_tell(diff, DIFF_MESSAGE_M8, "%s and others; none was used twice", linked->rid);
    return reused != NULL;
}

/* Requests of a that decode and have no counterpart; of one that runs on several ranks, one is counted. */
static size_t count_unpaired(const struct alignment_view *view, const struct alignment_match *matches)
{
    size_t count = 0;
    for (size_t i = 0; i < view->a->sequence_count; i++)
        count += matches[i].sequence == SIDE_NOWHERE && alignment_match_decodes(&view->a->sequences[i]) &&
                 (view->any_rank || view->a->sequences[i].rank == view->a->sequences[0].rank);
    return count;
}

static void prove(const struct alignment_view *view, const struct alignment_match *matches,
                  const struct member *members, size_t count, bool trust_slots, struct diff *diff,
                  struct alignment *alignment)
{
    size_t left_out, unpaired = alignment_match_is_prefill(view->mode) ? 0 : count_unpaired(view, matches);
    leave_out_graphs(view, diff, alignment, &left_out);
    prove_cut(view, members, count, left_out, diff);
    bool uncertain = tell_slots(view, members, count, diff) && !trust_slots;
    char *others =
        unpaired == 0 ? memory_copy("") : memory_format("; %zu other requests have no counterpart", unpaired);
    if (uncertain)
        diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_UNKNOWN,
                   "%zu pairs, but without request ids and with slots that were used again%s", alignment->pair_count,
                   others);
    else
        diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_HOLDS, "%s%zu of %zu pairs, %zu of them %s%s",
                   view->self ? "each request with itself: " : "", alignment->pair_count, alignment->pair_count,
                   view->mode == ALIGNMENT_WHOLE ? 0 : alignment->target_count,
                   view->mode == ALIGNMENT_RESTORED ? "behind a restored prefix" : "decode rows", others);
    diff_prove(diff, DIFF_PROOF_A3, DIFF_PROOF_HOLDS, "%zu of %zu pairs", alignment->pair_count, alignment->pair_count);
    free(others);
}

enum error_code alignment_make(struct side *a, struct side *b, bool trust_slots, struct diff *diff,
                               struct alignment *ret_alignment, struct error *err)
{
    static const enum diff_pairing pairings[] = {[ALIGNMENT_PHASES] = DIFF_PAIRING_PHASES,
                                                 [ALIGNMENT_RUNS] = DIFF_PAIRING_RUNS,
                                                 [ALIGNMENT_WHOLE] = DIFF_PAIRING_WHOLE,
                                                 [ALIGNMENT_RESTORED] = DIFF_PAIRING_RESTORED};
    struct alignment alignment = {0};
    struct alignment_view view = {.a = a,
                                  .b = b,
                                  .same = is_same_folder(a, b),
                                  .any_rank = a->replicas || b->replicas,
                                  .only_rank_0 = a->tp_size != b->tp_size};
    struct member *members;
    if (view.only_rank_0)
        diff_tell(diff, DIFF_MESSAGE_M10, "tp_size %u and %u: only rank 0 is compared", a->tp_size, b->tp_size);
    struct alignment_match *matches = choose(&view, a, b, diff);
    size_t count = make_members(&view, matches, &members);
    enum error_code code = make_pairs(&view, members, count, diff, &alignment, err);
    if (code == ERROR_NONE) {
        bool core = tell_core_mode(a, a->folders[a->folder_count - 1].path, diff);
        if (!view.same || !core)
            core |= tell_core_mode(b, b->folders[b->folder_count - 1].path, diff);
        alignment.swapped = diff->swapped;
        diff->pairing = view.self ? DIFF_PAIRING_ITSELF : pairings[view.mode];
        if (alignment.target_count == 0)
            alignment_tell_failure(&view, diff);
        else
            prove(&view, matches, members, count, trust_slots, diff, &alignment);
        *ret_alignment = alignment;
    }
    free(matches);
    free(members);
    return code;
}

void alignment_fini(struct alignment *alignment)
{
    free(alignment->pairs);
    *alignment = (struct alignment){0};
}
