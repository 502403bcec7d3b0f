/* The judge of the probe: what proves, what limits, and each row of the table of failures. */
#include "sglang/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3, FILES = 123 };

/* A healthy probe of a server with `ranks` ranks, which each test spoils in one way. */
struct world {
    struct audit audit;
    struct server_facts facts;
    struct server_answer before, after, probe;
    struct server_probe_evidence evidence;
    struct server_judgement judgement;
};

static struct world world;

static struct audit_pass *add_pass(uint32_t rank, uint64_t step, enum audit_phase phase)
{
    struct audit_pass *pass = audit_add_pass(&world.audit);
    *pass = (struct audit_pass){.rank = rank,
                                .step = step,
                                .phase = phase,
                                .files = FILES,
                                .bytes = phase == AUDIT_EXTEND ? 511000 : 500000,
                                .tokens = phase == AUDIT_EXTEND ? SERVER_PROBE_IDS : 1,
                                .requests = 1,
                                .layers = LAYERS,
                                .layer_files = 105,
                                .has_request_ids = true};
    world.audit.files += FILES;
    return pass;
}

static void begin(uint32_t ranks, unsigned int decode)
{
    audit_fini(&world.audit);
    memset(&world, 0, sizeof world);
    audit_init(&world.audit);
    world.audit.complete = true;
    world.facts = (struct server_facts){.version = "0.5.23",
                                        .decode_graphs = "disabled",
                                        .prefill_graphs = "disabled",
                                        .graphs_known = true,
                                        .graphs_off = true,
                                        .world_size = ranks,
                                        .pipeline_stages = 1,
                                        .tensor_ranks = ranks};
    world.before = (struct server_answer){.question = SERVER_STATE, .ok = true, .rank_count = ranks};
    world.after = world.before;
    world.probe = (struct server_answer){
        .question = SERVER_PROBE, .ok = true, .prompt_tokens = SERVER_PROBE_IDS, .completion_tokens = SERVER_PROBE_NEW};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        world.before.rank[rank] = (struct server_rank){.dump_index = 7, .step = 2};
        world.after.rank[rank] = (struct server_rank){.dump_index = 7 + FILES * (1 + decode), .step = 3 + decode};
        add_pass(rank, 2, AUDIT_EXTEND);
        for (unsigned int k = 0; k < decode; k++)
            add_pass(rank, 3 + k, AUDIT_DECODE);
    }
    world.evidence = (struct server_probe_evidence){&world.audit, &world.facts, &world.before,
                                                    &world.after, &world.probe, "kldump-probe"};
}

static void judge(enum server_verdict verdict, const char *setting, const char *text)
{
    probe_judge(&world.evidence, &world.judgement);
    if (world.judgement.verdict != verdict || strcmp(world.judgement.setting, setting) != 0 ||
        strstr(world.judgement.text, text) == NULL)
        fail_msg("verdict %d, setting '%s', text '%s'; expected %d, '%s', '%s'", (int)world.judgement.verdict,
                 world.judgement.setting, world.judgement.text, (int)verdict, setting, text);
}

static void test_proven(void **state)
{
    (void)state;
    begin(1, 2);
    judge(SERVER_PROVEN, "", "1 prefill and 2 decode passes on 1 rank, in 3 layers each: 369 files");
    begin(1, 3); /* releases up to 0.5.20 take one pass more */
    judge(SERVER_PROVEN, "", "3 decode passes");
    begin(4, 2);
    judge(SERVER_PROVEN, "", "on 4 ranks, in 3 layers");
    begin(2, 2); /* pipeline: each stage has its own layers, and not the same number of files */
    world.facts.tensor_ranks = 1;
    world.facts.pipeline_stages = 2;
    world.after.rank[1].dump_index = 90;
    judge(SERVER_PROVEN, "", "on 2 ranks, in 6 layers");
}

