/* The checks of `kldumpctl doctor`: what would go wrong in a run, before it does. None of them changes anything. One
 * thread. Each check is a function in a file doctor_SUBJECT.c and a line of the table in command_doctor.c. */
#pragma once

#include "base/list.h"
#include "conf/settings.h"
#include "core/server.h"
#include "sys/admin_set.h"

#include <stdbool.h>

enum doctor_result {
    DOCTOR_PASS,
    DOCTOR_WARN, /* a run starts, but something may spoil it */
    DOCTOR_FAIL, /* a run would be refused, or come to nothing */
    DOCTOR_SKIP, /* cannot be asked here (no CMD, or an earlier check failed): not shown */
};

struct doctor_finding {
    enum doctor_result result;
    char value[1024];  /* what was seen; one line */
    char advice[1024]; /* what to do; "" where nothing is to be done */
};

/* The admin's rules, which hold for the doctor's questions too. */
struct doctor_rules {
    struct admin_set set; /* empty where they are broken */
    struct error problem; /* code ERROR_NONE: they are not */
};

/* What the checks share. Filled by doctor_init, then by the checks in the order of the table. */
struct doctor {
    const struct doctor_rules *rules;
    struct settings settings;
    struct list environment;
    struct list given;  /* CMD; empty where none was given */
    char *directory;    /* of the dumps: absolute, links followed as far as it is there */
    char *nearest;      /* the folder itself, or the nearest above that is there */
    int nearest_fd;     /* -1: cannot be opened */
    int folder_problem; /* errno of the way to the folder; 0: it is there; ENOENT: it would be made */
    char *runtime;      /* path of the runtime folder, whether it is there or not */
    char *temporary;    /* TMPDIR that the server would get */
    bool is_command;    /* CMD was given and can be guarded */
    bool has_version;   /* the server's python has told a version */
    char version[64];
    struct server_command command;
    enum error_code prepared; /* of the launch settings */
    struct error prepare_problem;
    struct list added; /* arguments that the server would get besides its own */
    struct list notes;
};

/* Takes *settings over; `command`: what stands after "--", NULL-terminated, or NULL.
 * `rules` must outlive it. */
void doctor_init(struct doctor *doctor, struct settings *settings, char **command, const struct doctor_rules *rules);
void doctor_fini(struct doctor *doctor);

/* Fill a finding; say also clears the advice. */
void doctor_say(struct doctor_finding *finding, enum doctor_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_advise(struct doctor_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An error whose message ends in "; WHAT TO DO": the message is cut there. */
void doctor_say_error(struct doctor_finding *finding, enum doctor_result result, const struct error *err);

/* Each fills *ret_finding. */
typedef void doctor_check(struct doctor *doctor, struct doctor_finding *ret_finding);

/* doctor_server.c: CMD and what it runs. In this order. */
doctor_check doctor_server_command, doctor_server_python, doctor_server_version, doctor_server_settings,
    doctor_server_port;

/* doctor_space.c: the admin's rules, the dump folder and its filesystem. */
doctor_check doctor_space_rules, doctor_space_folder, doctor_space_filesystem, doctor_space_bytes, doctor_space_inodes;

/* doctor_machine.c: what the guard and the server need of the machine. */
doctor_check doctor_machine_programs, doctor_machine_name, doctor_machine_cgroup, doctor_machine_limits,
    doctor_machine_shared_memory, doctor_machine_temporary, doctor_machine_gpu, doctor_machine_daemon;

/* doctor_network.c */
doctor_check doctor_network_address, doctor_network_exposure;

/* doctor_left.c: what earlier runs have left. */
doctor_check doctor_left_runs, doctor_left_processes, doctor_left_cgroups, doctor_left_shared_memory,
    doctor_left_probes;
