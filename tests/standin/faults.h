/* faults.h: which faults are switched on, from KLDUMP_STANDIN_FAULTS. The table is faults.def. */
#ifndef KLDUMP_STANDIN_FAULTS_H
#define KLDUMP_STANDIN_FAULTS_H

#include <stdbool.h>

enum faults_name {
#define FAULT(symbol, name, value, text, fact) FAULTS_##symbol,
#include "faults.def"
#undef FAULT
    FAULTS_COUNT
};

/* Reads the environment. On failure (unknown name, value where none is taken) prints the reason, returns false. */
bool faults_init(void);

bool faults_on(enum faults_name name);

/* The given value or the default of the table; "" for a fault without value or one that is off. */
const char *faults_value(enum faults_name name);

/* The value as a number, 0 where it is none. */
long long faults_number(enum faults_name name);

/* One line each on standard output. */
void faults_help(void);

#endif
