/* The guard's own parts, shared by guard*.c only. All of it belongs to the loop thread. */
#pragma once

#include "base/buffer.h"
#include "base/list.h"
#include "base/mask.h"
#include "conf/settings.h"
#include "core/run.h"
#include "loop/child.h"
#include "loop/control.h"
#include "loop/guard.h"
#include "loop/output.h"
#include "loop/survey.h"
#include "loop/transfers.h"
#include "loop/watcher.h"
#include "sys/admin_set.h"
#include "sys/keeper.h"
#include "sys/process.h"
#include "sys/sink.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct json;

enum { GUARD_EVENTS_MAX = 1000, GUARD_HISTORY_MAX = 360, GUARD_SEALS_MAX = 128, GUARD_SEAL_REASONS = 3 };
enum { GUARD_SIGNALS = 7, GUARD_LAST_LINES = 12 };

struct guard_event {
    uint64_t number; /* from 1 */
    int64_t wall_ms;
    uint64_t uptime_ms;
    enum run_level level;
    enum run_note note;
    char *text;
};

struct guard_seal {
    char experiment[SERVER_NAME_MAX];
    bool complete;
    enum run_sealed_by by;
    struct list reasons;
    uint64_t ranks, steps, files, bytes;
};

/* As it came, not ended by NUL. */
struct guard_line {
    size_t length;
    char text[512];
};

struct guard_space_point {
    uint64_t uptime_ms, free_bytes;
};

enum { GUARD_PIDS_MAX = 512 };

/* guard_after.c: what a run may still hold when nothing of it lives. */
struct guard_after {
    pid_t pids[GUARD_PIDS_MAX]; /* that were of the run at any time */
    size_t pid_count;
    struct list memory_before; /* names in /dev/shm before the launch */
    bool begun, done;
    uint64_t begun_ms;
    uv_timer_t *timer;      /* NULL: not needed yet */
    struct child *query;    /* nvidia-smi, while it runs */
    unsigned gpu_processes; /* of ours that the driver still listed, at the last query */
    uint64_t gpu_mib;       /* what they held */
    bool gpu_waited;        /* they were there at an earlier one */
};

/* What is known before the server runs: guard_setup.c. */
struct guard_plan {
    struct settings settings;
    bool has_settings;
    struct admin_set rules;  /* the admin's; borrowed by what follows from them */
    struct list raised;      /* what a rule of the admin has raised, for people */
    bool from_daemon;        /* --plan: no terminal, answers on standard output */
    struct list given;       /* CMD as given */
    struct list argv;        /* what runs */
    struct list environment; /* what it gets */
    struct list notes;       /* what was added and why */
    struct server_command command;
    char version[64]; /* of the server as its interpreter tells; "" unknown */
    char cookie[33];
    bool no_cgroup; /* KLDUMP_NO_CGROUP: for tests of the keeper alone */
    char *name;     /* as kldumpd picked it; NULL: not started by it */
    char *working_directory;
    char *directory; /* of the dumps; absolute */
    int directory_fd;
    int lock_fd;
    char *run_folder; /* RUNTIME/runs/NAME */
    char *control_path, *record_path, *log_path, *temporary, *copy_path;
    char *check_program; /* kldumpctl beside us */
    /* the filesystem of `directory` at the start, and its levels: guard_space_check.c */
    char filesystem[24]; /* "ext4" */
    dev_t directory_device;
    ino_t directory_inode;
    int pending_fd; /* /proc/meminfo, where the filesystem's figures lag behind memory; -1 */
    uint64_t total_bytes, free_at_start_bytes, floor_bytes, soft_bytes, warn_bytes;
    bool inodes_counted;
    uint64_t total_inodes, free_inodes, floor_inodes; /* 0 where they are not counted */
    char owner[64];                                   /* name of the user, or his number */
};

