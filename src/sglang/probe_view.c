#include "sglang/probe_view.h"

#include "base/number.h"
#include "base/text.h"
#include "sglang/answers.h"
#include "sglang/request_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DECODE_LEAST = 2, DECODE_MOST = 3 }; /* SERVER_PROBE_NEW tokens: one fewer, or one extra pass (up to 0.5.20) */

static void add_pass(struct probe_view_rank *rank, const struct audit_pass *pass)
{
    rank->passes++;
    rank->files += pass->files;
    if (rank->first == NULL || pass->step < rank->first->step)
        rank->first = pass;
    if (pass->phase == AUDIT_EXTEND) {
        rank->extend_layers = pass->layers;
        rank->extend_tokens = pass->tokens;
        rank->extend++;
    } else if (pass->phase == AUDIT_DECODE) {
        if (rank->decode == 0 || pass->layers < rank->decode_layers)
            rank->decode_layers = pass->layers;
        rank->decode++;
    }
}

/* Layers of one pass over all stages: torch rank = stage * tensor ranks + tensor rank (SGLang 0.5.23). */
static uint32_t count_layers(const struct probe_view *view)
{
    uint32_t layers = 0, step = view->evidence->facts->tensor_ranks != 0 ? view->evidence->facts->tensor_ranks : 1;
    for (uint32_t i = 0; i < view->ranks; i += step)
        layers += view->rank[i].extend_layers;
    return layers;
}

void probe_view_make(const struct server_probe_evidence *evidence, struct probe_view *ret_view)
{
    const struct audit *audit = evidence->audit;
    const struct server_answer *before = evidence->before, *after = evidence->after;
    bool guessed = false;
    *ret_view = (struct probe_view){.evidence = evidence, .filter = before->filter};
    ret_view->ranks = after->rank_count < SERVER_RANKS_MAX ? after->rank_count : (uint32_t)SERVER_RANKS_MAX;
    if (versions_find(evidence->facts->version, &ret_view->spelling, &guessed, NULL) != ERROR_NONE)
        (void)versions_find("", &ret_view->spelling, &guessed, NULL);
    for (uint32_t i = 0; i < ret_view->ranks; i++) {
        ret_view->rank[i].steps = number_subtract(after->rank[i].step, before->rank[i].step);
        ret_view->rank[i].indices = number_subtract(after->rank[i].dump_index, before->rank[i].dump_index);
    }
    for (size_t i = 0; i < audit->pass_count; i++)
        if (audit->passes[i].rank < ret_view->ranks)
            add_pass(&ret_view->rank[audit->passes[i].rank], &audit->passes[i]);
    ret_view->layers = count_layers(ret_view);
}

bool probe_view_unanswered(const struct probe_view *view, char *ret_what, size_t size)
{
    snprintf(ret_what, size, "the probe was not served: %s", view->evidence->probe->problem);
    return !view->evidence->probe->ok;
}

bool probe_view_unreadable(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct server_answer *before = view->evidence->before, *after = view->evidence->after;
    snprintf(ret_what, size, "the dumper's state could not be read %s the probe: %s", before->ok ? "after" : "before",
             before->ok ? after->problem : before->problem);
    return !before->ok || !after->ok;
}

/* "non_intrusive_mode is ..." becomes "DUMPER_NON_INTRUSIVE_MODE is ...": the variable that sets it. */
bool probe_view_wrong_setting(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct server_answer *before = view->evidence->before, *after = view->evidence->after;
    const char *wrong = before->wrong_setting[0] != '\0' ? before->wrong_setting : after->wrong_setting;
    answers_name_variable(wrong, ret_what, size);
    return wrong[0] != '\0';
}

bool probe_view_wrong_ranks(const struct probe_view *view, char *ret_what, size_t size)
{
    uint32_t before = view->evidence->before->rank_count, world = view->evidence->facts->world_size;
    uint32_t expected = world != 0 ? world : before;
    snprintf(ret_what, size, "%" PRIu32 " ranks answered before and %" PRIu32 " after the probe; expected %" PRIu32,
             before, view->evidence->after->rank_count, expected);
    return before != expected || view->evidence->after->rank_count != expected;
}

