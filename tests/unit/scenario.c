#include "scenario_internal.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                         \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #condition); \
            abort();                                                            \
        }                                                                       \
    } while (0)

static void *new_zeroed(size_t count, size_t size)
{
    void *block = calloc(count + 1, size);
    MUST(block != NULL);
    return block;
}

struct scenario_model scenario_small(void)
{
    return (struct scenario_model){.layers = 3,
                                   .hidden = 16,
                                   .heads = 4,
                                   .key_value_heads = 2,
                                   .head_size = 4,
                                   .intermediate = 24,
                                   .vocabulary = 32,
                                   .type = TORCH_FILE_FLOAT32,
                                   .tp_size = 1};
}

struct scenario *scenario_begin(const struct scenario_model *model)
{
    struct scenario *s = new_zeroed(1, sizeof *s);
    s->model = *model;
    snprintf(s->layers, sizeof s->layers, "%s", model->layers_name != NULL ? model->layers_name : "model.layers");
    snprintf(s->root, sizeof s->root, "%s", s->layers);
    char *dot = strrchr(s->root, '.');
    MUST(dot != NULL && model->tp_size >= 1 && model->tp_size <= SCENARIO_RANKS);
    *dot = '\0';
    return s;
}

void scenario_end(struct scenario *s)
{
    for (unsigned i = 0; i < s->sequence_count; i++) {
        free(s->sequences[i].rid);
        free(s->sequences[i].tokens);
        free(s->sequences[i].history);
    }
    free(s->folder);
    free(s);
}

unsigned scenario_request(struct scenario *s, const char *rid, const int64_t *tokens, size_t count)
{
    MUST(s->sequence_count < SCENARIO_REQUESTS);
    struct scenario_sequence *sequence = &s->sequences[s->sequence_count];
    *sequence = (struct scenario_sequence){.rid = strdup(rid), .slot = s->sequence_count + 1, .count = count};
    sequence->tokens = new_zeroed(count, sizeof *tokens);
    memcpy(sequence->tokens, tokens, count * sizeof *tokens);
    sequence->history = new_zeroed((size_t)s->model.layers * SCENARIO_RANKS * count, sizeof *sequence->history);
    return s->sequence_count++;
}

void scenario_slot(struct scenario *s, unsigned request, int64_t slot)
{
    s->sequences[request].slot = slot;
}

void scenario_open(struct scenario *s, const char *folder)
{
    free(s->folder);
    s->folder = strdup(folder);
}

void scenario_counters(struct scenario *s, long step, long index)
{
    for (int rank = 0; rank < SCENARIO_RANKS; rank++) {
        s->step[rank] = step;
        s->index[rank] = index;
    }
}

long scenario_step(const struct scenario *s, int rank)
{
    return s->step[rank];
}

void scenario_fault(struct scenario *s, const struct scenario_fault *fault)
{
    MUST(s->fault_count < sizeof s->faults / sizeof s->faults[0]);
    s->faults[s->fault_count++] = *fault;
}

void scenario_heal(struct scenario *s)
{
    s->first_fault = s->fault_count;
}

/* ------------------------------------------------------------------ numbers */

