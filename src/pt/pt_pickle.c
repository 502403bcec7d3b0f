#include "pt/pt_pickle.h"
#include "pt/pt_globals.h"
#include "pt/pt_stack.h"

#include <byteswap.h>
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    CAPACITY_MIN = 4096, /* serves an ordinary dump file */
    PROTOCOL_MIN = 2,
    PROTOCOL_MAX = 5,
    MEMO_FREE = 0,
};

struct operation;
typedef enum error_code action(struct pt_stack *machine, const struct operation *operation, uint64_t value);

struct operation {
    action *act;
    uint8_t width;  /* bytes of the argument: a little-endian number */
    bool payload;   /* the argument is the length of bytes that follow */
    uint8_t detail; /* a kind, a count */
};

/* ---- nodes ---- */

void pt_pickle_init(struct pt_pickle *pickle)
{
    *pickle = (struct pt_pickle){0};
}

void pt_pickle_fini(struct pt_pickle *pickle)
{
    free(pickle->nodes);
    free(pickle->cells);
    free(pickle->stack);
    free(pickle->memo);
    pt_pickle_init(pickle);
}

/* Every opcode makes at most one node, pushes at most one, and what is pushed becomes an item at most once: a pickle of
 * `length` bytes needs no more than `length` of each. */
static enum error_code reserve(struct pt_pickle *pickle, size_t length, struct error *err)
{
    size_t need = length + 2 < CAPACITY_MIN ? CAPACITY_MIN : length + 2;
    if (need > PT_PICKLE_NODES_MAX)
        need = PT_PICKLE_NODES_MAX;
    if (need <= pickle->capacity)
        return ERROR_NONE;
    pt_pickle_fini(pickle);
    pickle->nodes = malloc(need * sizeof *pickle->nodes);
    pickle->cells = malloc(need * sizeof *pickle->cells);
    pickle->stack = malloc(need * sizeof *pickle->stack);
    pickle->memo = calloc(need, sizeof *pickle->memo);
    if (pickle->nodes == NULL || pickle->cells == NULL || pickle->stack == NULL || pickle->memo == NULL) {
        pt_pickle_fini(pickle);
        return error_set(err, ERROR_MEMORY, "no memory for the nodes of a pickle of %zu bytes", length);
    }
    pickle->capacity = need;
    return ERROR_NONE;
}

/* ---- opcodes ---- */

static enum error_code act_protocol(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    if (machine->opcode != 0 || value < PROTOCOL_MIN || value > PROTOCOL_MAX)
        return PT_STACK_BAD(machine, "protocol %" PRIu64 "; protocols %d to %d are read, said once at the beginning",
                            value, PROTOCOL_MIN, PROTOCOL_MAX);
    return ERROR_NONE;
}

static enum error_code act_frame(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    if (value > machine->pickle->length - machine->position)
        return PT_STACK_BAD(machine, "a frame of %" PRIu64 " bytes; %zu are left", value,
                            machine->pickle->length - machine->position);
    return ERROR_NONE;
}

static enum error_code act_stop(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    if (machine->stack_count != 1 || machine->mark_count != 0)
        return PT_STACK_BAD(machine,
                            "the pickle ends with %" PRIu32 " objects and %" PRIu32 " marks; one object is expected",
                            machine->stack_count, machine->mark_count);
    if (machine->position != machine->pickle->length)
        return PT_STACK_BAD(machine, "%zu bytes behind the pickle's end", machine->pickle->length - machine->position);
    machine->done = true;
    return ERROR_NONE;
}

static enum error_code act_mark(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    if (machine->mark_count == PT_PICKLE_DEPTH_MAX)
        return PT_STACK_BAD(machine, "more than %d marks within each other", PT_PICKLE_DEPTH_MAX);
    machine->marks[machine->mark_count++] = machine->stack_count;
    return ERROR_NONE;
}

/* None, empty containers. */
static enum error_code act_empty(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)value;
    pt_stack_make(machine, operation->detail);
    return ERROR_NONE;
}

static enum error_code act_bool(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)value;
    struct pt_pickle_node *node = pt_stack_make(machine, PT_PICKLE_BOOL);
    node->boolean = operation->detail != 0;
    return ERROR_NONE;
}

static enum error_code act_integer(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    struct pt_pickle_node *node = pt_stack_make(machine, PT_PICKLE_INTEGER);
    node->integer = operation->width == 4 ? (int32_t)(uint32_t)value : (int64_t)value;
    return ERROR_NONE;
}

