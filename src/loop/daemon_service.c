/* What kldumpd tells the service manager; nothing happens where there is none.
 *
 * The status line: composed when something changes, at most ten times a second, and sent when it reads differently. At
 * rest no timer runs.
 *
 * The watchdog: fed by the loop, so only while it turns, and only while the backstop's threads progress. A daemon that
 * hangs is killed and started again; runs do not notice.
 *
 * A reload: systemd waits from `reloading` on until `ready`, which comes when the new rules hold, or the old ones still
 * do; then the status line says why, until a reload succeeds. */
#include "base/memory.h"
#include "base/size.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/admin.h"
#include "sys/systemd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TELL_MS = 100 };

/* The admin's name of the filesystem; that of a dump folder is its user's alone, and everybody reads the status line.
 */
static const char *name_of(const struct daemon *daemon, dev_t device)
{
    for (size_t i = 0; daemon->admin != NULL && i < daemon->admin->rules.filesystem_count; i++)
        if (daemon->admin->device[i] == device)
            return daemon->admin->rules.filesystem[i].path;
    return NULL;
}

static enum run_state state_of(const struct registry_entry *entry)
{
    const char *state = "";
    json_optional_string(entry->run, "state", "", &state, NULL);
    return run_state_from_name(state);
}

/* Of the runs that dump now, which say each second how much is free: as they say it. " (1 dumping); least free ..." */
static void describe_dumps(const struct daemon *daemon, char *text, size_t size)
{
    size_t dumping = 0;
    uint64_t least_bytes = UINT64_MAX, free_bytes;
    dev_t device = 0;
    const struct registry_entry *entry = daemon->registry != NULL ? registry_first(daemon->registry) : NULL;
    for (; entry != NULL; entry = entry->next) {
        if (state_of(entry) != RUN_DUMPING)
            continue;
        dumping++;
        if (json_get_u64(entry->run, "space.free_bytes", &free_bytes, NULL) == ERROR_NONE && free_bytes < least_bytes) {
            least_bytes = free_bytes;
            device = entry->device;
        }
    }
    text[0] = '\0';
    if (dumping == 0)
        return;
    int length = snprintf(text, size, " (%zu dumping)", dumping);
    if (least_bytes == UINT64_MAX)
        return;
    char amount[SIZE_TEXT];
    const char *name = name_of(daemon, device);
    snprintf(text + length, size - (size_t)length, "; least free %s%s%.100s", size_text(least_bytes, amount),
             name != NULL ? " on " : "", name != NULL ? name : "");
}

/* Also what only the register knows: runs of the wrapper. */
static size_t count_live(const struct daemon *daemon)
{
    struct list live = {0};
    daemon_runs_names(daemon, true, &live);
    size_t count = live.count;
    const struct registry_entry *entry = daemon->registry != NULL ? registry_first(daemon->registry) : NULL;
    for (; entry != NULL; entry = entry->next)
        count += state_of(entry) != RUN_ENDED && !daemon_runs_has(daemon, entry->name, entry->uid);
    list_fini(&live);
    return count;
}

void daemon_service_describe(const struct daemon *daemon, char *text, size_t size)
{
    char dumps[192];
    size_t count = count_live(daemon);
    describe_dumps(daemon, dumps, sizeof dumps);
    int length = snprintf(text, size, "%zu run%s live%s", count, count == 1 ? "" : "s", dumps);
    if (daemon->rules_problem != NULL)
        snprintf(text + length, size - (size_t)length, "; rules not reloaded: %s", daemon->rules_problem);
}

static void on_tell(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    char text[sizeof daemon->told];
    daemon_ended_look(daemon);
    daemon_service_describe(daemon, text, sizeof text);
    if (daemon->ending || strcmp(text, daemon->told) == 0)
        return;
    memcpy(daemon->told, text, sizeof text);
    systemd_notify_status(text);
}

void daemon_tell(struct daemon *daemon)
{
    if (!daemon->ending && daemon->timers_open && !uv_is_active((uv_handle_t *)&daemon->tell))
        uv_timer_start(&daemon->tell, on_tell, TELL_MS, 0);
}

static void tell_ready(struct daemon *daemon)
{
    daemon_service_describe(daemon, daemon->told, sizeof daemon->told);
    systemd_notify_ready(daemon->told);
}

void daemon_reloaded(struct daemon *daemon, const char *problem)
{
    free(daemon->rules_problem);
    daemon->rules_problem = problem != NULL ? memory_copy(problem) : NULL;
    if (!daemon->ending)
        tell_ready(daemon);
}

static void on_watchdog(uv_timer_t *timer)
{
    if (daemon_backstop_progresses(timer->data))
        systemd_notify_watchdog();
}

void daemon_service_begin(struct daemon *daemon)
{
    uint64_t watchdog_ms = systemd_watchdog_us() / 1000;
    uv_timer_init(&daemon->loop, &daemon->tell);
    uv_timer_init(&daemon->loop, &daemon->watchdog);
    daemon->tell.data = daemon->watchdog.data = daemon;
    daemon->timers_open = true;
    if (watchdog_ms > 0)
        uv_timer_start(&daemon->watchdog, on_watchdog, 0, watchdog_ms);
    tell_ready(daemon);
}

void daemon_service_end(struct daemon *daemon)
{
    systemd_notify_stopping("runs go on");
    if (daemon->timers_open) {
        uv_close((uv_handle_t *)&daemon->tell, NULL);
        uv_close((uv_handle_t *)&daemon->watchdog, NULL);
    }
    daemon->timers_open = false;
}
