/* Each lane is a queue with its own thread. A producer locks the lane for the time of a copy; the thread takes one job
 * out under the lock and writes it without.
 *
 * Happy path: append or replace -> job at the tail -> thread takes it -> write -> next. A write that fails is counted
 * and forgotten (the next one is tried anew). A write that hangs fills its own queue, from then on bytes are dropped.
 * At the end a lane whose write still hangs is left behind with all that it uses; its thread frees it when the write
 * returns. */
#include "sys/sink.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/file.h"
#include "sys/sink_log.h"
#include "sys/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SINK_PIECE = 16384, SINK_LANES = 2 + SINK_TARGETS };
enum { SINK_LANE_FILES, SINK_LANE_LOGS, SINK_LANE_FIRST_DESCRIPTOR };

/* Bytes for a target, or (path not NULL) the new contents of a file. */
struct sink_job {
    struct sink_job *next;
    char *path;
    struct sink_target *target;
    size_t length, capacity;
    char *data;
    mode_t file_mode; /* of a replacement */
};

struct sink_target {
    struct sink_lane *lane;
    int fd;      /* a descriptor; -1: a log */
    bool broken; /* its reader is gone; writer thread */
    struct sink_log_file log;
    struct sink_log range; /* under the lane's lock */
};

struct sink_lane {
    pthread_mutex_t lock;
    pthread_cond_t work, idle; /* monotonic clock */
    pthread_t thread;
    struct sink_job *head, *tail;
    size_t queued_bytes;            /* that wait, for people */
    size_t held_bytes, queue_limit; /* memory of the jobs of targets */
    bool stop, ended;
    bool left_behind;         /* nobody else knows the lane any more */
    uint64_t added, finished; /* jobs */
    struct sink_state state;
    struct sink_target targets[SINK_TARGETS]; /* here, not in the sink: a lane left behind goes on using them */
    unsigned target_count;
};

struct sink {
    pthread_mutex_t lock; /* of the two counts and the tables; writers are the add functions */
    size_t queue_bytes;
    mode_t file_mode;
    struct sink_lane *lanes[SINK_LANES];
    unsigned lane_count;
    struct sink_target *targets[SINK_TARGETS];
    int target_count;
};

/* ---- the thread ---- */