static enum error_code act_real(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    struct pt_pickle_node *node = pt_stack_make(machine, PT_PICKLE_REAL);
    uint64_t bits = bswap_64(value); /* the one big-endian number of a pickle */
    memcpy(&node->real, &bits, sizeof bits);
    return ERROR_NONE;
}

static enum error_code act_bytes(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    struct pt_pickle_node *node = pt_stack_make(machine, operation->detail);
    node->text.start = (uint32_t)machine->payload;
    node->text.length = (uint32_t)value;
    return ERROR_NONE;
}

static enum error_code act_long(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    if (value > 8)
        return act_bytes(machine, operation, value);
    const uint8_t *p = machine->pickle->bytes + machine->payload;
    uint64_t bits = value > 0 && (p[value - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (uint64_t i = value; i-- > 0;)
        bits = bits << 8 | p[i];
    struct pt_pickle_node *node = pt_stack_make(machine, PT_PICKLE_INTEGER);
    node->integer = (int64_t)bits;
    return ERROR_NONE;
}

/* Tuple of the topmost `count` nodes, which it replaces. */
static enum error_code make_tuple(struct pt_stack *machine, uint32_t count)
{
    uint32_t from = machine->stack_count - count;
    struct pt_pickle_node *node = pt_stack_make(machine, PT_PICKLE_TUPLE);
    enum error_code code = pt_stack_add_items(machine, node, from, count);
    if (code == ERROR_NONE) {
        machine->pickle->stack[from] = pt_stack_top_number(machine, 0);
        machine->stack_count = from + 1;
    }
    return code;
}

static enum error_code act_tuple_n(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)value;
    enum error_code code = pt_stack_need(machine, operation->detail);
    return code != ERROR_NONE ? code : make_tuple(machine, operation->detail);
}

/* Takes the last mark away; *ret_count nodes lie above it. */
static enum error_code pop_mark(struct pt_stack *machine, uint32_t *ret_count)
{
    if (machine->mark_count == 0)
        return PT_STACK_BAD(machine, "opcode %02x without a mark", machine->pickle->bytes[machine->opcode]);
    *ret_count = machine->stack_count - machine->marks[--machine->mark_count];
    return ERROR_NONE;
}

static enum error_code act_tuple(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    uint32_t count = 0;
    enum error_code code = pop_mark(machine, &count);
    return code != ERROR_NONE ? code : make_tuple(machine, count);
}

static enum error_code act_frozenset(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    enum error_code code = act_tuple(machine, operation, value);
    if (code == ERROR_NONE)
        pt_stack_top(machine, 0)->kind = PT_PICKLE_SET;
    return code;
}

/* The topmost `count` nodes become items of the container below them. What is added to an opaque one is dropped. */
static enum error_code fill(struct pt_stack *machine, enum pt_pickle_kind kind, uint32_t count)
{
    enum error_code code = pt_stack_need(machine, count + 1);
    if (code != ERROR_NONE)
        return code;
    if (kind == PT_PICKLE_DICT && count % 2 != 0)
        return PT_STACK_BAD(machine, "%" PRIu32 " keys and values for a dict; an even number is expected", count);
    struct pt_pickle_node *node = pt_stack_top(machine, count);
    if (node->kind == kind)
        code = pt_stack_add_items(machine, node, machine->stack_count - count, count);
    else if (node->kind != PT_PICKLE_OPAQUE)
        return PT_STACK_BAD(machine, "items are added to something that takes none");
    machine->stack_count -= count;
    return code;
}

static enum error_code act_add(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)value;
    return fill(machine, operation->detail, operation->detail == PT_PICKLE_DICT ? 2 : 1);
}

static enum error_code act_add_all(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)value;
    uint32_t count = 0;
    enum error_code code = pop_mark(machine, &count);
    return code != ERROR_NONE ? code : fill(machine, operation->detail, count);
}

static enum error_code remember(struct pt_stack *machine, uint64_t key)
{
    struct pt_pickle *pickle = machine->pickle;
    enum error_code code = pt_stack_need(machine, 1);
    if (code != ERROR_NONE)
        return code;
    if (key >= pickle->capacity)
        return PT_STACK_BAD(machine, "memo number %" PRIu64 " in a pickle of %zu bytes", key, pickle->length);
    if (pickle->memo[key] == MEMO_FREE)
        machine->memo_count++;
    pickle->memo[key] = pt_stack_top_number(machine, 0);
    if (key >= pickle->memo_used)
        pickle->memo_used = (uint32_t)key + 1;
    return ERROR_NONE;
}

static enum error_code act_put(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    return remember(machine, value);
}

static enum error_code act_memoize(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    return remember(machine, machine->memo_count);
}

