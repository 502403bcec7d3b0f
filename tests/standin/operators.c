/* operators.c: see operators.h. */
#include "operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* ------------------------------------------------------------------ types */

static uint32_t bits_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static float number_of(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Nearest, ties to even, with `dropped` bits of the fraction away. */
static float drop_bits(float number, unsigned dropped)
{
    uint32_t bits = bits_of(number), half = (1U << (dropped - 1)) - 1;
    bits += half + (bits >> dropped & 1);
    return number_of(bits & ~((1U << dropped) - 1));
}

enum { HALF_DROPPED = 13, BFLOAT_DROPPED = 16 };
static const float HALF_SMALLEST_NORMAL = 0x1p-14F, HALF_BEYOND = 65520.0F;

static float round_half(float number)
{
    float size = fabsf(number);
    if (size < HALF_SMALLEST_NORMAL)
        size = (size + 0.5F) - 0.5F; /* the last bit of a float at 0.5 is 2^-24, the smallest half */
    else
        size = size >= HALF_BEYOND ? INFINITY : drop_bits(size, HALF_DROPPED);
    return copysignf(size, number);
}

void operators_round(enum torch_file_type type, float *numbers, size_t count)
{
    if (type == TORCH_FILE_BFLOAT16)
        for (size_t i = 0; i < count; i++)
            numbers[i] = drop_bits(numbers[i], BFLOAT_DROPPED);
    if (type == TORCH_FILE_FLOAT16)
        for (size_t i = 0; i < count; i++)
            numbers[i] = round_half(numbers[i]);
}

float operators_next(enum torch_file_type type, float number)
{
    uint32_t step = type == TORCH_FILE_BFLOAT16  ? 1U << BFLOAT_DROPPED
                    : type == TORCH_FILE_FLOAT16 ? 1U << HALF_DROPPED
                                                 : 1;
    if (type == TORCH_FILE_FLOAT16 && number >= -HALF_SMALLEST_NORMAL && number < HALF_SMALLEST_NORMAL)
        return number + 0x1p-24F;
    if (number == 0)
        return number_of(step);
    return number_of(number > 0 ? bits_of(number) + step : bits_of(number) - step);
}

static uint16_t half_of(float number)
{
    float size = fabsf(number);
    uint32_t bits = bits_of(size);
    uint32_t half = isinf(size)                   ? 0x7c00
                    : size < HALF_SMALLEST_NORMAL ? (uint32_t)(size * 0x1p24F)
                                                  : (bits >> HALF_DROPPED) - (112U << 10);
    return (uint16_t)(half | (bits_of(number) >> 16 & 0x8000));
}

void operators_store(char *target, enum torch_file_type type, float number)
{
    uint32_t bits = type == TORCH_FILE_INT32 ? (uint32_t)(int32_t)number : bits_of(number);
    uint16_t half = type == TORCH_FILE_FLOAT16 ? half_of(number) : (uint16_t)(bits >> 16);
    size_t bytes = torch_file_item_bytes(type);
    memcpy(target, bytes == sizeof half ? (const void *)&half : &bits, bytes);
}

/* ------------------------------------------------------------------ weights */

static uint64_t mix(uint64_t value)
{
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ULL;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebULL;
    return value ^ value >> 31;
}

float operators_hash(uint64_t seed, uint64_t place, float scale)
{
    return scale * ((float)(mix(mix(seed) + place * 0x9e3779b97f4a7c15ULL) >> 40) * 0x1p-23F - 1.0F);
}

struct operators_matrix operators_matrix_make(enum torch_file_type type, uint64_t seed, size_t inner, size_t columns)
{
    size_t blocks = (columns + OPERATORS_BLOCK - 1) / OPERATORS_BLOCK;
    struct operators_matrix matrix = {.inner = inner, .columns = columns};
    matrix.blocks = text_allocate(blocks * inner * OPERATORS_BLOCK * sizeof(float));
    float scale = sqrtf(3.0F / (float)inner), *at = matrix.blocks;
    for (size_t block = 0; block < blocks; block++)
        for (size_t i = 0; i < inner; i++)
            for (size_t b = 0; b < OPERATORS_BLOCK; b++) {
                size_t column = block * OPERATORS_BLOCK + b;
                *at++ = column < columns ? operators_hash(seed, i * columns + column, scale) : 0;
            }
    operators_round(type, matrix.blocks, blocks * inner * OPERATORS_BLOCK);
    return matrix;
}

/* ------------------------------------------------------------------ sums */

static void multiply(const struct operators_matrix *matrix, const float *row, size_t begin, size_t end, float *ret_row)
{
    for (size_t first = 0; first < matrix->columns; first += OPERATORS_BLOCK) {
        const float *weights = matrix->blocks + first * matrix->inner + begin * OPERATORS_BLOCK;
        float sums[OPERATORS_BLOCK] = {0};
        for (size_t i = begin; i < end; i++, weights += OPERATORS_BLOCK)
            for (size_t b = 0; b < OPERATORS_BLOCK; b++)
                sums[b] += row[i] * weights[b];
        size_t rest = matrix->columns - first;
        memcpy(ret_row + first, sums, (rest < OPERATORS_BLOCK ? rest : OPERATORS_BLOCK) * sizeof sums[0]);
    }
}

void operators_product_part(const struct operators_matrix *matrix, enum torch_file_type type, const float *row,
                            size_t parts, size_t part, float *ret_row)
{
    size_t length = matrix->inner / parts;
    multiply(matrix, row, part * length, part + 1 < parts ? (part + 1) * length : matrix->inner, ret_row);
    operators_round(type, ret_row, matrix->columns);
}

void operators_product(const struct operators_matrix *matrix, enum torch_file_type type, const float *row, size_t parts,
                       float *ret_row)
{
    operators_product_part(matrix, type, row, parts, 0, ret_row);
    if (parts == 1)
        return;
    float *next = text_allocate(matrix->columns * sizeof next[0]);
    for (size_t part = 1; part < parts; part++) {
        operators_product_part(matrix, type, row, parts, part, next);
        operators_add(type, ret_row, next, matrix->columns, ret_row);
    }
    free(next);
}

void operators_add(enum torch_file_type type, const float *one, const float *other, size_t count, float *ret_sum)
{
    for (size_t i = 0; i < count; i++)
        ret_sum[i] = one[i] + other[i];
    operators_round(type, ret_sum, count);
}

void operators_norm(enum torch_file_type type, const float *row, const float *weights, float epsilon, size_t count,
                    float *ret_row)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += row[i] * row[i];
    float factor = 1.0F / sqrtf(sum / (float)count + epsilon);
    for (size_t i = 0; i < count; i++)
        ret_row[i] = row[i] * factor * weights[i];
    operators_round(type, ret_row, count);
}