static void test_costs(void **state)
{
    (void)state;
    begin(1, 2);
    judge(SERVER_PROVEN, "", "");
    assert_int_equal(world.judgement.costs.bytes_per_prefill_token, 1000); /* (511000 - 500000) / 11 */
    assert_int_equal(world.judgement.costs.bytes_per_extend_pass, 511000);
    assert_int_equal(world.judgement.costs.bytes_per_decode_pass, 500000);
    assert_int_equal(world.judgement.costs.files_per_pass, FILES);
    begin(2, 3); /* costs are those of all ranks together */
    judge(SERVER_PROVEN, "", "");
    assert_int_equal(world.judgement.costs.bytes_per_prefill_token, 2000);
    assert_int_equal(world.judgement.costs.bytes_per_decode_pass, 1000000);
    assert_int_equal(world.judgement.costs.files_per_pass, 2 * FILES);
    begin(1, 2);
    world.audit.passes[0].bytes = 400000; /* smaller than a decode pass: no line through the two points */
    judge(SERVER_PROVEN, "", "");
    assert_int_equal(world.judgement.costs.bytes_per_prefill_token, 400000 / 12);
}

static void test_limited(void **state)
{
    (void)state;
    begin(1, 2);
    strcpy(world.facts.limited, "speculative decoding: x");
    judge(SERVER_LIMITED, "", "speculative decoding: x");
    begin(1, 0); /* the prefill half of a disaggregated pair */
    strcpy(world.facts.limited, "prefill server of a pair");
    world.probe.completion_tokens = 1;
    judge(SERVER_LIMITED, "", "0 decode");
    begin(1, 2);
    world.facts.graphs_known = false;
    judge(SERVER_LIMITED, "", "does not tell whether graphs are off");
    begin(1, 2);
    for (size_t i = 0; i < 3; i++)
        world.audit.passes[i].layers = 1;
    judge(SERVER_LIMITED, "", "only one layer");
    begin(1, 2); /* what proves that hooks are missing is never softened */
    strcpy(world.facts.limited, "speculative decoding: x");
    world.after.rank[0].dump_index = 7;
    judge(SERVER_FAILED, "DUMPER_SERVER_PORT", "began no file");
}

static void test_no_answers(void **state)
{
    (void)state;
    begin(1, 2);
    world.probe.ok = false;
    strcpy(world.probe.problem, "HTTP 503: queue full");
    judge(SERVER_FAILED, "probe request", "queue full");
    begin(1, 2);
    world.after.ok = false;
    strcpy(world.after.problem, "no answer: timeout");
    judge(SERVER_FAILED, "DUMPER_SERVER_PORT", "after the probe: no answer: timeout");
    begin(1, 2);
    world.before.ok = false;
    judge(SERVER_FAILED, "DUMPER_SERVER_PORT", "before the probe");
    begin(2, 2);
    world.facts.world_size = 4;
    judge(SERVER_FAILED, "--tp-size", "expected 4");
    begin(2, 2);
    world.after.rank_count = 1;
    judge(SERVER_FAILED, "--tp-size", "1 after the probe; expected 2");
}

static void test_settings(void **state)
{
    (void)state;
    begin(1, 2);
    strcpy(world.before.wrong_setting, "non_intrusive_mode is \"core\" on rank 0; expected all");
    judge(SERVER_FAILED, "DUMPER_NON_INTRUSIVE_MODE", "DUMPER_NON_INTRUSIVE_MODE is \"core\"");
    begin(1, 2);
    strcpy(world.after.wrong_setting, "filter is \"x\" on rank 0; expected null");
    judge(SERVER_FAILED, "DUMPER_FILTER", "another client's configure");
}