/* guard_register.c: kldumpd's register. */
struct guard_register {
    char *paths[2];            /* of the sockets that are tried, in this order; NULL: none */
    int folder_fd, control_fd; /* what is handed over, O_PATH; -1: nothing can be */
    int fd;                    /* the connection; -1: none */
    uv_poll_t *poll;           /* of it; frees itself when closed */
    bool begun, due;           /* `due`: what was said last is no longer so */
    bool brief;                /* the daemon wants less to be said */
    uint64_t next_ms;          /* when the next attempt, or the next word, is due */
};

struct guard {
    struct guard_plan plan;
    const struct server_operations *server;
    uv_loop_t loop;
    struct run run;
    bool set_up, finished;
    bool interrupted;    /* by a signal while it was being set up */
    uint64_t started_ms; /* loop clock */
    int64_t started_wall_ms;

    uv_timer_t tick, heartbeat, waiting, limit;
    bool stuck;             /* at the end the loop could not be emptied */
    uv_poll_t *keeper_poll; /* frees itself when closed; NULL: none */
    uv_signal_t signals[GUARD_SIGNALS];
    bool handles_open;
    unsigned depth; /* of guard_feed */
    struct keeper keeper;
    bool has_keeper;
    char guarantee[320]; /* of the cgroup or the keeper; stays when both are gone */
    bool keeper_gone;
    pid_t main_pid;  /* of the server; 0: not yet, or not any more */
    int exit_status; /* as from waitpid, while exit_pending */
    bool exit_pending, gone_pending;
    unsigned launches;      /* of the server so far */
    bool launch_due;        /* once more, when the machine has finished its step */
    char unknown_flag[256]; /* what the server said that it does not know; "" nothing */
    uint64_t suspend_ns;    /* since when the run is being frozen, or frozen; 0: it is not */
    bool suspend_unheard;   /* the order could not be given */
    uint64_t gone_ns;       /* when the keeper first said that nothing lives any more; 0: not yet */

    struct transfers *transfers;
    struct output *output;
    struct mask masks[OUTPUT_STREAMS]; /* over the server's output */
    struct sink *sink;                 /* log, terminal, record */
    struct sink *dump_sink;            /* seals and the record's copy: the dump's filesystem may be slow or dead */
    int log_target, out_target, err_target;
    struct watcher *watcher;
    struct control_server *control;
    struct child *child; /* an audit under way */
    struct guard_after after;
    struct guard_register registration;

    /* where the server answers */
    char url[96];             /* "http://127.0.0.1:30000", "" until known */
    uint64_t question_number; /* of the question under way */
    enum server_question question;
    char question_route[128]; /* "GET /health", for people */
    bool question_older;      /* the older way is being tried */
    bool question_broken;     /* it could not be sent: to be told */
    uint64_t probe_seed;
    bool listener_due; /* the answer to RUN_DO_FIND_LISTENER, to be told */
    enum run_listener listener;
    unsigned foreign_looks; /* how often the port was found in other hands */
    char listener_text[160];

    /* the audit under way or done last */
    uint64_t check_number;
    bool check_probe, check_broken;
    char check_experiment[SERVER_NAME_MAX];
    struct audit_expected expected;
    struct json *check_json; /* of the last audit; NULL: it failed */
    struct audit audit;

    struct control_connection *holder; /* who holds the dump */
    struct control_request *dump_request, *pause_requests[RUN_PAUSERS_MAX];
    uint64_t request_number;
    unsigned seal_replies; /* that wait for the seal's file */
    uint64_t dump_number, pause_numbers[RUN_PAUSERS_MAX];
    struct list own_request_ids;
    struct guard_waiter *waiters;

