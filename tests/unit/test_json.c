/* The strict JSON wrapper: what it refuses, what it keeps exactly, what it writes. */
#include "json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct json_limits megabyte = {1 << 20, JSON_DEPTH, JSON_ANY_VALUES};

static struct json *parsed(const char *text)
{
    struct json *json = NULL;
    struct error err = ERROR_INIT;
    if (json_parse(text, strlen(text), megabyte, &json, &err) != ERROR_NONE)
        fail_msg("%s: %s", text, err.message);
    return json;
}

static void assert_printed(const struct json *json, const char *expected)
{
    struct buffer out;
    buffer_init(&out);
    json_print(json, &out);
    assert_string_equal(out.data, expected);
    buffer_fini(&out);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message; /* part of it */
    } rows[] = {
        {"", "ends where a value"},
        {" \n", "ends where a value"},
        {"{} x", "byte 3: text after"},
        {"{}{}", "text after"},
        {"\xef\xbb\xbf{}", "byte 0"},
        {"nul", "value is expected"},
        {"NaN", "value is expected"},
        {"Infinity", "value is expected"},
        {"-Infinity", "digit is expected"},
        {"'a'", "value is expected"},
        {"01", "begin with 0"},
        {"-01", "begin with 0"},
        {"+1", "value is expected"},
        {".5", "value is expected"},
        {"1.", "after the point"},
        {"1e", "exponent"},
        {"-", "digit is expected"},
        {"0x10", "text after"},
        {"1e999", "too large"},
        {"[-1e400]", "too large"},
        {"1000000000000000000000000000000000000000000000000000000000000000", "63 characters"},
        {"[1,]", "value is expected"},
        {"[1 2]", "']' is expected"},
        {"[", "ends where"},
        {"{\"a\":1,}", "string is expected"},
        {"{\"a\" 1}", "':' is expected"},
        {"{\"a\":1 \"b\":2}", "'}' is expected"},
        {"{a:1}", "string is expected"},
        {"{\"a\":1", "'}' is expected"},
        {"// x\n1", "value is expected"},
        {"\"abc", "does not end"},
        {"\"a\nb\"", "control character"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\", "unknown escape"},
        {"\"\\u12\"", "hexadecimal"},
        {"\"a\\u0000b\"", "\\u0000"},
        {"\"\\ud800\"", "surrogate"},
        {"\"\\udc00\"", "surrogate"},
        {"\"\\ud800\\u0041\"", "surrogate"},
        {"\"\xff\"", "UTF-8"},
        {"\"\xc0\xaf\"", "UTF-8"},
        {"\"\xed\xa0\x80\"", "UTF-8"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "'a' is there twice"},
        {"{\"a\":1,\"\\u0061\":3}", "'a' is there twice"},
        {"[{\"x\":{\"k\":1,\"k\":1}}]", "'k' is there twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json *json = NULL;
        struct error err = ERROR_INIT;
        enum error_code code = json_parse(rows[i].text, strlen(rows[i].text), megabyte, &json, &err);
        if (code != ERROR_FORMAT || json != NULL || strstr(err.message, rows[i].message) == NULL)
            fail_msg("'%s': code %d, '%s' without '%s'", rows[i].text, (int)code, err.message, rows[i].message);
    }
}

static void test_length_is_what_counts(void **state)
{
    (void)state;
    struct json *json = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(json_parse("12xyz", 2, (struct json_limits){100, JSON_DEPTH, JSON_ANY_VALUES}, &json, &err),
                     ERROR_NONE);
    assert_printed(json, "12");
    json_free(json);
    json = NULL;
    assert_int_equal(json_parse("1\0", 2, (struct json_limits){100, JSON_DEPTH, JSON_ANY_VALUES}, &json, &err),
                     ERROR_FORMAT);
    assert_int_equal(json_parse("\"a\0b\"", 5, (struct json_limits){100, JSON_DEPTH, JSON_ANY_VALUES}, &json, &err),
                     ERROR_FORMAT);
    assert_int_equal(json_parse("{\"a\":1}", 7, (struct json_limits){6, JSON_DEPTH, JSON_ANY_VALUES}, &json, &err),
                     ERROR_TOO_LARGE);
    assert_null(json);
}

/* Every prefix of a good text is an error, never a crash and never half a tree. */
static void test_truncated(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1.5e3,-0,true,null,{\"b\":\"x\\u00e9\\\"\xc3\xa9\"}],\"c\":false}";
    for (size_t length = 0; length < sizeof text - 1; length++) {
        struct json *json = NULL;
        char *exact = malloc(length + 1); /* so that a sanitizer sees a read beyond the end */
        assert_non_null(exact);
        memcpy(exact, text, length);
        assert_int_equal(
            json_parse(exact, length, (struct json_limits){1000, JSON_DEPTH, JSON_ANY_VALUES}, &json, NULL),
            ERROR_FORMAT);
        assert_null(json);
        free(exact);
    }
    json_free(parsed(text));
}

static enum error_code parse_nested(size_t levels, size_t max_depth, struct error *err)
{
    struct json *json = NULL;
    struct buffer text;
    buffer_init(&text);
    for (size_t i = 0; i < levels; i++)
        buffer_text(&text, i % 2 != 0 ? "{\"k\":" : "[");
    buffer_text(&text, "1");
    for (size_t i = levels; i-- > 0;)
        buffer_text(&text, i % 2 != 0 ? "}" : "]");
    enum error_code code =
        json_parse(text.data, text.length, (struct json_limits){1 << 24, max_depth, JSON_ANY_VALUES}, &json, err);
    buffer_fini(&text);
    json_free(json);
    return code;
}

static void test_depth(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    assert_int_equal(parse_nested(JSON_DEPTH, JSON_DEPTH, &err), ERROR_NONE);
    assert_int_equal(parse_nested(JSON_DEPTH + 1, JSON_DEPTH, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "deeper than 32"));
    assert_int_equal(parse_nested(1000, JSON_DEPTH_LIMIT, &err), ERROR_NONE);
    assert_int_equal(parse_nested(1001, 5000, &err), ERROR_FORMAT);
    assert_int_equal(parse_nested(200000, SIZE_MAX, &err), ERROR_FORMAT);
    assert_int_equal(parse_nested(0, 0, &err), ERROR_NONE);
}

static enum error_code parse_values(const char *text, size_t values, struct json **ret_json, struct error *err)
{
    struct json_limits limits = {1 << 20, JSON_DEPTH, values};
    enum error_code code = json_check(text, strlen(text), limits, NULL);
    assert_int_equal(json_parse(text, strlen(text), limits, ret_json, err), code);
    return code;
}

/* A hostile text of single bytes would cost a hundred times its length. */
static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t values;
    } rows[] = {
        {"1", 1}, {"[]", 1}, {"[[],[],{}]", 4}, {"{\"\":0,\"a\":[true,null]}", 5}, {"{\"a\":{\"b\":\"c,[]\"}}", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json *json = NULL;
        struct error err = ERROR_INIT;
        assert_int_equal(parse_values(rows[i].text, rows[i].values, &json, &err), ERROR_NONE);
        assert_in_range(json_memory(json), rows[i].values * JSON_VALUE_BYTES,
                        rows[i].values * JSON_VALUE_BYTES + strlen(rows[i].text));
        json_free(json);
        json = NULL;
        assert_int_equal(parse_values(rows[i].text, rows[i].values - 1, &json, &err), ERROR_TOO_LARGE);
        assert_null(json);
        assert_non_null(strstr(err.message, "values"));
    }
    assert_int_equal(json_memory(NULL), 0);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fine;
        uint64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"1e3", true, 1000},
        {"2147483648", true, 2147483648u},
        {"9007199254740991", true, UINT64_C(9007199254740991)},
        {"9007199254740992", false, 0},
        {"9007199254740993", false, 0},
        {"\"9007199254740993\"", true, UINT64_C(9007199254740993)},
        {"\"18446744073709551615\"", true, UINT64_MAX},
        {"\"18446744073709551616\"", false, 0},
        {"\"\"", false, 0},
        {"\" 1\"", false, 0},
        {"\"1x\"", false, 0},
        {"1.5", false, 0},
        {"-1", false, 0},
        {"\"-1\"", false, 0},
        {"true", false, 0},
        {"null", false, 0},
        {"[]", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json *json = parsed(rows[i].text);
        uint64_t value = 77;
        struct error err = ERROR_INIT;
        enum error_code code = json_get_u64(json, "", &value, &err);
        if ((code == ERROR_NONE) != rows[i].fine || value != (rows[i].fine ? rows[i].value : 77))
            fail_msg("%s: code %d, value %llu, %s", rows[i].text, (int)code, (unsigned long long)value, err.message);
        json_free(json);
    }
}

