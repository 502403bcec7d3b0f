/* The machine that reads a pickle: its stack, and nodes made on it. Private to pt_pickle.c. */
#pragma once

#include "pt/pt_pickle.h"

struct pt_stack {
    struct pt_pickle *pickle;
    struct error *err;
    size_t position;      /* of the next byte */
    size_t opcode;        /* of the opcode at work */
    size_t payload;       /* of its payload, where it has one */
    uint32_t stack_count; /* nodes on the stack */
    uint32_t marks[PT_PICKLE_DEPTH_MAX];
    uint32_t mark_count, memo_count;
    bool done;
};

/* Fails with a message that gets the opcode's byte position. */
#define PT_STACK_BAD(machine, ...) (error_set((machine)->err, ERROR_FORMAT, __VA_ARGS__), pt_stack_at_byte(machine))

/* Puts "pickle at byte N: " before the message; ERROR_FORMAT. */
enum error_code pt_stack_at_byte(const struct pt_stack *machine);

/* The failures of the functions below. */
enum error_code pt_stack_too_many(const struct pt_stack *machine);
enum error_code pt_stack_underflow(const struct pt_stack *machine, uint32_t count);

/* Room for one more node, and one more place on the stack: made sure of before each opcode, which takes no more. */
static inline bool pt_stack_has_room(const struct pt_stack *machine)
{
    return machine->pickle->node_count + 1 < machine->pickle->capacity &&
           machine->stack_count < machine->pickle->capacity;
}

static inline void pt_stack_push(struct pt_stack *machine, uint32_t number)
{
    machine->pickle->stack[machine->stack_count++] = number;
}

/* Makes a node and pushes it. */
static inline struct pt_pickle_node *pt_stack_make(struct pt_stack *machine, enum pt_pickle_kind kind)
{
    uint32_t number = ++machine->pickle->node_count;
    struct pt_pickle_node *node = &machine->pickle->nodes[number];
    *node = (struct pt_pickle_node){.kind = (uint8_t)kind, .position = (uint32_t)machine->opcode};
    pt_stack_push(machine, number);
    return node;
}

/* Height of the stack at the last mark. */
static inline uint32_t pt_stack_floor(const struct pt_stack *machine)
{
    return machine->mark_count == 0 ? 0 : machine->marks[machine->mark_count - 1];
}

/* ERROR_FORMAT unless at least `count` nodes lie above the last mark. */
static inline enum error_code pt_stack_need(const struct pt_stack *machine, uint32_t count)
{
    return machine->stack_count - pt_stack_floor(machine) < count ? pt_stack_underflow(machine, count) : ERROR_NONE;
}

/* The node `below` places under the topmost one, which must be there. */
static inline uint32_t pt_stack_top_number(const struct pt_stack *machine, uint32_t below)
{
    return machine->pickle->stack[machine->stack_count - 1 - below];
}

static inline struct pt_pickle_node *pt_stack_top(const struct pt_stack *machine, uint32_t below)
{
    return &machine->pickle->nodes[pt_stack_top_number(machine, below)];
}

/* Adds the nodes stack[from .. from+count) to a container. */
enum error_code pt_stack_add_items(struct pt_stack *machine, struct pt_pickle_node *node, uint32_t from,
                                   uint32_t count);