void operators_gate(enum torch_file_type type, const float *gate, const float *up, size_t count, float *ret_row)
{
    for (size_t i = 0; i < count; i++)
        ret_row[i] = gate[i] / (1.0F + expf(-gate[i])) * up[i];
    operators_round(type, ret_row, count);
}

/* ------------------------------------------------------------------ attention */

void operators_angles(int64_t position, size_t head, float *ret_angles)
{
    for (size_t i = 0; i < head / 2; i++) {
        float angle = (float)position * powf(10000.0F, -2.0F * (float)i / (float)head);
        ret_angles[2 * i] = cosf(angle);
        ret_angles[2 * i + 1] = sinf(angle);
    }
}

void operators_rotate(enum torch_file_type type, const float *row, const float *angles, size_t heads, size_t head,
                      float *ret_row)
{
    size_t half = head / 2;
    memcpy(ret_row, row, heads * head * sizeof row[0]); /* an odd number of a head stays */
    for (size_t h = 0; h < heads; h++, row += head, ret_row += head)
        for (size_t i = 0; i < half; i++) {
            float cosine = angles[2 * i], sine = angles[2 * i + 1];
            ret_row[i] = row[i] * cosine - row[half + i] * sine;
            ret_row[half + i] = row[half + i] * cosine + row[i] * sine;
        }
    operators_round(type, ret_row - heads * head, heads * head);
}

/* Weights of the positions, not yet divided by their sum, which is returned. */
static float weigh(const float *query, const float *const *keys, size_t count, size_t offset, size_t head,
                   float *ret_weights)
{
    float scale = 1.0F / sqrtf((float)head), largest = -INFINITY, total = 0;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (size_t j = 0; j < head; j++)
            sum += query[j] * keys[i][offset + j];
        ret_weights[i] = sum * scale;
        largest = fmaxf(largest, ret_weights[i]);
    }
    for (size_t i = 0; i < count; i++) {
        ret_weights[i] = expf(ret_weights[i] - largest);
        total += ret_weights[i];
    }
    return total;
}

void operators_attend(enum torch_file_type type, const float *query, const float *const *keys,
                      const float *const *values, size_t count, size_t heads, size_t key_value_heads, size_t head,
                      float *scores, float *ret_row)
{
    size_t shared = heads / key_value_heads > 0 ? heads / key_value_heads : 1;
    memset(ret_row, 0, heads * head * sizeof ret_row[0]);
    for (size_t h = 0; h < heads; h++) {
        size_t owner = h / shared < key_value_heads ? h / shared : key_value_heads - 1;
        float *row = ret_row + h * head, total = weigh(query + h * head, keys, count, owner * head, head, scores);
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < head; j++)
                row[j] += scores[i] * values[i][owner * head + j];
        for (size_t j = 0; count > 0 && j < head; j++)
            row[j] /= total;
    }
    operators_round(type, ret_row, heads * head);
}

/* ------------------------------------------------------------------ logits */

size_t operators_largest(const float *numbers, size_t count)
{
    size_t place = 0;
    for (size_t i = 1; i < count; i++)
        if (numbers[i] > numbers[place])
            place = i;
    return place;
}

double operators_log_softmax(const float *logits, size_t count, size_t place)
{
    float largest = logits[operators_largest(logits, count)], sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += expf(logits[i] - largest);
    return (double)(logits[place] - largest - logf(sum));
}
