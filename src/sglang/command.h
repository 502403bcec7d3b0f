/* CMD as the user gave it: whether it is the server itself, where its python and its arguments are, its port and keys.
 * Pure; any thread. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "core/server.h"

#include <stddef.h>

enum command_form {
    COMMAND_WRAPPER, /* something else, which is hoped to start the server in the end */
    COMMAND_MODULE,  /* PYTHON ... -m sglang.launch_server ..., or its file; also behind env, nice, uv run and the like
                      */
    COMMAND_SCRIPT,  /* sglang serve ... */
};

struct command_parts {
    enum command_form form;
    size_t program;    /* position of the python, or of the console script; 0 for a wrapper */
    size_t arguments;  /* position of the server's first argument; 1 for a wrapper */
    size_t prefix_end; /* the programs in front of what is run (env, nice ...) end here */
};

void command_split(const struct list *command, struct command_parts *ret_parts);

/* As `read_command`, `version_query` and `redact` of struct server_operations. */
enum error_code command_read(const struct list *command, const struct list *environment,
                             struct server_command *ret_command, struct error *err);
void command_version_query(const struct server_command *command, struct list *ret_argv);
void command_redact(const struct list *command, struct list *ret_command);
