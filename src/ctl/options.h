/* The options of a run as `start` and `doctor` take them. One thread. */
#pragma once

#include "base/error.h"
#include "conf/settings.h"

/* Reads argv[0..argc-1] (no program name) up to "--", and the file of --config, and checks all of it.
 * `defaults` (NULL: none): the admin's. On success the
 * caller owns *ret_settings; *ret_rest is the index of the first word after "--", argc when nothing stands there.
 * ERROR_USAGE or ERROR_BAD_VALUE with all faults, or the code of reading the file. A missing "--" or command is a
 * fault. */
enum error_code options_read(int argc, char *const *argv, const struct settings_texts *defaults,
                             struct settings *ret_settings, int *ret_rest, struct error *err);
