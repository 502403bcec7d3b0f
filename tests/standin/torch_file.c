/* torch_file.c: see torch_file.h. */
#include "torch_file.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64, MEMBERS_MAX = 8, LOCAL_HEADER_BYTES = 30, FLAGS = 0x0808 };

static const struct {
    const char *storage, *name;
    size_t bytes;
} TYPES[] = {
    [TORCH_FILE_INT64] = {"LongStorage", "torch.int64", 8},
    [TORCH_FILE_INT32] = {"IntStorage", "torch.int32", 4},
    [TORCH_FILE_FLOAT32] = {"FloatStorage", "torch.float32", 4},
    [TORCH_FILE_FLOAT16] = {"HalfStorage", "torch.float16", 2},
    [TORCH_FILE_BFLOAT16] = {"BFloat16Storage", "torch.bfloat16", 2},
};

size_t torch_file_item_bytes(enum torch_file_type type)
{
    return TYPES[type].bytes;
}

const char *torch_file_type_name(enum torch_file_type type)
{
    return TYPES[type].name;
}

/* ------------------------------------------------------------------ pickle, protocol 2 */

struct pickle {
    struct text *out;
    unsigned memo; /* number of the next memo entry */
};

static void memoize(struct pickle *pickle)
{
    if (pickle->memo < 256) {
        text_byte(pickle->out, 'q');
        text_byte(pickle->out, (unsigned char)pickle->memo);
    } else {
        text_byte(pickle->out, 'r');
        text_u32(pickle->out, pickle->memo);
    }
    pickle->memo++;
}

static void opcodes(struct pickle *pickle, const char *codes)
{
    text_string(pickle->out, codes);
}

static void string(struct pickle *pickle, const char *value)
{
    text_byte(pickle->out, 'X');
    text_u32(pickle->out, strlen(value));
    text_string(pickle->out, value);
    memoize(pickle);
}

static void integer(struct pickle *pickle, uint64_t value)
{
    if (value < 256) {
        text_byte(pickle->out, 'K');
        text_byte(pickle->out, (unsigned char)value);
    } else if (value < 65536) {
        text_byte(pickle->out, 'M');
        text_u16(pickle->out, (unsigned)value);
    } else if (value < 0x80000000ULL) {
        text_byte(pickle->out, 'J');
        text_u32(pickle->out, value);
    } else {
        /* LONG1, two's complement: one byte more where the top bit is set. */
        unsigned char bytes[9] = {0};
        unsigned char count = 0;
        for (uint64_t rest = value; rest > 0; rest >>= 8)
            bytes[count++] = (unsigned char)(rest & 0xff);
        if (bytes[count - 1] & 0x80)
            count++;
        text_byte(pickle->out, 0x8a);
        text_byte(pickle->out, count);
        text_bytes(pickle->out, bytes, count);
    }
}

static void global(struct pickle *pickle, const char *module, const char *name)
{
    text_format(pickle->out, "c%s\n%s\n", module, name);
    memoize(pickle);
}

static void small_tuple(struct pickle *pickle, const size_t *values, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        integer(pickle, values[i]);
    text_byte(pickle->out, count == 1 ? 0x85 : 0x86);
    memoize(pickle);
}

static size_t element_count(const struct torch_file_value *value)
{
    return value->size[0] * (value->dimensions > 1 ? value->size[1] : 1);
}

static void tensor(struct pickle *pickle, const struct torch_file_value *value)
{
    global(pickle, "torch._utils", "_rebuild_tensor_v2");
    opcodes(pickle, "((");
    string(pickle, "storage");
    global(pickle, "torch", TYPES[value->type].storage);
    string(pickle, "0");
    string(pickle, value->device);
    integer(pickle, element_count(value));
    opcodes(pickle, "t");
    memoize(pickle);
    opcodes(pickle, "Q");
    integer(pickle, 0); /* storage offset */
    small_tuple(pickle, value->size, value->dimensions);
    small_tuple(pickle, value->stride, value->dimensions);
    text_byte(pickle->out, 0x89); /* requires_grad False */
    global(pickle, "collections", "OrderedDict");
    opcodes(pickle, ")R");
    memoize(pickle);
    opcodes(pickle, "t");
    memoize(pickle);
    opcodes(pickle, "R");
    memoize(pickle);
}

static void strings(struct pickle *pickle, const struct torch_file_value *value)
{
    opcodes(pickle, "]");
    memoize(pickle);
    if (value->string_count == 0)
        return;
    if (value->string_count > 1)
        opcodes(pickle, "(");
    for (size_t i = 0; i < value->string_count; i++)
        string(pickle, value->strings[i]);
    opcodes(pickle, value->string_count > 1 ? "e" : "a");
}

