/* Nodes of a pickle for people and for programs. */
#include "base/text.h"
#include "ctl/inspect.h"
#include "pt/pt_tensor.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    DEPTH_MAX = 8,
    TEXT_ITEMS = 16,    /* of a container, for people */
    JSON_ITEMS = 10000, /* of all containers together, for programs */
    KEY_BYTES = 1024,
};

static bool is_container(const struct pt_pickle_node *node)
{
    return node->kind >= PT_PICKLE_TUPLE && node->kind <= PT_PICKLE_SET;
}

/* ---- JSON ---- */

struct budget {
    const struct pt_pickle *pickle;
    unsigned items;
    bool cut; /* something was left out */
};

/* The key of a member: texts as they are, other keys as people read them. */
static const char *key_of(const struct pt_pickle *pickle, uint32_t number, struct buffer *buffer)
{
    const struct pt_pickle_node *node = pt_pickle_node(pickle, number);
    buffer_clear(buffer);
    if (node->kind == PT_PICKLE_TEXT)
        buffer_append(buffer, pickle->bytes + node->text.start,
                      node->text.length < KEY_BYTES ? node->text.length : KEY_BYTES);
    else
        inspect_tree_text(pickle, number, buffer);
    return buffer->data;
}

static void set_value(struct json *parent, const char *key, struct budget *budget, uint32_t number, int depth);

static struct json *container_json(struct budget *budget, const struct pt_pickle_node *node, int depth)
{
    bool dict = node->kind == PT_PICKLE_DICT;
    struct json *json = dict ? json_object() : json_array();
    struct buffer key;
    buffer_init(&key);
    uint32_t cell = node->items.first;
    for (uint32_t i = 0; i < node->items.count && cell != 0; i++) {
        const char *name = NULL;
        if (budget->items == 0) {
            budget->cut = true;
            break;
        }
        budget->items--;
        if (dict) {
            name = key_of(budget->pickle, budget->pickle->cells[cell].node, &key);
            cell = budget->pickle->cells[cell].next;
            i++;
        }
        set_value(json, name, budget, budget->pickle->cells[cell].node, depth + 1);
        cell = budget->pickle->cells[cell].next;
    }
    buffer_fini(&key);
    return json;
}

static void set_scalar(struct json *object, const char *key, const struct pt_pickle *pickle, uint32_t number)
{
    const struct pt_pickle_node *node = pt_pickle_node(pickle, number);
    struct buffer text;
    buffer_init(&text);
    if (node->kind == PT_PICKLE_BOOL) {
        json_set_bool(object, key, node->boolean);
    } else if (node->kind == PT_PICKLE_INTEGER) {
        json_set_i64(object, key, node->integer);
    } else if (node->kind == PT_PICKLE_REAL && isfinite(node->real)) {
        json_set_double(object, key, node->real);
    } else if (node->kind == PT_PICKLE_TEXT) {
        json_set_bytes(object, key, (const char *)pickle->bytes + node->text.start, node->text.length);
    } else if (node->kind == PT_PICKLE_NOTHING) {
        json_set_null(object, key);
    } else {
        inspect_tree_text(pickle, number, &text);
        json_set_string(object, key, text.data);
    }
    buffer_fini(&text);
}

/* Into an object under `key`, or behind the elements of an array (key NULL). */
static void set_value(struct json *parent, const char *key, struct budget *budget, uint32_t number, int depth)
{
    const struct pt_pickle_node *node = pt_pickle_node(budget->pickle, number);
    budget->cut = budget->cut || (is_container(node) && depth == DEPTH_MAX);
    if (is_container(node) && depth < DEPTH_MAX) {
        struct json *child = container_json(budget, node, depth);
        if (key != NULL)
            json_set_child(parent, key, child);
        else
            json_append(parent, child);
    } else if (key != NULL) {
        set_scalar(parent, key, budget->pickle, number);
    } else {
        struct json *holder = json_object();
        set_scalar(holder, "element", budget->pickle, number);
        json_append(parent, json_copy(json_member(holder, "element")));
        json_free(holder);
    }
}

