/* Opens, judges shapes, compares rows, and counts. */
#include "analysis/compare_rows.h"

#include "base/memory.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FINGERPRINT_BYTES = 4096,
    ULP_MARK_MAX = 252,
    EXPANDED_MOST = 1 << 24,
    EXPANDED_TIMES = 16,
    RUN_BYTES = 256 * 1024, /* of each side at once: both stay in the second cache */
};

void compare_rows_init(struct compare_rows *rows, const struct compare_rows_shared *shared)
{
    *rows = (struct compare_rows){.shared = shared, .observation = SIZE_MAX};
    for (int side = 0; side < 2; side++) {
        rows->files[side] = pt_file_new();
        rows->open_pass[side] = OBSERVATIONS_NONE;
    }
}

void compare_rows_fini(struct compare_rows *rows)
{
    pt_file_free(rows->files[0]);
    pt_file_free(rows->files[1]);
}

static void begin_observation(struct compare_rows *rows, size_t observation)
{
    rows->observation = observation;
    rows->open_pass[0] = rows->open_pass[1] = OBSERVATIONS_NONE;
}

static void keep_trouble(struct compare_rows *rows, const char *name, enum pt_file_problem problem, const char *what)
{
    struct compare_trouble *trouble = &rows->shared->found[rows->observation].trouble;
    char clean[AUDIT_TABLE_NAME];
    trouble->files++;
    if (trouble->text != NULL)
        return;
    trouble->problem = problem;
    text_clean(name, strlen(name), clean, sizeof clean);
    /* the reader of files has named it already, whoever had nothing to read has not */
    trouble->text = text_starts(what, clean) ? memory_copy(what) : memory_format("%s: %s", clean, what);
}

/* An expanded dimension costs nothing in the file and everything here: a size that no row of a model explains. */
static bool is_bloated(const struct pt_file_tensor *tensor)
{
    uint64_t stored = tensor->storage_bytes / pt_dtype_bytes(tensor->dtype);
    return tensor->elements > EXPANDED_MOST && tensor->elements / EXPANDED_TIMES > stored;
}

const struct pt_file_tensor *compare_rows_open(struct compare_rows *rows, bool of_b, uint32_t pass)
{
    const struct compare_rows_shared *shared = rows->shared;
    struct pt_file *pt = rows->files[of_b];
    if (rows->open_pass[of_b] == pass)
        return rows->usable[of_b] ? pt_file_tensor(pt) : NULL;
    const struct side *side = shared->sides[of_b];
    const struct audit_table_file *file = observations_file(side, shared->files[of_b], pass, rows->observation);
    rows->open_pass[of_b] = pass;
    rows->usable[of_b] = false;
    if (file == NULL)
        return NULL;
    const struct side_folder *folder = &side->folders[side->passes[pass].folder];
    char name[AUDIT_TABLE_NAME];
    struct error error = ERROR_INIT;
    audit_table_name(&folder->table, file, name);
    rows->files_opened++;
    if (pt_file_open(pt, folder->fd, name, &error) != ERROR_NONE) {
        keep_trouble(rows, name, pt_file_problem(pt), error.message);
        return NULL;
    }
    if (pt_file_tensor(pt) == NULL) {
        keep_trouble(rows, name, PT_FILE_FINE, "holds no tensor");
        return NULL;
    }
    if (is_bloated(pt_file_tensor(pt))) {
        keep_trouble(rows, name, PT_FILE_GEOMETRY, "has many times more elements than it stores");
        return NULL;
    }
    rows->usable[of_b] = true;
    return pt_file_tensor(pt);
}

static const void *read_elements(struct compare_rows *rows, bool of_b, uint64_t first, uint64_t count)
{
    struct pt_file *pt = rows->files[of_b];
    struct error error = ERROR_INIT;
    const void *elements;
    if (pt_file_elements(pt, first, count, &elements, &error) == ERROR_NONE) {
        rows->bytes_read += count * pt_dtype_bytes(pt_file_tensor(pt)->dtype);
        return elements;
    }
    const struct side *side = rows->shared->sides[of_b];
    uint32_t pass = rows->open_pass[of_b];
    char name[AUDIT_TABLE_NAME];
    audit_table_name(&side->folders[side->passes[pass].folder].table,
                     observations_file(side, rows->shared->files[of_b], pass, rows->observation), name);
    keep_trouble(rows, name, PT_FILE_UNREADABLE, error.message);
    rows->usable[of_b] = false;
    return NULL;
}

/* What was found out about one pair. */
struct judgement {
    bool equal, rounded, across; /* across: of two dtypes, by value; numbers has counts only */
    struct numbers numbers;
};

