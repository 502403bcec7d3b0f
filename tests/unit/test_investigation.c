/* What all steps of an investigation mean together: each row of the table from facts made by hand, alone and beside a
 * neighbour that must not win; and all combinations of what steps may have found. */
#include "analysis/investigation.h"
#include "base/list.h"
#include "base/memory.h"
#include "investigation_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void fail_step(struct investigation *in, enum investigation_step_id id, int status, const char *why)
{
    in->steps[id].state = INVESTIGATION_FAILED;
    in->steps[id].status = status;
    in->steps[id].why = memory_copy(why);
}

static void stop_at(struct investigation *in, enum investigation_step_id first)
{
    for (size_t id = first; id < INVESTIGATION_STEPS; id++)
        in->steps[id].state = INVESTIGATION_NOT_REACHED;
}

static bool says(char *const *lines, const char *part)
{
    for (; *lines != NULL; lines++)
        if (strstr(*lines, part) != NULL)
            return true;
    return false;
}

/* Concludes and frees; `part` must be in the answer, `module`: named. */
static void expect_at(struct investigation in, const char *name, enum kl_condition condition, bool module,
                      enum status status, const char *part, int line)
{
    struct investigation_end end;
    investigation_conclude(&in, &end);
    if (strcmp(end.name, name) != 0 || end.condition != condition || (end.module != NULL) != module ||
        end.status != status)
        fail_msg("line %d: ends as %s, condition %s, module %s, status %d; expected %s", line, end.name,
                 kl_condition_word(end.condition), end.module, (int)end.status, name);
    if (strstr(end.text, part) == NULL)
        fail_msg("line %d: '%s' is not in: %s", line, part, end.text);
    investigation_end_fini(&end);
    investigation_fini(&in);
}
#define expect(...) expect_at(__VA_ARGS__, __LINE__)

#define NO_CONDITION KL_CONDITION_NONE
#define CONDITION_1  KL_CONDITION_1
#define CONDITION_2  KL_CONDITION_2
#define NOTHING_SAID KL_CONDITION_REFUSED
#define MODULE       "model.layers.0.self_attn.qkv_proj (layer 0, matrix product, token-wise)"

/* ---- before anything is read ---- */

static void test_refused(void **state)
{
    (void)state;
    expect(investigation_world(WORLD_REFUSED, WORLD_OPERATOR, "op"), "refused", NOTHING_SAID, false, STATUS_NO,
           "The reading of kl.");
    expect(investigation_world(WORLD_OPERATOR, WORLD_REFUSED, "op"), "refused", NOTHING_SAID, false, STATUS_NO,
           "under the flags of a dump");
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op");
    in.capture.shifted = true;
    expect(in, "refused", NOTHING_SAID, false, STATUS_NO, "shifted by one");
    /* what own flags say is the answer where it is clean */
    expect(investigation_world(WORLD_CLEAN, WORLD_REFUSED, NULL), "clean", NO_CONDITION, false, STATUS_DONE,
           "No divergence");
}

static void test_not_started(void **state)
{
    (void)state;
    struct investigation in = {0};
    fail_step(&in, INVESTIGATION_KL_OWN, 81, "out of memory");
    expect(in, "not-started", NOTHING_SAID, false, STATUS_NOT_ARMED,
           "\"kl under your own flags\" failed: out of memory");
    in = (struct investigation){0};
    fail_step(&in, INVESTIGATION_DOCTOR, 1, "the port is taken");
    expect(in, "not-started", NOTHING_SAID, false, STATUS_NOT_ARMED, "the port is taken");
    /* doctor's complaint did not keep the server from being measured */
    in = investigation_world(WORLD_CLEAN, WORLD_UNKNOWN, NULL);
    fail_step(&in, INVESTIGATION_DOCTOR, 1, "swap is on");
    expect(in, "clean", NO_CONDITION, false, STATUS_DONE, "No divergence");
}

