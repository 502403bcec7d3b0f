#include "loop/clock.h"

#include <stdio.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ms(void)
{
    return clock_now_ns() / 1000000u;
}

struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

int64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + (int64_t)now.tv_nsec / 1000000;
}

const char *clock_text(int64_t wall_ms, char *buffer)
{
    static const int64_t lowest_ms = -62167219200000, highest_ms = 253402300799999; /* years 0000 and 9999 */
    int64_t ms = wall_ms < lowest_ms ? lowest_ms : wall_ms > highest_ms ? highest_ms : wall_ms;
    int64_t rest = ms % 1000;
    if (rest < 0)
        rest += 1000;
    time_t seconds = (time_t)((ms - rest) / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    snprintf(buffer, CLOCK_TEXT, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)(tm.tm_year + 1900) % 10000u,
             (unsigned)(tm.tm_mon + 1) % 100u, (unsigned)tm.tm_mday % 100u, (unsigned)tm.tm_hour % 100u,
             (unsigned)tm.tm_min % 100u, (unsigned)tm.tm_sec % 100u, (unsigned)rest % 1000u);
    return buffer;
}
