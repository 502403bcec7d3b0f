#include "analysis/audit_table.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

enum { NAMES_KEPT = 3 };

void audit_table_init(struct audit_table *table)
{
    *table = (struct audit_table){0};
}

void audit_table_fini(struct audit_table *table)
{
    for (size_t i = 0; i < table->suffix_count; i++)
        free(table->suffixes[i].text);
    free(table->suffixes);
    free(table->slots);
    free(table->files);
    list_fini(&table->malformed_names);
    list_fini(&table->folders);
    audit_table_init(table);
}

/* Keeps the first few names in byte order, whatever the order they come in. */
static void keep_name(struct list *list, const char *name)
{
    size_t place = list->count;
    while (place > 0 && strcmp(list->items[place - 1], name) > 0)
        place--;
    if (place == NAMES_KEPT)
        return;
    if (list->count < NAMES_KEPT) {
        list_add(list, name);
    } else {
        free(list->items[list->count - 1]);
        list->items[list->count - 1] = memory_copy(name);
    }
    char *moved = list->items[list->count - 1];
    memmove(list->items + place + 1, list->items + place, (list->count - 1 - place) * sizeof *list->items);
    list->items[place] = moved;
}

static uint64_t hash(const char *text)
{
    uint64_t value = hash_text(HASH_BEGIN, text);
    return value ^ value >> 29;
}

static void insert_slot(struct audit_table *table, uint32_t number)
{
    size_t slot = (size_t)hash(table->suffixes[number].text) & (table->slot_count - 1);
    while (table->slots[slot] != 0)
        slot = (slot + 1) & (table->slot_count - 1);
    table->slots[slot] = number + 1;
}

static void grow_slots(struct audit_table *table)
{
    table->slot_count = table->slot_count == 0 ? 1024 : 2 * table->slot_count;
    free(table->slots);
    table->slots = memory_new(table->slot_count * sizeof *table->slots);
    for (size_t i = 0; i < table->suffix_count; i++)
        insert_slot(table, (uint32_t)i);
}

static uint32_t find_suffix(struct audit_table *table, const struct dump_name *name)
{
    if (2 * (table->suffix_count + 1) > table->slot_count)
        grow_slots(table);
    size_t slot = (size_t)hash(name->suffix.at) & (table->slot_count - 1);
    for (; table->slots[slot] != 0; slot = (slot + 1) & (table->slot_count - 1))
        if (strcmp(table->suffixes[table->slots[slot] - 1].text, name->suffix.at) == 0)
            return table->slots[slot] - 1;
    if (table->suffix_count == table->suffix_capacity) {
        table->suffix_capacity = table->suffix_capacity == 0 ? 256 : 2 * table->suffix_capacity;
        table->suffixes = memory_resize(table->suffixes, table->suffix_capacity, sizeof *table->suffixes);
    }
    size_t hook = name->hook ? strlen("non_intrusive__") : 0;
    table->suffixes[table->suffix_count] = (struct audit_table_suffix){
        .text = memory_copy(name->suffix.at),
        .name_offset = (size_t)(name->name.at - name->suffix.at) + hook,
        .name_length = name->name.length - hook,
        .core = name->core,
        .hook = name->hook,
        .word = name->word,
        .has_layer = name->has_layer,
        .layer = name->layer,
        .has_layer_tag = name->has_layer_tag,
    };
    table->slots[slot] = (uint32_t)table->suffix_count + 1;
    return (uint32_t)table->suffix_count++;
}

static enum error_code add(struct audit_table *table, const char *file_name, struct error *err)
{
    struct dump_name name;
    if (dump_name_parse(file_name, &name, NULL) != ERROR_NONE) {
        table->malformed++;
        keep_name(&table->malformed_names, file_name);
        return ERROR_NONE;
    }
    if (table->file_count == AUDIT_TABLE_FILES_MAX)
        return error_set(err, ERROR_TOO_LARGE, "more than %d dump files in one folder", AUDIT_TABLE_FILES_MAX);
    if (table->file_count == table->file_capacity) {
        size_t capacity = table->file_capacity == 0 ? 1024 : table->file_capacity + table->file_capacity / 2;
        struct audit_table_file *files = realloc(table->files, capacity * sizeof *files);
        if (files == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for the names of %zu files", capacity);
        table->files = files;
        table->file_capacity = capacity;
    }
    table->files[table->file_count++] = (struct audit_table_file){
        .step = name.step, .dump_index = name.dump_index, .rank = name.rank, .suffix = find_suffix(table, &name)};
    return ERROR_NONE;
}

enum error_code audit_table_read(struct audit_table *table, int folder_fd, struct error *err)
{
    /* A new open: a duplicate would share its place in the folder with the caller's descriptor. */
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        int cause = errno;
        if (fd >= 0)
            close(fd);
        return error_set_errno(err, ERROR_SYSTEM, cause, "cannot list the folder");
    }
    enum error_code code = ERROR_NONE;
    while (code == ERROR_NONE) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            if (errno != 0)
                code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot list the folder");
            break;
        }
        if (dump_name_is_candidate(entry->d_name))
            code = add(table, entry->d_name, err);
        else if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            keep_name(&table->folders, entry->d_name);
    }
    closedir(folder);
    return code;
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_name(const struct audit_table_file *a, const struct audit_table_file *b, const struct audit_table *table)
{
    return a->suffix == b->suffix ? 0 : strcmp(table->suffixes[a->suffix].text, table->suffixes[b->suffix].text);
}

static int by_index(const void *a, const void *b, void *table)
{
    const struct audit_table_file *x = a, *y = b;
    int order = compare(x->rank, y->rank);
    order = order != 0 ? order : compare(x->dump_index, y->dump_index);
    order = order != 0 ? order : compare(x->step, y->step);
    return order != 0 ? order : by_name(x, y, table);
}

static int by_step(const void *a, const void *b, void *table)
{
    const struct audit_table_file *x = a, *y = b;
    int order = compare(x->rank, y->rank);
    order = order != 0 ? order : compare(x->step, y->step);
    order = order != 0 ? order : compare(x->dump_index, y->dump_index);
    return order != 0 ? order : by_name(x, y, table);
}

void audit_table_sort_by_index(struct audit_table *table)
{
    if (table->file_count > 0)
        qsort_r(table->files, table->file_count, sizeof *table->files, by_index, table);
}

void audit_table_sort_by_step(struct audit_table *table)
{
    if (table->file_count > 0)
        qsort_r(table->files, table->file_count, sizeof *table->files, by_step, table);
}

const char *audit_table_name(const struct audit_table *table, const struct audit_table_file *file, char *buffer)
{
    snprintf(buffer, AUDIT_TABLE_NAME, "step=%" PRIu64 "___rank=%" PRIu32 "___dump_index=%" PRIu64 "___%s", file->step,
             file->rank, file->dump_index, table->suffixes[file->suffix].text);
    return buffer;
}

const char *audit_table_describe(const struct audit_table *table, const struct audit_table_file *file, char *buffer)
{
    const struct audit_table_suffix *suffix = &table->suffixes[file->suffix];
    int length = snprintf(buffer, AUDIT_TABLE_NAME, "step %" PRIu64 " rank %" PRIu32 " dump_index %" PRIu64 " ",
                          file->step, file->rank, file->dump_index);
    text_clean(suffix->text + suffix->name_offset, suffix->name_length, buffer + length,
               AUDIT_TABLE_NAME - (size_t)length);
    return buffer;
}