static void test_unfinished(void **state)
{
    (void)state;
    struct investigation in = {0};
    expect(in, "unfinished", NOTHING_SAID, false, STATUS_INTERRUPTED, "before anything was measured");
    in = investigation_world(WORLD_OPERATOR, WORLD_UNKNOWN, NULL);
    stop_at(&in, INVESTIGATION_KL_DUMP);
    expect(in, "unfinished", CONDITION_1, false, STATUS_INTERRUPTED, "shows under the flags of a dump");
    in = investigation_world(WORLD_DECODE, WORLD_DECODE, NULL);
    stop_at(&in, INVESTIGATION_INVARIANCE);
    expect(in, "unfinished", CONDITION_2, false, STATUS_INTERRUPTED, "So far: condition 2 during decode");
    in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, NULL);
    stop_at(&in, INVESTIGATION_DIFF);
    expect(in, "unfinished", CONDITION_1, false, STATUS_INTERRUPTED, "before an operator");
    /* stopped behind the answer */
    in = investigation_world(WORLD_CLEAN, WORLD_UNKNOWN, NULL);
    stop_at(&in, INVESTIGATION_KL_DUMP);
    expect(in, "clean", NO_CONDITION, false, STATUS_DONE, "No divergence");
}

/* ---- own flags beside those of a dump ---- */

static void test_clean(void **state)
{
    (void)state;
    expect(investigation_world(WORLD_CLEAN, WORLD_CLEAN, "op"), "clean", NO_CONDITION, false, STATUS_DONE,
           "of 480 tokens of 8 requests none differs");
    expect(investigation_world(WORLD_CLEAN, WORLD_OPERATOR, "op"), "only-under-dump-flags", NO_CONDITION, true,
           STATUS_NO, "condition 1");
}

static void test_needs_a_graph(void **state)
{
    (void)state;
    expect(investigation_world(WORLD_DECODE, WORLD_CLEAN, NULL), "needs-a-graph", CONDITION_2, false, STATUS_NO,
           "Condition 2 during decode is broken under your own flags, and clean");
    struct investigation in = investigation_world(WORLD_DECODE, WORLD_CLEAN, NULL);
    struct investigation_end end;
    in.settings = investigation_world_texts("disable_cuda_graph: false under your flags, true in a dump");
    investigation_conclude(&in, &end);
    assert_true(says(end.evidence, "disable_cuda_graph: false"));
    assert_true(says(end.next, "state-diff") && says(end.next, "examples/state_probe.py"));
    investigation_end_fini(&end);
    investigation_fini(&in);
    /* clean means nothing where the dirty path was not measured */
    in = investigation_world(WORLD_RESTORE, WORLD_CLEAN, NULL);
    in.dump.paths[KL_PATH_RESTORE].grade = KL_GRADE_NOT_MEASURED;
    expect(in, "path-not-compared", CONDITION_2, false, STATUS_NO, "in restore, which was not measured");
    /* a path that is clean under own flags may be missing */
    in = investigation_world(WORLD_RESTORE, WORLD_CLEAN, NULL);
    in.dump.paths[KL_PATH_MATCH].grade = KL_GRADE_NOT_MEASURED;
    expect(in, "needs-a-graph", CONDITION_2, false, STATUS_NO, "CUDA graph");
}

static void test_other_prompts(void **state)
{
    (void)state;
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_CLEAN, NULL);
    free(in.dump.prompts_hash);
    in.dump.prompts_hash = memory_copy("another");
    expect(in, "other-prompts", NOTHING_SAID, false, STATUS_NO, "cannot be held side by side");
    in = investigation_world(WORLD_OPERATOR, WORLD_CLEAN, NULL);
    in.dump.new_tokens++;
    expect(in, "other-prompts", NOTHING_SAID, false, STATUS_NO, "cannot be held side by side");
    in = investigation_world(WORLD_OPERATOR, WORLD_CLEAN, NULL);
    in.dump.temperature = 1;
    expect(in, "other-prompts", NOTHING_SAID, false, STATUS_NO, "cannot be held side by side");
}

static void test_own_flags_alone(void **state)
{
    (void)state;
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_UNKNOWN, NULL);
    fail_step(&in, INVESTIGATION_KL_DUMP, 82, "hooks could not be proven");
    stop_at(&in, INVESTIGATION_AB);
    expect(in, "own-flags-alone", CONDITION_1, false, STATUS_NO, "hooks could not be proven");
    /* the user's flags are those of a dump: not needed is no gap */
    in = investigation_world(WORLD_OPERATOR, WORLD_UNKNOWN, "op");
    in.steps[INVESTIGATION_KL_DUMP].state = INVESTIGATION_NOT_NEEDED;
    expect(in, "operator", CONDITION_1, true, STATUS_NO, MODULE);
}

