/* kldumpctl check as a program's caller sees it, and its JSON read back as the guard does. */
#include "base/memory.h"
#include "ctl/command.h"
#include "dump_files.h"
#include "json/json.h"
#include "sys/audit_json.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const ids[] = {"a-1", NULL};

static int setup(void **state)
{
    char *folder = dump_files_folder();
    uint64_t index = 0;
    for (uint64_t step = 0; step < 3; step++) {
        const struct dump_files_pass pass = {.step = step, .layers = 2, .tokens = step == 0 ? 5 : 1, .ids = ids};
        dump_files_pass(folder, &pass, &index);
    }
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    dump_files_remove(*state);
    free(*state);
    return 0;
}

/* Runs "check ARGUMENTS"; standard error goes nowhere. The output's text is the caller's. */
static int check(char **ret_text, const char *first, const char *second, const char *third, const char *fourth)
{
    struct output out;
    output_init(&out, STDOUT_FILENO);
    char *argv[] = {(char *)"check", (char *)first, (char *)second, (char *)third, (char *)fourth, NULL};
    int argc = 0, saved = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    while (argv[argc] != NULL)
        argc++;
    dup2(nowhere, STDERR_FILENO);
    int status = command_check.run(&command_check, &out, argc, argv);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(nowhere);
    *ret_text = buffer_steal(&out.pending);
    output_fini(&out);
    return status;
}

static char *expectation(const char *folder, const char *text)
{
    dump_files_write(folder, "expect.json", text, strlen(text));
    return memory_format("%s/expect.json", folder);
}

static void report(void **state)
{
    char *text;
    assert_int_equal(check(&text, *state, NULL, NULL, NULL), STATUS_DONE);
    assert_non_null(strstr(text, "complete, as far as the files alone can tell"));
    assert_non_null(strstr(text, "39 files"));
    assert_non_null(strstr(text, "1-2  decode       2"));
    assert_non_null(strstr(text, "a-1"));
    free(text);
}

static void statuses(void **state)
{
    char *text;
    assert_int_equal(check(&text, "/no/such/folder", NULL, NULL, NULL), STATUS_NO_RUN);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(check(&text, NULL, NULL, NULL, NULL), STATUS_USAGE);
    free(text);
    assert_int_equal(check(&text, "--expect", "/no/such/file", *state, NULL), STATUS_USAGE);
    free(text);
    char *expect = expectation(*state, "{\"exact\":true}");
    assert_int_equal(check(&text, "--expect", expect, *state, NULL), STATUS_USAGE);
    free(text);
    free(expect);
    expect = expectation(
        *state, "{\"exact\":true,\"ranks\":[{\"index_from\":0,\"index_to\":39,\"step_from\":0,\"step_to\":3}]}");
    assert_int_equal(check(&text, "--expect", expect, *state, NULL), STATUS_DONE);
    assert_null(strstr(text, "as far as"));
    free(text);
    free(expect);
    expect = expectation(*state,
                         "{\"exact\":true,\"ranks\":[{\"index_from\":0,\"index_to\":40,\"step_from\":0,\"step_to\":3}],"
                         "\"own_request_ids\":[\"b\"],\"failed_saves\":2}");
    assert_int_equal(check(&text, "--expect", expect, *state, NULL), STATUS_INCOMPLETE);
    assert_non_null(strstr(text, "INCOMPLETE"));
    assert_non_null(strstr(text, "- missing dump_index values: rank 0 dump_index 40;"));
    assert_non_null(strstr(text, "by its log (2)"));
    assert_non_null(strstr(text, "somebody else: a-1"));
    assert_non_null(strstr(text, "usable       steps 0-1\n")); /* the last file is missing, so of the last step */
    free(text);
    free(expect);
}

static void expect_from_standard_input(void **state)
{
    static const char text[] =
        "{\"exact\":true,\"ranks\":[{\"index_from\":0,\"index_to\":40,\"step_from\":0,\"step_to\":3}]}";
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], text, sizeof text - 1), sizeof text - 1);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    char *out;
    int status = check(&out, "--json", "--expect", "-", *state);
    dup2(saved, STDIN_FILENO);
    close(saved);
    assert_int_equal(status, STATUS_INCOMPLETE);
    free(out);
}

