/* dump_write.h: folders and files of a dump, and how writing them fails. */
#ifndef KLDUMP_STANDIN_DUMP_WRITE_H
#define KLDUMP_STANDIN_DUMP_WRITE_H

#include <stdbool.h>

#include "text.h"

/* mkdir -p; false leaves errno. */
bool dump_write_folders(const char *path);

struct dump_write_about {
    int rank;
    long dump_index;
    bool capturing; /* a graph: the tensor cannot be copied */
};

/* What does not fit is skipped with a line in the log, and what was written is left. */
void dump_write_file(const char *path, const struct text *content, const struct dump_write_about *about);

#endif