static void number_item(struct pickle *pickle, const char *key, long value)
{
    string(pickle, key);
    integer(pickle, (uint64_t)value);
}

/* Rank and size of a group within the world, whose ranks are counted stage by stage (0.5.23, live). */
enum group { GROUP_ALONE, GROUP_TENSOR, GROUP_PIPELINE, GROUP_ATTENTION, GROUP_REPLICAS };

static void group_place(enum group group, const struct torch_file_meta *meta, int *ret_rank, int *ret_size)
{
    int stages = meta->stages > 0 ? meta->stages : 1, tensor = meta->world_size / stages;
    int replicas = meta->attention_replicas > 0 ? meta->attention_replicas : 1, attention = tensor / replicas;
    int rank = meta->rank % tensor;
    *ret_rank = group == GROUP_TENSOR      ? rank
                : group == GROUP_PIPELINE  ? meta->rank / tensor
                : group == GROUP_ATTENTION ? rank % attention
                : group == GROUP_REPLICAS  ? rank / attention
                                           : 0;
    *ret_size = group == GROUP_TENSOR      ? tensor
                : group == GROUP_PIPELINE  ? stages
                : group == GROUP_ATTENTION ? attention
                : group == GROUP_REPLICAS  ? replicas
                                           : 1;
}

static void parallel_info(struct pickle *pickle, const struct torch_file_meta *meta)
{
    static const struct {
        const char *key;
        enum group group;
    } GROUPS[] = {{"tp", GROUP_TENSOR},        {"pp", GROUP_PIPELINE},  {"moe_ep", GROUP_ALONE},
                  {"moe_tp", GROUP_TENSOR},    {"moe_dp", GROUP_ALONE}, {"attn_tp", GROUP_ATTENTION},
                  {"attn_dp", GROUP_REPLICAS}, {"attn_cp", GROUP_ALONE}};
    string(pickle, "sglang_parallel_info");
    opcodes(pickle, "}");
    memoize(pickle);
    opcodes(pickle, "(");
    for (size_t i = 0; i < sizeof GROUPS / sizeof GROUPS[0]; i++) {
        char key[32];
        int rank, size;
        group_place(GROUPS[i].group, meta, &rank, &size);
        if (strcmp(GROUPS[i].key, "attn_tp") == 0) {
            string(pickle, "attn_dp_enabled");
            text_byte(pickle->out, meta->attention_replicas > 0 ? 0x88 : 0x89);
        }
        snprintf(key, sizeof key, "%s_rank", GROUPS[i].key);
        number_item(pickle, key, rank);
        snprintf(key, sizeof key, "%s_size", GROUPS[i].key);
        number_item(pickle, key, size);
    }
    opcodes(pickle, "u");
}

static void data_pkl(const struct torch_file_value *value, const struct torch_file_meta *meta, struct text *out)
{
    struct pickle pickle = {.out = out};
    text_byte(out, 0x80);
    text_byte(out, 2);
    opcodes(&pickle, "}");
    memoize(&pickle);
    opcodes(&pickle, "(");
    string(&pickle, "value");
    if (value->word)
        string(&pickle, value->strings[0]);
    else if (value->strings != NULL)
        strings(&pickle, value);
    else
        tensor(&pickle, value);
    string(&pickle, "meta");
    opcodes(&pickle, "}");
    memoize(&pickle);
    opcodes(&pickle, "(");
    number_item(&pickle, "step", meta->step);
    number_item(&pickle, "rank", meta->rank);
    number_item(&pickle, "dump_index", meta->dump_index);
    string(&pickle, "name");
    string(&pickle, meta->name);
    string(&pickle, "recompute_status");
    string(&pickle, "disabled");
    if (meta->layer_id >= 0)
        number_item(&pickle, "layer_id", meta->layer_id);
    number_item(&pickle, "world_rank", meta->rank);
    number_item(&pickle, "world_size", meta->world_size);
    parallel_info(&pickle, meta);
    string(&pickle, "tokenizer_path");
    string(&pickle, meta->tokenizer_path);
    opcodes(&pickle, "uu.");
}

/* ------------------------------------------------------------------ zip */

struct member {
    char name[640];
    uint32_t crc;
    size_t bytes;
    size_t offset;
};

struct archive {
    struct text *out;
    size_t base; /* where the archive begins in `out` */
    const char *record;
    struct member members[MEMBERS_MAX];
    size_t count;
};

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xedb88320U : value >> 1;
        crc_table[i] = value;
    }
}

static uint32_t crc32_of(const unsigned char *bytes, size_t length)
{
    pthread_once(&crc_once, make_crc_table);
    uint32_t value = 0xffffffffU;
    for (size_t i = 0; i < length; i++)
        value = crc_table[(value ^ bytes[i]) & 0xff] ^ value >> 8;
    return value ^ 0xffffffffU;
}

