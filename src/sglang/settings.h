/* The settings with which the server is launched: what is forced and why, and what contradicts it. Pure; any thread. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "core/server.h"

/* The variable in which a wrapper finds the arguments that it should hand to the server. */
#define SETTINGS_WRAPPER_VARIABLE "KLDUMP_SGLANG_ARGS"

/* As `prepare` of struct server_operations. On failure argv, environment and notes are untouched. */
enum error_code settings_prepare(const struct server_command *command, const char *version,
                                 const struct server_launch *launch, struct list *argv, struct list *environment,
                                 struct list *ret_notes, struct error *err);
