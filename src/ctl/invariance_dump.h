/* Names the operator behind a change that invariance_take has found, from dumps: the smallest example of an axis that
 * changed is dumped twice, and the two dumps are compared as `kldumpctl diff` does. One thread.
 *
 *   axis     EXP-AXIS-ref                        EXP-AXIS-new
 *   prefill  the request that changed, alone     in the first batch that changed it
 *   extend   all of its tokens                   its first tokens, as many as changed; or all of them twice, the second
 *                                                time as one row behind the prefix that the first has left in the cache
 *   decode   decoded alone up to what changed    in the first batch that changed it
 *
 * Happy path: invariance_dump_check before anything is measured, invariance_dump_axis for each axis that changed.
 * Each folder is begun after a flush, with request ids of its own, and sealed. Before the first byte of an axis there
 * must be room for both. */
#pragma once

#include "ctl/invariance_inputs.h"
#include "ctl/invariance_take.h"

enum { INVARIANCE_DUMP_NAME = 52 }; /* bytes that EXP may have */

struct invariance_dump_plan {
    const char *experiment; /* EXP */
    const struct invariance_take_plan *take;
    char *directory; /* of the run: filled by invariance_dump_check, freed by the caller */
};

/* Of one axis. */
struct invariance_dump {
    char *reference, *changed; /* the folders; NULL: nothing was dumped */
    char *why_not;             /* no module is named: why; NULL: one is */
    enum invariance_dump_again {
        INVARIANCE_DUMP_UNKNOWN, /* its logprob is not among those of the requests that were dumped */
        INVARIANCE_DUMP_SAME,    /* what had changed did not change again */
        INVARIANCE_DUMP_AGAIN
    } again;
    struct invariance_module module; /* .module NULL: none is named */
};
const char *invariance_dump_again_word(enum invariance_dump_again again); /* "unknown", "same", "changed" */

/* Whether anything can be dumped at all. ERROR_USAGE: not a run, or one of the kind plain. ERROR_EXISTS: a folder is
 * there already. ERROR_SPACE: there is no room for the shortest prompt twice. */
enum error_code invariance_dump_check(struct endpoint *endpoint, struct invariance_dump_plan *plan, struct error *err);

/* `axis` has changed. ERROR_NONE also where no module can be named: there is no room, a dump is incomplete, nothing
 * that was dumped differs; `why_not` says so. Others as endpoint_generate and dump_session_begin, prefixed. */
enum error_code invariance_dump_axis(struct endpoint *endpoint, const struct invariance_dump_plan *plan,
                                     enum invariance_axis_id id, const struct invariance_axis *axis,
                                     struct invariance_dump *ret_dump, struct error *err);
void invariance_dump_fini(struct invariance_dump *dump); /* also of a zeroed one */
