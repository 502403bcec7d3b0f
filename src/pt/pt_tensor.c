#include "pt/pt_tensor.h"

#include <inttypes.h>
#include <string.h>

enum { WRAPPERS_MAX = 8, TENSOR_ARGUMENTS = 6 };

struct reader {
    const struct pt_pickle *pickle;
    enum pt_file_problem problem;
    struct error *err;
};

static enum error_code at_node(const struct reader *reader, const struct pt_pickle_node *node)
{
    error_prefix(reader->err, "pickle at byte %" PRIu64, reader->pickle->file_position + node->position);
    return ERROR_FORMAT;
}

/* Fails with a problem and a message that gets the node's byte position. */
#define FAIL(reader, what, node, ...) \
    ((reader)->problem = (what), error_set((reader)->err, ERROR_FORMAT, __VA_ARGS__), at_node((reader), (node)))

bool pt_tensor_is(const struct pt_pickle_node *node)
{
    return node->kind == PT_PICKLE_CALL &&
           (node->meaning == PT_PICKLE_MEANS_TENSOR_V2 || node->meaning == PT_PICKLE_MEANS_TENSOR_V3 ||
            node->meaning == PT_PICKLE_MEANS_PARAMETER || node->meaning == PT_PICKLE_MEANS_FROM_TYPE);
}

/* Item `index` of a tuple of arguments; a node that is None where there are fewer. */
static const struct pt_pickle_node *argument(const struct reader *reader, const struct pt_pickle_node *tuple,
                                             uint32_t index)
{
    static const struct pt_pickle_node nothing = {.kind = PT_PICKLE_NOTHING};
    uint32_t number = pt_pickle_item(reader->pickle, tuple, index);
    return number == PT_PICKLE_NONE ? &nothing : pt_pickle_node(reader->pickle, number);
}

/* What a node names; "something else" where it is no global. */
static const char *name_of(const struct reader *reader, const struct pt_pickle_node *node, char *out, size_t size)
{
    if (node->kind != PT_PICKLE_GLOBAL && node->kind != PT_PICKLE_CALL && node->kind != PT_PICKLE_OPAQUE)
        return "something else";
    return pt_pickle_global_name(reader->pickle, node, out, size);
}

/* Takes the wrappers off: how the tensor itself is rebuilt, and with which arguments. */
static enum error_code unwrap(struct reader *reader, const struct pt_pickle_node *node,
                              enum pt_pickle_meaning *ret_meaning, const struct pt_pickle_node **ret_arguments)
{
    enum pt_pickle_meaning meaning = (enum pt_pickle_meaning)node->meaning;
    const struct pt_pickle_node *arguments = pt_pickle_node(reader->pickle, node->call.arguments);
    for (int i = 0; i < WRAPPERS_MAX; i++) {
        if (meaning == PT_PICKLE_MEANS_TENSOR_V2 || meaning == PT_PICKLE_MEANS_TENSOR_V3) {
            *ret_meaning = meaning;
            *ret_arguments = arguments;
            return ERROR_NONE;
        }
        const struct pt_pickle_node *inner = argument(reader, arguments, 0);
        if (meaning == PT_PICKLE_MEANS_PARAMETER && pt_tensor_is(inner)) {
            meaning = (enum pt_pickle_meaning)inner->meaning;
            arguments = pt_pickle_node(reader->pickle, inner->call.arguments);
            continue;
        }
        const struct pt_pickle_node *inner_arguments = argument(reader, arguments, 2);
        if (meaning != PT_PICKLE_MEANS_FROM_TYPE || inner->kind != PT_PICKLE_GLOBAL ||
            inner_arguments->kind != PT_PICKLE_TUPLE) {
            char name[200];
            return FAIL(reader, PT_FILE_UNSUPPORTED, node, "a tensor made from %s, which is not read",
                        name_of(reader, inner, name, sizeof name));
        }
        meaning = (enum pt_pickle_meaning)inner->meaning;
        arguments = inner_arguments;
        node = inner;
    }
    return FAIL(reader, PT_FILE_PICKLE, node, "more than %d wrappers around a tensor", WRAPPERS_MAX);
}

