/* Looks into dump files: size, end of the archive, rows, request ids. Links are not followed, nothing is unpickled. */
#pragma once

#include "analysis/audit_table.h"

#include <stdint.h>

enum {
    AUDIT_PROBE_THREADS_MAX = 16,
};

/* Called now and then from the caller's thread; `done` grows and is `total` in the last call. */
typedef void audit_probe_progress(void *context, uint64_t done, uint64_t total);

/* Fills in size, rows and state of every file of the table whose state is AUDIT_TABLE_UNCHECKED; the outcome does not
 * depend on the number of threads (0: as many as there are processors, up to 8). One open and one or two reads a file.
 */
void audit_probe_all(struct audit_table *table, int folder_fd, unsigned threads, audit_probe_progress *progress,
                     void *context);

/* Looks again at one file, to say what is wrong with it: ERROR_NONE where nothing is (any more). */
enum error_code audit_probe_explain(const struct audit_table *table, int folder_fd, const struct audit_table_file *file,
                                    struct error *err);

/* Appends the request ids of a rids file to `ret_list`. See pt_file_texts; the error names the file. */
enum error_code audit_probe_request_ids(const struct audit_table *table, int folder_fd,
                                        const struct audit_table_file *file, struct list *ret_list, struct error *err);
