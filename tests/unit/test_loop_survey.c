/* The survey thread over real folders: what it counts, when it looks, what it says of a folder that was replaced and of
 * processes that work; and an end while a look hangs. */
#include "loop_helper.h"

#include "loop/survey.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct fixture {
    uv_loop_t loop;
    struct survey *survey;
    char *folder;
    char path[512]; /* of the dumps */
    int directory_fd;
    struct survey_options options;
    bool has_news, closed, ended;
    pid_t worker;
};

/* "R.INDEX": enough for a name here. */
static bool read_name(const char *name, uint64_t *ret_rank, uint64_t *ret_index)
{
    unsigned rank, index;
    if (sscanf(name, "%u.%u", &rank, &index) != 2)
        return false;
    *ret_rank = rank;
    *ret_index = index;
    return true;
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* locked by a test: the look hangs at a name */

static bool read_name_hanging(const char *name, uint64_t *ret_rank, uint64_t *ret_index)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return read_name(name, ret_rank, ret_index);
}

static void on_news(void *user)
{
    ((struct fixture *)user)->has_news = true;
}

static void on_closed(bool ended, void *user)
{
    struct fixture *f = user;
    f->closed = true;
    f->ended = ended;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct stat status;
    uv_loop_init(&f->loop);
    f->folder = loop_folder();
    snprintf(f->path, sizeof f->path, "%s/dumps", f->folder);
    assert_int_equal(mkdir(f->path, 0700), 0);
    f->directory_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fstat(f->directory_fd, &status), 0);
    f->options = (struct survey_options){.directory_fd = f->directory_fd,
                                         .directory = f->path,
                                         .device = status.st_dev,
                                         .inode = status.st_ino,
                                         .read_dump_name = read_name,
                                         .cgroup_fd = -1,
                                         .ancestor = getpid(),
                                         .step_ms = 20,
                                         .news = on_news,
                                         .user = f};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[600];
    if (f->worker > 0) {
        kill(f->worker, SIGKILL);
        waitpid(f->worker, NULL, 0);
    }
    if (f->survey != NULL) {
        survey_close(f->survey, 5000, on_closed, f);
        loop_until(&f->loop, &f->closed);
        assert_true(f->ended);
    }
    loop_end(&f->loop);
    close(f->directory_fd);
    snprintf(command, sizeof command, "rm -r '%s'", f->folder);
    assert_int_equal(system(command), 0);
    free(f->folder);
    free(f);
    return 0;
}