static enum error_code act_get(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    if (value >= machine->pickle->memo_used || machine->pickle->memo[value] == MEMO_FREE)
        return PT_STACK_BAD(machine, "memo number %" PRIu64 " is fetched before it was stored", value);
    pt_stack_push(machine, machine->pickle->memo[value]);
    return ERROR_NONE;
}

/* ---- globals ---- */

struct span {
    size_t start, length;
};

static enum error_code make_global(struct pt_stack *machine, struct span module, struct span name)
{
    struct pt_pickle *pickle = machine->pickle;
    if (module.length > UINT16_MAX || name.length > UINT16_MAX)
        return PT_STACK_BAD(machine, "a global whose name has %zu bytes", module.length + name.length);
    uint8_t detail = 0;
    enum pt_pickle_meaning meaning = pt_globals_find((const char *)pickle->bytes + module.start, module.length,
                                                     (const char *)pickle->bytes + name.start, name.length, &detail);
    bool known = meaning != PT_PICKLE_MEANS_NOTHING && meaning != PT_PICKLE_MEANS_SUSPICIOUS;
    struct pt_pickle_node *node = pt_stack_make(machine, known ? PT_PICKLE_GLOBAL : PT_PICKLE_OPAQUE);
    node->meaning = (uint8_t)meaning;
    node->detail = detail;
    node->call.module = (uint32_t)module.start;
    node->call.module_length = (uint16_t)module.length;
    node->call.name = (uint32_t)name.start;
    node->call.name_length = (uint16_t)name.length;
    if (meaning == PT_PICKLE_MEANS_SUSPICIOUS) {
        char text[200];
        pickle->suspicious = true;
        return PT_STACK_BAD(machine, "asks for %s, which runs code: no data of torch.save needs it; nothing was run",
                            pt_pickle_global_name(pickle, node, text, sizeof text));
    }
    if (!known && pickle->opaque == PT_PICKLE_NONE)
        pickle->opaque = pt_stack_top_number(machine, 0);
    return ERROR_NONE;
}

static bool take_line(struct pt_stack *machine, struct span *ret_line)
{
    const uint8_t *start = machine->pickle->bytes + machine->position;
    size_t left = machine->pickle->length - machine->position;
    const uint8_t *end = left == 0 ? NULL : memchr(start, '\n', left);
    if (end == NULL)
        return false;
    *ret_line = (struct span){machine->position, (size_t)(end - start)};
    machine->position += ret_line->length + 1;
    return true;
}

static enum error_code act_global(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    struct span module, name;
    if (!take_line(machine, &module) || !take_line(machine, &name))
        return PT_STACK_BAD(machine, "a global whose two lines do not end");
    return make_global(machine, module, name);
}

static enum error_code act_stack_global(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    enum error_code code = pt_stack_need(machine, 2);
    if (code != ERROR_NONE)
        return code;
    const struct pt_pickle_node *module = pt_stack_top(machine, 1), *name = pt_stack_top(machine, 0);
    if (module->kind != PT_PICKLE_TEXT || name->kind != PT_PICKLE_TEXT)
        return PT_STACK_BAD(machine, "a global whose name is no text");
    machine->stack_count -= 2;
    return make_global(machine, (struct span){module->text.start, module->text.length},
                       (struct span){name->text.start, name->text.length});
}

/* set([...]): a set with the list's items; nothing else is taken for one. */
static enum error_code become_set(struct pt_stack *machine, const struct pt_pickle_node *arguments,
                                  struct pt_pickle_node *node)
{
    uint32_t number = pt_pickle_item(machine->pickle, arguments, 0);
    if (number != PT_PICKLE_NONE && machine->pickle->nodes[number].kind != PT_PICKLE_LIST)
        return PT_STACK_BAD(machine, "a set that is not made from a list");
    node->kind = PT_PICKLE_SET;
    if (number != PT_PICKLE_NONE)
        node->items = machine->pickle->nodes[number].items;
    return ERROR_NONE;
}

