#include "hostile_files.h"
#include "dump_files.h"
#include "pt/pt_crc32.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { STORAGE_BYTES = 24, DIMENSIONS = 3, END_BYTES = 22, ENTRY_BYTES = 46 };

/* ---- a tensor's pickle, field by field ---- */

struct tensor {
    const char *function; /* NULL: _rebuild_tensor_v2 */
    const char *storage;  /* "module\nname" of the storage's class; NULL: torch.FloatStorage */
    const char *key;      /* NULL: "0" */
    int64_t numel, offset;
    unsigned rank;    /* sizes and strides that are written; all beyond DIMENSIONS are 1 */
    unsigned strides; /* how many, if not `rank` */
    int64_t size[DIMENSIONS], stride[DIMENSIONS];
    const char *more; /* opcodes behind the hooks: element type, metadata */
    bool one_item;    /* a tuple of one item describes the storage */
};

static void number(struct buffer *out, int64_t value)
{
    buffer_append(out, "\x8a\x08", 2);
    for (int i = 0; i < 8; i++)
        buffer_append(out, &(char){(char)((uint64_t)value >> (8 * i))}, 1);
}

static void text(struct buffer *out, const char *value)
{
    buffer_append(out, "X", 1);
    for (int i = 0; i < 4; i++)
        buffer_append(out, &(char){(char)(strlen(value) >> (8 * i))}, 1);
    buffer_text(out, value);
}

static void numbers(struct buffer *out, const int64_t *values, unsigned count)
{
    buffer_text(out, "(");
    for (unsigned i = 0; i < count; i++)
        number(out, i < DIMENSIONS ? values[i] : 1);
    buffer_text(out, "t");
}

static void tensor_pickle(struct buffer *out, const struct tensor *tensor)
{
    buffer_append(out, "\x80\x02}(", 4);
    text(out, "value");
    buffer_format(out, "c%s\n(", tensor->function != NULL ? tensor->function : "torch._utils\n_rebuild_tensor_v2");
    buffer_text(out, "(");
    text(out, "storage");
    if (!tensor->one_item) {
        buffer_format(out, "c%s\n", tensor->storage != NULL ? tensor->storage : "torch\nFloatStorage");
        text(out, tensor->key != NULL ? tensor->key : "0");
        text(out, "cpu");
        number(out, tensor->numel);
    }
    buffer_text(out, "tQ");
    number(out, tensor->offset);
    numbers(out, tensor->size, tensor->rank);
    numbers(out, tensor->stride, tensor->strides != 0 ? tensor->strides : tensor->rank);
    buffer_text(out, "\x89"
                     "ccollections\nOrderedDict\n)R");
    buffer_text(out, tensor->more != NULL ? tensor->more : "");
    buffer_text(out, "tR");
    text(out, "meta");
    buffer_text(out, "}u.");
}

/* ---- archives ---- */

static void archive_of(struct buffer *out, const void *pickle, size_t length)
{
    static const unsigned char data[STORAGE_BYTES] = {0, 0, 0x80, 0x3f};
    const struct dump_files_member members[] = {{"data.pkl", pickle, length},
                                                {"byteorder", "little", 6},
                                                {"data/0", data, STORAGE_BYTES},
                                                {"version", "3\n", 2}};
    dump_files_archive(out, "x", members, 4);
}

static const struct tensor usual = {.numel = 6, .rank = 2, .size = {2, 3}, .stride = {3, 1}};

static void tensor_file(struct buffer *out, const struct tensor *tensor)
{
    struct buffer pickle;
    buffer_init(&pickle);
    tensor_pickle(&pickle, tensor);
    archive_of(out, pickle.data, pickle.length);
    buffer_fini(&pickle);
}

static uint32_t get(const struct buffer *bytes, size_t at, size_t width)
{
    uint32_t value = 0;
    for (size_t i = width; i-- > 0;)
        value = value << 8 | (unsigned char)bytes->data[at + i];
    return value;
}

static void put(struct buffer *bytes, size_t at, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        bytes->data[at + i] = (char)(value >> (8 * i));
}

