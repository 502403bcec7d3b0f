/* The options of a run as `start` and `doctor` take them. One thread. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "conf/settings.h"
#include "ctl/command.h"

/* Reads argv[0..argc-1] (no program name) up to "--", and the file of --config, and checks all of it.
 * `defaults` (NULL: none): the admin's. On success the
 * caller owns *ret_settings; *ret_rest is the index of the first word after "--", argc when nothing stands there.
 * ERROR_USAGE or ERROR_BAD_VALUE with all faults, or the code of reading the file. A missing "--" or command is a
 * fault. */
enum error_code options_read(int argc, char *const *argv, const struct settings_texts *defaults,
                             struct settings *ret_settings, int *ret_rest, struct error *err);

/* For a command with options of its own that starts a run as well: fills a row of command_parse for each option of a
 * run, whose text goes to texts[id], and returns how many. */
size_t options_rows(const char *texts[SETTINGS_COUNT], struct command_option rows[SETTINGS_COUNT]);

/* Those that were given, as the words of a command line: "--floor", "20G". */
void options_words(const char *const texts[SETTINGS_COUNT], struct list *ret_words);