static void test_other_reading(void **state)
{
    (void)state;
    expect(investigation_world(WORLD_DECODE, WORLD_OPERATOR, "op"), "other-reading", CONDITION_1, true, STATUS_NO,
           "condition 2 during decode under your own flags, condition 1");
    expect(investigation_world(WORLD_OPERATOR, WORLD_DECODE, NULL), "other-reading", CONDITION_2, false, STATUS_NO,
           "no operator is named");
    expect(investigation_world(WORLD_OPERATOR, WORLD_RESTORE, "none"), "other-reading", CONDITION_2, false, STATUS_NO,
           "no tensor");
}

/* ---- what the dump adds ---- */

static void test_operator(void **state)
{
    (void)state;
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op");
    struct investigation_end end;
    investigation_conclude(&in, &end);
    assert_string_equal(end.name, "operator");
    assert_string_equal(end.module, "model.layers.0.self_attn.qkv_proj");
    assert_true(end.where == KL_WHERE_OPERATOR && end.condition_1_first && !end.condition_2_too);
    assert_non_null(strstr(end.text, "in " MODULE ", first at position 37: its inputs are"));
    assert_non_null(strstr(end.text, "One order of summing"));
    assert_true(says(end.evidence, "13 of 14 rows with equal inputs differ"));
    assert_true(says(end.evidence, "alike: match 35 of 96 tokens beyond stray, mean k3 0.0002 (nonzero)"));
    assert_true(says(end.evidence, "kl: match: every token from index 1"));
    assert_true(says(end.evidence, "48 tokens, of which 13 have the same"));
    assert_true(!says(end.next, "what it needs: One order") && says(end.next, "deterministic inference"));
    assert_true(says(end.not_measured, "condition 1 hides it") && says(end.not_measured, "CUDA graph"));
    investigation_end_fini(&end);
    in.own.deterministic = in.dump.deterministic = true;
    free(in.diff.confidence);
    in.diff.confidence = memory_copy("likely");
    investigation_conclude(&in, &end);
    assert_non_null(strstr(end.text, "position 37 (likely"));
    assert_false(says(end.next, "deterministic inference") || says(end.evidence, "deterministic"));
    investigation_end_fini(&end);
    free(in.diff.confidence);
    in.diff.confidence = memory_copy("unproven");
    list_vector_free(in.diff.certificate);
    in.diff.certificate = investigation_world_texts("A7 weak: 12 of 14 pairs");
    expect(in, "operator-not-proven", CONDITION_1, true, STATUS_NO, "missing: A7 weak: 12 of 14 pairs.");
}

static void test_condition_1_elsewhere(void **state)
{
    (void)state;
    expect(investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "none"), "operator-not-dumped", CONDITION_1, false,
           STATUS_NO, "lm_head");
    expect(investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "gap"), "between-operators", CONDITION_1, true,
           STATUS_NO, "look between a and b");
    expect(investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "glue"), "between-operators", CONDITION_1, true,
           STATUS_NO, "no hook sees");
    expect(investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op+cache"), "attention-or-cache", CONDITION_1, true,
           STATUS_NO, "equal keys and values");
    expect(investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "state"), "attention-or-cache", CONDITION_1, true,
           STATUS_NO, "not proven equal");
    expect(investigation_world(WORLD_BOTH, WORLD_BOTH, "op"), "both", CONDITION_1, true, STATUS_NO,
           "Settle condition 1 first");
    expect(investigation_world(WORLD_BOTH, WORLD_BOTH, "none"), "both", CONDITION_1, false, STATUS_NO,
           "no tensor that was dumped differs");
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, NULL);
    in.steps[INVESTIGATION_CAPTURE].state = in.steps[INVESTIGATION_DIFF].state = INVESTIGATION_NOT_NEEDED;
    in.steps[INVESTIGATION_CAPTURE].why = memory_copy("only a second turn differs");
    expect(in, "condition-1", CONDITION_1, false, STATUS_NO, "nothing was dumped, as only a second turn differs.");
}

