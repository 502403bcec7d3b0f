/* From the decision to kill until all of a run of 15 processes are dead, 100 times, in a cgroup and without; beside it
 * what the keeper's rehearsal had said. Another load on the machine shows in all of it, as dying takes processor time.
 */
#include "keeper_world.h"
#include "sys/kill_tree.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { REPETITIONS = 100, TREE = 8 };

static int compare_numbers(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void print_figures(const char *what, int64_t *taken_ns)
{
    qsort(taken_ns, REPETITIONS, sizeof taken_ns[0], compare_numbers);
    print_message("%s: median %.2f ms, 99th percentile %.2f ms, worst of %d %.2f ms\n", what,
                  (double)taken_ns[REPETITIONS / 2] / 1e6, (double)taken_ns[REPETITIONS * 99 / 100 - 1] / 1e6,
                  REPETITIONS, (double)taken_ns[REPETITIONS - 1] / 1e6);
}

static void measure_kill(bool cgroup)
{
    int64_t dead[REPETITIONS], told[REPETITIONS], rehearsed[REPETITIONS];
    for (int i = 0; i < REPETITIONS; i++) {
        struct keeper_world_run run;
        struct keeper_message message;
        keeper_world_start_shell(&run, cgroup,
                                 "for i in 1 2 3 4 5 6 7; do sh -c 'echo ready; sleep 100; :' & done; wait", 7);
        rehearsed[i] = run.rehearsed_ns;
        struct kill_tree tree;
        struct kill_tree_target target = {.ancestor = run.keeper.pid, .main = run.main_pid};
        kill_tree_init(&tree, &target);
        struct pollfd fds[64];
        size_t count = kill_tree_collect(&tree);
        assert_true(count >= TREE && count <= 64);
        for (size_t k = 0; k < count; k++)
            fds[k] = (struct pollfd){.fd = process_open(tree.members.items[k].pid), .events = POLLIN};
        int64_t start_ns = keeper_world_now_ns();
        keeper_send(&run.keeper, KEEPER_KILL, NULL);
        for (size_t k = 0; k < count; k++)
            assert_true(fds[k].fd < 0 || poll(&fds[k], 1, 3000) > 0);
        dead[i] = keeper_world_now_ns() - start_ns;
        assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
        told[i] = keeper_world_now_ns() - start_ns;
        for (size_t k = 0; k < count; k++)
            close(fds[k].fd);
        kill_tree_fini(&tree);
        keeper_world_finish(&run);
    }
    print_figures(cgroup ? "cgroup: decision to all of 15 dead" : "keeper alone: decision to all of 15 dead", dead);
    print_figures("    to GONE", told);
    print_figures("    rehearsed", rehearsed);
    assert_true(dead[REPETITIONS / 2] < 1000000000);
}

KEEPER_WORLD_BOTH(measure_kill)

int main(void)
{
    if (!keeper_world_init())
        return 1;
    const struct CMUnitTest tests[] = {KEEPER_WORLD_TEST(measure_kill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
