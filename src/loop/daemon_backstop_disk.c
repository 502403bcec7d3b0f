/* Happy path: the thread reads, counts, decides, publishes under the mutex, tells the loop when there is something to
 * tell, and sleeps until the next look is due or something has changed. Closed: it is told to stop, and whoever of
 * thread and loop comes last frees.
 *
 * A reading blocks: the loop sees blocked_ns grow. The disk is not closed then but kept, so that the next run there
 * meets the same thread and not one more. At the end of the daemon it is left behind. */
#include "loop/daemon_backstop_disk.h"
#include "base/memory.h"
#include "loop/clock.h"
#include "sys/process.h"
#include "sys/space.h"
#include "sys/thread.h"
#include "sys/written.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024 };
static const uint64_t stuck_ns = 10 * 1000000000ull;
static const uint64_t count_step_ns = 250000000; /* between two counts above the floor: they cost a look at /proc */

struct daemon_backstop_disk {
    int fd;
    struct backstop policy;        /* thread only, as the next ones */
    struct process_list processes; /* its memory is kept */
    uint64_t counted_ns;
    bool count;

    pthread_mutex_t mutex; /* of what follows up to the blank line */
    pthread_cond_t work;   /* monotonic clock */
    struct daemon_backstop_state state;
    struct daemon_backstop_run runs[BACKSTOP_RUNS_MAX];
    size_t run_count;
    uint64_t floor_bytes, worst_rate, reading_since_ns, due_ns;
    bool stop, changed, abandoned;
    unsigned owners;

    uv_async_t async; /* loop thread only */
    bool closing;
    void (*news)(void *user);
    void *user;
};

static void drop_owner(struct daemon_backstop_disk *disk)
{
    pthread_mutex_lock(&disk->mutex);
    bool last = --disk->owners == 0;
    pthread_mutex_unlock(&disk->mutex);
    if (!last)
        return;
    close(disk->fd);
    process_list_fini(&disk->processes);
    pthread_cond_destroy(&disk->work);
    pthread_mutex_destroy(&disk->mutex);
    free(disk);
}

/* ---- the thread ---- */

/* What one look is made with. */
struct task {
    struct backstop_reading reading;
    struct daemon_backstop_run given[BACKSTOP_RUNS_MAX];
    struct backstop_run runs[BACKSTOP_RUNS_MAX];
    size_t count;
};

static void read_space(struct daemon_backstop_disk *disk, struct task *task, uint64_t *ret_total)
{
    struct space space = {0};
    task->reading.measurable = space_read(disk->fd, &space, NULL) == ERROR_NONE && space.measurable;
    task->reading.free_bytes = space.free_bytes;
    *ret_total = space.total_bytes;
}

static void count_written(struct daemon_backstop_disk *disk, struct task *task)
{
    bool below = task->reading.free_bytes < task->reading.floor_bytes;
    for (size_t i = 0; i < task->count; i++)
        below = below || task->reading.free_bytes < task->given[i].floor_bytes;
    bool due = disk->count && (below || task->reading.at_ns - disk->counted_ns >= count_step_ns);
    if (due) {
        disk->counted_ns = task->reading.at_ns;
        process_snapshot(&disk->processes);
    }
    for (size_t i = 0; i < task->count; i++)
        task->runs[i] = (struct backstop_run){
            .id = task->given[i].id,
            .floor_bytes = task->given[i].floor_bytes,
            .counted = due,
            .written_bytes = due ? written_by_tree(&disk->processes, task->given[i].guard) : 0,
        };
}

/* The mutex is held. */
static void take_task(struct daemon_backstop_disk *disk, struct task *task)
{
    uint64_t now_ns = clock_now_ns();
    disk->changed = false;
    disk->reading_since_ns = now_ns;
    task->reading = (struct backstop_reading){
        .at_ns = now_ns, .floor_bytes = disk->floor_bytes, .worst_rate_bytes_per_s = disk->worst_rate};
    task->count = disk->run_count;
    memcpy(task->given, disk->runs, disk->run_count * sizeof disk->runs[0]);
}

/* The mutex is held. */
static void publish(struct daemon_backstop_disk *disk, const struct task *task, uint64_t total,
                    const struct backstop_decision *decision)
{
    struct daemon_backstop_state *state = &disk->state;
    bool tell = state->looks == 0 || state->measurable != task->reading.measurable || state->total_bytes != total ||
                decision->id != 0;
    disk->reading_since_ns = 0;
    state->looks++;
    state->measurable = task->reading.measurable;
    state->total_bytes = total;
    state->free_bytes = task->reading.free_bytes;
    if (decision->id != 0)
        state->order = *decision;
    disk->due_ns = task->reading.at_ns + decision->interval_ns;
    if (tell && !disk->abandoned)
        uv_async_send(&disk->async);
}

