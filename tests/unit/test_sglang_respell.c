/* Another spelling after "unrecognized arguments". */
#include "sglang/respell.h"
#include "sglang/lines.h"
#include "sglang/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DECODE_OLD  "--disable-cuda-graph"
#define PREFILL_OLD "--disable-piecewise-cuda-graph"
#define DECODE_NEW  "--disable-decode-cuda-graph"
#define PREFILL_NEW "--disable-prefill-cuda-graph"

struct world {
    struct list argv, environment;
    char note[256];
};

/* The text that a server's line gives, as the guard gets it. */
static const char *unknown_text(const char *flags, struct server_line *line)
{
    char text[400];
    snprintf(text, sizeof text, "launch_server.py: error: unrecognized arguments: %s", flags);
    lines_read(text, strlen(text), line);
    assert_int_equal(line->kind, SERVER_LINE_UNKNOWN_FLAG);
    return line->text;
}

static bool respell(struct world *world, bool wrapper, const char *flags, unsigned tried)
{
    const struct server_command command = {.is_wrapper = wrapper};
    struct server_line line;
    snprintf(world->note, sizeof world->note, "untouched");
    return respell_try(&command, unknown_text(flags, &line), tried, &world->argv, &world->environment, world->note,
                       sizeof world->note);
}

static void begin(struct world *world, const char *first, const char *second)
{
    *world = (struct world){0};
    const char *const words[] = {"python3", "-m",   "sglang.launch_server", "--model-path", "m",
                                 first,     second, "--watchdog-timeout",   "86400"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        list_add(&world->argv, words[i]);
    list_add(&world->environment, "HOME=/home/u");
}

static void finish(struct world *world)
{
    list_fini(&world->argv);
    list_fini(&world->environment);
}

static void assert_pair(const struct world *world, const char *first, const char *second)
{
    assert_int_equal(world->argv.count, 9);
    assert_string_equal(world->argv.items[5], first);
    assert_string_equal(world->argv.items[6], second);
    assert_string_equal(world->argv.items[8], "86400");
    assert_null(world->argv.items[9]);
}

static void test_each_once(void **state)
{
    (void)state;
    struct world world;
    begin(&world, DECODE_NEW, PREFILL_NEW);
    assert_true(respell(&world, false, DECODE_NEW " " PREFILL_NEW, 1));
    assert_pair(&world, DECODE_OLD, PREFILL_OLD);
    assert_non_null(strstr(world.note, "does not know " DECODE_NEW " " PREFILL_NEW ":"));
    assert_non_null(strstr(world.note, "launched again with " DECODE_OLD " " PREFILL_OLD));
    assert_false(respell(&world, false, PREFILL_OLD, 2));
    assert_pair(&world, DECODE_OLD, PREFILL_OLD);
    assert_string_equal(world.note, "untouched");
    finish(&world);

    begin(&world, DECODE_OLD, PREFILL_OLD); /* 0.5.20 and later know the first one still */
    assert_true(respell(&world, false, PREFILL_OLD, 1));
    assert_pair(&world, DECODE_NEW, PREFILL_NEW);
    finish(&world);
}

static void test_not_ours(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "--modle-path x", PREFILL_NEW " --modle-path x", "--disable-prefill-cuda-graphs", "--disable-prefill", "x",
        PREFILL_OLD};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct world world;
        begin(&world, DECODE_NEW, PREFILL_NEW);
        if (respell(&world, false, flags[i], 1))
            fail_msg("%s: %s", flags[i], world.note);
        assert_pair(&world, DECODE_NEW, PREFILL_NEW);
        finish(&world);
    }
}

/* What the user has written stays, even where it is the same flag. */
static void test_users_words(void **state)
{
    (void)state;
    struct world world = {0};
    const char *const words[] = {"sglang", "serve", DECODE_OLD, PREFILL_OLD, "m", DECODE_OLD, PREFILL_OLD};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        list_add(&world.argv, words[i]);
    assert_true(respell(&world, false, PREFILL_OLD, 1));
    assert_string_equal(world.argv.items[2], DECODE_OLD);
    assert_string_equal(world.argv.items[3], PREFILL_OLD);
    assert_string_equal(world.argv.items[5], DECODE_NEW);
    assert_string_equal(world.argv.items[6], PREFILL_NEW);
    finish(&world);
    list_add(&world.argv, "sglang");
    assert_false(respell(&world, false, PREFILL_OLD, 1));
    finish(&world);
}

static void test_wrapper(void **state)
{
    (void)state;
    struct world world = {0};
    list_add(&world.argv, "./serve.sh");
    assert_false(respell(&world, true, PREFILL_NEW, 1));
    list_environment_set(&world.environment, SETTINGS_WRAPPER_VARIABLE,
                         DECODE_NEW " " PREFILL_NEW " --watchdog-timeout 86400");
    assert_true(respell(&world, true, PREFILL_NEW " " DECODE_NEW, 1));
    assert_string_equal(list_environment_get(&world.environment, SETTINGS_WRAPPER_VARIABLE),
                        DECODE_OLD " " PREFILL_OLD " --watchdog-timeout 86400");
    assert_int_equal(world.argv.count, 1);
    assert_false(respell(&world, true, PREFILL_OLD, 2));
    finish(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_not_ours),
        cmocka_unit_test(test_users_words),
        cmocka_unit_test(test_wrapper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
