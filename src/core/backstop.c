#include "core/backstop.h"
#include "base/number.h"

#include <string.h>

static const uint64_t second_ns = 1000000000, ms_ns = 1000000;
static const uint64_t sample_step_ns = 250000000;
static const uint64_t least_interval_ns = 50000000, most_interval_ns = 1000000000;
static const uint64_t least_creep_bytes = 16u << 20;

void backstop_init(struct backstop *backstop)
{
    memset(backstop, 0, sizeof *backstop);
}

/* ---- what runs write ---- */

static struct backstop_slot *find(struct backstop *backstop, uint64_t id)
{
    for (size_t i = 0; i < backstop->count; i++)
        if (backstop->slot[i].id == id)
            return &backstop->slot[i];
    return NULL;
}

static void forget_gone(struct backstop *backstop, const struct backstop_run *runs, size_t run_count)
{
    size_t kept = 0;
    for (size_t i = 0; i < backstop->count; i++) {
        bool there = false;
        for (size_t k = 0; k < run_count && !there; k++)
            there = runs[k].id == backstop->slot[i].id;
        if (there && kept != i)
            backstop->slot[kept] = backstop->slot[i];
        kept += there;
    }
    backstop->count = kept;
}

static void note_written(struct backstop_slot *slot, const struct backstop_run *run, uint64_t now_ns)
{
    if (!run->counted)
        return;
    if (slot->counted_ns != 0) {
        slot->grown_bytes = number_subtract(run->written_bytes, slot->last_bytes);
        slot->grown_ns = number_subtract(now_ns, slot->counted_ns);
        slot->total_bytes = number_add(slot->total_bytes, slot->grown_bytes);
    }
    slot->counted_ns = now_ns;
    slot->last_bytes = run->written_bytes;
    unsigned newest = (slot->next + BACKSTOP_SAMPLES - 1) % BACKSTOP_SAMPLES;
    if (slot->count > 0 && now_ns - slot->sample[newest].at_ns < sample_step_ns)
        return;
    slot->sample[slot->next].at_ns = now_ns;
    slot->sample[slot->next].bytes = slot->total_bytes;
    slot->next = (slot->next + 1) % BACKSTOP_SAMPLES;
    if (slot->count < BACKSTOP_SAMPLES)
        slot->count++;
}

static void recent(const struct backstop_slot *slot, uint64_t *ret_bytes, uint64_t *ret_ns)
{
    *ret_bytes = *ret_ns = 0;
    for (unsigned i = 0; i < slot->count; i++) {
        uint64_t age_ns = number_subtract(slot->counted_ns, slot->sample[i].at_ns);
        if (age_ns <= BACKSTOP_WINDOW_NS && age_ns >= *ret_ns) {
            *ret_ns = age_ns;
            *ret_bytes = number_subtract(slot->total_bytes, slot->sample[i].bytes);
        }
    }
}

static bool writes(const struct backstop_slot *slot)
{
    return slot->grown_ns > 0 &&
           slot->grown_bytes >= number_scale(BACKSTOP_WRITING_BYTES_PER_S, slot->grown_ns, second_ns) &&
           slot->grown_bytes > 0;
}

/* ---- who goes ---- */

static const struct backstop_slot *largest(const struct backstop *backstop, bool writing)
{
    const struct backstop_slot *found = NULL;
    uint64_t most = 0, ns;
    for (size_t i = 0; i < backstop->count; i++) {
        const struct backstop_slot *slot = &backstop->slot[i];
        uint64_t bytes;
        if (slot->ended_ns != 0 || (writing && !writes(slot)))
            continue;
        recent(slot, &bytes, &ns);
        bool more = found == NULL || bytes > most || (bytes == most && slot->total_bytes > found->total_bytes);
        if (more) {
            found = slot;
            most = bytes;
        }
    }
    return found;
}

/* One that was ended is still going: what it frees, and that it writes no more, is not seen yet. */
static bool one_is_going(const struct backstop *backstop, uint64_t now_ns)
{
    for (size_t i = 0; i < backstop->count; i++) {
        uint64_t ended_ns = backstop->slot[i].ended_ns;
        if (ended_ns != 0 && now_ns - ended_ns < BACKSTOP_PATIENCE_NS)
            return true;
    }
    return false;
}

/* Long enough to tell a burst from a habit. */
static bool is_clear(const struct backstop *backstop)
{
    for (size_t i = 0; i < backstop->count; i++) {
        uint64_t bytes, ns;
        recent(&backstop->slot[i], &bytes, &ns);
        if (ns >= BACKSTOP_CLEAR_NS)
            return true;
    }
    return false;
}

