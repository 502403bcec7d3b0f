/* A setting that is varied: how it is given, how CMD gets it, and whether it arrived. */
#include "sglang/vary.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_parse(void **state)
{
    (void)state;
    struct vary_setting *settings = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    assert_int_equal(vary_parse("page-size=1,16", &settings, &count, &err), ERROR_NONE);
    assert_int_equal(vary_parse("disable-overlap-schedule=on", &settings, &count, &err), ERROR_NONE);
    assert_int_equal(count, 3);
    assert_string_equal(settings[1].name, "page-size");
    assert_string_equal(settings[1].value, "16");
    assert_string_equal(settings[2].value, "on");
    static const char *const bad[] = {"",
                                      "page-size",
                                      "=1",
                                      "page-size=",
                                      "page-size=1,,2",
                                      "--a=1",
                                      "page_size=1",
                                      "page-size=16" /* twice */,
                                      "page-size=4,4",
                                      "port=1,2",
                                      "api-key=x",
                                      "model-path=M",
                                      "random-seed=1",
                                      "config=f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (vary_parse(bad[i], &settings, &count, &err) != ERROR_BAD_VALUE)
            fail_msg("'%s' was taken", bad[i]);
    for (size_t i = 0; i < count; i++)
        vary_setting_fini(&settings[i]);
    free(settings);
}

/* What CMD becomes; NULL: refused. */
static void becomes(const char *given, const char *name, const char *value, const char *wanted)
{
    struct list command = {0}, changed = {0};
    struct vary_setting setting = {strdup(name), strdup(value)};
    struct error err = ERROR_INIT;
    struct buffer joined;
    char *copy = strdup(given), *rest = copy;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        list_add(&command, word);
    enum error_code code = vary_command(&command, &setting, &changed, &err);
    assert_int_equal(code, wanted != NULL ? ERROR_NONE : ERROR_SETTINGS);
    buffer_init(&joined);
    for (size_t i = 0; i < changed.count; i++)
        buffer_format(&joined, "%s%s", i == 0 ? "" : " ", changed.items[i]);
    if (wanted != NULL)
        assert_string_equal(joined.data, wanted);
    buffer_fini(&joined);
    vary_setting_fini(&setting);
    list_fini(&command);
    list_fini(&changed);
    free(copy);
}

#define CMD "env A=1 python3 -m sglang.launch_server --model-path M"

static void test_command(void **state)
{
    (void)state;
    /* the last use wins, however the first is spelled */
    becomes(CMD " --page-size 4", "page-size", "16", CMD " --page-size 4 --page-size=16");
    becomes(CMD, "chunked-prefill-size", "-1", CMD " --chunked-prefill-size=-1");
    becomes("sglang serve --model-path M", "page-size", "16", "sglang serve --model-path M --page-size=16");
    becomes(CMD, "disable-radix-cache", "on", CMD " --disable-radix-cache");
    becomes(CMD " --disable-radix-cache --tp 1", "disable-radix-cache", "off", CMD " --tp 1");
    becomes(CMD " --disable-radix-cache-x", "disable-radix-cache", "off", CMD " --disable-radix-cache-x");
    becomes("./serve.sh --port 1", "page-size", "16", NULL);
    becomes("bash -c sglang.launch_server", "page-size", "16", NULL);
}

static void test_resolved(void **state)
{
    (void)state;
    struct json *settings = json_object();
    json_set_u64(settings, "page_size", 16);
    json_set_string(settings, "attention_backend", "triton");
    json_set_bool(settings, "disable_radix_cache", true);
    json_set_u64(settings, "tp_size", 1);
    const struct generate_server server = {.settings = settings};
    static const struct {
        const char *name, *value, *resolved;
        bool asked;
    } rows[] = {
        {"page-size", "16", "16", true},
        {"page-size", "1", "16", false},
        {"attention-backend", "triton", "triton", true},
        {"disable-radix-cache", "on", "true", true},
        {"disable-radix-cache", "off", "true", false},
        {"tp", "1", "1", true},
        {"schedule-policy", "lpm", "-", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct vary_setting setting = {(char *)rows[i].name, (char *)rows[i].value};
        char *resolved = vary_resolved(&server, rows[i].name);
        assert_string_equal(resolved, rows[i].resolved);
        assert_int_equal(vary_is_asked(&setting, resolved), rows[i].asked);
        free(resolved);
    }
    json_free(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_resolved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