static void make_faint(struct investigation_kl *kl)
{
    for (int id = 0; id < KL_PATHS; id++)
        if (kl->paths[id].grade == KL_GRADE_NONZERO)
            kl->paths[id].grade = KL_GRADE_NOISE;
}

static void test_condition_2(void **state)
{
    (void)state;
    expect(investigation_world(WORLD_DECODE, WORLD_DECODE, "op+cache"), "decode-context", CONDITION_2, true, STATUS_NO,
           "position 37");
    expect(investigation_world(WORLD_DECODE, WORLD_DECODE, "state"), "decode-context", CONDITION_2, true, STATUS_NO,
           "during decode");
    expect(investigation_world(WORLD_DECODE, WORLD_DECODE, "op"), "kl-and-dump-disagree", CONDITION_2, true, STATUS_NO,
           MODULE);
    expect(investigation_world(WORLD_DECODE, WORLD_DECODE, "gap"), "kl-and-dump-disagree", CONDITION_2, true, STATUS_NO,
           "Both stand");
    expect(investigation_world(WORLD_DECODE, WORLD_DECODE, "none"), "decode-not-dumped", CONDITION_2, false, STATUS_NO,
           "before the position");
    expect(investigation_world(WORLD_DECODE, WORLD_DECODE, NULL), "condition-2", CONDITION_2, false, STATUS_NO,
           "nothing was dumped");
    expect(investigation_world(WORLD_RESTORE, WORLD_RESTORE, "none"), "restore", CONDITION_2, false, STATUS_NO,
           "No layer is named");
    expect(investigation_world(WORLD_RESTORE, WORLD_RESTORE, NULL), "restore", CONDITION_2, false, STATUS_NO,
           "prefix restore");
    expect(investigation_world(WORLD_RESTORE, WORLD_RESTORE, "op"), "kl-and-dump-disagree", CONDITION_2, true,
           STATUS_NO, "Both stand");
    struct investigation in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, "op+cache");
    in.diff.prefills = true;
    expect(in, "restore-in-a-layer", CONDITION_2, true, STATUS_NO, MODULE);
    /* what reads nothing of the cache, and what is no more than noise, may as well be the number of rows */
    in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, "op");
    in.diff.prefills = true;
    expect(in, "kl-and-dump-disagree", CONDITION_2, true, STATUS_NO, "depends on the number of rows (condition 1)");
    in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, "op+cache");
    in.diff.prefills = true;
    make_faint(&in.dump);
    expect(in, "restore-in-a-layer", CONDITION_2, true, STATUS_NO,
           "But no path is dirty by more than noise: an operator");
    in = investigation_world(WORLD_DECODE, WORLD_DECODE, "op+cache");
    make_faint(&in.dump);
    expect(in, "decode-context", CONDITION_2, true, STATUS_NO, "an attention that orders its sums otherwise");
    in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, "none");
    in.diff.prefills = in.capture.restore = true;
    expect(in, "restore-not-dumped", CONDITION_2, false, STATUS_NO, "no tensor that was dumped behind");
    in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, "op");
    in.diff.prefills = true;
    in.diff.status = STATUS_UNPROVEN;
    in.diff.proven = false;
    list_vector_free(in.diff.against);
    in.diff.against = investigation_world_texts("M2: no reference sequence");
    expect(in, "restore", CONDITION_2, false, STATUS_NO, "named: M2: no reference sequence.");
    in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, NULL);
    fail_step(&in, INVESTIGATION_CAPTURE, 88, "too little free space");
    stop_at(&in, INVESTIGATION_CHECK);
    expect(in, "restore", CONDITION_2, false, STATUS_NO, "failed: too little free space.");
}

static void set_axis(struct investigation *in, const char *state, uint64_t size, bool cached)
{
    in->invariance_known = true;
    in->axes = memory_new(sizeof in->axes[0]);
    in->axis_count = 1;
    in->axes[0] = (struct investigation_axis){
        .word = memory_copy("extend"), .state = memory_copy(state), .first_size = size, .cached = cached};
}

