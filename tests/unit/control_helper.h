/* A control server on a real loop, and a client beside it in the same thread. */
#pragma once

#include "loop_helper.h"

#include "base/buffer.h"
#include "json/json.h"
#include "loop/control.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

struct fixture {
    uv_loop_t loop;
    char *folder;
    char path[300];
    struct control_server *server;
    struct control_request *held[CONTROL_OUTSTANDING + 8];
    int held_count;
    int gone;
    struct control_connection *gone_connection, *last_connection;
    bool closed;
    uid_t seen_uid;
    gid_t seen_gid;
    pid_t seen_pid;
    size_t seen_groups;
    gid_t seen_last_group;
    char seen_by[200];
};

struct client {
    int descriptor;
    struct buffer input;
    bool ended;
};

static inline void answer_status(struct control_request *request, void *user)
{
    struct fixture *f = user;
    f->seen_uid = request->uid;
    f->seen_gid = request->gid;
    f->seen_pid = request->pid;
    f->seen_groups = request->group_count;
    f->seen_last_group = request->group_count > 0 ? request->groups[request->group_count - 1] : 0;
    snprintf(f->seen_by, sizeof f->seen_by, "%s", request->by != NULL ? request->by : "");
    f->last_connection = request->connection;
    struct json *result = json_object();
    json_set_string(result, "state", "armed");
    control_reply(request, result);
}

/* `logs` answers a text of `offset` bytes. */
static inline void answer_logs(struct control_request *request, void *user)
{
    (void)user;
    uint64_t size = 0;
    assert_int_equal(json_get_u64(request->parameters, "offset", &size, NULL), ERROR_NONE);
    char *text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    struct json *result = json_object();
    json_set_string(result, "text", text);
    free(text);
    control_reply(request, result);
}

static inline void hold(struct control_request *request, void *user)
{
    struct fixture *f = user;
    f->last_connection = request->connection;
    f->held[f->held_count++] = request;
}

static inline void refuse(struct control_request *request, void *user)
{
    (void)user;
    control_refuse(request, ERROR_STATE, "the run is %s", "loading");
}

static inline void on_gone(struct control_connection *connection, void *user)
{
    struct fixture *f = user;
    f->gone++;
    f->gone_connection = connection;
}

static inline struct control_options options_for(struct fixture *f)
{
    struct control_options options = {
        .path = f->path, .program = "kldump-run", .run = "t", .owner = geteuid(), .gone = on_gone, .user = f};
    options.handlers[CONTROL_STATUS] = answer_status;
    options.handlers[CONTROL_LOGS] = answer_logs;
    options.handlers[CONTROL_WAIT] = hold;
    options.handlers[CONTROL_PAUSE] = refuse;
    return options;
}

static inline void listen_on(struct fixture *f, uid_t owner)
{
    struct control_options options = options_for(f);
    options.owner = owner;
    struct error err = ERROR_INIT;
    if (control_listen(&f->loop, &options, &f->server, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    uv_loop_init(&f->loop);
    f->folder = loop_folder();
    snprintf(f->path, sizeof f->path, "%s/control", f->folder);
    listen_on(f, geteuid());
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->server != NULL) {
        control_close(f->server, 0, loop_set_true, &f->closed);
        loop_until(&f->loop, &f->closed);
        assert_int_equal(access(f->path, F_OK), -1);
    }
    for (int i = 0; i < f->held_count; i++)
        control_reply(f->held[i], json_object()); /* owed, also now */
    loop_end(&f->loop);
    rmdir(f->folder);
    free(f->folder);
    free(f);
    return 0;
}

static inline int open_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        close(descriptor);
        return -1;
    }
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    return descriptor;
}

static inline struct client client_open(struct fixture *f)
{
    struct client client = {.descriptor = open_socket(f->path)};
    assert_true(client.descriptor >= 0);
    buffer_init(&client.input);
    return client;
}

static inline void client_close(struct client *client)
{
    close(client->descriptor);
    buffer_fini(&client->input);
}

static inline void send_bytes(struct fixture *f, struct client *client, const char *data, size_t length)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (length > 0 && loop_now_ms() < end) {
        ssize_t count = send(client->descriptor, data, length, MSG_NOSIGNAL);
        if (count > 0) {
            data += count;
            length -= (size_t)count;
        } else if (errno != EAGAIN) {
            return;
        }
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(length, 0);
}

static inline void send_text(struct fixture *f, struct client *client, const char *text)
{
    send_bytes(f, client, text, strlen(text));
}

/* Reads what is there; false at the end. */
static inline bool receive(struct client *client)
{
    char room[65536];
    ssize_t count = recv(client->descriptor, room, sizeof room, 0);
    if (count > 0)
        buffer_append(&client->input, room, (size_t)count);
    client->ended |= count == 0 || (count < 0 && errno != EAGAIN);
    return !client->ended;
}

/* The next line as JSON, NULL when the server has closed. The caller frees. */
static inline struct json *next_answer(struct fixture *f, struct client *client)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    const char *line_end;
    while ((line_end = memchr(client->input.data, '\n', client->input.length)) == NULL && loop_now_ms() < end) {
        if (client->ended)
            return NULL;
        loop_turn(&f->loop, client->descriptor);
        receive(client);
    }
    assert_non_null(line_end);
    size_t length = (size_t)(line_end - client->input.data);
    struct json *answer = NULL;
    assert_int_equal(json_parse(client->input.data, length, (struct json_limits){CONTROL_FRAME_MAX, 8, JSON_ANY_VALUES},
                                &answer, NULL),
                     ERROR_NONE);
    buffer_consume(&client->input, length + 1);
    return answer;
}

static inline void expect_text(struct fixture *f, struct client *client, const char *path, const char *expected)
{
    struct json *answer = next_answer(f, client);
    const char *text = "(none)";
    json_get_string(answer, path, &text, NULL);
    assert_string_equal(text, expected);
    json_free(answer);
}

static inline void expect_error(struct fixture *f, struct client *client, int64_t code, const char *name)
{
    struct json *answer = next_answer(f, client);
    int64_t found = 0, status = 0;
    const char *text = "(none)";
    json_get_i64(answer, "error.code", &found, NULL);
    json_get_string(answer, "error.data.error", &text, NULL);
    assert_int_equal(json_get_i64(answer, "error.data.status", &status, NULL), ERROR_NONE);
    assert_string_equal(text, name);
    assert_int_equal(found, code);
    json_free(answer);
}

static inline void expect_end(struct fixture *f, struct client *client)
{
    assert_null(next_answer(f, client));
}

static const char hello[] = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"version\":1}}\n";
static const char status[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n";
static const char wait_armed[] =
    "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"wait\",\"params\":{\"for\":\"armed\",\"timeout_ms\":1000}}\n";

static inline struct client client_ready(struct fixture *f)
{
    struct client client = client_open(f);
    send_text(f, &client, hello);
    expect_text(f, &client, "result.program", "kldump-run");
    return client;
}

static inline void turn_until_held(struct fixture *f, int count)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (f->held_count < count && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(f->held_count, count);
}

static inline void turn_until_gone(struct fixture *f, int count)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (f->gone < count && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(f->gone, count);
}
