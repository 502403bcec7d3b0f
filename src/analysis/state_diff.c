#include "analysis/state_diff.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char marker[] = "kldump-state ";
enum { MARKER = sizeof marker - 1, WORD_MAX = 128, DAMAGED_SHOWN = 200 };

const char *state_diff_word(enum state_diff_word word)
{
    static const char *const words[STATE_DIFF_WORDS] = {"equal", "differs", "only in A", "only in B"};
    return words[word];
}

/* ---- lines ---- */

struct fields {
    struct state_diff_hit hit;
    uint64_t lost;
    const char *name;
    size_t name_length;
    bool has_slot, has_length, has_absmax, has_lost;
};

static bool read_number(const char *text, size_t length, uint64_t *ret_value)
{
    return length > 0 && number_scan(text, length, ret_value) == length;
}

static bool read_absmax(const char *text, size_t length, double *ret_value)
{
    char copy[WORD_MAX], *end = NULL;
    if (length == 0 || length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    double value = strtod(copy, &end);
    if (*end != '\0' || value < 0)
        return false;
    *ret_value = value;
    return true;
}

/* One word "key=value"; false: a key that is known with a value that is none. */
static bool read_word(const char *word, size_t length, struct fields *fields)
{
    const struct {
        const char *key;
        uint64_t *number;
        bool *has;
    } numbers[] = {{"rank=", &fields->hit.rank, NULL},
                   {"slot=", &fields->hit.slot, &fields->has_slot},
                   {"length=", &fields->hit.length, &fields->has_length},
                   {"layer=", &fields->hit.layer, NULL},
                   {"lost=", &fields->lost, &fields->has_lost}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        size_t key = strlen(numbers[i].key);
        if (length < key || memcmp(word, numbers[i].key, key) != 0)
            continue;
        if (numbers[i].has != NULL)
            *numbers[i].has = true;
        return read_number(word + key, length - key, numbers[i].number);
    }
    if (length >= 7 && memcmp(word, "absmax=", 7) == 0) {
        fields->has_absmax = true;
        return read_absmax(word + 7, length - 7, &fields->hit.absmax);
    }
    if (length >= 5 && memcmp(word, "name=", 5) == 0) {
        fields->name = word + 5;
        fields->name_length = length - 5;
        return fields->name_length > 0;
    }
    return true;
}

/* What stands behind the marker, up to the word ";". */
static bool read_fields(const char *text, size_t length, struct fields *fields)
{
    const char *at = text, *end = text + length;
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        size_t word = (size_t)((blank != NULL ? blank : end) - at);
        while (word > 0 && at[word - 1] == '\r')
            word--;
        if (word == 1 && *at == ';')
            return fields->has_lost || (fields->has_slot && fields->has_length && fields->has_absmax);
        if (!read_word(at, word, fields))
            return false;
        at = blank != NULL ? blank + 1 : end;
    }
    return false;
}

static void add_hit(struct state_diff_side *side, const struct state_diff_hit *hit)
{
    if (side->count == side->capacity) {
        side->capacity = side->capacity == 0 ? 256 : 2 * side->capacity;
        side->hits = memory_resize(side->hits, side->capacity, sizeof side->hits[0]);
    }
    side->hits[side->count] = *hit;
    side->hits[side->count].order = side->count;
    side->count++;
}

static void read_line(struct state_diff *diff, struct state_diff_side *side, const char *line, size_t length)
{
    struct fields fields = {.name = "state", .name_length = 5};
    if (!read_fields(line + MARKER, length - MARKER, &fields)) {
        char shown[DAMAGED_SHOWN];
        if (side->damaged++ == 0)
            side->first_damaged = memory_copy(text_clean(line, length, shown, sizeof shown));
        return;
    }
    if (fields.has_lost) {
        side->lost = number_add(side->lost, fields.lost);
        return;
    }
    fields.hit.name = text_map_number(&diff->names, fields.name, fields.name_length);
    add_hit(side, &fields.hit);
}

/* Two lines that were written into one another begin twice on one line: each is read up to where the next begins. */
void state_diff_read(struct state_diff *diff, struct state_diff_side *side, const char *text, size_t length)
{
    const char *end = text + length;
    const char *at = memmem(text, length, marker, MARKER);
    while (at != NULL) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = memmem(at + MARKER, (size_t)(end - at) - MARKER, marker, MARKER);
        const char *last = newline != NULL ? newline : end;
        if (next != NULL && next < last)
            last = next;
        read_line(diff, side, at, (size_t)(last - at));
        at = next;
    }
}

/* ---- visits ---- */