/* Only a reset sets the counters back, and it removes the hooks (SGLang 0.5.23, dumper.py). */
bool probe_view_went_back(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct server_answer *before = view->evidence->before, *after = view->evidence->after;
    for (uint32_t i = 0; i < view->ranks; i++) {
        snprintf(ret_what, size,
                 "the counters of rank %" PRIu32 " went back during the probe, from step %" PRIu64 ", index %" PRIu64
                 " to %" PRIu64 ", %" PRIu64 ": somebody called /dumper/reset",
                 i, before->rank[i].step, before->rank[i].dump_index, after->rank[i].step, after->rank[i].dump_index);
        if (after->rank[i].step < before->rank[i].step || after->rank[i].dump_index < before->rank[i].dump_index)
            return true;
    }
    return false;
}

bool probe_view_no_step(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        snprintf(ret_what, size, "rank %" PRIu32 " counted no pass while dumping was on; expected %d or more", i,
                 1 + DECODE_LEAST);
        if (view->rank[i].steps == 0)
            return true;
    }
    return false;
}

/* The first rank that began files and the first that did not; false when there is no such pair. */
static bool find_silent(const struct probe_view *view, uint32_t *ret_silent, uint32_t *ret_loud)
{
    bool silent = false, loud = false;
    for (uint32_t i = view->ranks; i-- > 0;) {
        *(view->rank[i].indices == 0 ? ret_silent : ret_loud) = i;
        silent = silent || view->rank[i].indices == 0;
        loud = loud || view->rank[i].indices > 0;
    }
    return silent && loud;
}

/* What a filter drops is not counted, so hooks under it look like none. */
bool probe_view_filtered_out(const struct probe_view *view, char *ret_what, size_t size)
{
    snprintf(ret_what, size,
             "%" PRIu64 " passes began no file on any rank under DUMPER_FILTER=%.100s: it keeps nothing",
             view->rank[0].steps, view->filter);
    for (uint32_t i = 0; i < view->ranks; i++)
        if (view->rank[i].indices > 0)
            return false;
    return view->filter[0] != '\0';
}

bool probe_view_silent_rank(const struct probe_view *view, char *ret_what, size_t size)
{
    uint32_t silent = 0, loud = 0;
    if (!find_silent(view, &silent, &loud))
        return false;
    snprintf(ret_what, size,
             "rank %" PRIu32 " counted %" PRIu64 " passes and began no file, where rank %" PRIu32 " began %" PRIu64,
             silent, view->rank[silent].steps, loud, view->rank[loud].indices);
    return true;
}

bool probe_view_no_hooks(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        snprintf(ret_what, size, "rank %" PRIu32 " counted %" PRIu64 " passes and began no file", i,
                 view->rank[i].steps);
        if (view->rank[i].indices > 0)
            return false;
    }
    return view->ranks > 0;
}

bool probe_view_no_hooks_graphs(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct server_facts *facts = view->evidence->facts;
    if (!probe_view_no_hooks(view, ret_what, size) || !facts->graphs_known || facts->graphs_off)
        return false;
    size_t used = strlen(ret_what);
    snprintf(ret_what + used, size - used, ": graphs are replayed (decode %s, prefill %s)", facts->decode_graphs,
             facts->prefill_graphs);
    return true;
}

bool probe_view_no_files(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        snprintf(ret_what, size, "rank %" PRIu32 " began %" PRIu64 " files, and none of them is in the folder", i,
                 view->rank[i].indices);
        if (view->rank[i].passes == 0 && view->rank[i].indices > 0)
            return true;
    }
    return view->ranks == 0;
}

bool probe_view_health_probes(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct list *foreign = &view->evidence->audit->foreign_request_ids;
    for (size_t i = 0; i < foreign->count; i++) {
        char shown[64];
        snprintf(ret_what, size, "health probes cause passes of their own (request id %s)",
                 text_clean(foreign->items[i], strlen(foreign->items[i]), shown, sizeof shown));
        if (request_id_kind(foreign->items[i]) == REQUEST_ID_HEALTH_PROBE)
            return true;
    }
    return false;
}

bool probe_view_foreign(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct audit *audit = view->evidence->audit;
    uint32_t foreign = 0;
    char shown[64] = "not listed";
    for (size_t i = 0; i < audit->pass_count; i++)
        foreign += audit->passes[i].foreign;
    if (audit->foreign_request_ids.count > 0)
        text_clean(audit->foreign_request_ids.items[0], strlen(audit->foreign_request_ids.items[0]), shown,
                   sizeof shown);
    snprintf(ret_what, size, "requests of somebody else ran during the probe (request id %s)", shown);
    return foreign > 0 || audit->foreign_request_ids.count > 0;
}

