/* The seal as dump and pause print it. */
#pragma once

#include "ctl/find.h"
#include "ctl/output.h"

/* Prints a seal: for people, or with its schema as JSON where `schema` is not NULL. Returns STATUS_DONE when it says
 * complete, else STATUS_INCOMPLETE. */
int seal_print(struct output *out, struct find *find, const struct json *seal, const char *schema);
