/* kldumpctl show FILE */
#include "base/memory.h"
#include "base/size.h"
#include "ctl/inspect.h"
#include "pt/pt_npy.h"
#include "pt/pt_summary.h"
#include "sglang/dump_name.h"
#include "sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LABEL_WIDTH = 12,
    FIRST_ELEMENTS = 8,
    TEXTS_SHOWN = 8,
};

static const char *const kinds[] = {
    [PT_FILE_TENSOR] = "tensor", [PT_FILE_TEXTS] = "texts", [PT_FILE_NUMBER] = "number",
    [PT_FILE_TEXT] = "text",     [PT_FILE_NONE] = "none",   [PT_FILE_OTHER] = "other",
};

int inspect_status(const struct pt_file *file, const struct error *err)
{
    switch (pt_file_problem(file)) {
    case PT_FILE_SUSPICIOUS:
    case PT_FILE_UNSUPPORTED:
    case PT_FILE_PICKLE:
    case PT_FILE_GEOMETRY:
        return STATUS_REFUSED_FILE;
    case PT_FILE_ARCHIVE:
        return pt_file_zip_problem(file) == PT_ZIP_FOREIGN || pt_file_zip_problem(file) == PT_ZIP_LEGACY
                   ? STATUS_REFUSED_FILE
                   : STATUS_INCOMPLETE;
    case PT_FILE_IRREGULAR:
        return STATUS_REFUSED_FILE;
    default:
        return (int)error_status(err->code);
    }
}

void inspect_numbers(struct buffer *out, const uint64_t *numbers, unsigned count)
{
    buffer_text(out, "[");
    for (unsigned i = 0; i < count; i++)
        buffer_format(out, "%s%" PRIu64, i == 0 ? "" : ", ", numbers[i]);
    buffer_text(out, "]");
}

/* All that is shown, read before a word is printed: a file that fails half way is a failure. */
struct contents {
    struct pt_file *file;
    const struct pt_file_tensor *tensor; /* NULL: none */
    const struct pt_pickle *pickle;
    uint32_t value, meta;
    bool summed; /* `summary` is there: not of a tensor that was expanded beyond measure */
    struct pt_summary summary;
    struct list first;        /* elements, as text */
    const char *disagreement; /* a tag of the file's name that meta has otherwise; NULL: none */
    bool recorded;            /* with --verify: there are checksums, and they fit */
};

static enum error_code read_first(struct contents *contents, struct error *err)
{
    const struct pt_file_tensor *tensor = contents->tensor;
    uint64_t count = tensor->elements < FIRST_ELEMENTS ? tensor->elements : FIRST_ELEMENTS;
    const void *elements;
    enum error_code code = pt_file_elements(contents->file, 0, count, &elements, err);
    for (uint64_t i = 0; code == ERROR_NONE && i < count; i++) {
        char text[PT_DTYPE_TEXT];
        list_add(&contents->first,
                 pt_dtype_text(tensor->dtype, (const char *)elements + i * pt_dtype_bytes(tensor->dtype), text));
    }
    return code;
}

/* meta is what counts; a name that says otherwise was given to the file later. */
static const char *find_disagreement(const struct pt_file *file, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct dump_name name;
    if (dump_name_parse(slash != NULL ? slash + 1 : path, &name, NULL) != ERROR_NONE)
        return NULL;
    int64_t number;
    const char *text;
    if (pt_file_meta_integer(file, "step", &number) && (uint64_t)number != name.step)
        return "step";
    if (pt_file_meta_integer(file, "rank", &number) && (uint64_t)number != name.rank)
        return "rank";
    if (pt_file_meta_integer(file, "dump_index", &number) && (uint64_t)number != name.dump_index)
        return "dump_index";
    if (pt_file_meta_text(file, "name", &text) &&
        (strlen(text) != name.name.length || memcmp(text, name.name.at, name.name.length) != 0))
        return "name";
    return NULL;
}

static enum error_code read_contents(struct contents *contents, const struct inspect_options *options, const char *path,
                                     struct error *err)
{
    enum error_code code = pt_file_open(contents->file, AT_FDCWD, path, err);
    if (code == ERROR_NONE && options->verify)
        code = pt_file_verify(contents->file, &contents->recorded, err);
    if (code != ERROR_NONE)
        return code;
    contents->tensor = pt_file_tensor(contents->file);
    contents->pickle = pt_file_pickle(contents->file, &contents->value, &contents->meta);
    contents->disagreement = find_disagreement(contents->file, path);
    if (contents->tensor == NULL)
        return ERROR_NONE;
    contents->summed = !pt_summary_is_inflated(contents->tensor);
    if (contents->summed)
        code = pt_summary_read(contents->file, &contents->summary, err);
    return code != ERROR_NONE ? code : read_first(contents, err);
}

