/* kldumpctl show DIR: which observations exist in which steps and ranks, with their shapes. */
#include "analysis/audit_table.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/inspect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 7,
    RANGES_SHOWN = 4, /* of steps or ranks in a cell */
    SLOTS_MIN = 256,
    PENDING_BYTES = 65536, /* of lines that are written together */
};

/* A row of the table: the files of one name that hold the same type and shape. */
struct group {
    uint32_t suffix;
    char *type, *shape;
    uint64_t files, bytes;
    uint32_t name_order; /* of the first file with this name */
    uint32_t order;      /* of the first file of this row */
    int status;
};

/* Where the files of the rows were. */
struct place {
    uint32_t group, rank;
    uint64_t step;
};

struct listing {
    struct audit_table table;
    int fd;
    struct pt_file *file;
    struct group *groups;
    size_t group_count, group_capacity;
    uint32_t *slots; /* hash of the rows: number + 1 */
    size_t slot_count;
    uint32_t *name_orders; /* of suffixes: order + 1; 0: not met yet */
    struct place *places;
    int status; /* of the worst file */
};

/* ---- one file ---- */

static const char *const zip_words[] = {
    [PT_ZIP_FINE] = "damaged",          [PT_ZIP_EMPTY] = "empty",          [PT_ZIP_TRUNCATED] = "cut short",
    [PT_ZIP_FOREIGN] = "no torch file", [PT_ZIP_LEGACY] = "legacy format", [PT_ZIP_DAMAGED] = "damaged",
    [PT_ZIP_UNREADABLE] = "unreadable",
};

static const char *const problem_words[] = {
    [PT_FILE_MISSING] = "gone",          [PT_FILE_IRREGULAR] = "no regular file", [PT_FILE_UNREADABLE] = "unreadable",
    [PT_FILE_PICKLE] = "bad pickle",     [PT_FILE_SUSPICIOUS] = "SUSPICIOUS",     [PT_FILE_UNSUPPORTED] = "unsupported",
    [PT_FILE_GEOMETRY] = "bad geometry",
};

static const char *const kind_words[] = {
    [PT_FILE_TEXTS] = "texts", [PT_FILE_NUMBER] = "number", [PT_FILE_TEXT] = "text",
    [PT_FILE_NONE] = "none",   [PT_FILE_OTHER] = "other",
};

static const char *problem_word(const struct pt_file *file)
{
    enum pt_file_problem problem = pt_file_problem(file);
    return problem == PT_FILE_ARCHIVE ? zip_words[pt_file_zip_problem(file)] : problem_words[problem];
}

/* What the cells TYPE and SHAPE say of the open file. */
static const char *describe_value(const struct pt_file *file, struct buffer *shape)
{
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    buffer_clear(shape);
    if (tensor != NULL) {
        inspect_numbers(shape, tensor->size, tensor->rank);
        return pt_dtype_name(tensor->dtype);
    }
    if (pt_file_kind(file) == PT_FILE_TEXTS) {
        uint32_t value, meta;
        const struct pt_pickle *pickle = pt_file_pickle(file, &value, &meta);
        buffer_format(shape, "[%" PRIu32 "]", pt_pickle_node(pickle, value)->items.count);
    }
    return kind_words[pt_file_kind(file)];
}

/* ---- rows ---- */

static uint32_t hash(uint32_t suffix, const char *type, const char *shape)
{
    uint32_t value = 2166136261U ^ suffix;
    for (int turn = 0; turn < 2; turn++)
        for (const char *p = turn == 0 ? type : shape; *p != '\0'; p++)
            value = (value ^ (unsigned char)*p) * 16777619U;
    return value;
}

static void grow(struct listing *listing)
{
    size_t count = listing->slot_count == 0 ? SLOTS_MIN : 2 * listing->slot_count;
    free(listing->slots);
    listing->slots = memory_new(count * sizeof *listing->slots);
    listing->slot_count = count;
    for (uint32_t i = 0; i < listing->group_count; i++) {
        const struct group *group = &listing->groups[i];
        size_t slot = hash(group->suffix, group->type, group->shape) & (count - 1);
        while (listing->slots[slot] != 0)
            slot = (slot + 1) & (count - 1);
        listing->slots[slot] = i + 1;
    }
}

