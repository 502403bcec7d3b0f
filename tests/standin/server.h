/* server.h: the main process: start, readiness, signals, its ways to end; and what its routes ask from it. */
#ifndef KLDUMP_STANDIN_SERVER_H
#define KLDUMP_STANDIN_SERVER_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "arguments.h"
#include "model.h"

enum server_status { SERVER_STARTING, SERVER_UP, SERVER_DRAINING };

/* Never returns. `program` is argv[0]. */
_Noreturn void server_run(const struct arguments *arguments, const char *program);

/* The rest may be called from any connection's thread. */
enum server_status server_status(void);
const struct arguments *server_arguments(void);
const struct model *server_model(void);

/* Sends (and deletes) a message to the leading scheduler of every replica and waits for their answers, for ever if
 * there are none. What is returned is that of the first, with the lists `answer` of all joined, and `errors`, a list of
 * the errors of all, if there is any. */
cJSON *server_ask_all(cJSON *message);

/* To the replica whose turn it is, for requests of a client: once it has closed `client_fd` they are aborted; then
 * NULL.
 */
cJSON *server_ask_for(cJSON *message, int client_fd);

/* A health probe: to the first replica; returns when it has answered. */
void server_probe(cJSON *message);

/* A request is known from here to there: a drain waits for it. */
void server_request_begin(const char *rid);
void server_request_end(const char *rid);
int server_open_requests(void);

/* Tokens that passes of prefills have computed since the start, those of health probes alone left out. */
double server_prefilled(void);

/* A request was refused with 400: of no consequence unless the fault drain-stuck is on. */
void server_request_refused(const char *rid);

#endif
