/* Happy path: the socket is bound with its final mode; a guard connects, the kernel says who it is, its first packet
 * is read and checked, the entry stands and `changed` is told; each later packet replaces what it said; its end closes
 * the connection and `gone` is told. So does the end of its process, whoever has inherited the connection, after what
 * it sent last has been read.
 *
 * Not admitted, too many, a broken packet, wrong descriptors, no first packet in HELLO_MS: the reason is sent and the
 * connection closed. What it said before stays until then, so a broken later packet is the end of the entry.
 *
 * Too much at once: the bytes of a user's packets are counted for a second; beyond BYTES_PER_S his connections are left
 * alone until it is over. Descriptors run out: nobody is let in for a second.
 *
 * What is passed, or lies unreceived in a connection, may never be closed (sys/slow.h): closing happens elsewhere, and
 * a user who has too much of that is refused before anything of his is received. A connection that cannot be closed yet
 * is tried each second; with UNCLOSED_MAX of them nobody is let in.
 *
 * A connection is freed when its last handle has closed; the registry when its last connection is, and its own handles
 * are. */
#include "loop/registry.h"
#include "base/memory.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/registry_private.h"
#include "sys/passing.h"
#include "sys/slow.h"
#include "sys/socket_peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, HELLO_MS = 5000, PAUSE_MS = 1000, BURST = 4, ACCEPT_BURST = 16 };
enum { UNCLOSED_MAX = 1024 };
enum { BYTES_PER_S = 4 * 1024 * 1024, LEAST_BYTES = 4096 /* that a packet counts for */ };

/* ---- users ---- */

static struct registry_user *user_of(struct registry *registry, uid_t uid)
{
    struct registry_user *user = registry->users;
    while (user != NULL && user->uid != uid)
        user = user->next;
    if (user == NULL) {
        user = memory_new(sizeof *user);
        user->uid = uid;
        user->next = registry->users;
        registry->users = user;
    }
    return user;
}

/* A second is over. Whoever has no connection is forgotten only now: coming again does not make him anew. */
static void next_second(struct registry *registry)
{
    for (struct registry_user **link = &registry->users, *user; (user = *link) != NULL;) {
        user->bytes = 0;
        if (user->connections > 0) {
            link = &user->next;
            continue;
        }
        *link = user->next;
        free(user);
    }
}

/* ---- the end ---- */

static void drop_handle(struct registry *registry)
{
    if (--registry->handles > 0)
        return;
    while (registry->users != NULL) {
        struct registry_user *user = registry->users;
        registry->users = user->next;
        free(user);
    }
    while (registry->unclosed != NULL) { /* the end of the process closes them */
        struct registry_unclosed *one = registry->unclosed;
        registry->unclosed = one->next;
        free(one);
    }
    free(registry);
}

static void on_registry_closed(uv_handle_t *handle)
{
    drop_handle(handle->data);
}

static void on_pause_over(uv_timer_t *timer);

static void pause_for_a_second(struct registry *registry)
{
    if (!registry->closing && !uv_is_active((uv_handle_t *)&registry->pause))
        uv_timer_start(&registry->pause, on_pause_over, PAUSE_MS, 0);
}

static void keep_unclosed(struct registry *registry, uid_t uid, int fd)
{
    struct registry_unclosed *unclosed = memory_new(sizeof *unclosed);
    *unclosed = (struct registry_unclosed){registry->unclosed, uid, fd};
    registry->unclosed = unclosed;
    registry->unclosed_count++;
    pause_for_a_second(registry);
}

