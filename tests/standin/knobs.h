/* knobs.h: times that tests choose, from KLDUMP_STANDIN_*_MS, which shorten what takes minutes in the real server; the
 * seed of the weights, a probe, and a file that holds a pass. */
#ifndef KLDUMP_STANDIN_KNOBS_H
#define KLDUMP_STANDIN_KNOBS_H

struct knobs {
    long load_ms;  /* KLDUMP_STANDIN_LOAD_MS, 300: from the start to the open port */
    long start_ms; /* KLDUMP_STANDIN_START_MS, 50: from the open port to the warm-up request */
    long step_ms;  /* KLDUMP_STANDIN_STEP_MS, 0: time of each forward pass */
    long term_ms;  /* KLDUMP_STANDIN_TERM_MS, 200: from SIGTERM to the end of an idle server; 5 s and more in truth */
    long crash_ms; /* KLDUMP_STANDIN_CRASH_MS, 300: pause for crash diagnostics; 5 s in truth */
    long coredump_ms; /* KLDUMP_STANDIN_COREDUMP_MS, 600: wait for GPU dumps while a scheduler lives; 60 s in truth */
    long seed;        /* KLDUMP_STANDIN_SEED, 1: of the weights */
    long state_probe; /* KLDUMP_STANDIN_STATE_PROBE, 0: 1 prints what state_probe.h says */
    const char *hold; /* KLDUMP_STANDIN_HOLD, NULL: while this file is there no pass goes on; "PATH-EXPERIMENT": none
                         that is dumped as that, behind as many files as the file says */
};

/* Read once from the environment. */
const struct knobs *knobs_get(void);

/* Sleeps to the end even when signals arrive. */
void knobs_sleep_ms(long duration_ms);

/* Returns when nothing holds a pass of the experiment; NULL: of one that is not dumped. Makes the file "PATH.held". */
void knobs_hold(const char *experiment);

/* CLOCK_MONOTONIC. */
double knobs_seconds(void);

#endif
