#include "sglang/dump_name.h"
#include "base/number.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>

#define SEPARATOR "___"
#define HOOK      "non_intrusive__"
#define ENDING    ".pt"

enum { SEPARATOR_LENGTH = 3, ENDING_LENGTH = 3 };

static const struct {
    const char *name;
    enum dump_name_core core;
} core_names[] = {
    {"input_ids", DUMP_NAME_INPUT_IDS},
    {"positions", DUMP_NAME_POSITIONS},
    {"seq_lens", DUMP_NAME_SEQ_LENS},
    {"req_pool_indices", DUMP_NAME_REQ_POOL_INDICES},
    {"rids", DUMP_NAME_RIDS},
    {"position_ids", DUMP_NAME_OTHER_CORE},
    {"cu_seqlens_q", DUMP_NAME_OTHER_CORE},
    {"cu_seqlens_kv", DUMP_NAME_OTHER_CORE},
    {"qkv_format", DUMP_NAME_OTHER_CORE},
};

static bool equals(struct dump_name_text text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.at, word, text.length) == 0;
}

/* A number as the dumper prints it: no leading zero. */
static bool canonical_number(struct dump_name_text text, uint64_t most, uint64_t *ret_value)
{
    uint64_t value;
    if (text.length == 0 || (text.length > 1 && text.at[0] == '0') ||
        number_scan(text.at, text.length, &value) != text.length || value > most)
        return false;
    *ret_value = value;
    return true;
}

/* The first `___` of the text, or its end. Where more than three '_' stand together the last three separate: a name may
 * end in '_', a tag never begins with one. */
static size_t find_separator(struct dump_name_text text)
{
    for (size_t i = 0; i + SEPARATOR_LENGTH <= text.length; i++)
        if (memcmp(text.at + i, SEPARATOR, SEPARATOR_LENGTH) == 0 &&
            (i + SEPARATOR_LENGTH == text.length || text.at[i + SEPARATOR_LENGTH] != '_'))
            return i;
    return text.length;
}

/* Cuts "tag=VALUE" off the front of `rest` and the separator behind it. */
static bool take_tag(struct dump_name_text *rest, const char *tag, struct dump_name_text *ret_value)
{
    size_t length = strlen(tag), end = find_separator(*rest);
    if (end <= length || memcmp(rest->at, tag, length) != 0 || rest->at[length] != '=')
        return false;
    *ret_value = (struct dump_name_text){rest->at + length + 1, end - length - 1};
    size_t used = end < rest->length ? end + SEPARATOR_LENGTH : end;
    *rest = (struct dump_name_text){rest->at + used, rest->length - used};
    return true;
}

/* The component of a dotted path that ends before `end`; its beginning. */
static size_t component_start(struct dump_name_text path, size_t end)
{
    while (end > 0 && path.at[end - 1] != '.')
        end--;
    return end;
}

/* Splits PATH into module, slot, argument and item, from the right: a module may itself be called "output". */
static void parse_slot(struct dump_name_text path, struct dump_name *name)
{
    struct dump_name_text tail[2] = {{path.at, 0}, {path.at, 0}};
    size_t end = path.length;
    for (int depth = 0; depth <= 2; depth++) {
        size_t start = component_start(path, end);
        struct dump_name_text part = {path.at + start, end - start};
        bool input = equals(part, "inputs") && depth >= 1;
        if (input || (equals(part, "output") && depth <= 1)) {
            uint64_t ignored;
            name->argument = input ? tail[depth - 1] : (struct dump_name_text){path.at, 0};
            name->item = input ? (depth == 2 ? tail[0] : (struct dump_name_text){path.at, 0}) : tail[0];
            name->slot = !input                                                   ? DUMP_NAME_OUTPUT
                         : canonical_number(name->argument, UINT32_MAX, &ignored) ? DUMP_NAME_INPUT
                                                                                  : DUMP_NAME_INPUT_KEYWORD;
            name->module = (struct dump_name_text){path.at, start > 0 ? start - 1 : 0};
            return;
        }
        if (start == 0 || depth == 2)
            return;
        tail[depth] = part;
        end = start - 1;
    }
}