bool inspect_tree_set(struct json *object, const char *key, const struct pt_pickle *pickle, uint32_t number)
{
    struct budget budget = {.pickle = pickle, .items = JSON_ITEMS};
    set_value(object, key, &budget, number, 0);
    return !budget.cut;
}

/* ---- text ---- */

static void write_node(const struct pt_pickle *pickle, uint32_t number, int depth, struct buffer *out);

static void write_items(const struct pt_pickle *pickle, const struct pt_pickle_node *node, int depth,
                        struct buffer *out)
{
    bool dict = node->kind == PT_PICKLE_DICT;
    uint32_t cell = node->items.first, count = dict ? node->items.count / 2 : node->items.count;
    for (uint32_t i = 0; i < count && cell != 0; i++) {
        buffer_text(out, i == 0 ? "" : ", ");
        if (i == TEXT_ITEMS || depth == DEPTH_MAX) {
            buffer_format(out, "... (%" PRIu32 ")", count);
            return;
        }
        write_node(pickle, pickle->cells[cell].node, depth + 1, out);
        cell = pickle->cells[cell].next;
        if (dict) {
            buffer_text(out, ": ");
            write_node(pickle, pickle->cells[cell].node, depth + 1, out);
            cell = pickle->cells[cell].next;
        }
    }
}

/* A tensor among others: "<float32 [2, 3]>". */
static void write_tensor(const struct pt_pickle *pickle, uint32_t number, struct buffer *out)
{
    struct pt_file_tensor tensor;
    struct pt_tensor_storage storage;
    enum pt_file_problem problem;
    if (pt_tensor_read(pickle, number, &tensor, &storage, &problem, NULL) != ERROR_NONE) {
        buffer_text(out, "<a tensor that cannot be read>");
        return;
    }
    buffer_format(out, "<%s ", pt_dtype_name(tensor.dtype));
    inspect_numbers(out, tensor.size, tensor.rank);
    buffer_text(out, ">");
}

static void write_node(const struct pt_pickle *pickle, uint32_t number, int depth, struct buffer *out)
{
    static const char *const brackets[] = {
        [PT_PICKLE_TUPLE] = "()", [PT_PICKLE_LIST] = "[]", [PT_PICKLE_DICT] = "{}", [PT_PICKLE_SET] = "{}"};
    const struct pt_pickle_node *node = pt_pickle_node(pickle, number);
    char name[256];
    switch ((enum pt_pickle_kind)node->kind) {
    case PT_PICKLE_NOTHING:
        buffer_text(out, "None");
        break;
    case PT_PICKLE_BOOL:
        buffer_text(out, node->boolean ? "True" : "False");
        break;
    case PT_PICKLE_INTEGER:
        buffer_format(out, "%" PRId64, node->integer);
        break;
    case PT_PICKLE_REAL:
        buffer_format(out, "%.15g", node->real);
        break;
    case PT_PICKLE_TEXT:
        text_clean((const char *)pickle->bytes + node->text.start, node->text.length, name, sizeof name);
        buffer_format(out, depth == 0 ? "%s" : "'%s'", name);
        break;
    case PT_PICKLE_BIG:
    case PT_PICKLE_BYTES:
        buffer_format(out, "<%s of %" PRIu32 " bytes>", node->kind == PT_PICKLE_BIG ? "integer" : "bytes",
                      node->text.length);
        break;
    case PT_PICKLE_STORAGE:
        buffer_text(out, "<storage>");
        break;
    case PT_PICKLE_GLOBAL:
    case PT_PICKLE_CALL:
    case PT_PICKLE_OPAQUE:
        if (pt_tensor_is(node))
            write_tensor(pickle, number, out);
        else
            buffer_format(out, "<%s>", pt_pickle_global_name(pickle, node, name, sizeof name));
        break;
    default:
        buffer_append(out, &brackets[node->kind][0], 1);
        write_items(pickle, node, depth, out);
        buffer_append(out, &brackets[node->kind][1], 1);
    }
}

void inspect_tree_text(const struct pt_pickle *pickle, uint32_t number, struct buffer *out)
{
    write_node(pickle, number, 0, out);
}
