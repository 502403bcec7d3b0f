/* kldumpd's own parts, shared by daemon*.c only. All of it belongs to the loop thread. */
#pragma once

#include "base/list.h"
#include "loop/control.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <uv.h>

struct json;
struct admin;
struct registry;
struct registry_entry;
struct daemon_start;
struct daemon_relay;
struct daemon_list;

enum { DAEMON_PATIENCE_MS = 10000 }; /* for a guard that is asked something it knows */

struct daemon {
    uv_loop_t loop;
    bool serves_all; /* root's daemon: other users may come, as the rules allow */
    char *runtime;   /* the runtime folder */
    struct daemon_names *names;
    struct daemon_watch *watch;
    struct admin *admin;    /* the rules that hold now; replaced as a whole by daemon_rules.c; not NULL once begun */
    const char *rules_path; /* --rules; NULL: the usual one */
    struct daemon_rules *rules;
    struct registry *registry;
    struct daemon_backstop *backstop; /* NULL: nothing is watched yet */
    int lock_fd;
    struct control_server *control;
    int register_fd; /* the service manager's socket for the register, -1: none, or taken */
    uv_signal_t signals[4];
    uv_timer_t tell, watchdog; /* of daemon_service.c */
    bool signals_open, timers_open;
    char told[512];      /* the status line that the service manager has */
    char *rules_problem; /* why the last reload failed; NULL: it did not. Owned */
    bool ending;
    uint64_t cleared_ms; /* when daemon_start.c has removed empty cgroups; 0: not yet */
    struct daemon_start *starts;
    struct daemon_relay *relays;
    struct daemon_list *lists; /* in the order of their turns */
    uv_idle_t list_turn;
    struct daemon_known *known; /* daemon_runs.c */
    struct daemon_last *last;   /* daemon_last.c; NULL: nothing yet */
};

/* What was read last of a run's record. */
struct daemon_known_run {
    char name[65];
    struct json *run; /* NULL: nothing yet */
    struct stat status;
    uint64_t read_ms;
};

struct daemon_kept;
struct daemon_ended;
struct daemon_tidy;

/* What the daemon keeps in mind about records; begun and ended by daemon_runs.c. */
struct daemon_known {
    struct list damaged_told;       /* files of owned/ that could not be set aside, told already */
    struct daemon_known_run **runs; /* sorted by name */
    size_t run_count;
    char own_name[64];          /* of the user that we are, or his number */
    struct daemon_kept *kept;   /* daemon_keep.c */
    struct daemon_ended *ended; /* daemon_ended.c */
    struct daemon_tidy *tidy;   /* daemon_retain.c; NULL: nothing lay aside yet */
};

/* daemon_service.c: what the service manager is told. */
void daemon_tell(struct daemon *daemon); /* something changed that the status line may show */
/* Owed once for each daemon_rules_reload, now or later: the new rules hold (problem NULL), or the old ones go on. */
void daemon_reloaded(struct daemon *daemon, const char *problem);
void daemon_service_begin(struct daemon *daemon); /* we serve */
void daemon_service_end(struct daemon *daemon);
/* "3 runs live (1 dumping); least free 812.0 GiB on /data" */
void daemon_service_describe(const struct daemon *daemon, char *text, size_t size);

/* daemon_runs.c: what the runtime folder says. Reads a tmpfs, so it may block the loop. */
void daemon_runs_begin(struct daemon *daemon); /* first of all, when `runtime` is known */
void daemon_runs_end(struct daemon *daemon);   /* last of all; also without a begin */
/* The folder runs/ (-1: errno), and that of a run (O_PATH) with whose it is. ERROR_FORMAT with err->system EXDEV:
 * something is mounted over it. Descriptors are the caller's. */
int daemon_runs_open_all(const struct daemon *daemon);
enum error_code daemon_runs_open(const struct daemon *daemon, const char *name, int *ret_fd, uid_t *ret_uid,
                                 struct error *err);
bool daemon_runs_exists(const struct daemon *daemon, const char *name);
bool daemon_runs_is_live(const struct daemon *daemon, const char *name);   /* its guard lives */
bool daemon_runs_is_locked(const struct daemon *daemon, const char *name); /* and is neither beginning nor going */
/* Whose it is: our own record's word, else the kernel's for its folder. */
bool daemon_runs_owner(const struct daemon *daemon, const char *name, uid_t *ret_uid);
/* A live one of this name and user has its folder here; the register may know others, of the wrapper. */
bool daemon_runs_has(const struct daemon *daemon, const char *name, uid_t uid);
void daemon_runs_names(const struct daemon *daemon, bool live_only, struct list *ret_names); /* sorted */
/* The record of a run. When its guard is gone without having written the end, the run object says so: state "ended",
 * outcome "guard-lost". ERROR_NOT_FOUND: no record (yet); ERROR_FORMAT: damaged. The caller frees. */