static void test_counters(void **state)
{
    (void)state;
    begin(2, 2);
    world.after.rank[1].step = 2;
    judge(SERVER_FAILED, "DUMPER_ENABLE", "rank 1 counted no pass");
    begin(2, 2);
    world.after.rank[1].dump_index = 7;
    judge(SERVER_FAILED, "DUMPER_SERVER_PORT", "rank 1 counted 3 passes and began no file, where rank 0 began 369");
    assert_non_null(strstr(world.judgement.text, "every rank"));
    begin(2, 2);
    world.after.rank[0].dump_index = world.after.rank[1].dump_index = 7;
    judge(SERVER_FAILED, "DUMPER_SERVER_PORT", "began no file. Setting");
    assert_non_null(strstr(world.judgement.text, "reset"));
    begin(1, 2); /* after a reset the counters begin at 0 */
    world.after.rank[0] = (struct server_rank){.dump_index = 0, .step = 3};
    judge(SERVER_FAILED, "/dumper/reset", "went back during the probe, from step 2, index 7 to 3, 0");
    begin(2, 2);
    world.after.rank[1].step = 1;
    judge(SERVER_FAILED, "/dumper/reset", "rank 1 went back");
    begin(4, 2); /* the ranks of one stage write the same files, those of another stage need not */
    world.facts.tensor_ranks = 2;
    world.facts.pipeline_stages = 2;
    world.after.rank[2].dump_index = world.after.rank[3].dump_index = 300;
    judge(SERVER_PROVEN, "", "on 4 ranks");
    world.after.rank[3].dump_index = 301;
    judge(SERVER_FAILED, "--tp-size", "rank 3 took 3 passes and began 294 files, rank 2 of the same stage 3 and 293");
    strcpy(world.facts.limited, "attention data parallelism: x");
    judge(SERVER_LIMITED, "", "rank 3 took 3 passes");
    begin(1, 2);
    world.after.rank[0].dump_index = 7;
    world.facts.graphs_off = false;
    strcpy(world.facts.decode_graphs, "full");
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "graphs are replayed (decode full");
}

static void filter_with(const char *filter)
{
    strcpy(world.before.filter, filter);
    strcpy(world.after.filter, filter);
}

static void test_filter(void **state)
{
    (void)state;
    begin(2, 2); /* keeps all that the proof needs */
    filter_with("'mlp' in name or layer_id is None");
    judge(SERVER_PROVEN, "", "; under DUMPER_FILTER='mlp' in name or layer_id is None");
    begin(2, 2); /* keeps nothing: what is dropped is not counted */
    filter_with("False");
    world.after.rank[0].dump_index = world.after.rank[1].dump_index = 7;
    world.audit.pass_count = 0;
    judge(SERVER_FAILED, "DUMPER_FILTER",
          "3 passes began no file on any rank under DUMPER_FILTER=False: it keeps nothing");
    begin(1, 2); /* layers alone: no ids of requests, no phases */
    filter_with("layer_id in [0]");
    for (size_t i = 0; i < 3; i++) {
        world.audit.passes[i].phase = AUDIT_UNKNOWN;
        world.audit.passes[i].tokens = 0;
        world.audit.passes[i].has_request_ids = false;
        world.audit.passes[i].layers = 1;
    }
    judge(SERVER_LIMITED, "", "with DUMPER_FILTER=layer_id in [0] the files cannot show all: rank 0 counted 3 passes");
    world.audit.complete = false;
    list_add(&world.audit.reasons, "passes without request ids");
    judge(SERVER_LIMITED, "", "no pass has request ids, so passes of others cannot be told");
    list_add(&world.audit.reasons, "7 empty files"); /* which no filter explains */
    judge(SERVER_FAILED, "DUMPER_DIR", "passes without request ids");
    begin(1, 2); /* inputs alone: as in mode core */
    filter_with("layer_id is None");
    for (size_t i = 0; i < 3; i++)
        world.audit.passes[i].layers = 0, world.audit.passes[i].layer_files = 0;
    judge(SERVER_LIMITED, "", "nothing of any layer");
    begin(2, 2); /* a pipeline stage of which nothing is kept */
    filter_with("layer_id in [0]");
    world.facts.tensor_ranks = 1;
    world.facts.pipeline_stages = 2;
    world.after.rank[1].dump_index = 7;
    world.audit.pass_count = 3;
    judge(SERVER_LIMITED, "", "rank 1 counted 3 passes and began no file");
    begin(1, 2); /* a filter excuses neither graphs nor files that are lost */
    filter_with("layer_id in [0]");
    world.audit.pass_count = 1;
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "replayed from a graph");
    begin(1, 2);
    filter_with("layer_id in [0]");
    world.audit.pass_count = 0;
    judge(SERVER_FAILED, "DUMPER_DIR", "none of them is in the folder");
    begin(1, 2);
    filter_with("False");
    world.after.rank[0].dump_index = 7;
    world.facts.graphs_off = false;
    strcpy(world.facts.decode_graphs, "full");
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "graphs are replayed");
}

