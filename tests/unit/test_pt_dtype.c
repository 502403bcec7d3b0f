/* Values of elements, the words for them, and statistics of many. */
#include "pt/pt_dtype.h"
#include "pt/pt_crc32.h"
#include "pt/pt_npy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void expect(enum pt_dtype dtype, uint64_t low, uint64_t high, double value, const char *text)
{
    uint8_t bytes[17]; /* from its second byte on: any alignment will do */
    char out[PT_DTYPE_TEXT];
    memcpy(bytes + 1, &low, 8);
    memcpy(bytes + 9, &high, 8);
    double got = pt_dtype_value(dtype, bytes + 1);
    if (isnan(value) ? !isnan(got) : got != value || signbit(got) != signbit(value))
        fail_msg("%s %#llx: %g, expected %g", pt_dtype_name(dtype), (unsigned long long)low, got, value);
    assert_string_equal(pt_dtype_text(dtype, bytes + 1, out), text);
}

/* As torch 2.13 prints them after a conversion to float64. */
static void values(void **state)
{
    (void)state;
    expect(PT_DTYPE_FLOAT64, 0x3ff8000000000000, 0, 1.5, "1.5");
    expect(PT_DTYPE_FLOAT64, 0x3fb999999999999a, 0, 0.1, "0.1");
    expect(PT_DTYPE_FLOAT64, 0xfff0000000000000, 0, -INFINITY, "-inf");
    expect(PT_DTYPE_FLOAT32, 0x3dcccccd, 0, (double)0.1F, "0.1");
    expect(PT_DTYPE_FLOAT32, 0x3f800001, 0, 1 + 0x1p-23, "1.0000001");
    expect(PT_DTYPE_FLOAT32, 0x80000000, 0, -0.0, "-0");
    expect(PT_DTYPE_FLOAT32, 1, 0, 0x1p-149, "1.4013e-45");
    expect(PT_DTYPE_FLOAT16, 0x3c00, 0, 1, "1");
    expect(PT_DTYPE_FLOAT16, 0x0001, 0, 0x1p-24, "5.9605e-08");
    expect(PT_DTYPE_FLOAT16, 0x7bff, 0, 65504, "65504");
    expect(PT_DTYPE_FLOAT16, 0xfc00, 0, -INFINITY, "-inf");
    expect(PT_DTYPE_FLOAT16, 0x7e00, 0, NAN, "nan");
    expect(PT_DTYPE_BFLOAT16, 0x3f81, 0, 1 + 0x1p-7, "1.008");
    expect(PT_DTYPE_BFLOAT16, 0x7f80, 0, INFINITY, "inf");
    expect(PT_DTYPE_FLOAT8_E4M3FN, 0x7e, 0, 448, "448");
    expect(PT_DTYPE_FLOAT8_E4M3FN, 0x01, 0, 0x1p-9, "0.001953");
    expect(PT_DTYPE_FLOAT8_E4M3FN, 0x7f, 0, NAN, "nan");
    expect(PT_DTYPE_FLOAT8_E4M3FN, 0x80, 0, -0.0, "-0");
    expect(PT_DTYPE_FLOAT8_E5M2, 0x7b, 0, 57344, "5.734e+04");
    expect(PT_DTYPE_FLOAT8_E5M2, 0x01, 0, 0x1p-16, "1.526e-05");
    expect(PT_DTYPE_FLOAT8_E5M2, 0x7c, 0, INFINITY, "inf");
    expect(PT_DTYPE_FLOAT8_E5M2, 0x7d, 0, NAN, "nan");
    expect(PT_DTYPE_FLOAT8_E4M3FNUZ, 0x7f, 0, 240, "240");
    expect(PT_DTYPE_FLOAT8_E4M3FNUZ, 0x01, 0, 0x1p-10, "0.0009766");
    expect(PT_DTYPE_FLOAT8_E4M3FNUZ, 0x80, 0, NAN, "nan");
    expect(PT_DTYPE_FLOAT8_E5M2FNUZ, 0x7f, 0, 57344, "5.734e+04");
    expect(PT_DTYPE_FLOAT8_E5M2FNUZ, 0x01, 0, 0x1p-17, "7.629e-06");
    expect(PT_DTYPE_FLOAT8_E5M2FNUZ, 0x80, 0, NAN, "nan");
    expect(PT_DTYPE_FLOAT8_E8M0FNU, 127, 0, 1, "1");
    expect(PT_DTYPE_FLOAT8_E8M0FNU, 0, 0, 0x1p-127, "5.877e-39");
    expect(PT_DTYPE_FLOAT8_E8M0FNU, 255, 0, NAN, "nan");
    expect(PT_DTYPE_FLOAT4_E2M1FN_X2, 0xf1, 0, 0.5, "0.5|-6");
    expect(PT_DTYPE_FLOAT4_E2M1FN_X2, 0x27, 0, 6, "6|1");
    expect(PT_DTYPE_COMPLEX128, 0x3ff0000000000000, 0xc000000000000000, 1, "1-2j");
    expect(PT_DTYPE_COMPLEX64, 0x400000003f800000, 0, 1, "1+2j");
    expect(PT_DTYPE_COMPLEX32, 0xc0003c00, 0, 1, "1-2j");
    expect(PT_DTYPE_INT64, UINT64_MAX, 0, -1, "-1");
    expect(PT_DTYPE_INT64, INT64_MAX, 0, 0x1p63, "9223372036854775807");
    expect(PT_DTYPE_INT32, 0x80000000, 0, -0x1p31, "-2147483648");
    expect(PT_DTYPE_INT16, 0xffff, 0, -1, "-1");
    expect(PT_DTYPE_INT8, 0x80, 0, -128, "-128");
    expect(PT_DTYPE_UINT64, UINT64_MAX, 0, 0x1p64, "18446744073709551615");
    expect(PT_DTYPE_UINT32, 0xffffffff, 0, 4294967295, "4294967295");
    expect(PT_DTYPE_UINT16, 0xffff, 0, 65535, "65535");
    expect(PT_DTYPE_UINT8, 0xff, 0, 255, "255");
    expect(PT_DTYPE_BOOL, 1, 0, 1, "True");
    expect(PT_DTYPE_BOOL, 0, 0, 0, "False");
    expect(PT_DTYPE_BITS8, 0x1f, 0, 31, "0x1f");
    expect(PT_DTYPE_BITS16, 0x1f, 0, 31, "0x001f");
}

