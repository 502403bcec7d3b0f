#include "audit_dump.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

const char *const audit_dump_own[] = {"own-1", NULL};

void audit_dump_pass(struct dump *dump, uint32_t rank, uint64_t step, unsigned tokens, const char *const *ids)
{
    const struct dump_files_pass pass = {
        .step = step, .rank = rank, .layers = AUDIT_DUMP_LAYERS, .tokens = tokens, .ids = ids};
    dump_files_pass(dump->folder, &pass, &dump->ranks[rank].index_to);
    dump->ranks[rank].step_to = step + 1;
}

int audit_dump_setup(void **state)
{
    struct dump *dump = memory_new(sizeof *dump);
    dump->folder = dump_files_folder();
    dump->ranks[0] = (struct audit_expected_rank){.index_from = 30, .index_to = 30, .step_from = 4, .step_to = 4};
    dump->ranks[1] = dump->ranks[0];
    dump->expected = (struct audit_expected){.known = true, .exact = true, .rank_count = 1, .ranks = dump->ranks};
    audit_dump_pass(dump, 0, 4, 12, audit_dump_own);
    for (uint64_t step = 5; step < 8; step++)
        audit_dump_pass(dump, 0, step, 1, audit_dump_own);
    audit_init(&dump->audit);
    *state = dump;
    return 0;
}

int audit_dump_teardown(void **state)
{
    struct dump *dump = *state;
    audit_fini(&dump->audit);
    list_fini(&dump->expected.own_request_ids);
    dump_files_remove(dump->folder);
    free(dump->folder);
    free(dump);
    return 0;
}

void audit_dump_run(struct dump *dump)
{
    struct error err = ERROR_INIT;
    if (audit_folder(dump->folder, &dump->expected, NULL, &dump->audit, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    assert_int_equal(dump->audit.complete, dump->audit.reasons.count == 0);
}

void audit_dump_expect(struct dump *dump, ...)
{
    audit_dump_run(dump);
    va_list parts;
    va_start(parts, dump);
    size_t count = 0;
    for (const char *part; (part = va_arg(parts, const char *)) != NULL; count++) {
        if (count == dump->audit.reasons.count)
            fail_msg("no reason '%s'", part);
        if (strstr(dump->audit.reasons.items[count], part) == NULL)
            fail_msg("reason '%s' has no '%s'", dump->audit.reasons.items[count], part);
    }
    va_end(parts);
    if (count != dump->audit.reasons.count)
        fail_msg("unexpected reason '%s'", dump->audit.reasons.items[count]);
}

void audit_dump_usable(const struct dump *dump, const char *text)
{
    char found[200];
    assert_string_equal(audit_usable_text(&dump->audit, found, sizeof found), text);
}

char *audit_dump_path(const struct dump *dump, uint64_t step, uint64_t index, const char *name, int layer)
{
    char *file = dump_files_name(step, 0, index, name, layer);
    char *path = memory_format("%s/%s", dump->folder, file);
    free(file);
    assert_int_equal(access(path, F_OK), 0);
    return path;
}

void audit_dump_remove(const struct dump *dump, uint64_t step, uint64_t index, const char *name, int layer)
{
    char *path = audit_dump_path(dump, step, index, name, layer);
    assert_int_equal(unlink(path), 0);
    free(path);
}

void audit_dump_cut(const struct dump *dump, uint64_t step, uint64_t index, const char *name, int layer, off_t size)
{
    char *path = audit_dump_path(dump, step, index, name, layer);
    assert_int_equal(truncate(path, size), 0);
    free(path);
}

void audit_dump_clear(struct dump *dump)
{
    dump_files_remove(dump->folder);
    assert_int_equal(mkdir(dump->folder, 0700), 0);
}
