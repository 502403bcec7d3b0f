/* Test support: a dump folder with what its writer would have counted, and what its audit has to say. */
#pragma once

#include "analysis/audit_folder.h"
#include "dump_files.h"

#include <sys/types.h>

enum { AUDIT_DUMP_LAYERS = 2, AUDIT_DUMP_FILES = DUMP_FILES_ROOT + AUDIT_DUMP_LAYERS * DUMP_FILES_LAYER };

struct dump {
    char *folder;
    struct audit_expected_rank ranks[2];
    struct audit_expected expected;
    struct audit audit;
};

/* The request ids of most passes: {"own-1", NULL}. */
extern const char *const audit_dump_own[];

/* cmocka's setup: a prefill (step 4, dump_index from 31) and three decode passes of one request on rank 0. */
int audit_dump_setup(void **state);
int audit_dump_teardown(void **state);
#define AUDIT_DUMP_TEST(function) cmocka_unit_test_setup_teardown(function, audit_dump_setup, audit_dump_teardown)

/* One more pass; the counters of the rank go with it. */
void audit_dump_pass(struct dump *dump, uint32_t rank, uint64_t step, unsigned tokens, const char *const *ids);

void audit_dump_run(struct dump *dump);

/* Audits; there must be exactly these reasons, each with the given part, in the order of the table. NULL ends. */
void audit_dump_expect(struct dump *dump, ...);

/* After audit_dump_run or audit_dump_expect: these steps are usable, as audit_usable_text says it. */
void audit_dump_usable(const struct dump *dump, const char *text);

/* The path of a file of rank 0 that is there; the caller frees. Deletes it; cuts it. */
char *audit_dump_path(const struct dump *dump, uint64_t step, uint64_t index, const char *name, int layer);
void audit_dump_remove(const struct dump *dump, uint64_t step, uint64_t index, const char *name, int layer);
void audit_dump_cut(const struct dump *dump, uint64_t step, uint64_t index, const char *name, int layer, off_t size);

/* Makes the folder empty. */
void audit_dump_clear(struct dump *dump);
