/* The tables and small parsers of src/base: errors, numbers, sizes, durations, lists, text. */
#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/list.h"
#include "base/mask.h"
#include "base/number.h"
#include "base/size.h"
#include "base/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_errors(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    errno = EINTR;
    assert_int_equal(error_set_errno(&err, ERROR_SYSTEM, ENOSPC, "write %s", "x"), ERROR_SYSTEM);
    assert_int_equal(errno, EINTR);
    assert_int_equal(err.system, ENOSPC);
    assert_string_equal(err.message, "write x: No space left on device");
    error_prefix(&err, "run %d", 12);
    assert_string_equal(err.message, "run 12: write x: No space left on device");
    assert_int_equal(error_set(NULL, ERROR_BUSY, "nobody reads this"), ERROR_BUSY);
    for (int code = 0; code < ERROR_COUNT; code++) {
        assert_int_equal(error_from_name(error_name((enum error_code)code)), code);
        assert_non_null(error_status_meaning((int)error_status((enum error_code)code)));
    }
    assert_int_equal(error_from_name("of a newer peer"), ERROR_INTERNAL);
    assert_null(error_status_name(77));
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    error_set(&err, ERROR_USAGE, "%s", long_text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"10G", 10ull << 30},
                {"10GiB", 10ull << 30},
                {"10.5G", 21ull << 29},
                {"512M", 512ull << 20},
                {"1K", 1024},
                {"1T", 1ull << 40},
                {"7B", 7},
                {"0B", 0},
                {"0.001K", 1}};
    static const char *const bad[] = {"",         "10",      "10 G",  "10GB", "10Gi", "10g",  "-1G",
                                      "+1G",      "1e3G",    "0x10G", "G",    ".5G",  "1.G",  "1.2345G",
                                      "10GiBx",   "1Github", " 1G",   "1G ",  "5%%",  "101%", "99999999999999999999G",
                                      "16777216T"};
    struct size size;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(size_parse("x", good[i].text, true, &size, NULL), ERROR_NONE);
        assert_false(size.percent);
        assert_int_equal(size.value, good[i].bytes);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(size_parse("x", bad[i], true, &size, NULL), ERROR_BAD_VALUE);
    assert_int_equal(size_parse("x", "5%", true, &size, NULL), ERROR_NONE);
    assert_int_equal(size_bytes(&size, 1000), 50);
    assert_int_equal(size_parse("x", "0.5%", true, &size, NULL), ERROR_NONE);
    assert_int_equal(size_bytes(&size, 1ull << 40), (1ull << 40) / 200);
    struct error err = ERROR_INIT;
    assert_int_equal(size_parse("--floor", "5%", false, &size, &err), ERROR_BAD_VALUE);
    assert_non_null(strstr(err.message, "--floor"));
    assert_non_null(strstr(err.message, "5%"));
    static const char *const too_large[] = {"9999999999999999999K", "99999999T", "18446744073709551616B",
                                            "123456789012345678901234567890G"};
    for (size_t i = 0; i < COUNT(too_large); i++) {
        assert_int_equal(size_parse("--floor", too_large[i], true, &size, &err), ERROR_BAD_VALUE);
        assert_non_null(strstr(err.message, "larger than any disk"));
    }
    assert_int_equal(size_parse("x", "12345678901234567B", true, &size, NULL), ERROR_NONE);
    assert_int_equal(size.value, 12345678901234567ull);
    assert_int_equal(size_parse("--floor", "101%", true, &size, &err), ERROR_BAD_VALUE);
    assert_non_null(strstr(err.message, "101% is more than the whole"));
    char text[SIZE_TEXT];
    assert_string_equal(size_text(312, text), "312 B");
    assert_string_equal(size_text(20ull << 30, text), "20.0 GiB");
    size_text(UINT64_MAX, text);
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"500ms", 500}, {"30s", 30000}, {"10min", 600000}, {"2h", 7200000}, {"0s", 0}, {"720h", 2592000000}};
    static const char *const bad[] = {"", "30", "30m", "30 s", "-1s", "1.5s", "721h", "9223372036854775807h", "s"};
    uint64_t ms;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(duration_parse("x", good[i].text, &ms, NULL), ERROR_NONE);
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(duration_parse("x", bad[i], &ms, NULL), ERROR_BAD_VALUE);
    char text[DURATION_TEXT];
    assert_string_equal(duration_text(850, text), "850 ms");
    assert_string_equal(duration_text(12300, text), "12.3 s");
    assert_string_equal(duration_text(320000, text), "5 min 20 s");
    assert_string_equal(duration_text(11100000, text), "3 h 5 min");
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t value = 7;
    assert_int_equal(number_parse("x", "18446744073709551615", UINT64_MAX, &value, NULL), ERROR_NONE);
    assert_true(value == UINT64_MAX);
    assert_int_equal(number_parse("x", "18446744073709551616", UINT64_MAX, &value, NULL), ERROR_BAD_VALUE);
    assert_int_equal(number_parse("x", "65536", 65535, &value, NULL), ERROR_BAD_VALUE);
    value = 7;
    assert_int_equal(number_option("--n", NULL, 2, 9, &value, NULL), ERROR_NONE);
    assert_int_equal(number_option("--n", "1", 2, 9, &value, NULL), ERROR_BAD_VALUE);
    assert_int_equal(number_option("--n", "10", 2, 9, &value, NULL), ERROR_BAD_VALUE);
    assert_int_equal(value, 7);
    assert_int_equal(number_option("--n", "2", 2, 9, &value, NULL), ERROR_NONE);
    assert_int_equal(value, 2);
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1e3", "one"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(number_parse("x", bad[i], UINT64_MAX, &value, NULL), ERROR_BAD_VALUE);
    assert_true(number_add(UINT64_MAX, 1) == UINT64_MAX);
    assert_int_equal(number_subtract(1, 2), 0);
    assert_true(number_multiply(UINT64_MAX, 2) == UINT64_MAX);
    assert_int_equal(number_scale(UINT64_MAX, 10, UINT64_MAX), 10);
    assert_true(number_scale(UINT64_MAX, UINT64_MAX, 1) == UINT64_MAX);
    assert_true(number_scale(1, 1, 0) == UINT64_MAX);
}

