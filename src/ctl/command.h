/* One command of kldumpctl: a file `src/ctl/command_NAME.c` with one descriptor, and a line in commands.c. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "ctl/output.h"

#include <stdbool.h>

struct command {
    const char *name;
    const char *usage;   /* what follows "kldumpctl "; one form a line: "status [RUN] [--json]" */
    const char *summary; /* one line without a full stop, for the list of commands */
    const char *help;    /* text of `help NAME` below the usage: "Examples:" first, then words and options */
    bool has_settings;   /* the options of src/conf/settings.def are listed at the end of the help */
    /* argv[0] is the command's name, argv[argc] NULL; --help has been handled. Prints to `out` (flushed by the caller;
     * flush where the reader must see it now). Returns the exit status. */
    int (*run)(const struct command *command, struct output *out, int argc, char **argv);
};

/* All commands in the order of the list; NULL ends it. */
const struct command *const *commands_all(void);
const struct command *commands_find(const char *name);

/* The command whose name is closest to a mistyped one, or NULL where none is near. */
const struct command *commands_nearest(const char *name);

/* Runs what argv asks for (argv[0] is the program); returns the exit status. */
int commands_main(struct output *out, int argc, char **argv);

/* Fails with a message and the way to the help: "kldumpctl NAME: MESSAGE" and "usage: ..." on standard error.
 * Returns STATUS_USAGE. */
int command_usage_error(const struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "kldumpctl NAME: MESSAGE" on standard error; returns the exit status of err->code. */
int command_fail(const struct command *command, const struct error *err);

/* What find_all could not ask, on standard error, a line for each. Returns STATUS_DONE; where it found nothing at all
 * because of that, the status that belongs to it. */
struct find_list;
int command_notes(const struct command *command, const struct find_list *list);

/* Options and operands of a command that has no settings. */
struct command_option {
    const char *name;   /* without dashes; NULL ends the table */
    char letter;        /* of a short form such as -f, or 0 */
    bool *flag;         /* set true when given; or */
    const char **value; /* the text that follows (--name TEXT, --name=TEXT); or */
    struct list *list;  /* the same each time it is given; the caller frees it, also after a usage error */
};
struct command_operands {
    int count;
    char *item[8]; /* operands before "--", at most `max` */
    char **rest;   /* what follows "--", NULL-terminated; NULL when there was no "--" */
};

/* Options may stand before, between and after operands. On an unknown option, a missing or unwanted text, an option
 * given twice that is no list, or more than `max` operands (max <= 8): prints the usage error and returns false. */
bool command_parse(const struct command *command, const struct command_option *options, int argc, char **argv, int max,
                   struct command_operands *ret_operands);

/* For a command that has settings: takes the options of the table out of argv[0..argc-1], up to "--", and leaves the
 * rest in its order, with NULL behind it. Returns how much that is; -1 after the usage error of command_parse. */
int command_take(const struct command *command, const struct command_option *options, int argc, char **argv);

extern const struct command command_capture;
extern const struct command command_check;
extern const struct command command_show;
extern const struct command command_diff;
extern const struct command command_ab;
extern const struct command command_state_diff;
extern const struct command command_doctor;
extern const struct command command_kl;
extern const struct command command_help;
extern const struct command command_invariance;
extern const struct command command_investigate;
extern const struct command command_run;
extern const struct command command_start;
extern const struct command command_list;
extern const struct command command_status;
extern const struct command command_dump;
extern const struct command command_pause;
extern const struct command command_stop;
extern const struct command command_wait;
extern const struct command command_logs;
extern const struct command command_events;
extern const struct command command_metrics;
