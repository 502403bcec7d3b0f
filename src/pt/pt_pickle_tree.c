/* Looking around in a tree that pt_pickle_read has made. */
#include "base/text.h"
#include "pt/pt_pickle.h"

#include <stdio.h>
#include <string.h>

const struct pt_pickle_node *pt_pickle_node(const struct pt_pickle *pickle, uint32_t number)
{
    return &pickle->nodes[number];
}

uint32_t pt_pickle_item(const struct pt_pickle *pickle, const struct pt_pickle_node *container, uint32_t index)
{
    if (index >= container->items.count)
        return PT_PICKLE_NONE;
    uint32_t cell = container->items.first;
    for (; index > 0; index--)
        cell = pickle->cells[cell].next;
    return pickle->cells[cell].node;
}

static bool is_text(const struct pt_pickle *pickle, const struct pt_pickle_node *node, const char *text, size_t length)
{
    return node->kind == PT_PICKLE_TEXT && node->text.length == length &&
           memcmp(pickle->bytes + node->text.start, text, length) == 0;
}

bool pt_pickle_text_is(const struct pt_pickle *pickle, const struct pt_pickle_node *node, const char *text)
{
    return is_text(pickle, node, text, strlen(text));
}

uint32_t pt_pickle_member(const struct pt_pickle *pickle, uint32_t dict, const char *key, size_t key_length)
{
    uint32_t found = PT_PICKLE_NONE;
    if (dict == PT_PICKLE_NONE || pickle->nodes[dict].kind != PT_PICKLE_DICT)
        return found;
    for (uint32_t cell = pickle->nodes[dict].items.first; cell != 0;) {
        const struct pt_pickle_cell *name = &pickle->cells[cell], *value = &pickle->cells[name->next];
        if (is_text(pickle, &pickle->nodes[name->node], key, key_length))
            found = value->node;
        cell = value->next;
    }
    return found;
}

static uint32_t unusable(struct pt_pickle *pickle, uint32_t number, unsigned depth)
{
    struct pt_pickle_node *node = &pickle->nodes[number];
    if (node->kind == PT_PICKLE_OPAQUE || node->meaning == PT_PICKLE_MEANS_UNSUPPORTED)
        return number;
    if (node->seen != 0 || depth > PT_PICKLE_DEPTH_MAX)
        return PT_PICKLE_NONE;
    node->seen = 1;
    if (node->kind == PT_PICKLE_CALL || node->kind == PT_PICKLE_STORAGE)
        return unusable(pickle, node->call.arguments, depth + 1);
    uint32_t found = PT_PICKLE_NONE;
    if (node->kind >= PT_PICKLE_TUPLE && node->kind <= PT_PICKLE_SET)
        for (uint32_t cell = node->items.first; cell != 0 && found == PT_PICKLE_NONE; cell = pickle->cells[cell].next)
            found = unusable(pickle, pickle->cells[cell].node, depth + 1);
    return found;
}

uint32_t pt_pickle_unusable(struct pt_pickle *pickle, uint32_t number)
{
    for (uint32_t i = 1; i <= pickle->node_count; i++)
        pickle->nodes[i].seen = 0;
    return unusable(pickle, number, 0);
}

const char *pt_pickle_global_name(const struct pt_pickle *pickle, const struct pt_pickle_node *node, char *out,
                                  size_t size)
{
    char whole[400], module[160], name[160];
    text_clean((const char *)pickle->bytes + node->call.module, node->call.module_length, module, sizeof module);
    text_clean((const char *)pickle->bytes + node->call.name, node->call.name_length, name, sizeof name);
    snprintf(whole, sizeof whole, "%s.%s", module, name);
    text_copy(out, size, whole);
    return out;
}
