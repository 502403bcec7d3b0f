/* Happy path: a guard calls in; the filesystem of its dump folder gets a thread (daemon_backstop_disk.h), or has one;
 * the last run there is gone: the thread ends. An order comes: that run is ended, one line says why with numbers, and
 * our own record of it says so.
 *
 * Who is ended how: a run that we started by launch_kill, another by SIGKILL to its guard, whose keeper kills the rest.
 * Both are known from the kernel and our own records, never from what a guard says. What it says of its own floor is
 * believed: it can only bring about its own end.
 *
 * It cannot be ended: told once, and tried again each second until it can, or is gone.
 * A filesystem does not answer: told once, and once more when it does; its thread is kept until then. It says nothing
 * (0 blocks): told once; nobody is ended for it. One user may bring DISKS_PER_USER filesystems, all together
 * DISKS_MAX: what is beyond is left to the guards, and told. */
#include "base/memory.h"
#include "base/size.h"
#include "json/json.h"
#include "loop/daemon_backstop_disk.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/admin.h"
#include "sys/launch.h"
#include "sys/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { DISKS_MAX = 128, DISKS_PER_USER = 16, LOOK_MS = 1000 };
static const uint64_t blind_ns = 3000000000;
static const uint64_t usual_worst_rate = 10ull << 30;

struct disk {
    struct disk *next;
    struct daemon *daemon;
    struct daemon_backstop_disk *watch;
    dev_t device;
    uid_t uid; /* who brought it */
    uint64_t total_bytes;
    bool blind_told, unmeasurable_told;
};

/* What `registry_entry.backstop` points to. */
struct member {
    uint64_t id;
    struct disk *disk; /* NULL: not watched */
    uint64_t floor_bytes;
    bool ended;   /* by us */
    bool unended; /* its end was ordered, and failed */
};

struct daemon_backstop {
    struct disk *disks;
    uint64_t last_id;
    uv_timer_t timer;
};

/* ---- the end of a run ---- */

static enum error_code kill_run(const struct daemon *daemon, const struct registry_entry *entry, struct error *err)
{
    const struct daemon_owned *owned = daemon_keep_find(daemon, entry->name);
    if (owned != NULL && owned->live && owned->uid == entry->uid && owned->launched->pid == entry->pid) {
        daemon_keep_note_end(daemon, entry->name, DAEMON_END_BACKSTOP);
        if (launch_kill(owned->launched, err) == ERROR_NONE)
            return ERROR_NONE;
    }
    int system = process_signal_open(entry->pidfd, SIGKILL);
    if (system == 0 || system == ESRCH)
        return ERROR_NONE;
    return error_set_errno(err, ERROR_SYSTEM, system, "its guard, pid %d", (int)entry->pid);
}

static void end_run(struct disk *disk, const struct registry_entry *entry, const struct daemon_backstop_state *state)
{
    struct error err = ERROR_INIT;
    char owner[128], free_text[SIZE_TEXT], floor[SIZE_TEXT], wrote[SIZE_TEXT];
    const struct backstop_decision *order = &state->order;
    const char *rule = NULL;
    enum error_code code = kill_run(disk->daemon, entry, &err);
    if (disk->daemon->admin != NULL)
        admin_floor_bytes(disk->daemon->admin, disk->device, disk->total_bytes, &rule);
    daemon_access_user(disk->daemon, entry->uid, owner, sizeof owner);
    fprintf(stderr,
            "kldumpd: ended run %s of %s: free %s is below the floor %s of %s; it wrote %s in the last %.1f s\n",
            entry->name, owner, size_text(state->free_bytes, free_text), size_text(order->floor_bytes, floor),
            order->own     ? "the run itself, and its guard did not act"
            : rule != NULL ? rule
                           : "the rules",
            size_text(order->recent_bytes, wrote), (double)order->recent_ms / 1000);
    struct member *member = entry->backstop;
    member->ended = code == ERROR_NONE;
    member->unended = !member->ended;
    if (member->unended)
        fprintf(stderr, "kldumpd: run %s could not be ended, which is tried again until it is gone: %s\n", entry->name,
                err.message);
}

