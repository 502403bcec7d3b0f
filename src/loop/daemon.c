/* Happy path: the runtime folder is made, its lock taken, the socket opened, systemd told; then the loop until a
 * signal. At the end whoever still waits for an answer is told that the daemon ends, the socket is removed, every
 * handle closed. The guards notice nothing.
 *
 * Another daemon holds the lock, the folder is not ours, the socket cannot be opened: one line, nothing is left. */
#include "config.h"
#include "loop/daemon.h"
#include "base/memory.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/file.h"
#include "sys/runtime.h"
#include "sys/systemd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DRAIN_MS = 1000 };

/* ---- the end ---- */

static void close_handles(struct daemon *daemon)
{
    for (size_t i = 0; daemon->signals_open && i < sizeof daemon->signals / sizeof daemon->signals[0]; i++)
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
    daemon->signals_open = false;
}

static void on_hangup(struct daemon *daemon)
{
    systemd_notify_reloading();
    daemon_rules_reload(daemon);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    if (daemon->ending)
        return;
    if (number == SIGHUP) {
        on_hangup(daemon);
        return;
    }
    if (number == SIGUSR1) {
        daemon_watch_look(daemon);
        return;
    }
    daemon->ending = true;
    daemon_service_end(daemon);
    daemon_start_end(daemon);
    daemon_relay_end(daemon);
    daemon_list_end(daemon);
    daemon_names_end(daemon);
    daemon_rules_end(daemon);
    daemon_watch_end(daemon);
    daemon_backstop_end(daemon);
    registry_close(daemon->registry);
    daemon->registry = NULL;
    daemon_keep_end(daemon);
    daemon_retain_end(daemon);
    control_close(daemon->control, DRAIN_MS, NULL, NULL);
    close_handles(daemon);
}

/* ---- the start ---- */

static enum error_code take_lock(struct daemon *daemon, struct error *err)
{
    char *path = memory_format("%s/control.lock", daemon->runtime);
    enum error_code code = file_lock(path, &daemon->lock_fd, err);
    free(path);
    if (code == ERROR_BUSY)
        code = error_set(err, ERROR_EXISTS,
                         "another kldumpd serves %s already; where kldumpctl does not reach it, its socket was "
                         "removed: end that one first",
                         daemon->runtime);
    return code;
}

static enum error_code open_socket(struct daemon *daemon, int descriptor, struct error *err)
{
    char *path = memory_format("%s/control", daemon->runtime);
    struct control_options options = {
        .path = path,
        .program = "kldumpd " PACKAGE_VERSION,
        .owner = geteuid(),
        .mode = daemon->serves_all ? 0666 : 0600,
        .descriptor = descriptor,
        .admit = daemon->serves_all ? daemon_access_admit : NULL,
        .gone = daemon_relay_gone,
        .user = daemon,
    };
    for (int method = 0; method < CONTROL_METHODS; method++)
        options.handlers[method] = daemon_access_request;
    enum error_code code = control_listen(&daemon->loop, &options, &daemon->control, err);
    free(path);
    return code;
}

static void on_registered(struct registry_entry *entry, void *user)
{
    daemon_keep_said(user, entry);
    daemon_backstop_changed(user, entry);
    daemon_tell(user);
}

static void on_unregistered(struct registry_entry *entry, void *user)
{
    daemon_last_keep(user, entry); /* asks the backstop about it */
    daemon_backstop_gone(user, entry);
    daemon_tell(user);
}

static enum error_code open_register(struct daemon *daemon, struct error *err)
{
    char *path = memory_format("%s/register", daemon->runtime);
    struct registry_options options = {
        .path = path,
        .descriptor = daemon->register_fd,
        .mode = daemon->serves_all ? 0666 : 0600,
        .admit = daemon->serves_all ? daemon_access_admit : NULL,
        .changed = on_registered,
        .gone = on_unregistered,
        .user = daemon,
    };
    daemon->register_fd = -1;
    enum error_code code = registry_open(&daemon->loop, &options, &daemon->registry, err);
    free(path);
    return code;
}

static void watch_signals(struct daemon *daemon)
{
    static const int watched[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        uv_signal_start(&daemon->signals[i], on_signal, watched[i]);
    }
    daemon->signals_open = true;
}

static enum error_code begin(struct daemon *daemon, struct error *err)
{
    int descriptor = -1;
    daemon->serves_all = geteuid() == 0;
    /* before anything is started that would inherit them */
    enum error_code code = systemd_take_sockets(&descriptor, &daemon->register_fd, err);
    if (code == ERROR_NONE)
        code = daemon_rules_load(daemon, err);
    if (code == ERROR_NONE)
        code = runtime_directory(daemon->serves_all ? RUNTIME_SYSTEM : RUNTIME_MAKE, &daemon->runtime, err);
    if (code == ERROR_NONE)
        code = take_lock(daemon, err);
    if (code == ERROR_NONE)
        daemon_runs_begin(daemon);
    if (code == ERROR_NONE)
        code = open_socket(daemon, descriptor > 0 ? descriptor : 0, err);
    if (code != ERROR_NONE)
        return code;
    code = open_register(daemon, err);
    if (code != ERROR_NONE) {
        control_close(daemon->control, 0, NULL, NULL);
        return code;
    }
    daemon_list_begin(daemon);
    daemon_watch_begin(daemon);
    watch_signals(daemon); /* before anybody is told that we serve */
    char text[sizeof daemon->told];
    daemon_service_describe(daemon, text, sizeof text);
    fprintf(stderr, "kldumpd: listening on %s/control; %s\n", daemon->runtime, text);
    daemon_service_begin(daemon);
    return ERROR_NONE;
}

/* Each client, each request to a guard and each guard that calls in is a descriptor; a run gets its user's limit. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int daemon_main(const char *rules_path)
{
    struct daemon daemon = {.lock_fd = -1, .register_fd = -1, .rules_path = rules_path};
    struct error err = ERROR_INIT;
    file_open_standard();
    raise_limit();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take away how our guards ended */
    signal(SIGHUP, SIG_IGN);  /* until we listen for it: the terminal's end is no reason to go */
    int failure = uv_loop_init(&daemon.loop);
    if (failure != 0) {
        fprintf(stderr, "kldumpd: no event loop: %s\n", uv_strerror(failure));
        return STATUS_INTERNAL;
    }
    enum error_code code = begin(&daemon, &err);
    if (code != ERROR_NONE) {
        fprintf(stderr, "kldumpd: %s\n", err.message);
        daemon_keep_end(&daemon);
        daemon_retain_end(&daemon);
        daemon_rules_end(&daemon);
    }
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    uv_loop_close(&daemon.loop);
    if (daemon.lock_fd >= 0)
        close(daemon.lock_fd);
    daemon_runs_end(&daemon);
    daemon_last_free(&daemon);
    daemon_rules_free(&daemon);
    free(daemon.rules_problem);
    free(daemon.runtime);
    return (int)error_status(code);
}