/* Mode core keeps the root's fields, request ids among them, and nothing of the modules. */
bool probe_view_core_mode(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        const struct audit_pass *first = view->rank[i].first;
        if (first == NULL) /* a filter that keeps nothing of this rank */
            continue;
        snprintf(ret_what, size,
                 "the first pass of rank %" PRIu32 " left %" PRIu64
                 " files with the inputs and nothing of any layer, as in mode 'core'",
                 i, first->files);
        if (first->has_request_ids && first->layers == 0 && first->layer_files == 0)
            return true;
    }
    return false;
}

/* A replayed prefill writes the root's inputs, padded to the graph's size, its output and the logits; no request ids.
 */
bool probe_view_prefill_graph(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        const struct probe_view_rank *rank = &view->rank[i];
        bool alone = rank->passes == 1 && rank->steps > 1;
        if (rank->first == NULL)
            continue;
        snprintf(ret_what, size,
                 "the prefill of rank %" PRIu32 " left %" PRIu64
                 " files without any layer and without request ids (%" PRIu64
                 " rows for %d tokens): it was replayed from a graph%s%s%s",
                 i, rank->first->files, rank->first->tokens, SERVER_PROBE_IDS,
                 alone ? "; the decode passes left no file, so they were too (" : "",
                 alone ? view->spelling->decode_graphs_off : "", alone ? " is missing as well)" : "");
        if (!rank->first->has_request_ids && rank->first->layers == 0 && rank->first->layer_files == 0)
            return true;
    }
    return false;
}

bool probe_view_cached(const struct probe_view *view, char *ret_what, size_t size)
{
    snprintf(ret_what, size, "%" PRIu64 " of the probe's %d tokens came from the cache, so the prefill was shortened",
             view->evidence->probe->cached_tokens, SERVER_PROBE_IDS);
    return view->evidence->probe->cached_tokens > 0;
}

bool probe_view_cut(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct server_answer *probe = view->evidence->probe;
    snprintf(ret_what, size,
             "the server took %" PRIu64 " prompt tokens and made %" PRIu64 " new ones; expected %d and %d",
             probe->prompt_tokens, probe->completion_tokens, SERVER_PROBE_IDS, SERVER_PROBE_NEW);
    return probe->prompt_tokens != SERVER_PROBE_IDS || probe->completion_tokens != SERVER_PROBE_NEW;
}

/* A filter has dropped the request ids, and that is all that the audit misses: with files that are empty or cut it
 * would have a second reason. */
bool probe_view_no_ids(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct audit *audit = view->evidence->audit;
    snprintf(ret_what, size,
             "no pass has request ids, so passes of others cannot be told from own ones; let the filter keep name == "
             "'rids'");
    for (size_t i = 0; i < audit->pass_count; i++)
        if (audit->passes[i].has_request_ids)
            return false;
    return view->filter[0] != '\0' && audit->reasons.count == 1;
}

/* Layers, but no readable inputs: their files are empty or cut. */
bool probe_view_broken_files(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct audit *audit = view->evidence->audit;
    if (probe_view_no_ids(view, ret_what, size))
        return false;
    for (size_t i = 0; i < audit->pass_count; i++) {
        const struct audit_pass *pass = &audit->passes[i];
        snprintf(ret_what, size, "step %" PRIu64 " of rank %" PRIu32 " has %s%s%s", pass->step, pass->rank,
                 pass->has_request_ids ? "no readable input_ids" : "no readable request ids",
                 audit->reasons.count > 0 ? ": " : "", audit->reasons.count > 0 ? audit->reasons.items[0] : "");
        if (pass->layers > 0 && (pass->tokens == 0 || !pass->has_request_ids) && !audit->complete)
            return true;
    }
    return false;
}

bool probe_view_chunked(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        const struct probe_view_rank *rank = &view->rank[i];
        snprintf(ret_what, size,
                 "rank %" PRIu32 " took %u prefill passes, the last of %" PRIu64 " rows; expected 1 of %d", i,
                 rank->extend, rank->extend_tokens, SERVER_PROBE_IDS);
        if (rank->extend > 1 || (rank->extend == 1 && rank->extend_tokens != SERVER_PROBE_IDS))
            return true;
    }
    return false;
}