static void test_folder(void **state)
{
    (void)state;
    begin(1, 2);
    world.audit.pass_count = 0;
    judge(SERVER_FAILED, "DUMPER_DIR", "began 369 files, and none of them");
    begin(2, 2);
    world.audit.pass_count = 3; /* those of rank 0 */
    judge(SERVER_FAILED, "DUMPER_DIR", "rank 1 began");
    begin(1, 2);
    world.audit.complete = false;
    list_add(&world.audit.reasons, "7 empty files");
    judge(SERVER_FAILED, "DUMPER_DIR", "not complete: 7 empty files");
    begin(1, 2); /* a full disk: names are there, contents are not */
    world.audit.complete = false;
    list_add(&world.audit.reasons, "7 empty files");
    world.audit.passes[1].tokens = 0;
    world.audit.passes[1].has_request_ids = false;
    world.audit.passes[1].phase = AUDIT_UNKNOWN;
    judge(SERVER_FAILED, "DUMPER_DIR", "7 empty files");
    assert_non_null(strstr(world.judgement.text, "the disk has space"));
}

static void test_foreign(void **state)
{
    (void)state;
    begin(1, 2);
    list_add(&world.audit.foreign_request_ids, "somebody");
    world.audit.passes[1].foreign = 1;
    judge(SERVER_FAILED, "other clients", "somebody");
    begin(1, 2);
    world.audit.passes[1].foreign = 1;
    judge(SERVER_FAILED, "other clients", "not listed");
    begin(1, 2);
    list_add(&world.audit.foreign_request_ids, "somebody");
    list_add(&world.audit.foreign_request_ids, "HEALTH_CHECK_0123");
    judge(SERVER_FAILED, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "HEALTH_CHECK_0123");
}

/* Spoils the first pass of rank 0 into what a replayed prefill graph leaves: 13 healthy files. */
static void replay_prefill(void)
{
    struct audit_pass *pass = &world.audit.passes[0];
    pass->phase = AUDIT_UNKNOWN;
    pass->files = 13;
    pass->layers = 0;
    pass->layer_files = 0;
    pass->tokens = 12; /* 12 is a graph size, so that no padding shows */
    pass->has_request_ids = false;
}

static void test_prefill_graph(void **state)
{
    (void)state;
    begin(1, 2);
    replay_prefill();
    world.audit.passes[1].phase = AUDIT_EXTEND; /* the id is seen for the first time there */
    judge(SERVER_FAILED, "--disable-prefill-cuda-graph", "13 files without any layer and without request ids");
    assert_null(strstr(world.judgement.text, "--disable-decode-cuda-graph"));
    begin(1, 2);
    replay_prefill();
    world.audit.pass_count = 1;
    judge(SERVER_FAILED, "--disable-prefill-cuda-graph", "--disable-decode-cuda-graph is missing as well");
    begin(1, 2);
    replay_prefill();
    strcpy(world.facts.version, "0.5.12.post1");
    judge(SERVER_FAILED, "--disable-piecewise-cuda-graph", "13 files");
}

static void test_decode_graph(void **state)
{
    (void)state;
    begin(1, 2);
    world.audit.pass_count = 1;
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "counted 3 passes, but 0 decode passes left files");
    begin(1, 2);
    world.audit.pass_count = 2;
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "1 decode passes left files");
    begin(1, 2);
    world.audit.passes[2].layers = 0;
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "no file of any layer");
    begin(1, 2);
    world.audit.pass_count = 1;
    strcpy(world.facts.version, "0.5.10");
    judge(SERVER_FAILED, "--disable-cuda-graph", "counted 3 passes");
}

static void test_core_mode(void **state)
{
    (void)state;
    begin(1, 2);
    for (size_t i = 0; i < 3; i++) {
        world.audit.passes[i].files = 8;
        world.audit.passes[i].layers = 0;
        world.audit.passes[i].layer_files = 0;
    }
    judge(SERVER_FAILED, "DUMPER_NON_INTRUSIVE_MODE", "8 files with the inputs and nothing of any layer");
}