static void test_integers_round_trip(void **state)
{
    (void)state;
    static const uint64_t values[] = {0,
                                      1,
                                      9,
                                      2147483647,
                                      2147483648u,
                                      1000000000000000,
                                      999999999999999,
                                      9007199254740991,
                                      9007199254740992,
                                      9007199254740993,
                                      UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct json *json = json_object();
        struct buffer out;
        uint64_t back = 0;
        buffer_init(&out);
        json_set_u64(json, "n", values[i]);
        json_print(json, &out);
        assert_null(strpbrk(strchr(out.data, ':'), "eE.")); /* never the exponent form */
        json_free(json);
        json = parsed(out.data);
        assert_int_equal(json_get_u64(json, "n", &back, NULL), ERROR_NONE);
        assert_true(back == values[i]);
        json_free(json);
        buffer_fini(&out);
    }
    struct json *json = json_object();
    int64_t back = 0;
    json_set_i64(json, "least", INT64_MIN);
    json_set_i64(json, "small", -5);
    assert_printed(json, "{\"least\":\"-9223372036854775808\",\"small\":-5}");
    assert_int_equal(json_get_i64(json, "least", &back, NULL), ERROR_NONE);
    assert_true(back == INT64_MIN);
    json_set_string(json, "least", "-9223372036854775809");
    assert_int_equal(json_get_i64(json, "least", &back, NULL), ERROR_FORMAT);
    json_free(json);
}

