/* bad_answer.h: the fault `bad-answer`: routes that answer what no client can use. */
#ifndef KLDUMP_STANDIN_BAD_ANSWER_H
#define KLDUMP_STANDIN_BAD_ANSWER_H

#include <stdbool.h>

#include "http.h"

/* True when the fault is due for this request: then it is the answer. `up`: the server is ready; before that only
 * /health has the fault, so that the server's own warm-up passes. */
bool bad_answer_give(const struct http_request *request, bool up, struct http_response *response);

/* Dumping was switched on or off: for KIND:PATH:dumping. KIND:PATH:logprobs is for requests that ask for logprobs. */
void bad_answer_dumping(bool on);

#endif
