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
    policy->act_bytes =
        number_add(limits->floor_bytes, number_scale(limits->worst_rate_bytes_per_s, reaction_ns, second_ns));
}

/* Bytes per second by which free space shrank from `a` to `b`; 0 when it grew or no time has passed. */
static uint64_t shrink_rate(const struct space_reading *a, const struct space_reading *b)
{
    if (b->at_ns <= a->at_ns || b->free_bytes >= a->free_bytes)
        return 0;
    return number_scale(a->free_bytes - b->free_bytes, second_ns, b->at_ns - a->at_ns);
}

static void note_peak(struct space_policy *policy, const struct space_reading *reading)
{
    if (reading->at_ns - policy->peak_since_ns >= peak_period_ns) {
        policy->peak_rate[1] = policy->peak_rate[0];
        policy->peak_rate[0] = 0;
        policy->peak_since_ns = reading->at_ns;
    }
    uint64_t rate = policy->last.at_ns != 0 ? shrink_rate(&policy->last, reading) : 0;
    if (rate > policy->peak_rate[0])
        policy->peak_rate[0] = rate;
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

static uint64_t next_interval(const struct space_policy *policy, uint64_t free_bytes)
{
    uint64_t peak = policy->peak_rate[0] > policy->peak_rate[1] ? policy->peak_rate[0] : policy->peak_rate[1];
    uint64_t rate = number_multiply(peak, 2);
    if (rate < policy->limits.worst_rate_bytes_per_s)
        rate = policy->limits.worst_rate_bytes_per_s;
    uint64_t interval = number_scale(number_subtract(free_bytes, policy->act_bytes), second_ns, rate);
    if (interval < policy->limits.min_interval_ns)
        return policy->limits.min_interval_ns;
    return interval > policy->limits.max_interval_ns ? policy->limits.max_interval_ns : interval;
}

void space_policy_look(struct space_policy *policy, const struct space_reading *reading,
                       struct space_decision *ret_decision)
{
    *ret_decision = (struct space_decision){
        .level = SPACE_UNMEASURABLE, .interval_ns = policy->limits.max_interval_ns, .ms_to_floor = UINT64_MAX};
    if (!reading->measurable) {
        /* What would be left if the worst writer had been at it since the last reading that told anything. */
        if (policy->last.at_ns != 0) {
            uint64_t written = number_scale(policy->limits.worst_rate_bytes_per_s,
                                            number_subtract(reading->at_ns, policy->last.at_ns), second_ns);
            ret_decision->interval_ns = next_interval(policy, number_subtract(policy->last.free_bytes, written));
        }
        return;
    }
    note_peak(policy, reading);
    policy->last = *reading;
    ret_decision->level = reading->free_bytes <= policy->act_bytes ? SPACE_FLOOR : SPACE_FINE;
    ret_decision->interval_ns = next_interval(policy, reading->free_bytes);
    if (policy->window_count > 0)
        ret_decision->rate_bytes_per_s = shrink_rate(window_oldest(policy), reading);
    if (ret_decision->rate_bytes_per_s > 0)
        ret_decision->ms_to_floor = number_scale(number_subtract(reading->free_bytes, policy->limits.floor_bytes), 1000,
                                                 ret_decision->rate_bytes_per_s);
    note_window(policy, reading);
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

uint64_t space_start_level(uint64_t floor_bytes)
{
    return number_add(floor_bytes, floor_bytes / 4);
}

uint64_t space_units_left(uint64_t free_bytes, uint64_t act_bytes, uint64_t unit_bytes)
{
    return unit_bytes == 0 ? UINT64_MAX : number_subtract(free_bytes, act_bytes) / unit_bytes;
}