/* ---- for people ---- */

static void print_numbers(struct output *out, const char *label, const uint64_t *numbers, unsigned count,
                          const char *more)
{
    struct buffer text;
    buffer_init(&text);
    inspect_numbers(&text, numbers, count);
    output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s%s", text.data, more);
    buffer_fini(&text);
}

static void print_summary(struct output *out, const struct contents *contents)
{
    const struct pt_summary *summary = &contents->summary;
    if (!contents->summed) {
        output_pair(out, LABEL_WIDTH, "statistics", OUTPUT_PLAIN,
                    "not taken: a small storage is expanded to %" PRIu64 " elements", contents->tensor->elements);
        return;
    }
    if (summary->numbers == 0)
        return;
    output_pair(out, LABEL_WIDTH, "statistics", OUTPUT_PLAIN, "min %.9g  max %.9g  mean %.9g  RMS %.9g", summary->min,
                summary->max, summary->mean, summary->rms);
    output_pair(out, LABEL_WIDTH, "", summary->nans + summary->infinities > 0 ? OUTPUT_RED : OUTPUT_PLAIN,
                "%" PRIu64 " NaN, %" PRIu64 " infinite, %" PRIu64 " zero of %" PRIu64, summary->nans,
                summary->infinities, summary->zeros, summary->numbers);
}

static void print_tensor(struct output *out, const struct contents *contents)
{
    const struct pt_file_tensor *tensor = contents->tensor;
    char size[SIZE_TEXT];
    output_pair(out, LABEL_WIDTH, "dtype", OUTPUT_PLAIN, "%s", pt_dtype_name(tensor->dtype));
    print_numbers(out, "shape", tensor->size, tensor->rank, tensor->rank == 0 ? " (one element)" : "");
    print_numbers(out, "strides", tensor->stride, tensor->rank, tensor->contiguous ? "" : " (not in row-major order)");
    output_pair(out, LABEL_WIDTH, "storage", OUTPUT_PLAIN,
                "key %s of %s, %s at byte %" PRIu64 ", from element %" PRIu64, tensor->storage_key, tensor->location,
                size_text(tensor->storage_bytes, size), tensor->storage_position, tensor->offset);
    if (tensor->conjugate || tensor->negative)
        output_pair(out, LABEL_WIDTH, "lazy", OUTPUT_PLAIN, "%s%s", tensor->conjugate ? "conjugate " : "",
                    tensor->negative ? "negative" : "");
    print_summary(out, contents);
    struct buffer text;
    buffer_init(&text);
    for (size_t i = 0; i < contents->first.count; i++)
        buffer_format(&text, "%s%s", i == 0 ? "" : "  ", contents->first.items[i]);
    if (tensor->elements > contents->first.count)
        buffer_text(&text, "  ...");
    if (contents->first.count > 0)
        output_pair(out, LABEL_WIDTH, "elements", OUTPUT_PLAIN, "%s", text.data);
    buffer_fini(&text);
}

static void print_meta(struct output *out, const struct contents *contents)
{
    const struct pt_pickle *pickle = contents->pickle;
    const struct pt_pickle_node *meta = pt_pickle_node(pickle, contents->meta);
    if (contents->meta == PT_PICKLE_NONE || meta->kind != PT_PICKLE_DICT)
        return;
    output_text(out, "\nmeta\n");
    struct buffer key, value;
    buffer_init(&key);
    buffer_init(&value);
    size_t width = 0;
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t cell = meta->items.first; cell != 0;) {
            const struct pt_pickle_cell *name = &pickle->cells[cell], *held = &pickle->cells[name->next];
            buffer_clear(&key);
            buffer_clear(&value);
            buffer_text(&key, "  ");
            inspect_tree_text(pickle, name->node, &key);
            inspect_tree_text(pickle, held->node, &value);
            if (turn == 0 && key.length + 2 > width)
                width = key.length + 2;
            if (turn == 1)
                output_pair(out, width, key.data, OUTPUT_PLAIN, "%s", value.data);
            cell = held->next;
        }
    buffer_fini(&key);
    buffer_fini(&value);
}