static void test_what_invariance_adds(void **state)
{
    (void)state;
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op+cache");
    set_axis(&in, "unchanged", 0, false);
    expect(in, "attention-or-cache", CONDITION_1, true, STATUS_NO, "speaks for the context");
    in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op+cache");
    set_axis(&in, "changed", 2, false);
    expect(in, "attention-or-cache", CONDITION_1, true, STATUS_NO, "speaks for the kernel");
    in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op+cache");
    set_axis(&in, "not measured", 0, false);
    expect(in, "attention-or-cache", CONDITION_1, true, STATUS_NO, "tell the two apart.");
    /* somebody else's requests have changed the batches: what it found is no evidence */
    struct investigation_end end;
    in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op+cache");
    set_axis(&in, "changed", 2, false);
    in.axes[0].module = memory_copy("model.layers.1.mlp.down_proj");
    in.axes[0].kind = memory_copy("op");
    fail_step(&in, INVESTIGATION_INVARIANCE, STATUS_INCOMPLETE, "somebody else has used the server");
    investigation_conclude(&in, &end);
    assert_false(says(end.evidence, "invariance, extend: changed"));
    investigation_end_fini(&end);
    expect(in, "attention-or-cache", CONDITION_1, true, STATUS_NO, "tell the two apart.");
    /* a row on a restored prefix is no row of another size */
    in = investigation_world(WORLD_RESTORE, WORLD_RESTORE, "none");
    set_axis(&in, "changed", 1, true);
    investigation_conclude(&in, &end);
    assert_true(says(end.evidence, "speaks of condition 2"));
    assert_false(says(end.evidence, "deterministic inference"));
    investigation_end_fini(&end);
    investigation_fini(&in);
}

/* What a dump of a size that changes a result names is an operator that depends on it, whatever decode beside prefill
 * shows; but not what may have been restored wrongly. */
static void test_the_operator_of_a_batch(void **state)
{
    (void)state;
    static const struct {
        const char *axis, *kind, *diff, *end, *says;
        bool cached;
    } rows[] = {
        {"decode", "op", "op+cache", "operator-of-a-batch",
         "how many requests are in a decode (2 against 1). Decode and", false},
        {"decode", "op+cache", "op+cache", "operator-of-a-batch", "first at another place", false},
        {"extend", "op", "op+cache", "operator-of-a-batch", "one row behind a cached prefix", true},
        {"extend", "op", "none", "operator-of-a-batch", "no tensor of decode differs", false},
        {"prefill", "op", "gap", "operator-of-a-batch", "how many requests are in a prefill", false},
        {"decode", "op", "op", "operator", "its inputs are bit-identical in decode and prefill", false},
        {"extend", "op+cache", "op+cache", "attention-or-cache", "speaks for", true},
        {"decode", "state", "op+cache", "attention-or-cache", "speaks for the kernel", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, rows[i].diff);
        set_axis(&in, "changed", 2, rows[i].cached);
        free(in.axes[0].word);
        in.axes[0].word = memory_copy(rows[i].axis);
        in.axes[0].module = memory_copy("model.layers.0.q");
        in.axes[0].kind = memory_copy(rows[i].kind);
        struct investigation_end end;
        investigation_conclude(&in, &end);
        if (strcmp(rows[i].end, "operator-of-a-batch") == 0)
            assert_string_equal(end.module, "model.layers.0.q");
        investigation_end_fini(&end);
        bool is_cached = rows[i].cached && strcmp(rows[i].kind, "op+cache") == 0;
        expect(in, rows[i].end, CONDITION_1, true, STATUS_NO, is_cached ? "tell the two apart." : rows[i].says);
    }
}

