/* What a wrong output is the right answer to, for people and as the member "explanation" of kldump.kl/1. */
#pragma once

#include "analysis/kl_explain.h"
#include "ctl/output.h"

/* Nothing where it was not asked for. Labels are `width` columns wide. */
void kl_explain_report_text(const struct kl_explanation *explanation, size_t width, struct output *out);

/* Sets "explanation" in `root`: null where it was not asked for. */
void kl_explain_report_json(const struct kl_explanation *explanation, struct json *root);
