/* The daemon's own records: written whole, read strictly, set aside when damaged, whatever is in their place. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "loop_helper.h"
#include "sys/file.h"
#include "sys/launch.h"
#include "sys/process.h"
#include "sys/run_json.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct daemon place;
static char *path, *aside;

static int setup(void **state)
{
    (void)state;
    memset(&place, 0, sizeof place);
    place.runtime = loop_folder();
    daemon_runs_begin(&place);
    path = memory_format("%s/owned/a.json", place.runtime);
    aside = memory_format("%s.damaged", path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    daemon_runs_end(&place);
    file_remove_all(place.runtime);
    free(place.runtime);
    free(path);
    free(aside);
    return 0;
}

/* Of a process that is ours and lives. */
static struct daemon_owned of_process(pid_t pid)
{
    struct process process;
    assert_true(process_read(pid, &process));
    struct daemon_owned owned = {.name = "a",
                                 .uid = 1001,
                                 .owner = "alice",
                                 .launched = memory_new(sizeof *owned.launched),
                                 .started_unix_ms = 1764470000123};
    *owned.launched = (struct launch_result){.pid = pid,
                                             .start_ticks = process.start_ticks,
                                             .pidfd = -1,
                                             .unit = "kldump-run-a.service",
                                             .cgroup = "/system.slice/kldump-run-a.service",
                                             .cgroup_inode = 4711};
    return owned;
}

static void write_one(pid_t pid)
{
    struct daemon_owned owned = of_process(pid);
    assert_int_equal(daemon_owned_write(&place, &owned, NULL), ERROR_NONE);
    daemon_owned_fini(&owned);
}

/* Reads; what was told on standard error is in `told`. */
static enum error_code read_told(struct daemon_owned *owned, struct error *err, char *told, size_t size)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int before = dup(STDERR_FILENO);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    enum error_code code = daemon_owned_read(&place, "a", owned, err);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    size_t length = fread(told, 1, size - 1, file);
    told[length] = '\0';
    fclose(file);
    return code;
}