enum error_code daemon_runs_record(const struct daemon *daemon, const char *name, struct json **ret_record,
                                   struct error *err);
/* Its run object alone, which is read again only when the file is another one; of a live one with its age. Both: of a
 * run that began, is over and has no record, our own one tells what there is. The run object of a
 * large record comes without seals and command, or as others see it. */
enum error_code daemon_runs_run(const struct daemon *daemon, const char *name, bool live, struct json **ret_run,
                                struct error *err);
/* Takes what may be long out of a run object: seals and command. */
void daemon_runs_shorten(struct json *run);
void daemon_runs_forget_others(const struct daemon *daemon, const struct list *names); /* sorted ones */
/* Appends output from *offset on, counted from the oldest byte that is kept, at most `most` bytes and no part of a
 * character at the end. *offset moves down to the end of what there is. True: that is all. */
struct buffer;
bool daemon_runs_log(const struct daemon *daemon, const char *name, uint64_t *offset, size_t most, struct buffer *text);

/* daemon_list.c: the method `list`. */
void daemon_list_begin(struct daemon *daemon); /* before the first request */
void daemon_list_request(struct control_request *request, void *user);
void daemon_list_end(struct daemon *daemon); /* answers who waits */

/* daemon_ended.c: how many runs ended how, in RUNTIME/ended.json together with those that were live at the last look:
 * replaced as a whole, so that each is counted once, whenever the daemon ends or is killed. Kept in mind alone where
 * it cannot be written, which is told once. */
void daemon_ended_begin(struct daemon *daemon);      /* reads it, and looks */
void daemon_ended_look(const struct daemon *daemon); /* counts those that were live and are no longer; daemon_retain */
struct json *daemon_ended_counts(const struct daemon *daemon); /* {OUTCOME: n}; the caller frees */
void daemon_ended_free(struct daemon_ended *ended);            /* also of NULL */

/* daemon_retain.c: removes what ended runs left, beyond the newest DAEMON_RETAIN_RUNS of each user, or the newest
 * DAEMON_RETAIN_BYTES of records and logs, so that nobody fills the tmpfs. */
enum { DAEMON_RETAIN_RUNS = 64, DAEMON_RETAIN_BYTES = 256 * 1024 * 1024 };
void daemon_retain(const struct daemon *daemon);
void daemon_retain_begin(struct daemon *daemon); /* the same, and goes on with what was not done */
void daemon_retain_end(struct daemon *daemon); /* the loop's next turns close; what is not done is the next daemon's */

/* daemon_start.c: the method `start`. */
void daemon_start_request(struct control_request *request, void *user);
void daemon_start_end(struct daemon *daemon);                                  /* answers who waits; the guards go on */
bool daemon_start_is_under_way(const struct daemon *daemon, const char *name); /* a start not answered yet */

/* daemon_find.c: which run a request means. Reads a tmpfs; follows nothing that a user has made. */
struct daemon_found {
    char name[65];
    uid_t uid;       /* whose it is, as the kernel says */
    bool registered; /* known from the register alone: a wrapper's with a runtime folder of its own */
    bool live;       /* its guard, when it was found */
};
/* `name` NULL: his only live run. ERROR_NO_RUN; ERROR_BAD_VALUE: no name; ERROR_USAGE: several, with their owners. */
enum error_code daemon_find_run(struct daemon *daemon, const struct control_request *request, const char *name,
                                struct daemon_found *ret_run, struct error *err);
bool daemon_find_is_live(const struct daemon *daemon, const struct daemon_found *run);
/* The guard's control socket (O_PATH, the caller's) and pid (0: not known). */
enum error_code daemon_find_socket(const struct daemon *daemon, const struct daemon_found *run, int *ret_fd,
                                   pid_t *ret_pid, struct error *err);
/* What the guard said last at the register; NULL: it has not called in. */
const struct registry_entry *daemon_find_entry(const struct daemon *daemon, const struct daemon_found *run);

