/* src/conf/settings.h: arguments, config file, merge, bounds, help. */
#include "conf/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARGUMENTS(...)    \
    (char *[])            \
    {                     \
        __VA_ARGS__, NULL \
    }

struct outcome {
    enum error_code code;
    struct settings settings;
    struct error err;
    int rest;
};

static struct outcome resolve(char **argv, const char *file, size_t file_length)
{
    struct outcome o = {.err = ERROR_INIT};
    struct settings_texts arguments = {0}, from_file = {0};
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    settings_parse_arguments(argc, argv, &arguments, &o.rest);
    if (file != NULL)
        settings_parse_file("k.conf", file, file_length, &from_file);
    o.code = settings_resolve(&arguments, file != NULL ? &from_file : NULL, 0x123456, &o.settings, &o.err);
    settings_texts_fini(&arguments);
    settings_texts_fini(&from_file);
    return o;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, text);
}

static void assert_file_fault(const char *file, size_t length, const char *part)
{
    struct outcome o = resolve(ARGUMENTS("--", "x"), file, length);
    assert_int_not_equal(o.code, ERROR_NONE);
    assert_has(o.err.message, part);
    assert_null(o.settings.directory); /* untouched */
}

static void test_defaults(void **state)
{
    (void)state;
    struct outcome o = resolve(ARGUMENTS("--", "python3", "-m", "x"), NULL, 0);
    assert_int_equal(o.code, ERROR_NONE);
    assert_int_equal(o.rest, 1);
    assert_int_equal(o.settings.start_timeout_ms, 30 * 60 * 1000);
    assert_int_equal(o.settings.stop_timeout_ms, 60 * 1000);
    assert_true(o.settings.worst_rate_bytes_per_s == 10ull << 30);
    assert_true(o.settings.floor.value == 0 && o.settings.soft.value == 0 && o.settings.budget_bytes == 0);
    assert_null(o.settings.config);
    char name[65], directory[100];
    settings_random_name(0x123456, name, sizeof name);
    assert_string_equal(o.settings.name, name);
    snprintf(directory, sizeof directory, "./kldump-%s", name);
    assert_string_equal(o.settings.directory, directory);
    settings_fini(&o.settings);
}

static void test_arguments(void **state)
{
    (void)state;
    struct outcome o =
        resolve(ARGUMENTS("--name=t", "--dir", "d=1", "--floor", "5%", "--stop-timeout=2s", "--", "--dir"), NULL, 0);
    assert_int_equal(o.code, ERROR_NONE);
    assert_int_equal(o.rest, 7);
    assert_string_equal(o.settings.name, "t");
    assert_string_equal(o.settings.directory, "d=1");
    assert_true(o.settings.floor.percent && o.settings.floor.value == 5000);
    assert_int_equal(o.settings.stop_timeout_ms, 2000);
    settings_fini(&o.settings);
}

/* The values that `value` text of each setting gives are the same again. */
static void test_values_print_and_parse(void **state)
{
    (void)state;
    struct outcome o = resolve(ARGUMENTS("--name=t", "--floor=10.5G", "--start-timeout=90s", "--", "x"), NULL, 0);
    assert_int_equal(o.code, ERROR_NONE);
    struct buffer floor, start;
    buffer_init(&floor);
    buffer_init(&start);
    buffer_text(&floor, "--floor=");
    settings_value(&o.settings, SETTINGS_FLOOR, &floor);
    buffer_text(&start, "--start-timeout=");
    settings_value(&o.settings, SETTINGS_START_TIMEOUT, &start);
    struct outcome again = resolve(ARGUMENTS("--name=t", floor.data, start.data, "--", "x"), NULL, 0);
    assert_int_equal(again.code, ERROR_NONE);
    assert_true(again.settings.floor.value == o.settings.floor.value);
    assert_true(again.settings.start_timeout_ms == 90000);
    buffer_fini(&floor);
    buffer_fini(&start);
    settings_fini(&again.settings);
    settings_fini(&o.settings);
}

static void test_all_argument_faults_in_one_message(void **state)
{
    (void)state;
    struct outcome o = resolve(
        ARGUMENTS("--flor", "5G", "--name", "-bad", "--floor=0B", "--stop-timeout=10", "--name=b", "--dir"), NULL, 0);
    assert_int_equal(o.code, ERROR_USAGE);
    assert_has(o.err.message, "unknown option '--flor'; did you mean --floor?");
    assert_has(o.err.message, "--name is given twice");
    assert_has(o.err.message, "--dir needs a value");
    assert_has(o.err.message, "command is missing");
    assert_has(o.err.message, "'-bad' is not a name");
    assert_has(o.err.message, "--floor: 0B is out of bounds");
    assert_has(o.err.message, "--stop-timeout");
    o = resolve(ARGUMENTS("python3", "-m", "sglang"), NULL, 0);
    assert_has(o.err.message, "'python3' is not an option; the command comes after ' -- '");
    o = resolve(ARGUMENTS("--"), NULL, 0);
    assert_has(o.err.message, "no command stands after");
}

