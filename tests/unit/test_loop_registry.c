/* The register over real sockets: a guard that calls in, speaks, goes; and everything that a hostile one can send. */
#include "loop_helper.h"

#include "json/json.h"
#include "loop/registry.h"
#include "sys/passing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define RUN "{\"name\":\"other\",\"uid\":4242,\"guard_pid\":1,\"state\":\"%s\"}"

/* In place of libuv's: the call that fails, counted down; 0: none. */
static int poll_fails_at;

int uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd)
{
    int (*real)(uv_loop_t *, uv_poll_t *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "uv_poll_init");
    return poll_fails_at > 0 && --poll_fails_at == 0 ? UV_ENOMEM : real(loop, poll, fd);
}

struct fixture {
    uv_loop_t loop;
    struct registry *registry;
    char *folder, path[300];
    int listener, folder_fd, control_fd;
    unsigned changed, gone;
    char state[32], gone_name[65];
    bool forbid;
};

static void on_changed(struct registry_entry *entry, void *user)
{
    struct fixture *f = user;
    const char *state = "?";
    f->changed++;
    json_get_string(entry->run, "state", &state, NULL);
    snprintf(f->state, sizeof f->state, "%s", state);
}

static void on_gone(struct registry_entry *entry, void *user)
{
    struct fixture *f = user;
    f->gone++;
    snprintf(f->gone_name, sizeof f->gone_name, "%s", entry->name);
}

static enum error_code on_admit(uid_t uid, gid_t gid, const gid_t *groups, size_t count, void *user, struct error *err)
{
    struct fixture *f = user;
    assert_int_equal(uid, geteuid());
    assert_int_equal(gid, getegid());
    assert_int_equal(count, getgroups(0, NULL));
    assert_non_null(groups);
    return f->forbid ? error_set(err, ERROR_FORBIDDEN, "rule") : ERROR_NONE;
}