static void start(struct fixture *f)
{
    struct error err = ERROR_INIT;
    if (survey_start(&f->loop, &f->options, &f->survey, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
}

static void make_dump(struct fixture *f, const char *name)
{
    assert_int_equal(mkdirat(f->directory_fd, name, 0700), 0);
}

static void write_file(struct fixture *f, const char *name, size_t size)
{
    int fd = openat(f->directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

/* A look that began after this was called. */
static struct survey_result fresh(struct fixture *f)
{
    struct survey_result result;
    survey_ask(f->survey);
    assert_true(survey_wait(f->survey, LOOP_PATIENCE_MS));
    survey_get(f->survey, &result);
    return result;
}

static void test_counts_dump_files(void **state)
{
    struct fixture *f = *state;
    start(f);
    make_dump(f, "one");
    survey_open(f->survey, "one");
    assert_int_equal(fresh(f).written_bytes, 0);
    write_file(f, "one/0.5", 1000);
    write_file(f, "one/1.7", 10);
    write_file(f, "one/notes.txt", 77777);
    assert_int_equal(fresh(f).written_bytes, 1010);
    write_file(f, "one/0.5", 1500); /* the newest one still grows */
    assert_int_equal(fresh(f).written_bytes, 1510);
    write_file(f, "one/0.7", 1);
    write_file(f, "one/0.6", 20);
    write_file(f, "one/0.8", 300);
    write_file(f, "one/0.5", 1600); /* grew for the last time before 0.6 was begun */
    assert_int_equal(fresh(f).written_bytes, 1600 + 20 + 1 + 300 + 10);
    assert_int_equal(fresh(f).written_bytes, 1931);
    write_file(f, "one/0.8", 400);
    write_file(f, "one/1.8", 5);
    assert_int_equal(fresh(f).written_bytes, 2036);
    assert_true(f->survey != NULL);
    loop_until(&f->loop, &f->has_news);
}

/* Names in every order in which a folder can give them: each file counts once. */
static void test_counts_once(void **state)
{
    struct fixture *f = *state;
    char name[64];
    uint64_t sum = 0;
    start(f);
    make_dump(f, "many");
    survey_open(f->survey, "many");
    for (size_t i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "many/%zu.%zu", i % 4, 1 + i * 7919 / 4000 + i);
        write_file(f, name, 100 + i);
        sum += 100 + i;
        if (i % 57 == 0)
            assert_int_equal(fresh(f).written_bytes, sum);
    }
    assert_int_equal(fresh(f).written_bytes, sum);
    write_file(f, "many/200.1", 5); /* no such rank can be */
    assert_int_equal(fresh(f).written_bytes, sum);
}

static void test_dumps_add_up(void **state)
{
    struct fixture *f = *state;
    start(f);
    make_dump(f, "one");
    write_file(f, "one/0.1", 100);
    survey_open(f->survey, "one");
    assert_int_equal(fresh(f).written_bytes, 100);
    write_file(f, "one/0.2", 50);
    survey_shut(f->survey);
    assert_true(survey_wait(f->survey, LOOP_PATIENCE_MS)); /* one more look */
    survey_open(f->survey, "two");                         /* whose folder is not there yet */
    assert_int_equal(fresh(f).written_bytes, 150);
    make_dump(f, "two");
    write_file(f, "two/0.3", 7);
    assert_int_equal(fresh(f).written_bytes, 157);
}

static void test_looks_only_while_open(void **state)
{
    struct fixture *f = *state;
    struct survey_result first, second;
    start(f);
    make_dump(f, "one");
    poll(NULL, 0, 60);
    survey_get(f->survey, &first);
    assert_int_equal(first.looks, 0);
    survey_open(f->survey, "one");
    for (int i = 0; i < 3; i++) { /* by itself, again and again */
        f->has_news = false;
        loop_until(&f->loop, &f->has_news);
    }
    survey_shut(f->survey);
    assert_true(survey_wait(f->survey, LOOP_PATIENCE_MS));
    survey_get(f->survey, &first);
    assert_true(first.looks >= 3);
    poll(NULL, 0, 100);
    survey_get(f->survey, &second);
    assert_int_equal(first.looks, second.looks);
}

static void test_replaced_folder(void **state)
{
    struct fixture *f = *state;
    char moved[520];
    start(f);
    make_dump(f, "one");
    survey_open(f->survey, "one");
    assert_string_equal(fresh(f).lost, "");
    snprintf(moved, sizeof moved, "%s.old", f->path);
    assert_int_equal(rename(f->path, moved), 0);
    assert_non_null(strstr(fresh(f).lost, "cannot be reached"));
    assert_int_equal(mkdir(f->path, 0700), 0);
    assert_non_null(strstr(fresh(f).lost, "another folder"));
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(symlink("/proc", f->path), 0);
    assert_non_null(strstr(fresh(f).lost, "another filesystem"));
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(rename(moved, f->path), 0);
    assert_string_equal(fresh(f).lost, "");
}

static pid_t start_child(bool works)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)!write(ends[1], "1", 1);
        for (volatile unsigned i = 0; works; i++)
            ;
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static bool becomes_busy(struct fixture *f, uint64_t limit_ms)
{
    uint64_t end = loop_now_ms() + limit_ms;
    while (loop_now_ms() < end) {
        poll(NULL, 0, 1000); /* the usual distance of two looks */
        if (fresh(f).busy)
            return true;
    }
    return false;
}

static void test_busy(void **state)
{
    struct fixture *f = *state;
    f->options.step_ms = 60000; /* only when asked */
    start(f);
    f->worker = start_child(true);
    survey_open(f->survey, "one");
    assert_false(fresh(f).busy); /* nothing to compare with */
    assert_true(becomes_busy(f, LOOP_PATIENCE_MS));
}

static void test_idle_and_main_are_not_busy(void **state)
{
    struct fixture *f = *state;
    f->options.step_ms = 60000;
    f->worker = start_child(false);
    start(f);
    survey_open(f->survey, "one");
    fresh(f);
    assert_false(becomes_busy(f, 1500));
    kill(f->worker, SIGKILL);
    waitpid(f->worker, NULL, 0);
    survey_close(f->survey, 5000, on_closed, f);
    loop_until(&f->loop, &f->closed);
    f->closed = false;
    f->worker = start_child(true);
    f->options.main = f->worker; /* the same work by the main process proves nothing */
    start(f);
    survey_open(f->survey, "one");
    fresh(f);
    assert_false(becomes_busy(f, 1500));
}

static void test_close_leaves_a_hanging_look_behind(void **state)
{
    struct fixture *f = *state;
    f->options.read_dump_name = read_name_hanging;
    make_dump(f, "one");
    write_file(f, "one/0.1", 1);
    pthread_mutex_lock(&gate);
    start(f);
    survey_open(f->survey, "one");
    uint64_t begin = loop_now_ms();
    assert_false(survey_wait(f->survey, 50));
    assert_in_range(loop_now_ms() - begin, 49, 5000);
    assert_false(survey_wait(f->survey, 0));
    poll(NULL, 0, 20);
    survey_close(f->survey, 30, on_closed, f);
    f->survey = NULL;
    loop_until(&f->loop, &f->closed);
    assert_false(f->ended);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_alive(&f->loop), 0);
    pthread_mutex_unlock(&gate);
    poll(NULL, 0, 50); /* it ends by itself, and frees */
}

static void test_close_at_once(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 50; i++) {
        start(f);
        if (i % 2)
            survey_open(f->survey, "one");
        f->closed = false;
        survey_close(f->survey, 5000, on_closed, f);
        loop_until(&f->loop, &f->closed);
        assert_true(f->ended);
    }
    f->survey = NULL;
}

static void test_bad_folder(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_INIT;
    f->options.directory_fd = -1;
    assert_int_equal(survey_start(&f->loop, &f->options, &f->survey, &err), ERROR_SYSTEM);
    assert_null(f->survey);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_counts_dump_files),
        T(test_counts_once),
        T(test_dumps_add_up),
        T(test_looks_only_while_open),
        T(test_replaced_folder),
        T(test_busy),
        T(test_idle_and_main_are_not_busy),
        T(test_close_leaves_a_hanging_look_behind),
        T(test_close_at_once),
        T(test_bad_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