static uint32_t find_group(struct listing *listing, uint32_t suffix, const char *type, const char *shape,
                           uint32_t order)
{
    if (2 * (listing->group_count + 1) > listing->slot_count)
        grow(listing);
    size_t slot = hash(suffix, type, shape) & (listing->slot_count - 1);
    for (; listing->slots[slot] != 0; slot = (slot + 1) & (listing->slot_count - 1)) {
        const struct group *group = &listing->groups[listing->slots[slot] - 1];
        if (group->suffix == suffix && strcmp(group->type, type) == 0 && strcmp(group->shape, shape) == 0)
            return listing->slots[slot] - 1;
    }
    if (listing->group_count == listing->group_capacity) {
        listing->group_capacity = 2 * listing->group_capacity + 64;
        listing->groups = memory_resize(listing->groups, listing->group_capacity, sizeof *listing->groups);
    }
    if (listing->name_orders[suffix] == 0)
        listing->name_orders[suffix] = order + 1;
    listing->groups[listing->group_count] = (struct group){.suffix = suffix,
                                                           .type = memory_copy(type),
                                                           .shape = memory_copy(shape),
                                                           .name_order = listing->name_orders[suffix],
                                                           .order = order};
    listing->slots[slot] = (uint32_t)++listing->group_count;
    return (uint32_t)listing->group_count - 1;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* ---- cells ---- */

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* "0, 3-17, 20": sorts the numbers. */
static void add_ranges(struct list *cells, uint64_t *numbers, size_t count)
{
    struct buffer text;
    buffer_init(&text);
    qsort(numbers, count, sizeof *numbers, by_number);
    unsigned ranges = 0;
    for (size_t i = 0; i < count;) {
        size_t last = i;
        while (last + 1 < count && numbers[last + 1] <= numbers[last] + 1)
            last++;
        if (ranges++ == RANGES_SHOWN) {
            buffer_text(&text, ", ...");
            break;
        }
        buffer_format(&text, "%s%" PRIu64, i == 0 ? "" : ", ", numbers[i]);
        if (numbers[last] != numbers[i])
            buffer_format(&text, "-%" PRIu64, numbers[last]);
        i = last + 1;
    }
    list_add(cells, text.data);
    buffer_fini(&text);
}

static void add_row(struct list *cells, const struct listing *listing, const struct group *group,
                    const struct place *places, uint64_t *numbers)
{
    const struct audit_table_suffix *suffix = &listing->table.suffixes[group->suffix];
    char name[AUDIT_TABLE_NAME], size[SIZE_TEXT];
    list_add(cells, text_clean(suffix->text + suffix->name_offset, suffix->name_length, name, sizeof name));
    list_add(cells, group->type);
    list_add(cells, group->shape);
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; i < group->files; i++)
            numbers[i] = turn == 0 ? places[i].step : places[i].rank;
        add_ranges(cells, numbers, (size_t)group->files);
    }
    list_add_format(cells, "%" PRIu64, group->files);
    list_add(cells, size_text(group->bytes, size));
}

static int by_name(const void *a, const void *b)
{
    const struct group *const *x = a, *const *y = b;
    if ((*x)->name_order != (*y)->name_order)
        return (*x)->name_order < (*y)->name_order ? -1 : 1;
    return ((*x)->order > (*y)->order) - ((*x)->order < (*y)->order);
}

static void print_table(struct output *out, struct listing *listing)
{
    static const char *const headings[COLUMNS] = {"NAME", "DTYPE", "SHAPE", "STEPS", "RANKS", ">FILES", ">SIZE"};
    size_t count = listing->group_count;
    qsort(listing->places, listing->table.file_count, sizeof *listing->places, by_place);
    const struct group **order = memory_new((count + 1) * sizeof *order);
    const struct place **starts = memory_new((count + 1) * sizeof *starts);
    enum output_style *styles = memory_new((count + 1) * sizeof *styles);
    uint64_t *numbers = memory_new((listing->table.file_count + 1) * sizeof *numbers);
    const struct place *start = listing->places;
    for (size_t i = 0; i < count; i++) {
        order[i] = &listing->groups[i];
        starts[i] = start;
        start += listing->groups[i].files;
    }
    qsort(order, count, sizeof *order, by_name);
    struct list cells = {0};
    for (size_t i = 0; i < count; i++) {
        add_row(&cells, listing, order[i], starts[order[i] - listing->groups], numbers);
        styles[i] = order[i]->status == STATUS_DONE ? OUTPUT_PLAIN : OUTPUT_RED;
    }
    output_table(out, COLUMNS, headings, count, (const char *const *)list_vector(&cells), styles);
    list_fini(&cells);
    free(numbers);
    free(styles);
    free(starts);
    free(order);
}

static void print_notes(struct output *out, const struct listing *listing)
{
    const struct audit_table *table = &listing->table;
    if (table->malformed > 0) {
        output_format(out, "%" PRIu64 " more .pt file%s with names that SGLang's dumper does not give, such as ",
                      table->malformed, table->malformed == 1 ? "" : "s");
        output_safe(out, OUTPUT_PLAIN, table->malformed_names.items[0]);
        output_text(out, "\n");
    }
    if (table->file_count > 0)
        return;
    output_text(out, "no files of SGLang's dumper");
    if (table->folders.count > 0) {
        output_text(out, "; there are folders in it, such as ");
        output_safe(out, OUTPUT_PLAIN, table->folders.items[0]);
    }
    output_text(out, "\n");
}

