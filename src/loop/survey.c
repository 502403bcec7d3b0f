/* Happy path: survey_start makes the thread, which waits. survey_open names the dump; the thread looks at it
 * (survey_look in survey_look.c), publishes under the mutex, tells the loop through the async handle, and sleeps until
 * the next look is due. survey_close says `stop`; the thread says `finished` as its last act; the loop joins it and
 * frees.
 *
 * A look hangs on a dead disk: nothing is published any more. On close the loop waits for its limit, marks the survey
 * `abandoned` under the mutex and detaches the thread, which looks at that mark under the same mutex before it touches
 * the async handle. The struct is freed by whichever of the two ends last. */
#include "loop/survey.h"
#include "base/memory.h"
#include "base/text.h"
#include "loop/clock.h"
#include "loop/survey_look.h"
#include "sys/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024, REST = 9 /* times as long as a look took */ };
static const uint64_t second_ms = 1000;

struct survey {
    struct survey_options options; /* read only after the start; its descriptors are ours */
    char *directory;               /* of the options */
    pthread_t thread;
    struct survey_look look; /* survey thread only */

    pthread_mutex_t mutex;     /* of what follows up to the blank line */
    pthread_cond_t work, done; /* monotonic clock */
    struct survey_result result;
    char experiment[SURVEY_NAME_MAX];
    bool open;
    uint64_t asked, answered; /* numbers of looks that must be made, that were */
    bool stop, finished, abandoned;
    unsigned owners;

    uv_async_t async; /* loop thread only */
    uv_timer_t timer;
    unsigned handles;
    bool closing, joined;
    void (*closed)(bool ended, void *user);
    void *closed_user;
};

static void drop_owner(struct survey *survey)
{
    pthread_mutex_lock(&survey->mutex);
    bool last = --survey->owners == 0;
    pthread_mutex_unlock(&survey->mutex);
    if (!last)
        return;
    survey_look_fini(&survey->look);
    if (survey->options.cgroup_fd >= 0)
        close(survey->options.cgroup_fd);
    if (survey->options.directory_fd >= 0)
        close(survey->options.directory_fd);
    free(survey->directory);
    pthread_cond_destroy(&survey->work);
    pthread_cond_destroy(&survey->done);
    pthread_mutex_destroy(&survey->mutex);
    free(survey);
}

/* ---- the thread ---- */

/* The mutex is held. Returns when there is something to look at, or to stop for. */
static void wait_for_work(struct survey *survey, uint64_t due_ns)
{
    while (!survey->stop && survey->asked == survey->answered) {
        if (survey->open && clock_now_ns() >= due_ns)
            return;
        struct timespec due = clock_timespec(due_ns);
        if (survey->open)
            pthread_cond_timedwait(&survey->work, &survey->mutex, &due);
        else
            pthread_cond_wait(&survey->work, &survey->mutex);
    }
}

static void *survey_main(void *argument)
{
    struct survey *survey = argument;
    uint64_t due_ns = 0;
    uint64_t step_ns = (survey->options.step_ms > 0 ? survey->options.step_ms : second_ms) * 1000000;
    prctl(PR_SET_NAME, "survey");
    pthread_mutex_lock(&survey->mutex);
    for (;;) {
        wait_for_work(survey, due_ns);
        if (survey->stop)
            break;
        char experiment[SURVEY_NAME_MAX];
        text_copy(experiment, sizeof experiment, survey->experiment);
        uint64_t asked = survey->asked;
        pthread_mutex_unlock(&survey->mutex);
        uint64_t begin_ns = clock_now_ns();
        struct survey_result result;
        survey_look(&survey->look, &survey->options, experiment, &result);
        uint64_t end_ns = clock_now_ns();
        due_ns = begin_ns + step_ns;
        if (due_ns < end_ns + REST * (end_ns - begin_ns))
            due_ns = end_ns + REST * (end_ns - begin_ns);
        pthread_mutex_lock(&survey->mutex);
        result.looks = survey->result.looks + 1;
        survey->result = result;
        survey->answered = asked;
        pthread_cond_broadcast(&survey->done);
        if (!survey->abandoned)
            uv_async_send(&survey->async);
    }
    survey->finished = true;
    if (!survey->abandoned)
        uv_async_send(&survey->async);
    pthread_mutex_unlock(&survey->mutex);
    drop_owner(survey);
    return NULL;
}

