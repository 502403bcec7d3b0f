/* Packets with descriptors: what comes over, what is too much, and that nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sys/passing.h"
#include "sys/slow.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { UID = 61001 };
static int ends[2];

static int setup(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return 0;
}

static void hang_up(int end)
{
    close(ends[end]);
    ends[end] = -1;
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static void wait_dropped(void)
{
    for (int i = 0; slow_count() > 0 && i < 5000; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(slow_count(), 0);
}

/* By sendmsg itself: more than passing_send takes. */
static void send_many(const int *descriptors, size_t count)
{
    char room[CMSG_SPACE(16 * sizeof(int))] __attribute__((aligned(sizeof(size_t)))) = {0};
    struct iovec part = {.iov_base = (char *)"x", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    assert_int_equal(sendmsg(ends[0], &message, 0), 1);
}

static void test_round_trip(void **state)
{
    (void)state;
    char bytes[64];
    int got[PASSING_MAX], none[PASSING_MAX];
    size_t length, count;
    struct stat here, there;
    int folder = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int two[] = {folder, STDIN_FILENO};
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, got, &count, NULL), ERROR_BUSY);
    assert_int_equal(passing_send(ends[0], "hello", 5, two, 2, NULL), ERROR_NONE);
    assert_int_equal(passing_send(ends[0], "more", 4, NULL, 0, NULL), ERROR_NONE);
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, got, &count, NULL), ERROR_NONE);
    assert_int_equal(length, 5);
    assert_memory_equal(bytes, "hello", 5);
    assert_int_equal(count, 2);
    assert_int_equal(got[2], -1);
    assert_int_equal(got[3], -1);
    fstat(folder, &here);
    fstat(got[0], &there);
    assert_int_equal(here.st_ino, there.st_ino);
    assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
    assert_true(passing_is_path(got[0]));
    assert_false(passing_is_path(got[1]));
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, none, &count, NULL), ERROR_NONE);
    assert_int_equal(length, 4);
    assert_int_equal(count, 0);
    close(got[0]);
    close(got[1]);
    close(folder);
}

static void test_end(void **state)
{
    (void)state;
    char bytes[8];
    int got[PASSING_MAX];
    size_t length = 7, count;
    struct error err = ERROR_INIT;
    hang_up(0);
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, got, &count, NULL), ERROR_NONE);
    assert_int_equal(length, 0);
    assert_int_equal(passing_send(ends[1], "x", 1, NULL, 0, &err), ERROR_UNREACHABLE);
}

/* The other end goes with our packet unread: for the kernel a reset, for us an end. */
static void test_reset(void **state)
{
    (void)state;
    char bytes[8];
    size_t length = 7;
    assert_int_equal(passing_send(ends[1], "x", 1, NULL, 0, NULL), ERROR_NONE);
    hang_up(0);
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, NULL, NULL, NULL), ERROR_NONE);
    assert_int_equal(length, 0);
}

static void test_full(void **state)
{
    (void)state;
    static char large[32768];
    enum error_code code = ERROR_NONE;
    for (int i = 0; i < 1000 && code == ERROR_NONE; i++)
        code = passing_send(ends[0], large, sizeof large, NULL, 0, NULL);
    assert_int_equal(code, ERROR_BUSY);
}

static void test_too_long(void **state)
{
    (void)state;
    char bytes[4];
    int got[PASSING_MAX], one = open("/", O_PATH | O_CLOEXEC);
    size_t length = 99, count = 99;
    struct error err = ERROR_INIT;
    unsigned before = open_descriptors();
    assert_int_equal(passing_send(ends[0], "12345", 5, &one, 1, NULL), ERROR_NONE);
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, got, &count, &err), ERROR_PROTOCOL);
    assert_string_equal(err.message, "a packet of more than 4 bytes");
    assert_int_equal(length, 99); /* untouched */
    assert_int_equal(count, 99);
    assert_int_equal(open_descriptors(), before);
    close(one);
}

static void test_too_many(void **state)
{
    (void)state;
    char bytes[4];
    int got[PASSING_MAX], five[] = {0, 0, 0, 0, 0};
    size_t length, count;
    unsigned before = open_descriptors();
    assert_int_equal(passing_send(ends[0], "x", 1, five, 5, NULL), ERROR_INTERNAL);
    send_many(five, 5);
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, got, &count, NULL), ERROR_PROTOCOL);
    wait_dropped();
    assert_int_equal(open_descriptors(), before);
}

static void test_none_may_come(void **state)
{
    (void)state;
    char bytes[4];
    int one = 0;
    size_t length;
    unsigned before = open_descriptors();
    send_many(&one, 1);
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, NULL, NULL, NULL), ERROR_PROTOCOL);
    wait_dropped();
    assert_int_equal(open_descriptors(), before);
}

