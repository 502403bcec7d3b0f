/* One scan with a stack of open calls. */
#include "analysis/observations_calls.h"

#include "analysis/text_map.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, NONE = OBSERVATIONS_NONE };

struct call {
    struct dump_name_text module;
    uint32_t number, parent, children;
    uint32_t first, last, output;
    bool has_layer;
    uint32_t layer;
};

struct scan {
    const struct observations *observations;
    struct diff *diff;
    struct call *calls;
    size_t count;
    uint32_t open[DEPTH];
    size_t depth;
    struct text_map modules;
    uint32_t *numbers; /* [module]: calls so far */
    size_t module_count;
    uint32_t closed; /* the call that ended last; NONE */
};

static bool same_text(struct dump_name_text a, struct dump_name_text b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* "model.layers.1" is around "model.layers.1.mlp", the root around all. */
static bool is_around(struct dump_name_text outer, struct dump_name_text inner)
{
    return outer.length == 0 || (inner.length > outer.length && inner.at[outer.length] == '.' &&
                                 memcmp(inner.at, outer.at, outer.length) == 0);
}

/* True where the call has a slot of this name already: then it is the next call of the same module. */
static bool has_slot(const struct scan *scan, uint32_t call, const struct dump_name *name)
{
    const struct call *of = &scan->calls[call];
    for (uint32_t i = of->first; i <= of->last; i++)
        if (scan->diff->observations[i].call == call) {
            const struct dump_name *other = &scan->observations->slots[i].name;
            if (other->slot == name->slot && same_text(other->argument, name->argument) &&
                same_text(other->item, name->item))
                return true;
        }
    return false;
}

static uint32_t begin_call(struct scan *scan, uint32_t index)
{
    const struct dump_name *name = &scan->observations->slots[index].name;
    uint32_t module = text_map_number(&scan->modules, name->module.at, name->module.length);
    if (module == scan->module_count) {
        scan->numbers = memory_resize(scan->numbers, ++scan->module_count, sizeof *scan->numbers);
        scan->numbers[module] = 0;
    }
    scan->calls = memory_resize(scan->calls, scan->count + 1, sizeof *scan->calls);
    struct call *call = &scan->calls[scan->count];
    *call = (struct call){.module = name->module,
                          .number = scan->numbers[module]++,
                          .parent = NONE,
                          .first = index,
                          .last = index,
                          .output = NONE,
                          .has_layer = scan->diff->observations[index].has_layer,
                          .layer = scan->diff->observations[index].layer};
    for (size_t i = scan->depth; i-- > 0 && call->parent == NONE;)
        if (is_around(scan->calls[scan->open[i]].module, name->module)) {
            call->parent = scan->open[i];
            scan->calls[scan->open[i]].children++;
        }
    return (uint32_t)scan->count++;
}

static uint32_t take_input(struct scan *scan, uint32_t index)
{
    const struct dump_name *name = &scan->observations->slots[index].name;
    uint32_t top = scan->depth > 0 ? scan->open[scan->depth - 1] : NONE;
    if (top != NONE && same_text(scan->calls[top].module, name->module) && !has_slot(scan, top, name))
        return top;
    if (top != NONE && same_text(scan->calls[top].module, name->module))
        scan->depth--; /* its output was not seen */
    if (scan->depth == DEPTH)
        scan->depth--;
    return scan->open[scan->depth++] = begin_call(scan, index);
}

static uint32_t take_output(struct scan *scan, uint32_t index)
{
    const struct dump_name *name = &scan->observations->slots[index].name;
    for (size_t i = scan->depth; i-- > 0;)
        if (same_text(scan->calls[scan->open[i]].module, name->module)) {
            scan->depth = i;
            return scan->closed = scan->open[i];
        }
    if (scan->closed != NONE && same_text(scan->calls[scan->closed].module, name->module) &&
        !has_slot(scan, scan->closed, name))
        return scan->closed;
    return scan->closed = begin_call(scan, index);
}

static void take(struct scan *scan, struct observations *observations, uint32_t index)
{
    struct diff_observation *observation = &scan->diff->observations[index];
    struct observations_slot *slot = &observations->slots[index];
    slot->around = scan->depth > 0 ? scan->open[scan->depth - 1] : NONE;
    if (slot->name.slot == DUMP_NAME_NO_SLOT)
        return;
    uint32_t number = observation->input ? take_input(scan, index) : take_output(scan, index);
    struct call *call = &scan->calls[number];
    observation->call = number;
    call->last = index;
    if (!observation->input && call->output == NONE)
        call->output = index;
    slot->place = observation->input && module_class_is_place(slot->name.argument.at, slot->name.argument.length);
}

/* By the first output, as a reader of the program meets the results; without one, by the last input. */
static int by_end(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool is_stateful(const char *const *parts, struct dump_name_text module)
{
    for (; parts != NULL && *parts != NULL; parts++) {
        size_t length = strlen(*parts);
        if (module.length >= length && memcmp(module.at + module.length - length, *parts, length) == 0 &&
            (module.length == length || module.at[module.length - length - 1] == '.'))
            return true;
    }
    return false;
}

static void store_call(const struct scan *scan, const struct call *call, const uint32_t *places,
                       const char *const *stateful, struct diff_call *out, struct observations_span *span)
{
    char module[AUDIT_TABLE_NAME];
    text_clean(call->module.at, call->module.length, module, sizeof module);
    *out = (struct diff_call){.module = memory_copy(call->module.length == 0 ? "(root)" : module),
                              .number = call->number,
                              .parent = call->parent == NONE ? NONE : places[call->parent],
                              .leaf = call->children == 0,
                              .has_layer = call->has_layer,
                              .layer = call->layer,
                              .class = module_class_find(call->module.at, call->module.length, scan->diff->tp_size),
                              .first_pair = SIZE_MAX};
    *span = (struct observations_span){.first = call->first,
                                       .last = call->last,
                                       .output = call->output,
                                       .children = call->children,
                                       .stateful = out->class->class == MODULE_CLASS_STATE ||
                                                   is_stateful(stateful, call->module)};
}

/* The calls in their final order, and everything that points to them moved along. */
static void store(const struct scan *scan, struct observations *observations, const char *const *stateful)
{
    struct diff *diff = scan->diff;
    uint64_t *order = memory_new((scan->count + 1) * sizeof *order);
    uint32_t *places = memory_new((scan->count + 1) * sizeof *places);
    for (size_t i = 0; i < scan->count; i++) {
        uint32_t end = scan->calls[i].output != NONE ? scan->calls[i].output : scan->calls[i].last;
        order[i] = (uint64_t)end << 32 | i;
    }
    qsort(order, scan->count, sizeof *order, by_end);
    for (size_t i = 0; i < scan->count; i++)
        places[order[i] & UINT32_MAX] = (uint32_t)i;
    diff->calls = memory_new((scan->count + 1) * sizeof *diff->calls);
    diff->call_count = observations->span_count = scan->count;
    observations->spans = memory_new((scan->count + 1) * sizeof *observations->spans);
    for (size_t i = 0; i < scan->count; i++)
        store_call(scan, &scan->calls[order[i] & UINT32_MAX], places, stateful, &diff->calls[i],
                   &observations->spans[i]);
    for (size_t i = 0; i < observations->count; i++) {
        if (diff->observations[i].call != NONE)
            diff->observations[i].call = places[diff->observations[i].call];
        if (observations->slots[i].around != NONE)
            observations->slots[i].around = places[observations->slots[i].around];
    }
    free(order);
    free(places);
}

/* How often each of `count` texts is there, then the text with what tells it apart. */
static void name_calls(struct diff *diff)
{
    struct text_map names = {0};
    uint32_t *times = memory_new((diff->call_count + 1) * sizeof *times);
    for (size_t i = 0; i < diff->call_count; i++)
        times[text_map_number(&names, diff->calls[i].module, strlen(diff->calls[i].module))]++;
    for (size_t i = 0; i < diff->call_count; i++) {
        struct diff_call *call = &diff->calls[i];
        if (times[text_map_number(&names, call->module, strlen(call->module))] == 1)
            call->name = memory_copy(call->module);
        else if (call->has_layer)
            call->name = memory_format("%s (layer %u)", call->module, call->layer);
        else
            call->name = memory_format("%s (call %u)", call->module, call->number);
    }
    free(times);
    text_map_fini(&names);
}

static void name_observations(const struct observations *observations, struct diff *diff)
{
    struct text_map names = {0};
    uint32_t *times = memory_new((observations->count + 1) * sizeof *times);
    uint32_t *numbers = memory_new((observations->count + 1) * sizeof *numbers);
    for (size_t i = 0; i < observations->count; i++) {
        struct dump_name_text name = observations->slots[i].name.name;
        static const char prefix[] = "non_intrusive__";
        if (observations->slots[i].name.hook && name.length > sizeof prefix - 1) {
            name.at += sizeof prefix - 1;
            name.length -= sizeof prefix - 1;
        }
        numbers[i] = text_map_number(&names, name.at, name.length);
        times[numbers[i]]++;
    }
    for (size_t i = 0; i < observations->count; i++) {
        struct diff_observation *observation = &diff->observations[i];
        char clean[AUDIT_TABLE_NAME];
        text_clean(names.texts[numbers[i]], strlen(names.texts[numbers[i]]), clean, sizeof clean);
        if (times[numbers[i]] == 1)
            observation->name = memory_copy(clean);
        else if (observation->has_layer && observations->slots[i].occurrence == 0)
            observation->name = memory_format("%s (layer %u)", clean, observation->layer);
        else
            observation->name = memory_format("%s (call %u)", clean, observations->slots[i].occurrence);
    }
    free(times);
    free(numbers);
    text_map_fini(&names);
}

void observations_calls_make(struct observations *observations, const char *const *stateful, struct diff *diff)
{
    struct scan scan = {.observations = observations, .diff = diff, .closed = NONE};
    for (uint32_t i = 0; i < observations->count; i++)
        take(&scan, observations, i);
    store(&scan, observations, stateful);
    name_calls(diff);
    name_observations(observations, diff);
    free(scan.calls);
    free(scan.numbers);
    text_map_fini(&scan.modules);
}
