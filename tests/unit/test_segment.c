/* segment.h: toy batches of every kind, and that no corrupted batch is cut into something else than it was. */
#include "analysis/segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 64, REQUESTS = 16 };

#define LIST(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

struct toy {
    const char *name;
    const int64_t *positions;
    size_t tokens;
    const int64_t *lengths;
    size_t requests;
    size_t named;
    const char *cut;   /* "fresh 0+3@0 decode 3+1@9": kind, first row, rows, position; NULL: refused */
    const char *error; /* a part of the message */
    const int64_t *ids;
};

static const struct toy toys[] = {
    {"prefill", LIST(0, 1, 2, 3), LIST(4), 1, "fresh 0+4@0", 0, 0},
    {"one token", LIST(0), LIST(1), 1, "fresh 0+1@0", 0, 0},
    {"two prompts", LIST(0, 1, 2, 0, 1), LIST(3, 2), 2, "fresh 0+3@0 fresh 3+2@0", 0, 0},
    {"decode", LIST(4, 9), LIST(5, 10), 2, "decode 0+1@4 decode 1+1@9", 0, 0},
    {"chunk", LIST(16, 17, 18), LIST(19), 1, "extend 0+3@16", 0, 0},
    {"mixed chunk", LIST(4, 5, 6, 9), LIST(7, 10), 2, "extend 0+3@4 decode 3+1@9", 0, 0},
    {"without rids", LIST(4, 5, 6, 9), LIST(7, 10), SIZE_MAX, "extend 0+3@4 decode 3+1@9", 0, 0},
    {"cached prefix and fresh", LIST(64, 65, 0, 1), LIST(66, 2), 2, "extend 0+2@64 fresh 2+2@0", 0, 0},
    {"padded rows", LIST(4, 9, 0, 0, 0), LIST(5, 10), 2, "decode 0+1@4 decode 1+1@9 padding 2+3@0", 0, 0},
    {"padded rows and entries", LIST(4, 0, 0), LIST(5, 1, 1), 1, "decode 0+1@4 padding 1+2@0", 0, 0},
    {"padded, no rids", LIST(4, 0, 0), LIST(5, 1, 1), SIZE_MAX, "decode 0+1@4 padding 1+2@0", 0,
     (const int64_t[]){7, 0, 0}},
    {"one-token prompts, no rids", LIST(4, 0, 0), LIST(5, 1, 1), SIZE_MAX, "decode 0+1@4 fresh 1+1@0 fresh 2+1@0", 0,
     (const int64_t[]){7, 5, 6}},
    {"token 0 in the middle, no rids", LIST(0, 4), LIST(1, 5), SIZE_MAX, "fresh 0+1@0 decode 1+1@4", 0,
     (const int64_t[]){0, 7}},
    {"only padding", LIST(0, 0), LIST(1, 1), 0, "padding 0+2@0", 0, 0},
    {"graph, padded rows, no rids", LIST(0, 1, 2, 0), LIST(3), SIZE_MAX, "fresh 0+3@0 padding 3+1@0", 0,
     (const int64_t[]){7, 8, 9, 0}},
    {"verify, chain", LIST(7, 8, 9, 12, 13, 14), LIST(7, 12), 2, "verify 0+3@7 verify 3+3@12", 0, 0},
    {"verify, one draft", LIST(7, 12), LIST(7, 12), 2, "verify 0+1@7 verify 1+1@12", 0, 0},
    {"verify, tree", LIST(7, 8, 8, 9), LIST(7), 1, "tree 0+4@7", 0, 0},
    {"verify, padded", LIST(7, 8, 0, 0), LIST(7, 1), 1, "verify 0+2@7 padding 2+2@0", 0, 0},
    {"idle", NULL, 0, NULL, 0, 0, "", 0, 0},
    {"idle, no rids", NULL, 0, NULL, 0, SIZE_MAX, "", 0, 0},
    {"broken chunk", LIST(16, 17, 2, 3), LIST(20), 1, NULL, "positions[2] is 2, but seq_lens[0] = 20 needs 18 to 19",
     0},
    {"second request starts anew", LIST(4, 40, 41, 0, 1), LIST(5, 96), 2, NULL,
     "positions[3] is 0, but seq_lens[1] = 96 needs 42 to 95 there", 0},
    {"too few rows", LIST(0, 1, 2), LIST(4), 1, NULL, "seq_lens[0] = 4 needs positions 0 to 3 from row 0 on", 0},
    {"no row left", LIST(0, 1), LIST(2, 5), 2, NULL, "seq_lens[1] = 5 needs a row, but the pass has only 2", 0},
    {"length before position", LIST(9), LIST(4), 1, NULL, "positions[0] is 9, but seq_lens[0] = 4 ends before it", 0},
    {"negative position", LIST(-1), LIST(1), 1, NULL, "positions[0] is -1", 0},
    {"rows of nobody", LIST(4, 41), LIST(5), 1, NULL, "positions[1] is 41, but the 1 requests end with row 1", 0},
    {"more names than entries", LIST(4), LIST(5), 2, NULL, "rids names 2 requests, but seq_lens has 1", 0},
    {"negative id", LIST(4), LIST(5), 1, NULL, "input_ids[0] is -3", (const int64_t[]){-3}},
    {"negative id of filler", LIST(4, 0), LIST(5), 1, "decode 0+1@4 padding 1+1@0", 0, (const int64_t[]){3, -3}},
    {"tree that skips a depth", LIST(7, 9, 8, 8), LIST(7), 1, NULL, "positions[0] is 7", 0},
    {"tree that goes back", LIST(7, 8, 7, 8), LIST(7), 1, NULL, "positions[0] is 7", 0},
    {"huge length", LIST(0, 1), LIST(INT64_MAX), 1, NULL, "needs positions 0 to", 0},
    {"smallest length", LIST(0, 1), LIST(INT64_MIN), 1, NULL, "ends before it", 0},
};