static const struct backstop_slot *by_admin(struct backstop *backstop, const struct backstop_reading *reading)
{
    uint64_t floor = reading->floor_bytes, free_bytes = reading->free_bytes;
    if (free_bytes >= floor) {
        backstop->below_since_ns = 0;
        return NULL;
    }
    if (backstop->below_since_ns == 0) {
        backstop->below_since_ns = reading->at_ns;
        backstop->base_bytes = free_bytes;
    }
    if (reading->at_ns - backstop->below_since_ns < BACKSTOP_CONFIRM_NS || one_is_going(backstop, reading->at_ns) ||
        (!is_clear(backstop) && free_bytes >= floor - floor / 8))
        return NULL;
    const struct backstop_slot *slot = largest(backstop, true);
    uint64_t creep = floor / 16 > least_creep_bytes ? floor / 16 : least_creep_bytes;
    if (slot == NULL && number_subtract(backstop->base_bytes, free_bytes) > creep)
        slot = largest(backstop, false);
    return slot;
}

static const struct backstop_slot *by_own(struct backstop *backstop, const struct backstop_reading *reading,
                                          const struct backstop_run *runs, size_t run_count)
{
    const struct backstop_slot *found = NULL;
    for (size_t i = 0; i < run_count; i++) {
        struct backstop_slot *slot = find(backstop, runs[i].id);
        if (slot == NULL)
            continue;
        if (runs[i].floor_bytes == 0 || reading->free_bytes >= runs[i].floor_bytes) {
            slot->below_since_ns = 0;
            continue;
        }
        if (slot->below_since_ns == 0)
            slot->below_since_ns = reading->at_ns;
        uint64_t patience_ns = writes(slot) ? BACKSTOP_CONFIRM_NS : BACKSTOP_PATIENCE_NS;
        if (slot->ended_ns == 0 && reading->at_ns - slot->below_since_ns >= patience_ns && found == NULL)
            found = slot;
    }
    return found;
}

/* ---- a look ---- */

static uint64_t highest_floor(const struct backstop_reading *reading, const struct backstop_run *runs, size_t run_count)
{
    uint64_t highest = reading->floor_bytes;
    for (size_t i = 0; i < run_count; i++)
        if (runs[i].floor_bytes > highest)
            highest = runs[i].floor_bytes;
    return highest;
}

static uint64_t next_interval(const struct backstop_reading *reading, uint64_t floor)
{
    uint64_t left = number_subtract(reading->free_bytes, floor);
    uint64_t interval = number_scale(left, second_ns, reading->worst_rate_bytes_per_s);
    if (interval < least_interval_ns)
        return least_interval_ns;
    return interval > most_interval_ns ? most_interval_ns : interval;
}

static void order(struct backstop *backstop, const struct backstop_slot *chosen, const struct backstop_reading *reading,
                  struct backstop_decision *decision)
{
    uint64_t ns;
    decision->id = chosen->id;
    recent(chosen, &decision->recent_bytes, &ns);
    decision->recent_ms = ns / ms_ns;
    find(backstop, chosen->id)->ended_ns = reading->at_ns;
    backstop->base_bytes = reading->free_bytes;
}

void backstop_look(struct backstop *backstop, const struct backstop_reading *reading, const struct backstop_run *runs,
                   size_t run_count, struct backstop_decision *ret_decision)
{
    *ret_decision = (struct backstop_decision){.interval_ns = most_interval_ns};
    forget_gone(backstop, runs, run_count);
    for (size_t i = 0; i < run_count; i++) {
        struct backstop_slot *slot = find(backstop, runs[i].id);
        if (slot == NULL && backstop->count < BACKSTOP_RUNS_MAX) {
            slot = &backstop->slot[backstop->count++];
            *slot = (struct backstop_slot){.id = runs[i].id};
        }
        if (slot != NULL)
            note_written(slot, &runs[i], reading->at_ns);
    }
    if (!reading->measurable)
        return;
    uint64_t highest = highest_floor(reading, runs, run_count);
    ret_decision->count_next = reading->free_bytes < number_multiply(highest, 2);
    ret_decision->interval_ns = next_interval(reading, highest);
    const struct backstop_slot *own = by_own(backstop, reading, runs, run_count);
    const struct backstop_slot *chosen = by_admin(backstop, reading);
    ret_decision->floor_bytes = reading->floor_bytes;
    if (chosen == NULL && own != NULL) {
        chosen = own;
        ret_decision->own = true;
        for (size_t i = 0; i < run_count; i++)
            if (runs[i].id == own->id)
                ret_decision->floor_bytes = runs[i].floor_bytes;
    }
    if (chosen != NULL)
        order(backstop, chosen, reading, ret_decision);
}