static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text; /* NULL: only that it reads back to the same double */
    } rows[] = {
        {0.1, "{\"d\":0.1}"},
        {1e21, "{\"d\":1e+21}"},
        {-2.5, "{\"d\":-2.5}"},
        {3.0, "{\"d\":3}"},
        {-0.0, "{\"d\":-0}"},
        {0.1 + 0.2, "{\"d\":0.30000000000000004}"},
        {HUGE_VAL, "{\"d\":null}"},
        {-HUGE_VAL, "{\"d\":null}"},
        {1.0 / 3, NULL},
        {5e-324, NULL},
        {1.7976931348623157e308, NULL},
        {123456789.123456789, NULL},
        {1e15 + 0.5, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json *object = json_object();
        struct buffer out;
        buffer_init(&out);
        json_set_double(object, "d", rows[i].value);
        json_print(object, &out);
        if (rows[i].text != NULL)
            assert_string_equal(out.data, rows[i].text);
        if (isfinite(rows[i].value)) {
            struct json *again = parsed(out.data);
            double back = 7;
            assert_int_equal(json_get_double(again, "d", &back, NULL), ERROR_NONE);
            assert_memory_equal(&back, &rows[i].value, sizeof back);
            json_free(again);
        }
        buffer_fini(&out);
        json_free(object);
    }
}

static void test_paths_and_types(void **state)
{
    (void)state;
    struct json *json = parsed(
        "{\"run\":{\"pid\":\"x\",\"space\":{\"free\":7},\"none\":null,\"flag\":true,\"ratio\":0.5},"
        "\"Run\":1,\"list\":[\"a\",\"b\"],\"mixed\":[\"a\",1],\"states\":[{\"step\":3},{\"step\":4}],\"a.b\":9}");
    struct error err = ERROR_INIT;
    uint64_t value = 5;
    bool flag = false;
    double ratio = 0;
    const char *text = "before";
    const struct json *node = NULL;
    struct list list = {NULL, 0};
    assert_int_equal(json_get_u64(json, "run.space.free", &value, &err), ERROR_NONE);
    assert_int_equal(value, 7);
    assert_int_equal(json_get_u64(json, "states.1.step", &value, &err), ERROR_NONE);
    assert_int_equal(value, 4);
    assert_int_equal(json_get_u64(json, "run.pid", &value, &err), ERROR_FORMAT);
    assert_string_equal(err.message, "JSON member run.pid is a string; expected an integer (beyond 9007199254740991 as "
                                     "a string)");
    assert_int_equal(json_get_string(json, "run.Pid", &text, &err), ERROR_FORMAT);
    assert_string_equal(err.message, "JSON member run.Pid is missing; expected a string");
    assert_string_equal(text, "before");
    assert_int_equal(json_get_bool(json, "run.flag", &flag, &err), ERROR_NONE);
    assert_true(flag);
    assert_int_equal(json_get_bool(json, "run.ratio", &flag, &err), ERROR_FORMAT);
    assert_int_equal(json_get_double(json, "run.ratio", &ratio, &err), ERROR_NONE);
    assert_int_equal(json_get_array(json, "list", &node, &err), ERROR_NONE);
    assert_int_equal(json_count(node), 2);
    assert_int_equal(json_get_object(json, "list", &node, &err), ERROR_FORMAT);
    assert_int_equal(json_get_object(json, "run", &node, &err), ERROR_NONE);
    assert_null(json_find(json, "states.2"));
    assert_null(json_find(json, "states.x"));
    assert_null(json_find(json, "run.pid.deeper"));
    assert_null(json_find(NULL, "a"));
    assert_non_null(json_member(json, "a.b"));
    assert_null(json_member(json, "a"));
    assert_int_equal(json_get_list(json, "mixed", &list, &err), ERROR_FORMAT);
    assert_int_equal(list.count, 0);
    assert_int_equal(json_get_list(json, "list", &list, &err), ERROR_NONE);
    assert_int_equal(list.count, 2);
    assert_int_equal(json_optional_list(json, "nowhere", &list, &err), ERROR_NONE);
    assert_int_equal(list.count, 2);
    list_fini(&list);
    json_free(json);
}

