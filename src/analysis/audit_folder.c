#include "analysis/audit_folder.h"
#include "analysis/audit_work.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum error_code open_folder(const char *path, int *ret_fd, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        enum error_code code = errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG
                                   ? ERROR_NOT_FOUND
                               : errno == EACCES ? ERROR_FORBIDDEN
                                                 : ERROR_SYSTEM;
        return error_set_errno(err, code, errno, "cannot open the folder '%.200s'", path);
    }
    *ret_fd = fd;
    return ERROR_NONE;
}

static bool anything_ran(const struct audit_expected *expected)
{
    for (size_t i = 0; expected->known && i < expected->rank_count; i++)
        if (expected->ranks[i].step_from != expected->ranks[i].step_to ||
            expected->ranks[i].index_from != expected->ranks[i].index_to)
            return true;
    return false;
}

static void check_presence(struct audit_work *work)
{
    const struct audit_table *table = &work->table;
    char shown[AUDIT_TABLE_NAME];
    for (size_t i = 0; i < table->malformed_names.count; i++) {
        const char *name = table->malformed_names.items[i];
        audit_reasons_add(&work->reasons, AUDIT_REASON_NAME, i == 0 ? table->malformed : 0, "%s",
                          text_clean(name, strlen(name), shown, sizeof shown));
    }
    if (table->malformed > table->malformed_names.count)
        audit_reasons_add(&work->reasons, AUDIT_REASON_NAME, 0, "%s", "");
    if (table->file_count > 0 || anything_ran(work->expected))
        return;
    if (table->folders.count > 0)
        audit_reasons_add(&work->reasons, AUDIT_REASON_NOTHING, 1, "there are folders in it, such as '%s'",
                          text_clean(table->folders.items[0], strlen(table->folders.items[0]), shown, sizeof shown));
    else
        audit_reasons_add(&work->reasons, AUDIT_REASON_NOTHING, 1, "%s", "");
}

static enum error_code run(struct audit_work *work, const struct audit_folder_options *options, struct error *err)
{
    enum error_code code = audit_table_read(&work->table, work->folder_fd, err);
    if (code != ERROR_NONE)
        return code;
    audit_table_sort_by_index(&work->table);
    audit_counters_check_index(work);
    audit_table_sort_by_step(&work->table);
    for (size_t i = 0; i < work->table.file_count && options->core_only; i++)
        if (work->table.suffixes[work->table.files[i].suffix].core == DUMP_NAME_NOT_CORE)
            work->table.files[i].state = AUDIT_TABLE_FINE;
    audit_probe_all(&work->table, work->folder_fd, options->threads, options->progress, options->context);
    return ERROR_NONE;
}

enum error_code audit_folder(const char *path, const struct audit_expected *expected,
                             const struct audit_folder_options *options, struct audit *ret_audit, struct error *err)
{
    static const struct audit_expected nothing_known;
    static const struct audit_folder_options usual;
    struct audit audit;
    struct audit_work work = {
        .folder_fd = -1, .expected = expected != NULL ? expected : &nothing_known, .audit = &audit};
    audit_init(&audit);
    audit_table_init(&work.table);
    audit_reasons_init(&work.reasons);

    enum error_code code = open_folder(path, &work.folder_fd, err);
    if (code == ERROR_NONE)
        code = run(&work, options != NULL ? options : &usual, err);
    else if (code == ERROR_NOT_FOUND && work.expected->known) {
        audit_reasons_add(&work.reasons, AUDIT_REASON_NO_FOLDER, 1, "%s", path);
        code = ERROR_NONE;
    }
    if (code == ERROR_NONE) {
        audit_passes_make(&work);
        if (work.folder_fd >= 0)
            check_presence(&work);
        audit_counters_check_steps(&work);
        audit_ending_mark(&work);
        audit_signatures_check(&work);
        audit_ending_tell(&work);
        audit_coverage_make(&work);
        audit_reasons_write(&work.reasons, &audit.reasons);
        audit.complete = audit.reasons.count == 0;
        audit_fini(ret_audit);
        *ret_audit = audit;
        if (options != NULL && options->ret_table != NULL) {
            *options->ret_table = work.table;
            audit_table_init(&work.table);
        }
    } else {
        audit_fini(&audit);
    }
    if (work.folder_fd >= 0)
        close(work.folder_fd);
    audit_reasons_fini(&work.reasons);
    audit_table_fini(&work.table);
    free(work.spans);
    return code;
}