/* Where the directory's entry number `n` is, in a file that begins at 0. */
static size_t entry(const struct buffer *bytes, int n)
{
    size_t at = get(bytes, bytes->length - END_BYTES + 16, 4);
    while (n-- > 0)
        at += ENTRY_BYTES + get(bytes, at + 28, 2);
    return at;
}

static void record_crc(struct buffer *bytes, int member, uint32_t wrong_by)
{
    size_t at = entry(bytes, member), header = get(bytes, at + 42, 4), size = get(bytes, at + 24, 4);
    size_t payload = header + 30 + get(bytes, header + 26, 2) + get(bytes, header + 28, 2);
    put(bytes, at + 16, pt_crc32(0, bytes->data + payload, size) + wrong_by, 4);
}

/* ---- damage to a whole file ---- */

static void cut_in_storage(struct buffer *out)
{
    tensor_file(out, &usual);
    out->length =
        get(out, entry(out, 2) + 42, 4) + 60; /* as a full disk leaves it: data.pkl whole, the storage begun */
}

static void only_version(struct buffer *out)
{
    dump_files_archive(out, "x", &(const struct dump_files_member){"version", "3\n", 2}, 1);
}

static void no_storage(struct buffer *out)
{
    struct buffer pickle;
    buffer_init(&pickle);
    tensor_pickle(&pickle, &usual);
    dump_files_archive(out, "x", &(const struct dump_files_member){"data.pkl", pickle.data, pickle.length}, 1);
    buffer_fini(&pickle);
}

static void torch_script(struct buffer *out)
{
    const struct dump_files_member members[] = {{"data.pkl", "\x80\x02N.", 4}, {"constants.pkl", "\x80\x02).", 4}};
    dump_files_archive(out, "x", members, 2);
}

static void big_endian(struct buffer *out)
{
    const struct dump_files_member members[] = {{"data.pkl", "\x80\x02N.", 4}, {"byteorder", "big", 3}};
    dump_files_archive(out, "x", members, 2);
}

static void right_crc(struct buffer *out)
{
    tensor_file(out, &usual);
    for (int i = 0; i < 4; i++)
        record_crc(out, i, 0);
}

static void wrong_crc_of_pickle(struct buffer *out)
{
    tensor_file(out, &usual);
    record_crc(out, 0, 1);
}

static void wrong_crc_of_storage(struct buffer *out)
{
    tensor_file(out, &usual);
    record_crc(out, 2, 1);
}

static void count_beyond(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, out->length - END_BYTES + 8, 65535, 2);
    put(out, out->length - END_BYTES + 10, 65535, 2);
    put(out, out->length - END_BYTES - 20 - 56 + 24, UINT64_C(1) << 63, 8);
    put(out, out->length - END_BYTES - 20 - 56 + 32, UINT64_C(1) << 63, 8);
}

static void directory_beyond(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, out->length - END_BYTES + 16, UINT32_MAX, 4);
    put(out, out->length - END_BYTES - 20 - 56 + 48, UINT64_MAX - 8, 8);
}

static void wraps(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, entry(out, 2) + 42, UINT32_MAX - 1, 4);
}

static void overlaps(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, entry(out, 2) + 42, get(out, entry(out, 0) + 42, 4) + 1, 4);
}

static void same_name(struct buffer *out)
{
    const struct dump_files_member members[] = {{"data.pkl", "\x80\x02N.", 4}, {"data.pkl", "\x80\x02K\1.", 5}};
    dump_files_archive(out, "x", members, 2);
}

static void other_local_name(struct buffer *out)
{
    tensor_file(out, &usual);
    out->data[get(out, entry(out, 2) + 42, 4) + 30] ^= 1;
}

static void deflated(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, entry(out, 0) + 10, 8, 2);
}

static void encrypted(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, entry(out, 0) + 8, 1, 2);
}

static void spanned(struct buffer *out)
{
    tensor_file(out, &usual);
    put(out, out->length - END_BYTES + 4, 1, 2);
}

static void name_of(struct buffer *out, const char *prefix, const char *name)
{
    const struct dump_files_member members[] = {{"data.pkl", "\x80\x02N.", 4}, {name, "", 0}};
    dump_files_archive(out, prefix, members, 2);
}

static void name_climbs(struct buffer *out)
{
    name_of(out, "x", "../../y");
}