static void test_no_verdict(void **state)
{
    (void)state;
    for (enum world_reading reading = WORLD_OPERATOR; reading <= WORLD_DECODE; reading++) {
        enum kl_condition condition = reading == WORLD_DECODE ? CONDITION_2 : CONDITION_1;
        if (reading == WORLD_BOTH) /* which is the larger answer */
            continue;
        struct investigation in = investigation_world(reading, reading, NULL);
        investigation_world_capture(&in);
        in.capture.complete = false;
        in.capture.reasons = investigation_world_texts("foreign request abc");
        in.steps[INVESTIGATION_DIFF].state = INVESTIGATION_NOT_NEEDED;
        expect(in, "capture-incomplete", condition, false, STATUS_INCOMPLETE, "from it: foreign request abc.");
        in = investigation_world(reading, reading, NULL);
        in.steps[INVESTIGATION_CHECK].status = STATUS_INCOMPLETE;
        in.steps[INVESTIGATION_CHECK].why = memory_copy("3 files are empty");
        stop_at(&in, INVESTIGATION_DIFF);
        expect(in, "capture-incomplete", condition, false, STATUS_INCOMPLETE, "3 files are empty");
        in = investigation_world(reading, reading, NULL);
        fail_step(&in, INVESTIGATION_CAPTURE, 88, "too little free space");
        stop_at(&in, INVESTIGATION_CHECK);
        expect(in, "no-dump", condition, false, STATUS_NO, "\"decode and score, both dumped\" failed: too little");
        in = investigation_world(reading, reading, "op");
        in.diff.proven = false;
        in.diff.status = STATUS_UNPROVEN;
        list_vector_free(in.diff.against);
        in.diff.against = investigation_world_texts("M3: the scoring pass took the rows from the prefix cache");
        expect(in, "alignment-not-proven", condition, false, STATUS_UNPROVEN, "M3: the scoring");
        in = investigation_world(reading, reading, "kind of tomorrow");
        expect(in, "alignment-not-proven", condition, false, STATUS_UNPROVEN, "does not say why");
        in = investigation_world(reading, reading, "op");
        in.diff.status = STATUS_REFUSED_FILE;
        expect(in, "dump-unusable", condition, false, STATUS_INCOMPLETE, "cannot be used");
    }
}

/* ---- what is not measured ---- */

static void test_not_measured(void **state)
{
    (void)state;
    struct investigation in = investigation_world(WORLD_OPERATOR, WORLD_OPERATOR, "op");
    struct investigation_end end;
    in.own.paths[KL_PATH_RESTORE].grade = in.dump.paths[KL_PATH_RESTORE].grade = KL_GRADE_NOT_MEASURED;
    in.own.paths[KL_PATH_RESTORE].why_not = memory_copy("the radix cache is off");
    in.dump.paths[KL_PATH_MATCH_ALONE].grade = KL_GRADE_NOT_MEASURED;
    in.own.window = 4096;
    in.own.tp = in.diff.tp = 2;
    in.invariance_known = true;
    in.invariance_most = 8;
    in.axis_count = 1;
    in.axes = memory_new(sizeof in.axes[0]);
    in.axes[0] = (struct investigation_axis){.word = memory_copy("decode"),
                                             .state = memory_copy("changed"),
                                             .first_size = 2,
                                             .module = memory_copy("mlp"),
                                             .why_not = memory_copy("no room for 16")};
    in.steps[INVESTIGATION_AB].state = INVESTIGATION_NOT_NEEDED;
    in.steps[INVESTIGATION_AB].why = memory_copy("no flag was added");
    list_vector_free(in.diff.blind);
    in.diff.blind = investigation_world_texts("rotary_emb: only on the decode side");
    investigation_conclude(&in, &end);
    const char *const wanted[] = {"restore under your own flags: the radix cache is off",
                                  "match, one at a time under the flags of a dump",
                                  "sliding window of 4096",
                                  "tensor-parallel size than 2",
                                  "all-reduce over 2 ranks",
                                  "batches of more than 8",
                                  "invariance, decode: no room for 16",
                                  "not needed: ab: no flag was added",
                                  "rotary_emb: only on the decode side",
                                  "8 prompts, 12 new tokens each, temperature 0",
                                  "4 of 8 prompts were dumped",
                                  "one request at a time, layer by layer"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!says(end.not_measured, wanted[i]))
            fail_msg("not told: %s", wanted[i]);
    assert_false(says(end.not_measured, "restore under the flags of a dump")); /* told once */
    assert_true(says(end.evidence, "invariance, decode: changed, first at a batch of 2, in mlp"));
    investigation_end_fini(&end);
    in.own.past_window = in.own.graphs_known = in.own.graphs_off = in.capture.alone = true;
    investigation_conclude(&in, &end);
    assert_false(says(end.not_measured, "sliding window") || says(end.not_measured, "CUDA graph") ||
                 says(end.not_measured, "one request at a time, layer"));
    investigation_end_fini(&end);
    investigation_fini(&in);
}