static void close_unclosed(struct registry *registry)
{
    for (struct registry_unclosed **link = &registry->unclosed, *one; (one = *link) != NULL;) {
        if (!passing_close(one->uid, one->fd)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        registry->unclosed_count--;
        free(one);
    }
}

static void on_connection_closed(uv_handle_t *handle)
{
    struct registry_connection *connection = handle->data;
    struct registry *registry = connection->registry;
    if (--connection->handles > 0)
        return;
    struct registry_entry *entry = &connection->entry;
    const int descriptors[] = {entry->pidfd, entry->folder_fd, entry->control_fd};
    for (size_t i = 0; i < sizeof descriptors / sizeof descriptors[0]; i++)
        if (descriptors[i] >= 0) /* ours, or opened with O_PATH: closing does not wait */
            close(descriptors[i]);
    if (!passing_close(entry->uid, connection->fd))
        keep_unclosed(registry, entry->uid, connection->fd);
    json_free(connection->run);
    free(connection);
    drop_handle(registry);
}

static void unlink_entry(struct registry *registry, struct registry_connection *connection)
{
    struct registry_entry **link = &registry->entries;
    while (*link != &connection->entry)
        link = &(*link)->next;
    *link = connection->entry.next;
}

static void close_connection(struct registry_connection *connection, bool tell)
{
    struct registry *registry = connection->registry;
    if (connection->closing)
        return;
    connection->closing = true;
    *connection->link = connection->next;
    if (connection->next != NULL)
        connection->next->link = connection->link;
    registry->count--;
    connection->user->connections--;
    connection->user->held -= connection->held;
    if (connection->admitted) {
        if (tell && registry->options.gone != NULL)
            registry->options.gone(&connection->entry, registry->options.user);
        unlink_entry(registry, connection);
    }
    if (connection->polls)
        uv_close((uv_handle_t *)&connection->poll, on_connection_closed);
    if (connection->watches)
        uv_close((uv_handle_t *)&connection->guard, on_connection_closed);
    uv_close((uv_handle_t *)&connection->limit, on_connection_closed);
}

static void refuse(struct registry_connection *connection, const struct error *err)
{
    struct json *answer = json_object();
    json_set_string(answer, "error", error_name(err->code));
    json_set_string(answer, "message", err->message);
    registry_packet_send(connection->fd, answer);
    json_free(answer);
    close_connection(connection, true);
}

void registry_close(struct registry *registry)
{
    struct stat status;
    if (registry == NULL)
        return;
    registry->closing = true;
    while (registry->connections != NULL)
        close_connection(registry->connections, false);
    if (registry->inode != 0 && lstat(registry->path, &status) == 0 && status.st_ino == registry->inode)
        unlink(registry->path);
    uv_close((uv_handle_t *)&registry->poll, on_registry_closed);
    uv_close((uv_handle_t *)&registry->pause, on_registry_closed);
    close(registry->fd);
    free(registry->path);
    registry->path = NULL;
}

/* ---- what guards say ---- */

static void on_packet(uv_poll_t *poll, int status, int events);
static void on_knock(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct registry *registry = timer->data;
    next_second(registry);
    close_unclosed(registry);
    for (struct registry_connection *c = registry->connections; c != NULL; c = c->next)
        if (c->paused) {
            c->paused = false;
            uv_poll_start(&c->poll, UV_READABLE, on_packet);
        }
    if (registry->unclosed_count > 0)
        pause_for_a_second(registry);
    if (registry->shut && registry->unclosed_count < UNCLOSED_MAX) {
        registry->shut = false;
        uv_poll_start(&registry->poll, UV_READABLE, on_knock);
    }
}

/* The second in which bytes are counted begins with the first connection or packet after a rest. */
static void count_bytes(struct registry_connection *connection, size_t length)
{
    struct registry *registry = connection->registry;
    connection->user->bytes += length > LEAST_BYTES ? length : LEAST_BYTES;
    pause_for_a_second(registry);
}

/* What it said has been taken: is it too much? */
static enum error_code count_run(struct registry_connection *connection, struct error *err)
{
    struct registry_user *user = connection->user;
    size_t held = json_memory(connection->run);
    user->held += held - connection->held;
    connection->held = held;
    if (user->uid == 0 || user->held <= REGISTRY_USER_BYTES)
        return ERROR_NONE;
    return error_set(
        err, ERROR_TOO_LARGE,
        "what guards of user %u tell of their runs takes more than %d MiB, the limit for one user; the run "
        "is heard again without its seals and command",
        (unsigned)user->uid, REGISTRY_USER_BYTES / 1024 / 1024);
}

static void take_first(struct registry_connection *connection, const char *bytes, size_t length, const int *descriptors,
                       size_t count)
{
    struct registry *registry = connection->registry;
    struct registry_entry *entry = &connection->entry;
    struct error err = ERROR_INIT;
    enum error_code code = registry_packet_first(bytes, length, entry, &connection->run, &err);
    if (code == ERROR_NONE)
        code = count_run(connection, &err);
    if (code == ERROR_NONE)
        code = registry_packet_descriptors(descriptors, count, entry, &err);
    if (code != ERROR_NONE) {
        passing_drop(entry->uid, descriptors, count);
        refuse(connection, &err);
        return;
    }
    struct json *answer = json_object();
    json_set_bool(answer, "ok", true);
    registry_packet_send(connection->fd, answer);
    json_free(answer);
    uv_timer_stop(&connection->limit);
    passing_refuse(connection->fd);
    connection->admitted = true;
    entry->run = connection->run;
    entry->said_ms = clock_now_ms();
    struct registry_entry **end = &registry->entries; /* the oldest first */
    while (*end != NULL)
        end = &(*end)->next;
    *end = entry;
    if (registry->options.changed != NULL)
        registry->options.changed(entry, registry->options.user);
}

static void take_later(struct registry_connection *connection, const char *bytes, size_t length)
{
    struct registry *registry = connection->registry;
    struct error err = ERROR_INIT;
    enum error_code code = registry_packet_later(bytes, length, &connection->entry, &connection->run, &err);
    connection->entry.run = connection->run;
    if (code == ERROR_NONE)
        code = count_run(connection, &err);
    if (code != ERROR_NONE) {
        refuse(connection, &err);
        return;
    }
    connection->entry.said_ms = clock_now_ms();
    if (registry->options.changed != NULL)
        registry->options.changed(&connection->entry, registry->options.user);
}

/* False: nothing more for now. */
static bool take_packet(struct registry_connection *connection)
{
    struct registry *registry = connection->registry;
    int descriptors[PASSING_MAX] = {-1, -1, -1, -1};
    size_t length = 0, count = 0;
    struct error err = ERROR_INIT;
    uid_t uid = connection->entry.uid;
    enum error_code code = slow_check(uid, &err);
    if (code != ERROR_NONE) { /* what comes might have to be closed */
        refuse(connection, &err);
        return false;
    }
    code = passing_receive(connection->fd, uid, registry->room, sizeof registry->room, &length,
                           connection->admitted ? NULL : descriptors, &count, &err);
    if (code == ERROR_BUSY)
        return false;
    if (code == ERROR_PROTOCOL) {
        error_prefix(&err, "the register takes");
        refuse(connection, &err);
        return false;
    }
    if (code != ERROR_NONE || length == 0) {
        passing_drop(uid, descriptors, count);
        close_connection(connection, true);
        return false;
    }
    count_bytes(connection, length);
    if (connection->admitted)
        take_later(connection, registry->room, length);
    else
        take_first(connection, registry->room, length, descriptors, count);
    return !connection->closing;
}

static void on_packet(uv_poll_t *poll, int status, int events)
{
    struct registry_connection *connection = poll->data;
    (void)events;
    if (connection->closing)
        return;
    if (status != 0) {
        close_connection(connection, true);
        return;
    }
    for (int i = 0; i < BURST; i++) {
        if (connection->user->bytes >= BYTES_PER_S) {
            connection->paused = true;
            uv_poll_stop(poll);
            return;
        }
        if (!take_packet(connection))
            return;
    }
}

/* More cannot lie in a socket; whoever has inherited it may go on to send. */
enum { HEAR_MAX = 512 };

static void hear(struct registry_connection *connection)
{
    for (int i = 0; !connection->closing && i < HEAR_MAX && take_packet(connection); i++)
        ;
}

void registry_hear(struct registry *registry, pid_t pid)
{
    struct registry_connection *connection = registry != NULL ? registry->connections : NULL;
    while (connection != NULL && (connection->entry.pid != pid || connection->closing))
        connection = connection->next;
    if (connection != NULL)
        hear(connection);
}

static void on_guard_gone(uv_poll_t *poll, int status, int events)
{
    struct registry_connection *connection = poll->data;
    (void)status;
    (void)events;
    uv_poll_stop(poll);
    hear(connection);
    close_connection(connection, true);
}

static void on_silent(uv_timer_t *timer)
{
    struct registry_connection *connection = timer->data;
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_TIMEOUT, "nothing came within %d ms", HELLO_MS);
    refuse(connection, &err);
}