/* daemon_relay.c: the methods of a guard. */
void daemon_relay_request(struct control_request *request, void *user);
void daemon_relay_gone(struct control_connection *connection, void *user);
void daemon_relay_end(struct daemon *daemon);

/* daemon_dead.c: the same for a run that has ended, from what it left behind. */
void daemon_dead_answer(struct daemon *daemon, const struct daemon_found *run, struct control_request *request);

/* daemon_last.c: how runs ended that were known from the register alone, for a minute. */
enum { DAEMON_LAST_RUNS = 64 };
void daemon_last_keep(struct daemon *daemon, const struct registry_entry *entry); /* its guard goes */
/* Whether the one at `index`, below DAEMON_LAST_RUNS, has this name, and whose it was. */
bool daemon_last_at(const struct daemon *daemon, size_t index, const char *name, uid_t *ret_uid);
/* The run object, state "ended"; NULL: none. Valid until the loop's next turn. */
const struct json *daemon_last_find(const struct daemon *daemon, const char *name, uid_t uid);
void daemon_last_free(struct daemon *daemon);

/* daemon_owned.c: the daemon's own record of each run that it started, RUNTIME/owned/NAME.json: root's, mode 0600,
 * replaced atomically, and what counts: whose run it is, what to kill. Reads a tmpfs. */
struct launch_result;
struct daemon_owned {
    char name[65];
    uid_t uid;
    char owner[64];                 /* name of that user; "": none, or not known when it was started */
    struct launch_result *launched; /* owned; pidfd -1 */
    bool this_boot;                 /* read: written since this machine was booted */
    bool live;                      /* read: this boot, and the guard's pid with this start time lives */
    uint64_t started_unix_ms;
    char end[64];      /* what the daemon itself did to it: "" or "backstop" */
    bool began;        /* in mind alone: its guard has called in, so it was not refused */
    struct json *said; /* the end that its guard told at the register (run_json_end_of); NULL: none yet. Owned */
};
enum error_code daemon_owned_write(const struct daemon *daemon, const struct daemon_owned *owned, struct error *err);
/* ERROR_NOT_FOUND; ERROR_FORMAT: damaged: it was renamed to NAME.json.damaged, and one line on standard error said so.
 */
enum error_code daemon_owned_read(const struct daemon *daemon, const char *name, struct daemon_owned *ret_owned,
                                  struct error *err);
void daemon_owned_remove(const struct daemon *daemon, const char *name);
/* The run object of a run that left no record of its own: name, owner, times, and how it ended. The caller frees. */
struct json *daemon_owned_run(const struct daemon_owned *owned);
/* Makes `run` say how the run of our own record ended, as far as we know it: what its guard told, else what we did to
 * it, else that the guard was lost. `owned` NULL: the last. */
void daemon_owned_end(const struct daemon_owned *owned, struct json *run);
void daemon_owned_fini(struct daemon_owned *owned);

/* daemon_keep.c: the runs that we started are kept in mind and on the tmpfs, and their guards watched by pidfd, also
 * those that are found again after a restart. A guard that ends takes all of its run along: what its keeper has left,
 * launch_kill ends. */
void daemon_keep_begin(struct daemon *daemon); /* all of owned/ is found again */
void daemon_keep_end(struct daemon *daemon);   /* watches nobody from now on; the loop's next turns close */
void daemon_keep_free(struct daemon_kept *kept);
/* Of a guard that was launched for `uid`, in the place of an older run of that name. launched->pidfd stays the
 * caller's. A record that cannot be written (full, read-only) is told; the run goes on, kept in mind alone until it
 * can. */
void daemon_keep_started(struct daemon *daemon, const char *name, uid_t uid, const struct launch_result *launched);
const struct daemon_owned *daemon_keep_find(const struct daemon *daemon, const char *name); /* NULL: not ours */
bool daemon_keep_is_live(const struct daemon *daemon, const char *name);
/* A run that this user has started is over, its lock free, and its guard not gone yet: that takes moments. */
bool daemon_keep_is_going(const struct daemon *daemon, uid_t uid);
size_t daemon_keep_count(const struct daemon *daemon, uid_t uid); /* live ones that this user has started */
/* Before the daemon ends a run by itself: `end` (DAEMON_END_...) is what its record says then. */
#define DAEMON_END_BACKSTOP "backstop"
void daemon_keep_note_end(const struct daemon *daemon, const char *name, const char *end);
/* A guard has spoken at the register: its run has begun. One that was launched here and of which we have no record,
 * since systemd or the disk was late, or a daemon killed in between, is taken over (launch_find). Where it tells the
 * end of it, our own record keeps that, as the guard's own cannot always be written. */
