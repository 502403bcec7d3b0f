/* The server under guard, seen from the core: the questions that are asked of it and what an answer means. Nothing here
 * knows the server's own words; src/sglang fills `struct server_operations` with what does. All structs are plain
 * values. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/list.h"
#include "core/audit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SERVER_RANKS_MAX = 128,
    SERVER_NAME_MAX = 65,  /* names of runs and experiments, with the NUL */
    SERVER_PROBE_IDS = 12, /* prompt tokens of the probe */
    SERVER_PROBE_NEW = 3,  /* tokens it generates */
};

enum server_question {
    SERVER_HEALTH,  /* is it up? never causes a forward pass (the launch settings see to that) */
    SERVER_STATE,   /* the dumper's settings and counters on every rank */
    SERVER_INFO,    /* what the server resolved its settings to */
    SERVER_LOAD,    /* how many requests are running or waiting */
    SERVER_ENABLE,  /* dump from the next pass on, under experiment `experiment` */
    SERVER_DISABLE, /* no dump from the next pass on */
    SERVER_PROBE,   /* one short request with request id `request_id` */
    SERVER_FLUSH,   /* empty the prefix cache; succeeds only on an idle server */
    SERVER_QUESTIONS
};

/* The counters of one rank. `dump_index`: files that were begun since the process started; `step`: passes that were
 * completed while enabled. Neither goes back when dumping is switched. */
struct server_rank {
    uint64_t dump_index;
    uint64_t step;
    bool enabled;
    char experiment[SERVER_NAME_MAX]; /* "" when none is set; a longer name is cut */
};

struct server_facts {
    char version[32];
    char decode_graphs[32]; /* resolved backend; "disabled" is what is wanted */
    char prefill_graphs[32];
    bool graphs_known;       /* false: this release does not tell */
    bool graphs_off;         /* both phases, and no compiler in the way */
    char unfit_setting[64];  /* this server cannot be dumped as it is: the setting to blame; "": it can */
    char unfit_problem[320]; /* and what was seen, expected, and what to change */
    uint32_t world_size;     /* entries that SERVER_STATE must have (ranks in one torch world); 0: unknown */
    uint64_t token_capacity; /* tokens of the KV pool; 0: unknown */
    uint32_t pipeline_stages, tensor_ranks;
    bool half;         /* of a disaggregated pair: a request that is to be served by it alone must say so */
    char limited[320]; /* what cannot be proven in this shape of server, in words; "" when all can */
};

struct server_answer {
    enum server_question question;
    bool ok;           /* it answered, with success and in the expected form */
    int http_status;   /* 0: no answer at all */
    char problem[256]; /* when not ok: what came instead, expected, and what to do; safe to show */
    char setting[64];  /* when not ok or a setting is wrong: the setting to blame; "" when none can be named */
    /* SERVER_STATE */
    uint32_t rank_count;
    struct server_rank rank[SERVER_RANKS_MAX];
    char filter[256];        /* which tensors are dumped, the same on every rank; "": all; cut when longer */
    char directory[1024];    /* where rank 0 dumps to; cut when longer */
    bool elsewhere;          /* a rank dumps to another folder than the run's, which nothing guards */
    char wrong_setting[200]; /* first of our settings that does not hold on some rank, with both values; "" when all
                                hold */
    /* SERVER_INFO */
    struct server_facts facts;
    /* SERVER_LOAD */
    bool load_known; /* false: this release has no such route; treated as idle, and said */
    uint64_t requests;
    bool prefilled_known; /* the release counts them: 0.5.20 on */
    uint64_t prefilled;   /* tokens that passes of prefills have computed since the start, without those of /health */
    /* SERVER_PROBE */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
};

/* One HTTP request, ready to be carried. Owned by the caller: server_request_fini. */
struct server_request {
    const char *method; /* "GET" or "POST", static */
    char path[128];     /* begins with '/' */
    struct buffer body; /* JSON, or empty */
};
void server_request_fini(struct server_request *request);

/* What is asked, in words that fit behind "it has not answered". */
const char *server_question_text(enum server_question question);

/* What a line of the server's log means for the run. */
enum server_line_kind {
    SERVER_LINE_NOTHING,
    SERVER_LINE_STAGE,        /* the start has reached `text` ("loading weights"), for people */
    SERVER_LINE_CAUSE,        /* a likely cause should the server end: `text` says it in words */
    SERVER_LINE_SYMPTOM,      /* how an end goes: a cause only where none is known; `text` as above */
    SERVER_LINE_SAVE_FAILED,  /* a tensor was not saved */
    SERVER_LINE_UNKNOWN_FLAG, /* the server does not know an argument: `text` has those that it names */
    SERVER_LINE_READY,        /* the server's own ready line: shown, never required */
};
struct server_line {
    enum server_line_kind kind;
    uint16_t port; /* on which the server says it listens; 0: the line does not say */
    bool https;    /* with `port` */
    char text[256];
};

/* The command as the user gave it, and what the guard will run. */
struct server_command {
    bool is_wrapper;   /* CMD is not recognised as the server itself: nothing may be appended */
    char *interpreter; /* the python that CMD uses, or with `is_script` the console script that names it; NULL for a
                          wrapper; owned */
    bool is_script;
    struct list choosers; /* words in front of the interpreter that decide which one it is (conda run -n x); owned */
    char *filter;         /* which tensors are dumped, as the server will be told at its start; NULL: all; owned */
    uint16_t port;        /* from the arguments, else the server's default */
    bool port_given;
    bool https;
    char *host;          /* from the arguments or NULL; owned */
    char *api_key;       /* the key that control calls need, or NULL; owned, never stored or printed */
    char *generate_key;  /* the key that SERVER_PROBE, SERVER_INFO, SERVER_LOAD need, or NULL; owned */
    struct list secrets; /* every value that may be shown nowhere, not even where the server prints it; owned */
};
void server_command_fini(struct server_command *command);

