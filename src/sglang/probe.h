/* What the probe proves. Its request has one extend pass and 2 or 3 decode passes (the release decides); in every one
 * of them, on every rank, hooks must have fired below the layers. Files alone prove nothing: a replayed prefill graph
 * still writes 13 healthy files and advances the step count. Pure; any thread. */
#pragma once

#include "core/server.h"

/* As `judge_probe` of struct server_operations. */
void probe_judge(const struct server_probe_evidence *evidence, struct server_judgement *ret_judgement);
