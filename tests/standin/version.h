/* version.h: which release of SGLang is played, and what differs between releases.
 *
 * The release comes from KLDUMP_STANDIN_VERSION, 0.5.23 when unset.
 */
#ifndef KLDUMP_STANDIN_VERSION_H
#define KLDUMP_STANDIN_VERSION_H

#include <stdbool.h>

struct version_rules {
    int from;                    /* first release with this row, as version_number() */
    bool has_hooks;              /* before 0.5.10 no module hooks and another prefix of the variables */
    bool dumper_prefix_has_rank; /* `[Dumper, rank=0, t=...] ` */
    bool body_must_be_object;    /* control bodies are checked (0.5.16 on) */
    bool has_grafter;            /* 27 configuration keys instead of 15 */
    bool has_parallel_rank;      /* and the 28th, include_parallel_rank_in_filename */
    bool has_ready;              /* GET /ready */
    bool ping_waits;             /* GET /ping is 503 until ready */
    bool extra_decode_pass;      /* the overlap scheduler runs one more pass than tokens */
    bool layer_output_is_pair;   /* model.layers.L.output.0/.1 and .inputs.3 */
    bool graceful_exit;          /* SIGTERM ends with status 0, else the server kills itself */
    bool separate_graph_phases;  /* cuda_graph_config with a backend for each phase in /server_info */
};

/* The text given by the environment. */
const char *version_text(void);

/* What the package's metadata say, KLDUMP_STANDIN_REPORTED: the same unless set; NULL when it is set and empty (the
 * package is not found). */
const char *version_reported(void);

/* 0.5.23 -> 523, 0.5.10.post1 -> 510. */
int version_number(void);

const struct version_rules *version_rules(void);

#endif