static void add_member(struct archive *archive, const char *name, const void *bytes, size_t length)
{
    struct member *member = &archive->members[archive->count++];
    snprintf(member->name, sizeof member->name, "%s/%s", archive->record, name);
    member->crc = crc32_of(bytes, length);
    member->bytes = length;
    member->offset = archive->out->length - archive->base;

    /* The extra field "FB" is as long as it takes to put the data on the boundary. */
    size_t name_length = strlen(member->name);
    size_t unpadded = member->offset + LOCAL_HEADER_BYTES + name_length + 4;
    size_t padding = (ALIGNMENT - unpadded % ALIGNMENT) % ALIGNMENT;
    struct text *out = archive->out;
    text_bytes(out, "PK\3\4", 4);
    text_u16(out, 0);
    text_u16(out, FLAGS);
    text_repeat(out, 0, 18); /* method, time, date, crc and sizes: the descriptor has them */
    text_u16(out, (unsigned)name_length);
    text_u16(out, (unsigned)(padding + 4));
    text_string(out, member->name);
    text_string(out, "FB");
    text_u16(out, (unsigned)padding);
    text_repeat(out, 'Z', padding);
    text_bytes(out, bytes, length);
    text_bytes(out, "PK\7\10", 4);
    text_u32(out, member->crc);
    text_u32(out, length);
    text_u32(out, length);
}

static void central_record(struct archive *archive, const struct member *member)
{
    struct text *out = archive->out;
    text_bytes(out, "PK\1\2", 4);
    text_u16(out, 0);
    text_u16(out, 0);
    text_u16(out, FLAGS);
    text_repeat(out, 0, 6); /* method, time, date */
    text_u32(out, member->crc);
    text_u32(out, member->bytes);
    text_u32(out, member->bytes);
    text_u16(out, (unsigned)strlen(member->name));
    text_repeat(out, 0, 12); /* extra, comment, disk, attributes */
    text_u32(out, member->offset);
    text_string(out, member->name);
}

static void finish(struct archive *archive)
{
    struct text *out = archive->out;
    size_t start = out->length - archive->base;
    for (size_t i = 0; i < archive->count; i++)
        central_record(archive, &archive->members[i]);
    size_t end = out->length - archive->base;

    text_bytes(out, "PK\6\6", 4);
    text_u64(out, 44);
    text_u16(out, 0x031e);
    text_u16(out, 0x2d);
    text_u32(out, 0);
    text_u32(out, 0);
    text_u64(out, archive->count);
    text_u64(out, archive->count);
    text_u64(out, end - start);
    text_u64(out, start);
    text_bytes(out, "PK\6\7", 4);
    text_u32(out, 0);
    text_u64(out, end);
    text_u32(out, 1);
    text_bytes(out, "PK\5\6", 4);
    text_u32(out, 0);
    text_u16(out, (unsigned)archive->count);
    text_u16(out, (unsigned)archive->count);
    text_u32(out, end - start);
    text_u32(out, start);
    text_u16(out, 0);
}

static void default_id(const struct archive *archive, char id[41])
{
    uint64_t names = 0xcbf29ce484222325ULL, contents = 0;
    for (size_t i = 0; i < archive->count; i++) {
        for (const char *c = archive->members[i].name; *c != '\0'; c++)
            names = (names ^ (unsigned char)*c) * 0x100000001b3ULL;
        contents = contents * 31 + archive->members[i].crc;
    }
    snprintf(id, 41, "%020llu%020llu", (unsigned long long)names, (unsigned long long)contents);
}

void torch_file_build(const struct torch_file_value *value, const struct torch_file_meta *meta, const char *record,
                      const char *serialization_id, struct text *out)
{
    struct archive archive = {.out = out, .base = out->length, .record = record};
    struct text pickled;
    text_init(&pickled);
    data_pkl(value, meta, &pickled);
    add_member(&archive, "data.pkl", pickled.data, pickled.length);
    text_fini(&pickled);
    add_member(&archive, ".format_version", "1", 1);
    add_member(&archive, ".storage_alignment", "64", 2);
    add_member(&archive, "byteorder", "little", 6);
    if (value->strings == NULL)
        add_member(&archive, "data/0", value->data, element_count(value) * TYPES[value->type].bytes);
    add_member(&archive, "version", "3\n", 2);
    char id[41];
    if (serialization_id == NULL) {
        default_id(&archive, id);
        serialization_id = id;
    }
    add_member(&archive, ".data/serialization_id", serialization_id, strlen(serialization_id));
    finish(&archive);
}