void daemon_keep_said(struct daemon *daemon, const struct registry_entry *entry);
void daemon_keep_write_again(const struct daemon *daemon); /* what could not be written */
/* Of the start whose guard, with this pid, was refused and is gone: what is known of it is as before the start. Takes
 * over `*previous`, what was known then; NULL: nothing. */
void daemon_keep_refused(struct daemon *daemon, const char *name, pid_t pid, struct daemon_owned *previous);
void daemon_keep_forget(const struct daemon *daemon, const char *name); /* an ended one, and its record */

/* daemon_access.c: the one place that says who may do what, by the access column of core/methods.def and the admin's
 * rules as they are now. `owner` is whose the run is, as the kernel or our own record say, never as a guard says. */
/* For control_options.admit. */
enum error_code daemon_access_admit(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count, void *user,
                                    struct error *err);
/* Every method comes in here. */
void daemon_access_request(struct control_request *request, void *user);
/* The same for the method of `request` on this run. ERROR_FORBIDDEN names the rule. */
enum error_code daemon_access_check(struct daemon *daemon, const struct control_request *request, const char *run,
                                    uid_t owner, struct error *err);
/* He sees all of this user's runs: the owner, root, the admin groups. Everybody else gets daemon_access_redact's. */
bool daemon_access_sees_all(const struct daemon *daemon, const struct control_request *request, uid_t owner);
/* A run object as other users may see it: name, owner, uid, state, outcome, exit_status, guarantee, started_at,
 * told_age_ms, the figures of space without its path. The caller frees. */
struct json *daemon_access_redact(const struct json *run);
/* For people and for a guard's record: "bob (uid 1001)"; "uid 1001" without a name, or while it is not known yet. */
void daemon_access_user(struct daemon *daemon, uid_t uid, char *text, size_t size);
/* Makes a run object say whose it is as the kernel and our own record do, whatever its guard or its user's record told:
 * name, uid, and owner, which is the number for a user without a name, or until it is known. */
void daemon_access_stamp(struct daemon *daemon, const char *name, uid_t uid, struct json *run);
/* The same of who asks. False: his name is not known yet. */
bool daemon_access_by(struct daemon *daemon, const struct control_request *request, char *text, size_t size);

/* daemon_watch.c: makes the control socket again when its file was removed. */
struct daemon_watch;
void daemon_watch_begin(struct daemon *daemon); /* the socket is there */
void daemon_watch_look(struct daemon *daemon);
void daemon_watch_end(struct daemon *daemon);

/* daemon_names.c: names of users, looked up on libuv's pool (a directory server may take long), kept for an hour. */
struct daemon_names;
/* "": there is no such user. NULL: not known yet; the look-up has begun then. Valid until the loop's next turn. */
const char *daemon_names_find(struct daemon *daemon, uid_t uid);
/* Forgets them all; the next daemon_names_find asks again. Nothing comes later but the end of a look-up. */
void daemon_names_end(struct daemon *daemon);

/* daemon_rules.c: loads the rules at the start, and again by HUP in a worker thread: all or nothing, the difference on
 * standard error, one line each. daemon_reloaded follows each reload. */
struct daemon_rules;
enum error_code daemon_rules_load(struct daemon *daemon, struct error *err);
void daemon_rules_reload(struct daemon *daemon);
/* ERROR_FORBIDDEN: this user has `live` runs (those being started counted), and the rules allow no more. */
enum error_code daemon_rules_allow_start(const struct daemon *daemon, uid_t uid, size_t live, struct error *err);
void daemon_rules_end(struct daemon *daemon);  /* the loop's next turns close */
void daemon_rules_free(struct daemon *daemon); /* last of all: `admin` */

/* daemon_backstop.c: one watcher thread for each filesystem that a registered run dumps to; see there. */
struct daemon_backstop;
void daemon_backstop_rules(struct daemon *daemon); /* the admin's rules have been replaced */
void daemon_backstop_changed(struct daemon *daemon, struct registry_entry *entry);
bool daemon_backstop_has_ended(const struct registry_entry *entry); /* this run, before daemon_backstop_gone */
void daemon_backstop_gone(struct daemon *daemon, struct registry_entry *entry);
void daemon_backstop_end(struct daemon *daemon);
bool daemon_backstop_progresses(struct daemon *daemon); /* for the watchdog */
