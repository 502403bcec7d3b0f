/* An investigation as one page of HTML: readable without script and network, in light and dark, from 320 pixels on. */
#pragma once

#include "analysis/investigation.h"
#include "base/buffer.h"

enum { INVESTIGATION_HTML_LINES = 200 }; /* of one list; what is left out is counted on the page */

/* Appends the page. All text that came from results is escaped. Results of steps are linked by their names, in the
 * folder that the page lies in. Any thread. */
void investigation_html(const struct investigation *investigation, const struct investigation_end *end,
                        struct buffer *out);