static uint8_t mark_of(const struct judgement *judgement)
{
    const struct numbers *numbers = &judgement->numbers;
    if (judgement->equal)
        return DIFF_MARK_EQUAL;
    if (judgement->across || numbers->unequal == 0)
        return DIFF_MARK_OTHER;
    if (numbers->nan_against_number + numbers->infinite_against_finite > 0)
        return DIFF_MARK_NAN;
    unsigned size = numbers->max_ulp == 0 ? 0 : 63 - (unsigned)__builtin_clzll(numbers->max_ulp);
    return (uint8_t)(DIFF_MARK_ULP + (size < ULP_MARK_MAX ? size : ULP_MARK_MAX));
}

/* The first unequal element is that of the first pair, whatever order the passes were read in. */
static void add_unequal(struct diff_observation *observation, size_t pair, const struct numbers *numbers)
{
    bool first = pair < observation->first_unequal_pair;
    numbers_merge(&observation->numbers, numbers);
    if (!first)
        return;
    observation->first_unequal_pair = pair;
    observation->numbers.first_unequal = numbers->first_unequal;
    observation->numbers.first_a = numbers->first_a;
    observation->numbers.first_b = numbers->first_b;
    observation->numbers.first_bits_a = numbers->first_bits_a;
    observation->numbers.first_bits_b = numbers->first_bits_b;
}

static void put(struct compare_rows *rows, uint32_t pair, uint64_t elements, const struct judgement *judgement)
{
    struct diff_observation *observation = &rows->shared->diff->observations[rows->observation];
    struct compare_found *found = &rows->shared->found[rows->observation];
    found->not_rounding |= judgement != NULL && judgement->across && !judgement->rounded;
    observation->marks[pair] = judgement == NULL ? DIFF_MARK_EQUAL : mark_of(judgement);
    bool unequal = judgement != NULL && !judgement->equal;
    if (rows->shared->alignment->pairs[pair].target) {
        observation->tested++;
        observation->unequal += unequal;
        if (unequal)
            add_unequal(observation, pair, &judgement->numbers);
        return;
    }
    observation->control_tested++;
    observation->control_unequal += unequal;
    found->control_elements += elements;
    if (unequal)
        found->control_unequal += judgement->numbers.unequal;
}

static void finish(const struct compare_rows *rows, struct judgement *judgement)
{
    judgement->equal =
        judgement->numbers.unequal == 0 && (judgement->numbers.signed_zeros == 0 || !rows->shared->strict_zero);
}

static void fingerprint(struct compare_rows *rows, uint32_t pair, const void *row, uint64_t bytes)
{
    if (pair != rows->shared->first_target || bytes < sizeof(uint64_t))
        return;
    const unsigned char *at = row;
    uint64_t value = bytes, first, word;
    bool constant = true;
    memcpy(&first, at, sizeof first);
    for (uint64_t i = 0; i + sizeof word <= bytes && i < FINGERPRINT_BYTES; i += sizeof word) {
        memcpy(&word, at + i, sizeof word);
        constant &= word == first;
        value = (value ^ word) * 0x9E3779B97F4A7C15;
        value ^= value >> 32;
    }
    rows->shared->found[rows->observation].fingerprint = constant ? 0 : value | 1;
}

/* Compares the pieces of one row, window by window; first bits alone, then, where they differ, the numbers. */
static bool judge_pieces(struct compare_rows *rows, const struct rows_reading *reading, uint64_t a_row, uint64_t b_row,
                         struct judgement *ret_judgement, uint64_t *ret_elements)
{
    const struct pt_file_tensor *a = pt_file_tensor(rows->files[0]), *b = pt_file_tensor(rows->files[1]);
    uint64_t first_a, step_a, pieces, length, first_b, step_b, pieces_b, length_b;
    if (!rows_pieces(reading, a, a_row, &first_a, &step_a, &pieces, &length) ||
        !rows_pieces(reading, b, b_row, &first_b, &step_b, &pieces_b, &length_b) || pieces != pieces_b ||
        length != length_b)
        return false;
    size_t bytes_a = pt_dtype_bytes(a->dtype), bytes_b = pt_dtype_bytes(b->dtype);
    uint64_t window = PT_FILE_WINDOW / (bytes_a > bytes_b ? bytes_a : bytes_b);
    bool across = a->dtype != b->dtype, differs = false, rounded = true;
    *ret_elements = pieces * length;
    numbers_init(&ret_judgement->numbers);
    ret_judgement->across = across;
    for (int look = 0; look < (across ? 1 : 2) && (look == 0 || differs); look++)
        for (uint64_t piece = 0; piece < pieces; piece++)
            for (uint64_t done = 0; done < length; done += window) {
                uint64_t count = length - done < window ? length - done : window;
                const void *of_a = read_elements(rows, false, first_a + piece * step_a + done, count);
                const void *of_b = read_elements(rows, true, first_b + piece * step_b + done, count);
                if (of_a == NULL || of_b == NULL)
                    return false;
                if (across) {
                    bool after;
                    ret_judgement->numbers.unequal +=
                        numbers_unequal_values(a->dtype, of_a, b->dtype, of_b, count, &after);
                    ret_judgement->numbers.elements += count;
                    rounded &= after;
                } else if (look == 0) {
                    differs |= memcmp(of_a, of_b, count * bytes_a) != 0;
                } else if (numbers_add(&ret_judgement->numbers, a->dtype, of_a, of_b, count)) {
                    numbers_add_sums(&ret_judgement->numbers, a->dtype, of_a, count);
                }
            }
    ret_judgement->rounded = rounded;
    finish(rows, ret_judgement);
    return true;
}

