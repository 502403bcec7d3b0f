/* A run by its folder RUNTIME/runs/NAME: the guard's socket while it lives, the record that it leaves. Folders of other
 * users are not looked into. One thread. */
#pragma once

#include "base/list.h"
#include "ctl/find.h"

/* Adds the names of the runs of ours below `runtime`, sorted. */
void find_folder_names(const char *runtime, struct list *names);

/* ERROR_NOT_FOUND: no such run of ours below `runtime`; else as find_folder_reach. On success the caller owns
 * *ret_find. */
enum error_code find_folder_open(const char *runtime, const char *name, struct find *ret_find, struct error *err);

/* Fills client or record of *find, whose folder is set. ERROR_NO_RUN: it is over and left no record. ERROR_BUSY: its
 * guard lives, and after `patience_ms` it still does not answer. */
enum error_code find_folder_reach(struct find *find, int64_t patience_ms, struct error *err);

/* After a run has ended: waits until its guard is gone, so that its name is free for the next one; at most
 * `patience_ms`. Nothing for a run whose folder is not known. */
void find_folder_wait_gone(const struct find *find, int64_t patience_ms);

/* Where there is no event to be waited for. */
void find_folder_sleep_ms(long ms);

/* What can be told of a run whose guard lives but does not answer: its record, the state "unknown", and why. The caller
 * owns it. */
struct json *find_folder_unknown(const char *runtime, const char *name, const struct error *why);