/* "layers.L" anywhere in the module path; the innermost counts. */
static void parse_layer(struct dump_name *name)
{
    struct dump_name_text path = name->module, after = {path.at, 0};
    for (size_t end = path.length; end > 0;) {
        size_t start = component_start(path, end);
        struct dump_name_text part = {path.at + start, end - start};
        uint64_t layer;
        if (equals(part, "layers") && canonical_number(after, DUMP_NAME_LAYER_MAX, &layer)) {
            name->has_layer = true;
            name->layer = (uint32_t)layer;
            return;
        }
        after = part;
        end = start > 0 ? start - 1 : 0;
    }
}

static void parse_name(struct dump_name *name)
{
    size_t hook = strlen(HOOK);
    name->module = name->argument = name->item = (struct dump_name_text){name->name.at, 0};
    if (name->name.length > hook && memcmp(name->name.at, HOOK, hook) == 0) {
        name->hook = true;
        parse_slot((struct dump_name_text){name->name.at + hook, name->name.length - hook}, name);
        parse_layer(name);
        name->word = equals(name->item, "__msg_type__"); /* SGLang 0.5.23 with --pp-size 2, live */
        return;
    }
    for (size_t i = 0; i < sizeof core_names / sizeof core_names[0]; i++)
        if (equals(name->name, core_names[i].name))
            name->core = core_names[i].core;
}

bool dump_name_is_candidate(const char *file_name)
{
    return text_ends(file_name, ENDING);
}

enum error_code dump_name_parse(const char *file_name, struct dump_name *ret_name, struct error *err)
{
    struct dump_name name = {0};
    const struct {
        const char *tag;
        uint64_t most;
    } forms[] = {{"step", INT64_MAX}, {"rank", UINT32_MAX}, {"dump_index", INT64_MAX}};
    uint64_t values[3];
    if (!dump_name_is_candidate(file_name))
        return error_set(err, ERROR_FORMAT, "does not end in " ENDING);
    struct dump_name_text value, rest = {file_name, strlen(file_name) - ENDING_LENGTH};
    for (size_t i = 0; i < 3; i++) {
        if (!take_tag(&rest, forms[i].tag, &value))
            return error_set(err, ERROR_FORMAT, "no %s=NUMBER as tag number %zu", forms[i].tag, i + 1);
        if (!canonical_number(value, forms[i].most, &values[i]))
            return error_set(err, ERROR_FORMAT, "%s is not a whole number up to %" PRIu64, forms[i].tag, forms[i].most);
    }
    name.step = values[0];
    name.rank = (uint32_t)values[1];
    name.dump_index = values[2];
    name.suffix = (struct dump_name_text){rest.at, strlen(rest.at)};
    if (!take_tag(&rest, "name", &name.name) || name.name.length == 0)
        return error_set(err, ERROR_FORMAT, "no name=TEXT as tag number 4");
    name.recompute = (struct dump_name_text){rest.at, 0};
    take_tag(&rest, "recompute_status", &name.recompute);
    uint64_t layer;
    if (take_tag(&rest, "layer_id", &value)) {
        if (!canonical_number(value, UINT32_MAX, &layer))
            return error_set(err, ERROR_FORMAT, "layer_id is not a whole number up to %" PRIu32, UINT32_MAX);
        name.has_layer_tag = true;
        name.layer_tag = (uint32_t)layer;
    }
    name.more = rest;
    parse_name(&name);
    *ret_name = name;
    return ERROR_NONE;
}

bool dump_name_read(const char *file_name, uint64_t *ret_rank, uint64_t *ret_dump_index)
{
    struct dump_name name;
    if (dump_name_parse(file_name, &name, NULL) != ERROR_NONE)
        return false;
    *ret_rank = name.rank;
    *ret_dump_index = name.dump_index;
    return true;
}
