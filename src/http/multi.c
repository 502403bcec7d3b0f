#include "http/multi.h"
#include "base/memory.h"
#include "http/transfer_handle.h"

#include <stdbool.h>
#include <stdlib.h>

struct job {
    struct job *next, **link; /* list of active, then of finished ones; *link is what points here */
    struct transfer *transfer;
    CURLcode how;
    multi_done *done;
    void *argument;
};

struct multi {
    CURLM *handle;
    struct multi_loop loop;
    bool closing;
    struct job *active;
    struct job *finished; /* taken out of libcurl, `done` not called yet */
    struct job **finished_end;
    size_t count;
};

static void unlink_job(struct multi *multi, struct job *job)
{
    if (multi->finished_end == &job->next)
        multi->finished_end = job->link;
    *job->link = job->next;
    if (job->next != NULL)
        job->next->link = job->link;
    job->next = NULL;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *watcher)
{
    struct multi *multi = user;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        /* libcurl may report a socket gone that it never asked to watch */
        if (watcher == NULL)
            return 0;
        if (!multi->closing)
            curl_multi_assign(multi->handle, fd, NULL);
        multi->loop.watch(multi->loop.user, watcher, fd, 0);
        return 0;
    }
    if (multi->closing)
        return 0; /* what is being closed is watched no more */
    int events = (what & CURL_POLL_IN ? MULTI_IN : 0) | (what & CURL_POLL_OUT ? MULTI_OUT : 0);
    if (events == 0)
        return 0;
    void *kept = multi->loop.watch(multi->loop.user, watcher, fd, events);
    if (kept != watcher)
        curl_multi_assign(multi->handle, fd, kept);
    return 0;
}

static int on_timer(CURLM *handle, long ms, void *user)
{
    struct multi *multi = user;
    (void)handle;
    multi->loop.timer(multi->loop.user, multi->closing || ms < 0 ? -1 : (int64_t)ms);
    return 0;
}

struct multi *multi_new(const struct multi_loop *loop)
{
    struct multi *multi = memory_new(sizeof *multi);
    multi->loop = *loop;
    multi->finished_end = &multi->finished;
    multi->handle = curl_multi_init();
    if (multi->handle == NULL)
        abort(); /* memory is out, as in base/memory.h */
    curl_multi_setopt(multi->handle, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi->handle, CURLMOPT_SOCKETDATA, multi);
    curl_multi_setopt(multi->handle, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi->handle, CURLMOPT_TIMERDATA, multi);
    curl_multi_setopt(multi->handle, CURLMOPT_MAXCONNECTS, 4L);
    return multi;
}

enum error_code multi_submit(struct multi *multi, const struct transfer_request *request, multi_done *done,
                             void *argument, struct error *err)
{
    struct transfer *transfer = NULL;
    enum error_code code = transfer_new(request, &transfer, err);
    if (code != ERROR_NONE)
        return code;
    struct job *job = memory_new(sizeof *job);
    *job = (struct job){
        .next = multi->active, .link = &multi->active, .transfer = transfer, .done = done, .argument = argument};
    curl_easy_setopt(transfer_handle(transfer), CURLOPT_PRIVATE, job);
    /* only asks for a timer; nothing is done, and nobody called, before multi_timeout */
    CURLMcode result = curl_multi_add_handle(multi->handle, transfer_handle(transfer));
    if (result != CURLM_OK) {
        transfer_free(transfer);
        free(job);
        return error_set(err, ERROR_INTERNAL, "libcurl takes no request: %s", curl_multi_strerror(result));
    }
    if (multi->active != NULL)
        multi->active->link = &job->next;
    multi->active = job;
    multi->count++;
    return ERROR_NONE;
}

/* Takes everything that is complete out of libcurl, without calling a user. */
static void collect(struct multi *multi)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi->handle, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *easy = message->easy_handle;
        CURLcode how = message->data.result; /* the message is gone after remove_handle */
        struct job *job = NULL;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &job);
        curl_multi_remove_handle(multi->handle, easy);
        unlink_job(multi, job);
        job->how = how;
        job->link = multi->finished_end;
        *multi->finished_end = job;
        multi->finished_end = &job->next;
    }
}

static void deliver(struct multi *multi)
{
    while (multi->finished != NULL) {
        struct job *job = multi->finished;
        struct transfer_result result;
        unlink_job(multi, job);
        multi->count--;
        transfer_finish(job->transfer, job->how, &result);
        job->done(job->argument, &result);
        transfer_free(job->transfer);
        free(job);
    }
}

static void act(struct multi *multi, curl_socket_t fd, int events)
{
    int running;
    curl_multi_socket_action(multi->handle, fd, events, &running);
    collect(multi);
    deliver(multi);
}

void multi_socket_ready(struct multi *multi, int fd, int events)
{
    act(multi, fd,
        (events & MULTI_IN ? CURL_CSELECT_IN : 0) | (events & MULTI_OUT ? CURL_CSELECT_OUT : 0) |
            (events & MULTI_ERROR ? CURL_CSELECT_ERR : 0));
}

void multi_timeout(struct multi *multi)
{
    act(multi, CURL_SOCKET_TIMEOUT, 0);
}

static void drop(struct multi *multi, struct job *job)
{
    unlink_job(multi, job);
    multi->count--;
    transfer_free(job->transfer);
    free(job);
}

void multi_cancel_all(struct multi *multi)
{
    while (multi->active != NULL) {
        curl_multi_remove_handle(multi->handle, transfer_handle(multi->active->transfer));
        drop(multi, multi->active);
    }
    while (multi->finished != NULL)
        drop(multi, multi->finished);
}

void multi_free(struct multi *multi)
{
    if (multi == NULL)
        return;
    multi_cancel_all(multi);
    multi->closing = true;
    curl_multi_cleanup(multi->handle); /* may still let go of watchers */
    multi->loop.timer(multi->loop.user, -1);
    free(multi);
}

size_t multi_count(const struct multi *multi)
{
    return multi->count;
}