static void make_path(struct fixture *f, char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/%s", f->folder, name);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uv_loop_init(&f->loop);
    f->folder = loop_folder();
    make_path(f, f->path, sizeof f->path, "register");
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/control", f->folder);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&address, sizeof address), 0);
    f->folder_fd = open(f->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    f->control_fd = open(address.sun_path, O_PATH | O_CLOEXEC);
    struct registry_options options = {.path = f->path,
                                       .descriptor = -1,
                                       .mode = 0600,
                                       .admit = on_admit,
                                       .changed = on_changed,
                                       .gone = on_gone,
                                       .user = f};
    assert_int_equal(registry_open(&f->loop, &options, &f->registry, NULL), ERROR_NONE);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char path[400];
    registry_close(f->registry);
    loop_end(&f->loop);
    assert_int_equal(access(f->path, F_OK), -1); /* gone with it */
    close(f->listener);
    close(f->folder_fd);
    close(f->control_fd);
    make_path(f, path, sizeof path, "control");
    unlink(path);
    rmdir(f->folder);
    free(f->folder);
    free(f);
    return 0;
}

/* ---- the guard's side ---- */

static int call(struct fixture *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", f->path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(struct fixture *f, int fd, const char *text, size_t descriptors)
{
    const int both[] = {f->folder_fd, f->control_fd, f->folder_fd, f->control_fd};
    assert_int_equal(passing_send(fd, text, strlen(text), both, descriptors, NULL), ERROR_NONE);
}

static void say_first(struct fixture *f, int fd, const char *name, const char *state)
{
    char text[512];
    snprintf(text, sizeof text, "{\"version\":1,\"name\":\"%s\",\"run\":" RUN "}", name, state);
    say(f, fd, text, 2);
}

/* The answer, or "" for the end. */
static const char *answer(struct fixture *f, int fd)
{
    static char text[4096];
    size_t length = 0;
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    enum error_code code;
    while ((code = passing_receive(fd, 0, text, sizeof text - 1, &length, NULL, NULL, NULL)) == ERROR_BUSY &&
           loop_now_ms() < end)
        loop_turn(&f->loop, fd);
    assert_int_equal(code, ERROR_NONE);
    text[length] = '\0';
    return text;
}

static int register_run(struct fixture *f, const char *name)
{
    int fd = call(f);
    say_first(f, fd, name, "armed");
    assert_string_equal(answer(f, fd), "{\"ok\":true}");
    return fd;
}

static void turns(struct fixture *f, uint64_t ms)
{
    uint64_t end = loop_now_ms() + ms;
    while (loop_now_ms() < end)
        loop_turn(&f->loop, -1);
}

static void until_changed(struct fixture *f, unsigned count)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (f->changed < count && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(f->changed, count);
}

static void until_gone(struct fixture *f, unsigned count)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (f->gone < count && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(f->gone, count);
}

/* ---- tests ---- */

static void test_happy(void **state)
{
    struct fixture *f = *state;
    struct stat status;
    assert_int_equal(stat(f->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_null(registry_first(f->registry));
    int fd = register_run(f, "run-1");
    assert_int_equal(f->changed, 1);
    struct registry_entry *entry = registry_find(f->registry, "run-1", geteuid());
    assert_non_null(entry);
    assert_ptr_equal(entry, registry_first(f->registry));
    assert_int_equal(entry->pid, getpid());
    assert_int_equal(entry->uid, geteuid());
    assert_true(entry->pidfd >= 0);
    assert_int_equal(stat(f->folder, &status), 0);
    assert_int_equal(entry->device, status.st_dev);
    uint64_t number;
    const char *name;
    assert_int_equal(json_get_u64(entry->run, "uid", &number, NULL), ERROR_NONE);
    assert_int_equal(number, geteuid()); /* not what it said */
    assert_int_equal(json_get_u64(entry->run, "guard_pid", &number, NULL), ERROR_NONE);
    assert_int_equal(number, getpid());
    assert_int_equal(json_get_string(entry->run, "name", &name, NULL), ERROR_NONE);
    assert_string_equal(name, "run-1");
    say(f, fd, "{\"run\":{\"state\":\"dumping\"}}", 0);
    until_changed(f, 2);
    assert_string_equal(f->state, "dumping");
    say(f, fd, "{\"run\":{\"state\":\"ended\"}}", 0);
    close(fd);
    until_gone(f, 1);
    assert_string_equal(f->state, "ended"); /* the last word counts */
    assert_string_equal(f->gone_name, "run-1");
    assert_null(registry_first(f->registry));
}

static void test_find(void **state)
{
    struct fixture *f = *state;
    int a = register_run(f, "same"), b = register_run(f, "same"), c = register_run(f, "third");
    assert_ptr_equal(registry_find(f->registry, "same", geteuid()), registry_first(f->registry));
    assert_ptr_equal(registry_find(f->registry, "same", 4242), registry_first(f->registry));
    assert_null(registry_find(f->registry, "none", geteuid()));
    close(a);
    until_gone(f, 1);
    assert_ptr_equal(registry_find(f->registry, "same", geteuid()), registry_first(f->registry));
    close(b);
    close(c);
    until_gone(f, 3);
}

/* Without a turn of the loop, which may see the end of the guard before what it said. */
static void test_hear(void **state)
{
    struct fixture *f = *state;
    registry_hear(NULL, getpid());
    registry_hear(f->registry, getpid());
    int fd = register_run(f, "run-1");
    say(f, fd, "{\"run\":{\"state\":\"stopping\"}}", 0);
    say(f, fd, "{\"run\":{\"state\":\"ended\"}}", 0);
    registry_hear(f->registry, getpid() + 1);
    assert_string_equal(f->state, "armed");
    registry_hear(f->registry, getpid());
    assert_string_equal(f->state, "ended");
    assert_int_equal(f->gone, 0);
    close(fd);
    registry_hear(f->registry, getpid());
    assert_int_equal(f->gone, 1);
    registry_hear(f->registry, getpid());
    assert_int_equal(f->changed, 3);
}

static void refused(struct fixture *f, const char *packet, size_t descriptors, const char *message)
{
    int fd = call(f);
    say(f, fd, packet, descriptors);
    const char *text = answer(f, fd);
    if (strstr(text, message) == NULL)
        fail_msg("%.100s: \"%s\" instead of \"%s\"", packet, text, message);
    assert_string_equal(answer(f, fd), "");
    close(fd);
    assert_null(registry_first(f->registry));
    assert_int_equal(f->changed, 0);
    assert_int_equal(f->gone, 0);
}

static void test_broken_first(void **state)
{
    struct fixture *f = *state;
    refused(f, "{\"version\":2,\"name\":\"a\",\"run\":{}}", 2, "version 2");
    refused(f, "{\"version\":\"x\",\"name\":\"a\",\"run\":{}}", 2, "version");
    refused(f, "{\"version\":1,\"name\":\"../a\",\"run\":{}}", 2, "no name of a run");
    refused(f, "{\"version\":1,\"name\":\"a\",\"run\":[]}", 2, "run");
    refused(f, "{\"version\":1,\"name\":\"a\"}", 2, "run");
    refused(f, "{\"version\":1,\"version\":1,\"name\":\"a\",\"run\":{}}", 2, "version");
    refused(f, "{\"version\":1,\"name\":\"a\",\"run\":{}} x", 2, "protocol");
    refused(f, "\xff\xfe", 2, "protocol");
    refused(f, "{\"version\":1,\"name\":\"a\",\"run\":{}}", 0, "0 descriptors came");
    refused(f, "{\"version\":1,\"name\":\"a\",\"run\":{}}", 1, "1 descriptors came");
    refused(f, "{\"version\":1,\"name\":\"a\",\"run\":{}}", 4, "4 descriptors came");
}

static void test_deep(void **state)
{
    struct fixture *f = *state;
    char text[8192] = "{\"version\":1,\"name\":\"a\",\"run\":";
    for (int i = 0; i < 3000; i++)
        strcat(text, "[");
    refused(f, text, 2, "protocol");
}

static void test_too_long(void **state)
{
    struct fixture *f = *state;
    char *text = malloc(REGISTRY_PACKET_MAX + 2);
    memset(text, ' ', REGISTRY_PACKET_MAX + 1);
    text[REGISTRY_PACKET_MAX + 1] = '\0';
    refused(f, text, 2, "more than 65536 bytes");
    free(text);
}

static void wrong_descriptors(struct fixture *f, int first, int second, const char *message)
{
    int fd = call(f), both[] = {first, second};
    const char *packet = "{\"version\":1,\"name\":\"a\",\"run\":{}}";
    assert_int_equal(passing_send(fd, packet, strlen(packet), both, 2, NULL), ERROR_NONE);
    assert_non_null(strstr(answer(f, fd), message));
    close(fd);
    assert_null(registry_first(f->registry));
}

static void test_wrong_descriptors(void **state)
{
    struct fixture *f = *state;
    int file = open("/proc/self/stat", O_PATH | O_CLOEXEC);
    int readable = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int unsure = open(f->folder, O_PATH | O_CLOEXEC); /* a folder, but the descriptor does not say so */
    wrong_descriptors(f, file, f->control_fd, "must be a folder");
    wrong_descriptors(f, readable, f->control_fd, "must be a folder");
    wrong_descriptors(f, unsure, f->control_fd, "must be a folder");
    wrong_descriptors(f, f->folder_fd, f->folder_fd, "must be a Unix socket's file");
    wrong_descriptors(f, f->folder_fd, file, "must be a Unix socket's file");
    wrong_descriptors(f, f->folder_fd, f->listener, "must be a Unix socket's file");
    close(file);
    close(readable);
    close(unsure);
}

static void test_broken_later(void **state)
{
    struct fixture *f = *state;
    int fd = register_run(f, "a");
    say(f, fd, "{\"run\":7}", 0);
    assert_non_null(strstr(answer(f, fd), "protocol"));
    assert_int_equal(f->gone, 1);
    close(fd);
    fd = register_run(f, "b");
    /* a descriptor nobody asked for; kernels that know SO_PASSRIGHTS do not even send it */
    if (passing_send(fd, "{\"run\":{}}", 10, &f->folder_fd, 1, NULL) != ERROR_NONE)
        say(f, fd, "{}", 0);
    assert_non_null(strstr(answer(f, fd), "protocol"));
    assert_int_equal(f->gone, 2);
    close(fd);
}

static void test_forbidden(void **state)
{
    struct fixture *f = *state;
    f->forbid = true;
    int fd = call(f);
    assert_non_null(strstr(answer(f, fd), "{\"error\":\"forbidden\",\"message\":\"rule\"}"));
    close(fd);
    assert_null(registry_first(f->registry));
}

/* Whoever connected is gone and has left the connection to another: nobody to hold. */
static void test_left_connection(void **state)
{
    struct fixture *f = *state;
    int pair[2], got[PASSING_MAX];
    char byte;
    size_t length, count;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = call(f);
        passing_send(pair[1], "x", 1, &fd, 1, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(passing_receive(pair[0], 0, &byte, 1, &length, got, &count, NULL), ERROR_NONE);
    assert_int_equal(count, 1);
    assert_non_null(strstr(answer(f, got[0]), "must itself be connected"));
    close(got[0]);
    close(pair[0]);
    close(pair[1]);
}

/* Its process is the guard, not whoever has inherited its connection. */
static void test_a_killed_guard_is_gone_although_its_connection_is_not(void **state)
{
    struct fixture *f = *state;
    int pair[2], got[PASSING_MAX];
    char byte;
    size_t length, count;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = call(f);
        say_first(f, fd, "left", "armed");
        passing_send(pair[1], "x", 1, &fd, 1, NULL);
        pause();
        _exit(0);
    }
    until_changed(f, 1);
    assert_non_null(registry_find(f->registry, "left", geteuid()));
    assert_int_equal(passing_receive(pair[0], 0, &byte, 1, &length, got, &count, NULL), ERROR_NONE);
    assert_int_equal(count, 1);
    say(f, got[0], "{\"run\":{\"state\":\"sealing\"}}", 0); /* its last word lies there still */
    assert_int_equal(kill(child, SIGKILL), 0);
    until_gone(f, 1);
    assert_string_equal(f->gone_name, "left");
    assert_string_equal(f->state, "sealing");
    assert_null(registry_first(f->registry));
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(got[0]);
    close(pair[0]);
    close(pair[1]);
}

/* No memory, no room in the kernel: who cannot be watched is refused, and the next one is let in. */
static void test_a_connection_that_cannot_be_watched_is_refused(void **state)
{
    struct fixture *f = *state;
    for (int which = 1; which <= 2; which++) {
        poll_fails_at = which;
        int fd = call(f);
        assert_non_null(strstr(answer(f, fd), "cannot be watched"));
        assert_string_equal(answer(f, fd), "");
        close(fd);
    }
    poll_fails_at = 0;
    assert_null(registry_first(f->registry));
    close(register_run(f, "a"));
    until_gone(f, 1);
}

static void test_silent(void **state)
{
    struct fixture *f = *state;
    int fd = call(f);
    assert_non_null(strstr(answer(f, fd), "timeout"));
    close(fd);
}

static void test_cap(void **state)
{
    struct fixture *f = *state;
    static int fds[REGISTRY_PER_UID + 1];
    for (int i = 0; i < REGISTRY_PER_UID; i++) {
        fds[i] = call(f);
        turns(f, 0);
        loop_turn(&f->loop, -1);
    }
    fds[REGISTRY_PER_UID] = call(f);
    assert_non_null(strstr(answer(f, fds[REGISTRY_PER_UID]), "256 guards of user"));
    close(fds[0]);
    turns(f, 50);
    close(fds[REGISTRY_PER_UID]);
    fds[0] = register_run(f, "again"); /* his seconds are over or not: it is heard in the end */
    for (int i = 0; i < REGISTRY_PER_UID; i++)
        close(fds[i]);
    until_gone(f, 1);
}

/* One that never stops talking: the loop stays free, and it is heard again later. */
static void test_flood(void **state)
{
    struct fixture *f = *state;
    int fd = register_run(f, "flood");
    char text[32768] = "{\"run\":{\"state\":\"dumping\",\"x\":\"";
    memset(text + strlen(text), 'x', sizeof text - strlen(text) - 4);
    memcpy(text + sizeof text - 4, "\"}}", 4);
    uint64_t end = loop_now_ms() + 1500, turn_ms = 0;
    uint64_t sent = 0;
    while (loop_now_ms() < end) {
        while (passing_send(fd, text, sizeof text - 1, NULL, 0, NULL) == ERROR_NONE)
            sent++;
        uint64_t begin = loop_now_ms();
        uv_run(&f->loop, UV_RUN_NOWAIT);
        uint64_t took = loop_now_ms() - begin;
        turn_ms = took > turn_ms ? took : turn_ms;
        poll(NULL, 0, 1);
    }
    assert_true(turn_ms < 500);
    assert_true(f->changed > 10);           /* it was heard */
    assert_true(f->changed < 3 * 128 + 10); /* 4 MiB a second of 32 KiB packets */
    close(fd);
    until_gone(f, 1); /* after what it had still to say */
}

static void test_stale_path(void **state)
{
    struct fixture *f = *state;
    struct registry *second = NULL;
    struct error err = ERROR_INIT;
    char path[400];
    struct registry_options options = {.path = path, .descriptor = -1, .mode = 0666};
    make_path(f, path, sizeof path, "other");
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(registry_open(&f->loop, &options, &second, &err), ERROR_EXISTS);
    unlink(path);
    int dead = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    assert_int_equal(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
    close(dead);
    assert_int_equal(registry_open(&f->loop, &options, &second, &err), ERROR_NONE);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0666);
    registry_close(second);
    assert_int_equal(access(path, F_OK), -1);
    memset(path, 'x', 200);
    path[0] = '/';
    path[200] = '\0';
    assert_int_equal(registry_open(&f->loop, &options, &second, &err), ERROR_BAD_VALUE);
}

/* A closing daemon: no word of any entry. */
static void test_close(void **state)
{
    struct fixture *f = *state;
    int fd = register_run(f, "a"), silent = call(f);
    loop_turn(&f->loop, -1);
    registry_close(f->registry);
    f->registry = NULL;
    assert_int_equal(f->gone, 0);
    assert_string_equal(answer(f, fd), "");
    assert_string_equal(answer(f, silent), "");
    close(fd);
    close(silent);
    registry_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_happy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_find, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hear, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forbidden, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_killed_guard_is_gone_although_its_connection_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_connection_that_cannot_be_watched_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flood, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close, setup, teardown),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