static void print_contents(struct output *out, const char *path, const struct contents *contents,
                           const struct inspect_options *options)
{
    char size[SIZE_TEXT];
    output_pair(out, LABEL_WIDTH, "file", OUTPUT_PLAIN, "%s", path);
    output_pair(out, LABEL_WIDTH, "value", OUTPUT_PLAIN, "%s%s, a file of %s", kinds[pt_file_kind(contents->file)],
                pt_file_bare(contents->file) ? ", saved alone, without meta" : "",
                size_text(pt_file_size(contents->file), size));
    if (contents->tensor != NULL) {
        print_tensor(out, contents);
    } else {
        struct buffer text;
        buffer_init(&text);
        inspect_tree_text(contents->pickle, contents->value, &text);
        output_pair(out, LABEL_WIDTH, "is", OUTPUT_PLAIN, "%s", text.data);
        buffer_fini(&text);
    }
    if (options->verify)
        output_pair(out, LABEL_WIDTH, "checksums", OUTPUT_PLAIN, "%s",
                    contents->recorded ? "fit" : "none are recorded");
    if (contents->disagreement != NULL)
        output_pair(out, LABEL_WIDTH, "note", OUTPUT_YELLOW,
                    "the file's name has another %s than its meta, which counts", contents->disagreement);
    if (contents->pickle->opaque != PT_PICKLE_NONE) {
        char name[200];
        output_pair(out, LABEL_WIDTH, "note", OUTPUT_YELLOW, "the file names the class %s, which is not looked into",
                    pt_pickle_global_name(contents->pickle, pt_pickle_node(contents->pickle, contents->pickle->opaque),
                                          name, sizeof name));
    }
    print_meta(out, contents);
}

/* ---- for programs ---- */

static void set_numbers(struct json *object, const char *key, const uint64_t *numbers, unsigned count)
{
    struct json *array = json_set_array(object, key);
    for (unsigned i = 0; i < count; i++)
        json_append_u64(array, numbers[i]);
}

static void set_tensor(struct json *object, const struct contents *contents)
{
    const struct pt_file_tensor *tensor = contents->tensor;
    json_set_string(object, "dtype", pt_dtype_name(tensor->dtype));
    set_numbers(object, "shape", tensor->size, tensor->rank);
    set_numbers(object, "strides", tensor->stride, tensor->rank);
    json_set_u64(object, "elements", tensor->elements);
    json_set_bool(object, "contiguous", tensor->contiguous);
    json_set_bool(object, "conjugate", tensor->conjugate);
    json_set_bool(object, "negative", tensor->negative);
    struct json *storage = json_set_object(object, "storage");
    json_set_string(storage, "key", tensor->storage_key);
    json_set_string(storage, "location", tensor->location);
    json_set_u64(storage, "bytes", tensor->storage_bytes);
    json_set_u64(storage, "position", tensor->storage_position);
    json_set_u64(storage, "offset_elements", tensor->offset);
    if (contents->summed) {
        const struct pt_summary *summary = &contents->summary;
        struct json *statistics = json_set_object(object, "statistics");
        json_set_double(statistics, "min", summary->min);
        json_set_double(statistics, "max", summary->max);
        json_set_double(statistics, "mean", summary->mean);
        json_set_double(statistics, "rms", summary->rms);
        json_set_u64(statistics, "nans", summary->nans);
        json_set_u64(statistics, "infinities", summary->infinities);
        json_set_u64(statistics, "zeros", summary->zeros);
        json_set_u64(statistics, "numbers", summary->numbers);
    }
    json_set_list(object, "first", &contents->first);
}

static void print_json(struct output *out, const char *path, const struct contents *contents,
                       const struct inspect_options *options)
{
    struct json *object = json_object();
    json_set_string(object, "schema", "kldump.show/1");
    json_set_string(object, "file", path);
    json_set_u64(object, "bytes", pt_file_size(contents->file));
    json_set_string(object, "kind", kinds[pt_file_kind(contents->file)]);
    bool whole = true;
    if (contents->tensor != NULL)
        set_tensor(object, contents);
    else
        whole = inspect_tree_set(object, "value", contents->pickle, contents->value);
    if (contents->meta != PT_PICKLE_NONE)
        whole = inspect_tree_set(object, "meta", contents->pickle, contents->meta) && whole;
    if (!whole)
        json_set_bool(object, "truncated", true);
    if (options->verify)
        json_set_string(object, "checksums", contents->recorded ? "fit" : "not-recorded");
    if (contents->disagreement != NULL)
        json_set_string(object, "name_disagrees", contents->disagreement);
    output_json(out, object);
    json_free(object);
}

