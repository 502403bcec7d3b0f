/* Who may connect, how many of them, and what a handler learns of them. Other users need root: the second group
 * of tests is for it. */
#include "control_helper.h"

#include <grp.h>
#include <sys/resource.h>

enum { OWNER = 61001, STRANGER = 61002, GROUP = 61100, MANY = 300 };

/* Connects as user `uid`: the kernel notes who calls connect. */
static struct client client_as(struct fixture *f, uid_t uid)
{
    assert_int_equal(seteuid(uid), 0);
    struct client client = {.descriptor = open_socket(f->path)};
    assert_int_equal(seteuid(0), 0);
    assert_true(client.descriptor >= 0);
    buffer_init(&client.input);
    return client;
}

static enum error_code admit_group(uid_t uid, gid_t gid, const gid_t *groups, size_t count, void *user,
                                   struct error *err)
{
    (void)user;
    (void)gid;
    for (size_t i = 0; i < count; i++)
        if (groups[i] == GROUP || groups[i] == GROUP + 99)
            return ERROR_NONE;
    return error_set(err, ERROR_FORBIDDEN, "user %u is not in [access] groups", (unsigned)uid);
}

/* A server for all, as root's kldumpd has one. */
static int setup_for_all(void **state)
{
    setup(state);
    struct fixture *f = *state;
    control_close(f->server, 0, loop_set_true, &f->closed);
    loop_until(&f->loop, &f->closed);
    f->closed = false;
    struct control_options options = options_for(f);
    options.owner = OWNER;
    options.mode = 0666;
    options.admit = admit_group;
    struct error err = ERROR_INIT;
    assert_int_equal(chmod(f->folder, 0755), 0);
    assert_int_equal(control_listen(&f->loop, &options, &f->server, &err), ERROR_NONE);
    assert_int_equal(setgroups(0, NULL), 0);
    return 0;
}

static int teardown_for_all(void **state)
{
    assert_int_equal(setgroups(0, NULL), 0);
    return teardown(state);
}

static void set_groups(size_t count)
{
    gid_t groups[200];
    for (size_t i = 0; i < count; i++)
        groups[i] = (gid_t)(GROUP + i);
    assert_int_equal(setgroups(count, groups), 0);
}

static void test_the_mode_is_right_whatever_the_umask(void **state)
{
    struct fixture *f = *state;
    struct stat found;
    assert_int_equal(lstat(f->path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0666);
    control_close(f->server, 0, loop_set_true, &f->closed);
    loop_until(&f->loop, &f->closed);
    static const mode_t masks[] = {0, 077, 0777};
    for (size_t i = 0; i < 3; i++) {
        struct control_options options = options_for(f);
        options.mode = i == 1 ? 0666 : 0;
        mode_t old = umask(masks[i]);
        f->closed = false;
        assert_int_equal(control_listen(&f->loop, &options, &f->server, NULL), ERROR_NONE);
        assert_int_equal(umask(old), masks[i]);
        assert_int_equal(lstat(f->path, &found), 0);
        assert_int_equal(found.st_mode & 07777, i == 1 ? 0666 : 0600);
        control_close(f->server, 0, loop_set_true, &f->closed);
        loop_until(&f->loop, &f->closed);
    }
    f->server = NULL;
}

static void test_groups_of_the_peer_are_told(void **state)
{
    struct fixture *f = *state;
    static const size_t counts[] = {1, 32, 33, 100};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        set_groups(counts[i]);
        struct client client = client_as(f, STRANGER);
        assert_int_equal(setgroups(0, NULL), 0);
        send_text(f, &client, hello);
        expect_text(f, &client, "result.program", "kldump-run");
        send_text(f, &client, status);
        expect_text(f, &client, "result.state", "armed");
        assert_int_equal(f->seen_uid, STRANGER);
        assert_int_equal(f->seen_gid, getegid());
        assert_int_equal(f->seen_groups, counts[i]);
        assert_int_equal(f->seen_last_group, GROUP + counts[i] - 1);
        assert_string_equal(f->seen_by, "");
        client_close(&client);
    }
}

