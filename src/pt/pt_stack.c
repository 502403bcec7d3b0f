#include "pt/pt_stack.h"

#include <inttypes.h>

enum error_code pt_stack_at_byte(const struct pt_stack *machine)
{
    error_prefix(machine->err, "pickle at byte %" PRIu64, machine->pickle->file_position + machine->opcode);
    return ERROR_FORMAT;
}

enum error_code pt_stack_too_many(const struct pt_stack *machine)
{
    error_set(machine->err, ERROR_TOO_LARGE, "more than %d objects", PT_PICKLE_NODES_MAX);
    pt_stack_at_byte(machine);
    return ERROR_TOO_LARGE;
}

enum error_code pt_stack_underflow(const struct pt_stack *machine, uint32_t count)
{
    return PT_STACK_BAD(machine, "opcode %02x needs %" PRIu32 " objects and the stack has %" PRIu32,
                        machine->pickle->bytes[machine->opcode], count, machine->stack_count - pt_stack_floor(machine));
}

static bool is_container(const struct pt_pickle_node *node)
{
    return node->kind >= PT_PICKLE_TUPLE && node->kind <= PT_PICKLE_SET;
}

enum error_code pt_stack_add_items(struct pt_stack *machine, struct pt_pickle_node *node, uint32_t from, uint32_t count)
{
    struct pt_pickle *pickle = machine->pickle;
    if (count > pickle->capacity - 1 - pickle->cell_count)
        return pt_stack_too_many(machine);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = pickle->stack[from + i], cell = ++pickle->cell_count;
        const struct pt_pickle_node *item = &pickle->nodes[number];
        if (is_container(item) && item->items.depth >= node->items.depth)
            node->items.depth = item->items.depth + 1;
        pickle->cells[cell] = (struct pt_pickle_cell){.node = number};
        if (node->items.last == 0)
            node->items.first = cell;
        else
            pickle->cells[node->items.last].next = cell;
        node->items.last = cell;
    }
    node->items.count += count;
    if (node->items.depth > PT_PICKLE_DEPTH_MAX)
        return PT_STACK_BAD(machine, "containers within each other are more than %d levels deep", PT_PICKLE_DEPTH_MAX);
    return ERROR_NONE;
}
