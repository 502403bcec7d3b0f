/* Follows each request over the passes of a side: which token it consumed at which position, and in which row. */
#include "analysis/side_work.h"
#include "base/hash.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests that were met ---- */

static uint64_t hash_key(const char *rid, int64_t slot, uint32_t rank)
{
    uint64_t value = hash_text(hash_number(hash_number(HASH_BEGIN, rank), (uint64_t)slot), rid != NULL ? rid : "");
    return value ^ value >> 29;
}

static bool is_key(const struct side_key *key, const char *rid, int64_t slot, uint32_t rank)
{
    if (key->rank != rank || (key->rid == NULL) != (rid == NULL))
        return false;
    return rid != NULL ? strcmp(key->rid, rid) == 0 : key->slot == slot;
}

static size_t slot_of(const struct side_work *work, const char *rid, int64_t slot, uint32_t rank)
{
    size_t at = (size_t)hash_key(rid, slot, rank) & (work->slot_count - 1);
    while (work->slots[at] != 0 && !is_key(&work->keys[work->slots[at] - 1], rid, slot, rank))
        at = (at + 1) & (work->slot_count - 1);
    return at;
}

static void grow(struct side_work *work)
{
    work->slot_count = work->slot_count == 0 ? 256 : 2 * work->slot_count;
    free(work->slots);
    work->slots = memory_new(work->slot_count * sizeof *work->slots);
    for (size_t i = 0; i < work->key_count; i++)
        work->slots[slot_of(work, work->keys[i].rid, work->keys[i].slot, work->keys[i].rank)] = (uint32_t)i + 1;
}

/* The request with this rid, or without one (NULL) in this slot; made where it is new (sequence SIDE_NOWHERE). */
static struct side_key *find_key(struct side_work *work, const char *rid, int64_t slot, uint32_t rank)
{
    if (2 * (work->key_count + 1) > work->slot_count)
        grow(work);
    size_t at = slot_of(work, rid, slot, rank);
    if (work->slots[at] == 0) {
        if (work->key_count == work->key_capacity) {
            work->key_capacity = work->key_capacity == 0 ? 64 : 2 * work->key_capacity;
            work->keys = memory_resize(work->keys, work->key_capacity, sizeof *work->keys);
        }
        work->keys[work->key_count++] = (struct side_key){
            .rid = rid != NULL ? memory_copy(rid) : NULL, .slot = slot, .rank = rank, .sequence = SIDE_NOWHERE};
        work->slots[at] = (uint32_t)work->key_count;
    }
    return &work->keys[work->slots[at] - 1];
}

/* ---- sequences ---- */

static void reserve(struct side_sequence *sequence, size_t length)
{
    if (length <= sequence->capacity)
        return;
    sequence->capacity = length > 2 * sequence->capacity ? length : 2 * sequence->capacity;
    sequence->tokens = memory_resize(sequence->tokens, sequence->capacity, sizeof *sequence->tokens);
}

static void append_unknown(struct side_sequence *sequence, size_t length)
{
    reserve(sequence, length);
    while (sequence->length < length)
        sequence->tokens[sequence->length++] = (struct side_token){.id = SIDE_UNKNOWN, .pass = SIDE_NOWHERE};
}

/* A new sequence of this request, whose earlier one (if any) has ended. */
static struct side_sequence *begin(struct side_work *work, struct side_key *key, uint64_t step)
{
    struct side *side = work->side;
    if (side->sequence_count == work->sequence_capacity) {
        work->sequence_capacity = work->sequence_capacity == 0 ? 64 : 2 * work->sequence_capacity;
        side->sequences = memory_resize(side->sequences, work->sequence_capacity, sizeof *side->sequences);
    }
    struct side_sequence *sequence = &side->sequences[side->sequence_count];
    struct side_sequence *earlier = key->sequence != SIDE_NOWHERE ? &side->sequences[key->sequence] : NULL;
    *sequence = (struct side_sequence){.rank = key->rank,
                                       .first_step = step,
                                       .incarnation = earlier != NULL ? earlier->incarnation + 1 : 0,
                                       .earlier = key->sequence,
                                       .linked_by_slot = key->rid == NULL,
                                       .reused = key->rid == NULL && (earlier != NULL || key->slot < 0),
                                       .prefix_source = SIDE_NOWHERE,
                                       .hole_pass = SIDE_NOWHERE,
                                       .broken_pass = SIDE_NOWHERE};
    if (earlier != NULL)
        earlier->reused = earlier->linked_by_slot;
    sequence->rid = key->rid != NULL ? memory_copy(key->rid)
                    : key->slot < 0  ? memory_format("entry %" PRId64, -1 - key->slot)
                                     : memory_format("slot %" PRId64, key->slot);
    key->sequence = (uint32_t)side->sequence_count++;
    return sequence;
}

