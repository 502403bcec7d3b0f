/* A pass behind a cached prefix does not say which tokens lie in the cache. They are those of an earlier sequence; so
 * where all sequences of the side that are long enough begin with the same tokens, these are the ones. Else those of
 * the same request where it was computed before: a request has one prompt, and the tokens behind the prefix show that
 * its id was not used for another. Else the prefix stays unknown: a guess would be a proof of nothing. */
#include "analysis/side_work.h"
#include "base/memory.h"

#include <stdlib.h>

struct rolling { /* hash of the first `length` tokens of a sequence */
    size_t length;
    uint64_t hash;
};

static int by_size(const void *a, const void *b)
{
    const size_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

uint64_t side_hash_token(uint64_t hash, int64_t id)
{
    uint64_t value = hash * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)id + UINT64_C(0x632be59bd9b4e019);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return value ^ value >> 27;
}

static uint64_t roll(const struct side_sequence *sequence, struct rolling *rolling, size_t length)
{
    for (; rolling->length < length; rolling->length++)
        rolling->hash = side_hash_token(rolling->hash, sequence->tokens[rolling->length].id);
    return rolling->hash;
}

/* The one sequence that tells the first `length` tokens; SIZE_MAX: none, or they do not agree. */
static size_t find_source(const struct side *side, struct rolling *rolling, size_t length)
{
    size_t source = SIZE_MAX;
    uint64_t hash = 0;
    for (size_t i = 0; i < side->sequence_count; i++) {
        const struct side_sequence *sequence = &side->sequences[i];
        if (sequence->length < length || sequence->cached_length >= length)
            continue;
        if (sequence->known_length < length)
            return SIZE_MAX;
        uint64_t own = roll(sequence, &rolling[i], length);
        if (source != SIZE_MAX && own != hash)
            return SIZE_MAX;
        source = source == SIZE_MAX ? i : source;
        hash = own;
    }
    return source;
}

static void fill(struct side *side, struct side_sequence *sequence, size_t source)
{
    for (size_t i = 0; i < sequence->cached_length; i++)
        sequence->tokens[i].id = side->sequences[source].tokens[i].id;
    sequence->prefix_source = (uint32_t)source;
    while (sequence->known_length < sequence->length && sequence->tokens[sequence->known_length].id >= 0)
        sequence->known_length++;
}

/* The sequence of the same request before this one, where it tells the prefix and has the tokens behind it. */
static size_t find_earlier(const struct side *side, const struct side_sequence *sequence)
{
    if (sequence->earlier == SIDE_NOWHERE || sequence->linked_by_slot)
        return SIZE_MAX;
    const struct side_sequence *earlier = &side->sequences[sequence->earlier];
    size_t end = earlier->known_length < sequence->length ? earlier->known_length : sequence->length;
    for (size_t i = sequence->cached_length; i < end; i++)
        if (earlier->tokens[i].id != sequence->tokens[i].id)
            return SIZE_MAX;
    return end > sequence->cached_length ? sequence->earlier : SIZE_MAX;
}

void side_prefix_fill(struct side *side)
{
    size_t *lengths = memory_new((side->sequence_count + 1) * sizeof *lengths), count = 0;
    struct rolling *rolling = memory_new((side->sequence_count + 1) * sizeof *rolling);
    for (size_t i = 0; i < side->sequence_count; i++)
        if (side->sequences[i].cached_length > 0)
            lengths[count++] = side->sequences[i].cached_length;
    qsort(lengths, count, sizeof *lengths, by_size);
    for (size_t k = 0; k < count; k++) {
        if (k > 0 && lengths[k] == lengths[k - 1])
            continue;
        size_t source = find_source(side, rolling, lengths[k]);
        for (size_t i = 0; i < side->sequence_count && source != SIZE_MAX; i++)
            if (side->sequences[i].cached_length == lengths[k])
                fill(side, &side->sequences[i], source);
    }
    for (size_t i = 0; i < side->sequence_count; i++) {
        struct side_sequence *sequence = &side->sequences[i];
        bool is_unknown = sequence->cached_length > 0 && sequence->prefix_source == SIDE_NOWHERE;
        size_t source = is_unknown ? find_earlier(side, sequence) : SIZE_MAX;
        if (source != SIZE_MAX)
            fill(side, sequence, source);
    }
    free(lengths);
    free(rolling);
}
