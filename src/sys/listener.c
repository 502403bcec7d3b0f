#include "sys/listener.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LISTENER_SOCKETS = 64, LISTENER_STATE_LISTEN = 0x0A };

struct listener_socket {
    uint64_t inode;
    struct listener where;
};

bool listener_parse_line(const char *line, uint16_t port, struct listener *ret_listener, uint64_t *ret_inode)
{
    char address[40], remote[40];
    unsigned line_port, remote_port, state;
    uint64_t inode;
    if (sscanf(line, " %*u: %39[0-9A-Fa-f]:%4X %39[0-9A-Fa-f]:%4X %2X %*s %*s %*s %*u %*u %" SCNu64, address,
               &line_port, remote, &remote_port, &state, &inode) != 6 ||
        state != LISTENER_STATE_LISTEN || line_port != port || inode == 0)
        return false;
    size_t digits = strlen(address);
    if (digits != 8 && digits != 32)
        return false;
    /* Words of 32 bit, each printed as the machine reads it: the bytes in memory are in network order. */
    uint32_t words[4] = {0};
    for (size_t i = 0; i < digits / 8; i++) {
        char word[9] = "";
        memcpy(word, address + 8 * i, 8);
        words[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    struct listener found = {.ipv6 = digits == 32};
    if (!inet_ntop(found.ipv6 ? AF_INET6 : AF_INET, words, found.address, sizeof found.address))
        return false;
    *ret_listener = found;
    *ret_inode = inode;
    return true;
}

/* Adds the listening sockets of one table; a missing tcp6 (no IPv6) is no error. */
static int listener_read_table(pid_t of, const char *name, uint16_t port, struct listener_socket *sockets,
                               size_t *count)
{
    char path[64], line[512];
    if (of > 0)
        snprintf(path, sizeof path, "/proc/%d/net/%s", (int)of, name);
    else
        snprintf(path, sizeof path, "/proc/self/net/%s", name);
    FILE *table = fopen(path, "re");
    if (!table)
        return errno;
    while (*count < LISTENER_SOCKETS && fgets(line, sizeof line, table))
        if (listener_parse_line(line, port, &sockets[*count].where, &sockets[*count].inode))
            (*count)++;
    fclose(table);
    return 0;
}

/* Which of the sockets the process holds; SIZE_MAX: none. `held` marks each one that it does. */
static size_t listener_held_by(pid_t pid, const struct listener_socket *sockets, size_t count, bool *held)
{
    char path[64], link[288], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    if (!directory)
        return SIZE_MAX;
    size_t first = SIZE_MAX;
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        snprintf(link, sizeof link, "%s/%.32s", path, entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        uint64_t inode;
        if (length <= 0)
            continue;
        target[length] = '\0';
        if (sscanf(target, "socket:[%" SCNu64 "]", &inode) != 1)
            continue;
        for (size_t i = 0; i < count; i++)
            if (sockets[i].inode == inode) {
                held[i] = true;
                if (i < first)
                    first = i;
            }
    }
    closedir(directory);
    return first;
}

static void listener_tell(const struct listener_socket *socket, const struct process *holder, enum listener_owner owner,
                          struct listener *ret_listener)
{
    *ret_listener = socket->where;
    ret_listener->owner = owner;
    if (holder) {
        ret_listener->pid = holder->pid;
        memcpy(ret_listener->comm, holder->comm, sizeof ret_listener->comm);
    }
}

/* The first foreign process that holds one; only those that we may look into are seen. */
static void listener_find_foreign(const struct listener_socket *sockets, size_t count, struct listener *ret_listener)
{
    bool held[LISTENER_SOCKETS] = {false};
    struct process_list all = {0};
    process_snapshot(&all);
    listener_tell(&sockets[0], NULL, LISTENER_FOREIGN, ret_listener);
    for (size_t i = 0; i < all.count; i++) {
        size_t which = listener_held_by(all.items[i].pid, sockets, count, held);
        if (which != SIZE_MAX) {
            listener_tell(&sockets[which], &all.items[i], LISTENER_FOREIGN, ret_listener);
            break;
        }
    }
    process_list_fini(&all);
}

enum error_code listener_find(pid_t of, uint16_t port, const struct process_list *own, struct listener *ret_listener,
                              struct error *err)
{
    struct listener_socket sockets[LISTENER_SOCKETS];
    bool held[LISTENER_SOCKETS] = {false};
    size_t count = 0, first = SIZE_MAX;
    const struct process *holder = NULL;
    int system = listener_read_table(of, "tcp", port, sockets, &count);
    if (system != 0)
        return error_set_errno(err, ERROR_SYSTEM, system, "cannot read the table of TCP sockets");
    listener_read_table(of, "tcp6", port, sockets, &count);
    if (count == 0) {
        *ret_listener = (struct listener){.owner = LISTENER_NONE};
        return ERROR_NONE;
    }
    for (size_t i = 0; i < own->count; i++) {
        size_t which = listener_held_by(own->items[i].pid, sockets, count, held);
        if (which != SIZE_MAX && !holder) {
            first = which;
            holder = &own->items[i];
        }
    }
    if (!holder) {
        listener_find_foreign(sockets, count, ret_listener);
        return ERROR_NONE;
    }
    listener_tell(&sockets[first], holder, LISTENER_OWN, ret_listener);
    for (size_t i = 0; i < count; i++)
        ret_listener->foreign_too = ret_listener->foreign_too || !held[i];
    return ERROR_NONE;
}

static bool listener_can_listen(int family, const struct sockaddr *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno == EAFNOSUPPORT;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    bool works = (bind(fd, address, size) == 0 && listen(fd, 1) == 0) || errno == EADDRNOTAVAIL;
    close(fd);
    return works;
}

bool listener_port_is_free(uint16_t port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    return listener_can_listen(AF_INET, (const struct sockaddr *)&four, sizeof four) &&
           listener_can_listen(AF_INET6, (const struct sockaddr *)&six, sizeof six);
}
