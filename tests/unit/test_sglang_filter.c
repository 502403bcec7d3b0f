/* Which filters are let through, and what is said about the others. */
#include "sglang/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_taken(void **state)
{
    (void)state;
    static const char *const filters[] = {
        "True",
        "False", /* keeps nothing: the probe shows it */
        "layer_id in [0, 1]",
        "layer_id in [0, 1,]",
        "layer_id not in [0]",
        "layer_id == 0",
        "0 == layer_id",
        "layer_id != 0",
        "layer_id is None",
        "layer_id is None or layer_id < 2",
        "layer_id is not None and layer_id >= 2",
        "layer_id is not None and (name == 'x' or 2 <= layer_id)",
        "not layer_id is None and layer_id < 2",
        "not (layer_id is None or name == 'x') and layer_id < 2",
        "layer_id is None or name == 'x' or layer_id < 2",
        "(layer_id is None or name == 'x') or name == 'y' and layer_id < 2 or layer_id < 0",
        "layer_id in [1, 2, 3] and layer_id < 3",
        "layer_id not in [1] or layer_id < 3",
        "layer_id is not None and name == 'x' or 'mlp' in name",
        "name == 'input_ids'",
        "\"rids\" == name",
        "name != 'input_ids'",
        "'mlp' in name",
        "'mlp' not in name",
        "name in ['rids', 'input_ids']",
        "  recompute_status == 'disabled'",
        "search('mlp.*output', name)",
        "search(r'layers\\.[0-9]+\\.(mlp|self_attn)\\.output', name)",
        "match('a?b+[^c-f_]$', name) is None",
        "not search('a', name)",
        "not not True",
        "((True))",
        "name == 'it\\'s'",
        "name == ''",
    };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct error err = ERROR_INIT;
        if (filter_check(filters[i], &err) != ERROR_NONE)
            fail_msg("%s", err.message);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        int at; /* counted from 1 */
        const char *text;
    } rows[] = {
        {"layer_id < 3", 10, "layer_id is None or layer_id < 3"},
        {"3 > layer_id", 3, "layer_id is None or"},
        {"layer_id is None and layer_id < 3", 31, "layer_id is None or"},
        {"layer_id is not None or layer_id < 3", 34, "layer_id is None or"},
        {"not (layer_id is None and name == 'x') and layer_id < 2", 53, "layer_id is None or"},
        {"layer_id in [0] or layer_id < 2", 29, "layer_id is None or"},
        {"step == 0", 1, "never true"},
        {"layer_id == 0 and rank == 0", 19, "never true"},
        {"dump_index > 3", 1, "never true"},
        {"layer_id=[0-3]", 9, "write == or in"},
        {"layer_id in [0-3]", 15, "write them out"},
        {"layer_id in (0, 1)", 13, "is expected"},
        {"layer_id in {0, 1}", 13, "write a list"},
        {"layer_id in range(3)", 13, "layer_id in [0, 1, 2]"},
        {"0 <= layer_id < 3", 3, "layer_id is None or"},
        {"layer_id is not None and 0 <= layer_id < 3", 40, "one comparison at a time"},
        {"layer_id == None", 10, "layer_id is None"},
        {"layer_id == '0'", 10, "layer_id == 0"},
        {"layer_id in ['0']", 10, "layer_id in [0, 1]"},
        {"layer_id in []", 13, "a list of texts"},
        {"layer_id in [0, 'a']", 13, "a list of texts"},
        {"layer_id in [0 1]", 16, "','"},
        {"layer_id in [0", 15, "ends too early"},
        {"layer_id == -1", 13, "whole numbers"},
        {"layer_id == 01", 13, "leading zeros"},
        {"layer_id == 1.5", 13, "whole number"},
        {"layer_id == 65536", 13, "65535"},
        {"layer_id == 1e3", 13, "whole number"},
        {"layer_id", 1, "no condition"},
        {"name", 1, "no condition"},
        {"'mlp'", 1, "no condition"},
        {"name is None", 6, "=="},
        {"name is 'x'", 6, "=="},
        {"name < 'x'", 6, "only layer_id"},
        {"'x' in layer_id", 5, "'mlp' in name"},
        {"name in 'abc'", 6, "name in ['a', 'b']"},
        {"name.startswith('x')", 5, "match('x', name)"},
        {"re.search('x', name)", 1, "without 're.'"},
        {"name == 'a' && name == 'b'", 13, "write and"},
        {"name == 'a' | name == 'b'", 13, "write or"},
        {"!True", 1, "write not"},
        {"true", 1, "write True"},
        {"foo == 1", 1, "is expected"},
        {"__import__('os').system('id')", 1, "is expected"},
        {"().__class__", 2, "is expected"},
        {"name == 'x' if True else False", 13, "and, or or the end"},
        {"lambda: True", 1, "only conditions"},
        {"name == 'x", 9, "closing quote"},
        {"name == f'x'", 9, "is expected"},
        {"name == b'x'", 9, "is expected"},
        {"name == 'a' 'b'", 13, "and, or or the end"},
        {"name == 'a''b'", 12, "one text only"},
        {"name == 'a\\x'", 11, "r'...'"},
        {"name == 'a\\\\'", 11, "r'...'"},
        {"name == 'a\xc3\xa4'", 11, "no tensor's name"},
        {"name == 'a\\\x01'", 12, "no tensor's name"},
        {"name\n== 'a'", 5, "a comparison is expected"},
        {"search('[', name)", 9, "without its ']'"},
        {"search('(', name)", 9, "without its ')'"},
        {"search(')', name)", 9, "without its '('"},
        {"search('(?i)a', name)", 9, "plain groups"},
        {"search('*', name)", 9, "behind one character"},
        {"search('a**', name)", 11, "behind one character"},
        {"search('(a+)+b', name)", 13, "behind one character"},
        {"search('a.*b.*c.*d.*', name)", 20, "very long"},
        {"search('a{2}', name)", 10, "backslash"},
        {"search('[z-a]', name)", 11, "must rise"},
        {"search('[]', name)", 9, "without a character"},
        {"search(r'\\1', name)", 10, "a backslash stands"},
        {"search(r'\\', name)", 8, "closing quote"},
        {"search(name, 'x')", 8, "a text"},
        {"search('x', layer_id)", 13, "name"},
        {"search('x')", 11, "',' and name"},
        {"search('x', name", 17, "')'"},
        {"search", 7, "'('"},
        {"(True", 6, "')'"},
        {"True)", 5, "the end"},
        {"True not", 6, "the end"},
        {"True True", 6, "the end"},
        {"not", 4, "ends too early"},
        {"True and", 9, "ends too early"},
        {"", 1, "ends too early"},
        {"   ", 4, "ends too early"},
        {"(name == 'a') == True", 15, "the end"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = ERROR_INIT;
        char at[40];
        enum error_code code = filter_check(rows[i].filter, &err);
        snprintf(at, sizeof at, "at character %d", rows[i].at);
        const char *found = strstr(err.message, at);
        if (code != ERROR_SETTINGS || found == NULL || strchr(" :", found[strlen(at)]) == NULL ||
            strstr(err.message, rows[i].text) == NULL)
            fail_msg("%s: code %d, expected %s, %s: %s", rows[i].filter, (int)code, at, rows[i].text, err.message);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    char text[2 * FILTER_MAX];
    struct error err = ERROR_INIT;
    memset(text, '(', sizeof text);
    text[FILTER_DEPTH] = '\0';
    strcat(text, "True");
    for (int i = 0; i < FILTER_DEPTH; i++)
        strcat(text, ")");
    assert_int_equal(filter_check(text, &err), ERROR_NONE);
    memset(text, '(', FILTER_DEPTH + 1);
    assert_int_equal(filter_check(text, &err), ERROR_SETTINGS);
    assert_non_null(strstr(err.message, "32 parentheses"));
    memset(text, ' ', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(filter_check(text, &err), ERROR_SETTINGS);
    assert_non_null(strstr(err.message, "2047 characters"));
    assert_int_equal(filter_check("step", NULL), ERROR_SETTINGS);
}

/* Any bytes: an answer, and no read outside. */
static void test_hostile(void **state)
{
    (void)state;
    static const char alphabet[] = "nameylr_id()[]'\"\\ ,=<>!is ot012.*\xff\x01";
    unsigned long seed = 12345;
    for (int round = 0; round < 20000; round++) {
        size_t length = (size_t)(round % 23);
        char *text = malloc(length + 1);
        for (size_t i = 0; i < length; i++) {
            seed = seed * 6364136223846793005ul + 1442695040888963407ul;
            text[i] = alphabet[(seed >> 33) % (sizeof alphabet - 1)];
        }
        text[length] = '\0';
        (void)filter_check(text, NULL);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
