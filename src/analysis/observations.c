/* The merged order is a linked list. Each pass is walked beside it; a slot that is new is put behind the one before. */
#include "analysis/observations.h"

#include "analysis/observations_calls.h"
#include "analysis/text_map.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_UNKNOWN = UINT32_MAX, KEY_IGNORED = UINT32_MAX - 1, END = UINT32_MAX };

/* A name with its layer tag. */
struct key {
    char *text;
    struct dump_name name;
    uint32_t *nodes; /* by occurrence */
    uint32_t node_count;
    uint64_t walk; /* the last walk over a pass that met it, and how often */
    uint32_t met;
};

struct node {
    uint32_t key, occurrence, next;
    uint32_t index; /* in the final order */
    bool a, b;      /* in a pass that a target (without targets: any pair) uses */
};

struct merge {
    struct text_map names;
    struct key *keys;
    size_t key_count;
    struct node *nodes;
    size_t node_count, node_capacity;
    uint32_t first, tail;
    uint64_t walks;
    uint32_t **a_keys, **b_keys; /* [folder][suffix] */
};

/* Of the core tensors only those that have one row for each token are compared. */
static bool is_compared(const struct dump_name *name)
{
    if (name->hook)
        return !name->word;
    return name->core == DUMP_NAME_NOT_CORE || name->core == DUMP_NAME_INPUT_IDS || name->core == DUMP_NAME_POSITIONS;
}

static uint32_t make_key(struct merge *merge, const struct audit_table *table, const struct audit_table_file *file)
{
    char text[AUDIT_TABLE_NAME], label[AUDIT_TABLE_NAME + 32];
    struct dump_name name;
    audit_table_name(table, file, text);
    if (dump_name_parse(text, &name, NULL) != ERROR_NONE || !is_compared(&name))
        return KEY_IGNORED;
    int length = snprintf(label, sizeof label, "%.*s\n%ld", (int)name.name.length, name.name.at,
                          name.has_layer_tag ? (long)name.layer_tag : -1L);
    uint32_t number = text_map_number(&merge->names, label, (size_t)length);
    if (number == merge->key_count) {
        merge->keys = memory_resize(merge->keys, merge->key_count + 1, sizeof *merge->keys);
        struct key *key = &merge->keys[merge->key_count++];
        *key = (struct key){.text = memory_copy(text)};
        dump_name_parse(key->text, &key->name, NULL);
    }
    return number;
}

/* The key of a file, and which time it is met in this walk; KEY_IGNORED. */
static uint32_t key_of(struct merge *merge, const struct side_folder *folder, uint32_t *keys,
                       const struct audit_table_file *file, uint32_t *ret_occurrence)
{
    if (keys[file->suffix] == KEY_UNKNOWN)
        keys[file->suffix] = make_key(merge, &folder->table, file);
    uint32_t number = keys[file->suffix];
    if (number == KEY_IGNORED)
        return number;
    struct key *key = &merge->keys[number];
    if (key->walk != merge->walks) {
        key->walk = merge->walks;
        key->met = 0;
    }
    *ret_occurrence = key->met++;
    return number;
}

static uint32_t add_node(struct merge *merge, uint32_t key, uint32_t occurrence, uint32_t after)
{
    if (merge->node_count == merge->node_capacity) {
        merge->node_capacity = merge->node_capacity == 0 ? 256 : 2 * merge->node_capacity;
        merge->nodes = memory_resize(merge->nodes, merge->node_capacity, sizeof *merge->nodes);
    }
    uint32_t number = (uint32_t)merge->node_count++;
    struct node *node = &merge->nodes[number];
    *node = (struct node){.key = key, .occurrence = occurrence, .next = END};
    if (after == END) {
        node->next = merge->first;
        merge->first = number;
    } else {
        node->next = merge->nodes[after].next;
        merge->nodes[after].next = number;
    }
    if (merge->tail == END || merge->tail == after)
        merge->tail = number;
    struct key *of = &merge->keys[key];
    of->nodes = memory_resize(of->nodes, occurrence + 1, sizeof *of->nodes);
    of->nodes[occurrence] = number;
    of->node_count = occurrence + 1;
    return number;
}

