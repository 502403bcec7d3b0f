#include "sys/passing.h"

#include "base/memory.h"
#include "sys/slow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* SCM_MAX_FD of the kernel: what there is no room for, it closes itself, here and now. */
enum { RECEIVED_MAX = 253 };

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* linux/socket.h of 6.16 */
#endif

/* Room for the header too, aligned as the kernel wants it. */
union control_room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(RECEIVED_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

/* ---- letting go ---- */

struct dropped {
    size_t count;
    int descriptor[];
};

static void drop(void *argument)
{
    struct dropped *dropped = argument;
    for (size_t i = 0; i < dropped->count; i++)
        close(dropped->descriptor[i]);
    free(dropped);
}

bool passing_is_path(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_PATH) != 0;
}

void passing_drop(uid_t sender, const int *descriptors, size_t count)
{
    struct dropped *slow = memory_new(sizeof *slow + count * sizeof slow->descriptor[0]);
    for (size_t i = 0; i < count; i++) {
        if (passing_is_path(descriptors[i]))
            close(descriptors[i]);
        else
            slow->descriptor[slow->count++] = descriptors[i];
    }
    if (slow->count == 0 || slow_start(sender, drop, slow, NULL) != ERROR_NONE)
        free(slow); /* no thread to be had: rather lost than waited for */
}

void passing_refuse(int socket)
{
    int none = 0;
    setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof none);
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

static size_t take_descriptors(struct msghdr *message, int ret_descriptors[RECEIVED_MAX])
{
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < RECEIVED_MAX; i++)
            memcpy(&ret_descriptors[count++], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
    }
    return count;
}

enum error_code passing_receive(int socket, uid_t sender, char *bytes, size_t size, size_t *ret_length,
                                int ret_descriptors[PASSING_MAX], size_t *ret_count, struct error *err)
{
    union control_room room;
    int taken[RECEIVED_MAX];
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    ssize_t got;
    while ((got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    if (got < 0 && errno == EAGAIN)
        return error_set_errno(err, ERROR_BUSY, errno, "nothing to receive");
    if (got < 0 && errno != ECONNRESET) /* that is an end too: with something unread at the other side */
        return error_set_errno(err, ERROR_SYSTEM, errno, "a packet");
    size_t count = got >= 0 ? take_descriptors(&message, taken) : 0;
    bool cut = got >= 0 && (message.msg_flags & MSG_TRUNC) != 0;
    bool many = count > (ret_descriptors != NULL ? PASSING_MAX : 0);
    if (cut || many || (got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0)) {
        passing_drop(sender, taken, count);
        return cut ? error_set(err, ERROR_PROTOCOL, "a packet of more than %zu bytes", size)
                   : error_set(err, ERROR_PROTOCOL, "more descriptors than expected");
    }
    *ret_length = got > 0 ? (size_t)got : 0;
    if (ret_descriptors != NULL) {
        for (size_t i = 0; i < PASSING_MAX; i++)
            ret_descriptors[i] = i < count ? taken[i] : -1;
        *ret_count = count;
    }
    return ERROR_NONE;
}

/* ---- the end ---- */

/* Whether a packet came, or the end: both may have no bytes, but a packet names its sender (SO_PASSCRED). */
static bool is_packet(struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header))
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS)
            return true;
    return false;
}

bool passing_close(uid_t sender, int socket)
{
    int yes = 1, taken[RECEIVED_MAX];
    bool more = true;
    shutdown(socket, SHUT_RDWR); /* nothing more comes, and the other end learns of it now */
    setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
    while (more) {
        union control_room room;
        char byte;
        struct iovec part = {.iov_base = &byte, .iov_len = 1};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
        if (slow_check(sender, NULL) != ERROR_NONE)
            return false;
        ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got >= 0)
            passing_drop(sender, taken, take_descriptors(&message, taken));
        more = got >= 0 ? is_packet(&message) : errno == EINTR || errno == ECONNRESET;
    }
    close(socket);
    return true;
}
