/* The two clocks of a guard. Any thread.
 *
 * Durations and deadlines are measured on CLOCK_MONOTONIC, not CLOCK_BOOTTIME: it is the clock of libuv's timers and of
 * the watcher's sleep, so their times compare; and it stands still while the machine sleeps, as the server does. On
 * CLOCK_BOOTTIME every "no answer since" limit would expire at the moment of waking. */
#pragma once

#include <stdint.h>
#include <time.h>

uint64_t clock_now_ns(void);
uint64_t clock_now_ms(void);

/* For calls that take one: a time of clock_now_ns, or a length. */
struct timespec clock_timespec(uint64_t ns);

/* Wall-clock time in milliseconds since 1970, for records only: it may jump. */
int64_t clock_wall_ms(void);

/* "2026-11-29T21:40:41.123Z". The buffer is of CLOCK_TEXT bytes; returned for use in printf. A time that does not fit
 * four digits of year is shown as year 0000 or 9999. */
enum { CLOCK_TEXT = 32 };
const char *clock_text(int64_t wall_ms, char *buffer);
