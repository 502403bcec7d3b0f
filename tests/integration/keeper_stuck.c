/* A process that KILL does not end: it writes to a filesystem that is frozen. The keeper tells it with pid, state and
 * place, goes on, and tells GONE when it ends after all. Takes the 10 s of KEEPER_UNKILLABLE_MS; needs root and a loop
 * device. */
#include "keeper_world.h"
#include "sys/kill_tree.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static int mount_fd = -1;

/* Runs `script` with the folder as its first argument. */
static int shell(const char *script)
{
    char command[512];
    snprintf(command, sizeof command, "sh -c '%s' sh %s", script, folder);
    return system(command);
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/kldump-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    if (shell("cd $1 && mkdir m && truncate -s 32M image && mkfs.ext4 -q -F image && mount -o loop image m 2>&1") ==
        0) {
        char path[80];
        snprintf(path, sizeof path, "%s/m", folder);
        mount_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (mount_fd >= 0) {
        ioctl(mount_fd, FITHAW, 0); /* whatever happened: nothing may stay frozen */
        close(mount_fd);
        shell("umount $1/m || umount -l $1/m");
    }
    return shell("rm -rf $1");
}

/* The writer, once the kernel holds it. */
static pid_t wait_stuck(struct keeper_world_run *run)
{
    struct keeper_message message;
    struct kill_tree_target target = {.ancestor = run->keeper.pid, .main = run->main_pid};
    struct kill_tree tree;
    pid_t stuck = 0;
    kill_tree_init(&tree, &target);
    for (int tries = 0; !stuck && tries < 100; tries++) {
        keeper_world_expect(run, KEEPER_GONE, 30, &message); /* beats meanwhile */
        kill_tree_collect(&tree);
        for (size_t i = 0; i < tree.members.count; i++)
            if (tree.members.items[i].state == 'D')
                stuck = tree.members.items[i].pid;
    }
    kill_tree_fini(&tree);
    return stuck;
}

static void test_stuck(bool cgroup)
{
    if (mount_fd < 0) {
        const char *ci = getenv("CI");
        print_message("needs root, mkfs.ext4 and a loop device: not run\n");
        assert_false(ci && strcmp(ci, "true") == 0);
        skip();
    }
    struct keeper_world_run run;
    struct keeper_message message;
    char script[200];
    snprintf(script, sizeof script,
             "echo ready; while :; do dd if=/dev/zero of=%s/m/x bs=4k count=500 conv=notrunc 2>/dev/null; done",
             folder);
    keeper_world_start_shell(&run, cgroup, script, 1);
    assert_int_equal(ioctl(mount_fd, FIFREEZE, 0), 0);
    pid_t stuck = wait_stuck(&run);
    assert_true(stuck > 0);
    int64_t start_ns = keeper_world_now_ns();
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_UNKILLABLE, KEEPER_UNKILLABLE_MS + 3000, &message));
    assert_true(keeper_world_now_ns() - start_ns > (int64_t)KEEPER_UNKILLABLE_MS * 1000000);
    print_message("stuck: pid %d (%s), state %c, in %s\n", message.pid, message.comm, message.state, message.text);
    assert_int_equal(message.pid, stuck);
    assert_int_equal(message.state, 'D');
    assert_true(strlen(message.comm) > 0 && strlen(message.text) > 0);
    assert_int_equal(ioctl(mount_fd, FITHAW, 0), 0);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    assert_true(message.kill_ns > (int64_t)KEEPER_UNKILLABLE_MS * 1000000);
    keeper_world_finish(&run);
}

static void test_stuck_here(void **state)
{
    (void)state;
    test_stuck(keeper_world_cgroups);
}

int main(void)
{
    if (!keeper_world_init())
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_stuck_here, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
