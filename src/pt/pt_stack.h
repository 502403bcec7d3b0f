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

enum error_code pt_stack_push(struct pt_stack *machine, uint32_t number);

/* Makes a node and pushes it. */
enum error_code pt_stack_make(struct pt_stack *machine, enum pt_pickle_kind kind, struct pt_pickle_node **ret_node);

/* ERROR_FORMAT unless at least `count` nodes lie above the last mark. */
enum error_code pt_stack_need(const struct pt_stack *machine, uint32_t count);

/* The node `below` places under the topmost one, which must be there. */
uint32_t pt_stack_top_number(const struct pt_stack *machine, uint32_t below);
struct pt_pickle_node *pt_stack_top(const struct pt_stack *machine, uint32_t below);

/* Adds the nodes stack[from .. from+count) to a container. */
enum error_code pt_stack_add_items(struct pt_stack *machine, struct pt_pickle_node *node, uint32_t from,
                                   uint32_t count);