static void end_again(const struct daemon *daemon)
{
    for (const struct registry_entry *entry = registry_first(daemon->registry); entry != NULL; entry = entry->next) {
        struct member *member = entry->backstop;
        if (member == NULL || !member->unended || kill_run(daemon, entry, NULL) != ERROR_NONE)
            continue;
        member->ended = true;
        member->unended = false;
        fprintf(stderr, "kldumpd: run %s is ended now\n", entry->name);
    }
}

/* ---- disks ---- */

/* Hands the thread what holds now. */
static void refresh(struct disk *disk)
{
    const struct daemon *daemon = disk->daemon;
    struct daemon_backstop_run *runs = memory_new(BACKSTOP_RUNS_MAX * sizeof *runs);
    size_t count = 0;
    uint64_t floor = 0, rate = 0;
    for (const struct registry_entry *entry = registry_first(daemon->registry); entry != NULL; entry = entry->next) {
        const struct member *member = entry->backstop;
        if (member != NULL && member->disk == disk && count < BACKSTOP_RUNS_MAX)
            runs[count++] = (struct daemon_backstop_run){member->id, entry->pid, member->floor_bytes};
    }
    if (daemon->admin != NULL) {
        floor = admin_floor_bytes(daemon->admin, disk->device, disk->total_bytes, NULL);
        rate = admin_worst_rate(daemon->admin, disk->device);
    }
    daemon_backstop_disk_set(disk->watch, floor, rate > 0 ? rate : usual_worst_rate, runs, count);
    free(runs);
}

static void describe(const struct disk *disk, char *text, size_t size)
{
    snprintf(text, size, "filesystem %u:%u (of a dump folder of uid %u)", major(disk->device), minor(disk->device),
             (unsigned)disk->uid);
}

static void tell_state(struct disk *disk, const struct daemon_backstop_state *state)
{
    char text[96];
    describe(disk, text, sizeof text);
    bool blind = state->blocked_ns > blind_ns;
    if (blind && !disk->blind_told)
        fprintf(stderr, "kldumpd: blind: %s does not answer for %.1f s; its runs are left to their guards\n", text,
                (double)state->blocked_ns / 1e9);
    else if (!blind && disk->blind_told)
        fprintf(stderr, "kldumpd: %s answers again\n", text);
    disk->blind_told = blind;
    bool unmeasurable = state->looks > 0 && !state->measurable;
    if (unmeasurable && !disk->unmeasurable_told)
        fprintf(stderr, "kldumpd: %s does not tell its free space; its runs are left to their guards\n", text);
    disk->unmeasurable_told = unmeasurable || (disk->unmeasurable_told && state->looks == 0);
}

static void look(struct disk *disk)
{
    struct daemon_backstop_state state;
    daemon_backstop_disk_get(disk->watch, &state);
    tell_state(disk, &state);
    if (state.measurable && state.total_bytes != disk->total_bytes) {
        disk->total_bytes = state.total_bytes;
        refresh(disk);
    }
    for (const struct registry_entry *entry = registry_first(disk->daemon->registry);
         entry != NULL && state.order.id != 0; entry = entry->next) {
        const struct member *member = entry->backstop;
        if (member != NULL && member->id == state.order.id) {
            end_run(disk, entry, &state);
            return;
        }
    }
}

static void on_news(void *user)
{
    look(user);
}

static bool is_used(const struct disk *disk)
{
    for (const struct registry_entry *entry = registry_first(disk->daemon->registry); entry != NULL;
         entry = entry->next) {
        const struct member *member = entry->backstop;
        if (member != NULL && member->disk == disk)
            return true;
    }
    return false;
}

/* Ends those that nobody dumps to any more, but for one whose reading is outstanding. */
static void sweep(struct daemon_backstop *backstop)
{
    for (struct disk **link = &backstop->disks, *disk; (disk = *link) != NULL;) {
        if (is_used(disk) || !daemon_backstop_disk_close(disk->watch, false)) {
            link = &disk->next;
            continue;
        }
        *link = disk->next;
        free(disk);
    }
    if (backstop->disks == NULL)
        uv_timer_stop(&backstop->timer);
}