static void test_bounds(void **state)
{
    (void)state;
    static const char *const bad[] = {"--floor=0%",
                                      "--floor=91%",
                                      "--floor=5",
                                      "--floor=1Github",
                                      "--floor=5 %%",
                                      "--floor=-1G",
                                      "--start-timeout=0s",
                                      "--start-timeout=999ms",
                                      "--start-timeout=2147484000s",
                                      "--dir=",
                                      "--dir=a\nb",
                                      "--dir=\xe7"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", bad[i]);
        struct outcome o = resolve(ARGUMENTS(text, "--", "x"), NULL, 0);
        if (o.code == ERROR_NONE)
            fail_msg("%s was taken", bad[i]);
    }
}

#define FILE_FAULT(text, part) assert_file_fault(text, sizeof text - 1, part)

static void test_file(void **state)
{
    (void)state;
    static const char file[] =
        "# comment\n\n[run]\nfloor = 12%\r\nworst_rate=5G\nstart_timeout = 10min\ndir = /d/\xc3\xa9\n";
    struct outcome o = resolve(ARGUMENTS("--start-timeout=3s", "--config=k.conf", "--", "x"), file, sizeof file - 1);
    assert_int_equal(o.code, ERROR_NONE);
    assert_int_equal(o.settings.start_timeout_ms, 3000); /* the argument wins */
    assert_true(o.settings.floor.percent && o.settings.floor.value == 12000);
    assert_true(o.settings.worst_rate_bytes_per_s == 5ull << 30);
    assert_string_equal(o.settings.directory, "/d/\xc3\xa9");
    assert_string_equal(o.settings.config, "k.conf");
    settings_fini(&o.settings);
}

static void test_file_faults_have_line_numbers(void **state)
{
    (void)state;
    FILE_FAULT("[run]\nfloor = 5G\nfloor = 6G\n", "k.conf line 3: 'floor' was set in line 2 already");
    FILE_FAULT("[run]\nfloor = 5G\n  6G\n", "k.conf line 3: is indented");
    FILE_FAULT("[run]\nflor = 5G\n", "k.conf line 2: unknown key 'flor'");
    FILE_FAULT("floor = 5G\n", "k.conf line 1: stands before any section");
    FILE_FAULT("[runs]\nfloor = 5G\n", "k.conf line 1: unknown section");
    FILE_FAULT("[run]\nfloor 5G\n", "k.conf line 2: expected KEY = VALUE");
    FILE_FAULT("[run]\nfloor: 5G\n", "k.conf line 2: expected KEY = VALUE");
    FILE_FAULT("[run]\ndir = /a ; b\n", "k.conf line 2: ' ;' inside a line");
    FILE_FAULT("[run]\n\ndir = d\n", "k.conf line 3: 'd' is relative");
    FILE_FAULT("[run]\nfloor = 5 G\n", "k.conf line 2");
    FILE_FAULT("[run]\ndir = /a\xe7x\n", "k.conf line 2: byte 0xe7 in column 9 is not UTF-8");
    FILE_FAULT("[run]\ndir = /a\0x\n", "k.conf line 2: holds a NUL byte");
    FILE_FAULT("[run]\nname = x\n", "k.conf line 2: unknown key 'name'");
    /* several at once, and what the arguments have wrong as well */
    struct outcome o = resolve(ARGUMENTS("--floor=x", "--", "x"), "a\n[run]\nb=1\n", 12);
    assert_has(o.err.message, "line 1");
    assert_has(o.err.message, "--floor");
}

static void test_long_lines(void **state)
{
    (void)state;
    for (size_t length = 170; length < 75000; length = length < 200 ? length + 1 : length * 2) {
        struct buffer file;
        buffer_init(&file);
        buffer_text(&file, "[run]\ndir = /");
        for (size_t i = 0; i < length - 7; i++)
            buffer_text(&file, "a");
        buffer_text(&file, "\nfloor = 5G\n");
        struct outcome o = resolve(ARGUMENTS("--", "x"), file.data, file.length);
        if (length <= SETTINGS_LINE_MAX) {
            assert_int_equal(o.code, ERROR_NONE);
            assert_int_equal(strlen(o.settings.directory), length - 6);
            assert_true(o.settings.floor.value == 5ull << 30);
            settings_fini(&o.settings);
        } else {
            assert_int_not_equal(o.code, ERROR_NONE);
            assert_has(o.err.message, file.length > SETTINGS_FILE_MAX ? "larger than 64 KiB" : "k.conf line 2: longer");
            assert_null(strstr(o.err.message, "aaaa"));
        }
        buffer_fini(&file);
    }
}

static void test_help_names_every_option(void **state)
{
    (void)state;
    struct buffer help;
    buffer_init(&help);
    settings_help(&help);
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        char label[80];
        const char *flag = settings_flag((enum settings_id)id);
        if (flag[0] != '\0')
            snprintf(label, sizeof label, "  --%s ", flag);
        else
            snprintf(label, sizeof label, "  %s = ", settings_key((enum settings_id)id));
        assert_has(help.data, label);
    }
    for (const char *line = help.data; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 82);
    buffer_fini(&help);
}

static void test_names_are_names(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i += 7) {
        char name[65];
        settings_random_name(i * 0x9e3779b97f4a7c15ull, name, sizeof name);
        assert_true(strlen(name) > 5 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_values_print_and_parse),
        cmocka_unit_test(test_all_argument_faults_in_one_message),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_faults_have_line_numbers),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_help_names_every_option),
        cmocka_unit_test(test_names_are_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
