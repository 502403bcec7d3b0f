/* A setting of the server that is changed from start to start: how CMD gets it, and whether it arrived. Pure; any
 * thread (but see json.h: one at a time). */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "sglang/generate.h"

#include <stdbool.h>
#include <stddef.h>

struct vary_setting {
    char *name;  /* on the command line, without its dashes: "page-size" */
    char *value; /* "16"; "on" and "off" are of a switch: the flag is there, or it is not */
};
void vary_setting_fini(struct vary_setting *setting); /* also of a zeroed one */

/* "page-size=1,16": adds a setting for each value to the caller's array. ERROR_BAD_VALUE: another form, a value that is
 * given twice, or a setting that cannot be varied (where the server answers, its model, its keys). */
enum error_code vary_parse(const char *text, struct vary_setting **settings, size_t *count, struct error *err);

/* CMD with this setting. Of two uses of an argument the server takes the last one (argparse), however the first is
 * spelled, so "--NAME=VALUE" goes to the end of CMD; a switch that is off is taken out. ERROR_SETTINGS where CMD is
 * not SGLang itself: what a script does with an argument is not known. */
enum error_code vary_command(const struct list *command, const struct vary_setting *setting, struct list *ret_command,
                             struct error *err);

/* What the server has resolved it to, as text ("16", "triton", "true"); "-" where it shows no such setting. The
 * caller's. */
char *vary_resolved(const struct generate_server *server, const char *name);

/* Whether that is what was asked for. */
bool vary_is_asked(const struct vary_setting *setting, const char *resolved);
