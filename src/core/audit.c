#include "core/audit.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_names[] = {
    [AUDIT_UNKNOWN] = "unknown", [AUDIT_EXTEND] = "extend", [AUDIT_DECODE] = "decode"};

void audit_init(struct audit *audit)
{
    *audit = (struct audit){0};
}

void audit_fini(struct audit *audit)
{
    list_fini(&audit->reasons);
    list_fini(&audit->notes);
    list_fini(&audit->request_ids);
    list_fini(&audit->foreign_request_ids);
    free(audit->passes);
    free(audit->usable);
    for (size_t i = 0; i < audit->module_count; i++)
        free(audit->modules[i].name);
    free(audit->modules);
    audit_init(audit);
}

void audit_expected_fini(struct audit_expected *expected)
{
    free(expected->ranks);
    list_fini(&expected->own_request_ids);
    *expected = (struct audit_expected){0};
}

/* Room for one more, doubled at each power of two: one by one would copy for ever with a million passes. */
static void *grown(void *items, size_t count, size_t size)
{
    return (count & (count - 1)) == 0 ? memory_resize(items, count > 0 ? 2 * count : 1, size) : items;
}

struct audit_pass *audit_add_pass(struct audit *audit)
{
    audit->passes = grown(audit->passes, audit->pass_count, sizeof *audit->passes);
    struct audit_pass *pass = &audit->passes[audit->pass_count++];
    *pass = (struct audit_pass){0};
    return pass;
}

struct audit_module *audit_add_module(struct audit *audit)
{
    audit->modules = grown(audit->modules, audit->module_count, sizeof *audit->modules);
    struct audit_module *module = &audit->modules[audit->module_count++];
    *module = (struct audit_module){0};
    return module;
}

void audit_add_usable(struct audit *audit, uint64_t step)
{
    struct audit_steps *before = audit->usable_count > 0 ? &audit->usable[audit->usable_count - 1] : NULL;
    if (before != NULL && step > 0 && before->last == step - 1) {
        before->last = step;
        return;
    }
    audit->usable = grown(audit->usable, audit->usable_count, sizeof *audit->usable);
    audit->usable[audit->usable_count++] = (struct audit_steps){step, step};
}

const char *audit_usable_text(const struct audit *audit, char *buffer, size_t size)
{
    struct buffer text;
    buffer_init(&text);
    const struct audit_steps *first = audit->usable;
    bool one = audit->usable_count == 1 && first->first == first->last;
    buffer_text(&text, audit->usable_count == 0 ? "none" : one ? "step " : "steps ");
    for (size_t i = 0; i < audit->usable_count && text.length < size; i++) {
        const struct audit_steps *steps = &audit->usable[i];
        buffer_format(&text, "%s%" PRIu64, i > 0 ? ", " : "", steps->first);
        if (steps->last > steps->first)
            buffer_format(&text, "-%" PRIu64, steps->last);
    }
    text_copy(buffer, size, text.data);
    if (text.length >= size && size > 4)
        text_copy(buffer + size - 4, 4, "...");
    buffer_fini(&text);
    return buffer;
}

const char *audit_phase_name(enum audit_phase phase)
{
    return phase_names[phase];
}

enum audit_phase audit_phase_from_name(const char *name)
{
    for (int phase = AUDIT_EXTEND; phase <= AUDIT_DECODE; phase++)
        if (strcmp(phase_names[phase], name) == 0)
            return (enum audit_phase)phase;
    return AUDIT_UNKNOWN;
}
