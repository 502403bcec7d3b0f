/* One token of a KL measurement: its class and its k3. */
#include "analysis/kl.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_classes(void **unused)
{
    (void)unused;
    assert_int_equal(kl_class_of(-1.5, -1.5), KL_CLASS_EQUAL);
    assert_int_equal(kl_class_of(0.0, -0.0), KL_CLASS_STRAY);
    assert_int_equal(kl_class_of(-1, -1 - 9.9e-7), KL_CLASS_STRAY);
    assert_int_equal(kl_class_of(-1, -1 - 1.01e-6), KL_CLASS_BEYOND);
    /* At 8 an ULP of float32 is 2^-20: four of them are stray, five are not. */
    for (int ulps = 1; ulps <= 5; ulps++) {
        double d = ulps * ldexp(1, -20);
        assert_int_equal(kl_class_of(-9, -9 - d), ulps <= 4 ? KL_CLASS_STRAY : KL_CLASS_BEYOND);
        assert_int_equal(kl_class_of(-9 - d, -9), ulps <= 4 ? KL_CLASS_STRAY : KL_CLASS_BEYOND);
    }
    assert_int_equal(kl_class_of(NAN, -1), KL_CLASS_BEYOND);
    assert_int_equal(kl_class_of(-1, NAN), KL_CLASS_BEYOND);
}

static void test_k3(void **unused)
{
    (void)unused;
    for (double d = 1e-9; d < 4; d *= 1.1)
        for (int sign = -1; sign <= 1; sign += 2) {
            double k3 = kl_k3(sign * d, 0), helper = (exp(sign * d) - 1) - sign * d;
            assert_true(k3 > 0);
            assert_true(fabs(k3 - helper) < 1e-15 * fmax(1, helper));
        }
    /* Where the helpers' form has nothing left but rounding. */
    assert_true(fabs(kl_k3(1e-8, 0) / 5e-17 - 1) < 1e-7);
    assert_true(kl_k3(-2.5, -2.5) == 0);
    assert_true(isnan(kl_k3(NAN, 0)));
    /* Both forms meet where one ends. */
    assert_true(fabs(kl_k3(0.125 - 1e-12, 0) - kl_k3(0.125 + 1e-12, 0)) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_k3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