/* A number that counts something. */
static enum error_code count(struct reader *reader, const struct pt_pickle_node *node,
                             const struct pt_pickle_node *owner, const char *what, uint64_t *ret_value)
{
    if (node->kind != PT_PICKLE_INTEGER)
        return FAIL(reader, PT_FILE_PICKLE, owner, "the %s is no integer of 64 bits", what);
    if (node->integer < 0)
        return FAIL(reader, PT_FILE_GEOMETRY, node, "the %s is %" PRId64, what, node->integer);
    *ret_value = (uint64_t)node->integer;
    return ERROR_NONE;
}

static enum error_code read_dtype(struct reader *reader, enum pt_pickle_meaning meaning,
                                  const struct pt_pickle_node *class, const struct pt_pickle_node *arguments,
                                  enum pt_dtype *ret_dtype)
{
    bool untyped = class->kind == PT_PICKLE_GLOBAL && class->meaning == PT_PICKLE_MEANS_STORAGE_UNTYPED;
    bool typed = class->kind == PT_PICKLE_GLOBAL && class->meaning == PT_PICKLE_MEANS_STORAGE;
    char name[200], dtype_name[200];
    if (!untyped && !typed)
        return FAIL(reader, PT_FILE_UNSUPPORTED, class, "a storage of the class %s, which is not read",
                    name_of(reader, class, name, sizeof name));
    if (meaning == PT_PICKLE_MEANS_TENSOR_V2) {
        if (!typed)
            return FAIL(reader, PT_FILE_PICKLE, class,
                        "_rebuild_tensor_v2 with %s: the element type is nowhere; _v3 would have it",
                        name_of(reader, class, name, sizeof name));
        *ret_dtype = (enum pt_dtype) class->detail;
        return ERROR_NONE;
    }
    const struct pt_pickle_node *dtype = argument(reader, arguments, TENSOR_ARGUMENTS);
    if (dtype->kind != PT_PICKLE_GLOBAL || dtype->meaning != PT_PICKLE_MEANS_DTYPE)
        return FAIL(reader, dtype->kind == PT_PICKLE_OPAQUE ? PT_FILE_UNSUPPORTED : PT_FILE_PICKLE, arguments,
                    "_rebuild_tensor_v3 with %s where the element type should be",
                    name_of(reader, dtype, dtype_name, sizeof dtype_name));
    if (typed && class->detail != dtype->detail)
        return FAIL(reader, PT_FILE_PICKLE, arguments, "elements of %s in a storage of the class %s",
                    name_of(reader, dtype, dtype_name, sizeof dtype_name), name_of(reader, class, name, sizeof name));
    *ret_dtype = (enum pt_dtype)dtype->detail;
    return ERROR_NONE;
}

static enum error_code read_text(struct reader *reader, const struct pt_pickle_node *node,
                                 const struct pt_pickle_node *owner, const char *what, const char **ret_text,
                                 size_t *ret_length)
{
    const char *text = (const char *)reader->pickle->bytes + node->text.start;
    if (node->kind != PT_PICKLE_TEXT || memchr(text, 0, node->text.length) != NULL)
        return FAIL(reader, PT_FILE_PICKLE, owner, "the storage's %s is no text", what);
    *ret_text = text;
    *ret_length = node->text.length;
    return ERROR_NONE;
}

