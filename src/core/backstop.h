/* Which run ends when a filesystem is below a floor although its guards are there: the daemon's second net. Pure; one
 * owner, the thread that watches the filesystem. Guards act above the floor, by themselves; here nothing is decided
 * before free space has been below it for two looks.
 *
 * Below the admin's floor: the run that wrote most in the last seconds, as the kernel counts, and still writes, is
 * ended; then the next look decides anew once it is gone. Runs that write nothing live: their end would free nothing.
 * Where free space goes on shrinking and nobody is seen writing (a mapping, a foreign program), the largest goes all
 * the same.
 * Below the floor that a run itself has asked for: that run alone, soon while it writes, else once its guard has had
 * BACKSTOP_PATIENCE_NS. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BACKSTOP_RUNS_MAX = 256, BACKSTOP_SAMPLES = 10 };
#define BACKSTOP_CONFIRM_NS          50000000ull   /* below the floor for so long */
#define BACKSTOP_CLEAR_NS            1000000000ull /* so long a history tells who writes most */
#define BACKSTOP_WINDOW_NS           2000000000ull /* "recent" */
#define BACKSTOP_PATIENCE_NS         2000000000ull /* for the end of a run, and for a guard whose run is still */
#define BACKSTOP_WRITING_BYTES_PER_S (1u << 20)    /* less is log lines */

/* One run, as it is at this look. */
struct backstop_run {
    uint64_t id;            /* never 0, never used twice */
    uint64_t floor_bytes;   /* its own; 0: not known */
    uint64_t written_bytes; /* all that its processes wrote; may fall when one of them goes */
    bool counted;           /* written_bytes was looked at */
};

struct backstop_reading {
    uint64_t at_ns; /* monotonic, not 0 */
    bool measurable;
    uint64_t free_bytes;
    uint64_t floor_bytes;            /* the admin's; 0: none */
    uint64_t worst_rate_bytes_per_s; /* for the interval */
};

struct backstop_decision {
    uint64_t id;                      /* of the run to be ended; 0: none */
    bool own;                         /* the floor is the run's own */
    uint64_t floor_bytes;             /* the one that was crossed */
    uint64_t recent_bytes, recent_ms; /* what it wrote in the last so many */
    uint64_t interval_ns;             /* until the next look */
    bool count_next;                  /* written_bytes is wanted at the next look */
};

struct backstop_slot {
    uint64_t id;
    uint64_t last_bytes, total_bytes; /* as it was told last; all growth that was seen */
    uint64_t grown_bytes, grown_ns;   /* between the last two looks that counted */
    uint64_t counted_ns;              /* the last of them; 0: none */
    struct {
        uint64_t at_ns, bytes;
    } sample[BACKSTOP_SAMPLES]; /* of total_bytes, a quarter of a second apart */
    unsigned next, count;
    uint64_t below_since_ns; /* its own floor; 0: it is not */
    uint64_t ended_ns;       /* its end was ordered; 0: it was not */
};

struct backstop {
    struct backstop_slot slot[BACKSTOP_RUNS_MAX];
    size_t count;
    uint64_t below_since_ns; /* the admin's floor; 0: it is not */
    uint64_t base_bytes;     /* free space when it fell below, or at the last order */
};

void backstop_init(struct backstop *backstop);

/* Takes a look and the runs of it (those beyond BACKSTOP_RUNS_MAX are not seen; one that is missing is gone). */
void backstop_look(struct backstop *backstop, const struct backstop_reading *reading, const struct backstop_run *runs,
                   size_t run_count, struct backstop_decision *ret_decision);