bool probe_view_decode_graph(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        const struct probe_view_rank *rank = &view->rank[i];
        if (rank->first != NULL && rank->decode < DECODE_LEAST && rank->passes < rank->steps) {
            snprintf(ret_what, size,
                     "rank %" PRIu32 " counted %" PRIu64 " passes, but %u decode passes left files: the others were "
                     "replayed from a graph",
                     i, rank->steps, rank->decode);
            return true;
        }
        bool dropped = view->filter[0] != '\0' && rank->extend_layers == 0; /* in prefill too: by the filter */
        if (rank->decode > 0 && rank->decode_layers == 0 && !dropped) {
            snprintf(ret_what, size, "a decode pass of rank %" PRIu32 " left no file of any layer", i);
            return true;
        }
    }
    return false;
}

bool probe_view_pass_count(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        const struct probe_view_rank *rank = &view->rank[i];
        snprintf(ret_what, size,
                 "rank %" PRIu32 " counted %" PRIu64 " passes and left files of %" PRIu64 ": %u prefill, %u decode; "
                 "expected 1 prefill and %d or %d decode",
                 i, rank->steps, rank->passes, rank->extend, rank->decode, DECODE_LEAST, DECODE_MOST);
        if (rank->extend != 1 || rank->decode < DECODE_LEAST || rank->decode > DECODE_MOST ||
            rank->steps != rank->passes)
            return true;
    }
    return false;
}

/* The ranks of one stage run the same modules. */
bool probe_view_unequal_ranks(const struct probe_view *view, char *ret_what, size_t size)
{
    uint32_t tensor = view->evidence->facts->tensor_ranks != 0 ? view->evidence->facts->tensor_ranks : 1;
    for (uint32_t i = 0; i < view->ranks; i++) {
        uint32_t first = i - i % tensor;
        snprintf(ret_what, size,
                 "rank %" PRIu32 " took %" PRIu64 " passes and began %" PRIu64 " files, rank %" PRIu32
                 " of the same stage %" PRIu64 " and %" PRIu64 "; expected the same",
                 i, view->rank[i].steps, view->rank[i].indices, first, view->rank[first].steps,
                 view->rank[first].indices);
        if (view->rank[i].indices != view->rank[first].indices || view->rank[i].steps != view->rank[first].steps)
            return true;
    }
    return false;
}

bool probe_view_fewer_layers(const struct probe_view *view, char *ret_what, size_t size)
{
    for (uint32_t i = 0; i < view->ranks; i++) {
        const struct probe_view_rank *rank = &view->rank[i];
        snprintf(ret_what, size,
                 "rank %" PRIu32 " left files of %" PRIu32 " layers in prefill and of %" PRIu32
                 " in decode; expected the "
                 "same layers in both",
                 i, rank->extend_layers, rank->decode_layers);
        if (rank->extend_layers == 0 || rank->decode_layers != rank->extend_layers)
            return true;
    }
    return false;
}

bool probe_view_graphs_on(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct server_facts *facts = view->evidence->facts;
    const char *flag = "--enable-torch-compile";
    if (strcmp(facts->prefill_graphs, "disabled") != 0)
        flag = view->spelling->prefill_graphs_off;
    else if (strcmp(facts->decode_graphs, "disabled") != 0)
        flag = view->spelling->decode_graphs_off;
    snprintf(
        ret_what, size,
        "%s does not hold: the server says decode graphs %s, prefill graphs %s%s; this request met none, the next may",
        flag, facts->decode_graphs, facts->prefill_graphs,
        strcmp(flag, "--enable-torch-compile") == 0 ? ", and compiles the model (leave this flag out)" : "");
    return facts->graphs_known && !facts->graphs_off;
}

bool probe_view_incomplete(const struct probe_view *view, char *ret_what, size_t size)
{
    const struct audit *audit = view->evidence->audit;
    if (probe_view_no_ids(view, ret_what, size))
        return false;
    snprintf(ret_what, size, "the probe's files are not complete: %s",
             audit->reasons.count > 0 ? audit->reasons.items[0] : "no reason given");
    return !audit->complete;
}
