/* Happy path: the guard connects to kldumpd's register, hands over the dump folder and its control socket and says what
 * the run is; "ok" comes back; later it says the run anew.
 *
 * Nobody is there, or goes: tried again a second later, on the heartbeat that beats anyway. Nobody there costs a
 * look or two a second for a file that is missing.
 * Refused: tried again after REFUSED_MS, since rules and crowds change; at once and with less to say where it was too
 * much.
 * The daemon does not read: what did not go through is said at the next turn, as it is then.
 * The program at the other end is neither root's nor this user's: as if nobody were there.
 *
 * No run depends on any of this, so nothing here is an error of the run. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/guard_private.h"
#include "loop/registry.h"
#include "sys/passing.h"
#include "sys/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { AGAIN_MS = 1000, REFUSED_MS = 10000, DUMPING_MS = 1000, RESTING_MS = 10000, ANSWER_MAX_BYTES = 4096 };

/* ---- the connection ---- */

static void on_poll_closed(uv_handle_t *poll)
{
    free(poll);
}

static void let_go(struct guard_register *registration, uint64_t again_ms)
{
    if (registration->poll != NULL)
        uv_close((uv_handle_t *)registration->poll, on_poll_closed);
    if (registration->fd >= 0)
        close(registration->fd);
    registration->poll = NULL;
    registration->fd = -1;
    registration->next_ms = clock_now_ms() + again_ms;
}

/* All that can come is the one answer, and the end. */
static void on_answer(uv_poll_t *poll, int status, int events)
{
    struct guard *guard = poll->data;
    struct guard_register *registration = &guard->registration;
    char bytes[ANSWER_MAX_BYTES];
    size_t length = 0;
    bool ok = false;
    const char *refusal = "";
    struct json *answer = NULL;
    (void)status;
    (void)events;
    if (registration->poll != poll)
        return;
    enum error_code code = passing_receive(registration->fd, 0, bytes, sizeof bytes, &length, NULL, NULL, NULL);
    if (code == ERROR_BUSY)
        return;
    if (code != ERROR_NONE || length == 0) {
        let_go(registration, AGAIN_MS);
        return;
    }
    if (json_parse(bytes, length, (struct json_limits){sizeof bytes, JSON_DEPTH, JSON_ANY_VALUES}, &answer, NULL) ==
        ERROR_NONE)
        json_optional_bool(answer, "ok", false, &ok, NULL);
    json_optional_string(answer, "error", "", &refusal, NULL);
    bool too_large = error_from_name(refusal) == ERROR_TOO_LARGE && !registration->brief;
    json_free(answer);
    registration->brief = registration->brief || too_large;
    if (!ok)
        let_go(registration, too_large ? AGAIN_MS : REFUSED_MS);
}

static int open_connection(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (strlen(path) >= sizeof address.sun_path || access(path, F_OK) != 0) /* a tenth of what a socket costs */
        return -1;
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid()))
        return fd;
    close(fd);
    return -1;
}

/* ---- what is said ---- */

/* Lists that have no end are left out where the packet would be too large with them. */
static void print_run(struct guard *guard, bool first, bool brief, struct buffer *text)
{
    struct json *packet = json_object();
    struct json *run = guard_report_run(guard);
    if (first) {
        json_set_u64(packet, "version", REGISTRY_VERSION);
        json_set_string(packet, "name", guard->plan.settings.name);
    }
    if (brief) {
        json_set_child(run, "seals", json_array());
        json_set_child(run, "command", json_array());
    }
    json_set_child(packet, "run", run);
    json_print(packet, text);
    json_free(packet);
}

static enum error_code say(struct guard *guard, bool first)
{
    struct guard_register *registration = &guard->registration;
    const int descriptors[] = {registration->folder_fd, registration->control_fd};
    struct buffer text;
    buffer_init(&text);
    print_run(guard, first, registration->brief, &text);
    if (json_check(text.data, text.length, registry_packet_limits, NULL) != ERROR_NONE) {
        buffer_clear(&text);
        print_run(guard, first, true, &text);
    }
    enum error_code code = passing_send(registration->fd, text.data, text.length, descriptors, first ? 2 : 0, NULL);
    buffer_fini(&text);
    return code;
}

