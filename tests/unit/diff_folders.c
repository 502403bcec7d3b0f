/* Makes the folders that test_command_diff.py compares: diff_folders FOLDER. Below it dec and pre of each case. */
#include "base/memory.h"
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PROMPT = 6, LENGTH = 14 };

static char *make_folder(const char *folder, const char *name, const char *side)
{
    char *outer = memory_format("%s/%s", folder, name), *inner = memory_format("%s/%s", outer, side);
    mkdir(outer, 0755);
    if (mkdir(inner, 0755) < 0) {
        perror(inner);
        exit(1);
    }
    free(outer);
    return inner;
}

/* Two requests that decode side by side, and a pass that scores each; `fault` holds in decode, NULL: none. */
static void make_case(const char *folder, const char *name, const struct scenario_fault *fault, int64_t other_token)
{
    struct scenario_model model = scenario_small();
    struct scenario *scenario = scenario_begin(&model);
    int64_t tokens[2][LENGTH];
    static const char *const rids[] = {"dec-a", "dec-b", "pre-a", "pre-b"};
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < LENGTH; i++)
            tokens[r % 2][i] = 3 + (i * 7 + r % 2 * 5) % 28;
        if (r == 2 && other_token != 0)
            tokens[0][1] = other_token;
        scenario_request(scenario, rids[r], tokens[r % 2], LENGTH);
    }
    char *dec = make_folder(folder, name, "dec"), *pre = make_folder(folder, name, "pre");
    scenario_open(scenario, dec);
    scenario_prefill(scenario, 0, PROMPT);
    scenario_prefill(scenario, 1, PROMPT);
    if (fault != NULL)
        scenario_fault(scenario, fault);
    for (unsigned position = PROMPT; position < LENGTH; position++) {
        const struct scenario_pass pass = {.part_count = 2,
                                           .parts = {{.request = 0, .position = position, .rows = 1},
                                                     {.request = 1, .position = position, .rows = 1}}};
        scenario_pass(scenario, &pass);
    }
    scenario_heal(scenario);
    scenario_open(scenario, pre);
    scenario_counters(scenario, 0, 0);
    scenario_prefill(scenario, 2, LENGTH);
    scenario_prefill(scenario, 3, LENGTH);
    scenario_end(scenario);
    free(dec);
    free(pre);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: diff_folders FOLDER\n");
        return 2;
    }
    const struct scenario_fault product = {.name = "model.layers.1.mlp.down_proj.output", .amount = 2, .elements = 3};
    make_case(argv[1], "clean", NULL, 0);
    make_case(argv[1], "product", &product, 0);
    make_case(argv[1], "tokens", NULL, 2);
    return 0;
}