static size_t lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* What is at `path` now is damaged: told in one line that names it, set aside, and missing from then on. */
static void check_damaged(const char *word)
{
    struct daemon_owned owned;
    struct error err = ERROR_INIT;
    char told[4096];
    assert_int_equal(read_told(&owned, &err, told, sizeof told), ERROR_FORMAT);
    assert_int_equal(lines(told), 1);
    assert_non_null(strstr(told, path));
    assert_non_null(strstr(told, "set aside"));
    if (word != NULL)
        assert_non_null(strstr(told, word));
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(faccessat(AT_FDCWD, aside, F_OK, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(read_told(&owned, &err, told, sizeof told), ERROR_NOT_FOUND);
    assert_string_equal(told, "");
}

static void put(const char *text, size_t length)
{
    assert_int_equal(file_replace(path, text, length, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
}

static void change(const char *from, const char *to)
{
    struct buffer text, changed;
    buffer_init(&text);
    buffer_init(&changed);
    assert_int_equal(file_read(path, 100000, &text, NULL), ERROR_NONE);
    char *at = strstr(text.data, from);
    assert_non_null(at);
    buffer_append(&changed, text.data, (size_t)(at - text.data));
    buffer_text(&changed, to);
    buffer_text(&changed, at + strlen(from));
    put(changed.data, changed.length);
    buffer_fini(&text);
    buffer_fini(&changed);
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    struct stat status;
    struct daemon_owned owned;
    write_one(getpid());
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    assert_string_equal(owned.name, "a");
    assert_string_equal(owned.owner, "alice");
    assert_string_equal(owned.end, "");
    assert_int_equal(owned.uid, 1001);
    assert_int_equal(owned.started_unix_ms, 1764470000123);
    assert_true(owned.this_boot);
    assert_true(owned.live);
    assert_int_equal(owned.launched->pid, getpid());
    assert_int_equal(owned.launched->pidfd, -1);
    assert_string_equal(owned.launched->unit, "kldump-run-a.service");
    assert_string_equal(owned.launched->cgroup, "/system.slice/kldump-run-a.service");
    assert_int_equal(owned.launched->cgroup_inode, 4711);
    text_copy(owned.end, sizeof owned.end, "backstop");
    assert_int_equal(daemon_owned_write(&place, &owned, NULL), ERROR_NONE);
    daemon_owned_fini(&owned);
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    assert_string_equal(owned.end, "backstop");
    daemon_owned_fini(&owned);
    daemon_owned_remove(&place, "a");
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NOT_FOUND);
}

static struct json *parsed(const char *text)
{
    struct json *json = NULL;
    assert_int_equal(json_parse(text, strlen(text), (struct json_limits){4096, JSON_DEPTH, 100}, &json, NULL),
                     ERROR_NONE);
    return json;
}

static void check_end(const struct daemon_owned *owned, const char *outcome, uint64_t status)
{
    const char *found, *state;
    uint64_t number;
    struct json *run = parsed("{\"state\":\"armed\",\"pid\":4711,\"exp\":\"e\"}");
    daemon_owned_end(owned, run);
    assert_int_equal(json_get_string(run, "outcome", &found, NULL), ERROR_NONE);
    assert_int_equal(json_get_string(run, "state", &state, NULL), ERROR_NONE);
    assert_int_equal(json_get_u64(run, "exit_status", &number, NULL), ERROR_NONE);
    assert_string_equal(found, outcome);
    assert_string_equal(state, "ended");
    assert_int_equal(number, status);
    assert_int_equal(json_type(json_member(run, "pid")), JSON_NULL);
    assert_int_equal(json_type(json_member(run, "exp")), JSON_NULL);
    json_free(run);
}

/* The guard's word before ours, ours before none; and it is there again for the next kldumpd. */
static void test_how_it_ended(void **state)
{
    (void)state;
    struct daemon_owned owned = of_process(getpid());
    struct json *run = parsed("{\"state\":\"ended\",\"outcome\":\"server-exited\",\"exit_status\":7,"
                              "\"message\":\"it\\u0007 ended\",\"started_at\":\"2026-11-30T08:00:00.000Z\"}");
    check_end(NULL, "guard-lost", 85);
    check_end(&owned, "guard-lost", 85);
    text_copy(owned.end, sizeof owned.end, "backstop");
    check_end(&owned, "floor", 83);
    owned.said = run_json_end_of(run);
    assert_non_null(owned.said);
    check_end(&owned, "server-exited", 7);
    assert_int_equal(daemon_owned_write(&place, &owned, NULL), ERROR_NONE);
    daemon_owned_fini(&owned);
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    check_end(&owned, "server-exited", 7);
    struct json *whole = daemon_owned_run(&owned);
    const char *text;
    assert_int_equal(json_get_string(whole, "name", &text, NULL), ERROR_NONE);
    assert_string_equal(text, "a");
    assert_int_equal(json_get_string(whole, "message", &text, NULL), ERROR_NONE);
    assert_string_equal(text, "it? ended");
    json_free(whole);
    json_free(run);
    daemon_owned_fini(&owned);
    change("\"outcome\": \"server-exited\"", "\"outcome\": \"none\"");
    check_damaged("outcome");
}

/* A guard may say anything. */
static void test_no_end(void **state)
{
    (void)state;
    static const char *const runs[] = {
        "{}",
        "[]",
        "{\"state\":\"armed\",\"outcome\":\"stopped\",\"exit_status\":0,\"message\":\"\"}",
        "{\"state\":\"ended\",\"outcome\":null,\"exit_status\":0}",
        "{\"state\":\"ended\",\"outcome\":\"none\",\"exit_status\":0}",
        "{\"state\":\"ended\",\"outcome\":\"stopped\",\"exit_status\":256}",
        "{\"state\":\"ended\",\"outcome\":\"stopped\",\"exit_status\":-1}",
        "{\"state\":\"ended\",\"outcome\":\"stopped\"}"};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct json *run = parsed(runs[i]);
        assert_null(run_json_end_of(run));
        json_free(run);
    }
}

static void test_a_guard_that_is_gone_is_not_live(void **state)
{
    (void)state;
    struct daemon_owned owned;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    write_one(child);
    kill(child, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT); /* a zombie */
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    assert_true(owned.this_boot);
    assert_false(owned.live);
    daemon_owned_fini(&owned);
    waitpid(child, NULL, 0);
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    assert_false(owned.live);
    daemon_owned_fini(&owned);
}

/* The pid is somebody's now, or the machine was booted since: never to be killed. */
static void test_of_another_boot_or_process_is_not_live(void **state)
{
    (void)state;
    struct daemon_owned owned;
    write_one(getpid());
    change("\"boot_id\": \"", "\"boot_id\": \"0");
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    assert_false(owned.this_boot);
    assert_false(owned.live);
    daemon_owned_fini(&owned);
    write_one(getpid());
    change("\"start_ticks\": ", "\"start_ticks\": 1");
    assert_int_equal(daemon_owned_read(&place, "a", &owned, NULL), ERROR_NONE);
    assert_true(owned.this_boot);
    assert_false(owned.live);
    daemon_owned_fini(&owned);
}

/* But for its last bytes, a blank and the bracket, every part of a record is damaged. */
static void test_cut_at_every_byte(void **state)
{
    (void)state;
    struct buffer text;
    buffer_init(&text);
    write_one(getpid());
    assert_int_equal(file_read(path, 100000, &text, NULL), ERROR_NONE);
    assert_true(text.length > 200);
    for (size_t length = 0; length < text.length - 1; length++) {
        put(text.data, length);
        check_damaged(NULL);
    }
    buffer_fini(&text);
}

static void test_wrong_content(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *word;
    } cases[] = {{"kldump.owned/1", "kldump.owned/2", "schema"},
                 {"\"name\": \"a\"", "\"name\": \"b\"", "of run \"b\""},
                 {"\"pid\": ", "\"pid\": -", "pid"},
                 {"\"pid\": ", "\"pid\": 9999999999999", "pid"},
                 {"\"pid\": ", "\"pid\": 0, \"x\": ", "pid"},
                 {"\"uid\": 1001", "\"uid\": 4294967295", "uid"},
                 {"\"uid\": 1001", "\"uid\": \"root\"", "uid"},
                 {"\"end\": \"\"", "\"end\": null", "end"},
                 {"\"unit\"", "\"unit\": \"\", \"unit\"", ""},
                 {"{", "[", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_one(getpid());
        change(cases[i].from, cases[i].to);
        check_damaged(cases[i].word);
    }
    put("\0\x01\xff\xfe\x80", 5);
    check_damaged(NULL);
}

static void test_a_unit_name_that_is_too_long(void **state)
{
    (void)state;
    char to[300] = "\"unit\": \"";
    memset(to + strlen(to), 'x', 200);
    write_one(getpid());
    change("\"unit\": \"", to);
    check_damaged("too long");
}

static void test_huge(void **state)
{
    (void)state;
    write_one(getpid());
    assert_int_equal(truncate(path, 1LL << 40), 0);
    check_damaged("larger");
}

static void test_a_folder_in_its_place(void **state)
{
    (void)state;
    write_one(getpid());
    for (int i = 0; i < 2; i++) { /* the second time over the first one's */
        unlink(path);
        char *below = memory_format("%s/below", path);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(mkdir(below, 0700), 0);
        free(below);
        check_damaged("regular");
    }
    write_one(getpid());
    assert_int_equal(truncate(path, 3), 0);
    check_damaged(NULL);
}

static void test_a_fifo_a_socket_and_a_link_in_its_place(void **state)
{
    (void)state;
    write_one(getpid());
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_damaged("regular");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    text_copy(address.sun_path, sizeof address.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    check_damaged("regular");
    close(listener);
    write_one(getpid());
    char *other = memory_format("%s/owned/other", place.runtime);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    check_damaged("link");
    assert_int_equal(link(other, path), 0);
    check_damaged("hard link");
    free(other);
}

static void test_another_owner(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    write_one(getpid());
    assert_int_equal(chown(path, 12345, 12345), 0);
    check_damaged("uid 12345");
}

/* Read again and again, it is told once. */
static void test_what_cannot_be_set_aside_is_told_once(void **state)
{
    (void)state;
    struct daemon_owned owned;
    struct error err = ERROR_INIT;
    char told[4096];
    write_one(getpid());
    put("x", 1);
    /* a full tree in the place of the new name, deeper than what is removed */
    char *deep = memory_copy(aside);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(mkdir(deep, 0700), 0);
        char *deeper = memory_format("%s/d", deep);
        free(deep);
        deep = deeper;
    }
    free(deep);
    assert_int_equal(read_told(&owned, &err, told, sizeof told), ERROR_FORMAT);
    assert_int_equal(lines(told), 1);
    assert_non_null(strstr(told, "cannot be renamed"));
    assert_int_equal(read_told(&owned, &err, told, sizeof told), ERROR_FORMAT);
    assert_string_equal(told, "");
    deep = memory_format("%s/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d", aside);
    assert_true(file_remove_all(deep));
    free(deep);
}

static void test_a_write_that_fails_leaves_the_old_one(void **state)
{
    (void)state;
    struct daemon_owned owned = of_process(getpid()), read;
    struct error err = ERROR_INIT;
    assert_int_equal(daemon_owned_write(&place, &owned, NULL), ERROR_NONE);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &none);
        text_copy(owned.end, sizeof owned.end, "backstop");
        enum error_code code = daemon_owned_write(&place, &owned, &err);
        _exit(code == ERROR_SYSTEM && strstr(err.message, path) != NULL ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(daemon_owned_read(&place, "a", &read, NULL), ERROR_NONE);
    assert_string_equal(read.end, "");
    daemon_owned_fini(&read);
    char *folder = memory_format("%s/owned", place.runtime);
    chmod(folder, 0755);
    assert_int_equal(daemon_owned_write(&place, &owned, &err), ERROR_FORBIDDEN);
    free(folder);
    daemon_owned_fini(&owned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_written_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_how_it_ended, setup, teardown),
        cmocka_unit_test(test_no_end),
        cmocka_unit_test_setup_teardown(test_a_guard_that_is_gone_is_not_live, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_another_boot_or_process_is_not_live, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_at_every_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_content, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_unit_name_that_is_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_huge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_folder_in_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_fifo_a_socket_and_a_link_in_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_set_aside_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_write_that_fails_leaves_the_old_one, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
