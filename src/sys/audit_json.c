#include "sys/audit_json.h"
#include "base/memory.h"
#include "json/json.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "kldump.check/1"

/* Members of a pass that are numbers, in the order in which they are printed after rank, step and phase. */
enum width { WIDTH_32, WIDTH_64 };
static const struct {
    const char *name;
    size_t offset;
    enum width width;
} numbers[] = {
#define MEMBER(name, width)                             \
    {                                                   \
#name, offsetof(struct audit_pass, name), width \
    }
    MEMBER(rank, WIDTH_32),   MEMBER(step, WIDTH_64),        MEMBER(files, WIDTH_64),
    MEMBER(bytes, WIDTH_64),  MEMBER(tokens, WIDTH_64),      MEMBER(requests, WIDTH_64),
    MEMBER(layers, WIDTH_32), MEMBER(layer_files, WIDTH_64), MEMBER(foreign, WIDTH_32),
#undef MEMBER
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

/* ---- writing ---- */

static void write_pass(struct json *passes, const struct audit_pass *pass)
{
    struct json *object = json_append_object(passes);
    for (size_t i = 0; i < NUMBERS; i++) {
        const void *at = (const char *)pass + numbers[i].offset;
        json_set_u64(object, numbers[i].name,
                     numbers[i].width == WIDTH_32 ? *(const uint32_t *)at : *(const uint64_t *)at);
        if (strcmp(numbers[i].name, "step") == 0)
            json_set_string(object, "phase", audit_phase_name(pass->phase));
    }
    json_set_bool(object, "has_request_ids", pass->has_request_ids);
}

static void write_coverage(struct json *object, const struct audit *audit)
{
    uint64_t passes[3] = {0}, tokens[3] = {0}, layer_files = 0;
    for (size_t i = 0; i < audit->pass_count; i++) {
        const struct audit_pass *pass = &audit->passes[i];
        passes[pass->phase]++;
        layer_files += pass->layer_files;
        /* The ranks see the same tokens: those of the first count. */
        if (pass->rank == audit->passes[0].rank)
            tokens[pass->phase] += pass->tokens;
    }
    json_set_u64(object, "layers", audit->layers);
    json_set_u64(object, "layer_files", layer_files);
    json_set_u64(object, "extend_passes", passes[AUDIT_EXTEND]);
    json_set_u64(object, "decode_passes", passes[AUDIT_DECODE]);
    json_set_u64(object, "unknown_passes", passes[AUDIT_UNKNOWN]);
    json_set_u64(object, "extend_tokens", tokens[AUDIT_EXTEND]);
    json_set_u64(object, "decode_tokens", tokens[AUDIT_DECODE]);
    json_set_u64(object, "requests", audit->request_ids.count);
    json_set_u64(object, "foreign_requests", audit->foreign_request_ids.count);
}

static void write_modules(struct json *modules, const struct audit *audit)
{
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct audit_module *module = &audit->modules[i];
        struct json *object = json_append_object(modules);
        json_set_string(object, "name", module->name);
        json_set_u64(object, "files", module->files);
        json_set_u64(object, "bytes", module->bytes);
        json_set_u64(object, "extend_layers", module->extend_layers);
        json_set_u64(object, "decode_layers", module->decode_layers);
    }
}

struct json *audit_json_make(const struct audit *audit, const char *folder)
{
    struct json *object = json_object();
    json_set_string(object, "schema", SCHEMA);
    json_set_string(object, "folder", folder);
    json_set_bool(object, "complete", audit->complete);
    json_set_list(object, "reasons", &audit->reasons);
    json_set_u64(object, "ranks", audit->ranks);
    json_set_u64(object, "steps", audit->steps);
    json_set_u64(object, "files", audit->files);
    json_set_u64(object, "bytes", audit->bytes);
    write_coverage(json_set_object(object, "coverage"), audit);
    json_set_list(object, "notes", &audit->notes);
    write_modules(json_set_array(object, "modules"), audit);
    struct json *usable = json_set_array(object, "usable_steps");
    for (size_t i = 0; i < audit->usable_count; i++) {
        struct json *steps = json_append_object(usable);
        json_set_u64(steps, "first", audit->usable[i].first);
        json_set_u64(steps, "last", audit->usable[i].last);
    }
    json_set_list(object, "request_ids", &audit->request_ids);
    json_set_list(object, "foreign_request_ids", &audit->foreign_request_ids);
    struct json *passes = json_set_array(object, "passes");
    for (size_t i = 0; i < audit->pass_count; i++)
        write_pass(passes, &audit->passes[i]);
    return object;
}