static void name_absolute(struct buffer *out)
{
    name_of(out, "", "y");
}

static void name_long(struct buffer *out)
{
    static char name[65000];
    memset(name, 'a', sizeof name - 1);
    name_of(out, "x", name);
}

static void name_no_text(struct buffer *out)
{
    name_of(out, "x", "\xff\xfe");
}

static void junk_behind(struct buffer *out)
{
    tensor_file(out, &usual);
    buffer_text(out, "junk");
}

static void junk_before(struct buffer *out)
{
    buffer_text(out, "junk");
    tensor_file(out, &usual);
}

/* An end record inside the storage: the one at the file's end counts. */
static void end_inside(struct buffer *out)
{
    static const char inside[STORAGE_BYTES] = "PK\5\6";
    struct buffer pickle;
    buffer_init(&pickle);
    tensor_pickle(&pickle, &usual);
    const struct dump_files_member members[] = {{"data.pkl", pickle.data, pickle.length},
                                                {"data/0", inside, STORAGE_BYTES}};
    dump_files_archive(out, "x", members, 2);
    buffer_fini(&pickle);
}

static void many_lists(struct buffer *out)
{
    struct buffer pickle;
    buffer_init(&pickle);
    buffer_append(&pickle, "\x80\x02", 2);
    for (int i = 0; i < 2000; i++)
        buffer_text(&pickle, "]");
    for (int i = 0; i < 1999; i++)
        buffer_text(&pickle, "a");
    buffer_text(&pickle, ".");
    archive_of(out, pickle.data, pickle.length);
    buffer_fini(&pickle);
}

/* ---- the list ---- */

struct row {
    struct hostile_file file;
    void (*make)(struct buffer *out); /* or */
    const char *pickle;               /* a data.pkl */
    size_t pickle_length;             /* or */
    struct tensor tensor;             /* six floats unless it says something else */
};

