/* helpers.h: the writers and the stray processes that faults put beside the passes of a scheduler. */
#ifndef KLDUMP_STANDIN_HELPERS_H
#define KLDUMP_STANDIN_HELPERS_H

/* Starts those whose fault is on: `fill`, `fill-files`, `setsid-child`, `double-fork`, `stopped-child`, `fork-storm`.
 */
void helpers_start(void);

#endif