static void say_again(struct guard *guard)
{
    struct guard_register *registration = &guard->registration;
    enum error_code code = say(guard, false);
    registration->due = code == ERROR_BUSY;
    if (code != ERROR_NONE && code != ERROR_BUSY)
        let_go(registration, AGAIN_MS);
    else
        registration->next_ms = clock_now_ms() + (guard->surveyed[0] != '\0' ? DUMPING_MS : RESTING_MS);
}

static void call_in(struct guard *guard)
{
    struct guard_register *registration = &guard->registration;
    registration->next_ms = clock_now_ms() + AGAIN_MS;
    for (size_t i = 0; i < sizeof registration->paths / sizeof registration->paths[0] && registration->fd < 0; i++)
        if (registration->paths[i] != NULL)
            registration->fd = open_connection(registration->paths[i]);
    if (registration->fd < 0)
        return;
    registration->due = false;
    registration->poll = memory_new(sizeof *registration->poll);
    if (uv_poll_init(&guard->loop, registration->poll, registration->fd) != 0) {
        free(registration->poll);
        registration->poll = NULL;
        let_go(registration, AGAIN_MS);
        return;
    }
    registration->poll->data = guard;
    uv_poll_start(registration->poll, UV_READABLE, on_answer);
    if (say(guard, true) != ERROR_NONE)
        let_go(registration, AGAIN_MS);
}

/* ---- for the guard ---- */

/* The daemon that started this run; for the wrapper the one that it was told of, else its user's own, else the
 * machine's. */
static void choose_paths(struct guard_register *registration, bool from_daemon)
{
    const char *told = getenv("KLDUMP_RUNTIME_DIR");
    char *own = runtime_path();
    registration->paths[0] = memory_format("%s/register", own);
    free(own);
    if (!from_daemon && (told == NULL || told[0] == '\0'))
        registration->paths[1] = memory_copy("/run/kldump/register");
}

void guard_register_begin(struct guard *guard)
{
    struct guard_register *registration = &guard->registration;
    registration->fd = -1;
    registration->folder_fd = openat(guard->plan.directory_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    registration->control_fd = open(guard->plan.control_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    registration->begun = true;
    choose_paths(registration, guard->plan.from_daemon);
    if (registration->folder_fd >= 0 && registration->control_fd >= 0)
        call_in(guard);
    else
        registration->next_ms = UINT64_MAX;
}

void guard_register_again(struct guard *guard)
{
    struct guard_register *registration = &guard->registration;
    int fd = registration->begun ? open(guard->plan.control_path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (registration->control_fd >= 0)
        close(registration->control_fd);
    registration->control_fd = fd;
    if (registration->fd >= 0)
        let_go(registration, 0);
}

void guard_register_changed(struct guard *guard)
{
    if (guard->registration.begun && guard->registration.fd >= 0)
        say_again(guard);
}

void guard_register_turn(struct guard *guard)
{
    struct guard_register *registration = &guard->registration;
    uint64_t now_ms = clock_now_ms();
    if (!registration->begun || (now_ms < registration->next_ms && !(registration->due && registration->fd >= 0)))
        return;
    if (registration->fd >= 0)
        say_again(guard);
    else
        call_in(guard);
}

void guard_register_end(struct guard *guard)
{
    struct guard_register *registration = &guard->registration;
    if (!registration->begun)
        return;
    if (registration->fd >= 0)
        say(guard, false);
    else if (registration->folder_fd >= 0 && registration->control_fd >= 0)
        call_in(guard); /* a kldumpd that has just come back gets the last word all the same */
    let_go(registration, 0);
    registration->begun = false;
    if (registration->folder_fd >= 0)
        close(registration->folder_fd);
    if (registration->control_fd >= 0)
        close(registration->control_fd);
    for (size_t i = 0; i < sizeof registration->paths / sizeof registration->paths[0]; i++)
        free(registration->paths[i]);
}
