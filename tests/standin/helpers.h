/* helpers.h: the writers and the stray processes that faults put beside a server. */
#ifndef KLDUMP_STANDIN_HELPERS_H
#define KLDUMP_STANDIN_HELPERS_H

/* In a leading scheduler: starts those whose fault is on: `fill`, `fill-files`, `setsid-child`, `double-fork`,
 * `stopped-child`, `subreaper`, `fork-storm`. */
void helpers_start(void);

/* In the main process, after its first lines: `binary-output`; `log-flood` from a thread of its own. */
void helpers_print(void);

#endif
