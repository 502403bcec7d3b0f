#include "sys/passing.h"

#include "base/memory.h"
#include "sys/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STACK_BYTES = 64 * 1024 };

/* Room for the header too, aligned as the kernel wants it. */
union control_room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(PASSING_MAX * sizeof(int))];
};

/* ---- letting go ---- */

struct dropped {
    int descriptor[PASSING_MAX];
    size_t count;
};

static atomic_uint dropping;

static void *drop_main(void *argument)
{
    struct dropped *dropped = argument;
    for (size_t i = 0; i < dropped->count; i++)
        close(dropped->descriptor[i]);
    free(dropped);
    atomic_fetch_sub(&dropping, 1);
    return NULL;
}

bool passing_is_path(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_PATH) != 0;
}

void passing_drop(const int *descriptors, size_t count)
{
    struct dropped *slow = memory_new(sizeof *slow);
    for (size_t i = 0; i < count && slow->count < PASSING_MAX; i++) {
        if (passing_is_path(descriptors[i]))
            close(descriptors[i]);
        else
            slow->descriptor[slow->count++] = descriptors[i];
    }
    pthread_t thread;
    if (slow->count == 0) {
        free(slow);
        return;
    }
    atomic_fetch_add(&dropping, 1);
    if (thread_start(&thread, STACK_BYTES, drop_main, slow) == 0) {
        pthread_detach(thread);
        return;
    }
    atomic_fetch_sub(&dropping, 1); /* no thread to be had: rather lost than waited for */
    free(slow);
}

unsigned passing_dropping(void)
{
    return atomic_load(&dropping);
}

/* ---- sending ---- */

enum error_code passing_send(int socket, const char *bytes, size_t length, const int *descriptors, size_t count,
                             struct error *err)
{
    union control_room room;
    struct iovec part = {.iov_base = (char *)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > PASSING_MAX)
        return error_set(err, ERROR_INTERNAL, "%zu descriptors, and a packet takes %d", count, PASSING_MAX);
    if (count > 0) {
        memset(&room, 0, sizeof room);
        message.msg_control = room.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    ssize_t sent;
    while ((sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR)
        continue;
    if (sent >= 0)
        return ERROR_NONE;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
        return error_set_errno(err, ERROR_BUSY, errno, "a packet");
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN || errno == ECONNREFUSED)
        return error_set_errno(err, ERROR_UNREACHABLE, errno, "a packet");
    return error_set_errno(err, ERROR_SYSTEM, errno, "a packet of %zu bytes", length);
}

/* ---- receiving ---- */

static size_t take_descriptors(struct msghdr *message, int ret_descriptors[PASSING_MAX])
{
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < PASSING_MAX; i++)
            memcpy(&ret_descriptors[count++], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
    }
    return count;
}

enum error_code passing_receive(int socket, char *bytes, size_t size, size_t *ret_length,
                                int ret_descriptors[PASSING_MAX], size_t *ret_count, struct error *err)
{
    union control_room room;
    int taken[PASSING_MAX] = {-1, -1, -1, -1};
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (ret_descriptors != NULL) {
        message.msg_control = room.bytes;
        message.msg_controllen = sizeof room.bytes;
    }
    ssize_t got;
    while ((got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    if (got < 0 && errno == EAGAIN)
        return error_set_errno(err, ERROR_BUSY, errno, "nothing to receive");
    if (got < 0 && errno != ECONNRESET) /* that is an end too: with something unread at the other side */
        return error_set_errno(err, ERROR_SYSTEM, errno, "a packet");
    size_t count = got >= 0 ? take_descriptors(&message, taken) : 0;
    bool cut = got >= 0 && (message.msg_flags & MSG_TRUNC) != 0;
    if (cut || (got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0)) {
        passing_drop(taken, count);
        return cut ? error_set(err, ERROR_PROTOCOL, "a packet of more than %zu bytes", size)
                   : error_set(err, ERROR_PROTOCOL, "more descriptors than expected");
    }
    *ret_length = got > 0 ? (size_t)got : 0;
    if (ret_descriptors != NULL) {
        memcpy(ret_descriptors, taken, sizeof taken);
        *ret_count = count;
    }
    return ERROR_NONE;
}
