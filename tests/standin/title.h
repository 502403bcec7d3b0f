/* title.h: the name under which ps and /proc/PID/cmdline show a process, as setproctitle does it. */
#ifndef KLDUMP_STANDIN_TITLE_H
#define KLDUMP_STANDIN_TITLE_H

/* Remembers the memory of the arguments. Call first in main, before anything keeps a pointer into argv. */
void title_init(int argc, char **argv);

/* Overwrites the arguments (cut to their room) and sets comm (cut to 15 bytes). The environment stays readable. */
void title_set(const char *title);

/* Sets comm alone, for a program that was started by another path than its name. */
void title_set_comm(const char *comm);

#endif
