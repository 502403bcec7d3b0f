#include "investigation_world.h"

#include "base/list.h"
#include "base/memory.h"

#include <string.h>

char **investigation_world_texts(const char *first)
{
    struct list list = {0};
    if (first != NULL)
        list_add(&list, first);
    return list_vector(&list);
}

static void set_kl(struct investigation_kl *kl, enum world_reading reading)
{
    static const struct {
        enum kl_condition condition;
        enum kl_where where;
        bool too, dirty[KL_PATHS];
    } readings[WORLD_READINGS] = {
        [WORLD_CLEAN] = {KL_CONDITION_NONE, KL_WHERE_NONE, false, {0}},
        [WORLD_REFUSED] = {KL_CONDITION_REFUSED, KL_WHERE_NONE, false, {1, 1, 1, 1, 0}},
        [WORLD_OPERATOR] = {KL_CONDITION_1, KL_WHERE_OPERATOR, false, {1, 1, 1, 1, 0}},
        [WORLD_BOTH] = {KL_CONDITION_1, KL_WHERE_OPERATOR, true, {1, 1, 1, 1, 1}},
        [WORLD_DECODE] = {KL_CONDITION_2, KL_WHERE_DECODE, false, {1, 1, 1, 1, 0}},
        [WORLD_RESTORE] = {KL_CONDITION_2, KL_WHERE_RESTORE, false, {0, 0, 1, 1, 1}},
    };
    if (reading == WORLD_UNKNOWN)
        return;
    *kl = (struct investigation_kl){.known = true,
                                    .condition = readings[reading].condition,
                                    .where = readings[reading].where,
                                    .condition_2_in_restore = readings[reading].too,
                                    .signature = memory_copy("signature"),
                                    .text = memory_copy("The reading of kl."),
                                    .evidence = investigation_world_texts("match: every token from index 1"),
                                    .next = investigation_world_texts(NULL),
                                    .requests = 8,
                                    .few = readings[reading].dirty[KL_PATH_MATCH] ? 5 : 0,
                                    .prompt_count = 8,
                                    .new_tokens = 12,
                                    .tp = 1,
                                    .prompts_hash = memory_copy("abc")};
    for (size_t id = 0; id < KL_PATHS; id++) {
        bool dirty = readings[reading].dirty[id];
        kl->paths[id].grade = dirty ? KL_GRADE_NONZERO : KL_GRADE_BIT_EQUAL;
        kl->paths[id].kept = 8;
        kl->paths[id].tokens = 96;
        kl->paths[id].beyond = dirty ? 35 : 0;
        kl->paths[id].mean = dirty ? 2e-4 : 0;
    }
}

const char *const investigation_world_kinds[] = {"none", "op", "gap", "glue", "op+cache", "state", "kind of tomorrow",
                                                 NULL};

static void set_diff(struct investigation *in, const char *kind)
{
    in->steps[INVESTIGATION_DIFF].state = INVESTIGATION_DONE;
    in->diff.known = in->diff.proven = true;
    in->diff.status = strcmp(kind, "none") == 0 ? STATUS_DONE : STATUS_NO;
    in->diff.kind = memory_copy(kind);
    in->diff.confidence = memory_copy("proven");
    in->diff.certificate = investigation_world_texts(NULL);
    in->diff.against = investigation_world_texts(NULL);
    in->diff.blind = investigation_world_texts(NULL);
    in->diff.tp = 1;
    if (strcmp(kind, "none") == 0)
        return;
    in->diff.module = memory_copy("model.layers.0.self_attn.qkv_proj");
    in->diff.class = memory_copy("token-wise");
    in->diff.class_kind = memory_copy("matrix product");
    in->diff.needs = memory_copy("One order of summing for every number of rows.");
    in->diff.what = memory_copy("look between a and b.");
    in->diff.has_layer = in->diff.has_position = true;
    in->diff.position = 37;
    in->diff.tested = 14;
    in->diff.unequal = 13;
}

void investigation_world_capture(struct investigation *in)
{
    in->capture.known = in->capture.complete = true;
    in->capture.requests = 4;
    in->capture.tokens = 48;
    in->capture.bit_equal = 13;
    in->capture.largest = 3.5e-6;
}

struct investigation investigation_world(enum world_reading own, enum world_reading dump, const char *kind)
{
    struct investigation in = {0};
    for (size_t id = 0; id < INVESTIGATION_STEPS; id++)
        in.steps[id].state = INVESTIGATION_DONE;
    set_kl(&in.own, own);
    set_kl(&in.dump, dump);
    if (kind != NULL) {
        investigation_world_capture(&in);
        set_diff(&in, kind);
    }
    return in;
}
