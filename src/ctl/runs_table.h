/* The table of `list`. One thread. */
#pragma once

#include "ctl/find.h"
#include "ctl/output.h"

/* Appends one line for each run, with headings above. `columns`: how wide a line may be, 0: any; where it is too narrow
 * the columns that matter least are left out, and in the end names are cut. What is not known is "-". `now`: seconds
 * since 1970. */
void runs_table(struct output *out, const struct find_list *list, size_t columns, double now);