/* Of a SERVER_STATE answer that is ok: a folder other than `directory`, or a filter other than the one that the server
 * was started with, is a wrong setting, unless another one was found already. */
void server_check_settings(const struct server_command *command, const char *directory, struct server_answer *answer);

/* The guard's settings that decide how the server is launched. */
struct server_launch {
    const char *directory;        /* absolute; where experiments are written */
    const char *first_experiment; /* name set at boot, never written to while disabled */
    const char *temporary;        /* short absolute path for the server's sockets and temporary files */
    bool plain;                   /* never dumped: nothing is appended, refused or set for the dumper's sake */
};

/* Bytes and files that dumping costs on this model, measured by the probe; all 0 when not known. */
struct server_costs {
    uint64_t bytes_per_prefill_token; /* marginal: (extend bytes - fixed cost) / tokens, at least 1 */
    uint64_t bytes_per_extend_pass;   /* of the probe's extend pass, all ranks */
    uint64_t bytes_per_decode_pass;   /* mean over the probe's decode passes, all ranks, one request */
    uint64_t files_per_pass;          /* most of any pass, all ranks */
};

enum server_verdict { SERVER_PROVEN, SERVER_LIMITED, SERVER_FAILED };

struct server_judgement {
    enum server_verdict verdict;
    char setting[64]; /* SERVER_FAILED: the setting to blame ("DUMPER_NON_INTRUSIVE_MODE"), never "" */
    char text[512];   /* PROVEN: what was seen; LIMITED: what could not be proven; FAILED: what was seen, expected, and
                         what to change */
    struct server_costs costs;
};

/* What the guard knows when the probe is over. */
struct server_probe_evidence {
    const struct audit *audit; /* of the probe's experiment */
    const struct server_facts *facts;
    const struct server_answer *before, *after; /* SERVER_STATE before enable and after disable */
    const struct server_answer *probe;          /* SERVER_PROBE */
    const char *request_id;
};

/* The table through which loop and core use src/sglang. All functions are pure: no I/O, no clock, any thread. */
struct server_operations {
    /* Reads CMD (and the environment it will get, for keys). ERROR_SETTINGS for a CMD that cannot be guarded. */
    enum error_code (*read_command)(const struct list *command, const struct list *environment,
                                    struct server_command *ret_command, struct error *err);
    /* Program and arguments that print the server's version on one line within a second or two (no heavy import); none
     * at all for a wrapper, whose version cannot be asked. */
    void (*version_query)(const struct server_command *command, struct list *ret_argv);
    /* ERROR_VERSION with what is needed when `version` (the line printed; "" when it could not be asked) cannot be
     * guarded. Adds our settings to the environment and the arguments; a contradiction is ERROR_SETTINGS with both
     * values. `ret_notes` gets one line for each thing that was added or is worth knowing. */
    enum error_code (*prepare)(const struct server_command *command, const char *version,
                               const struct server_launch *launch, struct list *argv, struct list *environment,
                               struct list *ret_notes, struct error *err);
    /* Builds the request; `experiment` and `filter` (NULL: none) for SERVER_ENABLE, `request_id` for SERVER_PROBE,
     * `seed` picks the probe's token ids, `half` is that of struct server_facts. */
    void (*build)(enum server_question question, const char *experiment, const char *filter, const char *request_id,
                  uint64_t seed, bool half, struct server_request *ret_request);
    /* Reads an answer strictly; http_status 0 with `transport_problem` when there was none. Always fills ret_answer. */
    void (*read)(enum server_question question, int http_status, const char *body, size_t length,
                 const char *transport_problem, struct server_answer *ret_answer);
    /* The next older way to ask the same thing (a route that another release has), or false: used after a 404. */
    bool (*build_older)(enum server_question question, struct server_request *ret_request);
    void (*read_line)(const char *line, size_t length, struct server_line *ret_line);
    /* After an end with SERVER_LINE_UNKNOWN_FLAG (`unknown`: its text): when all flags that it names are ones that
     * prepare has added and another release spells them differently, replaces them in argv and environment, and says in
     * ret_note what is tried now. Each spelling is tried once: `tried` counts the launches so far. False: nothing else
     * can be tried. */
    bool (*respell)(const struct server_command *command, const char *unknown, unsigned tried, struct list *argv,
                    struct list *environment, char *ret_note, size_t size);
    /* Rank and dump_index of a dump file by its name alone; false for any other name. */
    bool (*read_dump_name)(const char *name, uint64_t *ret_rank, uint64_t *ret_dump_index);
    /* Words for how the server ended: `exit_code` or `signal` (-1 where not), given the last SERVER_LINE_CAUSE or "".
     */
    void (*explain_exit)(int exit_code, int signal, const char *cause, char *ret_text, size_t size);
    void (*judge_probe)(const struct server_probe_evidence *evidence, struct server_judgement *ret_judgement);
    /* True for the name of a file in /dev/shm as such servers make and, when killed, leave them. */
    bool (*is_shared_memory)(const char *name);
    /* The command with "***" for every key, for records, messages and answers. */
    void (*redact)(const struct list *command, struct list *ret_command);
};
