#include "sglang/probe.h"

#include "base/number.h"
#include "base/text.h"
#include "sglang/probe_view.h"
#include "sglang/versions.h"

#include <stdio.h>
#include <string.h>

/* Stand for the flags in the spelling of the server's release. */
static const char decode_graphs[] = "decode graphs";
static const char prefill_graphs[] = "prefill graphs";

/* The table of failure signatures; the first one that is seen is blamed. */
static const struct signature {
    bool (*seen)(const struct probe_view *view, char *ret_what, size_t size);
    const char *setting; /* "": the signature names it as the first word of its text */
    const char *remedy;
    bool soft; /* not decisive in a shape of server that can be proven in part only */
} signatures[] = {
    {probe_view_unanswered, "probe request", "read the server's log; the run cannot be proven without an answer",
     false},
    {probe_view_unreadable, "DUMPER_SERVER_PORT",
     "the counters must be readable before and after the probe: read the server's log", false},
    {probe_view_wrong_setting, "",
     "something between kldump and the schedulers drops or changes the variable (a wrapper, sudo, a container, another "
     "client's configure): hand the environment through",
     false},
    {probe_view_wrong_ranks, "--tp-size",
     "every rank must answer: look for ranks that died or nodes that are not connected", false},
    {probe_view_no_step, "DUMPER_ENABLE",
     "another client switched dumping off again, or another server answered: keep other clients of the dumper away",
     false},
    {probe_view_no_hooks_graphs, decode_graphs,
     "both kinds of graphs must be off: hand this flag and its sister through", false},
    {probe_view_no_hooks, "DUMPER_SERVER_PORT",
     "there are no hooks: the schedulers did not see the variable at load, or /dumper/reset was called, which removes "
     "hooks until a restart; start again and never call reset",
     false},
    {probe_view_no_files, "DUMPER_DIR",
     "the server writes somewhere else: the folder must be the same for the server and kldump (container, other node)",
     false},
    {probe_view_health_probes, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
     "the variable must be 0 in the server, and nobody may poll /health_generate", false},
    {probe_view_foreign, "other clients", "keep other clients away until the run is armed", false},
    {probe_view_core_mode, "DUMPER_NON_INTRUSIVE_MODE", "it must be 'all' when the schedulers start", false},
    {probe_view_prefill_graph, prefill_graphs, "hand this flag through to the server", false},
    {probe_view_cached, "radix cache", "flush the cache before the run, or start the server with --disable-radix-cache",
     false},
    {probe_view_cut, "--allow-auto-truncate", "leave the flag out and give the server room for the whole prompt", true},
    {probe_view_broken_files, "DUMPER_DIR", "see that the disk has space and takes writes", false},
    {probe_view_chunked, "--chunked-prefill-size", "use -1 or a size above the longest prompt", true},
    {probe_view_decode_graph, decode_graphs, "hand this flag through to the server", true},
    {probe_view_pass_count, "other passes",
     "one request must take 1 prefill and 2 or 3 decode passes: keep other clients away; do not use "
     "--enable-mixed-chunk",
     true},
    {probe_view_fewer_layers, "--enable-two-batch-overlap",
     "some layers run without their hooks in decode: leave overlapping of batches and fused layers out", true},
    {probe_view_graphs_on, "", "the other graph settings must not win over ours: leave them out", false},
    {probe_view_incomplete, "DUMPER_DIR", "see that the disk has space and that no other process touches the folder",
     true},
};

static void name_setting(const struct probe_view *view, const struct signature *signature, const char *what, char *out,
                         size_t size)
{
    if (signature->setting == decode_graphs)
        text_copy(out, size, view->spelling->decode_graphs_off);
    else if (signature->setting == prefill_graphs)
        text_copy(out, size, view->spelling->prefill_graphs_off);
    else if (signature->setting[0] != '\0')
        text_copy(out, size, signature->setting);
    else
        snprintf(out, size, "%.*s", (int)strcspn(what, " "), what);
}

