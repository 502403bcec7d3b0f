#include "sglang/operator_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const struct operator_script product = {.module = "model.layers.0.self_attn.qkv_proj",
                                               .kind = "matrix product",
                                               .dtype = "bfloat16",
                                               .inputs = 64,
                                               .outputs = 128,
                                               .few = 2,
                                               .rows = 5};

static enum error_code build(const struct operator_script *script, struct buffer *text, struct error *err)
{
    buffer_init(text);
    return operator_script_build(script, text, err);
}

static void ten_lines(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *line;
        bool residual;
    } rows[] = {{"matrix product", "\nFEW, M, K, N, DTYPE = 2, 5, 64, 128, torch.bfloat16\n", false},
                {"normalisation", "\nFEW, M, N, DTYPE = 2, 5, 64, torch.bfloat16\n", false},
                {"normalisation", "\nmany = norm(x.clone(), x.clone())[0][:len(few)]\n", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct operator_script script = product;
        struct error err = ERROR_INIT;
        struct buffer text;
        size_t lines = 0;
        script.kind = rows[i].kind;
        script.residual = rows[i].residual;
        assert_int_equal(build(&script, &text, &err), ERROR_NONE);
        for (const char *c = text.data; *c != '\0'; c++)
            lines += *c == '\n';
        assert_int_equal(lines, 10);
        assert_int_equal(strncmp(text.data, "# model.layers.0.self_attn.qkv_proj (", 37), 0);
        assert_non_null(strstr(text.data, rows[i].line));
        buffer_fini(&text);
    }
}

/* The name comes out of a file that anybody may have written. */
static void a_name_stays_in_its_comment(void **state)
{
    (void)state;
    struct operator_script script = product;
    struct error err = ERROR_INIT;
    struct buffer text;
    script.module = "a\nimport os\r\"\"\"'\xff";
    assert_int_equal(build(&script, &text, &err), ERROR_NONE);
    assert_true(strncmp(text.data, "# a?import?os?????? (", 21) == 0);
    buffer_fini(&text);
}

static void what_has_no_script(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *dtype;
    } rows[] = {{"attention", "bfloat16"},
                {"normalisation", "int8"},
                {"matrix product", "float8_e4m3fn"},
                {"matrix product", "int64"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct operator_script script = product;
        struct error err = ERROR_INIT;
        struct buffer text;
        script.kind = rows[i].kind;
        script.dtype = rows[i].dtype;
        assert_int_equal(build(&script, &text, &err), ERROR_BAD_VALUE);
        assert_int_equal(text.length, 0);
        assert_non_null(strstr(err.message, "qkv_proj"));
        buffer_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_lines),
        cmocka_unit_test(a_name_stays_in_its_comment),
        cmocka_unit_test(what_has_no_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
