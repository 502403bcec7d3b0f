#include "sglang/module_class.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const struct module_class_fact *find(const char *module, unsigned tp_size)
{
    return module_class_find(module, strlen(module), tp_size);
}

static void tails(void **state)
{
    (void)state;
    static const struct {
        const char *module, *kind;
        enum module_class alone, parallel;
    } rows[] = {
        {"model.embed_tokens", "embedding", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_REDUCES},
        {"transformer.wte", "embedding", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_REDUCES},
        {"model.layers.0.input_layernorm", "normalisation", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_TOKEN_WISE},
        {"model.norm", "normalisation", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_TOKEN_WISE},
        {"model.layers.17.self_attn.qkv_proj", "matrix product", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_TOKEN_WISE},
        {"model.layers.17.self_attn.o_proj", "matrix product", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_REDUCES},
        {"model.layers.17.mlp.down_proj", "matrix product", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_REDUCES},
        {"model.layers.17.mlp.act_fn", "activation", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_TOKEN_WISE},
        {"model.layers.3.mlp.gate", "router", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_TOKEN_WISE},
        {"model.layers.3.mlp.experts", "mixture of experts", MODULE_CLASS_REDUCES, MODULE_CLASS_REDUCES},
        {"model.layers.3.self_attn.attn", "attention", MODULE_CLASS_STATE, MODULE_CLASS_STATE},
        {"model.layers.3.self_attn.attn_mqa", "attention", MODULE_CLASS_STATE, MODULE_CLASS_STATE},
        {"model.layers.3.linear_attn.attn", "recurrent state", MODULE_CLASS_STATE, MODULE_CLASS_STATE},
        {"backbone.layers.3.mixer", "recurrent state", MODULE_CLASS_STATE, MODULE_CLASS_STATE},
        {"model.layers.3.linear_attn.conv1d", "recurrent state", MODULE_CLASS_STATE, MODULE_CLASS_STATE},
        {"model.layers.3.self_attn.kv_a_proj_with_mqa", "matrix product", MODULE_CLASS_TOKEN_WISE,
         MODULE_CLASS_TOKEN_WISE},
        {"logits_processor", "logits", MODULE_CLASS_TOKEN_WISE, MODULE_CLASS_REDUCES},
        {"attn", "attention", MODULE_CLASS_STATE, MODULE_CLASS_STATE},
        {"model.layers.3.self_attn", "unknown", MODULE_CLASS_UNKNOWN, MODULE_CLASS_UNKNOWN},
        {"model.layers.3", "unknown", MODULE_CLASS_UNKNOWN, MODULE_CLASS_UNKNOWN},
        {"model.layers.3.xattn", "unknown", MODULE_CLASS_UNKNOWN, MODULE_CLASS_UNKNOWN},
        {"", "unknown", MODULE_CLASS_UNKNOWN, MODULE_CLASS_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(find(rows[i].module, 1)->kind, rows[i].kind);
        assert_int_equal(find(rows[i].module, 1)->class, rows[i].alone);
        assert_int_equal(find(rows[i].module, 2)->class, rows[i].parallel);
        assert_true(strlen(find(rows[i].module, 2)->needs) > 20);
    }
}

static void flags(void **state)
{
    (void)state;
    assert_true(find("model.embed_tokens", 1)->embedding);
    assert_false(find("model.norm", 1)->embedding);
    assert_true(find("model.layers.1.mlp.gate", 1)->router);
    assert_false(find("model.layers.1.mlp.gate_up_proj", 1)->router);
    assert_true(find("model.layers.1.mlp.experts", 1)->experts);
    assert_true(find("model.layers.1.self_attn.o_proj", 2)->all_reduce);
    assert_false(find("model.layers.1.self_attn.qkv_proj", 2)->all_reduce);
    assert_string_equal(module_class_name(MODULE_CLASS_UNKNOWN), "unknown");
    assert_string_equal(module_class_name(MODULE_CLASS_TOKEN_WISE), "token-wise");
    assert_string_equal(module_class_name(MODULE_CLASS_REDUCES), "reduces");
    assert_string_equal(module_class_name(MODULE_CLASS_STATE), "carries state");
}

static void arguments(void **state)
{
    (void)state;
    const char *attention = "model.layers.1.self_attn.attn", *recurrent = "model.layers.1.linear_attn.attn";
    assert_false(module_class_is_cache_row(attention, strlen(attention), "0", 1));
    assert_true(module_class_is_cache_row(attention, strlen(attention), "1", 1));
    assert_true(module_class_is_cache_row(attention, strlen(attention), "2", 1));
    assert_true(module_class_is_cache_row(attention, strlen(attention), "k", 1));
    assert_false(module_class_is_cache_row(attention, strlen(attention), "12", 2));
    assert_false(module_class_is_cache_row(recurrent, strlen(recurrent), "1", 1));
    assert_true(module_class_is_place("out_cache_loc", 13));
    assert_false(module_class_is_place("hidden_states", 13));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tails), cmocka_unit_test(flags), cmocka_unit_test(arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