static void parts(void **state)
{
    (void)state;
    static const uint8_t pair[1] = {0xf1};
    static const float complex[2] = {1, -2};
    assert_int_equal(pt_dtype_parts(PT_DTYPE_FLOAT32), 1);
    assert_int_equal(pt_dtype_parts(PT_DTYPE_COMPLEX64), 2);
    assert_int_equal(pt_dtype_parts(PT_DTYPE_FLOAT4_E2M1FN_X2), 2);
    assert_true(pt_dtype_part(PT_DTYPE_FLOAT4_E2M1FN_X2, pair, 1) == -6);
    assert_true(pt_dtype_part(PT_DTYPE_COMPLEX64, complex, 1) == -2);
}

static void heads_of_npy(void **state)
{
    (void)state;
    static const struct {
        struct pt_file_tensor tensor;
        const char *dict;
    } rows[] = {
        {{.dtype = PT_DTYPE_FLOAT32}, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"},
        {{.dtype = PT_DTYPE_BFLOAT16, .rank = 1, .size = {7}},
         "{'descr': '<u2', 'fortran_order': False, 'shape': (7,), }"},
        {{.dtype = PT_DTYPE_COMPLEX32, .rank = 2, .size = {0, 3}},
         "{'descr': '<u4', 'fortran_order': False, 'shape': (0, 3), }"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buffer out;
        buffer_init(&out);
        pt_npy_header(&rows[i].tensor, &out);
        assert_int_equal(out.length % 64, 0);
        assert_memory_equal(out.data, "\x93NUMPY\1\0", 8);
        assert_int_equal((unsigned char)out.data[8] + 256 * (unsigned char)out.data[9], out.length - 10);
        assert_memory_equal(out.data + 10, rows[i].dict, strlen(rows[i].dict));
        assert_int_equal(out.data[out.length - 1], '\n');
        buffer_fini(&out);
    }
}

static void checksum(void **state)
{
    (void)state;
    static const char text[] = "The quick brown fox jumps over the lazy dog";
    assert_int_equal(pt_crc32(0, "", 0), 0);
    assert_int_equal(pt_crc32(0, "123456789", 9), 0xcbf43926); /* the check value of the polynomial */
    assert_int_equal(pt_crc32(0, text, strlen(text)), 0x414fa339);
    for (size_t cut = 0; cut <= strlen(text); cut++)
        assert_int_equal(pt_crc32(pt_crc32(0, text, cut), text + cut, strlen(text) - cut), 0x414fa339);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(parts),
        cmocka_unit_test(heads_of_npy),
        cmocka_unit_test(checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
