/* Ctrl-C and its kin (INT, TERM, HUP) while a command has something to finish first. Main thread. */
#pragma once

/* From now on such a signal is kept in mind, and does not end us; one that was ignored stays so. A second one ends us
 * with the status that it would have given, after `last_words`, a line on standard error; NULL: it changes nothing. */
void interrupt_watch(const char *last_words);
int interrupt_number(void); /* of the first that came, 0: none */
void interrupt_unwatch(void);
/* Ends us by that signal, as it would have. */
_Noreturn void interrupt_end(int number);
