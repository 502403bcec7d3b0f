/* The programs in front of the server in CMD: those that start what follows as themselves or as their child (env, nice,
 * numactl, uv run ...), and those under which nothing is a child of ours any more (docker, ssh, sudo ...). Pure; any
 * thread. */
#pragma once

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>

/* The file name of a path. */
const char *prefix_base_name(const char *path);

/* Position of the first word from `at` on that is not such a program, one of its options or an assignment of env: the
 * program that is run in the end. words->count when CMD ends before. */
size_t prefix_end(const struct list *words, size_t at);

/* Adds to ret_words the programs in front of the python at `program` that choose which python that is (env, conda run,
 * uv run), with their options: what must stand in front of a question to the same python. */
void prefix_choosers(const struct list *words, size_t program, struct list *ret_words);

/* The program under which the server would not be our child, or NULL: of the words themselves, and of a shell's `-c`
 * line when the server's name stands behind it there. What a script does cannot be known. Static text. */
const char *prefix_outside(const struct list *words, size_t program);

/* Whether an `env` in front of `end` takes this variable away (-i, -u NAME). */
bool prefix_drops(const struct list *words, size_t end, const char *name);

/* Whether a `conda run` in front of `end` keeps the server's output until it has ended. */
bool prefix_holds_output(const struct list *words, size_t end);
