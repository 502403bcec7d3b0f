/* The requests behind `kl --explain`: the worst request of a measurement, scored under altered contexts. One thread. */
#pragma once

#include "analysis/kl_explain.h"
#include "ctl/kl_report.h"

/* Which request. */
struct kl_explain_take_wish {
    bool worst; /* the worst of all; else: */
    enum kl_path_id path;
    uint64_t request; /* its number in the path, from 0 */
};

/* "worst", or a path and a number, "restore:3". ERROR_BAD_VALUE. */
enum error_code kl_explain_take_read_wish(const char *text, struct kl_explain_take_wish *ret_wish, struct error *err);

/* Flushes and scores for each alteration, then concludes. A request that is clean, was dropped or is not there leaves
 * `nothing` with the reason. The report's paths are read, nothing of it is changed. Errors of the endpoint, prefixed
 * with the alteration. */
enum error_code kl_explain_take(struct endpoint *endpoint, const struct kl_report *report,
                                const struct kl_explain_take_wish *wish, struct kl_explanation *ret_explanation,
                                struct error *err);
