/* The watcher thread against a script of readings: when it pulls, when it does not, and what the loop sees meanwhile.
 */
#include "loop_helper.h"

#include "loop/clock.h"
#include "loop/watcher.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

enum { SCRIPT = 16 };
static const uint64_t mib = 1024 * 1024;

struct fixture {
    uv_loop_t loop;
    struct watcher *watcher;
    /* The script: the last entry is repeated. 0: not measurable. */
    uint64_t free_mib[SCRIPT];
    int script_length;

    pthread_mutex_t mutex;
    pthread_cond_t changed_condition;
    int reads, pulls, failing_pulls;
    int block_at; /* reading number that blocks until released; 0: none */
    bool blocked, released;
    bool lingers; /* the thread loses the processor for a moment when it has just pulled */
    uint64_t pulled_at_ns;

    int changes;
    bool told_pulled, told_first, told_failed, told_blocked;
    bool closed, ended;
};

static void fake_read(void *context, struct space_reading *ret_reading)
{
    struct fixture *f = context;
    pthread_mutex_lock(&f->mutex);
    int at = f->reads < f->script_length ? f->reads : f->script_length - 1;
    f->reads++;
    if (f->block_at != 0 && f->reads == f->block_at) {
        f->blocked = true;
        pthread_cond_broadcast(&f->changed_condition);
        while (!f->released)
            pthread_cond_wait(&f->changed_condition, &f->mutex);
    }
    uint64_t free_mib = f->free_mib[at];
    pthread_cond_broadcast(&f->changed_condition);
    pthread_mutex_unlock(&f->mutex);
    ret_reading->measurable = free_mib != 0;
    ret_reading->total_bytes = 100000 * mib;
    ret_reading->free_bytes = free_mib * mib;
}

static bool fake_pull(void *context)
{
    struct fixture *f = context;
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&f->mutex);
    bool works = f->pulls++ >= f->failing_pulls;
    f->pulled_at_ns = now_ns;
    bool lingers = f->lingers;
    pthread_cond_broadcast(&f->changed_condition);
    pthread_mutex_unlock(&f->mutex);
    if (lingers)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return works;
}

static void on_changed(void *user)
{
    struct fixture *f = user;
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    f->changes++;
    f->told_first |= snapshot.looks > 0;
    f->told_pulled |= snapshot.pulled;
    f->told_failed |= snapshot.pull_failed;
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
    uv_loop_init(&f->loop);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed_condition, NULL);
    *state = f;
    return 0;
}

