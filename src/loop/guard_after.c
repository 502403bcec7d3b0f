/* When nothing of the run lives any more: has it given back what it held? Happy path: the keeper says GONE -> the
 * driver's list of processes names none of ours, the port can be had again -> what lies in /dev/shm is told -> the
 * machine learns that the run is gone. On most ends that takes no time at all.
 *
 * No nvidia-smi, or it fails: GPU memory is not asked about. It hangs: ended after query_ms. The driver still lists a
 * process of ours (its memory goes some 100 ms after the process) or the port is still taken: asked again until
 * limit_ms, then told as a warning. The guard ends meanwhile: guard_after_fini. */
#include "loop/guard_private.h"
#include "base/memory.h"
#include "base/number.h"
#include "loop/clock.h"
#include "sys/listener.h"
#include "sys/shared_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MAX = 64 * 1024 };
static const uint64_t limit_ms = 10000, query_ms = 5000, again_ms = 100;

static void look(struct guard *guard);

/* ---- who was of the run ---- */

static bool is_known(const struct guard_after *after, int64_t pid)
{
    for (size_t i = 0; i < after->pid_count; i++)
        if (after->pids[i] == pid)
            return true;
    return false;
}

void guard_after_remember(struct guard *guard, const struct process_list *members)
{
    struct guard_after *after = &guard->after;
    for (size_t i = 0; i < members->count && after->pid_count < GUARD_PIDS_MAX; i++)
        if (!is_known(after, members->items[i].pid))
            after->pids[after->pid_count++] = members->items[i].pid;
}

void guard_after_launched(struct guard *guard)
{
    struct guard_after *after = &guard->after;
    after->pid_count = 0;
    after->done = after->begun = false;
    list_fini(&after->memory_before);
    shared_memory_find(guard->server->is_shared_memory, &after->memory_before);
}

/* ---- GPU memory ---- */

/* Lines "PID, MIB"; anything else, as the error texts of a broken driver, counts for nothing. */
static void read_gpu_line(struct guard_after *after, const char *line)
{
    char *end;
    long long pid = strtoll(line, &end, 10);
    if (end == line || *end != ',' || !is_known(after, pid))
        return;
    after->gpu_processes++;
    after->gpu_mib += strtoull(end + 1, NULL, 10); /* "[N/A]" is 0 */
}

