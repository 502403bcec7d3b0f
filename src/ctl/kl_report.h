/* A KL measurement as text for people and as JSON (schema kldump.kl/1). */
#pragma once

#include "analysis/kl_explain.h"
#include "ctl/endpoint.h"
#include "ctl/kl_paths.h"
#include "ctl/kl_thresholds.h"
#include "ctl/output.h"

struct kl_report {
    const struct endpoint *endpoint;
    const struct kl_paths_plan *plan;
    bool comma_made_up; /* the server has no tokenizer */
    char settings_hash[HASH_TEXT];
    const char *thresholds_path; /* NULL: none given */
    struct kl_thresholds thresholds;
    struct kl_path paths[KL_PATHS];
    struct kl_reading reading;
    struct kl_explanation explanation; /* zeroed: not asked for */
    char *foreign;                     /* foreign_text; owned */
};

const char *kl_report_target(const struct kl_report *report); /* the run's name, or the URL */

/* What of the server bears on the reading. */
struct kl_server kl_report_server(const struct kl_report *report);

/* A path is fine that is clean, or below its threshold. False where nothing was measured, or it was refused. */
bool kl_report_path_is_fine(const struct kl_report *report, enum kl_path_id id);
bool kl_report_is_fine(const struct kl_report *report);

/* The last position that was measured, plus one. */
size_t kl_report_end(const struct kl_report *report);

/* `all`: every request, with its strip. */
void kl_report_text(const struct kl_report *report, bool all, struct output *out);

/* The object; the caller frees it (json_free). With ids and logprobs of every token, so that all numbers can be taken
 * again. */
struct json *kl_report_json(const struct kl_report *report);
