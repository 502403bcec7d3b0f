/* What invariance_take found, as text for people and as JSON (schema kldump.invariance/1). */
#pragma once

#include "analysis/invariance.h"
#include "ctl/endpoint.h"
#include "ctl/invariance_dump.h"
#include "ctl/invariance_inputs.h"
#include "ctl/invariance_take.h"
#include "ctl/output.h"

enum { INVARIANCE_REPORT_LABEL = 13 }; /* columns before a text */

struct invariance_report {
    const struct endpoint *endpoint;
    const struct invariance_take_plan *plan;
    char settings_hash[HASH_TEXT];
    struct invariance_axis axes[INVARIANCE_AXES];
    const char *kl_path; /* NULL: none given */
    struct invariance_match match;
    const char *diff_path; /* NULL: none given; the module is unknown then */
    struct invariance_module module;
    const char *experiment; /* of --dump; NULL: nothing was to be dumped */
    struct invariance_dump dumps[INVARIANCE_AXES];
    const char *script; /* that was written; NULL: none */
    char *no_script;    /* why not; NULL: it was, or was not asked for */
    struct invariance_reading reading;
    char *foreign; /* foreign_text; the holder frees it */
};

/* The operator: that of --diff, else of the first dump that names one and of which a script can be made, else of the
 * first that names one. NULL: it is not known. */
const struct invariance_module *invariance_report_module(const struct invariance_report *report);

/* The script of a module, for the rows of its dumps. As operator_script_build. */
enum error_code invariance_report_script(const struct invariance_module *module, struct buffer *text,
                                         struct error *err);

void invariance_report_text(const struct invariance_report *report, struct output *out);
struct json *invariance_report_json(const struct invariance_report *report); /* the caller's */
