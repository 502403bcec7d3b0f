#include "json/json.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "json/json_scan.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A struct json is a cJSON item under another name; it is never defined. */
static const cJSON *item_of(const struct json *json)
{
    return (const cJSON *)json;
}

static cJSON *own_item(struct json *json)
{
    return (cJSON *)json;
}

static struct json *checked(cJSON *item)
{
    if (item == NULL) {
        fputs("kldump: out of memory\n", stderr);
        abort();
    }
    return (struct json *)item;
}

/* Reading */

static int compare_keys(const void *a, const void *b)
{
    const char *const *left = a, *const *right = b;
    return strcmp(*left, *right);
}

/* Keys are sorted, so that a hostile object of many members costs n log n. */
static enum error_code check_keys(const cJSON *object, struct error *err)
{
    size_t count = json_count((const struct json *)object), used = 0;
    if (count < 2)
        return ERROR_NONE;
    const char **keys = calloc(count, sizeof *keys);
    if (keys == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for an object of %zu members", count);
    for (const cJSON *member = object->child; member != NULL; member = member->next)
        keys[used++] = member->string;
    qsort(keys, count, sizeof *keys, compare_keys);
    enum error_code code = ERROR_NONE;
    for (size_t i = 1; i < count && code == ERROR_NONE; i++) {
        char shown[80];
        if (strcmp(keys[i - 1], keys[i]) == 0)
            code = error_set(err, ERROR_FORMAT, "JSON: member '%s' is there twice",
                             text_clean(keys[i], strlen(keys[i]), shown, sizeof shown));
    }
    free(keys);
    return code;
}

/* Recursion is bounded: the text was scanned for its depth. */
static enum error_code check_tree(const cJSON *item, struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
        return error_set(err, ERROR_FORMAT, "JSON: a number is too large for a double");
    if (cJSON_IsObject(item))
        code = check_keys(item, err);
    for (const cJSON *member = item->child; member != NULL && code == ERROR_NONE; member = member->next)
        code = check_tree(member, err);
    return code;
}

enum error_code json_check(const char *text, size_t length, struct json_limits limits, struct error *err)
{
    if (length > limits.bytes)
        return error_set(err, ERROR_TOO_LARGE, "JSON of %zu bytes; at most %zu are taken", length, limits.bytes);
    size_t depth = limits.depth < JSON_DEPTH_LIMIT ? limits.depth : (size_t)JSON_DEPTH_LIMIT;
    return json_scan(text, length, depth, limits.values, err);
}

enum error_code json_parse(const char *text, size_t length, struct json_limits limits, struct json **ret_json,
                           struct error *err)
{
    enum error_code code = json_check(text, length, limits, err);
    if (code != ERROR_NONE)
        return code;
    cJSON *root = cJSON_ParseWithLength(text, length);
    if (root == NULL) /* the grammar was right, so only memory can be missing */
        return error_set(err, ERROR_MEMORY, "out of memory for JSON of %zu bytes", length);
    code = check_tree(root, err);
    if (code != ERROR_NONE) {
        cJSON_Delete(root);
        return code;
    }
    *ret_json = (struct json *)root;
    return ERROR_NONE;
}

void json_free(struct json *json)
{
    cJSON_Delete(own_item(json));
}

struct json *json_copy(const struct json *json)
{
    return checked(cJSON_Duplicate(item_of(json), true));
}

size_t json_memory(const struct json *json)
{
    const cJSON *item = item_of(json);
    size_t bytes = item != NULL ? JSON_VALUE_BYTES : 0;
    if (item != NULL && item->string != NULL)
        bytes += strlen(item->string);
    if (item != NULL && item->valuestring != NULL)
        bytes += strlen(item->valuestring);
    for (const struct json *member = json_first(json); member != NULL; member = json_next(member))
        bytes += json_memory(member);
    return bytes;
}

/* Looking around */

enum json_type json_type(const struct json *json)
{
    static const struct {
        int mask;
        enum json_type type;
    } types[] = {{cJSON_False | cJSON_True, JSON_BOOL},
                 {cJSON_Number, JSON_NUMBER},
                 {cJSON_String, JSON_STRING},
                 {cJSON_Array, JSON_ARRAY},
                 {cJSON_Object, JSON_OBJECT}};
    for (size_t i = 0; json != NULL && i < sizeof types / sizeof types[0]; i++)
        if ((item_of(json)->type & types[i].mask) != 0)
            return types[i].type;
    return JSON_NULL;
}

const struct json *json_first(const struct json *json)
{
    return json != NULL ? (const struct json *)item_of(json)->child : NULL;
}

const struct json *json_next(const struct json *member)
{
    return (const struct json *)item_of(member)->next;
}

const char *json_key(const struct json *member)
{
    return item_of(member)->string;
}

size_t json_count(const struct json *json)
{
    size_t count = 0;
    for (const struct json *member = json_first(json); member != NULL; member = json_next(member))
        count++;
    return count;
}

static const struct json *find_member(const struct json *json, const char *key, size_t length)
{
    for (const struct json *member = json_first(json); member != NULL; member = json_next(member)) {
        const char *name = json_key(member);
        if (name != NULL && strncmp(name, key, length) == 0 && name[length] == '\0')
            return member;
    }
    return NULL;
}

const struct json *json_member(const struct json *object, const char *key)
{
    return json_type(object) == JSON_OBJECT ? find_member(object, key, strlen(key)) : NULL;
}

static const struct json *find_element(const struct json *array, const char *text, size_t length)
{
    uint64_t index = 0;
    if (length == 0 || number_scan(text, length, &index) != length)
        return NULL;
    const struct json *element = json_first(array);
    while (element != NULL && index-- > 0)
        element = json_next(element);
    return element;
}

const struct json *json_find(const struct json *json, const char *path)
{
    while (json != NULL && *path != '\0') {
        size_t length = strcspn(path, ".");
        enum json_type type = json_type(json);
        if (type == JSON_OBJECT)
            json = find_member(json, path, length);
        else
            json = type == JSON_ARRAY ? find_element(json, path, length) : NULL;
        path += length + (path[length] == '.' ? 1 : 0);
    }
    return json;
}

/* Getters */

static const char *const type_words[] = {
    [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
    [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",     [JSON_OBJECT] = "an object",
};

static enum error_code unexpected(const struct json *found, const char *path, const char *expected, struct error *err)
{
    const char *name = path[0] != '\0' ? path : "(the value itself)";
    if (json_type(found) == JSON_NULL)
        return error_set(err, ERROR_FORMAT, "JSON member %s is missing; expected %s", name, expected);
    return error_set(err, ERROR_FORMAT, "JSON member %s is %s; expected %s", name, type_words[json_type(found)],
                     expected);
}

static enum error_code get(const struct json *json, const char *path, enum json_type type,
                           const struct json **ret_found, struct error *err)
{
    const struct json *found = json_find(json, path);
    if (json_type(found) != type || type == JSON_NULL)
        return unexpected(found, path, type_words[type], err);
    *ret_found = found;
    return ERROR_NONE;
}

enum error_code json_get_string(const struct json *json, const char *path, const char **ret_text, struct error *err)
{
    const struct json *found = NULL;
    enum error_code code = get(json, path, JSON_STRING, &found, err);
    if (code == ERROR_NONE)
        *ret_text = item_of(found)->valuestring;
    return code;
}

static enum error_code get_integer(const struct json *json, const char *path, bool *ret_negative,
                                   uint64_t *ret_magnitude, struct error *err)
{
    static const char expected[] = "an integer (beyond 9007199254740991 as a string)";
    const struct json *found = json_find(json, path);
    if (json_type(found) == JSON_STRING) {
        const char *text = item_of(found)->valuestring;
        bool negative = text[0] == '-';
        if (number_parse("integer", text + (negative ? 1 : 0), UINT64_MAX, ret_magnitude, NULL) != ERROR_NONE)
            return unexpected(found, path, expected, err);
        *ret_negative = negative;
        return ERROR_NONE;
    }
    if (json_type(found) != JSON_NUMBER)
        return unexpected(found, path, expected, err);
    double value = item_of(found)->valuedouble, size = fabs(value);
    if (size > (double)JSON_INTEGER_MAX || floor(size) != size)
        return error_set(err, ERROR_FORMAT, "JSON member %s is %.17g; expected %s", path, value, expected);
    *ret_negative = value < 0;
    *ret_magnitude = (uint64_t)size;
    return ERROR_NONE;
}

enum error_code json_get_u64(const struct json *json, const char *path, uint64_t *ret_value, struct error *err)
{
    bool negative = false;
    uint64_t magnitude = 0;
    enum error_code code = get_integer(json, path, &negative, &magnitude, err);
    if (code != ERROR_NONE)
        return code;
    if (negative)
        return error_set(err, ERROR_FORMAT, "JSON member %s is negative; expected 0 or more", path);
    *ret_value = magnitude;
    return ERROR_NONE;
}

enum error_code json_get_i64(const struct json *json, const char *path, int64_t *ret_value, struct error *err)
{
    bool negative = false;
    uint64_t magnitude = 0;
    enum error_code code = get_integer(json, path, &negative, &magnitude, err);
    if (code != ERROR_NONE)
        return code;
    if (magnitude > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return error_set(err, ERROR_FORMAT, "JSON member %s does not fit into 64 bits with a sign", path);
    *ret_value = negative ? (int64_t)(UINT64_C(0) - magnitude) : (int64_t)magnitude;
    return ERROR_NONE;
}

enum error_code json_get_double(const struct json *json, const char *path, double *ret_value, struct error *err)
{
    const struct json *found = NULL;
    enum error_code code = get(json, path, JSON_NUMBER, &found, err);
    if (code == ERROR_NONE)
        *ret_value = item_of(found)->valuedouble;
    return code;
}

enum error_code json_get_bool(const struct json *json, const char *path, bool *ret_value, struct error *err)
{
    const struct json *found = NULL;
    enum error_code code = get(json, path, JSON_BOOL, &found, err);
    if (code == ERROR_NONE)
        *ret_value = cJSON_IsTrue(item_of(found)) != 0;
    return code;
}

enum error_code json_get_array(const struct json *json, const char *path, const struct json **ret_array,
                               struct error *err)
{
    return get(json, path, JSON_ARRAY, ret_array, err);
}

enum error_code json_get_object(const struct json *json, const char *path, const struct json **ret_object,
                                struct error *err)
{
    return get(json, path, JSON_OBJECT, ret_object, err);
}

enum error_code json_get_list(const struct json *json, const char *path, struct list *ret_list, struct error *err)
{
    const struct json *array = NULL;
    enum error_code code = json_get_array(json, path, &array, err);
    if (code != ERROR_NONE)
        return code;
    for (const struct json *element = json_first(array); element != NULL; element = json_next(element))
        if (json_type(element) != JSON_STRING)
            return unexpected(element, path, "strings only", err);
    for (const struct json *element = json_first(array); element != NULL; element = json_next(element))
        list_add(ret_list, item_of(element)->valuestring);
    return ERROR_NONE;
}

/* One body for all: the member is missing or null, or it is got as usual. */
#define OPTIONAL(getter)                                   \
    do {                                                   \
        if (json_type(json_find(json, path)) != JSON_NULL) \
            return getter(json, path, ret_value, err);     \
        *ret_value = fallback;                             \
        return ERROR_NONE;                                 \
    } while (0)

enum error_code json_optional_string(const struct json *json, const char *path, const char *fallback,
                                     const char **ret_value, struct error *err)
{
    OPTIONAL(json_get_string);
}

enum error_code json_optional_u64(const struct json *json, const char *path, uint64_t fallback, uint64_t *ret_value,
                                  struct error *err)
{
    OPTIONAL(json_get_u64);
}

enum error_code json_optional_i64(const struct json *json, const char *path, int64_t fallback, int64_t *ret_value,
                                  struct error *err)
{
    OPTIONAL(json_get_i64);
}

enum error_code json_optional_double(const struct json *json, const char *path, double fallback, double *ret_value,
                                     struct error *err)
{
    OPTIONAL(json_get_double);
}

enum error_code json_optional_bool(const struct json *json, const char *path, bool fallback, bool *ret_value,
                                   struct error *err)
{
    OPTIONAL(json_get_bool);
}

enum error_code json_optional_list(const struct json *json, const char *path, struct list *ret_list, struct error *err)
{
    if (json_type(json_find(json, path)) == JSON_NULL)
        return ERROR_NONE;
    return json_get_list(json, path, ret_list, err);
}

/* Builders */

/* A copy in which each byte that is no UTF-8, and each NUL, has become U+FFFD. */
static char *clean_copy(const char *bytes, size_t length)
{
    struct buffer out;
    if (memchr(bytes, '\0', length) == NULL && text_is_utf8(bytes, length))
        return memory_copy_n(bytes, length);
    buffer_init(&out);
    for (size_t i = 0; i < length;) {
        size_t n = 1, left = length - i;
        while (n <= 4 && n <= left && !text_is_utf8(bytes + i, n))
            n++;
        if (bytes[i] == '\0' || n > 4 || n > left) {
            buffer_text(&out, "\xef\xbf\xbd");
            i++;
        } else {
            buffer_append(&out, bytes + i, n);
            i += n;
        }
    }
    char *text = buffer_steal(&out);
    buffer_fini(&out);
    return text;
}

static struct json *new_string(const char *bytes, size_t length)
{
    char *text = clean_copy(bytes, length);
    struct json *json = checked(cJSON_CreateString(text));
    free(text);
    return json;
}

static struct json *new_integer(bool negative, uint64_t magnitude)
{
    char text[32];
    if (magnitude <= JSON_INTEGER_MAX)
        return checked(cJSON_CreateNumber(negative ? -(double)magnitude : (double)magnitude));
    snprintf(text, sizeof text, "%s%llu", negative ? "-" : "", (unsigned long long)magnitude);
    return checked(cJSON_CreateString(text));
}

struct json *json_object(void)
{
    return checked(cJSON_CreateObject());
}

struct json *json_array(void)
{
    return checked(cJSON_CreateArray());
}

void json_set_child(struct json *object, const char *key, struct json *child)
{
    char *name = clean_copy(key, strlen(key));
    cJSON_DeleteItemFromObjectCaseSensitive(own_item(object), name);
    if (!cJSON_AddItemToObject(own_item(object), name, own_item(child)))
        (void)checked(NULL);
    free(name);
}

void json_set_bytes(struct json *object, const char *key, const char *bytes, size_t length)
{
    json_set_child(object, key, new_string(bytes, length));
}

void json_set_string(struct json *object, const char *key, const char *text)
{
    if (text == NULL)
        json_set_null(object, key);
    else
        json_set_bytes(object, key, text, strlen(text));
}

void json_set_u64(struct json *object, const char *key, uint64_t value)
{
    json_set_child(object, key, new_integer(false, value));
}

void json_set_known_u64(struct json *object, const char *key, bool known, uint64_t value)
{
    if (known)
        json_set_u64(object, key, value);
    else
        json_set_null(object, key);
}

void json_set_i64(struct json *object, const char *key, int64_t value)
{
    uint64_t magnitude = value < 0 ? UINT64_C(0) - (uint64_t)value : (uint64_t)value;
    json_set_child(object, key, new_integer(value < 0, magnitude));
}

void json_set_double(struct json *object, const char *key, double value)
{
    if (isfinite(value))
        json_set_child(object, key, checked(cJSON_CreateNumber(value)));
    else
        json_set_null(object, key);
}

void json_set_bool(struct json *object, const char *key, bool value)
{
    json_set_child(object, key, checked(cJSON_CreateBool(value)));
}

void json_set_null(struct json *object, const char *key)
{
    json_set_child(object, key, checked(cJSON_CreateNull()));
}

void json_set_texts(struct json *object, const char *key, char *const *texts)
{
    struct json *array = json_set_array(object, key);
    for (; texts != NULL && *texts != NULL; texts++)
        json_append_string(array, *texts);
}

void json_set_list(struct json *object, const char *key, const struct list *list)
{
    struct json *array = json_set_array(object, key);
    for (size_t i = 0; i < list->count; i++)
        json_append_string(array, list->items[i]);
}

struct json *json_set_object(struct json *object, const char *key)
{
    struct json *child = json_object();
    json_set_child(object, key, child);
    return child;
}

struct json *json_set_array(struct json *object, const char *key)
{
    struct json *child = json_array();
    json_set_child(object, key, child);
    return child;
}

void json_append(struct json *array, struct json *child)
{
    if (!cJSON_AddItemToArray(own_item(array), own_item(child)))
        (void)checked(NULL);
}

struct json *json_append_object(struct json *array)
{
    struct json *child = json_object();
    json_append(array, child);
    return child;
}

void json_append_string(struct json *array, const char *text)
{
    json_append(array, new_string(text, strlen(text)));
}

void json_append_u64(struct json *array, uint64_t value)
{
    json_append(array, new_integer(false, value));
}

void json_append_double(struct json *array, double value)
{
    json_append(array, checked(isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull()));
}

void json_append_printed(struct json *array, const struct buffer *text)
{
    json_append(array, checked(cJSON_CreateRaw(text->data)));
}

const char *json_printed(const struct json *json)
{
    return cJSON_IsRaw(item_of(json)) ? item_of(json)->valuestring : NULL;
}
