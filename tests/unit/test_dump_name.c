#include "sglang/dump_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define NAME(text) "step=3___rank=1___dump_index=17___name=" text "___recompute_status=disabled.pt"
#define HOOK(text) NAME("non_intrusive__" text)

static void same(struct dump_name_text text, const char *expected)
{
    if (text.length != strlen(expected) || memcmp(text.at, expected, text.length) != 0)
        fail_msg("'%.*s' is not '%s'", (int)text.length, text.at, expected);
}

static void parts(void **state)
{
    (void)state;
    struct dump_name name;
    const char *file = "step=3___rank=1___dump_index=17___name=non_intrusive__model.layers.2.mlp.output"
                       "___recompute_status=disabled___layer_id=2___pp_rank=0___tp_rank=1.pt";
    assert_int_equal(dump_name_parse(file, &name, NULL), ERROR_NONE);
    assert_int_equal(name.step, 3);
    assert_int_equal(name.rank, 1);
    assert_int_equal(name.dump_index, 17);
    same(name.suffix, strstr(file, "name="));
    same(name.name, "non_intrusive__model.layers.2.mlp.output");
    same(name.recompute, "disabled");
    same(name.more, "pp_rank=0___tp_rank=1");
    assert_true(name.has_layer_tag && name.layer_tag == 2);
    assert_int_equal(dump_name_parse(NAME("rids"), &name, NULL), ERROR_NONE);
    assert_false(name.has_layer_tag || name.has_layer || name.hook);
    same(name.more, "");
    same(name.module, "");
}

