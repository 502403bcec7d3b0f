/* What an investigation found, as text for people and as JSON (schema kldump.investigate/1, doc/investigate.md). The
 * page is analysis/investigation_html.h. One thread. */
#pragma once

#include "analysis/investigation.h"
#include "ctl/output.h"
#include "json/json.h"

/* The answer first, then evidence, steps, what was not measured, what to do next. All that came from outside is made
 * safe. */
void investigate_report_text(const struct investigation *investigation, const struct investigation_end *end,
                             struct output *out);

/* The object; the caller's. */
struct json *investigate_report_json(const struct investigation *investigation, const struct investigation_end *end);
