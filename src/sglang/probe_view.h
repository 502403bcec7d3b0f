/* The probe's evidence rank by rank, and the questions that the table in probe.c asks of it. Each `seen` function
 * answers whether its signature is there and says in words what was seen and what was expected. They are asked in the
 * order of that table: each may take for granted that those before it were not seen. Pure; any thread. */
#pragma once

#include "core/server.h"
#include "sglang/versions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct probe_view_rank {
    uint64_t steps, indices;     /* counted by the server between the two states */
    uint64_t passes, files;      /* found on the disk */
    unsigned int extend, decode; /* passes of each phase; the rest cannot be told */
    const struct audit_pass *first;
    uint32_t extend_layers; /* of the extend pass; least of the decode passes */
    uint32_t decode_layers;
    uint64_t extend_tokens;
};

struct probe_view {
    const struct server_probe_evidence *evidence;
    const struct versions_spelling *spelling; /* of the server's release */
    const char *filter;                       /* DUMPER_FILTER; "": none */
    uint32_t ranks;
    uint32_t layers; /* of one pass, over all pipeline stages */
    struct probe_view_rank rank[SERVER_RANKS_MAX];
};

void probe_view_make(const struct server_probe_evidence *evidence, struct probe_view *ret_view);

bool probe_view_unanswered(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_unreadable(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_wrong_setting(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_wrong_ranks(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_went_back(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_no_step(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_no_hooks_graphs(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_filtered_out(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_silent_rank(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_no_hooks(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_no_files(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_health_probes(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_foreign(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_core_mode(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_prefill_graph(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_cached(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_cut(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_no_ids(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_broken_files(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_chunked(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_decode_graph(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_pass_count(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_unequal_ranks(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_fewer_layers(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_graphs_on(const struct probe_view *view, char *ret_what, size_t size);
bool probe_view_incomplete(const struct probe_view *view, char *ret_what, size_t size);