/* ---- all there may be ---- */

static bool is_a_row(const char *name)
{
    for (size_t row = 0; investigation_end_row(row) != NULL; row++)
        if (investigation_end_row(row) == name)
            return true;
    return false;
}

static void check_end(const struct investigation *in)
{
    struct investigation_end end;
    investigation_conclude(in, &end);
    assert_true(is_a_row(end.name));
    assert_true(strlen(end.text) > 20 && strchr(end.text, '{') == NULL && strchr(end.text, '}') == NULL);
    assert_true(end.next[0] != NULL && end.evidence != NULL);
    assert_true(end.module == NULL || end.module == in->diff.module);
    if (in->own.known && in->own.condition == KL_CONDITION_NONE && !in->capture.shifted)
        assert_true(end.condition == KL_CONDITION_NONE);
    if (end.module != NULL)
        assert_true(in->diff.proven && end.status == STATUS_NO);
    investigation_end_fini(&end);
}

/* States of the steps that decide, whatever results are beside them: also what no engine would make. */
static void test_all_states(void **state)
{
    (void)state;
    enum { DECIDING = INVESTIGATION_STEPS, STATES = 4 };
    for (size_t own = 0; own < WORLD_READINGS; own++)
        for (size_t dump = 0; dump < WORLD_READINGS; dump++)
            for (size_t kind = 0; kind <= INVESTIGATION_WORLD_KINDS; kind++) {
                struct investigation in = investigation_world((enum world_reading)own, (enum world_reading)dump,
                                                              investigation_world_kinds[kind]);
                for (size_t code = 0; code < (size_t)1 << (2 * DECIDING); code++) {
                    if (code % 61 != (own * 7 + dump + kind) % 61) /* each of them with some of the results */
                        continue;
                    for (size_t id = 0; id < DECIDING; id++)
                        in.steps[id].state = (enum investigation_state)(code >> (2 * id) & (STATES - 1));
                    in.steps[INVESTIGATION_CHECK].status = code & 1 ? STATUS_INCOMPLETE : 0;
                    check_end(&in);
                }
                investigation_fini(&in);
            }
}

/* Results with nothing in them but that they are there. */
static void test_empty_results(void **state)
{
    (void)state;
    for (int bits = 0; bits < 1 << 10; bits++) {
        struct investigation in = {0};
        in.own.known = bits & 1;
        in.dump.known = bits & 2;
        in.own.condition = (enum kl_condition)(bits >> 2 & 3);
        in.dump.condition = (enum kl_condition)(bits >> 4 & 3);
        in.diff.known = bits & 64;
        in.diff.proven = bits & 128;
        in.capture.known = bits & 256;
        in.invariance_known = bits & 512;
        check_end(&in);
        investigation_fini(&in);
    }
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(investigation_step_name(INVESTIGATION_KL_OWN), "kl-own");
    assert_string_equal(investigation_step_word(INVESTIGATION_DIFF), "the first operator that differs");
    assert_string_equal(investigation_state_word(INVESTIGATION_NOT_REACHED), "not reached");
    assert_null(investigation_end_row(1000));
    struct investigation in = {0};
    investigation_fini(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_started),
        cmocka_unit_test(test_unfinished),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_needs_a_graph),
        cmocka_unit_test(test_other_prompts),
        cmocka_unit_test(test_own_flags_alone),
        cmocka_unit_test(test_other_reading),
        cmocka_unit_test(test_operator),
        cmocka_unit_test(test_condition_1_elsewhere),
        cmocka_unit_test(test_condition_2),
        cmocka_unit_test(test_what_invariance_adds),
        cmocka_unit_test(test_the_operator_of_a_batch),
        cmocka_unit_test(test_no_verdict),
        cmocka_unit_test(test_not_measured),
        cmocka_unit_test(test_all_states),
        cmocka_unit_test(test_empty_results),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