/* REDUCE, NEWOBJ: what a global and a tuple of arguments stand for. */
static enum error_code act_call(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)value;
    enum error_code code = pt_stack_need(machine, 2);
    if (code != ERROR_NONE)
        return code;
    const struct pt_pickle_node callee = *pt_stack_top(machine, 1), *arguments = pt_stack_top(machine, 0);
    uint32_t arguments_number = pt_stack_top_number(machine, 0);
    if (arguments->kind != PT_PICKLE_TUPLE)
        return PT_STACK_BAD(machine, "a call whose arguments are no tuple");
    if (callee.kind != PT_PICKLE_GLOBAL && callee.kind != PT_PICKLE_OPAQUE)
        return PT_STACK_BAD(machine, "a call of something that is no global");
    bool new_object = operation->detail != 0;
    bool plain = callee.kind == PT_PICKLE_OPAQUE || callee.meaning == PT_PICKLE_MEANS_DICT ||
                 callee.meaning == PT_PICKLE_MEANS_SET || callee.meaning == PT_PICKLE_MEANS_UNSUPPORTED;
    char name[200];
    if (new_object && !plain)
        return PT_STACK_BAD(machine, "a new object of %s",
                            pt_pickle_global_name(machine->pickle, &callee, name, sizeof name));
    machine->stack_count -= 2;
    struct pt_pickle_node *node = pt_stack_make(machine, PT_PICKLE_DICT);
    if (callee.kind == PT_PICKLE_GLOBAL && callee.meaning == PT_PICKLE_MEANS_DICT)
        return ERROR_NONE; /* an OrderedDict gets its members by SETITEMS */
    if (callee.kind == PT_PICKLE_GLOBAL && callee.meaning == PT_PICKLE_MEANS_SET)
        return become_set(machine, arguments, node);
    uint32_t position = node->position;
    *node = callee;
    node->position = position;
    if (callee.kind == PT_PICKLE_GLOBAL) {
        node->kind = PT_PICKLE_CALL;
        node->call.arguments = arguments_number;
    }
    return ERROR_NONE;
}

static enum error_code act_build(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    enum error_code code = pt_stack_need(machine, 2);
    if (code != ERROR_NONE)
        return code;
    const struct pt_pickle_node *node = pt_stack_top(machine, 1);
    bool unsupported = node->kind == PT_PICKLE_CALL && node->meaning == PT_PICKLE_MEANS_UNSUPPORTED;
    if (node->kind != PT_PICKLE_OPAQUE && node->kind != PT_PICKLE_DICT && !unsupported)
        return PT_STACK_BAD(machine, "a state for an object that has none");
    machine->stack_count--;
    return ERROR_NONE;
}

static enum error_code act_persistent_id(struct pt_stack *machine, const struct operation *operation, uint64_t value)
{
    (void)operation;
    (void)value;
    enum error_code code = pt_stack_need(machine, 1);
    if (code != ERROR_NONE)
        return code;
    uint32_t number = pt_stack_top_number(machine, 0);
    const struct pt_pickle_node *id = pt_stack_top(machine, 0);
    uint32_t first = id->kind == PT_PICKLE_TUPLE ? pt_pickle_item(machine->pickle, id, 0) : PT_PICKLE_NONE;
    if (first == PT_PICKLE_NONE ||
        !pt_pickle_text_is(machine->pickle, pt_pickle_node(machine->pickle, first), "storage"))
        return PT_STACK_BAD(machine, "a persistent id that is not ('storage', ...)");
    machine->stack_count--;
    pt_stack_make(machine, PT_PICKLE_STORAGE)->call.arguments = number;
    return ERROR_NONE;
}

/* ---- the table and the loop ---- */

static const struct operation operations[256] = {
    [0x80] = {act_protocol, .width = 1},
    [0x95] = {act_frame, .width = 8},
    ['.'] = {act_stop},
    ['('] = {act_mark},
    ['N'] = {act_empty, .detail = PT_PICKLE_NOTHING},
    [0x88] = {act_bool, .detail = 1},
    [0x89] = {act_bool, .detail = 0},
    ['}'] = {act_empty, .detail = PT_PICKLE_DICT},
    [']'] = {act_empty, .detail = PT_PICKLE_LIST},
    [')'] = {act_empty, .detail = PT_PICKLE_TUPLE},
    [0x8f] = {act_empty, .detail = PT_PICKLE_SET},
    ['K'] = {act_integer, .width = 1},
    ['M'] = {act_integer, .width = 2},
    ['J'] = {act_integer, .width = 4},
    ['G'] = {act_real, .width = 8},
    [0x8a] = {act_long, .width = 1, .payload = true, .detail = PT_PICKLE_BIG},
    [0x8b] = {act_long, .width = 4, .payload = true, .detail = PT_PICKLE_BIG},
    ['X'] = {act_bytes, .width = 4, .payload = true, .detail = PT_PICKLE_TEXT},
    [0x8c] = {act_bytes, .width = 1, .payload = true, .detail = PT_PICKLE_TEXT},
    [0x8d] = {act_bytes, .width = 8, .payload = true, .detail = PT_PICKLE_TEXT},
    ['C'] = {act_bytes, .width = 1, .payload = true, .detail = PT_PICKLE_BYTES},
    ['B'] = {act_bytes, .width = 4, .payload = true, .detail = PT_PICKLE_BYTES},
    ['U'] = {act_bytes, .width = 1, .payload = true, .detail = PT_PICKLE_TEXT},
    ['T'] = {act_bytes, .width = 4, .payload = true, .detail = PT_PICKLE_TEXT},
    [0x85] = {act_tuple_n, .detail = 1},
    [0x86] = {act_tuple_n, .detail = 2},
    [0x87] = {act_tuple_n, .detail = 3},
    ['t'] = {act_tuple},
    [0x91] = {act_frozenset},
    ['a'] = {act_add, .detail = PT_PICKLE_LIST},
    ['e'] = {act_add_all, .detail = PT_PICKLE_LIST},
    ['s'] = {act_add, .detail = PT_PICKLE_DICT},
    ['u'] = {act_add_all, .detail = PT_PICKLE_DICT},
    [0x90] = {act_add_all, .detail = PT_PICKLE_SET},
    ['q'] = {act_put, .width = 1},
    ['r'] = {act_put, .width = 4},
    [0x94] = {act_memoize},
    ['h'] = {act_get, .width = 1},
    ['j'] = {act_get, .width = 4},
    ['c'] = {act_global},
    [0x93] = {act_stack_global},
    ['R'] = {act_call},
    [0x81] = {act_call, .detail = 1},
    ['b'] = {act_build},
    ['Q'] = {act_persistent_id},
};