static enum error_code read_storage(struct reader *reader, enum pt_pickle_meaning meaning,
                                    const struct pt_pickle_node *arguments, enum pt_dtype *ret_dtype,
                                    struct pt_tensor_storage *ret_storage)
{
    const struct pt_pickle_node *storage = argument(reader, arguments, 0);
    if (storage->kind != PT_PICKLE_STORAGE)
        return FAIL(reader, PT_FILE_PICKLE, arguments, "a tensor without a storage");
    const struct pt_pickle_node *id = pt_pickle_node(reader->pickle, storage->call.arguments);
    if (id->items.count != 5 && id->items.count != 6)
        return FAIL(reader, PT_FILE_PICKLE, id, "a storage described by %" PRIu32 " items; 5 are expected",
                    id->items.count);
    const struct pt_pickle_node *class = argument(reader, id, 1);
    enum error_code code = read_dtype(reader, meaning, class, arguments, ret_dtype);
    if (code == ERROR_NONE)
        code = read_text(reader, argument(reader, id, 2), id, "key", &ret_storage->key, &ret_storage->key_length);
    if (code == ERROR_NONE)
        code = read_text(reader, argument(reader, id, 3), id, "location", &ret_storage->location,
                         &ret_storage->location_length);
    uint64_t number = 0;
    if (code == ERROR_NONE)
        code = count(reader, argument(reader, id, 4), id, "storage's number of elements", &number);
    if (code != ERROR_NONE)
        return code;
    uint64_t unit = class->meaning == PT_PICKLE_MEANS_STORAGE_UNTYPED ? 1 : pt_dtype_bytes(*ret_dtype);
    if (__builtin_mul_overflow(number, unit, &ret_storage->bytes) || ret_storage->bytes > INT64_MAX)
        return FAIL(reader, PT_FILE_GEOMETRY, id, "a storage of %" PRIu64 " elements of %" PRIu64 " bytes", number,
                    unit);
    return ERROR_NONE;
}

/* Sizes or strides. */
static enum error_code read_counts(struct reader *reader, const struct pt_pickle_node *tuple,
                                   const struct pt_pickle_node *owner, const char *what, uint64_t *ret_values,
                                   unsigned *ret_count)
{
    if (tuple->kind != PT_PICKLE_TUPLE)
        return FAIL(reader, PT_FILE_PICKLE, owner, "the tensor's %ss are no tuple", what);
    if (tuple->items.count > PT_FILE_RANK_MAX)
        return FAIL(reader, PT_FILE_GEOMETRY, tuple, "%" PRIu32 " dimensions; at most %d are read", tuple->items.count,
                    PT_FILE_RANK_MAX);
    unsigned filled = 0;
    for (uint32_t cell = tuple->items.first; filled < tuple->items.count; cell = reader->pickle->cells[cell].next) {
        const struct pt_pickle_node *node = pt_pickle_node(reader->pickle, reader->pickle->cells[cell].node);
        enum error_code code = count(reader, node, tuple, what, &ret_values[filled++]);
        if (code != ERROR_NONE)
            return code;
    }
    *ret_count = filled;
    return ERROR_NONE;
}

/* Row-major without holes? */
static bool is_contiguous(const struct pt_file_tensor *tensor)
{
    uint64_t expected = 1;
    if (tensor->elements == 0)
        return true;
    for (unsigned i = tensor->rank; i-- > 0;) {
        if (tensor->size[i] == 1)
            continue;
        if (tensor->stride[i] != expected)
            return false;
        expected *= tensor->size[i];
    }
    return true;
}

/* Elements and bytes must be countable, the last element within the storage. */
static enum error_code check_reach(struct reader *reader, const struct pt_pickle_node *arguments,
                                   const struct pt_tensor_storage *storage, struct pt_file_tensor *tensor)
{
    uint64_t bytes = pt_dtype_bytes(tensor->dtype), elements = 1, reach = tensor->offset;
    bool overflow = false, empty = false;
    for (unsigned i = 0; i < tensor->rank; i++)
        empty = empty || tensor->size[i] == 0;
    for (unsigned i = 0; i < tensor->rank && !empty; i++) {
        uint64_t step;
        overflow = overflow || __builtin_mul_overflow(elements, tensor->size[i], &elements) ||
                   __builtin_mul_overflow(tensor->size[i] - 1, tensor->stride[i], &step) ||
                   __builtin_add_overflow(reach, step, &reach);
    }
    if (overflow || elements > INT64_MAX / bytes || reach > INT64_MAX / bytes)
        return FAIL(reader, PT_FILE_GEOMETRY, arguments, "sizes and strides whose product is beyond 64 bits");
    tensor->elements = empty ? 0 : elements;
    if (!empty && reach >= storage->bytes / bytes)
        return FAIL(reader, PT_FILE_GEOMETRY, arguments,
                    "the tensor reaches to element %" PRIu64 " of a storage of %" PRIu64, reach,
                    storage->bytes / bytes);
    return ERROR_NONE;
}