/* True where the pass has a layer, and none that was seen: another pipeline stage, which comes behind. */
static bool is_further_stage(struct merge *merge, const struct side_folder *folder, uint32_t *keys,
                             const struct side_pass *pass)
{
    bool layers = false;
    merge->walks++;
    for (size_t i = 0; i < pass->file_count; i++) {
        uint32_t occurrence,
            number = key_of(merge, folder, keys, &folder->table.files[pass->first_file + i], &occurrence);
        if (number == KEY_IGNORED || !merge->keys[number].name.has_layer)
            continue;
        if (occurrence < merge->keys[number].node_count)
            return false;
        layers = true;
    }
    return layers;
}

static void walk_pass(struct merge *merge, const struct side *side, uint32_t **all_keys, uint32_t number, bool is_b,
                      bool counts)
{
    const struct side_pass *pass = &side->passes[number];
    const struct side_folder *folder = &side->folders[pass->folder];
    uint32_t *keys = all_keys[pass->folder];
    bool stage = merge->first != END && is_further_stage(merge, folder, keys, pass);
    uint32_t at = END;
    merge->walks++;
    for (size_t i = 0; i < pass->file_count; i++) {
        uint32_t occurrence, key = key_of(merge, folder, keys, &folder->table.files[pass->first_file + i], &occurrence);
        if (key == KEY_IGNORED)
            continue;
        uint32_t node = occurrence < merge->keys[key].node_count
                            ? merge->keys[key].nodes[occurrence]
                            : add_node(merge, key, occurrence, stage ? merge->tail : at);
        at = node;
        if (counts) {
            merge->nodes[node].a |= !is_b;
            merge->nodes[node].b |= is_b;
        }
    }
}

enum use { USE_NONE, USE_CONTROL, USE_TARGET };

/* Which passes the pairs need. */
static unsigned char *used_passes(const struct alignment *alignment, size_t pass_count, bool is_b)
{
    unsigned char *used = memory_new(pass_count + 1);
    for (size_t i = 0; i < alignment->pair_count; i++) {
        const struct alignment_pair *pair = &alignment->pairs[i];
        unsigned char *use = &used[is_b ? pair->b_pass : pair->a_pass];
        if (pair->target)
            *use = USE_TARGET;
        else if (*use == USE_NONE)
            *use = USE_CONTROL;
    }
    return used;
}

static uint32_t **new_keys(const struct side *side)
{
    uint32_t **keys = memory_new((side->folder_count + 1) * sizeof *keys);
    for (size_t i = 0; i < side->folder_count; i++) {
        size_t bytes = (side->folders[i].table.suffix_count + 1) * sizeof **keys;
        keys[i] = memory_new(bytes);
        memset(keys[i], 0xFF, bytes);
    }
    return keys;
}

static void free_keys(uint32_t **keys, const struct side *side)
{
    for (size_t i = 0; i < side->folder_count; i++)
        free(keys[i]);
    free(keys);
}

/* First the passes of targets, so that they decide on the order; then what only the others have. */
static void walk_side(struct merge *merge, const struct side *side, uint32_t **keys, const unsigned char *used,
                      bool is_b, bool has_targets)
{
    for (int use = USE_TARGET; use >= USE_CONTROL; use--)
        for (size_t i = 0; i < side->pass_count; i++)
            if (used[i] == use)
                walk_pass(merge, side, keys, (uint32_t)i, is_b, use == USE_TARGET || !has_targets);
}

static void fill_files(struct merge *merge, const struct side *side, uint32_t **keys, const unsigned char *used,
                       struct observations_files *files, size_t *moved)
{
    files->pass_count = side->pass_count;
    files->of_pass = memory_new((side->pass_count + 1) * sizeof *files->of_pass);
    for (size_t i = 0; i < side->pass_count; i++) {
        if (used[i] == USE_NONE)
            continue;
        const struct side_pass *pass = &side->passes[i];
        const struct side_folder *folder = &side->folders[pass->folder];
        uint32_t *of_pass = memory_new((merge->node_count + 1) * sizeof *of_pass), before = 0;
        memset(of_pass, 0xFF, merge->node_count * sizeof *of_pass);
        merge->walks++;
        for (size_t k = 0; k < pass->file_count; k++) {
            uint32_t occurrence, file = (uint32_t)(pass->first_file + k);
            uint32_t key = key_of(merge, folder, keys[pass->folder], &folder->table.files[file], &occurrence);
            if (key == KEY_IGNORED)
                continue;
            uint32_t index = merge->nodes[merge->keys[key].nodes[occurrence]].index;
            of_pass[index] = file;
            *moved += index < before;
            before = index;
        }
        files->of_pass[i] = of_pass;
    }
}

