/* Each sequence of a is looked up by the hash of its tokens up to the first that decides (its first decoded one, or all
 * of them), by rolling the hash along every sequence of b; each hit is confirmed token by token. */
#include "analysis/alignment_work.h"
#include "base/memory.h"

#include <stdlib.h>

struct map { /* hash -> sequences of a, in their order */
    uint32_t *buckets, *next;
    uint64_t *hashes;
    size_t bucket_count;
};

bool alignment_match_decodes(const struct side_sequence *sequence)
{
    return sequence->length > sequence->prompt_length;
}

bool alignment_match_is_prefill(enum alignment_mode mode)
{
    return mode == ALIGNMENT_WHOLE || mode == ALIGNMENT_RESTORED;
}

bool alignment_match_is_restored(const struct side_sequence *a, const struct side_sequence *b)
{
    return (a->cached_length == 0) != (b->cached_length == 0);
}

bool alignment_match_is_pair(enum alignment_mode mode, const struct side_sequence *a, const struct side_sequence *b,
                             size_t position, bool *ret_target)
{
    bool a_decodes = position >= a->prompt_length, b_decodes = position >= b->prompt_length;
    if (a->tokens[position].pass == SIDE_NOWHERE || b->tokens[position].pass == SIDE_NOWHERE)
        return false;
    *ret_target = mode == ALIGNMENT_RESTORED ? alignment_match_is_restored(a, b) : mode == ALIGNMENT_WHOLE || a_decodes;
    return alignment_match_is_prefill(mode) || !b_decodes || (mode == ALIGNMENT_RUNS && a_decodes);
}

static size_t common_length(const struct side_sequence *a, const struct side_sequence *b)
{
    size_t limit = a->known_length < b->known_length ? a->known_length : b->known_length, common = 0;
    while (common < limit && a->tokens[common].id == b->tokens[common].id)
        common++;
    return common;
}

/* Tokens whose hash is looked up; 0: this sequence has nothing to look for. */
static size_t deciding_length(const struct alignment_view *view, const struct side_sequence *sequence)
{
    if (view->only_rank_0 && sequence->rank != 0)
        return 0;
    if (view->mode == ALIGNMENT_WHOLE)
        return sequence->known_length < sequence->length ? 0 : sequence->length;
    return sequence->known_length > sequence->prompt_length ? sequence->prompt_length + 1 : 0;
}