static void test_who_is_not_admitted_hears_the_rule(void **state)
{
    struct fixture *f = *state;
    struct client client = client_as(f, STRANGER);
    send_text(f, &client, hello); /* thrown away */
    struct json *answer = next_answer(f, &client);
    const char *text = "";
    assert_int_equal(json_get_string(answer, "error.message", &text, NULL), ERROR_NONE);
    assert_string_equal(text, "user 61002 is not in [access] groups");
    assert_int_equal(json_type(json_member(answer, "id")), JSON_NULL);
    json_free(answer);
    expect_end(f, &client);
    client_close(&client);
    assert_int_equal(f->gone, 0);
}

static void test_by_is_taken_from_root_and_the_owner_alone(void **state)
{
    struct fixture *f = *state;
    static const char by_bob[] = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"version\":1,\"by\":"
                                 "\"bob (uid 1001)\"}}\n";
    static const uid_t believed[] = {0, OWNER};
    for (size_t i = 0; i < 2; i++) {
        struct client client = client_as(f, believed[i]);
        send_text(f, &client, by_bob);
        expect_text(f, &client, "result.program", "kldump-run");
        send_text(f, &client, status);
        expect_text(f, &client, "result.state", "armed");
        assert_string_equal(f->seen_by, "bob (uid 1001)");
        client_close(&client);
    }
    set_groups(1);
    struct client client = client_as(f, STRANGER);
    send_text(f, &client, by_bob);
    expect_error(f, &client, -32000, "forbidden");
    expect_end(f, &client);
    client_close(&client);
    static const char *const bad[] = {"5", "\"a\\nb\"", "\"\\u001b[31m\"", "[]"};
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        char line[400], text[CONTROL_BY_MAX + 4];
        memset(text, 'x', sizeof text);
        text[0] = text[CONTROL_BY_MAX + 2] = '"';
        text[CONTROL_BY_MAX + 3] = '\0';
        snprintf(line, sizeof line,
                 "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"version\":1,\"by\":%s}}\n",
                 i < sizeof bad / sizeof bad[0] ? bad[i] : text);
        client = client_as(f, 0);
        send_text(f, &client, line);
        struct json *answer = next_answer(f, &client);
        assert_non_null(json_find(answer, "error.data.error"));
        json_free(answer);
        expect_end(f, &client);
        client_close(&client);
    }
}

/* Opens until `count` clients are there; counts those that are refused as busy. */
static void open_many(struct fixture *f, struct client *clients, int count, uid_t uid, int *ret_served, int *ret_busy)
{
    *ret_served = *ret_busy = 0;
    for (int i = 0; i < count; i++) {
        clients[i] = client_as(f, uid);
        send_text(f, &clients[i], hello);
        struct json *answer = next_answer(f, &clients[i]);
        const char *name = "";
        json_get_string(answer, "error.data.error", &name, NULL);
        *ret_busy += strcmp(name, "busy") == 0;
        *ret_served += json_find(answer, "result.program") != NULL;
        json_free(answer);
    }
}

static struct client ready_as(struct fixture *f, uid_t uid)
{
    struct client client = client_as(f, uid);
    send_text(f, &client, hello);
    expect_text(f, &client, "result.program", "kldump-run");
    return client;
}

static void expect_served(struct fixture *f, uid_t uid)
{
    struct client client = ready_as(f, uid);
    send_text(f, &client, status);
    expect_text(f, &client, "result.state", "armed");
    client_close(&client);
}