static void fill_slots(struct merge *merge, struct diff *diff, struct observations *observations)
{
    observations->count = merge->node_count;
    observations->slots = memory_new((merge->node_count + 1) * sizeof *observations->slots);
    diff->observation_count = merge->node_count;
    diff->observations = memory_new((merge->node_count + 1) * sizeof *diff->observations);
    uint32_t index = 0;
    for (uint32_t at = merge->first; at != END; at = merge->nodes[at].next, index++) {
        struct node *node = &merge->nodes[at];
        struct observations_slot *slot = &observations->slots[index];
        node->index = index;
        slot->text = memory_copy(merge->keys[node->key].text);
        dump_name_parse(slot->text, &slot->name, NULL);
        slot->occurrence = node->occurrence;
        slot->around = OBSERVATIONS_NONE;
        struct diff_observation *observation = &diff->observations[index];
        observation->call = OBSERVATIONS_NONE;
        observation->input = slot->name.slot == DUMP_NAME_INPUT || slot->name.slot == DUMP_NAME_INPUT_KEYWORD;
        observation->has_layer = slot->name.has_layer_tag || slot->name.has_layer;
        observation->layer = slot->name.has_layer_tag ? slot->name.layer_tag : slot->name.layer;
        observation->presence = node->a == node->b ? DIFF_PRESENCE_BOTH
                                : node->a          ? DIFF_PRESENCE_A_ONLY
                                                   : DIFF_PRESENCE_B_ONLY;
        observation->first_unequal_pair = SIZE_MAX;
        numbers_init(&observation->numbers);
    }
}

void observations_make(const struct side *a, const struct side *b, const struct alignment *alignment,
                       const char *const *stateful, struct diff *diff, struct observations *ret_observations)
{
    struct merge merge = {.first = END, .tail = END};
    struct observations observations = {0};
    unsigned char *a_used = used_passes(alignment, a->pass_count, false);
    unsigned char *b_used = used_passes(alignment, b->pass_count, true);
    merge.a_keys = new_keys(a);
    merge.b_keys = new_keys(b);
    walk_side(&merge, b, merge.b_keys, b_used, true, alignment->target_count > 0);
    walk_side(&merge, a, merge.a_keys, a_used, false, alignment->target_count > 0);
    fill_slots(&merge, diff, &observations);
    size_t moved = 0;
    fill_files(&merge, b, merge.b_keys, b_used, &observations.b, &moved);
    fill_files(&merge, a, merge.a_keys, a_used, &observations.a, &moved);
    observations.moved = moved;
    observations_calls_make(&observations, stateful, diff);
    free_keys(merge.a_keys, a);
    free_keys(merge.b_keys, b);
    free(a_used);
    free(b_used);
    for (size_t i = 0; i < merge.key_count; i++) {
        free(merge.keys[i].text);
        free(merge.keys[i].nodes);
    }
    free(merge.keys);
    free(merge.nodes);
    text_map_fini(&merge.names);
    *ret_observations = observations;
}

static void free_files(struct observations_files *files)
{
    for (size_t i = 0; i < files->pass_count; i++)
        free(files->of_pass[i]);
    free(files->of_pass);
}

void observations_fini(struct observations *observations)
{
    for (size_t i = 0; i < observations->count; i++)
        free(observations->slots[i].text);
    free(observations->slots);
    free(observations->spans);
    free_files(&observations->a);
    free_files(&observations->b);
    *observations = (struct observations){0};
}

const struct audit_table_file *observations_file(const struct side *side, const struct observations_files *files,
                                                 uint32_t pass, size_t observation)
{
    const uint32_t *of_pass = files->of_pass[pass];
    if (of_pass == NULL || of_pass[observation] == OBSERVATIONS_NONE)
        return NULL;
    return &side->folders[side->passes[pass].folder].table.files[of_pass[observation]];
}