#define WHOLE(id, problem, part, make)                \
    {                                                 \
        {id, PT_FILE_##problem, part}, make, NULL, 0, \
        {                                             \
            0                                         \
        }                                             \
    }
#define PICKLE(id, problem, part, text)                              \
    {                                                                \
        {id, PT_FILE_##problem, part}, NULL, text, sizeof(text) - 1, \
        {                                                            \
            0                                                        \
        }                                                            \
    }
#define TENSOR(id, problem, part, ...)                \
    {                                                 \
        {id, PT_FILE_##problem, part}, NULL, NULL, 0, \
        {                                             \
            __VA_ARGS__                               \
        }                                             \
    }
#define V3  .function = "torch._utils\n_rebuild_tensor_v3", .storage = "torch.storage\nUntypedStorage"
#define BIG INT64_C(0x4000000000000000)

static const struct row rows[] = {
    WHOLE("Z1-cut-in-storage", ARCHIVE, "cut short", cut_in_storage),
    WHOLE("Z2-only-version", ARCHIVE, "without data.pkl: saving failed in the writer", only_version),
    WHOLE("Z2-no-storage", ARCHIVE, "its storage is not in the archive", no_storage),
    WHOLE("Z3-count", ARCHIVE, "9223372036854775808 members", count_beyond),
    WHOLE("Z3-directory", ARCHIVE, "does not end at byte", directory_beyond),
    WHOLE("Z3-wrap", ARCHIVE, "reaches past byte", wraps),
    WHOLE("Z4-overlap", ARCHIVE, "reaches past byte", overlaps),
    WHOLE("Z4-same-name", ARCHIVE, "have the same name", same_name),
    WHOLE("Z4-local-name", ARCHIVE, "is not the one that the directory names", other_local_name),
    WHOLE("Z5-deflate", ARCHIVE, "compressed or encrypted", deflated),
    WHOLE("Z5-encrypted", ARCHIVE, "compressed or encrypted", encrypted),
    WHOLE("Z5-spanned", ARCHIVE, "several parts", spanned),
    WHOLE("Z6-climbs", ARCHIVE, "torch does not write", name_climbs),
    WHOLE("Z6-absolute", ARCHIVE, "torch does not write", name_absolute),
    WHOLE("Z6-long", ARCHIVE, "torch does not write", name_long),
    WHOLE("Z6-no-text", ARCHIVE, "torch does not write", name_no_text),
    WHOLE("Z7-right", FINE, "", right_crc),
    WHOLE("Z7-pickle", ARCHIVE, "was recorded: the file is damaged", wrong_crc_of_pickle),
    WHOLE("Z7-storage", FINE, "", wrong_crc_of_storage), /* found by pt_file_verify */
    WHOLE("Z8-behind", ARCHIVE, "no end record", junk_behind),
    WHOLE("Z8-before", ARCHIVE, "no zip64 end record at byte", junk_before),
    WHOLE("Z8-inside", FINE, "", end_inside),
    WHOLE("K1-script", UNSUPPORTED, "a TorchScript archive", torch_script),
    WHOLE("K2-big-endian", UNSUPPORTED, "\"big\"", big_endian),
    PICKLE("P1-memo", PICKLE, "before it was stored", "\x80\x02h\0."),
    PICKLE("P1-underflow", PICKLE, "needs 2 objects", "\x80\x02]a."),
    PICKLE("P1-mark", PICKLE, "without a mark", "\x80\x02]e."),
    PICKLE("P1-odd", PICKLE, "even number", "\x80\x02}(K\1u."),
    PICKLE("P1-no-stop", PICKLE, "without its last opcode", "\x80\x02N"),
    PICKLE("P1-behind-stop", PICKLE, "bytes behind", "\x80\x02N.N"),
    PICKLE("P2-itself", FINE, "", "\x80\x02]q\0h\0a."),
    PICKLE("P2-memo-number", PICKLE, "memo number", "\x80\x02Nr\xff\xff\xff\xff."),
    WHOLE("P2-depth", PICKLE, "levels deep", many_lists),
    PICKLE("P3-text", PICKLE, "bytes are announced",
           "\x80\x02X\xff\xff\xff\xff"
           "a."),
    PICKLE("P3-long", PICKLE, "bytes are announced",
           "\x80\x02\x8a\xff"
           "a."),
    PICKLE("P3-global", PICKLE, "do not end",
           "\x80\x02"
           "ctorch\nSize"),
    PICKLE("P4-posix", SUSPICIOUS, "asks for posix.system",
           "\x80\x02"
           "cposix\nsystem\nX\2\0\0\0id\x85R."),
    PICKLE("P4-stack-global", SUSPICIOUS, "asks for os.system",
           "\x80\x04\x8c\2os\x94\x8c\6system\x94h\0h\1\x93\x8c\2id\x85R."),
    PICKLE("P4-in-meta", SUSPICIOUS, "asks for builtins.eval",
           "\x80\x02}(X\5\0\0\0valueNX\4\0\0\0meta}X\1\0\0\0acbuiltins\neval\nX\1\0\0\0"
           "1\x85Rsu."),
    PICKLE("P4-text-called", PICKLE, "no global", "\x80\x02X\1\0\0\0a)R."),
    PICKLE("P4-unknown", UNSUPPORTED, "is made from my.Thing",
           "\x80\x02"
           "cmy\nThing\n)R."),
    PICKLE("P4-unknown-in-meta", FINE, "", "\x80\x02}(X\5\0\0\0valueK\1X\4\0\0\0meta}X\1\0\0\0acmy\nThing\n)\x81}bsu."),
    TENSOR("T0-fine", FINE, "", .numel = 6, .rank = 2, .size = {2, 3}, .stride = {3, 1}),
    TENSOR("T0-scalar", FINE, "", .numel = 1),
    TENSOR("T0-empty", FINE, "", .rank = 1, .size = {0}, .stride = {1}),
    TENSOR("T0-empty-beyond", FINE, "", .rank = 3, .size = {0, BIG, BIG}, .stride = {BIG, BIG, 1}),
    TENSOR("T0-v3", FINE, "", V3, .numel = 24, .rank = 1, .size = {24}, .stride = {1}, .more = "ctorch\nfloat8_e5m2\n"),
    TENSOR("T1-size", GEOMETRY, "the size is -1", .numel = 6, .rank = 1, .size = {-1}, .stride = {1}),
    TENSOR("T1-stride", GEOMETRY, "the stride is -3", .numel = 6, .rank = 1, .size = {2}, .stride = {-3}),
    TENSOR("T1-offset", GEOMETRY, "offset is -1", .numel = 6, .offset = -1, .rank = 1, .size = {1}, .stride = {1}),
    TENSOR("T1-rank", GEOMETRY, "65 dimensions", .numel = 6, .rank = 65, .size = {1, 1, 1}, .stride = {1, 1, 1}),
    TENSOR("T1-strides", GEOMETRY, "2 sizes and 1 strides", .numel = 6, .rank = 2, .strides = 1, .size = {1, 1}),
    TENSOR("T1-product", GEOMETRY, "beyond 64 bits", .numel = 6, .rank = 2, .size = {BIG, BIG}, .stride = {0, 0}),
    TENSOR("T1-bytes", GEOMETRY, "beyond 64 bits", .numel = 6, .rank = 1, .size = {BIG}, .stride = {0}),
    TENSOR("T1-reach", GEOMETRY, "beyond 64 bits", .numel = 6, .rank = 2, .size = {5, 5}, .stride = {BIG, BIG}),
    TENSOR("T1-expanded", FINE, "", .numel = 1, .rank = 1, .size = {INT64_C(1) << 40}, .stride = {0}),
    TENSOR("T2-record", GEOMETRY, "a storage of 28 bytes, and its member at byte 342 has 24", .numel = 7, .rank = 1,
           .size = {1}, .stride = {1}),
    TENSOR("T2-reach", GEOMETRY, "reaches to element 6 of a storage of 6", .numel = 6, .offset = 1, .rank = 2,
           .size = {2, 3}, .stride = {3, 1}),
    TENSOR("T2-numel", GEOMETRY, "number of elements is -6", .numel = -6, .rank = 1, .size = {1}, .stride = {1}),
    TENSOR("T2-numel-beyond", GEOMETRY, "a storage of", .numel = BIG, .rank = 1, .size = {1}, .stride = {1}),
    TENSOR("T2-part", GEOMETRY, "reaches to element 0 of a storage of 0", V3, .numel = 3, .rank = 1, .size = {1},
           .stride = {1}, .more = "ctorch\nuint32\n"),
    TENSOR("T3-storage", UNSUPPORTED, "torch.NewStorage", .storage = "torch\nNewStorage", .numel = 6),
    TENSOR("T3-quantized", UNSUPPORTED, "torch.QInt8Storage", .storage = "torch\nQInt8Storage", .numel = 6),
    TENSOR("T3-dtype", UNSUPPORTED, "torch.float3", V3, .numel = 24, .more = "ctorch\nfloat3\n"),
    TENSOR("T3-v2-untyped", PICKLE, "the element type is nowhere", .storage = "torch.storage\nUntypedStorage",
           .numel = 24),
    TENSOR("T3-v3-without", PICKLE, "where the element type should be", V3, .numel = 24),
    TENSOR("T3-mixed", PICKLE, "elements of torch.int32 in a storage of the class torch.FloatStorage",
           .function = "torch._utils\n_rebuild_tensor_v3", .numel = 6, .more = "ctorch\nint32\n"),
    TENSOR("T3-sparse", UNSUPPORTED, "_rebuild_sparse_tensor", .function = "torch._utils\n_rebuild_sparse_tensor",
           .numel = 6),
    TENSOR("T3-conjugate", UNSUPPORTED, "conjugated or negated tensor of float32", .numel = 6, .rank = 1, .size = {1},
           .stride = {1}, .more = "}U\4conj\x88s"),
    TENSOR("T4-id", PICKLE, "described by 1 items", .one_item = true),
    TENSOR("T4-key", ARCHIVE, "its storage is not in the archive", .key = "../../data/0", .numel = 6),
};

const struct hostile_file *hostile_files_make(size_t index, struct buffer *out)
{
    if (index >= sizeof rows / sizeof rows[0])
        return NULL;
    const struct row *row = &rows[index];
    if (row->make != NULL)
        row->make(out);
    else if (row->pickle != NULL)
        archive_of(out, row->pickle, row->pickle_length);
    else
        tensor_file(out, &row->tensor);
    return &row->file;
}
