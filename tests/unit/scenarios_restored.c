/* Situations of a restored prefix, rows of the table in scenarios.c. */
#include "scenarios.h"

static const int64_t other_tokens[] = {7, 7, 2, 9, 11, 13, 17, 19, 23, 29, 31, 1};

/* Two prompts fill the cache and are scored again behind it, as `capture --restore` does; NULL: nothing is wrong. */
static void write_rows(const struct scenarios_folders *f, unsigned rows, const char *name)
{
    struct scenario_model model = scenario_small();
    struct scenario *s = scenario_begin(&model);
    unsigned a = scenario_request(s, "a", scenarios_tokens, 12), b = scenario_request(s, "b", other_tokens, 12);
    scenario_open(s, f->dec);
    scenario_prefill(s, a, 12);
    scenario_prefill(s, b, 12);
    if (name != NULL)
        scenario_fault(s, &(struct scenario_fault){.name = name, .change = SCENARIO_RANDOM});
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = a, .position = 12 - rows, .rows = rows},
                                                       {.request = b, .position = 12 - rows, .rows = rows}},
                                             .part_count = 2});
    scenario_heal(s);
    scenario_open(s, f->pre);
    a = scenario_request(s, "fresh-a", scenarios_tokens, 12);
    b = scenario_request(s, "fresh-b", other_tokens, 12);
    scenario_prefill(s, a, 12);
    scenario_prefill(s, b, 12);
    scenario_end(s);
}

void scenarios_restored(const struct scenarios_folders *f)
{
    write_rows(f, 5, NULL);
}

void scenarios_restored_unequal(const struct scenarios_folders *f)
{
    write_rows(f, 5, "model.layers.1.self_attn.attn.output");
}

void scenarios_restored_one_row(const struct scenarios_folders *f)
{
    write_rows(f, 1, "model.layers.0.self_attn.qkv_proj.output");
}

static void write_shared(const char *folder, struct scenario *s, unsigned cached)
{
    static const int64_t longer[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7},
                         other[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 40, 41};
    scenario_open(s, folder);
    unsigned a = scenario_request(s, "a", longer, 14), b = scenario_request(s, "b", other, 12);
    scenario_prefill(s, a, 14);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = b, .position = cached, .rows = 12 - cached}},
                                             .part_count = 1});
}

/* Two prompts that begin alike, in two runs which restore another number of tokens: no side has a whole prefill. */
void scenarios_restored_both(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    struct scenario *s = scenario_begin(&model);
    write_shared(f->dec, s, 4);
    write_shared(f->pre, s, 8);
    scenario_end(s);
}