    struct guard_event *events; /* the newest GUARD_EVENTS_MAX */
    size_t event_count, event_room;
    uint64_t event_number;
    struct guard_seal seals[GUARD_SEALS_MAX];
    size_t seal_count;
    struct guard_space_point history[GUARD_HISTORY_MAX];
    size_t history_count;
    uint64_t history_every_ms, history_next_ms;
    bool record_due, trim_due;
    uint64_t record_ms; /* when it was handed over last */
    bool floor_told, dropped_told;
    enum space_level space_told; /* the machine knows of it */
    struct survey *survey;
    uint64_t survey_until_ms;                       /* the sealed dump is looked at until then; 0: it is not */
    uint64_t share_free_bytes, share_written_bytes; /* when the dump that is open was opened */
    char surveyed[SERVER_NAME_MAX];                 /* the dump that the survey looks at; "" none */
    char space_lost[256];                           /* DIR is not the folder any more that is watched; "" */
    bool space_read_only;                           /* an own write said so; figures need not */
    bool space_mount_read_only;                     /* the last figures said so */
    uint64_t own_failures, own_copy_ms;             /* of `dump_sink`: seen so far; last copy of the record */
    char problem_told[2][256];                      /* the latest failure of `sink` and `dump_sink` that was told */

    struct guard_line last_lines[GUARD_LAST_LINES]; /* of the server, a ring, for a start that fails */
    uint64_t line_count;                            /* so many have come */
};

/* guard.c */
void guard_feed(struct guard *guard, const struct run_event *event);
void guard_init_timers(struct guard *guard); /* and signals: from now on the loop has them */
uint64_t guard_uptime_ms(const struct guard *guard);
void guard_started(struct guard *guard, const struct keeper_message *message);

/* guard_setup.c: fills guard->plan. On failure the plan may be part filled: guard_plan_fini. */
enum error_code guard_setup(struct guard *guard, char **arguments, struct error *err);
void guard_plan_fini(struct guard_plan *plan);

/* guard_signals.c: what each signal does. */
void guard_signals_init(void);                 /* at the very start: none blocked, some ignored */
void guard_signals_watch(struct guard *guard); /* from now on the loop has the others */
void guard_signals_close(struct guard *guard);
/* Stops this process as the terminal would, until somebody continues it. */
void guard_signals_stop_here(struct guard *guard);

/* guard_suspend.c: Ctrl-Z. */
void guard_suspend(struct guard *guard);                     /* RUN_DO_SUSPEND */
void guard_suspend_frozen(struct guard *guard, int running); /* the keeper's answer */
void guard_suspend_look(struct guard *guard);                /* now and then: it does not answer */
void guard_suspend_over(struct guard *guard);                /* another order lets the run go on */

/* guard_effects.c: carries out one effect of the machine. */
void guard_effects_do(struct guard *guard, const struct run_effect *effect);

/* guard_busy.c: the heartbeat goes on while the loop works on something large. */
struct guard_busy {
    struct keeper *keeper;
    pthread_mutex_t lock;
    pthread_cond_t end;
    pthread_t thread;
    bool started, done;
};
void guard_busy_begin(struct guard *guard, struct guard_busy *busy);
void guard_busy_end(struct guard_busy *busy);

/* guard_check.c: the audit child; the seal. */
void guard_check_start(struct guard *guard, uint64_t number, const char *experiment, bool probe);
void guard_check_seal(struct guard *guard);
void guard_check_turn(struct guard *guard); /* tells what could not be told within a step of the machine */
void guard_check_discard(struct guard *guard, const char *experiment);
void guard_check_fini(struct guard *guard);

/* guard_control.c: the control socket. */
enum error_code guard_control_start(struct guard *guard, struct error *err);
void guard_control_reply(struct guard *guard, const struct run_effect *effect); /* RUN_DO_REPLY */
void guard_control_changed(struct guard *guard); /* the state or the events have changed: who waits may be answered */
void guard_control_look(struct guard *guard);    /* makes a socket that was removed again */
void guard_control_end(struct guard *guard);     /* answers everybody who still waits */

/* guard_register.c: the guard calls in at kldumpd, if there is one; never waits, never fails. */
void guard_register_begin(struct guard *guard);   /* once the control socket is there */
void guard_register_again(struct guard *guard);   /* the control socket is another one now */
void guard_register_changed(struct guard *guard); /* the state has changed */
void guard_register_turn(struct guard *guard);    /* twice a second */
void guard_register_end(struct guard *guard);     /* the last word; nothing comes after it */