static void queried(const struct child_result *result, void *user)
{
    struct guard *guard = user;
    struct guard_after *after = &guard->after;
    after->query = NULL;
    after->gpu_processes = 0;
    after->gpu_mib = 0;
    for (const char *line = result->exit_code == 0 ? result->output : ""; *line != '\0';) {
        read_gpu_line(after, line);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    look(guard);
}

static bool ask_driver(struct guard *guard)
{
    static char program[] = "nvidia-smi", what[] = "--query-compute-apps=pid,used_memory",
                format[] = "--format=csv,noheader,nounits";
    char *argv[] = {program, what, format, NULL};
    struct child_request request = {.argv = argv, .output_max_bytes = OUTPUT_MAX, .deadline_ms = query_ms};
    return child_start(&guard->loop, &request, queried, guard, &guard->after.query, NULL) == ERROR_NONE;
}

/* ---- the port ---- */

static bool port_is_taken(const struct guard *guard)
{
    const struct server_command *command = &guard->plan.command;
    bool known = !command->is_wrapper || command->port_given;
    return known && guard->url[0] != '\0' && !listener_port_is_free(command->port);
}

/* Who listens now that nothing of the run lives is not of it, and is not waited for. */
static bool find_holder(const struct guard *guard, struct listener *ret_holder)
{
    struct process_list nobody = {0};
    return listener_find(0, guard->plan.command.port, &nobody, ret_holder, NULL) == ERROR_NONE &&
           ret_holder->owner != LISTENER_NONE;
}

static void tell_port(struct guard *guard)
{
    struct listener holder;
    char line[160];
    unsigned port = guard->plan.command.port;
    if (find_holder(guard, &holder))
        snprintf(line, sizeof line, "port %u is held by pid %d (%.40s), which is not of this run", port,
                 (int)holder.pid, holder.comm);
    else
        snprintf(line, sizeof line, "port %u cannot be had again yet", port);
    guard_report_note(guard, RUN_WARN, RUN_NOTE_END, line);
}

/* ---- shared memory ---- */

static void tell_shared_memory(struct guard *guard)
{
    struct list names = {0}, left = {0};
    shared_memory_find(guard->server->is_shared_memory, &names);
    for (size_t i = 0; i < names.count; i++)
        if (!list_has(&guard->after.memory_before, names.items[i]))
            list_add(&left, names.items[i]);
    shared_memory_drop_used(&left);
    if (left.count > 0) {
        char line[400];
        int used = snprintf(line, sizeof line, "left in /dev/shm by what was killed, used by nobody:");
        for (size_t i = 0; i < left.count && used > 0 && (size_t)used < sizeof line - 80; i++)
            used += snprintf(line + used, sizeof line - (size_t)used, " %.70s", left.items[i]);
        guard_report_note(guard, RUN_INFO, RUN_NOTE_END, line);
    }
    list_fini(&names);
    list_fini(&left);
}

/* From the watcher's decision to kill at the floor to the keeper's word that nothing lives any more; 0: no such kill.
 */
static uint64_t kill_ns(struct guard *guard)
{
    struct watcher_snapshot snapshot;
    guard_space_get(guard, &snapshot);
    return snapshot.pulled ? number_subtract(guard->gone_ns, snapshot.decided_at_ns) : 0;
}

/* ---- all of it ---- */

static void finish(struct guard *guard)
{
    struct guard_after *after = &guard->after;
    char line[200];
    if (after->gpu_processes > 0) {
        snprintf(line, sizeof line, "the driver still lists %u dead processes of this run with %llu MiB of GPU memory",
                 after->gpu_processes, (unsigned long long)after->gpu_mib);
        guard_report_note(guard, RUN_WARN, RUN_NOTE_END, line);
    } else if (after->gpu_waited) {
        snprintf(line, sizeof line, "GPU memory was given back %llu ms after the last process had ended",
                 (unsigned long long)(clock_now_ms() - after->begun_ms));
        guard_report_note(guard, RUN_INFO, RUN_NOTE_END, line);
    }
    if (port_is_taken(guard))
        tell_port(guard);
    tell_shared_memory(guard);
    after->done = true;
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_GONE, .number = kill_ns(guard)});
}

static void again(uv_timer_t *timer)
{
    struct guard *guard = timer->data;
    if (guard->after.gpu_processes == 0 || !ask_driver(guard))
        look(guard);
}

static void look(struct guard *guard)
{
    struct guard_after *after = &guard->after;
    if (after->done)
        return;
    struct listener holder;
    bool waits = after->gpu_processes > 0 || (port_is_taken(guard) && !find_holder(guard, &holder));
    after->gpu_waited = after->gpu_waited || after->gpu_processes > 0;
    if (waits && clock_now_ms() - after->begun_ms < limit_ms)
        uv_timer_start(after->timer, again, again_ms, 0);
    else
        finish(guard);
}

void guard_after_begin(struct guard *guard)
{
    struct guard_after *after = &guard->after;
    if (after->begun)
        return;
    after->begun = true;
    after->begun_ms = clock_now_ms();
    after->gpu_processes = 0;
    after->gpu_waited = false;
    if (after->timer == NULL) {
        after->timer = memory_new(sizeof *after->timer);
        uv_timer_init(&guard->loop, after->timer);
        after->timer->data = guard;
    }
    if (after->pid_count == 0 || !ask_driver(guard))
        look(guard);
}

static void on_closed(uv_handle_t *timer)
{
    free(timer);
}

void guard_after_fini(struct guard *guard)
{
    struct guard_after *after = &guard->after;
    after->done = true;
    if (after->query != NULL)
        child_cancel(after->query);
    after->query = NULL;
    if (after->timer != NULL)
        uv_close((uv_handle_t *)after->timer, on_closed);
    after->timer = NULL;
    list_fini(&after->memory_before);
}