/* ---- the loop's side ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct survey *survey = handle->data;
    if (--survey->handles > 0)
        return;
    void (*closed)(bool, void *) = survey->closed;
    void *user = survey->closed_user;
    bool ended = survey->joined;
    drop_owner(survey);
    if (closed != NULL)
        closed(ended, user);
}

static void close_handles(struct survey *survey)
{
    uv_close((uv_handle_t *)&survey->async, on_handle_closed);
    uv_close((uv_handle_t *)&survey->timer, on_handle_closed);
}

static bool is_finished(struct survey *survey)
{
    pthread_mutex_lock(&survey->mutex);
    bool finished = survey->finished;
    pthread_mutex_unlock(&survey->mutex);
    return finished;
}

static void on_async(uv_async_t *async)
{
    struct survey *survey = async->data;
    if (!survey->closing) {
        if (survey->options.news != NULL)
            survey->options.news(survey->options.user);
        return;
    }
    if (is_finished(survey) && !uv_is_closing((uv_handle_t *)async)) {
        pthread_join(survey->thread, NULL);
        survey->joined = true;
        close_handles(survey);
    }
}

static void on_limit(uv_timer_t *timer)
{
    struct survey *survey = timer->data;
    if (uv_is_closing((uv_handle_t *)timer))
        return;
    pthread_mutex_lock(&survey->mutex);
    survey->joined = survey->finished;
    survey->abandoned = !survey->finished;
    pthread_mutex_unlock(&survey->mutex);
    if (survey->joined)
        pthread_join(survey->thread, NULL);
    else
        pthread_detach(survey->thread);
    close_handles(survey);
}

static void init_locks(struct survey *survey)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&survey->mutex, NULL);
    pthread_cond_init(&survey->work, &attributes);
    pthread_cond_init(&survey->done, &attributes);
    pthread_condattr_destroy(&attributes);
}

enum error_code survey_start(uv_loop_t *loop, const struct survey_options *options, struct survey **ret_survey,
                             struct error *err)
{
    struct survey *survey = memory_new(sizeof *survey);
    survey->options = *options;
    survey->options.cgroup_fd = options->cgroup_fd >= 0 ? fcntl(options->cgroup_fd, F_DUPFD_CLOEXEC, 3) : -1;
    survey->options.directory_fd = fcntl(options->directory_fd, F_DUPFD_CLOEXEC, 3);
    survey->options.directory = survey->directory = memory_copy(options->directory);
    survey->owners = 1;
    init_locks(survey);
    if (survey->options.directory_fd < 0) {
        drop_owner(survey);
        return error_set_errno(err, ERROR_SYSTEM, errno, "the dump folder %s", options->directory);
    }
    int failure = uv_async_init(loop, &survey->async, on_async);
    if (failure != 0) {
        drop_owner(survey);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "cannot make the survey's wake-up handle");
    }
    uv_timer_init(loop, &survey->timer);
    survey->handles = 2;
    survey->async.data = survey->timer.data = survey;
    survey->owners = 2;
    failure = thread_start(&survey->thread, STACK_BYTES, survey_main, survey);
    if (failure != 0) {
        survey->owners = 1;
        survey->closing = true;
        close_handles(survey);
        return error_set_errno(err, ERROR_SYSTEM, failure, "cannot start the survey thread");
    }
    *ret_survey = survey;
    return ERROR_NONE;
}

void survey_open(struct survey *survey, const char *experiment)
{
    pthread_mutex_lock(&survey->mutex);
    text_copy(survey->experiment, sizeof survey->experiment, experiment);
    survey->open = true;
    survey->asked++;
    pthread_cond_signal(&survey->work);
    pthread_mutex_unlock(&survey->mutex);
}

void survey_shut(struct survey *survey)
{
    pthread_mutex_lock(&survey->mutex);
    survey->open = false;
    pthread_mutex_unlock(&survey->mutex);
    survey_ask(survey);
}

void survey_ask(struct survey *survey)
{
    pthread_mutex_lock(&survey->mutex);
    survey->asked++;
    pthread_cond_signal(&survey->work);
    pthread_mutex_unlock(&survey->mutex);
}

bool survey_wait(struct survey *survey, uint64_t limit_ms)
{
    struct timespec end = clock_timespec(clock_now_ns() + limit_ms * 1000000);
    int failure = 0;
    pthread_mutex_lock(&survey->mutex);
    while (failure == 0 && limit_ms > 0 && survey->answered != survey->asked)
        failure = pthread_cond_timedwait(&survey->done, &survey->mutex, &end);
    bool done = survey->answered == survey->asked;
    pthread_mutex_unlock(&survey->mutex);
    return done;
}

void survey_get(struct survey *survey, struct survey_result *ret_result)
{
    pthread_mutex_lock(&survey->mutex);
    *ret_result = survey->result;
    pthread_mutex_unlock(&survey->mutex);
}

void survey_close(struct survey *survey, uint64_t limit_ms, void (*closed)(bool ended, void *user), void *user)
{
    survey->closing = true;
    survey->closed = closed;
    survey->closed_user = user;
    pthread_mutex_lock(&survey->mutex);
    survey->stop = true;
    pthread_cond_signal(&survey->work);
    pthread_mutex_unlock(&survey->mutex);
    uv_update_time(survey->timer.loop); /* the caller may have worked for long: the limit begins now */
    uv_timer_start(&survey->timer, on_limit, limit_ms, 0);
}
