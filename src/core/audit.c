#include "core/audit.h"
#include "base/memory.h"

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
    list_fini(&audit->request_ids);
    list_fini(&audit->foreign_request_ids);
    free(audit->passes);
    audit_init(audit);
}

void audit_expected_fini(struct audit_expected *expected)
{
    free(expected->ranks);
    list_fini(&expected->own_request_ids);
    *expected = (struct audit_expected){0};
}

struct audit_pass *audit_add_pass(struct audit *audit)
{
    size_t count = audit->pass_count;
    if ((count & (count - 1)) ==
        0) /* full at each power of two: one by one would copy for ever with a million passes */
        audit->passes = memory_resize(audit->passes, count > 0 ? 2 * count : 1, sizeof *audit->passes);
    struct audit_pass *pass = &audit->passes[audit->pass_count++];
    *pass = (struct audit_pass){0};
    return pass;
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