static void test_request(void **state)
{
    (void)state;
    begin(1, 2);
    world.probe.cached_tokens = 3;
    world.audit.passes[0].tokens = 9;
    judge(SERVER_FAILED, "radix cache", "3 of the probe's 12 tokens");
    begin(1, 2);
    world.probe.prompt_tokens = 8;
    judge(SERVER_FAILED, "--allow-auto-truncate", "took 8 prompt tokens");
    begin(1, 2);
    world.probe.completion_tokens = 2;
    judge(SERVER_FAILED, "--allow-auto-truncate", "2 new ones");
}

static void test_passes(void **state)
{
    (void)state;
    begin(1, 2);
    add_pass(0, 5, AUDIT_EXTEND);
    world.after.rank[0].step = 6;
    judge(SERVER_FAILED, "--chunked-prefill-size", "took 2 prefill passes");
    begin(1, 2);
    world.audit.passes[0].tokens = 13;
    judge(SERVER_FAILED, "--chunked-prefill-size", "of 13 rows");
    begin(1, 4);
    judge(SERVER_FAILED, "other passes", "4 decode; expected 1 prefill and 2 or 3 decode");
    begin(1, 1);
    judge(SERVER_FAILED, "other passes", "1 decode");
    begin(1, 2); /* a pass without files besides the healthy ones */
    world.after.rank[0].step++;
    judge(SERVER_FAILED, "other passes", "counted 4 passes and left files of 3");
    begin(1, 2);
    world.audit.passes[2].layers = 2;
    judge(SERVER_FAILED, "--enable-two-batch-overlap", "3 layers in prefill and of 2 in decode");
}

static void test_graphs_on(void **state)
{
    (void)state;
    begin(1, 2);
    world.facts.graphs_off = false;
    strcpy(world.facts.prefill_graphs, "breakable");
    judge(SERVER_FAILED, "--disable-prefill-cuda-graph", "prefill graphs breakable");
    begin(1, 2);
    world.facts.graphs_off = false;
    strcpy(world.facts.decode_graphs, "full");
    judge(SERVER_FAILED, "--disable-decode-cuda-graph", "decode graphs full");
    begin(1, 2);
    world.facts.graphs_off = false;
    judge(SERVER_FAILED, "--enable-torch-compile", "compiles the model");
}

/* Evidence that cannot be: it must not crash, and it must not prove. */
static void test_nonsense(void **state)
{
    (void)state;
    begin(1, 2);
    world.before.rank_count = world.after.rank_count = 0;
    world.facts.world_size = 0;
    probe_judge(&world.evidence, &world.judgement);
    assert_int_equal(world.judgement.verdict, SERVER_FAILED);
    assert_string_not_equal(world.judgement.setting, "");
    begin(1, 2);
    world.audit.passes[0].rank = 4000000000u;
    probe_judge(&world.evidence, &world.judgement);
    assert_int_equal(world.judgement.verdict, SERVER_FAILED);
    begin(1, 2);
    world.before.rank[0] = (struct server_rank){.dump_index = UINT64_MAX, .step = UINT64_MAX};
    judge(SERVER_FAILED, "/dumper/reset", "went back");
    begin(1, 0);
    world.audit.pass_count = 0;
    world.audit.complete = false;
    probe_judge(&world.evidence, &world.judgement);
    assert_int_equal(world.judgement.verdict, SERVER_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proven),       cmocka_unit_test(test_costs),     cmocka_unit_test(test_limited),
        cmocka_unit_test(test_no_answers),   cmocka_unit_test(test_settings),  cmocka_unit_test(test_counters),
        cmocka_unit_test(test_folder),       cmocka_unit_test(test_foreign),   cmocka_unit_test(test_prefill_graph),
        cmocka_unit_test(test_decode_graph), cmocka_unit_test(test_core_mode), cmocka_unit_test(test_request),
        cmocka_unit_test(test_passes),       cmocka_unit_test(test_graphs_on), cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_filter),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    audit_fini(&world.audit);
    return failed;
}