void audit_json_write_expected(const struct audit_expected *expected, struct buffer *out)
{
    struct json *object = json_object();
    json_set_bool(object, "exact", expected->exact);
    struct json *ranks = json_set_array(object, "ranks");
    for (size_t i = 0; i < expected->rank_count; i++) {
        struct json *rank = json_append_object(ranks);
        json_set_u64(rank, "index_from", expected->ranks[i].index_from);
        json_set_u64(rank, "index_to", expected->ranks[i].index_to);
        json_set_u64(rank, "step_from", expected->ranks[i].step_from);
        json_set_u64(rank, "step_to", expected->ranks[i].step_to);
    }
    json_set_list(object, "own_request_ids", &expected->own_request_ids);
    json_set_u64(object, "failed_saves", expected->failed_saves);
    json_print(object, out);
    json_free(object);
}

/* ---- reading ---- */

static enum error_code get_u32(const struct json *object, const char *name, uint32_t *ret_value, struct error *err)
{
    uint64_t value;
    enum error_code code = json_get_u64(object, name, &value, err);
    if (code == ERROR_NONE && value > UINT32_MAX)
        code = error_set(err, ERROR_FORMAT, "%s is beyond 32 bits", name);
    if (code == ERROR_NONE)
        *ret_value = (uint32_t)value;
    return code;
}

static enum error_code read_pass(const struct json *object, struct audit_pass *pass, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; code == ERROR_NONE && i < NUMBERS; i++) {
        void *at = (char *)pass + numbers[i].offset;
        code = numbers[i].width == WIDTH_32 ? get_u32(object, numbers[i].name, at, err)
                                            : json_get_u64(object, numbers[i].name, at, err);
    }
    const char *phase;
    if (code == ERROR_NONE)
        code = json_get_string(object, "phase", &phase, err);
    if (code == ERROR_NONE)
        code = json_get_bool(object, "has_request_ids", &pass->has_request_ids, err);
    if (code == ERROR_NONE)
        pass->phase = audit_phase_from_name(phase);
    return code;
}

static enum error_code read_usable(const struct json *check, struct audit *audit, struct error *err)
{
    const struct json *usable = json_member(check, "usable_steps");
    if (usable == NULL)
        return ERROR_NONE;
    for (const struct json *item = json_first(usable); item != NULL; item = json_next(item)) {
        uint64_t first, last;
        enum error_code code = json_get_u64(item, "first", &first, err);
        if (code == ERROR_NONE)
            code = json_get_u64(item, "last", &last, err);
        if (code != ERROR_NONE)
            return error_prefix(err, "usable_steps"), code;
        audit_add_usable(audit, first);
        audit->usable[audit->usable_count - 1].last = last;
    }
    return ERROR_NONE;
}

static enum error_code read_modules(const struct json *check, struct audit *audit, struct error *err)
{
    const struct json *modules = json_member(check, "modules");
    if (modules == NULL)
        return ERROR_NONE;
    for (const struct json *item = json_first(modules); item != NULL; item = json_next(item)) {
        struct audit_module *module = audit_add_module(audit);
        const char *name;
        enum error_code code = json_get_string(item, "name", &name, err);
        if (code == ERROR_NONE)
            module->name = memory_copy(name);
        if (code == ERROR_NONE)
            code = json_get_u64(item, "files", &module->files, err);
        if (code == ERROR_NONE)
            code = json_get_u64(item, "bytes", &module->bytes, err);
        if (code == ERROR_NONE)
            code = get_u32(item, "extend_layers", &module->extend_layers, err);
        if (code == ERROR_NONE)
            code = get_u32(item, "decode_layers", &module->decode_layers, err);
        if (code != ERROR_NONE)
            return error_prefix(err, "modules"), code;
    }
    return ERROR_NONE;
}

