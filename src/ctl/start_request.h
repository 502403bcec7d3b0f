/* What `start` asks of kldumpd: the arguments, this process's environment, working folder and umask. One thread. */
#pragma once

#include "base/error.h"

struct json;

/* The caller owns *ret_parameters. ERROR_BAD_VALUE: what JSON cannot carry (no UTF-8), each variable by name, or more
 * than a request may hold, with its size and the largest variables; both say what to do. ERROR_SYSTEM: the working
 * folder cannot be told. */
enum error_code start_request_make(int argc, char **argv, struct json **ret_parameters, struct error *err);
