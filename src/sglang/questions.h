/* The requests that ask the server something. Routes and bodies as in SGLang 0.5.23, http_server.py and dumper.py.
 * Pure; any thread. */
#pragma once

#include "core/server.h"

#include <stdbool.h>
#include <stdint.h>

/* As `build` and `build_older` of struct server_operations. */
void questions_build(enum server_question question, const char *experiment, const char *filter, const char *request_id,
                     uint64_t seed, bool half, struct server_request *ret_request);
bool questions_build_older(enum server_question question, struct server_request *ret_request);