static enum error_code read_all(const struct json *check, struct audit *audit, struct error *err)
{
    const char *schema;
    enum error_code code = json_get_string(check, "schema", &schema, err);
    if (code == ERROR_NONE && strcmp(schema, SCHEMA) != 0)
        code = error_set(err, ERROR_FORMAT, "schema is '%.40s'; this kldump reads " SCHEMA, schema);
    uint64_t *const totals[] = {&audit->ranks, &audit->steps, &audit->files, &audit->bytes};
    static const char *const total_names[] = {"ranks", "steps", "files", "bytes"};
    for (size_t i = 0; code == ERROR_NONE && i < 4; i++)
        code = json_get_u64(check, total_names[i], totals[i], err);
    struct list *const lists[] = {&audit->reasons, &audit->request_ids, &audit->foreign_request_ids};
    static const char *const list_names[] = {"reasons", "request_ids", "foreign_request_ids"};
    for (size_t i = 0; code == ERROR_NONE && i < 3; i++)
        code = json_get_list(check, list_names[i], lists[i], err);
    const struct json *coverage, *passes = NULL;
    if (code == ERROR_NONE)
        code = read_usable(check, audit, err);
    if (code == ERROR_NONE)
        code = json_optional_list(check, "notes", &audit->notes, err);
    if (code == ERROR_NONE)
        code = read_modules(check, audit, err);
    if (code == ERROR_NONE)
        code = json_get_bool(check, "complete", &audit->complete, err);
    if (code == ERROR_NONE)
        code = json_get_object(check, "coverage", &coverage, err);
    if (code == ERROR_NONE)
        code = get_u32(coverage, "layers", &audit->layers, err);
    if (code == ERROR_NONE)
        code = json_get_array(check, "passes", &passes, err);
    size_t number = 0;
    for (const struct json *pass = json_first(passes); code == ERROR_NONE && pass != NULL; pass = json_next(pass)) {
        code = read_pass(pass, audit_add_pass(audit), err);
        if (code != ERROR_NONE)
            error_prefix(err, "pass number %zu", number);
        number++;
    }
    return code;
}

enum error_code audit_json_take(const struct json *check, struct audit *ret_audit, struct error *err)
{
    struct audit audit;
    audit_init(&audit);
    enum error_code code = read_all(check, &audit, err);
    if (code != ERROR_NONE) {
        audit_fini(&audit);
        return code;
    }
    audit_fini(ret_audit);
    *ret_audit = audit;
    return ERROR_NONE;
}

enum error_code audit_json_read(const char *text, size_t length, struct audit *ret_audit, struct error *err)
{
    struct json *check;
    enum error_code code =
        json_parse(text, length, (struct json_limits){AUDIT_JSON_LIMIT, JSON_DEPTH, JSON_ANY_VALUES}, &check, err);
    if (code != ERROR_NONE)
        return code;
    code = audit_json_take(check, ret_audit, err);
    json_free(check);
    return code;
}

static enum error_code read_ranks(const struct json *ranks, struct audit_expected *expected, struct error *err)
{
    size_t count = json_count(ranks);
    if (count > AUDIT_JSON_RANKS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "%zu ranks; at most %d are taken", count, AUDIT_JSON_RANKS_MAX);
    expected->ranks = memory_new((count + 1) * sizeof *expected->ranks);
    for (const struct json *rank = json_first(ranks); rank != NULL; rank = json_next(rank)) {
        struct audit_expected_rank *into = &expected->ranks[expected->rank_count];
        uint64_t *const members[] = {&into->index_from, &into->index_to, &into->step_from, &into->step_to};
        static const char *const names[] = {"index_from", "index_to", "step_from", "step_to"};
        for (size_t i = 0; i < 4; i++) {
            enum error_code code = json_get_u64(rank, names[i], members[i], err);
            if (code == ERROR_NONE && *members[i] > JSON_INTEGER_MAX)
                code = error_set(err, ERROR_FORMAT, "%s is beyond 2^53", names[i]);
            if (code != ERROR_NONE)
                return error_prefix(err, "rank %zu", expected->rank_count), code;
        }
        expected->rank_count++;
    }
    return ERROR_NONE;
}

enum error_code audit_json_read_expected(const char *text, size_t length, struct audit_expected *ret_expected,
                                         struct error *err)
{
    struct json *object;
    struct audit_expected expected = {.known = true};
    const struct json *ranks;
    enum error_code code = json_parse(
        text, length, (struct json_limits){AUDIT_JSON_EXPECTED_LIMIT, JSON_DEPTH, JSON_ANY_VALUES}, &object, err);
    if (code != ERROR_NONE)
        return code;
    code = json_get_bool(object, "exact", &expected.exact, err);
    if (code == ERROR_NONE)
        code = json_get_array(object, "ranks", &ranks, err);
    if (code == ERROR_NONE)
        code = read_ranks(ranks, &expected, err);
    if (code == ERROR_NONE)
        code = json_optional_list(object, "own_request_ids", &expected.own_request_ids, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(object, "failed_saves", 0, &expected.failed_saves, err);
    json_free(object);
    if (code != ERROR_NONE) {
        audit_expected_fini(&expected);
        return code;
    }
    audit_expected_fini(ret_expected);
    *ret_expected = expected;
    return ERROR_NONE;
}
