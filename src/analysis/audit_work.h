/* Private to the audit: what its parts share while one folder is audited. One thread. */
#pragma once

#include "analysis/audit_reasons.h"
#include "analysis/audit_table.h"
#include "core/audit.h"

struct audit_span { /* the files of pass i, in `table.files` after audit_table_sort_by_step */
    size_t first, count;
    bool broken;      /* a file of it is not fine */
    bool cut;         /* the last pass of a rank, and not whole: its files are not blamed one by one */
    bool no_ids_file; /* there is no rids file at all */
    bool no_inputs;   /* no input_ids file */
    bool hooks;       /* a file of a hook is there */
    bool replayed;    /* a graph was replayed in its place: no layer was written */
};

struct audit_work {
    int folder_fd;
    struct audit_table table;
    const struct audit_expected *expected; /* never NULL */
    struct audit_reasons reasons;
    struct audit *audit;
    struct audit_span *spans; /* audit->pass_count of them */
};

/* audit_passes.c: groups the sorted files into passes: counts, phases, request ids. */
void audit_passes_make(struct audit_work *work);

/* audit_counters.c: dump_index (files sorted by it), then steps and ranks (passes made). */
void audit_counters_check_index(struct audit_work *work);
void audit_counters_check_steps(struct audit_work *work);

/* audit_ending.c: marks the last pass of each rank where it is not whole (before audit_signatures_check), and tells of
 * it, with the steps that are usable (after it).
 *
 * A last step counts
 *  - if the writer was asked after it had switched off (`exact`): what is missing then is missing in the counters;
 *  - if it lies below the `step` that was read last: the dumper raises `step` after the last file of a pass and saves
 *    each file before the forward pass goes on (SGLang 0.5.10 to 0.5.23, dumper.py), so such a pass has ended, and
 *    whether its files are there dump_index says better than any likeness. Asking for a likeness here as well would
 *    throw away the only prefill of most dumps, which has no earlier one to be like;
 *  - else, of a writer that was killed, only if none of its files is broken and their set equals that of an earlier
 * step of the same phase;
 *  - else, where nothing is known about the writer, unless it only begins like an earlier step of its phase.
 * Steps before a rank's last need no such rule: the next step could begin only once they had ended. */
void audit_ending_mark(struct audit_work *work);
void audit_ending_tell(struct audit_work *work);

/* audit_coverage.c: which modules, in which layers and phases, and how large (passes made); notes about what is seen in
 * one phase alone, and about requests that no client named. */
void audit_coverage_make(struct audit_work *work);

/* audit_signatures.c: broken files, and what the pattern of files says about the cause. */
void audit_signatures_check(struct audit_work *work);