static void on_timer(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    end_again(daemon);
    for (struct disk *disk = daemon->backstop->disks; disk != NULL; disk = disk->next)
        look(disk);
    sweep(daemon->backstop);
}

static struct disk *disk_of(struct daemon *daemon, const struct registry_entry *entry)
{
    struct daemon_backstop *backstop = daemon->backstop;
    size_t count = 0, his = 0;
    for (struct disk *disk = backstop->disks; disk != NULL; disk = disk->next) {
        if (disk->device == entry->device)
            return disk;
        count++;
        his += disk->uid == entry->uid;
    }
    struct disk *disk = memory_new(sizeof *disk);
    *disk = (struct disk){.daemon = daemon, .device = entry->device, .uid = entry->uid};
    if (count < DISKS_MAX && (his < DISKS_PER_USER || entry->uid == 0))
        disk->watch = daemon_backstop_disk_new(&daemon->loop, entry->folder_fd, on_news, disk);
    if (disk->watch == NULL) {
        free(disk);
        fprintf(stderr,
                "kldumpd: the filesystem of run %s of uid %u is left to its guard: too many of them, or no thread\n",
                entry->name, (unsigned)entry->uid);
        return NULL;
    }
    disk->next = backstop->disks;
    backstop->disks = disk;
    if (!uv_is_active((uv_handle_t *)&backstop->timer))
        uv_timer_start(&backstop->timer, on_timer, LOOK_MS, LOOK_MS);
    return disk;
}

/* ---- for the daemon ---- */

void daemon_backstop_changed(struct daemon *daemon, struct registry_entry *entry)
{
    struct member *member = entry->backstop;
    uint64_t floor = 0;
    if (daemon->ending)
        return;
    if (daemon->backstop == NULL) {
        daemon->backstop = memory_new(sizeof *daemon->backstop);
        uv_timer_init(&daemon->loop, &daemon->backstop->timer);
        daemon->backstop->timer.data = daemon;
    }
    json_optional_u64(entry->run, "space.floor_bytes", 0, &floor, NULL);
    if (member != NULL && member->floor_bytes == floor)
        return;
    if (member == NULL) {
        member = memory_new(sizeof *member);
        member->id = ++daemon->backstop->last_id;
        member->disk = disk_of(daemon, entry);
        entry->backstop = member;
    }
    member->floor_bytes = floor;
    if (member->disk != NULL)
        refresh(member->disk);
}

bool daemon_backstop_has_ended(const struct registry_entry *entry)
{
    const struct member *member = entry->backstop;
    return member != NULL && member->ended;
}

void daemon_backstop_gone(struct daemon *daemon, struct registry_entry *entry)
{
    struct member *member = entry->backstop;
    entry->backstop = NULL;
    if (member == NULL)
        return;
    if (member->disk != NULL)
        refresh(member->disk);
    free(member);
    sweep(daemon->backstop);
}

void daemon_backstop_rules(struct daemon *daemon)
{
    for (struct disk *disk = daemon->backstop != NULL ? daemon->backstop->disks : NULL; disk != NULL; disk = disk->next)
        refresh(disk);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct daemon *daemon = timer->data;
    free(daemon->backstop);
    daemon->backstop = NULL;
}

void daemon_backstop_end(struct daemon *daemon)
{
    struct daemon_backstop *backstop = daemon->backstop;
    for (struct registry_entry *entry = registry_first(daemon->registry); entry != NULL; entry = entry->next) {
        free(entry->backstop);
        entry->backstop = NULL;
    }
    if (backstop == NULL)
        return;
    while (backstop->disks != NULL) {
        struct disk *disk = backstop->disks;
        backstop->disks = disk->next;
        daemon_backstop_disk_close(disk->watch, true);
        free(disk);
    }
    uv_close((uv_handle_t *)&backstop->timer, on_timer_closed);
}

bool daemon_backstop_progresses(struct daemon *daemon)
{
    for (struct disk *disk = daemon->backstop != NULL ? daemon->backstop->disks : NULL; disk != NULL; disk = disk->next)
        if (!daemon_backstop_disk_progresses(disk->watch))
            return false;
    return true;
}
