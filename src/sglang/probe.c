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

/* When a signature is no more than a doubt. */
enum soft {
    SOFT_NEVER,
    SOFT_SHAPE = 1, /* in a shape of server that can be proven in part only */
    SOFT_FILTER = 2 /* under a filter, which may drop what the signature misses */
};

/* The table of failure signatures; the first one that is seen is blamed. */
static const struct signature {
    bool (*seen)(const struct probe_view *view, char *ret_what, size_t size);
    const char *setting; /* "": the signature names it as the first word of its text */
    const char *remedy;
    unsigned int soft; /* of enum soft */
} signatures[] = {
    {probe_view_unanswered, "probe request", "read the server's log; the run cannot be proven without an answer",
     SOFT_NEVER},
    {probe_view_unreadable, "DUMPER_SERVER_PORT",
     "the counters must be readable before and after the probe: read the server's log", SOFT_NEVER},
    {probe_view_wrong_setting, "",
     "something between kldump and the schedulers drops or changes the variable (a wrapper, sudo, a container, another "
     "client's configure): hand the environment through",
     SOFT_NEVER},
    {probe_view_wrong_ranks, "--tp-size",
     "every rank must answer: look for ranks that died or nodes that are not connected", SOFT_NEVER},
    {probe_view_went_back, "/dumper/reset",
     "a reset removes the hooks until a restart: start again, and keep everybody from calling it", SOFT_NEVER},
    {probe_view_no_step, "DUMPER_ENABLE",
     "another client switched dumping off again, or another server answered: keep other clients of the dumper away",
     SOFT_NEVER},
    {probe_view_no_hooks_graphs, decode_graphs,
     "both kinds of graphs must be off: hand this flag and its sister through", SOFT_NEVER},
    {probe_view_filtered_out, "DUMPER_FILTER",
     "write one that keeps something (layer_id in [0]), or leave it out and see whether there are hooks at all",
     SOFT_NEVER},
    {probe_view_silent_rank, "DUMPER_SERVER_PORT",
     "that process has no hooks: hand the environment through to every rank, and let nobody call /dumper/reset",
     SOFT_FILTER},
    {probe_view_no_hooks, "DUMPER_SERVER_PORT",
     "there are no hooks: the schedulers did not see the variable at load, or /dumper/reset was called, which removes "
     "hooks until a restart; start again and never call reset",
     SOFT_NEVER},
    {probe_view_no_files, "DUMPER_DIR",
     "the server writes somewhere else: the folder must be the same for the server and kldump (container, other node)",
     SOFT_NEVER},
    {probe_view_health_probes, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
     "the variable must be 0 in the server, and nobody may poll /health_generate", SOFT_NEVER},
    {probe_view_foreign, "other clients", "keep other clients away until the run is armed", SOFT_NEVER},
    {probe_view_core_mode, "DUMPER_NON_INTRUSIVE_MODE", "it must be 'all' when the schedulers start", SOFT_FILTER},
    {probe_view_prefill_graph, prefill_graphs, "hand this flag through to the server", SOFT_FILTER},
    {probe_view_cached, "radix cache", "flush the cache before the run, or start the server with --disable-radix-cache",
     SOFT_NEVER},
    {probe_view_cut, "--allow-auto-truncate", "leave the flag out and give the server room for the whole prompt",
     SOFT_SHAPE},
    {probe_view_no_ids, "DUMPER_FILTER", "let it keep name == 'rids'", SOFT_FILTER},
    {probe_view_broken_files, "DUMPER_DIR", "see that the disk has space and takes writes", SOFT_NEVER},
    {probe_view_chunked, "--chunked-prefill-size", "use -1 or a size above the longest prompt", SOFT_SHAPE},
    {probe_view_decode_graph, decode_graphs, "hand this flag through to the server", SOFT_SHAPE},
    {probe_view_pass_count, "other passes",
     "one request must take 1 prefill and 2 or 3 decode passes: keep other clients away; do not use "
     "--enable-mixed-chunk",
     SOFT_SHAPE | SOFT_FILTER},
    {probe_view_unequal_ranks, "--tp-size", "the ranks do not run in step: look for one that is stuck or was restarted",
     SOFT_SHAPE},
    {probe_view_fewer_layers, "--enable-two-batch-overlap",
     "some layers run without their hooks in decode: leave overlapping of batches and fused layers out",
     SOFT_SHAPE | SOFT_FILTER},
    {probe_view_graphs_on, "", "the other graph settings must not win over ours: leave them out", SOFT_NEVER},
    {probe_view_incomplete, "DUMPER_DIR", "see that the disk has space and that no other process touches the folder",
     SOFT_SHAPE},
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
        "%s, prefill graphs %s%s%.80s",
        view->rank[0].extend, view->rank[0].decode, (unsigned int)view->ranks, view->ranks == 1 ? "" : "s",
        (unsigned int)view->layers, (unsigned long long)view->evidence->audit->files, facts->decode_graphs,
        facts->prefill_graphs, view->filter[0] != '\0' ? "; under DUMPER_FILTER=" : "", view->filter);
}

static void add_doubt(char *doubts, size_t size, const char *text)
{
    size_t used = strlen(doubts);
    if (used > 0)
        text_copy(doubts + used, size - used, "; ");
    used = strlen(doubts);
    text_copy(doubts + used, size - used, text);
}

/* Whether this signature is only a doubt here; the first one under a filter tells which filter. */
static bool soften(const struct probe_view *view, const struct signature *signature, const char *what, bool *filtered,
                   char *doubts, size_t size)
{
    char text[400];
    if ((signature->soft & SOFT_SHAPE) != 0 && view->evidence->facts->limited[0] != '\0') {
        add_doubt(doubts, size, what);
        return true;
    }
    if ((signature->soft & SOFT_FILTER) == 0 || view->filter[0] == '\0')
        return false;
    snprintf(text, sizeof text, "with DUMPER_FILTER=%.80s the files cannot show all: %.250s", view->filter, what);
    if (!*filtered)
        add_doubt(doubts, size, text);
    *filtered = true;
    return true;
}

void probe_judge(const struct server_probe_evidence *evidence, struct server_judgement *ret_judgement)
{
    struct probe_view view;
    char what[300], doubts[400] = "";
    bool filtered = false;
    const struct server_facts *facts = evidence->facts;
    *ret_judgement = (struct server_judgement){.verdict = SERVER_FAILED};
    probe_view_make(evidence, &view);
    if (facts->limited[0] != '\0')
        text_copy(doubts, sizeof doubts, facts->limited);
    else if (!facts->graphs_known)
        text_copy(doubts, sizeof doubts, "this release does not tell whether graphs are off");
    else if (view.layers == 1 && view.filter[0] == '\0')
        text_copy(doubts, sizeof doubts, "only one layer was seen");
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const struct signature *signature = &signatures[i];
        if (!signature->seen(&view, what, sizeof what) ||
            soften(&view, signature, what, &filtered, doubts, sizeof doubts))
            continue;
        name_setting(&view, signature, what, ret_judgement->setting, sizeof ret_judgement->setting);
        snprintf(ret_judgement->text, sizeof ret_judgement->text, "%s. Setting to blame: %s; %s", what,
                 ret_judgement->setting, signature->remedy);
        return;
    }
    measure(&view, &ret_judgement->costs);
    succeed(&view, doubts, ret_judgement);
}