/* Writes to a descriptor, non-blocking ones too. */
static int sink_write_descriptor(struct sink_target *target, const char *data, size_t length, size_t *ret_written)
{
    *ret_written = 0;
    while (length > 0 && !target->broken) {
        ssize_t done = write(target->fd, data, length);
        if (done >= 0) {
            data += done;
            length -= (size_t)done;
            *ret_written += (size_t)done;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            struct pollfd wait = {.fd = target->fd, .events = POLLOUT};
            poll(&wait, 1, -1);
        } else if (errno == EPIPE || errno == EIO || errno == EBADF) {
            target->broken = true;
            return errno;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return length > 0 ? EPIPE : 0;
}

static void sink_count_failure(struct sink_lane *lane, const char *what, int system, size_t lost)
{
    lane->state.failures++;
    lane->state.failed_bytes += lost;
    lane->state.full = lane->state.full || system == ENOSPC || system == EDQUOT;
    snprintf(lane->state.problem, sizeof lane->state.problem, "cannot write %s: %s", what, strerror(system));
}

/* Without the lock. */
static int sink_do(const struct sink_job *job, size_t *ret_written)
{
    if (job->path) {
        struct error err = ERROR_INIT;
        *ret_written = job->length;
        if (file_replace(job->path, job->data, job->length, job->file_mode, FILE_NO_SYNC, &err) == ERROR_NONE)
            return 0;
        *ret_written = 0;
        return err.system ? err.system : EIO;
    }
    if (job->target->fd >= 0)
        return sink_write_descriptor(job->target, job->data, job->length, ret_written);
    return sink_log_write(&job->target->log, job->data, job->length, ret_written);
}

static void sink_job_free(struct sink_job *job)
{
    free(job->path);
    free(job->data);
    free(job);
}

/* The lock is held, before and after. */
static void sink_finish(struct sink_lane *lane, struct sink_job *job, int system, size_t written)
{
    if (job->target && job->target->fd < 0) {
        struct sink_target *target = job->target;
        target->range.end += written;
        target->range.current = target->range.end - target->log.size;
        uint64_t older = target->log.older_size;
        target->range.first = target->range.current > older ? target->range.current - older : 0;
    }
    if (system != 0) {
        if (job->path)
            lane->state.system = system;
        const char *what = job->path ? job->path : job->target->fd >= 0 ? "to its output" : job->target->log.path;
        sink_count_failure(lane, what, system, job->length - written);
    }
    lane->queued_bytes -= job->length;
    lane->held_bytes -= job->path ? 0 : job->capacity;
    lane->finished++;
    sink_job_free(job);
    pthread_cond_broadcast(&lane->idle);
}

static void sink_lane_free(struct sink_lane *lane)
{
    while (lane->head) {
        struct sink_job *next = lane->head->next;
        sink_job_free(lane->head);
        lane->head = next;
    }
    for (unsigned i = 0; i < lane->target_count; i++)
        if (lane->targets[i].fd < 0)
            sink_log_fini(&lane->targets[i].log);
    pthread_cond_destroy(&lane->work);
    pthread_cond_destroy(&lane->idle);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

static void *sink_main(void *user)
{
    struct sink_lane *lane = user;
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        while (!lane->head && !lane->stop)
            pthread_cond_wait(&lane->work, &lane->lock);
        struct sink_job *job = lane->head;
        if (!job || lane->left_behind)
            break;
        lane->head = job->next;
        if (!lane->head)
            lane->tail = NULL;
        pthread_mutex_unlock(&lane->lock);
        size_t written;
        int system = sink_do(job, &written);
        pthread_mutex_lock(&lane->lock);
        sink_finish(lane, job, system, written);
    }
    lane->ended = true;
    bool left_behind = lane->left_behind;
    pthread_cond_broadcast(&lane->idle);
    pthread_mutex_unlock(&lane->lock);
    if (left_behind)
        sink_lane_free(lane);
    return NULL;
}

/* ---- lanes ---- */

static enum error_code sink_lane_new(size_t queue_limit, struct sink_lane **ret_lane, struct error *err)
{
    struct sink_lane *lane = memory_new(sizeof *lane);
    lane->queue_limit = queue_limit;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->work, &attributes);
    pthread_cond_init(&lane->idle, &attributes);
    pthread_condattr_destroy(&attributes);
    int system = thread_start(&lane->thread, 0, sink_main, lane);
    if (system != 0) {
        sink_lane_free(lane);
        return error_set_errno(err, ERROR_SYSTEM, system, "cannot start a thread for writing");
    }
    *ret_lane = lane;
    return ERROR_NONE;
}

static void sink_lane_push(struct sink_lane *lane, struct sink_job *job)
{
    if (lane->tail)
        lane->tail->next = job;
    else
        lane->head = job;
    lane->tail = job;
    lane->added++;
    pthread_cond_signal(&lane->work);
}

/* ---- producers ---- */

enum error_code sink_new(size_t queue_bytes, mode_t file_mode, struct sink **ret_sink, struct error *err)
{
    struct sink *sink = memory_new(sizeof *sink);
    pthread_mutex_init(&sink->lock, NULL);
    sink->file_mode = file_mode;
    sink->queue_bytes = queue_bytes ? queue_bytes : SINK_QUEUE_BYTES;
    for (; sink->lane_count < SINK_LANE_FIRST_DESCRIPTOR; sink->lane_count++) {
        enum error_code code = sink_lane_new(sink->queue_bytes, &sink->lanes[sink->lane_count], err);
        if (code != ERROR_NONE) {
            sink_free(sink, 1000);
            return code;
        }
    }
    *ret_sink = sink;
    return ERROR_NONE;
}

static enum error_code sink_add(struct sink *sink, int fd, const char *path, uint64_t bytes, int *ret_target,
                                struct error *err)
{
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&sink->lock);
    if (sink->target_count == SINK_TARGETS)
        code = error_set(err, ERROR_TOO_LARGE, "more than %d targets for output", SINK_TARGETS);
    struct sink_lane *lane = sink->lanes[SINK_LANE_LOGS];
    if (code == ERROR_NONE && fd >= 0) {
        code = sink_lane_new(sink->queue_bytes, &lane, err);
        if (code == ERROR_NONE)
            sink->lanes[sink->lane_count++] = lane;
    }
    if (code == ERROR_NONE) {
        pthread_mutex_lock(&lane->lock);
        struct sink_target *target = &lane->targets[lane->target_count++];
        *target = (struct sink_target){.lane = lane, .fd = fd};
        if (fd < 0)
            sink_log_init(&target->log, path, bytes ? bytes : SINK_LOG_BYTES);
        pthread_mutex_unlock(&lane->lock);
        sink->targets[sink->target_count] = target;
        *ret_target = sink->target_count++;
    }
    pthread_mutex_unlock(&sink->lock);
    return code;
}

enum error_code sink_add_descriptor(struct sink *sink, int fd, int *ret_target, struct error *err)
{
    if (fd < 0)
        return error_set(err, ERROR_BAD_VALUE, "descriptor %d cannot be written to", fd);
    return sink_add(sink, fd, NULL, 0, ret_target, err);
}

enum error_code sink_add_log(struct sink *sink, const char *path, uint64_t bytes, int *ret_target, struct error *err)
{
    return sink_add(sink, -1, path, bytes, ret_target, err);
}

/* A job with room for `length` bytes, or NULL when the queue would hold too much. */
static struct sink_job *sink_new_piece(struct sink_lane *lane, struct sink_target *target, size_t length)
{
    size_t piece = lane->queue_limit / 16 < SINK_PIECE ? lane->queue_limit / 16 : SINK_PIECE;
    size_t capacity = length > piece ? length : piece;
    if (capacity > lane->queue_limit || lane->held_bytes > lane->queue_limit - capacity)
        return NULL;
    struct sink_job *job = memory_new(sizeof *job);
    job->target = target;
    job->capacity = capacity;
    job->data = memory_resize(NULL, capacity, 1);
    lane->held_bytes += capacity;
    sink_lane_push(lane, job);
    return job;
}