/* ---- .npy ---- */

/* Standard output, or a file that is replaced whole. */
struct destination {
    bool standard;
    struct file_replacement replacement;
};

static enum error_code put(struct destination *to, const void *bytes, size_t length, struct error *err)
{
    if (!to->standard)
        return file_replace_write(&to->replacement, bytes, length, err);
    return output_write_all(STDOUT_FILENO, bytes, length)
               ? ERROR_NONE
               : error_set_errno(err, ERROR_SYSTEM, errno, "cannot write to standard output");
}

static enum error_code put_elements(struct destination *to, struct pt_file *file, struct error *err)
{
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    size_t width = pt_dtype_bytes(tensor->dtype);
    uint64_t most = PT_FILE_WINDOW / width;
    struct buffer header;
    buffer_init(&header);
    pt_npy_header(tensor, &header);
    enum error_code code = put(to, header.data, header.length, err);
    buffer_fini(&header);
    for (uint64_t first = 0; code == ERROR_NONE && first < tensor->elements;) {
        uint64_t count = tensor->elements - first < most ? tensor->elements - first : most;
        const void *elements;
        code = pt_file_elements(file, first, count, &elements, err);
        if (code == ERROR_NONE)
            code = put(to, elements, (size_t)count * width, err);
        first += count;
    }
    return code;
}

static enum error_code write_npy(const struct contents *contents, const char *path, struct error *err)
{
    const struct pt_file_tensor *tensor = contents->tensor;
    if (tensor == NULL)
        return error_set(err, ERROR_USAGE, "--npy: the value is no tensor but %s", kinds[pt_file_kind(contents->file)]);
    if (!contents->summed)
        return error_set(err, ERROR_TOO_LARGE,
                         "--npy: %" PRIu64 " elements that are expanded from a storage of %" PRIu64
                         " bytes; they are not written out",
                         tensor->elements, tensor->storage_bytes);
    struct destination to = {.standard = strcmp(path, "-") == 0};
    if (to.standard)
        return put_elements(&to, contents->file, err);
    enum error_code code = file_replace_begin(path, 0666, &to.replacement, err);
    if (code != ERROR_NONE)
        return code;
    code = put_elements(&to, contents->file, err);
    if (code == ERROR_NONE)
        return file_replace_commit(&to.replacement, FILE_NO_SYNC, err);
    file_replace_abandon(&to.replacement);
    return code;
}

static void print_written(struct output *out, const struct contents *contents, const char *path)
{
    const struct pt_file_tensor *tensor = contents->tensor;
    struct buffer shape;
    buffer_init(&shape);
    inspect_numbers(&shape, tensor->size, tensor->rank);
    output_safe(out, OUTPUT_PLAIN, path);
    output_format(out, ": %s %s%s%s\n", pt_dtype_name(tensor->dtype), shape.data,
                  pt_dtype_numpy(tensor->dtype) == NULL ? ", as its bits: " : "",
                  pt_dtype_numpy(tensor->dtype) == NULL ? pt_npy_type(tensor->dtype) : "");
    buffer_fini(&shape);
}

int inspect_file(const struct command *command, struct output *out, const char *path,
                 const struct inspect_options *options)
{
    struct error err = ERROR_INIT;
    struct contents contents = {.file = pt_file_new()};
    int status = STATUS_DONE;
    if (read_contents(&contents, options, path, &err) != ERROR_NONE) {
        command_fail(command, &err);
        status = inspect_status(contents.file, &err);
    } else if (options->npy != NULL && write_npy(&contents, options->npy, &err) != ERROR_NONE) {
        status = command_fail(command, &err);
    } else if (options->as_json) {
        print_json(out, path, &contents, options);
    } else if (options->npy == NULL) {
        print_contents(out, path, &contents, options);
    } else if (strcmp(options->npy, "-") != 0) {
        print_written(out, &contents, options->npy);
    }
    list_fini(&contents.first);
    pt_file_free(contents.file);
    return status;
}