/* Two points of a line: a decode pass has one row, the extend pass those of the prompt, and the same files. */
static void measure(const struct probe_view *view, struct server_costs *ret_costs)
{
    struct server_costs costs = {0};
    const struct audit *audit = view->evidence->audit;
    uint64_t decode_bytes = 0, decode_passes = 0, tokens = 0;
    for (size_t i = 0; i < audit->pass_count; i++) {
        const struct audit_pass *pass = &audit->passes[i];
        uint64_t files = 0;
        for (size_t k = 0; k < audit->pass_count; k++)
            if (audit->passes[k].step == pass->step)
                files += audit->passes[k].files;
        costs.files_per_pass = files > costs.files_per_pass ? files : costs.files_per_pass;
        if (pass->phase == AUDIT_EXTEND) {
            costs.bytes_per_extend_pass += pass->bytes;
            tokens = pass->tokens > tokens ? pass->tokens : tokens;
        } else if (pass->phase == AUDIT_DECODE) {
            decode_bytes += pass->bytes;
            decode_passes += pass->rank == audit->passes[0].rank ? 1 : 0;
        }
    }
    if (decode_passes > 0)
        costs.bytes_per_decode_pass = decode_bytes / decode_passes;
    uint64_t more = number_subtract(costs.bytes_per_extend_pass, costs.bytes_per_decode_pass);
    if (decode_passes > 0 && tokens > 1 && more > 0)
        costs.bytes_per_prefill_token = more / (tokens - 1);
    else if (tokens > 0)
        costs.bytes_per_prefill_token = costs.bytes_per_extend_pass / tokens;
    if (tokens > 0 && costs.bytes_per_prefill_token == 0)
        costs.bytes_per_prefill_token = 1;
    *ret_costs = costs;
}

static void succeed(const struct probe_view *view, const char *doubts, struct server_judgement *judgement)
{
    const struct server_facts *facts = view->evidence->facts;
    if (doubts[0] != '\0') {
        judgement->verdict = SERVER_LIMITED;
        snprintf(judgement->text, sizeof judgement->text, "hooks fire, but not everything can be proven: %s", doubts);
        return;
    }
    judgement->verdict = SERVER_PROVEN;
    snprintf(
        judgement->text, sizeof judgement->text,
        "hooks fired in %u prefill and %u decode passes on %u rank%s, in %u layers each: %llu files; decode graphs "
        "%s, prefill graphs %s",
        view->rank[0].extend, view->rank[0].decode, (unsigned int)view->ranks, view->ranks == 1 ? "" : "s",
        (unsigned int)view->layers, (unsigned long long)view->evidence->audit->files, facts->decode_graphs,
        facts->prefill_graphs);
}

void probe_judge(const struct server_probe_evidence *evidence, struct server_judgement *ret_judgement)
{
    struct probe_view view;
    char what[300], doubts[400] = "";
    const struct server_facts *facts = evidence->facts;
    *ret_judgement = (struct server_judgement){.verdict = SERVER_FAILED};
    probe_view_make(evidence, &view);
    if (facts->limited[0] != '\0')
        text_copy(doubts, sizeof doubts, facts->limited);
    else if (!facts->graphs_known)
        text_copy(doubts, sizeof doubts, "this release does not tell whether graphs are off");
    else if (view.layers == 1)
        text_copy(doubts, sizeof doubts, "only one layer was seen");
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const struct signature *signature = &signatures[i];
        if (!signature->seen(&view, what, sizeof what))
            continue;
        if (signature->soft && facts->limited[0] != '\0') {
            size_t used = strlen(doubts);
            snprintf(doubts + used, sizeof doubts - used, "; %s", what);
            continue;
        }
        name_setting(&view, signature, what, ret_judgement->setting, sizeof ret_judgement->setting);
        snprintf(ret_judgement->text, sizeof ret_judgement->text, "%s. Setting to blame: %s; %s", what,
                 ret_judgement->setting, signature->remedy);
        return;
    }
    measure(&view, &ret_judgement->costs);
    succeed(&view, doubts, ret_judgement);
}