/* guard_report.c: what is told. */
void guard_report_note(struct guard *guard, enum run_level level, enum run_note note, const char *text);
struct json *guard_report_run(struct guard *guard);                    /* the run object */
struct json *guard_report_events(struct guard *guard, uint64_t after); /* array, numbers above `after` */
void guard_report_record(struct guard *guard);                         /* hands the record to the sink */
void guard_report_copy(struct guard *guard);                           /* and beside the dump */
bool guard_report_problems(struct guard *guard);                       /* what could not be written; false: no news */
void guard_report_dropped(struct guard *guard);                        /* how much was left out */
void guard_report_fini(struct guard *guard);

/* guard_space_check.c: the filesystem before the launch. ERROR_SPACE, ERROR_SETTINGS. */
enum error_code guard_space_check(struct guard_plan *plan, struct error *err);
void guard_space_describe(const struct guard_plan *plan, char *ret_text, size_t size); /* levels, for people */
void guard_space_limits(const struct guard_plan *plan, uint64_t kill_ns, struct space_limits *ret_limits);
/* Once the kill has been rehearsed: the soft level stays above the kill level. In plan and `limits`. */
void guard_space_raise_soft(struct guard *guard, struct space_limits *limits);
enum error_code guard_space_refuse_small(const struct guard_plan *plan, const struct space_limits *limits,
                                         struct error *err);

/* guard_space.c: the watcher. */
enum error_code guard_space_start(struct guard *guard, uint64_t kill_ns, struct error *err);
void guard_space_settle(
    struct guard *guard);                    /* before an end is told: a kill at the floor that caused it comes first */
void guard_space_level(struct guard *guard); /* tells the machine a level that it does not know yet */
void guard_space_turn(struct guard *guard);  /* twice a second: history, and a level that no look could tell */
void guard_space_stop(struct guard *guard);
void guard_space_get(struct guard *guard, struct watcher_snapshot *ret_snapshot); /* zero before the start */

/* guard_survey.c: what the run writes, and what becomes of our own writes beside it. */
enum error_code guard_survey_start(struct guard *guard, struct error *err);
void guard_survey_follow(struct guard *guard); /* a dump has been opened or sealed */
void guard_survey_turn(struct guard *guard);   /* twice a second */
/* What went of the disk and how much of it this run wrote, for people; waits so long for a fresh count. */
void guard_survey_share(struct guard *guard, uint64_t free_bytes, char *ret_text, size_t size);
bool guard_survey_counts(struct guard *guard,
                         uint64_t limit_ms); /* waits; a count that was asked for is still awaited */
void guard_survey_close(struct guard *guard);

/* guard_server.c: questions over HTTP, the listener, the server's output. */
void guard_server_ask(struct guard *guard, const struct run_effect *effect);
void guard_server_find_listener(struct guard *guard);
void guard_server_turn(struct guard *guard);         /* as guard_check_turn */
void guard_server_flush_output(struct guard *guard); /* what is held back since it may be half a key */
void guard_server_end_output(struct guard *guard);   /* nothing comes any more */
enum error_code guard_server_read_output(struct guard *guard, int out_fd, int err_fd, struct error *err);

/* guard_after.c: GONE is told to the machine once GPU memory and port are free, or after a limit. */
void guard_after_launched(struct guard *guard); /* before each launch */
void guard_after_remember(struct guard *guard, const struct process_list *members);
void guard_after_begin(struct guard *guard);
void guard_after_fini(struct guard *guard); /* closes; later calls do nothing */

/* guard_launch.c: the keeper and what it reports. */
enum error_code guard_launch(struct guard *guard, struct error *err);
void guard_launch_again(struct guard *guard); /* RUN_DO_LAUNCH */
void guard_launch_turn(struct guard *guard);  /* as guard_check_turn */
void guard_launch_signal(struct guard *guard, enum keeper_kind kind);
void guard_launch_unwatch(struct guard *guard); /* the keeper is not listened to any more */