/* ---- who comes ---- */

static enum error_code admit(struct registry *registry, int fd, struct registry_entry *entry, struct error *err)
{
    struct socket_peer peer = {0};
    enum error_code code = registry_peer_identify(fd, entry, &peer, err);
    if (code == ERROR_NONE && registry->options.admit != NULL)
        code = registry->options.admit(peer.uid, peer.gid, peer.groups, peer.group_count, registry->options.user, err);
    else if (code == ERROR_NONE && entry->uid != geteuid() && entry->uid != 0)
        code = error_set(err, ERROR_FORBIDDEN, "this kldumpd is user %u's alone", (unsigned)geteuid());
    socket_peer_fini(&peer);
    if (code != ERROR_NONE)
        return code;
    if (registry->count >= REGISTRY_TOTAL)
        return error_set(err, ERROR_BUSY, "%d guards have called in, and more are not heard", REGISTRY_TOTAL);
    if (user_of(registry, entry->uid)->connections >= REGISTRY_PER_UID)
        return error_set(err, ERROR_BUSY, "%d guards of user %u have called in, and more of one user are not heard",
                         REGISTRY_PER_UID, (unsigned)entry->uid);
    return ERROR_NONE;
}

static bool open_poll(struct registry_connection *connection, uv_poll_t *poll, int fd, struct error *err)
{
    int failure = uv_poll_init(connection->registry->loop, poll, fd);
    if (failure != 0) {
        error_set_errno(err, ERROR_SYSTEM, -failure, "the connection of a guard cannot be watched");
        return false;
    }
    poll->data = connection;
    connection->handles++;
    return true;
}