static void describe(const struct segment *segments, size_t count, char *out, size_t size)
{
    static const char *const kinds[] = {"fresh", "extend", "decode", "verify", "padding"};
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(out);
        snprintf(out + length, size - length, "%s%s %u+%u@%lld", i > 0 ? " " : "",
                 segments[i].tree ? "tree" : kinds[segments[i].kind], segments[i].row, segments[i].rows,
                 (long long)segments[i].position);
    }
}

static void test_toys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof toys / sizeof toys[0]; i++) {
        const struct toy *toy = &toys[i];
        struct segment segments[REQUESTS + 1];
        struct error err = ERROR_INIT;
        size_t count = 99;
        char text[512];
        enum error_code code = segment_cut(
            &(struct segment_input){toy->ids, toy->positions, toy->tokens, toy->lengths, toy->requests, toy->named},
            segments, &count, &err);
        if (toy->cut == NULL) {
            if (code != ERROR_FORMAT || strstr(err.message, toy->error) == NULL || count != 99)
                fail_msg("%s: %d %s", toy->name, code, err.message);
            continue;
        }
        if (code != ERROR_NONE)
            fail_msg("%s: %s", toy->name, err.message);
        describe(segments, count, text, sizeof text);
        if (strcmp(text, toy->cut) != 0)
            fail_msg("%s: %s, not %s", toy->name, text, toy->cut);
    }
}

static uint64_t random_state = 1;
static unsigned pick(unsigned limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(random_state >> 33) % limit;
}

struct batch {
    int64_t positions[ROWS], lengths[REQUESTS], ids[ROWS];
    size_t tokens, requests, named;
    struct segment right[REQUESTS + 1];
    size_t right_count;
};

