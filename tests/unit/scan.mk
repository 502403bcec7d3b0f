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
