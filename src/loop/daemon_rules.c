/* Happy path: the rules are read before anything is served; at HUP they are read again by a thread of its own, since
 * names and paths may take long, and replace the old ones as a whole; each value that differs is told in a line.
 *
 * The file is bad at the start: fatal. At HUP: one line says which line and why, and the old rules stay.
 * HUP while they are being read: they are read once more after that.
 * The thread hangs (a dead mount, a dead directory server): the old rules go on, and so does everything else; the end
 * of the daemon does not wait for it. */
#include "base/memory.h"
#include "loop/daemon_private.h"
#include "sys/admin.h"
#include "sys/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the thread works on; freed by whoever comes last. */
struct load {
    pthread_mutex_t lock;
    struct daemon_rules *rules; /* NULL: nobody waits any more */
    bool done;
    char *path; /* NULL: the usual one */
    struct admin *admin;
    struct error problem; /* code ERROR_NONE: `admin` is good */
};

struct daemon_rules {
    uv_async_t async;
    struct daemon *daemon;
    struct load *load; /* under way; NULL: none */
    unsigned owed;     /* requests that came meanwhile */
};

static void free_admin(struct admin *admin)
{
    if (admin != NULL)
        admin_fini(admin);
    free(admin);
}

static void free_load(struct load *load)
{
    pthread_mutex_destroy(&load->lock);
    free_admin(load->admin);
    free(load->path);
    free(load);
}

/* ---- the thread ---- */

static void *read_rules(void *argument)
{
    struct load *load = argument;
    load->admin = memory_new(sizeof *load->admin);
    if (admin_load(load->path, load->admin, &load->problem) != ERROR_NONE) {
        free(load->admin);
        load->admin = NULL;
    }
    pthread_mutex_lock(&load->lock);
    bool awaited = load->rules != NULL;
    load->done = true;
    if (awaited)
        uv_async_send(&load->rules->async);
    pthread_mutex_unlock(&load->lock);
    if (!awaited)
        free_load(load);
    return NULL;
}

static bool start_thread(struct daemon_rules *rules, struct error *err)
{
    pthread_t thread;
    struct load *load = memory_new(sizeof *load);
    const char *path = rules->daemon->rules_path;
    pthread_mutex_init(&load->lock, NULL);
    load->rules = rules;
    load->path = path != NULL ? memory_copy(path) : NULL;
    int failure = thread_start(&thread, 0, read_rules, load);
    if (failure != 0) {
        free_load(load);
        error_set_errno(err, ERROR_SYSTEM, failure, "a thread for the rules");
        return false;
    }
    pthread_detach(thread);
    rules->load = load;
    return true;
}

/* ---- the loop ---- */

static void tell_bad(struct daemon *daemon, const struct error *problem)
{
    fprintf(stderr, "kldumpd: %s; the old rules stay\n", problem->message);
    daemon_reloaded(daemon, problem->message);
}

static void replace(struct daemon *daemon, struct admin *admin)
{
    struct list lines = {0};
    rules_difference(&daemon->admin->rules, &admin->rules, &lines);
    for (size_t i = 0; i < lines.count; i++)
        fprintf(stderr, "kldumpd: rules: %s\n", lines.items[i]);
    if (lines.count == 0)
        fprintf(stderr, "kldumpd: rules unchanged\n");
    list_fini(&lines);
    free_admin(daemon->admin); /* also where no rule differs: names and filesystems may mean others now */
    daemon->admin = admin;
    daemon_backstop_rules(daemon);
    daemon_reloaded(daemon, NULL);
}

static void begin_again(struct daemon_rules *rules)
{
    struct error err = ERROR_INIT;
    if (!start_thread(rules, &err))
        tell_bad(rules->daemon, &err);
}

static void on_read(uv_async_t *async)
{
    struct daemon_rules *rules = async->data;
    struct load *load = rules->load;
    if (load == NULL)
        return;
    pthread_mutex_lock(&load->lock); /* the thread is out of it when we are in */
    bool done = load->done;
    pthread_mutex_unlock(&load->lock);
    if (!done)
        return;
    rules->load = NULL;
    if (load->admin != NULL) {
        replace(rules->daemon, load->admin);
        load->admin = NULL;
    } else {
        tell_bad(rules->daemon, &load->problem);
    }
    free_load(load);
    for (; rules->owed > 1; rules->owed--)
        daemon_reloaded(rules->daemon, rules->daemon->rules_problem);
    if (rules->owed > 0) {
        rules->owed = 0;
        begin_again(rules);
    }
}

void daemon_rules_reload(struct daemon *daemon)
{
    if (daemon->rules->load != NULL)
        daemon->rules->owed++;
    else
        begin_again(daemon->rules);
}

/* What --rules names is no file of rules: a bad value of an option, with which no later start would fare better. */
static enum error_code blame_option(struct error *err)
{
    if (err->code == ERROR_NOT_FOUND || err->code == ERROR_FORMAT || err->code == ERROR_TOO_LARGE) {
        struct error why = *err;
        error_set(err, ERROR_BAD_VALUE, "--rules: %s; give the path of a file, or leave --rules out for %s",
                  why.message, admin_path());
    }
    return err->code;
}

enum error_code daemon_rules_load(struct daemon *daemon, struct error *err)
{
    struct admin admin;
    struct error own = ERROR_INIT;
    err = err != NULL ? err : &own;
    enum error_code code = admin_load(daemon->rules_path, &admin, err);
    if (code != ERROR_NONE)
        return daemon->rules_path != NULL ? blame_option(err) : code;
    daemon->admin = memory_new(sizeof *daemon->admin);
    *daemon->admin = admin;
    daemon->rules = memory_new(sizeof *daemon->rules);
    daemon->rules->daemon = daemon;
    uv_async_init(&daemon->loop, &daemon->rules->async, on_read);
    daemon->rules->async.data = daemon->rules;
    uv_unref((uv_handle_t *)&daemon->rules->async);
    return ERROR_NONE;
}

enum error_code daemon_rules_allow_start(const struct daemon *daemon, uid_t uid, size_t live, struct error *err)
{
    const struct rules *rules = &daemon->admin->rules;
    if (live < rules->runs_per_user)
        return ERROR_NONE;
    return error_set(
        err, ERROR_FORBIDDEN,
        "uid %u has %zu live run%s, and runs_per_user = %llu of %s allows no more; end one first: kldumpctl "
        "stop RUN",
        (unsigned)uid, live, live == 1 ? "" : "s", (unsigned long long)rules->runs_per_user,
        daemon->admin->path != NULL ? daemon->admin->path : "the rules, where the admin wrote none,");
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void daemon_rules_end(struct daemon *daemon)
{
    struct daemon_rules *rules = daemon->rules;
    daemon->rules = NULL;
    if (rules == NULL)
        return;
    struct load *load = rules->load;
    if (load != NULL) {
        pthread_mutex_lock(&load->lock);
        load->rules = NULL;
        bool done = load->done;
        pthread_mutex_unlock(&load->lock);
        if (done)
            free_load(load);
    }
    uv_close((uv_handle_t *)&rules->async, on_closed);
}

void daemon_rules_free(struct daemon *daemon)
{
    free_admin(daemon->admin);
    daemon->admin = NULL;
}
