/* Whether somebody else uses a server: by its count of prompt tokens, or by samples of how many requests it has. */
#include "base/memory.h"
#include "ctl/foreign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct server_answer counting(uint64_t requests, uint64_t prefilled)
{
    return (struct server_answer){
        .load_known = true, .requests = requests, .prefilled_known = true, .prefilled = prefilled};
}

static struct server_answer sampled(uint64_t requests)
{
    return (struct server_answer){.load_known = true, .requests = requests};
}

static void begin(struct foreign *foreign, struct server_answer load)
{
    foreign_begin(foreign, &load);
}

static void look(struct foreign *foreign, struct server_answer load, int64_t wall_ms)
{
    foreign_look(foreign, &load, wall_ms);
}

static bool settle(struct foreign *foreign, struct server_answer load, bool last)
{
    return foreign_settle(foreign, &load, last, 3000);
}

static void test_counted(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    begin(&foreign, counting(0, 1000));
    begin(&foreign, counting(0, 5000)); /* the first counts */
    foreign_send(&foreign, 4);
    foreign_receive(&foreign, 40, 40);
    assert_false(settle(&foreign, counting(0, 1039), false)); /* it is behind */
    assert_false(settle(&foreign, counting(1, 1040), false)); /* not idle yet */
    assert_true(settle(&foreign, counting(0, 1040), false));
    assert_false(foreign_seen(&foreign));
    foreign_receive(&foreign, 10, 10);
    assert_true(settle(&foreign, counting(0, 1051), false));
    assert_true(foreign_seen(&foreign));
    assert_int_equal(foreign.tokens, 1);
    assert_int_equal(foreign.first_ms, 3000);
}

/* Taken back and prefilled again: the server tells how often, not how many tokens. */
static void test_retracted(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    begin(&foreign, counting(0, 0));
    foreign_receive(&foreign, 10, 25);
    assert_true(settle(&foreign, counting(0, 25), false));
    assert_false(foreign_seen(&foreign));
    assert_true(settle(&foreign, counting(0, 26), false));
    assert_true(foreign_seen(&foreign));
}

/* An old snapshot shows what ran a moment ago: one look is none. And what is counted is not judged by samples. */
static void test_samples(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    look(&foreign, sampled(9), 1000); /* before we were there */
    begin(&foreign, sampled(0));
    foreign_send(&foreign, 4);
    look(&foreign, sampled(5), 1000);
    look(&foreign, sampled(4), 2000);
    look(&foreign, sampled(6), 3000);
    assert_false(foreign_seen(&foreign));
    look(&foreign, sampled(7), 4000);
    look(&foreign, sampled(5), 5000);
    assert_true(foreign_seen(&foreign));
    assert_int_equal(foreign.at_once, 3);
    assert_int_equal(foreign.first_ms, 4000);
    assert_int_equal(foreign.last_ms, 5000);

    struct foreign counted = {0};
    begin(&counted, counting(0, 0));
    foreign_send(&counted, 4);
    look(&counted, counting(5, 0), 1000);
    look(&counted, counting(5, 0), 2000);
    assert_false(foreign_seen(&counted));
}

static void test_samples_while_nothing_of_ours_runs(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    begin(&foreign, sampled(0));
    foreign_send(&foreign, 4);
    look(&foreign, sampled(5), 1000);
    foreign_receive(&foreign, 10, 10);
    assert_false(settle(&foreign, sampled(2), false));
    assert_false(foreign_seen(&foreign));
    assert_true(settle(&foreign, sampled(2), true));
    assert_int_equal(foreign.at_once, 2);
    assert_true(foreign_seen(&foreign));
}

/* Another process of the server counts from 0: who notices that is endpoint_check. */
static void test_count_that_goes_back(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    begin(&foreign, counting(0, 1000));
    foreign_receive(&foreign, 10, 10);
    assert_true(settle(&foreign, counting(0, 7), false));
    assert_false(foreign_seen(&foreign));
}

static void expect_text(const struct foreign *foreign, const char *text)
{
    char *found = foreign_text(foreign);
    assert_string_equal(found, text);
    free(found);
}

static void test_words(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    expect_text(&foreign, "not known: the server does not say how many requests it has; keep other clients away");
    begin(&foreign, sampled(0));
    expect_text(&foreign,
                "nobody else was seen: the server was asked about once a second, so requests shorter than that "
                "may be missed");
    foreign.at_once = 2;
    foreign.first_ms = foreign.last_ms = 1700000000000;
    expect_text(&foreign, "somebody else has used the server: requests that are not ours, up to 2 at once, first seen "
                          "2023-11-14T22:13:20Z, last 2023-11-14T22:13:20Z");
    foreign.counted = true;
    expect_text(&foreign, "nobody else has used the server: it has computed no token of a prompt but ours");
    foreign.tokens = 3;
    foreign.at_once = 0;
    expect_text(&foreign, "somebody else has used the server: 3 tokens of prompts that are not ours, first seen "
                          "2023-11-14T22:13:20Z, last 2023-11-14T22:13:20Z");
}

static void expect_member(const struct foreign *foreign, const char *text)
{
    struct json *root = json_object();
    foreign_json(foreign, root);
    char *found = json_print_new(root);
    assert_string_equal(found, text);
    free(found);
    json_free(root);
}

static void test_member(void **state)
{
    (void)state;
    struct foreign foreign = {0};
    expect_member(&foreign, "{\"foreign\":{\"seen\":false,\"by\":null,\"tokens\":null,\"requests_at_once\":0,"
                            "\"first\":null,\"last\":null}}");
    foreign = (struct foreign){.looks = 1, .counted = true, .tokens = 3, .first_ms = 1000, .last_ms = 2000};
    expect_member(&foreign, "{\"foreign\":{\"seen\":true,\"by\":\"count\",\"tokens\":3,\"requests_at_once\":0,"
                            "\"first\":\"1970-01-01T00:00:01Z\",\"last\":\"1970-01-01T00:00:02Z\"}}");
}

static void test_result_that_is_read_again(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum error_code code;
    } rows[] = {{"{}", ERROR_NONE},
                {"{\"foreign\":{\"seen\":false}}", ERROR_NONE},
                {"{\"foreign\":{\"seen\":true}}", ERROR_INCOMPLETE},
                {"{\"foreign\":{\"seen\":7}}", ERROR_FORMAT}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = ERROR_INIT;
        struct json *json = NULL;
        assert_int_equal(
            json_parse(rows[i].text, strlen(rows[i].text), (struct json_limits){1000, 10, 100}, &json, &err),
            ERROR_NONE);
        assert_int_equal(foreign_check_result(json, &err), rows[i].code);
        json_free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_retracted),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_samples_while_nothing_of_ours_runs),
        cmocka_unit_test(test_count_that_goes_back),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_member),
        cmocka_unit_test(test_result_that_is_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
