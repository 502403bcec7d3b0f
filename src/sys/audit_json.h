/* An audit and what is expected of it, as JSON: the agreement between `kldumpctl check --json [--expect FILE]` and the
 * guard that starts it. Owns nothing that it is given. As json.h: one thread at a time.
 *
 * Check: {"schema":"kldump.check/1","folder":..,"complete":bool,"reasons":[..],"ranks":N,"steps":N,"files":N,"bytes":N,
 *  "coverage":{"layers","layer_files","extend_passes","decode_passes","unknown_passes","extend_tokens","decode_tokens",
 *  "requests","foreign_requests"},"notes":[..],"modules":[{"name","files","bytes","extend_layers","decode_layers"},..],
 *  "usable_steps":[{"first":N,"last":N},..],"request_ids":[..],"foreign_request_ids":[..],
 *  "passes":[{"rank","step","phase","files","bytes","tokens","requests","layers","layer_files","has_request_ids",
 *  "foreign"},..]}
 * coverage.requests and .foreign_requests count the ids that are listed, tokens are those of one rank; usable_steps are
 * whole on every rank. usable_steps, notes and modules may be missing (seals of the first releases).
 * Expected: {"exact":true,"ranks":[{"index_from":N,"index_to":N,"step_from":N,"step_to":N},..],
 *  "own_request_ids":[..],"failed_saves":N}; the last two may be missing, members that are not known are passed over.
 */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "core/audit.h"

#include <stddef.h>

struct json;

enum {
    AUDIT_JSON_LIMIT = 256 * 1024 * 1024,         /* bytes of a check that are read: a million passes */
    AUDIT_JSON_EXPECTED_LIMIT = 64 * 1024 * 1024, /* bytes of an expectation */
    AUDIT_JSON_RANKS_MAX = 65536,
};

/* The whole object; the caller frees it (json_free). `folder` NULL: the member is null. */
struct json *audit_json_make(const struct audit *audit, const char *folder);

/* Fills `ret_audit` (initialised) from the text of a check. ERROR_FORMAT, ERROR_TOO_LARGE. */
enum error_code audit_json_read(const char *text, size_t length, struct audit *ret_audit, struct error *err);
/* The same from a tree, such as the member "check" of a seal. */
enum error_code audit_json_take(const struct json *check, struct audit *ret_audit, struct error *err);

/* Appends the expectation as one line without a newline. `known` is not told: who sends it knows. */
void audit_json_write_expected(const struct audit_expected *expected, struct buffer *out);

/* Fills `ret_expected` (zeroed; `known` becomes true; audit_expected_fini). ERROR_FORMAT, ERROR_TOO_LARGE. */
enum error_code audit_json_read_expected(const char *text, size_t length, struct audit_expected *ret_expected,
                                         struct error *err);
