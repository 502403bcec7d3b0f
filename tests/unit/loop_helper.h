/* For tests on a real loop: run it until something is so, and end it with nothing left open. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum { LOOP_PATIENCE_MS = 10000 };

static inline uint64_t loop_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* One turn; waits at most 10 ms for the loop's or `descriptor`'s next event (-1: the loop's alone). */
static inline void loop_turn(uv_loop_t *loop, int descriptor)
{
    uv_run(loop, UV_RUN_NOWAIT);
    int timeout = uv_loop_alive(loop) ? uv_backend_timeout(loop) : 10;
    struct pollfd descriptors[2] = {{uv_backend_fd(loop), POLLIN, 0}, {descriptor, POLLIN, 0}};
    poll(descriptors, 2, timeout >= 0 && timeout < 10 ? timeout : 10);
}

static inline void loop_until(uv_loop_t *loop, const volatile bool *condition)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (!*condition && loop_now_ms() < end)
        loop_turn(loop, -1);
    assert_true(*condition);
}

/* Nothing may be left: no handle, no request. */
static inline void loop_end(uv_loop_t *loop)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (uv_run(loop, UV_RUN_NOWAIT) != 0 && loop_now_ms() < end)
        loop_turn(loop, -1);
    assert_int_equal(uv_loop_close(loop), 0);
}

static inline void loop_set_true(void *user)
{
    *(bool *)user = true;
}

/* A folder of the test's own, 0700; the caller removes it. */
static inline char *loop_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *folder = malloc(256);
    snprintf(folder, 256, "%s/kldump-test-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    return folder;
}