static void add(struct batch *batch, enum segment_kind kind, int64_t position, size_t rows)
{
    batch->right[batch->right_count++] =
        (struct segment){kind, (uint32_t)batch->requests, (uint32_t)batch->tokens, (uint32_t)rows, position, false};
    for (size_t i = 0; i < rows; i++) {
        batch->ids[batch->tokens] = 1 + pick(100);
        batch->positions[batch->tokens++] = kind == SEGMENT_PADDING ? 0 : position + (int64_t)i;
    }
}

static void make(struct batch *batch)
{
    *batch = (struct batch){0};
    size_t requests = 1 + pick(5), drafts = 1 + pick(4);
    bool verify = pick(4) == 0;
    for (size_t i = 0; i < requests; i++) {
        int64_t position = pick(3) == 0 ? 0 : 1 + pick(50);
        size_t rows = pick(2) == 0 ? 1 : 1 + pick(8);
        if (verify)
            add(batch, SEGMENT_VERIFY, ++position, drafts);
        else
            add(batch, position == 0 ? SEGMENT_FRESH : rows > 1 ? SEGMENT_EXTEND : SEGMENT_DECODE, position, rows);
        batch->lengths[batch->requests++] = position + (verify ? 0 : (int64_t)rows);
    }
    batch->named = pick(4) == 0 ? SIZE_MAX : requests;
    if (!verify && batch->named != SIZE_MAX && pick(2) == 0) {
        size_t filler = 1 + pick(3);
        add(batch, SEGMENT_PADDING, 0, filler);
        for (size_t i = 0; i < filler && pick(2) == 0; i++)
            batch->lengths[batch->requests++] = 1;
    }
}

static bool cut(const struct batch *batch, struct segment *segments, size_t *count)
{
    return segment_cut(&(struct segment_input){batch->ids, batch->positions, batch->tokens, batch->lengths,
                                               batch->requests, batch->named},
                       segments, count, NULL) == ERROR_NONE;
}

static bool same(const struct segment *a, const struct segment *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i].kind != b[i].kind || a[i].request != b[i].request || a[i].row != b[i].row || a[i].rows != b[i].rows ||
            a[i].position != b[i].position)
            return false;
    return true;
}

/* Whatever is accepted says itself what it read: each row's position and each length can be made from the segments. */
static void check_explains(const struct batch *batch, const struct segment *segments, size_t count)
{
    size_t row = 0;
    for (size_t i = 0; i < count; i++) {
        const struct segment *segment = &segments[i];
        assert_int_equal(segment->row, row);
        row += segment->rows;
        if (segment->kind == SEGMENT_PADDING)
            continue;
        assert_int_equal(segment->request, i);
        assert_int_equal(batch->lengths[i],
                         segment->position + (segment->kind == SEGMENT_VERIFY ? 0 : (int64_t)segment->rows));
        for (size_t k = 0; k < segment->rows && !segment->tree; k++)
            assert_int_equal(batch->positions[segment->row + k], segment->position + (int64_t)k);
    }
    assert_int_equal(row, batch->tokens);
}

static void test_random_batches(void **state)
{
    (void)state;
    size_t refused = 0, kept = 0;
    for (unsigned round = 0; round < 100000; round++) {
        struct batch batch;
        struct segment segments[REQUESTS + 1];
        size_t count;
        make(&batch);
        if (!cut(&batch, segments, &count) || count != batch.right_count || !same(segments, batch.right, count))
            fail_msg("round %u: a right batch is not cut right", round);
        check_explains(&batch, segments, count);

        /* One number is wrong: it is refused, or the cut explains the wrong number as well. */
        int64_t wrong = (int64_t)pick(60) - 2;
        if (pick(2) == 0)
            batch.positions[pick((unsigned)batch.tokens)] = wrong;
        else
            batch.lengths[pick((unsigned)batch.requests)] = wrong;
        if (!cut(&batch, segments, &count)) {
            refused++;
            continue;
        }
        kept++;
        check_explains(&batch, segments, count);
    }
    assert_true(refused > 50000);
    assert_true(kept > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_toys), cmocka_unit_test(test_random_batches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
