/* JSON, strictly: the only room that knows cJSON. A tree has one owner: json_free on its root frees all of it; nodes
 * and strings that getters hand out are borrowed from the tree. No tree may be used by two threads at once, and
 * json_parse may be called by one thread at a time only (cJSON keeps the place of its last error in a global). */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;

enum {
    JSON_DEPTH = 32,        /* objects and arrays within each other; enough for all that kldump writes */
    JSON_DEPTH_LIMIT = 1000 /* the most that json_parse takes as `limits.depth` */
};

/* The largest integer that travels as a number. Numbers are doubles in this tree: 2^53 could have been 2^53 + 1, so
 * from there on builders write decimal strings, and the integer getters take both forms. */
#define JSON_INTEGER_MAX UINT64_C(9007199254740991)

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* What a text may have at most. A value costs up to JSON_VALUE_BYTES beside its own bytes, and may be a single byte of
 * text: whoever reads what a stranger wrote limits their number. */
struct json_limits {
    size_t bytes, depth, values; /* values: objects, arrays, texts, numbers, words, each with all that are in it */
};
enum { JSON_VALUE_BYTES = 144 }; /* cJSON's node, its name's and its text's heap blocks */
#define JSON_ANY_VALUES SIZE_MAX /* for what one wrote oneself, and where the memory is nobody else's */

/* Reads one value that is the whole of `text`; only blanks may stand around it. Refused with ERROR_FORMAT and the byte
 * position: anything beyond RFC 8259 (leading zeros, NaN, comments, a byte-order mark, raw control characters), invalid
 * UTF-8, lone surrogates, \u0000, numbers that overflow or have more than 63 characters, a member that is there twice
 * (names are case-sensitive), more than `limits.depth` levels. More than `limits.bytes` or `limits.values`:
 * ERROR_TOO_LARGE, before memory is taken. */
enum error_code json_parse(const char *text, size_t length, struct json_limits limits, struct json **ret_json,
                           struct error *err);
/* The same without a tree: whether the grammar is right and the limits are kept. Any thread. */
enum error_code json_check(const char *text, size_t length, struct json_limits limits, struct error *err);
/* Bytes of memory that the tree takes, rather too many than too few. */
size_t json_memory(const struct json *json);
void json_free(struct json *json); /* also of NULL */
struct json *json_copy(const struct json *json);

/* Looking around. `json` may be NULL everywhere here and counts as JSON_NULL. */
enum json_type json_type(const struct json *json);
size_t json_count(const struct json *json);              /* members or elements; 0 for anything else */
const struct json *json_first(const struct json *json);  /* NULL when there is none */
const struct json *json_next(const struct json *member); /* NULL after the last */
const char *json_key(const struct json *member);         /* NULL for an element of an array */
/* The member whose name is exactly `key` (it may contain dots), or NULL. */
const struct json *json_member(const struct json *object, const char *key);

/* A path names members with dots between, and elements of arrays by number: "run.space.free_bytes", "states.0.step"; ""
 * is the value itself. NULL when it leads nowhere. */
const struct json *json_find(const struct json *json, const char *path);

/* Typed getters: ERROR_FORMAT names the path, what is there and what is expected. null counts as missing. */
enum error_code json_get_string(const struct json *json, const char *path, const char **ret_text, struct error *err);
enum error_code json_get_u64(const struct json *json, const char *path, uint64_t *ret_value, struct error *err);
enum error_code json_get_i64(const struct json *json, const char *path, int64_t *ret_value, struct error *err);
enum error_code json_get_double(const struct json *json, const char *path, double *ret_value, struct error *err);
enum error_code json_get_bool(const struct json *json, const char *path, bool *ret_value, struct error *err);
enum error_code json_get_array(const struct json *json, const char *path, const struct json **ret_array,
                               struct error *err);
enum error_code json_get_object(const struct json *json, const char *path, const struct json **ret_object,
                                struct error *err);
/* Adds the strings of an array to `ret_list` (nothing on failure). */
enum error_code json_get_list(const struct json *json, const char *path, struct list *ret_list, struct error *err);

/* The same where the member may be missing or null: `fallback` then; a value of another type is still ERROR_FORMAT. */
enum error_code json_optional_string(const struct json *json, const char *path, const char *fallback,
                                     const char **ret_text, struct error *err);
enum error_code json_optional_u64(const struct json *json, const char *path, uint64_t fallback, uint64_t *ret_value,
                                  struct error *err);
enum error_code json_optional_i64(const struct json *json, const char *path, int64_t fallback, int64_t *ret_value,
                                  struct error *err);
enum error_code json_optional_double(const struct json *json, const char *path, double fallback, double *ret_value,
                                     struct error *err);
enum error_code json_optional_bool(const struct json *json, const char *path, bool fallback, bool *ret_value,
                                   struct error *err);
/* An empty list where it is missing. */
enum error_code json_optional_list(const struct json *json, const char *path, struct list *ret_list, struct error *err);

/* Builders. They do not fail. Setting a member that is there replaces it. Strings and keys that are not UTF-8 get
 * U+FFFD for each wrong byte. */
struct json *json_object(void);
struct json *json_array(void);
void json_set_string(struct json *object, const char *key, const char *text); /* text NULL: null */
void json_set_bytes(struct json *object, const char *key, const char *bytes,
                    size_t length); /* NUL bytes count as wrong ones */
void json_set_u64(struct json *object, const char *key, uint64_t value);
void json_set_known_u64(struct json *object, const char *key, bool known, uint64_t value); /* not known: null */
void json_set_i64(struct json *object, const char *key, int64_t value);
void json_set_double(struct json *object, const char *key, double value); /* not finite: null */
void json_set_bool(struct json *object, const char *key, bool value);
void json_set_null(struct json *object, const char *key);
void json_set_texts(struct json *object, const char *key, char *const *texts);     /* NULL-terminated, or NULL: none */
void json_set_list(struct json *object, const char *key, const struct list *list); /* array of strings */
void json_set_child(struct json *object, const char *key, struct json *child);     /* takes `child` over */
struct json *json_set_object(struct json *object, const char *key);                /* a new empty one; borrowed */
struct json *json_set_array(struct json *object, const char *key);                 /* likewise */
void json_append(struct json *array, struct json *child);                          /* takes `child` over */
struct json *json_append_object(struct json *array);                               /* a new empty one; borrowed */
void json_append_string(struct json *array, const char *text);
void json_append_u64(struct json *array, uint64_t value);
void json_append_double(struct json *array, double value); /* not finite: null */
/* Appends what json_print made of a value, which is printed as it stands: for an answer of many parts that is made in
 * several turns. To the getters it is null; `json_printed` is its text, NULL for any other value. */
void json_append_printed(struct json *array, const struct buffer *text);
const char *json_printed(const struct json *json);

/* Appends the value to `out`: on one line without a newline anywhere, or indented by two blanks and without a newline
 * at the end. Integers within JSON_INTEGER_MAX are printed as such, other numbers with the fewest digits that read back
 * to the same double. */
void json_print(const struct json *json, struct buffer *out);
void json_print_pretty(const struct json *json, struct buffer *out);
char *json_print_new(const struct json *json); /* on one line; the caller's */