static uint64_t of_rank(const struct alignment_view *view, uint64_t hash, uint32_t rank)
{
    return view->any_rank ? hash : hash ^ (rank + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(const struct alignment_view *view, const struct side *side, struct map *map)
{
    map->bucket_count = 64;
    while (map->bucket_count < 2 * side->sequence_count)
        map->bucket_count *= 2;
    map->buckets = memory_new(map->bucket_count * sizeof *map->buckets);
    map->next = memory_new((side->sequence_count + 1) * sizeof *map->next);
    map->hashes = memory_new((side->sequence_count + 1) * sizeof *map->hashes);
    for (size_t i = side->sequence_count; i-- > 0;) {
        const struct side_sequence *sequence = &side->sequences[i];
        size_t length = deciding_length(view, sequence);
        uint64_t hash = 0;
        for (size_t k = 0; k < length; k++)
            hash = side_hash_token(hash, sequence->tokens[k].id);
        if (length == 0)
            continue;
        map->hashes[i] = of_rank(view, hash, sequence->rank);
        uint32_t *bucket = &map->buckets[map->hashes[i] & (map->bucket_count - 1)];
        map->next[i] = *bucket;
        *bucket = (uint32_t)i + 1;
    }
}

static void free_map(struct map *map)
{
    free(map->buckets);
    free(map->next);
    free(map->hashes);
}

static size_t count_targets(const struct alignment_view *view, const struct side_sequence *a,
                            const struct side_sequence *b, size_t common)
{
    size_t count = 0;
    for (size_t position = view->mode == ALIGNMENT_WHOLE ? 0 : a->prompt_length; position < common; position++) {
        bool target;
        count += alignment_match_is_pair(view->mode, a, b, position, &target) && target;
    }
    return count;
}

/* Better: more targets; then one that only scores; then the one that stands first. */
static bool is_better(const struct alignment_view *view, const struct alignment_match *now,
                      const struct side_sequence *b, size_t targets)
{
    if (now->sequence == SIDE_NOWHERE || targets != now->targets)
        return now->sequence == SIDE_NOWHERE || targets > now->targets;
    return !alignment_match_decodes(b) && alignment_match_decodes(&view->b->sequences[now->sequence]);
}

/* Sequences with the same one have the same rows and tokens to offer. */
static uint64_t likeness(const struct side_sequence *sequence)
{
    uint64_t hash = side_hash_token(sequence->prompt_length, (int64_t)sequence->cached_length);
    for (size_t i = 0; i < sequence->known_length; i++)
        hash = side_hash_token(hash, sequence->tokens[i].id);
    return hash | 1;
}

/* `like`: likeness of sequence b; 0: not known. */
static void offer(const struct alignment_view *view, size_t a, size_t b, uint64_t like, struct alignment_match *match)
{
    const struct side_sequence *decode = &view->a->sequences[a], *reference = &view->b->sequences[b];
    if (view->same && (a == b) != view->self)
        return;
    if (view->same && view->mode != ALIGNMENT_PHASES && !view->self && a > b)
        return; /* once, not in both directions */
    size_t most = decode->known_length - (view->mode == ALIGNMENT_WHOLE ? 0 : decode->prompt_length);
    if (match->sequence != SIDE_NOWHERE && match->targets == most &&
        (alignment_match_decodes(reference) || !alignment_match_decodes(&view->b->sequences[match->sequence])))
        return;
    if (like != 0 && match->compared == like)
        return;
    match->compared = like;
    size_t common = common_length(decode, reference), targets = count_targets(view, decode, reference, common);
    if (is_better(view, match, reference, targets))
        *match = (struct alignment_match){(uint32_t)b, common, targets, like};
}

/* Looks sequence `number` of `walked` up in the map. `reversed`: the map has sequences of b. */
static void walk(const struct alignment_view *view, const struct side *walked, size_t number, const struct map *map,
                 bool reversed, struct alignment_match *matches)
{
    const struct side_sequence *sequence = &walked->sequences[number];
    uint64_t hash = 0, like = reversed ? 0 : likeness(sequence);
    if (view->only_rank_0 && sequence->rank != 0)
        return;
    for (size_t k = 0; k < sequence->known_length; k++) {
        hash = side_hash_token(hash, sequence->tokens[k].id);
        uint64_t wanted = of_rank(view, hash, sequence->rank);
        for (uint32_t i = map->buckets[wanted & (map->bucket_count - 1)]; i != 0; i = map->next[i - 1]) {
            if (map->hashes[i - 1] != wanted)
                continue;
            if (reversed)
                offer(view, number, i - 1, 0, &matches[number]);
            else
                offer(view, i - 1, number, like, &matches[i - 1]);
        }
    }
}

size_t alignment_match_all(const struct alignment_view *view, struct alignment_match *matches)
{
    struct map map = {0};
    size_t targets = 0;
    for (size_t i = 0; i < view->a->sequence_count; i++)
        matches[i] = (struct alignment_match){.sequence = SIDE_NOWHERE};
    fill(view, view->a, &map);
    for (size_t i = 0; i < view->b->sequence_count; i++)
        walk(view, view->b, i, &map, false, matches);
    free_map(&map);
    if (view->mode == ALIGNMENT_WHOLE) { /* a sequence of a may go on where its counterpart ends */
        fill(view, view->b, &map);
        for (size_t i = 0; i < view->a->sequence_count; i++)
            walk(view, view->a, i, &map, true, matches);
        free_map(&map);
    }
    for (size_t i = 0; i < view->a->sequence_count; i++) {
        if (matches[i].targets == 0)
            matches[i].sequence = SIDE_NOWHERE;
        targets += matches[i].targets;
    }
    return targets;
}
