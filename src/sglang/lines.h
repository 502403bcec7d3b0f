/* What a line of the server's log means, and how its end reads. Texts of SGLang 0.5.10 to 0.5.23. Pure; any thread. */
#pragma once

#include "core/server.h"

#include <stddef.h>

/* As `read_line` and `explain_exit` of struct server_operations. No text that is returned holds an argument's value: a
 * line may carry keys. */
void lines_read(const char *line, size_t length, struct server_line *ret_line);
void lines_explain_exit(int exit_code, int signal, const char *cause, char *ret_text, size_t size);
