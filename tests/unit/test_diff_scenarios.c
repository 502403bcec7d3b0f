/* diff.h: the outcome of every known situation: status, proof, message, and the verdict's place; with one thread and
 * several, and with the sides turned round. */
#include "analysis/diff.h"
#include "dump_files.h"
#include "scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum status expected_status(const struct scenarios_case *known)
{
    if (known->unusable)
        return STATUS_INCOMPLETE;
    if (known->fails != SCENARIOS_NONE)
        return STATUS_UNPROVEN;
    return known->kind == DIFF_KIND_NONE ? STATUS_DONE : STATUS_NO;
}

static const struct diff_message *find(const struct diff *diff, int id)
{
    for (size_t i = 0; i < diff->message_count; i++)
        if ((int)diff->messages[i].id == id)
            return &diff->messages[i];
    return NULL;
}

static void tell_all(const struct scenarios_case *known, const struct diff *diff)
{
    print_message("%s: status %d\n", known->name, diff_status(diff));
    for (int id = 0; id < DIFF_PROOF_COUNT; id++)
        print_message("  A%d %s %s\n", id + 1, diff_proof_state_word(diff->proofs[id].state),
                      diff->proofs[id].evidence != NULL ? diff->proofs[id].evidence : "");
    for (size_t i = 0; i < diff->message_count; i++)
        print_message("  %s %s\n", diff_message_name(diff->messages[i].id), diff->messages[i].evidence);
    if (diff->proven)
        print_message("  %s: %s\n", diff_kind_word(diff->verdict.kind), diff->verdict.what);
    fail_msg("%s", known->name);
}

static bool is_verdict(const struct scenarios_case *known, const struct diff *diff)
{
    const struct diff_verdict *verdict = &diff->verdict;
    if (!diff->proven || verdict->kind != known->kind)
        return false;
    if (known->kind == DIFF_KIND_NONE)
        return true;
    const struct diff_call *call = &diff->calls[verdict->call];
    return strcmp(call->module, known->module) == 0 && call->has_layer == (known->layer >= 0) &&
           (int)call->layer == known->layer && diff->pairs[verdict->first_pair].position == known->position;
}

static void check(const struct scenarios_case *known, const struct diff *diff)
{
    enum status status = expected_status(known);
    const struct diff_message *message = find(diff, known->message);
    bool right = diff_status(diff) == status;
    if (known->message != SCENARIOS_NONE)
        right &= message != NULL && (known->says == NULL || strstr(message->evidence, known->says) != NULL);
    if (known->fails != SCENARIOS_NONE)
        right &= diff->proofs[known->fails].state != DIFF_PROOF_HOLDS;
    if (status == STATUS_DONE || status == STATUS_NO)
        right &= is_verdict(known, diff);
    if (status == STATUS_UNPROVEN)
        right &= !diff->proven;
    if (!right)
        tell_all(known, diff);
}

static void run(const struct scenarios_case *known, const struct scenarios_folders *folders, bool turned,
                unsigned threads)
{
    const char *dec[] = {known->history ? folders->history : folders->dec, known->history ? folders->dec : NULL, NULL};
    const char *pre[] = {known->one_folder ? folders->dec : folders->pre, NULL};
    const struct diff_options options = {.a_paths = turned ? pre : dec,
                                         .b_paths = turned ? dec : pre,
                                         .threads = threads,
                                         .trust_slots = known->trust_slots};
    struct diff diff;
    struct error err = ERROR_INIT;
    if (diff_run(&options, &diff, &err) != ERROR_NONE)
        fail_msg("%s: %s", known->name, err.message);
    check(known, &diff);
    diff_fini(&diff);
}

static void test_every_situation(void **state)
{
    (void)state;
    for (size_t i = 0; i < scenarios_count; i++) {
        const struct scenarios_case *known = &scenarios_all[i];
        struct scenarios_folders folders = {dump_files_folder(), dump_files_folder(), dump_files_folder()};
        char *paths[] = {folders.dec, folders.pre, folders.history};
        known->write(&folders);
        run(known, &folders, known->turned, 1);
        run(known, &folders, known->turned, 3);
        if (known->fails == SCENARIOS_NONE && !known->unusable && known->message == SCENARIOS_NONE)
            run(known, &folders, !known->turned, 2);
        for (unsigned k = 0; k < 3; k++) {
            dump_files_remove(paths[k]);
            free(paths[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_situation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
