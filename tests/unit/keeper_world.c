#include "keeper_world.h"

#include "sys/cgroup_control.h"
#include "sys/kill_tree.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

char *keeper_world_program;
char *keeper_world_own_program;
bool keeper_world_cgroups;

int64_t keeper_world_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void make_cookie(char cookie[20])
{
    uint64_t chance;
    assert_int_equal(getrandom(&chance, sizeof chance, 0), sizeof chance);
    snprintf(cookie, 20, "%016llx", (unsigned long long)chance);
}

size_t keeper_world_survivors(const char *cookie)
{
    struct process_list all = {0};
    size_t count = 0;
    assert_true(process_snapshot(&all));
    for (size_t i = 0; i < all.count; i++)
        if (process_is_alive(&all.items[i]) && process_has_environment(all.items[i].pid, KILL_TREE_COOKIE, cookie)) {
            struct process again; /* the keeper itself carries it too; it is not of the run */
            if (strcmp(all.items[i].comm, "kldump-keeper") != 0 && process_read(all.items[i].pid, &again) &&
                process_is_alive(&again))
                count++;
        }
    process_list_fini(&all);
    return count;
}

/* Reads `count` lines "ready" from the tree. */
static void wait_ready(int fd, int count)
{
    int lines = 0;
    char byte;
    while (lines < count) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        assert_true(poll(&wait, 1, 4000) > 0);
        assert_int_equal(read(fd, &byte, 1), 1);
        lines += byte == '\n';
    }
}

enum error_code keeper_world_spawn(struct keeper_world_run *run, bool cgroup, char *const *command, struct error *err)
{
    struct list environment = {0};
    list_add_all(&environment, environ);
    list_environment_set(&environment, "NOTIFY_SOCKET", "/nowhere");
    list_environment_set(&environment, "LISTEN_FDS", "1");
    make_cookie(run->cookie);
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct keeper_plan plan = {
        .program = keeper_world_program,
        .run_name = "unit",
        .cookie = run->cookie,
        .command = command,
        .environment = &environment,
        .directory = "/",
        .out_fd = out[1],
        .err_fd = out[1],
        .no_cgroup = !cgroup,
    };
    enum error_code code = keeper_spawn(&plan, &run->keeper, err);
    close(out[1]);
    run->out = out[0];
    list_fini(&environment);
    return code;
}

bool keeper_world_expect(struct keeper_world_run *run, enum keeper_kind kind, int limit_ms,
                         struct keeper_message *message)
{
    int64_t end = keeper_world_now_ns() + (int64_t)limit_ms * 1000000;
    for (;;) {
        int got = keeper_receive(&run->keeper, message);
        if (got == 1 && message->kind == kind)
            return true;
        if (got < 0 || (got == 0 && keeper_world_now_ns() > end))
            return false;
        if (got == 0) {
            keeper_send(&run->keeper, KEEPER_HEARTBEAT, NULL);
            struct pollfd wait = {.fd = run->keeper.channel_fd, .events = POLLIN};
            poll(&wait, 1, 100);
        }
    }
}

void keeper_world_start(struct keeper_world_run *run, bool cgroup, char *const *command, int ready)
{
    struct error err = ERROR_INIT;
    struct keeper_message message;
    if (keeper_world_spawn(run, cgroup, command, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    if (!keeper_world_expect(run, KEEPER_STARTED, 3000, &message))
        fail_msg("no STARTED: %d %s", message.value, message.text);
    run->main_pid = message.pid;
    run->rehearsed_ns = message.kill_ns;
    assert_int_equal(message.cgroup_error, 0);
    assert_true(message.kill_ns > 0 && message.kill_ns < 2000000000);
    assert_int_equal(run->keeper.cgroup.kind != CGROUP_NONE, cgroup);
    run->cgroup_path[0] = '\0';
    if (cgroup)
        snprintf(run->cgroup_path, sizeof run->cgroup_path, "%s", run->keeper.cgroup.path);
    wait_ready(run->out, ready);
}

void keeper_world_start_shell(struct keeper_world_run *run, bool cgroup, const char *script, int ready)
{
    char *command[] = {"sh", "-c", (char *)script, NULL};
    keeper_world_start(run, cgroup, command, ready);
}

/* Every process of the tree holds the writing end, also one without a cookie. */
static void check_output_ends(const struct keeper_world_run *run)
{
    char bytes[4096];
    ssize_t got;
    do {
        struct pollfd wait = {.fd = run->out, .events = POLLIN};
        assert_true(poll(&wait, 1, 1000) > 0);
        got = read(run->out, bytes, sizeof bytes);
    } while (got > 0);
    assert_int_equal(got, 0);
}

void keeper_world_finish(struct keeper_world_run *run)
{
    assert_true(keeper_fini(&run->keeper, 3000));
    assert_int_equal(keeper_world_survivors(run->cookie), 0);
    check_output_ends(run);
    if (run->cgroup_path[0])
        assert_int_equal(access(run->cgroup_path, F_OK), -1);
    close(run->out);
}

bool keeper_world_init(void)
{
    keeper_world_own_program = realpath("/proc/self/exe", NULL);
    keeper_world_program = realpath("kldump-keeper", NULL);
    if (!keeper_world_own_program || !keeper_world_program) {
        fprintf(stderr, "kldump-keeper is not in the working folder\n");
        return false;
    }
    struct cgroup cgroup;
    int64_t took_ns;
    char cookie[20];
    snprintf(cookie, sizeof cookie, "%08d", (int)getpid()); /* several tests run at a time */
    cgroup_make("probe", cookie, getpid(), &cgroup);
    keeper_world_cgroups = cgroup.kind != CGROUP_NONE && cgroup_control_rehearse(cgroup.directory_fd, &took_ns) == 0;
    print_message("%s\n", cgroup.guarantee);
    cgroup_fini(&cgroup);
    return true;
}
