/* Audits the folder of one experiment: what is there, pass by pass, and whether it is all that the writer wrote.
 *
 * Relied upon (SGLang 0.5.10 to 0.5.23, dumper.py): file names carry step, rank and dump_index; dump_index grows by one
 * for every tensor that passes the filter, also when saving it fails; step grows by one at the end of every forward
 * pass; neither is reset by switching dumping off and on. A full disk leaves empty files and no gap, a killed writer a
 * file without its end.
 *
 * Reads the folder (links are not followed), writes nothing. Any thread; starts threads of its own while it works. */
#pragma once

#include "analysis/audit_probe.h"
#include "core/audit.h"

struct audit_folder_options {
    unsigned threads;               /* 0: as many as there are processors, up to 8 */
    audit_probe_progress *progress; /* NULL: none */
    void *context;                  /* of progress */
    bool core_only;                 /* only core files are opened; of others nothing but the name is looked at: their
                                       size is 0, their state AUDIT_TABLE_FINE. For who opens them anyway */
    struct audit_table *ret_table;  /* not NULL: on success the files, sorted by step, are the caller's there */
};

/* `expected` NULL: nothing is known about the writer. On success `ret_audit` (initialised) is filled and owned by the
 * caller; a folder that is not there is a reason where the writer's counters are known, and ERROR_NOT_FOUND where they
 * are not. ERROR_FORBIDDEN, ERROR_SYSTEM, ERROR_TOO_LARGE, ERROR_MEMORY: the folder could not be audited. */
enum error_code audit_folder(const char *path, const struct audit_expected *expected,
                             const struct audit_folder_options *options, struct audit *ret_audit, struct error *err);
