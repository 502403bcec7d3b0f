/* version.c: see version.h. The rows are what was found in the wheels and in live runs of these releases. */
#include "version.h"

#include <stdio.h>
#include <stdlib.h>

static const struct version_rules ROWS[] = {
    {.from = 0},
    {.from = 510, .has_hooks = true, .extra_decode_pass = true, .layer_output_is_pair = true},
    {.from = 512,
     .has_hooks = true,
     .dumper_prefix_has_rank = true,
     .has_grafter = true,
     .extra_decode_pass = true,
     .layer_output_is_pair = true},
    {.from = 514,
     .has_hooks = true,
     .dumper_prefix_has_rank = true,
     .has_grafter = true,
     .has_parallel_rank = true,
     .extra_decode_pass = true,
     .layer_output_is_pair = true,
     .separate_graph_phases = true},
    {.from = 516,
     .has_hooks = true,
     .dumper_prefix_has_rank = true,
     .body_must_be_object = true,
     .has_grafter = true,
     .has_parallel_rank = true,
     .extra_decode_pass = true,
     .layer_output_is_pair = true,
     .separate_graph_phases = true},
    {.from = 520,
     .has_hooks = true,
     .dumper_prefix_has_rank = true,
     .body_must_be_object = true,
     .has_grafter = true,
     .has_parallel_rank = true,
     .has_ready = true,
     .extra_decode_pass = true,
     .layer_output_is_pair = true,
     .graceful_exit = true,
     .separate_graph_phases = true},
    {.from = 522,
     .has_hooks = true,
     .dumper_prefix_has_rank = true,
     .body_must_be_object = true,
     .has_grafter = true,
     .has_parallel_rank = true,
     .has_ready = true,
     .graceful_exit = true,
     .separate_graph_phases = true},
    {.from = 523,
     .has_hooks = true,
     .dumper_prefix_has_rank = true,
     .body_must_be_object = true,
     .has_grafter = true,
     .has_parallel_rank = true,
     .has_ready = true,
     .ping_waits = true,
     .graceful_exit = true,
     .separate_graph_phases = true},
};

const char *version_text(void)
{
    const char *text = getenv("KLDUMP_STANDIN_VERSION");
    return text != NULL && text[0] != '\0' ? text : "0.5.23";
}

const char *version_reported(void)
{
    const char *text = getenv("KLDUMP_STANDIN_REPORTED");
    if (text == NULL)
        return version_text();
    return text[0] != '\0' ? text : NULL;
}

int version_number(void)
{
    int major = 0, minor = 0, patch = 0;
    if (sscanf(version_text(), "%d.%d.%d", &major, &minor, &patch) < 2)
        return 523;
    return major * 10000 + minor * 100 + patch;
}

const struct version_rules *version_rules(void)
{
    const struct version_rules *found = &ROWS[0];
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        if (ROWS[i].from <= version_number())
            found = &ROWS[i];
    return found;
}