/* Limits whose act level is 1000 + 1000 MiB/s x (1 ms + 99 ms) = 1100 MiB; looks 1 to 50 ms apart. */
static void start(struct fixture *f, const uint64_t *free_mib, int length)
{
    memcpy(f->free_mib, free_mib, (size_t)length * sizeof *free_mib);
    f->script_length = length;
    struct watcher_options options = {.limits = {.floor_bytes = 1000 * mib,
                                                 .worst_rate_bytes_per_s = 1000 * mib,
                                                 .kill_time_ns = 99000000,
                                                 .min_interval_ns = 1000000,
                                                 .max_interval_ns = 50000000},
                                      .read = fake_read,
                                      .read_context = f,
                                      .triggers = {{fake_pull, f}},
                                      .changed = on_changed,
                                      .user = f};
    struct error err = ERROR_INIT;
    if (watcher_start(&f->loop, &options, &f->watcher, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
}

static void release(struct fixture *f)
{
    pthread_mutex_lock(&f->mutex);
    f->released = true;
    pthread_cond_broadcast(&f->changed_condition);
    pthread_mutex_unlock(&f->mutex);
}

static void wait_for_reads(struct fixture *f, int reads)
{
    pthread_mutex_lock(&f->mutex);
    while (f->reads < reads)
        pthread_cond_wait(&f->changed_condition, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->watcher != NULL) {
        watcher_close(f->watcher, 5000, on_closed, f);
        loop_until(&f->loop, &f->closed);
        assert_true(f->ended);
    }
    loop_end(&f->loop);
    pthread_mutex_lock(&f->mutex); /* after the last unlock of a thread that nobody could join */
    pthread_mutex_unlock(&f->mutex);
    pthread_cond_destroy(&f->changed_condition);
    pthread_mutex_destroy(&f->mutex);
    free(f);
    return 0;
}

#define START(f, ...)                                            \
    do {                                                         \
        const uint64_t script[] = {__VA_ARGS__};                 \
        start(f, script, (int)(sizeof script / sizeof *script)); \
    } while (0)

static void test_fine_is_told_once(void **state)
{
    struct fixture *f = *state;
    START(f, 50000);
    loop_until(&f->loop, &f->told_first);
    wait_for_reads(f, 4);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(f->changes, 1);
    assert_int_equal(f->pulls, 0);
    assert_false(snapshot.pulled || snapshot.pull_failed);
    assert_int_equal(snapshot.reading.free_bytes, 50000 * mib);
    assert_int_equal(snapshot.act_bytes, 1100 * mib);
    assert_int_equal(snapshot.latest.level, SPACE_FINE);
}

static void test_floor_pulls_exactly_once(void **state)
{
    struct fixture *f = *state;
    START(f, 1200, 1150, 1100);
    loop_until(&f->loop, &f->told_pulled);
    wait_for_reads(f, 10); /* stays at the floor for several looks */
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(f->pulls, 1);
    assert_int_equal(snapshot.pulled_by.free_bytes, 1100 * mib);
    assert_true(snapshot.pulled_by.at_ns <= snapshot.decided_at_ns);
    assert_true(snapshot.decided_at_ns <= f->pulled_at_ns && f->pulled_at_ns <= snapshot.pulled_at_ns);
    assert_false(snapshot.pull_failed);
    print_message("decision to trigger: %.1f us\n", (double)(f->pulled_at_ns - snapshot.decided_at_ns) / 1000.0);
}

/* The end of a process that was killed at the floor may be known before the watcher's own news: its cause is not lost.
 */
static void test_an_order_is_known_with_its_effect(void **state)
{
    struct fixture *f = *state;
    f->lingers = true;
    START(f, 1200, 1100);
    pthread_mutex_lock(&f->mutex);
    while (f->pulls == 0)
        pthread_cond_wait(&f->changed_condition, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
    struct watcher_snapshot snapshot;
    watcher_settled(f->watcher, &snapshot);
    assert_true(snapshot.pulled);
    assert_int_equal(snapshot.pulled_by.free_bytes, 1100 * mib);
}

/* Of the looks, those within 4 GiB of the kill level are counted, until the order. */
static void test_near_looks(void **state)
{
    struct fixture *f = *state;
    START(f, 50000, 5197, 5195, 3000, 1100);
    loop_until(&f->loop, &f->told_pulled);
    wait_for_reads(f, 10);
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(snapshot.near_looks, 2);
    assert_int_equal(snapshot.act_inodes, 0);
}

static void test_second_look_is_better(void **state)
{
    struct fixture *f = *state;
    START(f, 1050, 5000);
    loop_until(&f->loop, &f->told_first);
    wait_for_reads(f, 4);
    assert_int_equal(f->pulls, 0);
}

static void test_unmeasurable_second_look_confirms(void **state)
{
    struct fixture *f = *state;
    START(f, 1050, 0);
    loop_until(&f->loop, &f->told_pulled);
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(snapshot.pulled_by.free_bytes, 1050 * mib);
    assert_int_equal(f->pulls, 1);
}

static void test_unmeasurable_alone_never_pulls(void **state)
{
    struct fixture *f = *state;
    START(f, 0);
    loop_until(&f->loop, &f->told_first);
    wait_for_reads(f, 4);
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(f->pulls, 0);
    assert_int_equal(snapshot.latest.level, SPACE_UNMEASURABLE);
    assert_int_equal(snapshot.reading.at_ns, 0);
    assert_true(snapshot.reading_age_ns > 0);
}

static void test_failed_trigger_is_tried_again(void **state)
{
    struct fixture *f = *state;
    f->failing_pulls = 3;
    START(f, 1000);
    loop_until(&f->loop, &f->told_pulled);
    wait_for_reads(f, 12);
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(f->pulls, 4);
    assert_true(snapshot.pulled);
    assert_false(snapshot.pull_failed);
}

static void test_look_now(void **state)
{
    struct fixture *f = *state;
    START(f, 90000);
    wait_for_reads(f, 1);
    uint64_t before = loop_now_ms();
    for (int i = 2; i <= 101; i++) { /* a hundred looks of 50 ms each would take 5 s */
        watcher_look_now(f->watcher);
        wait_for_reads(f, i);
    }
    assert_in_range(loop_now_ms() - before, 0, 4000);
    loop_until(&f->loop, &f->told_first);
}

static void on_tick(uv_timer_t *timer)
{
    int *ticks = timer->data;
    ++*ticks;
}

static void test_blocked_reading_blocks_nothing_else(void **state)
{
    struct fixture *f = *state;
    f->block_at = 3;
    START(f, 90000, 90000, 1000);
    wait_for_reads(f, 3);
    int ticks = 0;
    uv_timer_t timer;
    uv_timer_init(&f->loop, &timer);
    timer.data = &ticks;
    uv_timer_start(&timer, on_tick, 5, 5);
    struct watcher_snapshot first, second;
    watcher_get(f->watcher, &first);
    while (ticks < 20)
        loop_turn(&f->loop, -1);
    uint64_t before_ns = clock_now_ns();
    watcher_get(f->watcher, &second);
    assert_true(clock_now_ns() - before_ns < 50000000);
    assert_int_equal(second.looks, 2);
    assert_true(second.reading_age_ns >= first.reading_age_ns + 50000000);
    assert_true(second.blocked_ns >= first.blocked_ns + 50000000);
    assert_int_equal(f->reads, 3); /* one outstanding reading, never more */
    uv_close((uv_handle_t *)&timer, NULL);
    release(f);
    loop_until(&f->loop, &f->told_pulled); /* what it then says counts */
    watcher_get(f->watcher, &second);
    assert_int_equal(f->pulls, 1);
}

static int threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static void test_close_leaves_a_blocked_reading_behind(void **state)
{
    struct fixture *f = *state;
    int before = threads();
    f->block_at = 2;
    START(f, 90000, 1000);
    wait_for_reads(f, 2);
    watcher_close(f->watcher, 30, on_closed, f);
    f->watcher = NULL;
    loop_until(&f->loop, &f->closed);
    assert_false(f->ended);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_alive(&f->loop), 0);
    release(f); /* at the floor; but the run is over */
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (threads() > before && loop_now_ms() < end)
        poll(NULL, 0, 1);
    assert_int_equal(threads(), before);
    assert_int_equal(f->pulls, 0);
    assert_int_equal(f->reads, 2);
}

static void test_disarmed_never_pulls(void **state)
{
    struct fixture *f = *state;
    f->block_at = 1;
    START(f, 1000);
    wait_for_reads(f, 1);
    watcher_disarm(f->watcher);
    release(f);
    wait_for_reads(f, 10);
    loop_until(&f->loop, &f->told_first);
    struct watcher_snapshot snapshot;
    watcher_get(f->watcher, &snapshot);
    assert_int_equal(f->pulls, 0);
    assert_false(snapshot.pulled || snapshot.pull_failed);
    assert_int_equal(snapshot.latest.level, SPACE_FLOOR);
}

static void test_close_between_the_two_looks(void **state)
{
    struct fixture *f = *state;
    f->block_at = 2; /* the second look at the floor */
    START(f, 1000);
    wait_for_reads(f, 2);
    watcher_close(f->watcher, 5000, on_closed, f);
    f->watcher = NULL;
    release(f);
    loop_until(&f->loop, &f->closed);
    assert_true(f->ended);
    assert_int_equal(f->pulls, 0);
}

static void test_close_at_once(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 50; i++) {
        START(f, 90000);
        f->closed = false;
        watcher_close(f->watcher, 5000, on_closed, f);
        loop_until(&f->loop, &f->closed);
        assert_true(f->ended);
    }
    f->watcher = NULL;
}

static void test_cgroup_trigger(void **state)
{
    (void)state;
    int ends[2], bad = -1;
    char room[4] = "";
    assert_int_equal(pipe(ends), 0);
    assert_true(watcher_pull_cgroup(&ends[1]));
    assert_int_equal(read(ends[0], room, sizeof room), 1);
    assert_int_equal(room[0], '1');
    assert_false(watcher_pull_cgroup(&bad));
    close(ends[0]);
    close(ends[1]);
}

static void test_clock_text(void **state)
{
    (void)state;
    char text[CLOCK_TEXT];
    assert_string_equal(clock_text(0, text), "1970-01-01T00:00:00.000Z");
    assert_string_equal(clock_text(951782400123, text), "2000-02-29T00:00:00.123Z");
    assert_string_equal(clock_text(-1, text), "1969-12-31T23:59:59.999Z");
    assert_string_equal(clock_text(INT64_MAX, text), "9999-12-31T23:59:59.999Z");
    assert_string_equal(clock_text(INT64_MIN, text), "0000-01-01T00:00:00.000Z");
    uint64_t a = clock_now_ns(), b = clock_now_ns();
    assert_true(a <= b);
    assert_true(clock_wall_ms() > 1700000000000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_fine_is_told_once),
        T(test_floor_pulls_exactly_once),
        T(test_an_order_is_known_with_its_effect),
        T(test_near_looks),
        T(test_second_look_is_better),
        T(test_unmeasurable_second_look_confirms),
        T(test_unmeasurable_alone_never_pulls),
        T(test_failed_trigger_is_tried_again),
        T(test_look_now),
        T(test_blocked_reading_blocks_nothing_else),
        T(test_close_leaves_a_blocked_reading_behind),
        T(test_disarmed_never_pulls),
        T(test_close_between_the_two_looks),
        T(test_close_at_once),
        cmocka_unit_test(test_cgroup_trigger),
        cmocka_unit_test(test_clock_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
