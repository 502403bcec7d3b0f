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

static void test_one_user_is_capped_and_users_together_leave_room_for_root(void **state)
{
    struct fixture *f = *state;
    static struct client clients[5][MANY];
    struct rlimit limit = {8192, 8192};
    setrlimit(RLIMIT_NOFILE, &limit);
    set_groups(1);
    int served, busy, total = 0;
    for (int user = 0; user < 5; user++) {
        open_many(f, clients[user], MANY, (uid_t)(STRANGER + user), &served, &busy);
        assert_int_equal(served + busy, MANY);
        assert_true(served <= CONTROL_PER_UID);
        total += served;
        if (user == 0)
            assert_int_equal(served, CONTROL_PER_UID);
    }
    assert_int_equal(total, CONTROL_TOTAL - CONTROL_RESERVED);
    struct client root[CONTROL_RESERVED + 1];
    open_many(f, root, CONTROL_RESERVED + 1, 0, &served, &busy);
    assert_int_equal(served, CONTROL_RESERVED);
    assert_int_equal(busy, 1);
    client_close(&clients[0][0]);
    turn_until_gone(f, 1);
    for (int user = 0; user < 5; user++)
        for (int i = user == 0; i < MANY; i++)
            client_close(&clients[user][i]);
    for (int i = 0; i <= CONTROL_RESERVED; i++)
        client_close(&root[i]);
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (control_connections(f->server) > 0 && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(control_connections(f->server), 0);
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
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return geteuid() == 0 ? failed + cmocka_run_group_tests(users, NULL, NULL) : failed;
}
