/* generate.h: POST /generate: the checks before the scheduler, and the answer after it. */
#ifndef KLDUMP_STANDIN_GENERATE_H
#define KLDUMP_STANDIN_GENERATE_H

#include "http.h"

/* An http_handler. */
void generate_handle(const struct http_request *request, struct http_response *response);

/* One health probe through the scheduler, a pass when it is idle. */
void generate_probe(void);

#endif