/* The mutex is held. */
static void rest(struct daemon_backstop_disk *disk)
{
    struct timespec due = clock_timespec(disk->due_ns);
    while (!disk->stop && !disk->changed && clock_now_ns() < disk->due_ns)
        pthread_cond_timedwait(&disk->work, &disk->mutex, &due);
}

static void *disk_main(void *argument)
{
    struct daemon_backstop_disk *disk = argument;
    struct task *task = memory_new(sizeof *task);
    struct backstop_decision decision;
    prctl(PR_SET_NAME, "backstop");
    pthread_mutex_lock(&disk->mutex);
    while (!disk->stop) {
        uint64_t total = 0;
        take_task(disk, task);
        pthread_mutex_unlock(&disk->mutex);
        read_space(disk, task, &total);
        count_written(disk, task);
        backstop_look(&disk->policy, &task->reading, task->runs, task->count, &decision);
        disk->count = decision.count_next;
        pthread_mutex_lock(&disk->mutex);
        publish(disk, task, total, &decision);
        rest(disk);
    }
    pthread_mutex_unlock(&disk->mutex);
    free(task);
    drop_owner(disk);
    return NULL;
}

/* ---- the loop's side ---- */

static void on_closed(uv_handle_t *handle)
{
    drop_owner(handle->data);
}

static void on_async(uv_async_t *async)
{
    struct daemon_backstop_disk *disk = async->data;
    if (!disk->closing)
        disk->news(disk->user);
}

struct daemon_backstop_disk *daemon_backstop_disk_new(uv_loop_t *loop, int fd, void (*news)(void *user), void *user)
{
    pthread_t thread;
    pthread_condattr_t attributes;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return NULL;
    struct daemon_backstop_disk *disk = memory_new(sizeof *disk);
    disk->fd = own;
    disk->news = news;
    disk->user = user;
    disk->due_ns = clock_now_ns();
    backstop_init(&disk->policy);
    pthread_mutex_init(&disk->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&disk->work, &attributes);
    pthread_condattr_destroy(&attributes);
    disk->owners = 1;
    if (uv_async_init(loop, &disk->async, on_async) != 0) {
        drop_owner(disk);
        return NULL;
    }
    disk->async.data = disk;
    disk->owners = 2;
    if (thread_start(&thread, STACK_BYTES, disk_main, disk) == 0) {
        pthread_detach(thread);
        return disk;
    }
    disk->owners = 1;
    disk->closing = true;
    uv_close((uv_handle_t *)&disk->async, on_closed);
    return NULL;
}

void daemon_backstop_disk_set(struct daemon_backstop_disk *disk, uint64_t admin_floor_bytes, uint64_t worst_rate,
                              const struct daemon_backstop_run *runs, size_t count)
{
    pthread_mutex_lock(&disk->mutex);
    bool stricter = admin_floor_bytes > disk->floor_bytes || count > disk->run_count;
    disk->floor_bytes = admin_floor_bytes;
    disk->worst_rate = worst_rate;
    disk->run_count = count < BACKSTOP_RUNS_MAX ? count : BACKSTOP_RUNS_MAX;
    memcpy(disk->runs, runs, disk->run_count * sizeof *runs);
    if (stricter) { /* what was decided with the old ones may be too late */
        disk->changed = true;
        pthread_cond_signal(&disk->work);
    }
    pthread_mutex_unlock(&disk->mutex);
}

static void get(struct daemon_backstop_disk *disk, bool take, struct daemon_backstop_state *ret_state)
{
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&disk->mutex);
    *ret_state = disk->state;
    if (take)
        disk->state.order = (struct backstop_decision){0};
    uint64_t since_ns = disk->reading_since_ns;
    ret_state->blocked_ns = since_ns != 0 && now_ns > since_ns ? now_ns - since_ns : 0;
    ret_state->stuck = since_ns == 0 && now_ns > disk->due_ns + stuck_ns;
    pthread_mutex_unlock(&disk->mutex);
}

void daemon_backstop_disk_get(struct daemon_backstop_disk *disk, struct daemon_backstop_state *ret_state)
{
    get(disk, true, ret_state);
}

bool daemon_backstop_disk_progresses(struct daemon_backstop_disk *disk)
{
    struct daemon_backstop_state state;
    get(disk, false, &state);
    return !state.stuck;
}

bool daemon_backstop_disk_close(struct daemon_backstop_disk *disk, bool force)
{
    pthread_mutex_lock(&disk->mutex);
    bool over = force || disk->reading_since_ns == 0;
    if (over) {
        disk->stop = true;
        disk->abandoned = true; /* the async handle is closed now */
        pthread_cond_signal(&disk->work);
    }
    pthread_mutex_unlock(&disk->mutex);
    if (!over)
        return false;
    disk->closing = true;
    uv_close((uv_handle_t *)&disk->async, on_closed);
    return true;
}