static enum error_code watch(struct registry_connection *connection, struct error *err)
{
    connection->polls = open_poll(connection, &connection->poll, connection->fd, err);
    if (connection->polls)
        connection->watches = open_poll(connection, &connection->guard, connection->entry.pidfd, err);
    if (!connection->watches)
        return ERROR_SYSTEM;
    uv_poll_start(&connection->guard, UV_READABLE, on_guard_gone);
    return ERROR_NONE;
}

static void let_in(struct registry *registry, int fd)
{
    struct error err = ERROR_INIT;
    struct registry_connection *connection = memory_new(sizeof *connection);
    struct registry_entry *entry = &connection->entry;
    entry->pidfd = entry->folder_fd = entry->control_fd = -1;
    enum error_code code = admit(registry, fd, entry, &err);
    connection->fd = fd;
    connection->registry = registry;
    connection->user = user_of(registry, entry->uid);
    connection->user->connections++;
    connection->next = registry->connections;
    connection->link = &registry->connections;
    if (connection->next != NULL)
        connection->next->link = &connection->next;
    registry->connections = connection;
    registry->count++;
    registry->handles++;
    uv_timer_init(registry->loop, &connection->limit);
    connection->limit.data = connection;
    connection->handles = 1;
    if (code == ERROR_NONE)
        code = watch(connection, &err);
    count_bytes(connection, 0);
    if (code != ERROR_NONE) {
        refuse(connection, &err);
        return;
    }
    uv_poll_start(&connection->poll, UV_READABLE, on_packet);
    uv_timer_start(&connection->limit, on_silent, HELLO_MS, 0);
}

