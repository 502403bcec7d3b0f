/* The guard of one run: launches the server through the keeper, proves the hooks, watches the disk, obeys its control
 * socket, seals dumps, and ends with nothing left behind. It decides nothing: src/core/run.h does; here events are fed
 * to that machine and its effects carried out.
 *
 * Happy path: guard_main reads the settings, prepares (guard_setup.c), starts the services on one libuv loop and runs
 * it until RUN_DO_FINISH, then writes the record beside the dump and returns the exit status of DESIGN 10. Failure
 * before the server is started: one line on standard error, nothing left on disk but an empty dump folder, the exit
 * status of the error. After that every failure is an event of the machine. */
#pragma once

#include "core/server.h"

/* `arguments`: the options of src/conf/settings.def, "--", CMD; without a program name, NULL-terminated. Or one
 * argument,
 * "--plan", with {"arguments", "environment", "directory", "umask", "name", "folder"} as JSON on standard input:
 * kldumpd's way (name and folder: of the run, made and locked apart by the daemon; the folder is the user's, 0700),
 * then one line of JSON on standard output says {"run": NAME} once the control socket is there, or {"error", "status",
 * "message"}. Call once, from main, before any thread is there. Returns the exit status. */
int guard_main(char **arguments, const struct server_operations *server);