static void compare_pair(struct compare_rows *rows, const struct rows_reading *reading, uint32_t pair)
{
    const struct alignment_pair *of = &rows->shared->alignment->pairs[pair];
    struct judgement judgement = {0};
    uint64_t elements;
    bool requests = reading->rows == DIFF_ROWS_REQUEST;
    if (requests && !(of->a_last && of->b_last))
        return;
    if (judge_pieces(rows, reading, requests ? of->a_request : of->a_row, requests ? of->b_request : of->b_row,
                     &judgement, &elements))
        put(rows, pair, elements, judgement.equal ? NULL : &judgement);
}

/* Neighbouring rows that lie side by side in both files. */
static void compare_run(struct compare_rows *rows, const struct compare_run *run, uint64_t length)
{
    const struct pt_file_tensor *a = pt_file_tensor(rows->files[0]);
    size_t bytes = length * pt_dtype_bytes(a->dtype);
    uint32_t most = bytes < RUN_BYTES ? (uint32_t)(RUN_BYTES / bytes) : 1;
    for (uint32_t done = 0; done < run->count;) {
        uint32_t count = run->count - done < most ? run->count - done : most;
        const char *of_a = read_elements(rows, false, (run->a_row + (uint64_t)done) * length, count * length);
        const char *of_b = read_elements(rows, true, (run->b_row + (uint64_t)done) * length, count * length);
        if (of_a == NULL || of_b == NULL)
            return;
        bool all = memcmp(of_a, of_b, count * bytes) == 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t pair = rows->shared->order[run->first + done + i];
            const char *row_a = of_a + i * bytes, *row_b = of_b + i * bytes;
            fingerprint(rows, pair, row_a, bytes);
            struct judgement judgement = {.equal = all || memcmp(row_a, row_b, bytes) == 0};
            if (!judgement.equal) {
                numbers_init(&judgement.numbers);
                numbers_add(&judgement.numbers, a->dtype, row_a, row_b, length);
                finish(rows, &judgement);
            }
            put(rows, pair, length, judgement.equal ? NULL : &judgement);
        }
        done += count;
    }
}

static bool holds_run(const struct rows_reading *reading, const struct pt_file_tensor *tensor, uint64_t rows)
{
    return rows * reading->factor <= tensor->size[reading->dimension];
}

static void compare_group(struct compare_rows *rows, const struct compare_group *group,
                          const struct rows_reading *reading)
{
    const struct compare_rows_shared *shared = rows->shared;
    const struct pt_file_tensor *a = pt_file_tensor(rows->files[0]), *b = pt_file_tensor(rows->files[1]);
    uint64_t first, step, pieces, length;
    if (reading->rows == DIFF_ROWS_SHARED) {
        struct judgement judgement = {0};
        uint64_t elements;
        if (!judge_pieces(rows, reading, 0, 0, &judgement, &elements))
            return;
        for (uint32_t i = 0; i < group->count; i++)
            put(rows, shared->order[group->first + i], elements, judgement.equal ? NULL : &judgement);
        return;
    }
    bool in_line = reading->rows == DIFF_ROWS_TOKEN && a->dtype == b->dtype &&
                   rows_pieces(reading, a, 0, &first, &step, &pieces, &length) && pieces == 1 && length > 0 &&
                   length * pt_dtype_bytes(a->dtype) <= PT_FILE_WINDOW;
    for (uint32_t i = 0; i < group->run_count; i++) {
        const struct compare_run *run = &shared->runs[group->first_run + i];
        if (in_line && holds_run(reading, a, (uint64_t)run->a_row + run->count) &&
            holds_run(reading, b, (uint64_t)run->b_row + run->count)) {
            compare_run(rows, run, length);
            continue;
        }
        for (uint32_t k = 0; k < run->count && rows->usable[0] && rows->usable[1]; k++)
            compare_pair(rows, reading, shared->order[run->first + k]);
    }
}