/* A descriptor whose close would talk to a filesystem is closed elsewhere; in the end it is closed. */
static void test_drop(void **state)
{
    (void)state;
    unsigned before = open_descriptors();
    int four[] = {open("/", O_PATH | O_CLOEXEC), open("/dev/null", O_RDONLY | O_CLOEXEC),
                  open("/proc/self/stat", O_RDONLY | O_CLOEXEC), open("/", O_PATH | O_CLOEXEC)};
    passing_drop(UID, four, 4);
    wait_dropped();
    assert_int_equal(open_descriptors(), before);
    passing_drop(UID, NULL, 0);
}

/* A TCP connection whose close waits for a peer that reads nothing, for LINGER_S at most. */
enum { LINGER_S = 3 };

struct lingering {
    int fd, peer;
};

static struct lingering lingering_open(void)
{
    static const char zeros[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&address, &size);
    struct lingering l = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(connect(l.fd, (struct sockaddr *)&address, size), 0);
    l.peer = accept(listener, NULL, NULL);
    close(listener);
    while (send(l.fd, zeros, sizeof zeros, MSG_DONTWAIT) > 0)
        continue;
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    setsockopt(l.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    return l;
}

/* The last reference to it lies in the queue of ends[1], `packets` times. Returns the peers. */
static void send_lingering(size_t packets, int *ret_peers)
{
    for (size_t i = 0; i < packets; i++) {
        struct lingering l = lingering_open();
        send_many(&l.fd, 1);
        close(l.fd);
        ret_peers[i] = l.peer;
    }
}

static void close_all(const int *descriptors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(descriptors[i]);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Neither reading such a descriptor nor closing the socket in whose queue it lies takes as long as its close. */
static void test_a_close_that_hangs_is_waited_for_by_nobody(void **state)
{
    (void)state;
    char bytes[4];
    int peers[3];
    size_t length;
    struct error err = ERROR_INIT;
    unsigned before = open_descriptors();
    send_lingering(2, peers);
    assert_int_equal(send(ends[0], "", 0, 0), 0); /* a packet without bytes is no end */
    send_lingering(1, &peers[2]);
    int64_t began = now_ms();
    assert_int_equal(passing_receive(ends[1], UID, bytes, sizeof bytes, &length, NULL, NULL, &err), ERROR_PROTOCOL);
    assert_int_equal(slow_count(), 1);
    assert_true(passing_close(UID, ends[1]));
    ends[1] = -1;
    assert_in_range(now_ms() - began, 0, LINGER_S * 1000 / 2);
    assert_int_equal(slow_count(), 3);
    assert_true(send(ends[0], "x", 1, MSG_NOSIGNAL) < 0);
    close_all(peers, 3); /* a reset: now they can be closed */
    wait_dropped();
    assert_int_equal(open_descriptors(), before - 1);
}

/* A user has so many, and others are not concerned; a socket that cannot be closed yet is closed later. */
static void test_slow_ones_are_limited(void **state)
{
    (void)state;
    int peers[SLOW_PER_UID + 2];
    struct error err = ERROR_INIT;
    send_lingering(SLOW_PER_UID + 2, peers);
    int64_t began = now_ms();
    assert_false(passing_close(UID, ends[1]));
    assert_in_range(now_ms() - began, 0, LINGER_S * 1000 / 2);
    assert_int_equal(slow_count(), SLOW_PER_UID);
    assert_int_equal(slow_check(UID, &err), ERROR_BUSY);
    assert_non_null(strstr(err.message, "8 descriptors or sockets that user 61001 has passed"));
    assert_int_equal(slow_check(UID + 1, &err), ERROR_NONE);
    assert_false(passing_close(UID, ends[1]));
    close_all(peers, SLOW_PER_UID + 2);
    wait_dropped();
    assert_true(passing_close(UID, ends[1]));
    ends[1] = -1;
    wait_dropped();
}

static void stand_still(void *argument)
{
    char byte;
    while (read(*(int *)argument, &byte, 1) > 0)
        continue;
}

static void test_all_together_are_limited(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    int stop[2];
    assert_int_equal(pipe(stop), 0);
    for (unsigned i = 0; i < SLOW_TOTAL; i++)
        assert_int_equal(slow_start(UID + i / SLOW_PER_UID, stand_still, &stop[0], &err), ERROR_NONE);
    assert_int_equal(slow_start(1, stand_still, &stop[0], &err), ERROR_BUSY);
    assert_non_null(strstr(err.message, "the limit for all"));
    assert_int_equal(slow_start(UID, stand_still, &stop[0], &err), ERROR_BUSY);
    assert_non_null(strstr(err.message, "the limit for one user"));
    close(stop[1]);
    wait_dropped();
    assert_int_equal(slow_start(UID, stand_still, &stop[0], &err), ERROR_NONE);
    wait_dropped();
    close(stop[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none_may_come, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_close_that_hangs_is_waited_for_by_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_ones_are_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_together_are_limited, setup, teardown),
    };
    return cmocka_run_group_tests_name("passing", tests, NULL, NULL);
}
