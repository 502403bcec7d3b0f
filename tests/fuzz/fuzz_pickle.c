#include "fuzz.h"
#include "pt/pt_pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pt_pickle pickle; /* one for all, as a reader of many files has it */

int fuzz_pickle(const uint8_t *bytes, size_t length)
{
    struct error err = ERROR_INIT;
    char name[100];
    if (pt_pickle_read(&pickle, bytes, length, 0, &err) != ERROR_NONE) {
        FUZZ_MUST(pickle.root == PT_PICKLE_NONE && strncmp(err.message, "pickle at byte ", 15) == 0);
        return 0;
    }
    FUZZ_MUST(pickle.root != PT_PICKLE_NONE && pickle.root <= pickle.node_count && !pickle.suspicious);
    pt_pickle_unusable(&pickle, pickle.root);
    pt_pickle_member(&pickle, pickle.root, "value", 5);
    for (uint32_t i = 1; i <= pickle.node_count; i++) {
        const struct pt_pickle_node *node = pt_pickle_node(&pickle, i);
        if (node->kind >= PT_PICKLE_TUPLE && node->kind <= PT_PICKLE_SET && node->items.count > 0)
            FUZZ_MUST(pt_pickle_item(&pickle, node, node->items.count - 1) != PT_PICKLE_NONE);
        if (node->kind == PT_PICKLE_GLOBAL || node->kind == PT_PICKLE_OPAQUE || node->kind == PT_PICKLE_CALL)
            pt_pickle_global_name(&pickle, node, name, sizeof name);
        if (node->kind == PT_PICKLE_CALL || node->kind == PT_PICKLE_STORAGE)
            FUZZ_MUST(pt_pickle_node(&pickle, node->call.arguments)->kind == PT_PICKLE_TUPLE);
    }
    return 0;
}
