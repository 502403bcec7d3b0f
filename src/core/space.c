#include "core/space.h"
#include "base/number.h"

#include <string.h>

static const uint64_t second_ns = 1000000000;
static const uint64_t window_step_ns = 500000000;
static const uint64_t peak_period_ns = 30 * 1000000000ull;

void space_policy_init(struct space_policy *policy, const struct space_limits *limits)
{
    *policy = (struct space_policy){.limits = *limits};
    uint64_t reaction_ns = number_add(limits->min_interval_ns, limits->kill_time_ns);
    policy->margin_bytes = number_scale(limits->worst_rate_bytes_per_s, reaction_ns, second_ns);
    policy->act_bytes = number_add(limits->floor_bytes, policy->margin_bytes);
    if (limits->floor_inodes == 0)
        return;
    policy->margin_inodes = number_scale(SPACE_WORST_FILES_PER_S, reaction_ns, second_ns);
    policy->act_inodes = number_add(limits->floor_inodes, policy->margin_inodes);
}

/* Inodes that are not counted, or not looked at, are no reason against it. */
static bool is_room_for(const struct space_policy *policy, uint64_t act_bytes, uint64_t act_inodes)
{
    const struct space_reading *last = &policy->last;
    return last->at_ns != 0 && last->free_bytes > act_bytes &&
           (policy->act_inodes == 0 || !last->inodes_counted || last->free_inodes > act_inodes);
}

void space_policy_stage(struct space_policy *policy, bool early)
{
    uint64_t times = early ? 2 : 1;
    uint64_t act_bytes = number_add(policy->limits.floor_bytes, number_multiply(policy->margin_bytes, times));
    uint64_t act_inodes = number_add(policy->limits.floor_inodes, number_multiply(policy->margin_inodes, times));
    if (early == policy->early || (early && !is_room_for(policy, act_bytes, act_inodes)))
        return;
    policy->early = early;
    policy->act_bytes = act_bytes;
    if (policy->act_inodes > 0)
        policy->act_inodes = act_inodes;
}

bool space_writes_most(uint64_t written_bytes, uint64_t gone_bytes)
{
    static const uint64_t least_bytes = 16u << 20;
    return gone_bytes < least_bytes || written_bytes >= gone_bytes / 2;
}

const char *space_level_name(enum space_level level)
{
    static const char *const names[] = {[SPACE_FINE] = "fine",
                                        [SPACE_WARN] = "warn",
                                        [SPACE_SOFT] = "soft",
                                        [SPACE_FLOOR] = "floor",
                                        [SPACE_UNMEASURABLE] = "blind"};
    return names[level];
}

uint64_t space_free(const struct space_reading *reading)
{
    return number_subtract(reading->free_bytes, reading->pending_bytes);
}