/* Rows of drafts: what is certain is the first; of a tree, a depth with several rows does not say which one goes on. */
static void append_tree(struct side_sequence *sequence, const struct segment *segment, uint32_t pass,
                        const struct side_core *core)
{
    for (uint32_t i = 0; i < segment->rows; i++) {
        size_t position = (size_t)core->positions[segment->row + i];
        if (position < sequence->length) {
            sequence->tokens[position] = (struct side_token){.id = SIDE_UNKNOWN, .pass = SIDE_NOWHERE};
            continue;
        }
        append_unknown(sequence, position);
        reserve(sequence, position + 1);
        sequence->tokens[sequence->length++] = (struct side_token){core->ids[segment->row + i], pass, segment->row + i};
    }
}

static void append(struct side_sequence *sequence, const struct segment *segment, uint32_t pass,
                   const struct side_core *core)
{
    size_t start = (size_t)segment->position;
    bool first = sequence->length == sequence->cached_length, prompt = sequence->prompt_length == sequence->length;
    if (start > sequence->length) {
        sequence->hole_pass = sequence->hole_pass == SIDE_NOWHERE ? pass : sequence->hole_pass;
        if (sequence->hole_pass == pass) {
            sequence->hole_first = sequence->length;
            sequence->hole_last = start - 1;
        }
        append_unknown(sequence, start);
    }
    if (segment->tree) {
        append_tree(sequence, segment, pass, core);
    } else {
        reserve(sequence, start + segment->rows);
        for (uint32_t i = 0; i < segment->rows; i++)
            sequence->tokens[sequence->length++] =
                (struct side_token){core->ids[segment->row + i], pass, segment->row + i};
    }
    sequence->draft_first = segment->kind == SEGMENT_VERIFY ? start + 1 : 0;
    if (segment->kind == SEGMENT_VERIFY && first)
        sequence->prompt_length = start;
    else if (segment->kind != SEGMENT_VERIFY && prompt && (first || segment->kind != SEGMENT_DECODE))
        sequence->prompt_length = sequence->length;
}

static bool goes_on(struct side_sequence *sequence, const struct segment *segment)
{
    size_t start = (size_t)segment->position;
    if (sequence->draft_first > 0 && start >= sequence->draft_first && start < sequence->length)
        sequence->length = start; /* what was rejected */
    if (start < sequence->length)
        return false;
    return start == sequence->length || !sequence->linked_by_slot;
}

static struct side_key *key_of(struct side_work *work, uint32_t pass, size_t request, const struct side_core *core)
{
    uint32_t rank = work->side->passes[pass].rank;
    if (core->has_rids)
        return find_key(work, core->rids.items[request], 0, rank);
    return find_key(work, NULL, core->slots != NULL ? core->slots[request] : -1 - (int64_t)request, rank);
}

/* A pass that could not be cut: its requests, where it names them. */
static void mark_broken(struct side_work *work, uint32_t pass, const struct side_core *core)
{
    struct side *side = work->side;
    if (!core->has_rids && side->broken_pass == SIDE_NOWHERE)
        side->broken_pass = pass;
    for (size_t i = 0; core->has_rids && i < core->rids.count; i++) {
        struct side_key *key = key_of(work, pass, i, core);
        struct side_sequence *sequence =
            key->sequence == SIDE_NOWHERE ? begin(work, key, side->passes[pass].step) : &side->sequences[key->sequence];
        if (sequence->broken_pass == SIDE_NOWHERE)
            sequence->broken_pass = pass;
    }
}

void side_sequences_link(struct side_work *work, uint32_t number, const struct side_core *core)
{
    struct side *side = work->side;
    const struct side_pass *pass = &side->passes[number];
    if (pass->problem != NULL) {
        mark_broken(work, number, core);
        return;
    }
    for (size_t i = 0; i < pass->segment_count; i++) {
        const struct segment *segment = &pass->segments[i];
        if (segment->kind == SEGMENT_PADDING)
            continue;
        struct side_key *key = key_of(work, number, segment->request, core);
        struct side_sequence *sequence = key->sequence != SIDE_NOWHERE ? &side->sequences[key->sequence] : NULL;
        bool broken = sequence != NULL && sequence->broken_pass != SIDE_NOWHERE;
        bool anew = sequence == NULL || (!goes_on(sequence, segment) && !(broken && sequence->length == 0));
        work->token_count += (size_t)segment->position + segment->rows - (anew ? 0 : sequence->length);
        if (work->token_count > SIDE_TOKENS_MAX)
            return;
        if (anew) {
            sequence = begin(work, key, pass->step);
            sequence->cached_length = sequence->prompt_length = (size_t)segment->position;
            append_unknown(sequence, (size_t)segment->position);
        }
        append(sequence, segment, number, core);
    }
}

void side_sequences_finish(struct side *side)
{
    for (size_t i = 0; i < side->sequence_count; i++) {
        struct side_sequence *sequence = &side->sequences[i];
        if (sequence->draft_first > 0 && sequence->draft_first < sequence->length)
            sequence->length = sequence->draft_first;
        while (sequence->known_length < sequence->length && sequence->tokens[sequence->known_length].id >= 0)
            sequence->known_length++;
    }
}
