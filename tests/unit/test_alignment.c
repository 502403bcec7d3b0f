/* alignment.h: which rows are paired in every known situation, and what is said where none can be. */
#include "analysis/alignment.h"
#include "dump_files.h"
#include "scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_pairs(const char *name, const struct side *a, const struct side *b, const struct diff *diff,
                        const struct alignment *alignment)
{
    size_t targets = 0;
    for (size_t i = 0; i < alignment->pair_count; i++) {
        const struct alignment_pair *pair = &alignment->pairs[i], *before = i > 0 ? pair - 1 : NULL;
        targets += pair->target;
        assert_true(pair->a_pass < a->pass_count && pair->b_pass < b->pass_count);
        assert_true(pair->a_row < a->passes[pair->a_pass].tokens && pair->b_row < b->passes[pair->b_pass].tokens);
        assert_true(pair->a_request < a->passes[pair->a_pass].requests);
        assert_true(pair->b_request < b->passes[pair->b_pass].requests);
        if (before != NULL &&
            (before->request > pair->request ||
             (before->request == pair->request &&
              (before->position > pair->position || (before->position == pair->position &&
                                                     a->passes[before->a_pass].rank >= a->passes[pair->a_pass].rank)))))
            fail_msg("%s: pair %zu is out of order", name, i);
        const struct diff_request *request = &diff->requests[pair->request];
        assert_true(i >= request->first_pair && i < request->first_pair + request->pair_count);
    }
    assert_int_equal(targets, alignment->target_count);
}

static bool says(const struct diff *diff, int id, const char *part)
{
    for (size_t i = 0; i < diff->message_count; i++)
        if ((int)diff->messages[i].id == id && (part == NULL || strstr(diff->messages[i].evidence, part) != NULL))
            return true;
    return false;
}

/* Proofs and messages of the tensors are not the alignment's. */
static void check_outcome(const struct scenarios_case *known, const struct diff *diff)
{
    for (int id = DIFF_PROOF_A1; id <= DIFF_PROOF_A3; id++) {
        bool holds = diff->proofs[id].state == DIFF_PROOF_HOLDS,
             fails = known->fails <= DIFF_PROOF_A3 && known->fails == id;
        if (fails == holds && (fails || known->fails == SCENARIOS_NONE || known->fails > DIFF_PROOF_A3))
            fail_msg("%s: %s is %s (%s)", known->name, diff_proof_name((enum diff_proof_id)id),
                     diff_proof_state_word(diff->proofs[id].state), diff->proofs[id].evidence);
    }
    bool later = known->message == DIFF_MESSAGE_M12 || known->message == DIFF_MESSAGE_M15;
    if (known->message != SCENARIOS_NONE && !later && !says(diff, known->message, known->says))
        fail_msg("%s: %zu messages, the first %s", known->name, diff->message_count,
                 diff->message_count > 0 ? diff->messages[0].evidence : "");
    if ((known->message == SCENARIOS_NONE || later) && diff->message_count > 0)
        fail_msg("%s: %s", known->name, diff->messages[0].evidence);
    if (diff->usable == known->unusable)
        fail_msg("%s: usable is %d", known->name, diff->usable);
}

static void run(const struct scenarios_case *known)
{
    struct scenarios_folders folders = {dump_files_folder(), dump_files_folder(), dump_files_folder()};
    struct side a, b;
    struct diff diff = {.usable = true};
    struct alignment alignment;
    struct error err = ERROR_INIT;
    known->write(&folders);
    const char *dec[] = {known->history ? folders.history : folders.dec, known->history ? folders.dec : NULL, NULL};
    const char *pre[] = {known->one_folder ? folders.dec : folders.pre, NULL};
    if (side_read(known->turned ? pre : dec, 0, NULL, NULL, &a, &err) != ERROR_NONE ||
        side_read(known->turned ? dec : pre, 0, NULL, NULL, &b, &err) != ERROR_NONE ||
        alignment_make(&a, &b, known->trust_slots, &diff, &alignment, &err) != ERROR_NONE)
        fail_msg("%s: %s", known->name, err.message);
    check_outcome(known, &diff);
    if (alignment.target_count != known->targets || alignment.pair_count != known->targets + known->controls)
        fail_msg("%s: %zu targets and %zu controls, not %zu and %zu", known->name, alignment.target_count,
                 alignment.pair_count - alignment.target_count, known->targets, known->controls);
    assert_int_equal(alignment.swapped, known->turned);
    if (known->requests != 0)
        assert_int_equal(diff.request_count, known->requests);
    check_pairs(known->name, &a, &b, &diff, &alignment);
    alignment_fini(&alignment);
    diff_fini(&diff);
    side_fini(&a);
    side_fini(&b);
    char *paths[] = {folders.dec, folders.pre, folders.history};
    for (unsigned i = 0; i < 3; i++) {
        dump_files_remove(paths[i]);
        free(paths[i]);
    }
}

static void test_known_situations(void **state)
{
    (void)state;
    for (size_t i = 0; i < scenarios_count; i++)
        run(&scenarios_all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_situations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