static void turn_until_alone(struct fixture *f)
{
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (control_connections(f->server) > 0 && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(control_connections(f->server), 0);
}

/* Those that have not been closed. */
static int count_open(struct fixture *f, struct client *clients, int count)
{
    int open = 0;
    for (int turns = 0; turns < 20; turns++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    for (int i = 0; i < count; i++) {
        receive(&clients[i]); /* why */
        receive(&clients[i]); /* the end */
        open += !clients[i].ended;
    }
    return open;
}

static void test_one_user_is_capped_and_users_together_leave_room_for_root(void **state)
{
    struct fixture *f = *state;
    enum { USERS = 5, SHARE = (CONTROL_TOTAL - CONTROL_RESERVED) / USERS };
    static struct client clients[USERS][MANY];
    struct rlimit limit = {8192, 8192};
    setrlimit(RLIMIT_NOFILE, &limit);
    set_groups(1);
    int served, busy, total = 0, ended = 0;
    for (int user = 0; user < USERS; user++) {
        open_many(f, clients[user], MANY, (uid_t)(STRANGER + user), &served, &busy);
        assert_int_equal(served + busy, MANY);
        assert_true(served <= CONTROL_PER_UID);
        if (user == 0)
            assert_int_equal(served, CONTROL_PER_UID);
    }
    for (int user = 0; user < USERS; user++) { /* those who came first have given up what was more than their share */
        int open = count_open(f, clients[user], MANY);
        assert_in_range(open, SHARE - 2, SHARE + 2);
        total += open;
    }
    assert_int_equal(total, CONTROL_TOTAL - CONTROL_RESERVED);
    expect_served(f, STRANGER + USERS);
    total -= 1; /* somebody has given way */
    struct client root[CONTROL_RESERVED + 2];
    open_many(f, root, CONTROL_RESERVED + 2, 0, &served, &busy);
    assert_int_equal(served, CONTROL_TOTAL - total);
    assert_int_equal(busy, 1);
    for (int user = 0; user < USERS; user++)
        for (int i = 0; i < MANY; i++) {
            ended += clients[user][i].ended;
            client_close(&clients[user][i]);
        }
    assert_true(ended >= USERS * MANY - CONTROL_TOTAL);
    for (int i = 0; i < CONTROL_RESERVED + 2; i++)
        client_close(&root[i]);
    turn_until_alone(f);
}

/* Who may not come keeps nobody out, however often he tries without reading why. */
static void test_refused_ones_are_no_burden(void **state)
{
    struct fixture *f = *state;
    static struct client refused[2 * MANY];
    struct rlimit limit = {8192, 8192};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 2 * MANY; i++) {
        refused[i] = client_as(f, STRANGER);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    for (int turns = 0; turns < 10; turns++)
        loop_turn(&f->loop, -1);
    assert_true(control_connections(f->server) <= CONTROL_REFUSED);
    set_groups(1);
    struct client good = client_as(f, STRANGER);
    send_text(f, &good, hello);
    expect_text(f, &good, "result.program", "kldump-run");
    client_close(&good);
    for (int i = 0; i < 2 * MANY; i++)
        client_close(&refused[i]);
}

/* A line of `length` bytes without its end: a wait for a state with a long name. */
static char *long_wait(size_t length)
{
    static const char head[] = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"wait\",\"params\":{\"for\":\"";
    static const char tail[] = "\",\"timeout_ms\":1000}}";
    char *line = malloc(length + 2);
    memset(line, 'x', length);
    memcpy(line, head, sizeof head - 1);
    memcpy(line + length - (sizeof tail - 1), tail, sizeof tail);
    return line;
}

enum { MIB = 1024 * 1024, USER_MIB = CONTROL_USER_BYTES / MIB };

/* Begun lines of one user take so much memory and no more; nobody else is concerned. */
/* However many knock, each turn of the loop ends; and all are taken in the end. */
static void test_a_turn_takes_so_many_connections(void **state)
{
    struct fixture *f = *state;
    struct client clients[100];
    for (size_t i = 0; i < 100; i++)
        clients[i] = client_as(f, 0);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    size_t count = control_connections(f->server);
    assert_int_equal(count, CONTROL_BURST);
    for (int turns = 0; count < 100 && turns < 20; turns++) {
        size_t before = count;
        uv_run(&f->loop, UV_RUN_NOWAIT);
        count = control_connections(f->server);
        assert_true(count - before <= CONTROL_BURST + 1);
    }
    assert_int_equal(count, 100);
    for (size_t i = 0; i < 100; i++) {
        close(clients[i].descriptor);
        buffer_fini(&clients[i].input);
    }
}

static void test_begun_lines_of_one_user_are_limited(void **state)
{
    struct fixture *f = *state;
    struct client clients[USER_MIB + 8];
    char *line = long_wait(MIB - 100);
    int busy = 0;
    set_groups(1);
    for (int i = 0; i < USER_MIB + 8; i++) {
        clients[i] = ready_as(f, STRANGER);
        send_bytes(f, &clients[i], line, MIB - 100);
    }
    for (int turns = 0; turns < 10; turns++)
        loop_turn(&f->loop, -1);
    for (int i = 0; i < USER_MIB + 8; i++) {
        receive(&clients[i]);
        if (clients[i].input.length == 0)
            continue;
        expect_error(f, &clients[i], -32000, "busy");
        expect_end(f, &clients[i]);
        busy++;
    }
    assert_int_equal(busy, 9); /* one MiB is for small requests */
    expect_served(f, STRANGER + 1);
    expect_served(f, STRANGER);
    client_close(&clients[1]);
    client_close(&clients[2]);
    turn_until_gone(f, busy + 4);
    send_text(f, &clients[0], "\n"); /* a line that was begun in time is taken */
    turn_until_held(f, 1);
    struct client root = client_as(f, 0);
    send_text(f, &root, hello);
    expect_text(f, &root, "result.program", "kldump-run");
    send_bytes(f, &root, line, MIB - 100);
    send_text(f, &root, "\n");
    turn_until_held(f, 2);
    client_close(&root);
    for (int i = 0; i < USER_MIB + 8; i++)
        if (i != 1 && i != 2)
            client_close(&clients[i]);
    turn_until_alone(f);
    struct client again = ready_as(f, STRANGER);
    for (int i = 0; i < 3; i++) {
        send_bytes(f, &again, line, MIB - 100);
        send_text(f, &again, "\n");
    }
    turn_until_held(f, 5);
    client_close(&again);
    free(line);
}

/* So do requests that wait for their answer, also when their client has gone. */
static void test_requests_of_one_user_are_limited(void **state)
{
    struct fixture *f = *state;
    enum { LENGTH = MIB - 100 };
    char *line = long_wait(LENGTH);
    line[LENGTH] = '\n';
    set_groups(1);
    struct client client = ready_as(f, STRANGER), other = ready_as(f, STRANGER);
    for (int i = 1; i <= USER_MIB - 3; i++) {
        send_bytes(f, &client, line, LENGTH + 1);
        turn_until_held(f, i);
    }
    client_close(&client);
    turn_until_gone(f, 1);
    send_bytes(f, &other, line, LENGTH + 1);
    expect_error(f, &other, -32000, "busy");
    send_text(f, &other, status); /* a small one is served on the same connection */
    expect_text(f, &other, "result.state", "armed");
    for (int i = 0; i < 4; i++)
        control_reply(f->held[--f->held_count], json_object());
    int held = f->held_count;
    send_bytes(f, &other, line, LENGTH + 1);
    turn_until_held(f, held + 1);
    client_close(&other);
    free(line);
}

/* And answers that nobody reads. */
static void test_unread_answers_of_one_user_are_limited(void **state)
{
    struct fixture *f = *state;
    static const char logs[] = "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"logs\",\"params\":{\"offset\":1000000}}\n";
    struct client clients[USER_MIB];
    set_groups(1);
    for (int i = 0; i < USER_MIB; i++) {
        clients[i] = ready_as(f, STRANGER);
        for (int k = 0; k < 3; k++)
            send_text(f, &clients[i], logs);
        for (int turns = 0; turns < 3; turns++)
            uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_in_range(f->gone, USER_MIB / 2, USER_MIB - 4);
    expect_served(f, STRANGER);
    expect_served(f, STRANGER + 1);
    for (int i = 0; i < 3; i++) /* the first was there in time */
        expect_text(f, &clients[0], "error", "(none)");
    for (int i = 0; i < USER_MIB; i++)
        client_close(&clients[i]);
    turn_until_alone(f);
}

static void test_a_socket_of_the_service_manager_is_used_and_never_removed(void **state)
{
    struct fixture *f = *state;
    char path[400];
    snprintf(path, sizeof path, "%s/given", f->folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int given = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(given, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(given, 16), 0);
    int early = open_socket(path); /* waits in the queue since before the server was there */
    struct control_options options = options_for(f);
    options.path = path;
    options.descriptor = given;
    struct control_server *second = NULL;
    struct error err = ERROR_INIT;
    bool again = true, closed = false;
    assert_int_equal(control_listen(&f->loop, &options, &second, &err), ERROR_NONE);
    struct client client = {.descriptor = early};
    buffer_init(&client.input);
    send_text(f, &client, hello);
    expect_text(f, &client, "result.program", "kldump-run");
    client_close(&client);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(control_look(second, &again, &err), ERROR_NONE);
    assert_false(again);
    int file = open(path, O_CREAT | O_WRONLY, 0600); /* what is there is not ours */
    close(file);
    control_close(second, 0, loop_set_true, &closed);
    loop_until(&f->loop, &closed);
    assert_int_equal(unlink(path), 0);
}

static void test_a_socket_that_was_removed_is_made_again(void **state)
{
    struct fixture *f = *state;
    bool again = true;
    struct error err = ERROR_INIT;
    struct client before = client_ready(f), waiting = client_open(f);
    loop_turn(&f->loop, -1);
    assert_int_equal(control_look(f->server, &again, &err), ERROR_NONE);
    assert_false(again);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(unlink(f->path), 0);
        assert_int_equal(control_look(f->server, &again, &err), ERROR_NONE);
        assert_true(again);
        struct client after = client_ready(f);
        client_close(&after);
    }
    send_text(f, &before, status); /* who was there stays */
    expect_text(f, &before, "result.state", "armed");
    send_text(f, &waiting, hello);
    expect_text(f, &waiting, "result.program", "kldump-run");
    client_close(&before);
    client_close(&waiting);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(mkdir(f->path, 0700), 0); /* somebody else's is left alone */
    assert_int_equal(control_look(f->server, &again, &err), ERROR_NONE);
    assert_false(again);
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(chmod(f->folder, 0777), 0);
    assert_int_equal(control_look(f->server, &again, &err), ERROR_FORBIDDEN);
    assert_int_equal(chmod(f->folder, 0700), 0);
    assert_int_equal(control_look(f->server, &again, &err), ERROR_NONE);
    assert_true(again);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define R(name) cmocka_unit_test_setup_teardown(name, setup_for_all, teardown_for_all)
    const struct CMUnitTest tests[] = {
        T(test_a_socket_of_the_service_manager_is_used_and_never_removed),
        T(test_a_socket_that_was_removed_is_made_again),
    };
    const struct CMUnitTest users[] = {
        R(test_the_mode_is_right_whatever_the_umask),
        R(test_groups_of_the_peer_are_told),
        R(test_who_is_not_admitted_hears_the_rule),
        R(test_by_is_taken_from_root_and_the_owner_alone),
        R(test_one_user_is_capped_and_users_together_leave_room_for_root),
        R(test_refused_ones_are_no_burden),
        R(test_a_turn_takes_so_many_connections),
        R(test_begun_lines_of_one_user_are_limited),
        R(test_requests_of_one_user_are_limited),
        R(test_unread_answers_of_one_user_are_limited),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return geteuid() == 0 ? failed + cmocka_run_group_tests(users, NULL, NULL) : failed;
}
