/* Prompts from files and from seeds, and their hash. */
#include "base/memory.h"
#include "ctl/prompts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/kldump-prompts-XXXXXX";

static enum error_code read_text(const char *text, struct prompts *prompts, struct error *err)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return prompts_read(path, prompts, err);
}

static void test_lines(void **state)
{
    (void)state;
    struct prompts prompts;
    struct error err = ERROR_INIT;
    assert_int_equal(read_text("{\"input_ids\": [5, 6, 7], \"name\": \"x\"}\n\n  \r\n{\"text\": \"caf\\u00e9\"}\r\n"
                               "{\"text\":\"both\",\"input_ids\":[0]}",
                               &prompts, &err),
                     ERROR_NONE);
    assert_int_equal(prompts.count, 3);
    assert_int_equal(prompts.items[0].length, 3);
    assert_int_equal(prompts.items[0].ids[2], 7);
    assert_null(prompts.items[1].ids);
    assert_string_equal(prompts.items[1].text, "caf\xc3\xa9");
    assert_null(prompts.items[2].text);
    assert_string_equal(prompts.source, path + 5);
    prompts_fini(&prompts);
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"", "there is no prompt in it"},
        {"\n \n", "there is no prompt in it"},
        {"{\"input_ids\":[1]}\n{\"input_ids\":[1,}\n", "line 2: "},
        {"\n{\"input_ids\":[]}\n", "line 2: input_ids is empty"},
        {"{\"input_ids\":[1,-1]}\n", "line 1: input_ids.1 is no token id"},
        {"{\"input_ids\":[1.5]}\n", "line 1: input_ids.0 is no token id"},
        {"{\"input_ids\":[[1]]}\n", "line 1: input_ids.0 is no token id"},
        {"{\"input_ids\":\"1\"}\n", "line 1: "},
        {"{\"text\":\"\"}\n", "line 1: expected {\"input_ids\""},
        {"[1,2]\n", "line 1: expected {\"input_ids\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct prompts prompts = {.count = 9};
        struct error err = ERROR_INIT;
        assert_int_equal(read_text(rows[i].text, &prompts, &err), ERROR_FORMAT);
        assert_int_equal(prompts.count, 9);
        if (strstr(err.message, rows[i].said) == NULL || strstr(err.message, path) == NULL)
            fail_msg("row %zu: %s", i, err.message);
    }
    struct prompts prompts;
    assert_int_equal(prompts_read("/nonexistent/p.jsonl", &prompts, NULL), ERROR_NOT_FOUND);
}

/* The ids of the first prompts are written down here: another machine or release must make the same. */
static void test_the_same_everywhere(void **state)
{
    (void)state;
    struct prompts prompts, again;
    static const int64_t first[] = {199, 418}, second[] = {200, 330, 177, 438, 158};
    assert_int_equal(prompts_make("3:2-5:7", 512, &prompts, NULL), ERROR_NONE);
    assert_int_equal(prompts.count, 3);
    assert_int_equal(prompts.items[1].length, 5);
    assert_memory_equal(prompts.items[0].ids, first, sizeof first);
    assert_memory_equal(prompts.items[1].ids, second, sizeof second);
    assert_string_equal(prompts.source, "synthetic 3:2-5:7");
    assert_int_equal(prompts_make("3:2-5:7", 512, &again, NULL), ERROR_NONE);
    assert_string_equal(prompts.hash, again.hash);
    prompts_fini(&again);
    assert_int_equal(prompts_make("3:2-5:8", 512, &again, NULL), ERROR_NONE);
    assert_string_not_equal(prompts.hash, again.hash);
    prompts_fini(&again);
    prompts_fini(&prompts);
}

static void test_no_beginning_in_common(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct prompts prompts;
        char text[64];
        snprintf(text, sizeof text, "96:1-9:%llu", (unsigned long long)seed);
        assert_int_equal(prompts_make(text, seed % 2 == 0 ? 0 : 300, &prompts, NULL), ERROR_NONE);
        for (size_t i = 0; i < prompts.count; i++) {
            assert_in_range(prompts.items[i].length, 1, 9);
            for (size_t k = 0; k < prompts.items[i].length; k++)
                assert_in_range(prompts.items[i].ids[k], 16, seed % 2 == 0 ? 111 : 299);
            for (size_t j = 0; j < i; j++)
                assert_int_not_equal(prompts.items[i].ids[0], prompts.items[j].ids[0]);
        }
        prompts_fini(&prompts);
    }
}

static void test_bad_recipes(void **state)
{
    (void)state;
    static const char *const texts[] = {"",        "3",          "3:4",          "3:4:",        ":4:5",
                                        "3:4-:5",  "3:-4:5",     "3:4:5:6",      "0:4:5",       "3:0:5",
                                        "3:9-4:5", "3:4:-5",     "3:4 :5",       "a:4:5",       "3:4:5x",
                                        "97:4:5",  "100001:4:5", "1:10000001:5", "90:9999999:1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct prompts prompts = {.count = 9};
        if (prompts_make(texts[i], 0, &prompts, NULL) != ERROR_BAD_VALUE)
            fail_msg("'%s' was taken", texts[i]);
        assert_int_equal(prompts.count, 9);
    }
}

/* A text counts by its ids once it has them; order and borders count. */
static void test_hash(void **state)
{
    (void)state;
    struct prompts a, b;
    assert_int_equal(read_text("{\"input_ids\":[1,2]}\n{\"input_ids\":[3]}\n", &a, NULL), ERROR_NONE);
    assert_int_equal(read_text("{\"input_ids\":[1]}\n{\"input_ids\":[2,3]}\n", &b, NULL), ERROR_NONE);
    assert_string_not_equal(a.hash, b.hash);
    prompts_fini(&b);
    assert_int_equal(read_text("{\"text\":\"x\"}\n{\"input_ids\":[3]}\n", &b, NULL), ERROR_NONE);
    assert_string_not_equal(a.hash, b.hash);
    b.items[0].ids = memory_resize(NULL, 2, sizeof(int64_t));
    b.items[0].ids[0] = 1;
    b.items[0].ids[1] = 2;
    b.items[0].length = 2;
    prompts_hash(&b);
    assert_string_equal(a.hash, b.hash);
    prompts_fini(&a);
    prompts_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_the_same_everywhere),
        cmocka_unit_test(test_no_beginning_in_common),
        cmocka_unit_test(test_bad_recipes),
        cmocka_unit_test(test_hash),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
