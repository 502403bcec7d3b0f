/* kldumpd: starts guards, finds those that live, lists all runs, passes requests on. It is not needed for a run to be
 * guarded: a guard lives in a session of its own, and everything that the daemon knows is read anew from the runtime
 * folder, so it may end, crash and come back at any time. It never opens a dump and never talks HTTP. */
#pragma once

/* Serves until SIGTERM or SIGINT; runs go on then. Call once, from main, before any thread is there. One line on
 * standard error says where it listens, or what is wrong. Returns the exit status: 0; 2 when the rules are at fault,
 * or `rules_path` is none; 88 when another kldumpd serves this runtime folder, or the folder is not ours.
 * `rules_path`: the admin's file, which must be there; NULL: the usual one, if it is there (sys/admin.h). */
int daemon_main(const char *rules_path);