bool sink_append(struct sink *sink, int target_number, const void *data, size_t length)
{
    if (length == 0)
        return true;
    struct sink_target *target = sink->targets[target_number];
    struct sink_lane *lane = target->lane;
    pthread_mutex_lock(&lane->lock);
    struct sink_job *job = lane->tail;
    if (!job || job->target != target || job->capacity - job->length < length)
        job = sink_new_piece(lane, target, length);
    if (job) {
        memcpy(job->data + job->length, data, length);
        job->length += length;
        lane->queued_bytes += length;
    } else {
        lane->state.dropped_bytes += length;
    }
    pthread_mutex_unlock(&lane->lock);
    return job != NULL;
}

void sink_replace(struct sink *sink, const char *path, const void *data, size_t length)
{
    struct sink_lane *lane = sink->lanes[SINK_LANE_FILES];
    char *copy = memory_resize(NULL, length ? length : 1, 1);
    if (length)
        memcpy(copy, data, length);
    pthread_mutex_lock(&lane->lock);
    struct sink_job *job = lane->head;
    while (job && strcmp(job->path, path) != 0)
        job = job->next;
    if (job) {
        lane->queued_bytes -= job->length;
        free(job->data);
    } else {
        job = memory_new(sizeof *job);
        job->path = memory_copy(path);
        job->file_mode = sink->file_mode;
        sink_lane_push(lane, job);
    }
    job->data = copy;
    job->length = job->capacity = length;
    lane->queued_bytes += length;
    pthread_mutex_unlock(&lane->lock);
}

void sink_get_log(struct sink *sink, int target_number, struct sink_log *ret_log)
{
    struct sink_target *target = sink->targets[target_number];
    pthread_mutex_lock(&target->lane->lock);
    *ret_log = target->range;
    pthread_mutex_unlock(&target->lane->lock);
}

void sink_get(struct sink *sink, struct sink_state *ret_state)
{
    struct sink_state sum = {0};
    pthread_mutex_lock(&sink->lock);
    for (unsigned i = 0; i < sink->lane_count; i++) {
        struct sink_lane *lane = sink->lanes[i];
        pthread_mutex_lock(&lane->lock);
        sum.dropped_bytes += lane->state.dropped_bytes;
        sum.failed_bytes += lane->state.failed_bytes;
        sum.failures += lane->state.failures;
        sum.full = sum.full || lane->state.full;
        sum.waiting_bytes += lane->queued_bytes;
        if (lane->state.system != 0)
            sum.system = lane->state.system;
        if (lane->state.problem[0])
            text_copy(sum.problem, sizeof sum.problem, lane->state.problem);
        pthread_mutex_unlock(&lane->lock);
    }
    pthread_mutex_unlock(&sink->lock);
    *ret_state = sum;
}

/* ---- the end ---- */

static struct timespec sink_end_of(uint64_t limit_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    uint64_t nanoseconds = (uint64_t)end.tv_nsec + limit_ms % 1000 * 1000000;
    end.tv_sec += (time_t)(limit_ms / 1000 + nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);
    return end;
}

/* False: it hangs, and is its thread's own from now on. */
static bool sink_lane_end(struct sink_lane *lane, const struct timespec *end)
{
    pthread_t thread = lane->thread;
    int result = 0;
    pthread_mutex_lock(&lane->lock);
    while (result == 0 && !lane->ended)
        result = pthread_cond_timedwait(&lane->idle, &lane->lock, end);
    bool ended = lane->ended;
    lane->left_behind = !ended;
    pthread_mutex_unlock(&lane->lock);
    if (ended) {
        pthread_join(thread, NULL);
        sink_lane_free(lane);
    } else {
        pthread_detach(thread);
    }
    return ended;
}

static bool sink_lane_wait(struct sink_lane *lane, const struct timespec *end)
{
    int result = 0;
    pthread_mutex_lock(&lane->lock);
    uint64_t goal = lane->added;
    while (result == 0 && lane->finished < goal)
        result = pthread_cond_timedwait(&lane->idle, &lane->lock, end);
    bool done = lane->finished >= goal;
    pthread_mutex_unlock(&lane->lock);
    return done;
}

static void sink_lane_stop(struct sink_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane->stop = true;
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&lane->lock);
}

bool sink_flush(struct sink *sink, uint64_t limit_ms)
{
    struct timespec end = sink_end_of(limit_ms);
    bool done = true;
    for (unsigned i = 0; i < sink->lane_count; i++)
        done = sink_lane_wait(sink->lanes[i], &end) && done;
    return done;
}

bool sink_free(struct sink *sink, uint64_t limit_ms)
{
    if (!sink)
        return true;
    struct timespec end = sink_end_of(limit_ms);
    bool all = true;
    for (unsigned i = 0; i < sink->lane_count; i++)
        sink_lane_stop(sink->lanes[i]);
    for (unsigned i = 0; i < sink->lane_count; i++)
        all = sink_lane_end(sink->lanes[i], &end) && all;
    pthread_mutex_destroy(&sink->lock);
    free(sink);
    return all;
}