static enum error_code read_bits(struct reader *reader, const struct pt_pickle_node *arguments, uint32_t index,
                                 struct pt_file_tensor *tensor)
{
    uint32_t metadata = pt_pickle_item(reader->pickle, arguments, index);
    uint32_t conjugate = pt_pickle_member(reader->pickle, metadata, "conj", 4);
    uint32_t negative = pt_pickle_member(reader->pickle, metadata, "neg", 3);
    tensor->conjugate = conjugate != PT_PICKLE_NONE && pt_pickle_node(reader->pickle, conjugate)->boolean;
    tensor->negative = negative != PT_PICKLE_NONE && pt_pickle_node(reader->pickle, negative)->boolean;
    enum pt_dtype_kind kind = pt_dtype_kind(tensor->dtype);
    bool wide = kind == PT_DTYPE_KIND_COMPLEX || (kind == PT_DTYPE_KIND_FLOAT && pt_dtype_bytes(tensor->dtype) > 1);
    if ((tensor->conjugate && kind != PT_DTYPE_KIND_COMPLEX) || (tensor->negative && !wide))
        return FAIL(reader, PT_FILE_UNSUPPORTED, arguments, "a lazily conjugated or negated tensor of %s",
                    pt_dtype_name(tensor->dtype));
    return ERROR_NONE;
}

static enum error_code read_tensor(struct reader *reader, const struct pt_pickle_node *node,
                                   struct pt_file_tensor *tensor, struct pt_tensor_storage *storage)
{
    enum pt_pickle_meaning meaning;
    const struct pt_pickle_node *arguments;
    enum error_code code = unwrap(reader, node, &meaning, &arguments);
    if (code != ERROR_NONE)
        return code;
    if (arguments->items.count < TENSOR_ARGUMENTS)
        return FAIL(reader, PT_FILE_PICKLE, arguments, "a tensor described by %" PRIu32 " items; %d are expected",
                    arguments->items.count, TENSOR_ARGUMENTS);
    unsigned strides = 0;
    code = read_storage(reader, meaning, arguments, &tensor->dtype, storage);
    if (code == ERROR_NONE)
        code = count(reader, argument(reader, arguments, 1), arguments, "tensor's offset", &tensor->offset);
    if (code == ERROR_NONE)
        code = read_counts(reader, argument(reader, arguments, 2), arguments, "size", tensor->size, &tensor->rank);
    if (code == ERROR_NONE)
        code = read_counts(reader, argument(reader, arguments, 3), arguments, "stride", tensor->stride, &strides);
    if (code == ERROR_NONE && strides != tensor->rank)
        code = FAIL(reader, PT_FILE_GEOMETRY, arguments, "%u sizes and %u strides", tensor->rank, strides);
    if (code == ERROR_NONE)
        code = check_reach(reader, arguments, storage, tensor);
    if (code == ERROR_NONE)
        code = read_bits(reader, arguments, TENSOR_ARGUMENTS + (meaning == PT_PICKLE_MEANS_TENSOR_V3), tensor);
    tensor->contiguous = code == ERROR_NONE && is_contiguous(tensor);
    return code;
}

enum error_code pt_tensor_read(const struct pt_pickle *pickle, uint32_t number, struct pt_file_tensor *ret_tensor,
                               struct pt_tensor_storage *ret_storage, enum pt_file_problem *ret_problem,
                               struct error *err)
{
    struct reader reader = {.pickle = pickle, .problem = PT_FILE_FINE, .err = err};
    enum error_code code = read_tensor(&reader, pt_pickle_node(pickle, number), ret_tensor, ret_storage);
    if (code != ERROR_NONE)
        *ret_problem = reader.problem;
    return code;
}