static void narrow(struct compare_rows *rows, struct rows *readings, bool of_b, uint32_t pass)
{
    const struct pt_file_tensor *tensor = compare_rows_open(rows, of_b, pass);
    const struct side_pass *of = &rows->shared->sides[of_b]->passes[pass];
    if (tensor != NULL)
        rows_narrow(readings, tensor, of->tokens, of->requests);
}

static void shape_text(const struct pt_file_tensor *tensor, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%s [", pt_dtype_name(tensor->dtype));
    for (unsigned d = 0; d < tensor->rank && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%" PRIu64, d == 0 ? "" : ", ", tensor->size[d]);
    if (length < size)
        snprintf(text + length, size - length, "]");
}

/* A note of both shapes; the first note stays. */
static void note_shapes(struct compare_rows *rows, const char *what)
{
    struct diff_observation *observation = &rows->shared->diff->observations[rows->observation];
    const struct pt_file_tensor *a = pt_file_tensor(rows->files[0]), *b = pt_file_tensor(rows->files[1]);
    char text_a[160], text_b[160];
    shape_text(a, text_a, sizeof text_a);
    shape_text(b, text_b, sizeof text_b);
    if (observation->note == NULL)
        observation->note = memory_format("%s and %s: %s", text_a, text_b, what);
}

/* Both files of the group are open. Fixes the reading of the observation. */
static void decide(struct compare_rows *rows, const struct compare_group *group)
{
    const struct compare_rows_shared *shared = rows->shared;
    struct diff_observation *observation = &shared->diff->observations[rows->observation];
    const struct pt_file_tensor *a = pt_file_tensor(rows->files[0]), *b = pt_file_tensor(rows->files[1]);
    struct rows readings = {0};
    narrow(rows, &readings, true, group->b_pass);
    narrow(rows, &readings, false, group->a_pass);
    bool two_ranks = readings.ranks_differ, one_side = false;
    if (readings.count == 0 && !two_ranks) {
        struct rows alone = {0};
        narrow(rows, &alone, true, group->b_pass);
        one_side = alone.count > 1 && a->rank > 0 && a->size[0] == shared->sides[0]->passes[group->a_pass].tokens;
    }
    observation->dtype = b->dtype;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < shared->witness_count[side] && rows_open(&readings); i++)
            narrow(rows, &readings, side == 1, shared->witnesses[side][i]);
    struct rows_reading reading = rows_choose(&readings);
    compare_rows_open(rows, false, group->a_pass);
    compare_rows_open(rows, true, group->b_pass);
    if (!rows->usable[0] || !rows->usable[1])
        return;
    shared->found[rows->observation].reading = reading;
    observation->rows = reading.rows;
    observation->factor = (uint32_t)reading.factor;
    if (two_ranks || one_side) {
        observation->presence = DIFF_PRESENCE_SHAPE;
        note_shapes(rows, "shapes that do not fit each other");
    } else if (reading.rows == DIFF_ROWS_NONE) {
        note_shapes(rows, "no dimension counts the tokens of both passes");
    } else if (reading.rows == DIFF_ROWS_UNCLEAR) {
        note_shapes(rows, "several dimensions could count the tokens");
    } else {
        uint64_t first, step, pieces, length;
        if (rows_pieces(&reading, b, 0, &first, &step, &pieces, &length))
            observation->row_elements = pieces * length;
        shared->found[rows->observation].other_types = a->dtype != b->dtype;
    }
}

static bool is_comparable(const struct rows_reading *reading)
{
    return reading->rows == DIFF_ROWS_TOKEN || reading->rows == DIFF_ROWS_REQUEST || reading->rows == DIFF_ROWS_SHARED;
}

/* In a later pass the tensor may have another shape than the one that was decided on. */
static bool has_shape(const struct compare_rows *rows, const struct compare_group *group,
                      const struct rows_reading *reading)
{
    const struct side_pass *a = &rows->shared->sides[0]->passes[group->a_pass];
    const struct side_pass *b = &rows->shared->sides[1]->passes[group->b_pass];
    return rows_fit(reading, pt_file_tensor(rows->files[0]), a->tokens, a->requests, pt_file_tensor(rows->files[1]),
                    b->tokens, b->requests);
}

/* Compares the groups; false: the observation cannot be compared at all. */
static bool compare_groups(struct compare_rows *rows, bool decided)
{
    const struct compare_rows_shared *shared = rows->shared;
    size_t index = rows->observation;
    struct diff_observation *observation = &shared->diff->observations[index];
    const struct compare_found *found = &shared->found[index];
    for (size_t i = 0; i < shared->group_count; i++) {
        const struct compare_group *group = &shared->groups[i];
        if (observations_file(shared->sides[0], shared->files[0], group->a_pass, index) == NULL ||
            observations_file(shared->sides[1], shared->files[1], group->b_pass, index) == NULL ||
            compare_rows_open(rows, false, group->a_pass) == NULL ||
            compare_rows_open(rows, true, group->b_pass) == NULL)
            continue;
        if (!decided) {
            decide(rows, group);
            if (!rows->usable[0] || !rows->usable[1])
                continue;
            decided = true;
            if (!is_comparable(&found->reading) || observation->presence == DIFF_PRESENCE_SHAPE)
                return false;
            observation->marks = memory_new(shared->diff->pair_count + 1);
        }
        if (has_shape(rows, group, &found->reading))
            compare_group(rows, group, &found->reading);
        else {
            shared->found[index].left_out = true;
            note_shapes(rows, "another shape in some passes: left out there");
        }
    }
    return decided;
}

/* Compares once more, with the parts of a token's row in the other order. */
static void compare_again(struct compare_rows *rows, bool by_part)
{
    struct diff_observation *observation = &rows->shared->diff->observations[rows->observation];
    struct compare_found *found = &rows->shared->found[rows->observation];
    found->reading.by_part = by_part;
    found->control_elements = found->control_unequal = 0;
    observation->tested = observation->unequal = observation->control_tested = observation->control_unequal = 0;
    observation->first_unequal_pair = SIZE_MAX;
    numbers_init(&observation->numbers);
    memset(observation->marks, DIFF_MARK_NONE, rows->shared->diff->pair_count);
    compare_groups(rows, true);
}

/* Several rows a token may lie token by token or part by part. Equal rows of prompts confirm the first; where some are
 * unequal, and in the second order every row is equal, it is the second (facts/dump-analysis.md 3.4). */
static void find_order(struct compare_rows *rows)
{
    const struct diff_observation *observation = &rows->shared->diff->observations[rows->observation];
    const struct rows_reading *reading = &rows->shared->found[rows->observation].reading;
    bool doubtful = observation->control_tested > 0 ? observation->control_unequal > 0
                                                    : observation->unequal == observation->tested;
    if (reading->rows != DIFF_ROWS_TOKEN || reading->factor == 1 || reading->dimension != 0 || !doubtful ||
        observation->unequal + observation->control_unequal == 0)
        return;
    compare_again(rows, true);
    if (observation->unequal + observation->control_unequal > 0)
        compare_again(rows, false);
}

/* Marks take a byte for each pair: those of a long prompt and of all tensors that are equal would take more than all
 * else. */
static void share_marks(const struct compare_rows *rows, struct diff_observation *observation)
{
    const struct diff *diff = rows->shared->diff;
    if (observation->marks == NULL || memcmp(observation->marks, diff->equal_marks, diff->pair_count) != 0)
        return;
    free(observation->marks);
    observation->marks = diff->equal_marks;
}

void compare_rows_observation(struct compare_rows *rows, size_t index)
{
    const struct compare_rows_shared *shared = rows->shared;
    struct diff_observation *observation = &shared->diff->observations[index];
    const struct compare_found *found = &shared->found[index];
    begin_observation(rows, index);
    observation->rows = DIFF_ROWS_NONE;
    if (shared->observations->slots[index].place) {
        observation->note = memory_copy("says where something lies, not what it is: not compared");
        return;
    }
    if (compare_groups(rows, false)) {
        find_order(rows);
        if (found->other_types && rows->usable[0] && rows->usable[1])
            note_shapes(rows, observation->unequal + observation->control_unequal == 0 ? "compared by value, equal"
                              : found->not_rounding ? "compared by value, unequal also when rounded to the narrower"
                                                    : "compared by value, equal when rounded to the narrower");
    }
    if (found->trouble.text != NULL) {
        observation->presence = DIFF_PRESENCE_UNREADABLE;
        free(observation->note);
        observation->note = memory_copy(found->trouble.text);
    }
    share_marks(rows, observation);
}