static void slots(void **state)
{
    (void)state;
    static const struct {
        const char *file, *module;
        enum dump_name_slot slot;
        const char *argument, *item;
        int layer;
    } cases[] = {
        {HOOK("inputs.0"), "", DUMP_NAME_INPUT, "0", "", -1},
        {HOOK("output.next_token_logits"), "", DUMP_NAME_OUTPUT, "", "next_token_logits", -1},
        {HOOK("model.output"), "model", DUMP_NAME_OUTPUT, "", "", -1},
        {HOOK("model.layers.12.output"), "model.layers.12", DUMP_NAME_OUTPUT, "", "", 12},
        {HOOK("model.layers.12.output.1"), "model.layers.12", DUMP_NAME_OUTPUT, "", "1", 12},
        {HOOK("model.layers.0.self_attn.inputs.hidden_states"), "model.layers.0.self_attn", DUMP_NAME_INPUT_KEYWORD,
         "hidden_states", "", 0},
        {HOOK("a.inputs.1.0"), "a", DUMP_NAME_INPUT, "1", "0", -1},
        {HOOK("layers.3.attn.inputs.2"), "layers.3.attn", DUMP_NAME_INPUT, "2", "", 3},
        {HOOK("model.layers.4.output.inputs.0"), "model.layers.4.output", DUMP_NAME_INPUT, "0", "", 4},
        {HOOK("model.layers.4.output.output"), "model.layers.4.output", DUMP_NAME_OUTPUT, "", "", 4},
        {HOOK("my_layers.4.output"), "my_layers.4", DUMP_NAME_OUTPUT, "", "", -1},
        {HOOK("model.layers.x.output"), "model.layers.x", DUMP_NAME_OUTPUT, "", "", -1},
        {HOOK("model.layers.70000.output"), "model.layers.70000", DUMP_NAME_OUTPUT, "", "", -1},
        {HOOK("experts.layers.1.layers.2.output"), "experts.layers.1.layers.2", DUMP_NAME_OUTPUT, "", "", 2},
        {HOOK("something.else"), "", DUMP_NAME_NO_SLOT, "", "", -1},
        {HOOK("a.output.b.c"), "", DUMP_NAME_NO_SLOT, "", "", -1},
        {HOOK("a.output.b.c.d"), "", DUMP_NAME_NO_SLOT, "", "", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dump_name name;
        assert_int_equal(dump_name_parse(cases[i].file, &name, NULL), ERROR_NONE);
        assert_true(name.hook);
        assert_int_equal(name.core, DUMP_NAME_NOT_CORE);
        if (name.slot != cases[i].slot)
            fail_msg("%s: slot %d", cases[i].file, (int)name.slot);
        same(name.module, cases[i].module);
        same(name.argument, cases[i].argument);
        same(name.item, cases[i].item);
        assert_int_equal(name.has_layer ? (int)name.layer : -1, cases[i].layer);
    }
}

static void core_names(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        enum dump_name_core core;
    } cases[] = {
        {NAME("input_ids"), DUMP_NAME_INPUT_IDS}, {NAME("positions"), DUMP_NAME_POSITIONS},
        {NAME("seq_lens"), DUMP_NAME_SEQ_LENS},   {NAME("req_pool_indices"), DUMP_NAME_REQ_POOL_INDICES},
        {NAME("rids"), DUMP_NAME_RIDS},           {NAME("qkv_format"), DUMP_NAME_OTHER_CORE},
        {NAME("ridsx"), DUMP_NAME_NOT_CORE},      {NAME("my_tensor"), DUMP_NAME_NOT_CORE},
        {HOOK("input_ids"), DUMP_NAME_NOT_CORE},  {NAME("layer_start__hidden_states"), DUMP_NAME_NOT_CORE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dump_name name;
        assert_int_equal(dump_name_parse(cases[i].file, &name, NULL), ERROR_NONE);
        assert_int_equal(name.core, cases[i].core);
    }
}

static void refused(void **state)
{
    (void)state;
    static const char *const files[] = {
        "",
        ".pt",
        "x.pt",
        "step=3___rank=1___dump_index=17___name=x",
        "step=3___rank=1___dump_index=17.pt",
        "step=3___rank=1___dump_index=17___name=.pt",
        "step=3___rank=1___name=x___dump_index=17.pt",
        "rank=1___step=3___dump_index=17___name=x.pt",
        "step=03___rank=1___dump_index=17___name=x.pt",
        "step=-3___rank=1___dump_index=17___name=x.pt",
        "step=+3___rank=1___dump_index=17___name=x.pt",
        "step=___rank=1___dump_index=17___name=x.pt",
        "step=3 ___rank=1___dump_index=17___name=x.pt",
        "step=3___rank=4294967296___dump_index=17___name=x.pt",
        "step=9223372036854775808___rank=1___dump_index=17___name=x.pt",
        "step=99999999999999999999___rank=1___dump_index=17___name=x.pt",
        "step=3___rank=1___dump_index=17___name=x___layer_id=two.pt",
        "step3___rank=1___dump_index=17___name=x.pt",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct dump_name name = {.step = 99};
        struct error err = ERROR_INIT;
        if (dump_name_parse(files[i], &name, &err) != ERROR_FORMAT)
            fail_msg("'%s' was taken", files[i]);
        assert_int_equal(name.step, 99);
        assert_true(err.message[0] != '\0');
    }
    struct dump_name name;
    assert_int_equal(
        dump_name_parse("step=9223372036854775807___rank=4294967295___dump_index=0___name=x.pt", &name, NULL),
        ERROR_NONE);
}

/* Every name cut anywhere and with any byte exchanged: taken or refused, never a read outside. */
static void every_byte(void **state)
{
    (void)state;
    const char *file = "step=3___rank=1___dump_index=17___name=non_intrusive__model.layers.2.a.inputs.0.x"
                       "___recompute_status=disabled___layer_id=2___more=1.pt";
    char text[256];
    for (size_t length = 0; length <= strlen(file); length++)
        for (size_t i = 0; i < length; i++)
            for (const char *other = "_=.0a\xff"; *other != '\0'; other++) {
                struct dump_name name;
                snprintf(text, sizeof text, "%.*s%s", (int)length, file, length < strlen(file) ? ".pt" : "");
                text[i] = *other;
                if (dump_name_parse(text, &name, NULL) == ERROR_NONE)
                    assert_true(name.suffix.at > text && name.more.at <= text + strlen(text));
            }
}

static void rank_and_index(void **state)
{
    (void)state;
    uint64_t rank = 7, index = 7;
    assert_true(dump_name_read("step=3___rank=1___dump_index=17___name=x.pt", &rank, &index));
    assert_int_equal(rank, 1);
    assert_int_equal(index, 17);
    assert_false(dump_name_read("step=3___rank=2___name=x.pt", &rank, &index));
    assert_false(dump_name_read("notes.txt", &rank, &index));
    assert_int_equal(rank, 1);
    assert_int_equal(index, 17);
}

/* What a later stage of a pipeline gets is marked with a word; its name ends in underscores of its own. */
static void a_word(void **state)
{
    (void)state;
    struct dump_name name;
    assert_int_equal(dump_name_parse(HOOK("model.inputs.pp_proxy_tensors.__msg_type__"), &name, NULL), ERROR_NONE);
    assert_true(name.hook && name.word);
    same(name.module, "model");
    same(name.argument, "pp_proxy_tensors");
    same(name.item, "__msg_type__");
    assert_int_equal(dump_name_parse(HOOK("model.inputs.pp_proxy_tensors.residual"), &name, NULL), ERROR_NONE);
    assert_true(name.hook && !name.word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts),   cmocka_unit_test(slots),      cmocka_unit_test(core_names),
        cmocka_unit_test(refused), cmocka_unit_test(every_byte), cmocka_unit_test(rank_and_index),
        cmocka_unit_test(a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
