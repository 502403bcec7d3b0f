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

/* audit_signatures.c: the last step of each rank, broken files, and what the pattern of files says about the cause. */
void audit_signatures_check(struct audit_work *work);
