/* A result as JSON in a file: written, and read again by another command. One thread. */
#pragma once

#include "base/error.h"
#include "json/json.h"

#include <stdbool.h>
#include <sys/types.h>

/* Whether `path` is a regular file, or a link to one. */
bool result_file_is(const char *path);

/* Reads the object in `path`, which must have a "schema" that begins with `schema` ("kldump.kl/"; "kldump.": any of
 * ours). The caller owns *ret_json. ERROR_USAGE where it is no such file, with what was found and what is expected;
 * else as file_read. */
enum error_code result_file_read(const char *path, const char *schema, struct json **ret_json, struct error *err);

/* Whether a file could be written there, before a measurement that nobody wants to lose for it: the folder is there and
 * takes files, `path` is none itself. ERROR_BAD_VALUE. The disk may be full all the same. */
enum error_code result_file_foresee(const char *path, struct error *err);

/* Writes the object on a line of its own, whole or not at all. As file_replace. */
enum error_code result_file_write(const char *path, const struct json *json, mode_t mode, struct error *err);