/* ---- JSON ---- */

static void print_line(struct output *out, const struct listing *listing, const struct audit_table_file *entry,
                       const char *name, const struct error *err)
{
    const struct audit_table_suffix *suffix = &listing->table.suffixes[entry->suffix];
    struct json *object = json_object();
    json_set_string(object, "schema", "kldump.show/1");
    json_set_string(object, "file", name);
    json_set_u64(object, "step", entry->step);
    json_set_u64(object, "rank", entry->rank);
    json_set_u64(object, "dump_index", entry->dump_index);
    json_set_bytes(object, "name", suffix->text + suffix->name_offset, suffix->name_length);
    if (suffix->has_layer)
        json_set_u64(object, "layer", suffix->layer);
    json_set_u64(object, "bytes", pt_file_size(listing->file));
    const struct pt_file_tensor *tensor = pt_file_tensor(listing->file);
    if (err != NULL) {
        json_set_string(object, "problem", problem_word(listing->file));
        json_set_string(object, "error", err->message);
    } else {
        json_set_string(object, "kind", tensor != NULL ? "tensor" : kind_words[pt_file_kind(listing->file)]);
    }
    if (tensor != NULL) {
        json_set_string(object, "dtype", pt_dtype_name(tensor->dtype));
        struct json *shape = json_set_array(object, "shape");
        for (unsigned i = 0; i < tensor->rank; i++)
            json_append_u64(shape, tensor->size[i]);
    }
    output_json(out, object);
    json_free(object);
}

/* ---- the folder ---- */

static void look(struct listing *listing, struct output *out, uint32_t order, struct buffer *shape, bool as_json)
{
    const struct audit_table_file *entry = &listing->table.files[order];
    char name[AUDIT_TABLE_NAME];
    struct error err = ERROR_INIT;
    const char *type;
    int status = STATUS_DONE;
    audit_table_name(&listing->table, entry, name);
    if (pt_file_open(listing->file, listing->fd, name, &err) == ERROR_NONE) {
        type = describe_value(listing->file, shape);
    } else {
        type = problem_word(listing->file);
        buffer_clear(shape);
        status = inspect_status(listing->file, &err) == STATUS_REFUSED_FILE ? STATUS_REFUSED_FILE : STATUS_INCOMPLETE;
    }
    if (status > listing->status)
        listing->status = status;
    if (as_json) {
        print_line(out, listing, entry, name, status == STATUS_DONE ? NULL : &err);
        if (out->pending.length > PENDING_BYTES)
            output_flush(out, NULL);
        return;
    }
    uint32_t number = find_group(listing, entry->suffix, type, shape->data, order);
    struct group *group = &listing->groups[number];
    group->status = status;
    group->files++;
    group->bytes += pt_file_size(listing->file);
    listing->places[order] = (struct place){.group = number, .rank = entry->rank, .step = entry->step};
}

static void finish(struct listing *listing)
{
    for (size_t i = 0; i < listing->group_count; i++) {
        free(listing->groups[i].type);
        free(listing->groups[i].shape);
    }
    free(listing->groups);
    free(listing->slots);
    free(listing->name_orders);
    free(listing->places);
    pt_file_free(listing->file);
    audit_table_fini(&listing->table);
}

int inspect_folder(const struct command *command, struct output *out, int fd, const struct inspect_options *options)
{
    struct listing listing = {.fd = fd, .status = STATUS_DONE};
    struct error err = ERROR_INIT;
    struct buffer shape;
    audit_table_init(&listing.table);
    if (audit_table_read(&listing.table, fd, &err) != ERROR_NONE) {
        audit_table_fini(&listing.table);
        return command_fail(command, &err);
    }
    audit_table_sort_by_index(&listing.table);
    listing.file = pt_file_new();
    listing.name_orders = memory_new((listing.table.suffix_count + 1) * sizeof *listing.name_orders);
    listing.places = memory_new((listing.table.file_count + 1) * sizeof *listing.places);
    buffer_init(&shape);
    for (size_t i = 0; i < listing.table.file_count && !out->closed; i++)
        look(&listing, out, (uint32_t)i, &shape, options->as_json);
    buffer_fini(&shape);
    if (!options->as_json && !out->closed) {
        if (listing.table.file_count > 0)
            print_table(out, &listing);
        print_notes(out, &listing);
    }
    int status = listing.table.file_count == 0 ? STATUS_INCOMPLETE : listing.status;
    finish(&listing);
    return status;
}