static void on_knock(uv_poll_t *poll, int status, int events)
{
    struct registry *registry = poll->data;
    (void)status;
    (void)events;
    int fd = -1;
    for (int i = 0; i < ACCEPT_BURST && registry->unclosed_count < UNCLOSED_MAX; i++) {
        fd = accept4(registry->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            let_in(registry, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        break;
    }
    if (fd >= 0 && registry->unclosed_count < UNCLOSED_MAX)
        return;
    registry->shut = true; /* no descriptors, no memory: it would be told again at once */
    uv_poll_stop(poll);
    pause_for_a_second(registry);
}

/* ---- the socket ---- */

/* The runtime folder is the daemon's, and its lock is held: whatever lies there is an older daemon's. */
static enum error_code bind_path(struct registry *registry, const char *path, mode_t mode, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;
    if (strlen(path) >= sizeof address.sun_path)
        return error_set(err, ERROR_BAD_VALUE,
                         "the path of the register has %zu bytes and a socket's may have %zu: %s; use a shorter "
                         "runtime folder",
                         strlen(path), sizeof address.sun_path - 1, path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (lstat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
        return error_set(err, ERROR_EXISTS, "%s exists and is not a socket; move it away", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot remove the left-over socket %s", path);
    mode_t old = umask(0777 & ~mode);
    int failure = bind(registry->fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    umask(old);
    if (failure != 0)
        return error_set_errno(err, ERROR_SYSTEM, failure, "cannot bind the register %s", path);
    if (listen(registry->fd, BACKLOG) != 0 || lstat(path, &status) != 0) {
        failure = errno;
        unlink(path);
        return error_set_errno(err, ERROR_SYSTEM, failure, "cannot listen on %s", path);
    }
    registry->inode = status.st_ino;
    registry->path = memory_copy(path);
    return ERROR_NONE;
}

enum error_code registry_open(uv_loop_t *loop, const struct registry_options *options, struct registry **ret_registry,
                              struct error *err)
{
    struct registry *registry = memory_new(sizeof *registry);
    enum error_code code = ERROR_NONE;
    registry->options = *options;
    registry->loop = loop;
    registry->fd = options->descriptor >= 0 ? options->descriptor
                                            : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (registry->fd < 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot make a socket");
    else if (options->descriptor < 0)
        code = bind_path(registry, options->path, options->mode, err);
    if (code == ERROR_NONE) {
        int failure = uv_poll_init(loop, &registry->poll, registry->fd);
        if (failure != 0)
            code = error_set_errno(err, ERROR_SYSTEM, -failure, "cannot watch the register");
    }
    if (code != ERROR_NONE) {
        if (registry->inode != 0)
            unlink(registry->path);
        if (registry->fd >= 0)
            close(registry->fd);
        free(registry->path);
        free(registry);
        return code;
    }
    uv_timer_init(loop, &registry->pause);
    registry->poll.data = registry->pause.data = registry;
    registry->handles = 2;
    uv_poll_start(&registry->poll, UV_READABLE, on_knock);
    *ret_registry = registry;
    return ERROR_NONE;
}

struct registry_entry *registry_first(const struct registry *registry)
{
    return registry == NULL ? NULL : registry->entries;
}

struct registry_entry *registry_find(const struct registry *registry, const char *name, uid_t uid)
{
    struct registry_entry *found = NULL;
    for (struct registry_entry *entry = registry_first(registry); entry != NULL; entry = entry->next) {
        if (strcmp(entry->name, name) != 0)
            continue;
        if (entry->uid == uid)
            return entry;
        if (found == NULL)
            found = entry;
    }
    return found;
}