uint64_t scenario_mix(uint64_t a, uint64_t b)
{
    uint64_t value = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static bool touches(const struct scenario_fault *change, unsigned first, unsigned count)
{
    return change->element < first + count && (change->elements == 0 || change->element + change->elements > first);
}

uint64_t scenario_key(const struct scenario_row *row, unsigned width)
{
    uint64_t key = scenario_mix(row->hash, row->offset);
    if (row->change == NULL || !touches(row->change, row->offset, width))
        return key;
    uint64_t factor;
    memcpy(&factor, &row->change->factor, sizeof factor);
    key = scenario_mix(key, scenario_mix(row->change->change + 1, factor));
    return scenario_mix(key, scenario_mix((uint64_t)row->change->amount,
                                          ((uint64_t)row->change->element << 32) + row->change->elements));
}

static uint32_t float_bits(uint64_t hash, unsigned column)
{
    uint64_t bits = scenario_mix(hash, column + 1);
    return (uint32_t)(bits >> 63) << 31 | (uint32_t)(124 + (bits >> 60 & 3)) << 23 | (uint32_t)(bits & 0x7fffff);
}

static uint32_t changed(uint32_t bits, const struct scenario_fault *change, uint64_t hash, unsigned column)
{
    float value;
    switch (change->change) {
    case SCENARIO_SCALE:
        memcpy(&value, &bits, sizeof value);
        value = (float)(value * change->factor);
        memcpy(&bits, &value, sizeof bits);
        return bits;
    case SCENARIO_RANDOM:
        return float_bits(~hash, column);
    case SCENARIO_NAN:
        return 0x7fc00000;
    case SCENARIO_ZERO:
        return 0;
    case SCENARIO_NEGATIVE_ZERO:
        return 0x80000000;
    default:
        return bits;
    }
}

/* Cuts float32 to the type; units in the last place are of that type. */
static uint32_t narrowed(enum torch_file_type type, uint32_t bits)
{
    if (type == TORCH_FILE_BFLOAT16)
        return bits >> 16;
    if (type == TORCH_FILE_FLOAT32)
        return bits;
    uint32_t exponent = bits >> 23 & 0xff;
    if (exponent == 0xff)
        return 0x7e00;
    return (bits >> 16 & 0x8000) | (exponent == 0 ? 0 : (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static void put_row(const struct scenario_row *row, enum torch_file_type type, unsigned width, unsigned char *out)
{
    size_t bytes = torch_file_item_bytes(type);
    for (unsigned i = 0; i < width; i++) {
        unsigned column = row->offset + i;
        uint32_t bits = float_bits(row->hash, column);
        bool hit = row->change != NULL && touches(row->change, column, 1);
        if (hit)
            bits = changed(bits, row->change, row->hash, column);
        bits = narrowed(type, bits);
        if (hit && row->change->change == SCENARIO_ULP)
            bits += (uint32_t)row->change->amount;
        for (size_t k = 0; k < bytes; k++)
            out[i * bytes + k] = (unsigned char)(bits >> 8 * k);
    }
}

/* ------------------------------------------------------------------ faults */

static bool is_named(const char *wanted, const char *name, int layer)
{
    const char *at = strchr(wanted, '@');
    size_t length = at != NULL ? (size_t)(at - wanted) : strlen(wanted);
    return strncmp(wanted, name, length) == 0 && name[length] == '\0' && (at == NULL || atoi(at + 1) == layer);
}

static const struct scenario_fault *find_fault(const struct scenario *s, const char *name, int layer, int rank,
                                               const struct scenario_token *token)
{
    for (unsigned i = s->first_fault; i < s->fault_count && !s->silent; i++) {
        const struct scenario_fault *fault = &s->faults[i];
        bool phase = fault->when == SCENARIO_ALWAYS || (fault->when == SCENARIO_DECODE) == token->decode;
        if (phase && token->sequence != NULL && is_named(fault->name, name, layer) &&
            (fault->requests == 0 || fault->requests >> token->request & 1) &&
            (fault->ranks == 0 || fault->ranks >> rank & 1) && token->position >= fault->first &&
            (fault->last == 0 || token->position <= fault->last))
            return fault;
    }
    return NULL;
}

/* The row as its file has it; what goes on is stored in `rows`. */
static struct scenario_row plant(const struct scenario *s, const char *name, int layer, int rank, size_t i,
                                 const struct scenario_row *before, struct scenario_row *rows, unsigned width)
{
    size_t at = (size_t)rank * s->token_count + i;
    struct scenario_row row = before[at];
    const struct scenario_fault *fault = find_fault(s, name, layer, rank, &s->tokens[i]);
    if (fault == NULL)
        return row;
    if (fault->change == SCENARIO_ROW) {
        int64_t from = (int64_t)i + fault->amount;
        if (from >= 0 && from < (int64_t)s->token_count)
            row = before[(size_t)rank * s->token_count + (size_t)from];
    } else {
        if (row.change != NULL)
            row.hash = scenario_key(&row, width);
        row.change = fault;
    }
    if (!fault->harmless)
        rows[at] = row;
    return row;
}

/* ------------------------------------------------------------------ files */

static void write_file(struct scenario *s, int rank, const char *name, int layer, struct torch_file_value *value)
{
    char record[3 * SCENARIO_NAME], path[4096];
    bool stages = s->model.replicas;
    struct torch_file_meta meta = {.step = s->step[rank],
                                   .rank = rank,
                                   .dump_index = ++s->index[rank],
                                   .name = name,
                                   .layer_id = layer,
                                   .world_size = (int)s->model.tp_size,
                                   .attention_replicas = stages ? (int)s->model.tp_size : 0,
                                   .tokenizer_path = "MODEL"};
    int length = snprintf(record, sizeof record, "step=%ld___rank=%d___dump_index=%ld___name=%s___recompute_status=%s",
                          meta.step, rank, meta.dump_index, name, "disabled");
    if (layer >= 0)
        snprintf(record + length, sizeof record - (size_t)length, "___layer_id=%d", layer);
    snprintf(path, sizeof path, "%s/%s.pt", s->folder, record);
    value->device = "cpu";
    struct text text;
    text_init(&text);
    torch_file_build(value, &meta, record, NULL, &text);
    FILE *file = fopen(path, "w");
    MUST(file != NULL && fwrite(text.data, 1, text.length, file) == text.length && fclose(file) == 0);
    text_fini(&text);
}

static void write_matrix(struct scenario *s, int rank, const char *name, int layer, enum torch_file_type type,
                         const void *data, size_t rows, size_t columns)
{
    char full[2 * SCENARIO_NAME + 16];
    struct torch_file_value value = {
        .type = type, .data = data, .dimensions = 2, .size = {rows, columns}, .stride = {columns, 1}};
    snprintf(full, sizeof full, "non_intrusive__%s", name);
    write_file(s, rank, full, layer, &value);
}

void scenario_emit(struct scenario *s, const char *name, int layer, struct scenario_row *rows, unsigned width,
                   unsigned heads)
{
    if (s->silent)
        return;
    size_t count = (size_t)SCENARIO_RANKS * s->token_count, item = torch_file_item_bytes(s->model.type);
    struct scenario_row *before = new_zeroed(count, sizeof *before);
    unsigned char *data = new_zeroed(s->token_count * width, item);
    memcpy(before, rows, count * sizeof *rows);
    for (int rank = s->first_rank; rank < s->end_rank; rank++) {
        for (size_t i = 0; i < s->token_count; i++) {
            struct scenario_row row = plant(s, name, layer, rank, i, before, rows, width);
            put_row(&row, s->model.type, width, data + i * width * item);
        }
        write_matrix(s, rank, name, layer, s->model.type, data, s->token_count * heads, width / heads);
    }
    free(before);
    free(data);
}

void scenario_emit_logits(struct scenario *s, const char *name, struct scenario_row *rows, unsigned width)
{
    if (s->silent)
        return;
    unsigned char *data = new_zeroed(s->token_count * width, 4);
    size_t count = (size_t)SCENARIO_RANKS * s->token_count;
    struct scenario_row *before = new_zeroed(count, sizeof *before);
    memcpy(before, rows, count * sizeof *rows);
    for (int rank = s->first_rank; rank < s->end_rank; rank++) {
        size_t written = 0;
        for (size_t i = 0; i < s->token_count; i++) {
            if (!s->tokens[i].last)
                continue;
            struct scenario_row row = plant(s, name, -1, rank, i, before, rows, width);
            put_row(&row, TORCH_FILE_FLOAT32, width, data + 4 * width * written++);
        }
        write_matrix(s, rank, name, -1, TORCH_FILE_FLOAT32, data, written, width);
    }
    free(before);
    free(data);
}

void scenario_emit_integers(struct scenario *s, const char *name, bool core, int layer, int64_t *values, size_t rows,
                            unsigned columns)
{
    char full[2 * SCENARIO_NAME + 16];
    if (s->silent)
        return;
    snprintf(full, sizeof full, "%s%s", core ? "" : "non_intrusive__", name);
    int64_t *data = new_zeroed(rows * columns, sizeof *data);
    memcpy(data, values, rows * columns * sizeof *data);
    for (size_t i = 0; i < rows && rows == s->token_count; i++) {
        const struct scenario_fault *fault = find_fault(s, name, layer, s->first_rank, &s->tokens[i]);
        for (unsigned k = 0; fault != NULL && k < columns; k++) {
            if (!touches(fault, k, 1))
                continue;
            data[i * columns + k] = fault->amount;
            if (!fault->harmless)
                values[i * columns + k] = fault->amount;
        }
    }
    for (int rank = s->first_rank; rank < s->end_rank; rank++) {
        struct torch_file_value value = {.type = TORCH_FILE_INT64,
                                         .data = data,
                                         .dimensions = columns > 1 ? 2 : 1,
                                         .size = {rows, columns},
                                         .stride = {columns, 1}};
        write_file(s, rank, full, layer, &value);
    }
    free(data);
}

void scenario_emit_texts(struct scenario *s, const char *name, const char *const *texts, size_t count)
{
    struct torch_file_value value = {.strings = texts, .string_count = count};
    for (int rank = s->first_rank; rank < s->end_rank; rank++)
        write_file(s, rank, name, -1, &value);
}

/* ------------------------------------------------------------------ passes */

static void add_part(struct scenario *s, const struct scenario_part *part)
{
    struct scenario_sequence *sequence = &s->sequences[part->request];
    MUST(part->request < s->sequence_count && part->position + part->rows <= sequence->count);
    for (unsigned i = 0; i < part->rows; i++) {
        int64_t position = part->position + i;
        s->tokens[s->token_count++] =
            (struct scenario_token){.sequence = sequence,
                                    .request = part->request,
                                    .position = position,
                                    .shown = position,
                                    .id = part->ids != NULL ? part->ids[i] : sequence->tokens[position],
                                    .decode = part->rows == 1 && part->position > 0,
                                    .last = part->verify || i + 1 == part->rows};
    }
}

/* What lies in the cache before the part begins. */
static void compute_before(struct scenario *s, const struct scenario_part *part)
{
    struct scenario_sequence *sequence = &s->sequences[part->request];
    size_t computed = sequence->computed;
    sequence->computed = part->position + part->rows;
    if (computed >= part->position)
        return;
    s->silent = true;
    s->token_count = 0;
    add_part(s, &(struct scenario_part){part->request, (unsigned)computed, part->position - (unsigned)computed, 0, 0});
    scenario_forward(s);
    s->silent = false;
    s->token_count = 0;
}

static void emit_core(struct scenario *s, const struct scenario_pass *pass)
{
    size_t requests = pass->part_count + pass->padding_requests;
    int64_t *ids = new_zeroed(s->token_count, sizeof *ids), *positions = new_zeroed(s->token_count, sizeof *positions);
    int64_t *lengths = new_zeroed(requests, sizeof *lengths), *slots = new_zeroed(requests, sizeof *slots);
    const char *rids[8];
    for (size_t i = 0; i < s->token_count; i++) {
        ids[i] = s->tokens[i].id;
        positions[i] = s->tokens[i].shown;
    }
    for (size_t i = 0; i < requests; i++) {
        const struct scenario_part *part = &pass->parts[i];
        lengths[i] = i >= pass->part_count ? 1 : part->position + (part->verify ? 0 : part->rows);
        if (pass->lengths != NULL)
            lengths[i] = pass->lengths[i];
        if (i >= pass->part_count)
            continue;
        slots[i] = s->sequences[part->request].slot;
        rids[i] = s->sequences[part->request].rid;
    }
    if (!pass->core_only) {
        scenario_emit_integers(s, "inputs.0", false, -1, ids, s->token_count, 1);
        scenario_emit_integers(s, "inputs.1", false, -1, positions, s->token_count, 1);
    }
    scenario_emit_integers(s, "input_ids", true, -1, ids, s->token_count, 1);
    scenario_emit_integers(s, "seq_lens", true, -1, lengths, requests, 1);
    scenario_emit_integers(s, "positions", true, -1, positions, s->token_count, 1);
    scenario_emit_integers(s, "req_pool_indices", true, -1, slots, requests, 1);
    if (!pass->no_rids)
        scenario_emit_texts(s, "rids", rids, pass->part_count);
    free(ids);
    free(positions);
    free(lengths);
    free(slots);
}

void scenario_pass(struct scenario *s, const struct scenario_pass *pass)
{
    size_t count = pass->padding;
    for (size_t i = 0; i < pass->part_count; i++) {
        const struct scenario_part *part = &pass->parts[i];
        count += part->rows + s->sequences[part->request].count;
    }
    s->first_rank = s->model.replicas ? pass->rank : 0;
    s->end_rank = s->model.replicas ? pass->rank + 1 : (int)s->model.tp_size;
    s->tokens = new_zeroed(count, sizeof *s->tokens);
    for (size_t i = 0; i < pass->part_count; i++)
        compute_before(s, &pass->parts[i]);
    s->token_count = 0;
    for (size_t i = 0; i < pass->part_count; i++)
        add_part(s, &pass->parts[i]);
    for (unsigned i = 0; i < pass->padding; i++)
        s->tokens[s->token_count++] = (struct scenario_token){.last = i < pass->padding_requests};
    for (size_t i = 0; i < s->token_count && pass->positions != NULL; i++)
        s->tokens[i].shown = pass->positions[i];
    emit_core(s, pass);
    if (!pass->core_only)
        scenario_forward(s);
    for (int rank = s->first_rank; rank < s->end_rank; rank++)
        s->step[rank]++;
    free(s->tokens);
    s->tokens = NULL;
}

void scenario_prefill(struct scenario *s, unsigned request, unsigned rows)
{
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = request, .rows = rows}}, .part_count = 1});
}

void scenario_decode(struct scenario *s, unsigned request, unsigned first, unsigned last)
{
    for (unsigned position = first; position <= last; position++)
        scenario_pass(s, &(struct scenario_pass){.parts = {{.request = request, .position = position, .rows = 1}},
                                                 .part_count = 1});
}

unsigned scenario_remove(const char *folder, ...)
{
    DIR *directory = opendir(folder);
    unsigned removed = 0;
    MUST(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        va_list parts;
        bool all = entry->d_name[0] != '.';
        va_start(parts, folder);
        for (const char *part; (part = va_arg(parts, const char *)) != NULL;)
            all = all && strstr(entry->d_name, part) != NULL;
        va_end(parts);
        if (all) {
            MUST(unlinkat(dirfd(directory), entry->d_name, 0) == 0);
            removed++;
        }
    }
    closedir(directory);
    return removed;
}