static void test_environment_lists(void **state)
{
    (void)state;
    struct list list = {0};
    assert_null(list_vector(&list)[0]);
    list_environment_set(&list, "A", "1");
    list_environment_set(&list, "AB", "2");
    list_environment_set(&list, "A", "3");
    assert_int_equal(list.count, 2);
    assert_string_equal(list_environment_get(&list, "A"), "3");
    assert_string_equal(list_environment_get(&list, "AB"), "2");
    list_environment_unset(&list, "A");
    assert_null(list_environment_get(&list, "A"));
    assert_string_equal(list.items[0], "AB=2");
    assert_null(list.items[1]);
    list_add(&list, "last");
    list_remove_first(&list);
    assert_string_equal(list.items[0], "last");
    assert_int_equal(list.count, 1);
    assert_null(list.items[1]);
    list_fini(&list);
}

static void test_text(void **state)
{
    (void)state;
    char out[64];
    assert_string_equal(text_clean("a\tb\x1b[31m\n\xff", 10, out, sizeof out), "a b?[31m??");
    assert_string_equal(text_clean("\xc3\xa4\xc2\x9b", 4, out, sizeof out), "\xc3\xa4?"); /* CSI as C1 control */
    assert_string_equal(text_clean("0123456789", 10, out, 8), "0123...");
    assert_string_equal(text_clean("0123456789", 10, out, 10), "012345...");
    assert_string_equal(text_clean("0123456789", 10, out, 11), "0123456789"); /* what fits whole is whole */
    assert_true(text_is_utf8("\xf0\x9f\x98\x80", 4));
    assert_false(text_is_utf8("\xc0\xaf", 2));     /* overlong */
    assert_false(text_is_utf8("\xed\xa0\x80", 3)); /* surrogate */
    assert_false(text_is_utf8("\xf4\x90\x80\x80", 4));
    for (size_t at = 0; at < 24; at++) { /* wherever it is, also where eight bytes are looked at together */
        char long_text[24];
        memset(long_text, 'a', sizeof long_text);
        assert_true(text_is_utf8(long_text, at));
        long_text[at] = '\x80';
        assert_true(text_is_utf8(long_text, at));
        assert_false(text_is_utf8(long_text, at + 1));
        assert_false(text_is_utf8(long_text, sizeof long_text));
    }
    assert_int_equal(text_unfinished("ab", 2), 0);
    assert_int_equal(text_unfinished("a\xc3", 2), 1);
    assert_int_equal(text_unfinished("\xf0\x9f\x98", 3), 3);
    assert_int_equal(text_unfinished("\xf0\x9f\x98\x80", 4), 0);
    static const char *const names[] = {"dec", "a.b-c_1",
                                        "0123456789012345678901234567890123456789012345678901234567890123"};
    static const char *const none[] = {
        "",         ".",     "..",
        "-x",       "a/b",   "a b",
        "\xc3\xa4", "../up", "01234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t i = 0; i < COUNT(names); i++)
        assert_true(text_is_name(names[i]));
    for (size_t i = 0; i < COUNT(none); i++)
        assert_false(text_is_name(none[i]));
}

static void collect(const char *data, size_t length, void *user)
{
    buffer_append(user, data, length);
}

/* Wherever the stream is cut into three pieces, the same comes out, and nothing of a secret. */
static void test_mask(void **state)
{
    (void)state;
    static const char said[] = "key=sk-sk-abc123 sk-abc sk-sk-sk-abc123sk-abc123 12345 sk-a";
    static const char wanted[] = "key=sk-********* sk-abc sk-sk-****************** 12345 sk-a";
    struct list secrets = {0};
    list_add(&secrets, "sk-abc123");
    list_add(&secrets, "12345"); /* too short to be one */
    for (size_t first = 0; first < sizeof said; first++)
        for (size_t second = first; second < sizeof said; second++) {
            struct mask mask;
            struct buffer out;
            mask_init(&mask, &secrets);
            buffer_init(&out);
            mask_feed(&mask, said, first, collect, &out);
            mask_feed(&mask, said + first, second - first, collect, &out);
            mask_feed(&mask, said + second, sizeof said - 1 - second, collect, &out);
            assert_true(out.length + 4 == sizeof wanted - 1); /* "sk-a" may go on */
            mask_flush(&mask, collect, &out);
            assert_string_equal(out.data, wanted);
            buffer_fini(&out);
            mask_fini(&mask);
        }
    char text[] = "abcdef abcdefgh";
    list_add(&secrets, "abcdef");
    list_add(&secrets, "abcdefgh");
    mask_text(&secrets, text, sizeof text - 1);
    assert_string_equal(text, "****** ********");
    list_fini(&secrets);
}

static void test_buffer(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer);
    for (int i = 0; i < 1000; i++)
        buffer_format(&buffer, "%d,", i);
    assert_int_equal(strlen(buffer.data), buffer.length);
    buffer_consume(&buffer, 2);
    assert_true(strncmp(buffer.data, "1,2,", 4) == 0);
    char *bytes = buffer_steal(&buffer);
    assert_int_equal(buffer.length, 0);
    buffer_text(&buffer, "again");
    assert_string_equal(buffer.data, "again");
    free(bytes);
    buffer_fini(&buffer);
    buffer_fini(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_environment_lists),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_buffer),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