/* A little-endian number of `width` bytes, which are there. Away from the pickle's end by one load: no branch that
 * depends on the opcode. */
static inline uint64_t take_number(const struct pt_pickle *pickle, size_t position, unsigned width)
{
    static const uint64_t masks[] = {0, 0xff, 0xffff, 0, 0xffffffff, 0, 0, 0, UINT64_MAX};
    uint64_t value = 0;
    if (pickle->length - position >= sizeof value) {
        memcpy(&value, pickle->bytes + position, sizeof value);
        return le64toh(value) & masks[width];
    }
    for (unsigned i = width; i-- > 0;)
        value = value << 8 | pickle->bytes[position + i];
    return value;
}

static enum error_code step(struct pt_stack *machine)
{
    const struct pt_pickle *pickle = machine->pickle;
    machine->opcode = machine->position;
    if (machine->position == pickle->length)
        return PT_STACK_BAD(machine, "the pickle ends without its last opcode");
    if (!pt_stack_has_room(machine))
        return pt_stack_too_many(machine);
    const struct operation *operation = &operations[pickle->bytes[machine->position++]];
    if (operation->act == NULL)
        return PT_STACK_BAD(machine, "opcode %02x, which torch.save does not write", pickle->bytes[machine->opcode]);
    if (operation->width > pickle->length - machine->position)
        return PT_STACK_BAD(machine, "opcode %02x is cut short", pickle->bytes[machine->opcode]);
    uint64_t value = take_number(pickle, machine->position, operation->width);
    machine->position += operation->width;
    if (operation->payload) {
        if (value > pickle->length - machine->position)
            return PT_STACK_BAD(machine, "%" PRIu64 " bytes are announced and %zu are left", value,
                                pickle->length - machine->position);
        machine->payload = machine->position;
        machine->position += (size_t)value;
    }
    return operation->act(machine, operation, value);
}

enum error_code pt_pickle_read(struct pt_pickle *pickle, const void *bytes, size_t length, uint64_t file_position,
                               struct error *err)
{
    pickle->root = pickle->opaque = PT_PICKLE_NONE;
    pickle->suspicious = false;
    pickle->node_count = pickle->cell_count = 0;
    if (pickle->memo_used > 0)
        memset(pickle->memo, MEMO_FREE, pickle->memo_used * sizeof *pickle->memo);
    pickle->memo_used = 0;
    if (length > PT_PICKLE_BYTES_MAX)
        return error_set(err, ERROR_TOO_LARGE, "pickle at byte %" PRIu64 " has %zu bytes; at most %d are read",
                         file_position, length, PT_PICKLE_BYTES_MAX);
    enum error_code code = reserve(pickle, length, err);
    if (code != ERROR_NONE)
        return code;
    pickle->bytes = bytes;
    pickle->length = length;
    pickle->file_position = file_position;
    struct pt_stack machine;
    machine.pickle = pickle;
    machine.err = err;
    machine.position = machine.opcode = machine.payload = 0;
    machine.stack_count = machine.mark_count = machine.memo_count = 0;
    machine.done = false;
    while (code == ERROR_NONE && !machine.done)
        code = step(&machine);
    if (code == ERROR_NONE)
        pickle->root = pt_stack_top_number(&machine, 0);
    return code;
}
