/* A result that another command has written as JSON, read again. One thread. */
#pragma once

#include "base/error.h"
#include "json/json.h"

#include <stdbool.h>

/* Whether `path` is a regular file, or a link to one. */
bool result_file_is(const char *path);

/* Reads the object in `path`, which must have a "schema" that begins with `schema` ("kldump.kl/"; "kldump.": any of
 * ours). The caller owns *ret_json. ERROR_USAGE where it is no such file, with what was found and what is expected;
 * else as file_read. */
enum error_code result_file_read(const char *path, const char *schema, struct json **ret_json, struct error *err);
