# Tests of what `kldumpctl diff` compares and concludes.
check_PROGRAMS += tests/unit/test_numbers
TESTS += tests/unit/test_numbers
tests_unit_test_numbers_SOURCES = tests/unit/test_numbers.c
tests_unit_test_numbers_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_numbers_LDADD = libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_module_class
TESTS += tests/unit/test_module_class
tests_unit_test_module_class_SOURCES = tests/unit/test_module_class.c
tests_unit_test_module_class_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_module_class_LDADD = libsglang.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_diff_verdict
TESTS += tests/unit/test_diff_verdict
tests_unit_test_diff_verdict_SOURCES = tests/unit/test_diff_verdict.c tests/unit/diff_case.c tests/unit/diff_case.h
tests_unit_test_diff_verdict_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_diff_verdict_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_diff_properties
TESTS += tests/unit/test_diff_properties
tests_unit_test_diff_properties_SOURCES = tests/unit/test_diff_properties.c tests/unit/diff_case.c tests/unit/diff_case.h
tests_unit_test_diff_properties_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_diff_properties_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_diff_real
TESTS += tests/unit/test_diff_real
tests_unit_test_diff_real_SOURCES = tests/unit/test_diff_real.c tests/unit/real_dump.c tests/unit/real_dump.h \
    tests/unit/diff_case.c tests/unit/diff_case.h
tests_unit_test_diff_real_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_diff_real_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libjson.a libcore.a libbase.a \
    $(CJSON_LIBS) $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_diff_damage
TESTS += tests/unit/test_diff_damage
tests_unit_test_diff_damage_SOURCES = tests/unit/test_diff_damage.c tests/unit/diff_case.c tests/unit/diff_case.h
tests_unit_test_diff_damage_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_diff_damage_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_rows
TESTS += tests/unit/test_rows
tests_unit_test_rows_SOURCES = tests/unit/test_rows.c
tests_unit_test_rows_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_rows_LDADD = libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS) -lm
