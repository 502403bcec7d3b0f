# Tests of `kldumpctl check`: archives, names, the audit, its JSON, the command.
check_PROGRAMS += tests/unit/test_pt_zip
TESTS += tests/unit/test_pt_zip
tests_unit_test_pt_zip_SOURCES = tests/unit/test_pt_zip.c tests/unit/dump_files.c tests/unit/dump_files.h
tests_unit_test_pt_zip_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pt_zip_LDADD = libpt.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_dump_name
TESTS += tests/unit/test_dump_name
tests_unit_test_dump_name_SOURCES = tests/unit/test_dump_name.c
tests_unit_test_dump_name_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_dump_name_LDADD = libsglang.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_audit_folder
TESTS += tests/unit/test_audit_folder
tests_unit_test_audit_folder_SOURCES = tests/unit/test_audit_folder.c tests/unit/audit_dump.c tests/unit/audit_dump.h \
    tests/unit/dump_files.c tests/unit/dump_files.h
tests_unit_test_audit_folder_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_audit_folder_LDADD = libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_audit_ending
TESTS += tests/unit/test_audit_ending
tests_unit_test_audit_ending_SOURCES = tests/unit/test_audit_ending.c tests/unit/audit_dump.c tests/unit/audit_dump.h \
    tests/unit/dump_files.c tests/unit/dump_files.h
tests_unit_test_audit_ending_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_audit_ending_LDADD = libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_audit_coverage
TESTS += tests/unit/test_audit_coverage
tests_unit_test_audit_coverage_SOURCES = tests/unit/test_audit_coverage.c tests/unit/audit_dump.c tests/unit/audit_dump.h \
    tests/unit/dump_files.c tests/unit/dump_files.h
tests_unit_test_audit_coverage_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_audit_coverage_LDADD = libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_command_check
TESTS += tests/unit/test_command_check
tests_unit_test_command_check_SOURCES = tests/unit/test_command_check.c tests/unit/dump_files.c tests/unit/dump_files.h
tests_unit_test_command_check_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_command_check_LDADD = $(kldumpctl_LDADD) $(CMOCKA_LIBS)

EXTRA_DIST += tests/data/README tests/data/graph-replay.tar.gz tests/data/one-pass.tar.gz
check_PROGRAMS += tests/unit/test_pt_file
TESTS += tests/unit/test_pt_file
tests_unit_test_pt_file_SOURCES = tests/unit/test_pt_file.c tests/unit/dump_files.c tests/unit/dump_files.h \
    tests/standin/torch_file.c tests/standin/torch_file.h tests/standin/text.c tests/standin/text.h
tests_unit_test_pt_file_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir) $(CMOCKA_CFLAGS)
tests_unit_test_pt_file_LDADD = libpt.a libbase.a $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_pt_pickle
TESTS += tests/unit/test_pt_pickle
tests_unit_test_pt_pickle_SOURCES = tests/unit/test_pt_pickle.c
tests_unit_test_pt_pickle_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pt_pickle_LDADD = libpt.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_command_show
TESTS += tests/unit/test_command_show
tests_unit_test_command_show_SOURCES = tests/unit/test_command_show.c tests/unit/dump_files.c tests/unit/dump_files.h \
    tests/standin/torch_file.c tests/standin/torch_file.h tests/standin/text.c tests/standin/text.h
tests_unit_test_command_show_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir) $(CMOCKA_CFLAGS)
tests_unit_test_command_show_LDADD = $(kldumpctl_LDADD) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_pt_dtype
TESTS += tests/unit/test_pt_dtype
tests_unit_test_pt_dtype_SOURCES = tests/unit/test_pt_dtype.c
tests_unit_test_pt_dtype_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pt_dtype_LDADD = libpt.a libbase.a $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_pt_hostile
TESTS += tests/unit/test_pt_hostile
tests_unit_test_pt_hostile_SOURCES = tests/unit/test_pt_hostile.c tests/unit/hostile_files.c tests/unit/hostile_files.h \
    tests/unit/dump_files.c tests/unit/dump_files.h
tests_unit_test_pt_hostile_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pt_hostile_LDADD = libpt.a libbase.a $(CMOCKA_LIBS) -lm