/* How much of something that was `from` and is `to` went per second; 0 when it grew or no time has passed. */
static uint64_t shrink_rate(uint64_t from, uint64_t to, uint64_t from_ns, uint64_t to_ns)
{
    if (to_ns <= from_ns || to >= from)
        return 0;
    return number_scale(from - to, second_ns, to_ns - from_ns);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void note_peak(struct space_policy *policy, const struct space_reading *reading)
{
    const struct space_reading *last = &policy->last;
    if (reading->at_ns - policy->peak_since_ns >= peak_period_ns) {
        policy->peak_rate[1] = policy->peak_rate[0];
        policy->peak_rate[0] = 0;
        policy->peak_files_rate[1] = policy->peak_files_rate[0];
        policy->peak_files_rate[0] = 0;
        policy->peak_since_ns = reading->at_ns;
    }
    if (last->at_ns == 0)
        return;
    uint64_t rate = shrink_rate(last->free_bytes, reading->free_bytes, last->at_ns, reading->at_ns);
    policy->peak_rate[0] = larger(policy->peak_rate[0], rate);
    rate = shrink_rate(last->free_inodes, reading->free_inodes, last->at_ns, reading->at_ns);
    if (last->inodes_counted && reading->inodes_counted)
        policy->peak_files_rate[0] = larger(policy->peak_files_rate[0], rate);
}

static const struct space_reading *window_newest(const struct space_policy *policy)
{
    return &policy->window[(policy->window_next + SPACE_WINDOW - 1) % SPACE_WINDOW];
}

static const struct space_reading *window_oldest(const struct space_policy *policy)
{
    return &policy->window[(policy->window_next + SPACE_WINDOW - policy->window_count) % SPACE_WINDOW];
}

static void note_window(struct space_policy *policy, const struct space_reading *reading)
{
    if (policy->window_count > 0 && reading->at_ns - window_newest(policy)->at_ns < window_step_ns)
        return;
    policy->window[policy->window_next] = *reading;
    policy->window_next = (policy->window_next + 1) % SPACE_WINDOW;
    if (policy->window_count < SPACE_WINDOW)
        policy->window_count++;
}

static bool looks_at_inodes(const struct space_policy *policy, const struct space_reading *reading)
{
    return reading->inodes_counted && policy->limits.floor_inodes > 0;
}

/* Until so much as lies between `left` and `act` can be gone. */
static uint64_t time_to(uint64_t left, uint64_t act, uint64_t worst_rate, const uint64_t peak_rate[2])
{
    uint64_t rate = larger(worst_rate, number_multiply(larger(peak_rate[0], peak_rate[1]), 2));
    return number_scale(number_subtract(left, act), second_ns, rate);
}

/* When `reading` was all that is known, and no time has passed since. */
static uint64_t next_interval(const struct space_policy *policy, const struct space_reading *reading)
{
    const struct space_limits *limits = &policy->limits;
    uint64_t interval =
        time_to(reading->free_bytes, policy->act_bytes, limits->worst_rate_bytes_per_s, policy->peak_rate);
    if (looks_at_inodes(policy, reading))
        interval = smaller(interval, time_to(reading->free_inodes, policy->act_inodes, SPACE_WORST_FILES_PER_S,
                                             policy->peak_files_rate));
    return smaller(larger(interval, limits->min_interval_ns), limits->max_interval_ns);
}

/* What would be left if the worst writers had been at it since the last reading that told anything. */
static uint64_t blind_interval(const struct space_policy *policy, uint64_t now_ns)
{
    struct space_reading guess = policy->last;
    uint64_t passed_ns = number_subtract(now_ns, guess.at_ns);
    guess.free_bytes =
        number_subtract(guess.free_bytes, number_scale(policy->limits.worst_rate_bytes_per_s, passed_ns, second_ns));
    guess.free_inodes = number_subtract(guess.free_inodes, number_scale(SPACE_WORST_FILES_PER_S, passed_ns, second_ns));
    return next_interval(policy, &guess);
}

/* At or below `level`; once there, until a 32nd of it above it. A level of 0 is none. */
static bool is_below(uint64_t free_bytes, uint64_t level, bool was_below)
{
    return level > 0 && free_bytes <= (was_below ? number_add(level, level / 32) : level);
}

static enum space_level level_of(struct space_policy *policy, const struct space_reading *reading, bool *ret_by_inodes)
{
    const struct space_limits *limits = &policy->limits;
    policy->warned = is_below(reading->free_bytes, limits->warn_bytes, policy->warned);
    bool softened = is_below(reading->free_bytes, limits->soft_bytes, policy->softened);
    if (softened && !policy->softened)
        policy->soft_since_ns = reading->at_ns;
    policy->softened = softened;
    bool bytes_gone = reading->free_bytes <= policy->act_bytes;
    bool inodes_gone = looks_at_inodes(policy, reading) && reading->free_inodes <= policy->act_inodes;
    *ret_by_inodes = inodes_gone && !bytes_gone;
    if (bytes_gone || inodes_gone)
        return SPACE_FLOOR;
    if (reading->read_only || (softened && reading->at_ns - policy->soft_since_ns >= limits->soft_hold_ns))
        return SPACE_SOFT;
    return policy->warned || softened ? SPACE_WARN : SPACE_FINE;
}

void space_policy_look(struct space_policy *policy, const struct space_reading *reading,
                       struct space_decision *ret_decision)
{
    *ret_decision = (struct space_decision){
        .level = SPACE_UNMEASURABLE, .interval_ns = policy->limits.max_interval_ns, .ms_to_floor = UINT64_MAX};
    if (!reading->measurable) {
        if (policy->last.at_ns != 0)
            ret_decision->interval_ns = blind_interval(policy, reading->at_ns);
        return;
    }
    struct space_reading now = *reading;
    now.free_bytes = space_free(reading);
    now.pending_bytes = 0;
    note_peak(policy, &now);
    policy->last = now;
    ret_decision->level = level_of(policy, &now, &ret_decision->by_inodes);
    ret_decision->interval_ns = next_interval(policy, &now);
    if (policy->window_count > 0) {
        const struct space_reading *oldest = window_oldest(policy);
        ret_decision->rate_bytes_per_s = shrink_rate(oldest->free_bytes, now.free_bytes, oldest->at_ns, now.at_ns);
    }
    if (ret_decision->rate_bytes_per_s > 0)
        ret_decision->ms_to_floor = number_scale(number_subtract(now.free_bytes, policy->limits.floor_bytes), 1000,
                                                 ret_decision->rate_bytes_per_s);
    note_window(policy, &now);
}

uint64_t space_default_floor(uint64_t total_bytes)
{
    static const uint64_t gib = 1ull << 30;
    uint64_t floor = total_bytes / 20;
    if (floor < 20 * gib)
        floor = 20 * gib;
    if (floor > 200 * gib)
        floor = 200 * gib;
    return floor > total_bytes / 10 ? total_bytes / 10 : floor;
}

uint64_t space_floor_inodes(const struct size *floor, uint64_t total_inodes)
{
    if (floor->percent && floor->value > 0)
        return smaller(size_bytes(floor, total_inodes), total_inodes);
    return smaller(larger(total_inodes / 100, 1000), total_inodes / 10);
}

uint64_t space_default_soft(uint64_t floor_bytes, uint64_t free_bytes)
{
    uint64_t halfway = number_add(floor_bytes, number_subtract(free_bytes, floor_bytes) / 2);
    return smaller(number_multiply(floor_bytes, 2), halfway);
}

uint64_t space_least_soft(const struct space_limits *limits, uint64_t free_bytes)
{
    struct space_policy policy;
    space_policy_init(&policy, limits);
    uint64_t early = number_add(policy.act_bytes, policy.margin_bytes);
    uint64_t highest = early < free_bytes ? early : policy.act_bytes;
    return number_add(highest, smaller(policy.margin_bytes, number_subtract(free_bytes, highest) / 2));
}

uint64_t space_warn_level(uint64_t floor_bytes, uint64_t soft_bytes, uint64_t free_bytes)
{
    uint64_t above = number_subtract(soft_bytes, floor_bytes) / 2;
    return number_add(soft_bytes, smaller(above, number_subtract(free_bytes, soft_bytes) / 2));
}

uint64_t space_start_level(uint64_t floor_bytes)
{
    return number_add(floor_bytes, floor_bytes / 4);
}

uint64_t space_units_left(uint64_t free_bytes, uint64_t act_bytes, uint64_t unit_bytes)
{
    return unit_bytes == 0 ? UINT64_MAX : number_subtract(free_bytes, act_bytes) / unit_bytes;
}
