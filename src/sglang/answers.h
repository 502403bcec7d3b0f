/* What the server's answers mean. Everything is read strictly: a 200 with a body of another form is a failure with the
 * form in words. Pure; any thread (but see json.h: one at a time). */
#pragma once

#include "core/server.h"

#include <stddef.h>

/* The variable that sets what `said` begins with, and the rest of it: "dir is 7" gives "DUMPER_DIR is 7". */
void answers_name_variable(const char *said, char *ret_text, size_t size);

struct json;

/* What a body says that is an error, in any of the server's forms; borrowed from it. NULL: it is none. */
const char *answers_error_text(const struct json *body);

/* As `read` of struct server_operations. */
void answers_read(enum server_question question, int http_status, const char *body, size_t length,
                  const char *transport_problem, struct server_answer *ret_answer);
