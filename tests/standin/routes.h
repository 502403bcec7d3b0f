/* routes.h: the table of HTTP routes, with authentication. */
#ifndef KLDUMP_STANDIN_ROUTES_H
#define KLDUMP_STANDIN_ROUTES_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "http.h"

/* An http_handler. */
void routes_handle(const struct http_request *request, struct http_response *response);

/* Sets the answer to a JSON text; deletes `json`. */
void routes_json(struct http_response *response, int status, cJSON *json);

/*
 * Reads DUMPER_SERVER_PORT (the route /dumper exists only for `reuse`) and SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION.
 * False: the latter has a value that the real server refuses; said on standard error.
 */
bool routes_init(void);

#endif
