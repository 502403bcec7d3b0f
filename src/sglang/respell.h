/* Flags of ours that the server does not know: the same settings as another release spells them. Pure; any thread. */
#pragma once

#include "base/list.h"
#include "core/server.h"

#include <stdbool.h>
#include <stddef.h>

/* As `respell` of struct server_operations. False also when a flag that is not ours is named: the server would refuse
 * that one again. */
bool respell_try(const struct server_command *command, const char *unknown, unsigned tried, struct list *argv,
                 struct list *environment, char *ret_note, size_t size);