static void test_optional(void **state)
{
    (void)state;
    struct json *json = parsed("{\"none\":null,\"n\":3,\"s\":\"x\",\"b\":true,\"d\":1.5}");
    uint64_t n = 0;
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(json_optional_u64(json, "none", 8, &n, NULL), ERROR_NONE);
    assert_int_equal(n, 8);
    assert_int_equal(json_optional_u64(json, "n", 8, &n, NULL), ERROR_NONE);
    assert_int_equal(n, 3);
    assert_int_equal(json_optional_u64(json, "s", 8, &n, NULL), ERROR_FORMAT);
    assert_int_equal(json_optional_i64(json, "gone", -8, &i, NULL), ERROR_NONE);
    assert_int_equal(i, -8);
    assert_int_equal(json_optional_string(json, "gone", "f", &s, NULL), ERROR_NONE);
    assert_string_equal(s, "f");
    assert_int_equal(json_optional_string(json, "n", "f", &s, NULL), ERROR_FORMAT);
    assert_int_equal(json_optional_bool(json, "b", false, &b, NULL), ERROR_NONE);
    assert_true(b);
    assert_int_equal(json_optional_double(json, "d", 0, &d, NULL), ERROR_NONE);
    assert_true(d == 1.5);
    json_free(json);
}

static void test_builders(void **state)
{
    (void)state;
    struct json *json = json_object();
    struct list words = {NULL, 0};
    list_add(&words, "a");
    list_add(&words, "b\xff");
    json_set_string(json, "s", "q\"\\\n\x01\xc3\xa9/");
    json_set_string(json, "gone", NULL);
    json_set_bytes(json, "bytes", "l1\nl2\0\xfe", 7);
    json_set_bool(json, "yes", true);
    json_set_list(json, "words", &words);
    json_append_u64(json_set_array(json, "numbers"), 4);
    json_set_u64(json_set_object(json, "inner"), "n", 1);
    json_set_u64(json, "n", 1);
    json_set_u64(json, "n", 2); /* replaces */
    json_set_u64(json, "N", 3);
    json_set_u64(json, "k\xff", 3);
    assert_printed(
        json, "{\"s\":\"q\\\"\\\\\\n\\u0001\xc3\xa9/\",\"gone\":null,\"bytes\":\"l1\\nl2\xef\xbf\xbd\xef\xbf\xbd\","
              "\"yes\":true,\"words\":[\"a\",\"b\xef\xbf\xbd\"],\"numbers\":[4],\"inner\":{\"n\":1},\"n\":2,"
              "\"N\":3,\"k\xef\xbf\xbd\":3}");
    struct json *copy = json_copy(json_find(json, "inner"));
    json_set_child(json, "inner", json_array());
    json_append(json_set_array(json, "s"), copy);
    assert_non_null(json_find(json, "s.0.n"));
    json_free(json);
    list_fini(&words);
}

static void test_printed(void **state)
{
    (void)state;
    struct json *inner = json_object(), *json = json_array();
    struct buffer text;
    buffer_init(&text);
    json_set_string(inner, "a", "\"");
    json_print(inner, &text);
    json_append_u64(json, 1);
    json_append_printed(json, &text);
    buffer_clear(&text);
    assert_printed(json, "[1,{\"a\":\"\\\"\"}]");
    struct json *copy = json_copy(json);
    assert_printed(copy, "[1,{\"a\":\"\\\"\"}]");
    assert_int_equal(json_type(json_find(json, "1")), JSON_NULL);
    assert_non_null(json_printed(json_find(json, "1")));
    assert_null(json_printed(json_find(json, "0")));
    assert_null(json_printed(NULL));
    buffer_fini(&text);
    json_free(copy);
    json_free(json);
    json_free(inner);
}

static void test_pretty(void **state)
{
    (void)state;
    struct json *json = parsed("{\"a\":[],\"b\":{},\"c\":[1,{\"d\":\"x\"}]}");
    struct buffer out;
    buffer_init(&out);
    json_print_pretty(json, &out);
    assert_string_equal(out.data,
                        "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"x\"\n    }\n  ]\n}");
    buffer_fini(&out);
    json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_length_is_what_counts),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_integers_round_trip),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_paths_and_types),
        cmocka_unit_test(test_optional),
        cmocka_unit_test(test_builders),
        cmocka_unit_test(test_printed),
        cmocka_unit_test(test_pretty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
