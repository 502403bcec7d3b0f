/* What other numbers, or the same, mean when the server was started under other settings. */
#include "analysis/kl_vary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct kl_vary_place here = {"match", 3, 412}, nowhere;

static struct kl_vary_variant variant(const char *label, bool given_clean, bool clean)
{
    return (struct kl_vary_variant){
        .label = label, .state = KL_VARY_MEASURED, .clean = clean, .given_clean = given_clean};
}

static struct kl_vary_variant moved(const char *label)
{
    struct kl_vary_variant one = variant(label, false, false);
    one.differs = here;
    return one;
}

static struct kl_vary_variant restored(const char *label)
{
    struct kl_vary_variant one = variant(label, false, false);
    one.restored = here;
    return one;
}

static struct kl_vary_variant absent(const char *label, enum kl_vary_state state)
{
    return (struct kl_vary_variant){.label = label, .state = state};
}

/* Holds the reading against a name and, of the text, a part (NULL: none). */
static void reads(bool clean, struct kl_vary_place again, const struct kl_vary_variant *variants, size_t count,
                  const char *name, const char *part)
{
    const struct kl_vary vary = {.clean = clean, .again = again, .variants = variants, .count = count};
    struct kl_vary_reading reading;
    kl_vary_read(&vary, &reading);
    assert_string_equal(reading.name, name);
    if (part != NULL && strstr(reading.text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, reading.text);
    assert_int_equal(reading.fine, strcmp(name, "clean") == 0 || (clean && strcmp(name, "nothing-arrived") == 0));
    assert_true(reading.fine || reading.next[0] != NULL);
    kl_vary_reading_fini(&reading);
}

static void test_all_dirty(void **state)
{
    (void)state;
    const struct kl_vary_variant same[] = {variant("a=1", false, false), variant("a=2", false, false)};
    reads(false, nowhere, same, 2, "deterministic", "bit for bit, whatever these settings are");
    const struct kl_vary shifted = {.again = here, .variants = same, .count = 2, .shifted = true};
    struct kl_vary_reading reading;
    kl_vary_read(&shifted, &reading);
    assert_string_equal(reading.name, "shifted-logprobs");
    assert_false(reading.fine);
    kl_vary_reading_fini(&reading);
    const struct kl_vary_variant one[] = {variant("a=1", false, false), moved("a=2"), restored("a=3")};
    reads(false, nowhere, one, 3, "moved", "Other numbers with a=2, first in match, request 3 at position 412.");
}

/* Pages of another size restore another number of tokens: no place that is comparable differs. */
static void test_restored_otherwise(void **state)
{
    (void)state;
    const struct kl_vary_variant variants[] = {variant("a=1", false, false), restored("a=2")};
    reads(false, nowhere, variants, 2, "restored-otherwise", "Other numbers with a=2, first in match, request 3");
}

static void test_one_turns(void **state)
{
    (void)state;
    const struct kl_vary_variant clean[] = {moved("a=1"), variant("a=2", false, true)};
    reads(false, nowhere, clean, 2, "turns-clean", "Clean with a=2.");
    const struct kl_vary_variant dirty[] = {variant("a=1", true, true), variant("a=2", true, false)};
    reads(true, nowhere, dirty, 2, "turns-dirty", "Dirty with a=2.");
}

static void test_all_clean(void **state)
{
    (void)state;
    struct kl_vary_variant variants[] = {variant("a=1", true, true), variant("a=2", true, true)};
    reads(true, nowhere, variants, 2, "clean", "nothing to explain");
    variants[1].differs = here;
    reads(true, nowhere, variants, 2, "clean", "Other numbers with a=2");
}

/* Whatever the variants say: first the same must give the same. */
static void test_not_repeatable(void **state)
{
    (void)state;
    const struct kl_vary_variant variants[] = {moved("a=1"), variant("a=2", false, true)};
    reads(false, here, variants, 2, "not-repeatable",
          "It differs from itself first in match, request 3 at position 412.");
    reads(false, here, variants, 2, "not-repeatable", "Clean with a=2.");
    const struct kl_vary_variant clean[] = {variant("a=1", true, true)};
    reads(true, here, clean, 1, "not-repeatable", NULL);
}

static void test_nothing_arrived(void **state)
{
    (void)state;
    const struct kl_vary_variant variants[] = {absent("a=1", KL_VARY_NO_EFFECT), absent("a=2", KL_VARY_NO_EFFECT),
                                               absent("a=3", KL_VARY_NOT_MEASURED)};
    reads(false, nowhere, variants, 3, "nothing-arrived", "resolved nothing else: a=1, a=2. Not measured: a=3.");
    reads(true, nowhere, variants, 3, "nothing-arrived", NULL);
}

/* A variant in which the dirty path was not measured is neither clean nor the same. */
static void test_blind(void **state)
{
    (void)state;
    const struct kl_vary_variant variants[] = {variant("a=1", true, true), variant("a=2", false, false)};
    reads(false, nowhere, variants, 1, "nothing-arrived", "could not be measured with a=1.");
    reads(false, nowhere, variants, 2, "deterministic", "could not be measured with a=1.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_dirty),      cmocka_unit_test(test_restored_otherwise),
        cmocka_unit_test(test_one_turns),      cmocka_unit_test(test_all_clean),
        cmocka_unit_test(test_not_repeatable), cmocka_unit_test(test_nothing_arrived),
        cmocka_unit_test(test_blind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
