/* What a plan lets happen: requests of users, what somebody else does to the dumper and the disk, faults. */
#include "sim.h"
#include "base/text.h"

static void request(struct sim_world *w, struct run_event event)
{
    if (w->request_number + 1 >= SIM_REQUESTS || w->run.state == RUN_ENDED)
        return;
    event.number = ++w->request_number;
    w->watch.request[event.number].open = true;
    w->watch.request[event.number].dump = event.kind == RUN_EVENT_DUMP;
    w->watch.request[event.number].for_ms = event.for_ms;
    w->watch.request[event.number].passes = event.passes;
    event.wait_idle_ms = 3000;
    event.text = "exp";
    sim_world_feed(w, &event);
}

static void tell(struct sim_world *w, struct run_event event)
{
    if (w->run.state != RUN_ENDED)
        sim_world_feed(w, &event);
}

/* The world stands still; others write on, and free space is read before anything else. A question under way may fail.
 */
static void suspend(struct sim_world *w, uint64_t ms)
{
    if (w->run.state == RUN_ENDED)
        return;
    tell(w, (struct run_event){.kind = RUN_EVENT_SUSPEND});
    bool suspended = false;
    for (unsigned i = 0; i < w->effects.count; i++)
        suspended = suspended || w->effects.effect[i].kind == RUN_DO_SUSPEND;
    if (!suspended)
        return;
    uint64_t gone = w->plan->foreign_rate * ms / 1000;
    w->suspended_ns += ms * SIM_MS;
    w->free_bytes = gone < w->free_bytes ? w->free_bytes - gone : 0;
    w->excused = w->excused || w->free_bytes <= w->policy.act_bytes; /* others have done that */
    sim_server_look(w);
    tell(w, (struct run_event){.kind = RUN_EVENT_RESUMED, .number = ms * SIM_MS});
    for (unsigned i = 0; i < w->pending_count; i++)
        if (w->pending[i].kind == SIM_ANSWER && sim_world_noise(w, 2) == 0)
            w->pending[i].asked_ns = 0; /* its time limit is over */
}

static void other_on(struct sim_world *w, const char *experiment)
{
    if (!w->alive || w->now_ns < w->open_ns)
        return;
    w->enabled = true;
    text_copy(w->experiment, sizeof w->experiment, experiment);
}

static void last_until(const struct sim_world *w, uint64_t *until_ns, uint64_t ms)
{
    if (w->now_ns + ms * SIM_MS > *until_ns)
        *until_ns = w->now_ns + ms * SIM_MS;
}

static bool happen_to_run(struct sim_world *w, const struct sim_happening *h)
{
    switch (h->kind) {
    case SIM_DUMP:
    case SIM_DUMP_HELD:
    case SIM_DUMP_FOR:
    case SIM_DUMP_PASSES:
    case SIM_DUMP_FORCED:
        request(w, (struct run_event){.kind = RUN_EVENT_DUMP,
                                      .hold = h->kind == SIM_DUMP_HELD,
                                      .force = h->kind != SIM_DUMP,
                                      .for_ms = h->kind == SIM_DUMP_FOR ? h->number : 0,
                                      .passes = h->kind == SIM_DUMP_PASSES ? h->number : 0});
        return true;
    case SIM_PAUSE:
        request(w, (struct run_event){.kind = RUN_EVENT_PAUSE});
        return true;
    case SIM_HOLDER_GONE:
        tell(w, (struct run_event){.kind = RUN_EVENT_HOLDER_GONE});
        return true;
    case SIM_STOP:
    case SIM_STOP_NOW:
        tell(w, (struct run_event){.kind = RUN_EVENT_STOP, .now = h->kind == SIM_STOP_NOW, .text = "somebody"});
        return true;
    case SIM_INTERRUPT:
        tell(w, (struct run_event){.kind = RUN_EVENT_INTERRUPT});
        return true;
    case SIM_SUSPEND:
        suspend(w, h->number);
        return true;
    case SIM_EXIT:
        sim_world_die(w, 0);
        return true;
    case SIM_KEEPER_LOST:
        tell(w, (struct run_event){.kind = RUN_EVENT_KEEPER_LOST});
        return true;
    default:
        return false;
    }
}

static bool happen_to_dumper(struct sim_world *w, const struct sim_happening *h)
{
    switch (h->kind) {
    case SIM_OTHER_ON:
        other_on(w, "theirs");
        return true;
    case SIM_OTHER_UNSAFE:
        other_on(w, "../x");
        return true;
    case SIM_OTHER_OFF:
        w->enabled = false;
        return true;
    case SIM_OTHER_NAME:
        text_copy(w->experiment, sizeof w->experiment, "renamed");
        return true;
    case SIM_OTHER_SETTING:
        w->wrong = true;
        return true;
    case SIM_SETTING_BACK:
        w->wrong = false;
        return true;
    case SIM_RESET:
        if (w->alive && w->now_ns >= w->open_ns) {
            w->hooks = false;
            w->step = w->dump_index = 0;
        }
        return true;
    default:
        return false;
    }
}

void sim_happen(struct sim_world *w, const struct sim_happening *h)
{
    if (happen_to_run(w, h) || happen_to_dumper(w, h))
        return;
    switch (h->kind) {
    case SIM_TRAFFIC:
        last_until(w, &w->traffic_until_ns, h->number);
        break;
    case SIM_RANK_LOST:
        if (w->run.was_armed) /* before, the proof is of the ranks that are there */
            last_until(w, &w->rank_until_ns, h->number);
        break;
    case SIM_HANG:
        last_until(w, &w->hang_until_ns, h->number);
        break;
    case SIM_STUCK:
        last_until(w, &w->stuck_until_ns, h->number);
        break;
    case SIM_LONG_PASS:
        last_until(w, &w->long_until_ns, h->number);
        break;
    case SIM_CLOSED:
        last_until(w, &w->closed_until_ns, h->number);
        break;
    case SIM_FAULT:
        last_until(w, &w->fault_until_ns, h->number);
        break;
    case SIM_BLIND:
        last_until(w, &w->blind_until_ns, h->number);
        break;
    case SIM_FILL:
        last_until(w, &w->fill_until_ns, h->number * 500);
        break;
    case SIM_FREE:
        w->free_bytes += h->number * SIM_GIB;
        break;
    case SIM_GROW_ON:
        w->grows_on = w->alive && w->now_ns >= w->open_ns;
        break;
    default:
        break;
    }
}
