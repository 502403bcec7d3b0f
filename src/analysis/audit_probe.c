/* Threads take files in blocks from a shared counter; each file is written by the one thread that took it. */
#include "analysis/audit_probe.h"
#include "analysis/workers.h"
#include "pt/pt_file.h"
#include "pt/pt_open.h"
#include "pt/pt_zip.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
    BLOCK = 64,
    FILES_PER_THREAD = 512, /* fewer are not worth a thread */
    ROW_BYTES = 8,          /* input_ids and seq_lens are int64 */
};

struct probe {
    struct audit_table *table;
    int folder_fd;
    atomic_size_t next;
    audit_probe_progress *progress; /* NULL: none */
    void *context;
};

static const enum audit_table_state states[] = {
    [PT_ZIP_FINE] = AUDIT_TABLE_FINE,
    [PT_ZIP_EMPTY] = AUDIT_TABLE_EMPTY,
    [PT_ZIP_TRUNCATED] = AUDIT_TABLE_TRUNCATED,
    [PT_ZIP_FOREIGN] = AUDIT_TABLE_FOREIGN,
    [PT_ZIP_LEGACY] = AUDIT_TABLE_FOREIGN,
    [PT_ZIP_DAMAGED] = AUDIT_TABLE_DAMAGED,
    [PT_ZIP_UNREADABLE] = AUDIT_TABLE_UNREADABLE,
};

/* Opens a file of the folder that is regular; *ret_state is set also on failure. */
static enum error_code open_regular(const struct audit_table *table, int folder_fd, const struct audit_table_file *file,
                                    int *ret_fd, struct stat *ret_status, enum audit_table_state *ret_state,
                                    struct error *err)
{
    char name[AUDIT_TABLE_NAME];
    int fd = -1;
    enum pt_file_problem problem = PT_FILE_FINE;
    enum error_code code = pt_open(folder_fd, audit_table_name(table, file, name), &fd, &problem, err);
    if (code == ERROR_NONE)
        code = pt_open_status(fd, ret_status, &problem, err);
    if (code == ERROR_NONE) {
        *ret_fd = fd;
        return ERROR_NONE;
    }
    *ret_state = problem == PT_FILE_IRREGULAR ? AUDIT_TABLE_IRREGULAR : AUDIT_TABLE_UNREADABLE;
    if (fd >= 0)
        close(fd);
    return code;
}

/* What the name promises must be in the archive. */
static enum error_code look(const struct audit_table_suffix *suffix, const struct pt_zip *zip,
                            struct audit_table_file *file, struct error *err)
{
    if (pt_zip_find(zip, "data.pkl") == NULL) {
        file->state = AUDIT_TABLE_DAMAGED;
        return error_set(err, ERROR_FORMAT, "an archive without data.pkl: saving failed in the writer");
    }
    bool rows = (suffix->core == DUMP_NAME_INPUT_IDS || suffix->core == DUMP_NAME_SEQ_LENS) && !suffix->hook;
    if (!rows && (!suffix->hook || suffix->word))
        return ERROR_NONE;
    const struct pt_zip_member *data = pt_zip_find(zip, "data/0");
    if (data == NULL) {
        file->state = AUDIT_TABLE_VALUELESS;
        return error_set(err, ERROR_FORMAT, "an archive without data/0: there is no tensor in it");
    }
    if (rows && data->size % ROW_BYTES != 0) {
        file->state = AUDIT_TABLE_ROWS;
        return error_set(err, ERROR_FORMAT, "data/0 has %" PRIu64 " bytes, no multiple of %d", data->size, ROW_BYTES);
    }
    file->rows = rows ? data->size / ROW_BYTES : 0;
    return ERROR_NONE;
}

static enum error_code probe(const struct audit_table *table, int folder_fd, struct audit_table_file *file,
                             struct pt_zip *zip, struct error *err)
{
    int fd;
    struct stat status;
    enum error_code code = open_regular(table, folder_fd, file, &fd, &status, &file->state, err);
    if (code != ERROR_NONE)
        return code;
    file->size = (uint64_t)status.st_size;
    file->modified_s = (uint32_t)status.st_mtim.tv_sec;
    code = pt_zip_read_file(zip, fd, file->size, err);
    close(fd);
    file->state = states[zip->problem];
    return code != ERROR_NONE ? code : look(&table->suffixes[file->suffix], zip, file, err);
}

/* Probes blocks until none is left. */
static void work(void *context, bool is_caller)
{
    struct probe *shared = context;
    struct pt_zip zip;
    pt_zip_init(&zip);
    size_t total = shared->table->file_count;
    for (;;) {
        size_t first = atomic_fetch_add(&shared->next, BLOCK);
        if (first >= total)
            break;
        for (size_t i = first; i < total && i < first + BLOCK; i++)
            if (shared->table->files[i].state == AUDIT_TABLE_UNCHECKED)
                probe(shared->table, shared->folder_fd, &shared->table->files[i], &zip, NULL);
        if (is_caller && shared->progress != NULL)
            shared->progress(shared->context, first, total);
    }
    pt_zip_fini(&zip);
}

void audit_probe_all(struct audit_table *table, int folder_fd, unsigned threads, audit_probe_progress *progress,
                     void *context)
{
    struct probe shared = {.table = table, .folder_fd = folder_fd, .progress = progress, .context = context};
    size_t most = threads != 0 ? AUDIT_PROBE_THREADS_MAX + 1 : 1 + table->file_count / FILES_PER_THREAD;
    workers_run(threads, most, work, &shared);
    if (progress != NULL)
        progress(context, table->file_count, table->file_count);
}

enum error_code audit_probe_explain(const struct audit_table *table, int folder_fd, const struct audit_table_file *file,
                                    struct error *err)
{
    struct pt_zip zip;
    pt_zip_init(&zip);
    struct audit_table_file copy = *file;
    enum error_code code = probe(table, folder_fd, &copy, &zip, err);
    pt_zip_fini(&zip);
    return code;
}

enum error_code audit_probe_request_ids(const struct audit_table *table, int folder_fd,
                                        const struct audit_table_file *file, struct list *ret_list, struct error *err)
{
    char name[AUDIT_TABLE_NAME];
    struct pt_file *rids = pt_file_new();
    enum error_code code = pt_file_open(rids, folder_fd, audit_table_name(table, file, name), err);
    if (code == ERROR_NONE)
        code = pt_file_texts(rids, ret_list, err);
    pt_file_free(rids);
    return code;
}