/* Every member survives the way through the JSON. */
static void there_and_back(void **state)
{
    char *text;
    assert_int_equal(check(&text, "--json", *state, NULL, NULL), STATUS_DONE);
    size_t length = strlen(text);
    assert_int_equal(text[length - 1], '\n');
    struct json *json;
    assert_int_equal(json_parse(text, length, (struct json_limits){length, JSON_DEPTH, JSON_ANY_VALUES}, &json, NULL),
                     ERROR_NONE);
    assert_string_equal(json_key(json_first(json)), "schema");
    uint64_t number = 0;
    assert_int_equal(json_get_u64(json, "coverage.decode_passes", &number, NULL), ERROR_NONE);
    assert_int_equal(number, 2);
    assert_int_equal(json_get_u64(json, "coverage.extend_tokens", &number, NULL), ERROR_NONE);
    assert_int_equal(number, 5);
    assert_int_equal(json_get_u64(json, "usable_steps.0.first", &number, NULL), ERROR_NONE);
    assert_int_equal(number, 0);
    assert_int_equal(json_get_u64(json, "usable_steps.0.last", &number, NULL), ERROR_NONE);
    assert_int_equal(number, 2);
    json_free(json);

    struct audit audit;
    struct error err = ERROR_INIT;
    audit_init(&audit);
    assert_int_equal(audit_json_read(text, length, &audit, &err), ERROR_NONE);
    assert_true(audit.complete);
    assert_int_equal(audit.ranks, 1);
    assert_int_equal(audit.steps, 3);
    assert_int_equal(audit.files, 39);
    assert_int_equal(audit.layers, 2);
    assert_int_equal(audit.pass_count, 3);
    assert_int_equal(audit.passes[0].phase, AUDIT_EXTEND);
    assert_int_equal(audit.passes[2].phase, AUDIT_DECODE);
    assert_int_equal(audit.passes[0].tokens, 5);
    assert_true(audit.passes[1].has_request_ids);
    struct json *again = audit_json_make(&audit, *state);
    struct buffer printed;
    buffer_init(&printed);
    json_print(again, &printed);
    buffer_text(&printed, "\n");
    assert_string_equal(printed.data, text);
    buffer_fini(&printed);
    json_free(again);

    /* What is not such an object leaves the audit as it was. */
    char *schema = strstr(text, "check/1");
    schema[6] = '2';
    assert_int_equal(audit_json_read(text, length, &audit, &err), ERROR_FORMAT);
    schema[6] = '1';
    char *phase = strstr(text, "\"tokens\":5,");
    memcpy(phase, "\"tokens\":[]", 11);
    assert_int_equal(audit_json_read(text, length, &audit, &err), ERROR_FORMAT);
    assert_int_equal(audit.pass_count, 3);
    assert_int_equal(audit_json_read("[]", 2, &audit, &err), ERROR_FORMAT);
    audit_fini(&audit);
    free(text);
}

static void expectation_there_and_back(void **state)
{
    (void)state;
    struct audit_expected_rank ranks[] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    struct audit_expected from = {.known = true, .exact = true, .rank_count = 2, .ranks = ranks, .failed_saves = 9};
    list_add(&from.own_request_ids, "x\"y");
    struct buffer text;
    buffer_init(&text);
    audit_json_write_expected(&from, &text);
    struct audit_expected to = {0};
    assert_int_equal(audit_json_read_expected(text.data, text.length, &to, NULL), ERROR_NONE);
    assert_true(to.known && to.exact);
    assert_int_equal(to.rank_count, 2);
    assert_memory_equal(to.ranks, ranks, sizeof ranks);
    assert_int_equal(to.failed_saves, 9);
    assert_string_equal(to.own_request_ids.items[0], "x\"y");
    audit_expected_fini(&to);
    list_fini(&from.own_request_ids);
    buffer_fini(&text);
    struct error err = ERROR_INIT;
    static const char bad[] =
        "{\"exact\":true,\"ranks\":[{\"index_from\":0,\"index_to\":\"many\",\"step_from\":0,\"step_to\":3}]}";
    assert_int_equal(audit_json_read_expected(bad, sizeof bad - 1, &to, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "rank 0"));
    assert_null(to.ranks);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(report), TEST(statuses), TEST(expect_from_standard_input),
                                       TEST(there_and_back), cmocka_unit_test(expectation_there_and_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