static int order_of(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_slot(const void *left, const void *right)
{
    const struct state_diff_hit *a = left, *b = right;
    int order = order_of(a->rank, b->rank);
    order = order != 0 ? order : order_of(a->slot, b->slot);
    return order != 0 ? order : order_of(a->order, b->order);
}

static int by_part(const void *left, const void *right)
{
    const struct state_diff_hit *a = left, *b = right;
    int order = order_of(a->layer, b->layer);
    return order != 0 ? order : order_of(a->name, b->name);
}

static int by_length(const void *left, const void *right)
{
    const struct state_diff_visit *a = left, *b = right;
    int order = order_of(a->rank, b->rank);
    order = order != 0 ? order : order_of(a->length, b->length);
    order = order != 0 ? order : order_of(a->slot, b->slot);
    return order != 0 ? order : order_of(a->order, b->order);
}

static bool belongs(const struct state_diff_side *side, const struct state_diff_visit *visit,
                    const struct state_diff_hit *hit)
{
    if (visit->rank != hit->rank || visit->slot != hit->slot || visit->length != hit->length)
        return false;
    for (size_t i = 0; i < visit->count; i++)
        if (by_part(&side->hits[visit->first + i], hit) == 0)
            return false;
    return true;
}

static void make_visits(struct state_diff_side *side)
{
    if (side->count == 0)
        return;
    qsort(side->hits, side->count, sizeof side->hits[0], by_slot);
    side->visits = memory_new(side->count * sizeof side->visits[0]);
    for (size_t i = 0; i < side->count; i++) {
        const struct state_diff_hit *hit = &side->hits[i];
        struct state_diff_visit *visit = &side->visits[side->visit_count];
        if (side->visit_count > 0 && belongs(side, visit - 1, hit)) {
            visit[-1].count++;
            continue;
        }
        *visit = (struct state_diff_visit){
            .rank = hit->rank, .slot = hit->slot, .length = hit->length, .first = i, .count = 1, .order = hit->order};
        side->visit_count++;
    }
    for (size_t i = 0; i < side->visit_count; i++)
        qsort(&side->hits[side->visits[i].first], side->visits[i].count, sizeof side->hits[0], by_part);
    qsort(side->visits, side->visit_count, sizeof side->visits[0], by_length);
}

/* ---- rows ---- */

static bool same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* The larger of two for showing: NaN above all. */
static bool larger(double a, double b)
{
    return isnan(a) ? !isnan(b) : a > b;
}

/* The hits of both visits side by side, by layer and name. */
static void compare_hits(const struct state_diff *diff, struct state_diff_row *row)
{
    const struct state_diff_hit *a = &diff->a.hits[row->a->first], *a_end = a + row->a->count;
    const struct state_diff_hit *b = &diff->b.hits[row->b->first], *b_end = b + row->b->count;
    while (a < a_end || b < b_end) {
        int order = a == a_end ? 1 : b == b_end ? -1 : by_part(a, b);
        const struct state_diff_hit *of_a = order <= 0 ? a++ : NULL, *of_b = order >= 0 ? b++ : NULL;
        row->compared += order == 0;
        if (order != 0 || !same_value(of_a->absmax, of_b->absmax)) {
            if (row->different++ == 0) {
                row->hit_a = of_a;
                row->hit_b = of_b;
            }
        } else if (row->different == 0 && (row->hit_a == NULL || larger(of_a->absmax, row->hit_a->absmax))) {
            row->hit_a = of_a;
            row->hit_b = of_b;
        }
    }
    row->word = row->different > 0 ? STATE_DIFF_DIFFERS : STATE_DIFF_EQUAL;
}

static const struct state_diff_hit *largest(const struct state_diff_side *side, const struct state_diff_visit *visit)
{
    const struct state_diff_hit *found = &side->hits[visit->first];
    for (size_t i = 1; i < visit->count; i++)
        if (larger(side->hits[visit->first + i].absmax, found->absmax))
            found = &side->hits[visit->first + i];
    return found;
}

struct group {
    struct state_diff_visit *a, *b;
    size_t a_count, b_count;
};

static void add_row(struct state_diff *diff, const struct group *group, struct state_diff_visit *a,
                    struct state_diff_visit *b)
{
    struct state_diff_row row = {.a = a, .b = b, .several = group->a_count > 1 || group->b_count > 1};
    if (a != NULL && b != NULL) {
        compare_hits(diff, &row);
    } else if (a != NULL) {
        row.word = STATE_DIFF_ONLY_A;
        row.hit_a = largest(&diff->a, a);
    } else {
        row.word = STATE_DIFF_ONLY_B;
        row.hit_b = largest(&diff->b, b);
    }
    if (a != NULL)
        a->paired = true;
    if (b != NULL)
        b->paired = true;
    diff->rows[diff->row_count++] = row;
    diff->count[row.word]++;
}

static bool fits(const struct state_diff *diff, const struct state_diff_visit *a, const struct state_diff_visit *b,
                 bool equal, bool slot)
{
    if (slot && a->slot != b->slot)
        return false;
    if (!equal)
        return true;
    struct state_diff_row row = {.a = a, .b = b};
    compare_hits(diff, &row);
    return row.word == STATE_DIFF_EQUAL;
}

static void pair_group(struct state_diff *diff, const struct group *group)
{
    static const struct {
        bool equal, slot;
    } rounds[] = {{true, true}, {true, false}, {false, true}, {false, false}};
    for (size_t round = 0; round < sizeof rounds / sizeof rounds[0]; round++)
        for (size_t i = 0; i < group->a_count; i++)
            for (size_t j = 0; j < group->b_count && !group->a[i].paired; j++)
                if (!group->b[j].paired &&
                    fits(diff, &group->a[i], &group->b[j], rounds[round].equal, rounds[round].slot))
                    add_row(diff, group, &group->a[i], &group->b[j]);
    for (size_t i = 0; i < group->a_count; i++)
        if (!group->a[i].paired)
            add_row(diff, group, &group->a[i], NULL);
    for (size_t j = 0; j < group->b_count; j++)
        if (!group->b[j].paired)
            add_row(diff, group, NULL, &group->b[j]);
}

static int by_group(const struct state_diff_visit *a, const struct state_diff_visit *b)
{
    int order = order_of(a->rank, b->rank);
    return order != 0 ? order : order_of(a->length, b->length);
}

static int by_row(const void *left, const void *right)
{
    const struct state_diff_row *a = left, *b = right;
    return by_length(a->a != NULL ? a->a : a->b, b->a != NULL ? b->a : b->b);
}

static size_t run_length(const struct state_diff_visit *visits, size_t from, size_t count,
                         const struct state_diff_visit *like)
{
    size_t length = 0;
    while (from + length < count && by_group(&visits[from + length], like) == 0)
        length++;
    return length;
}

static size_t count_odd(const struct state_diff_side *side)
{
    size_t odd = 0;
    for (size_t i = 0; i < side->count; i++)
        odd += isfinite(side->hits[i].absmax) ? 0 : 1;
    return odd;
}

void state_diff_compare(struct state_diff *diff)
{
    struct state_diff_side *a = &diff->a, *b = &diff->b;
    make_visits(a);
    make_visits(b);
    diff->nan = count_odd(a) + count_odd(b);
    diff->rows = memory_new((a->visit_count + b->visit_count + 1) * sizeof diff->rows[0]);
    for (size_t i = 0, j = 0; i < a->visit_count || j < b->visit_count;) {
        bool of_a = i < a->visit_count && (j == b->visit_count || by_group(&a->visits[i], &b->visits[j]) <= 0);
        const struct state_diff_visit *like = of_a ? &a->visits[i] : &b->visits[j];
        struct group group = {.a = a->visits + i,
                              .b = b->visits + j,
                              .a_count = run_length(a->visits, i, a->visit_count, like),
                              .b_count = run_length(b->visits, j, b->visit_count, like)};
        pair_group(diff, &group);
        i += group.a_count;
        j += group.b_count;
    }
    qsort(diff->rows, diff->row_count, sizeof diff->rows[0], by_row);
}

static void side_fini(struct state_diff_side *side)
{
    free(side->hits);
    free(side->visits);
    free(side->first_damaged);
}

void state_diff_fini(struct state_diff *diff)
{
    side_fini(&diff->a);
    side_fini(&diff->b);
    text_map_fini(&diff->names);
    free(diff->rows);
    *diff = (struct state_diff){0};
}

bool state_diff_row_dirty(const struct state_diff_row *row)
{
    return row->word != STATE_DIFF_EQUAL;
}

uint64_t state_diff_row_length(const struct state_diff_row *row)
{
    return (row->a != NULL ? row->a : row->b)->length;
}

void state_diff_find(const struct state_diff *diff, const struct state_diff_request *requests, size_t count,
                     size_t index, struct state_diff_join *ret_join)
{
    const struct state_diff_request *request = &requests[index];
    struct state_diff_join join = {0};
    for (size_t i = 0; i < diff->row_count && request->cached > 0; i++) {
        const struct state_diff_row *row = &diff->rows[i];
        if (state_diff_row_length(row) != request->cached)
            continue;
        bool dirty = state_diff_row_dirty(row);
        if (join.row == NULL || (dirty && join.dirty == 0))
            join.row = row;
        join.rows++;
        join.dirty += dirty;
    }
    for (size_t i = 0; i < count; i++) {
        if (i == index || requests[i].cached != request->cached || strcmp(requests[i].path, request->path) != 0)
            continue;
        join.failing += requests[i].failing;
        join.clean += !requests[i].failing;
    }
    *ret_join = join;
}
