# Real loops; each test ends with uv_loop_close() == 0.
loop_test_CPPFLAGS = $(AM_CPPFLAGS) $(UV_CFLAGS) $(CMOCKA_CFLAGS)
loop_test_LDADD = libloop.a libsys.a libcore.a libjson.a libbase.a $(UV_LIBS) $(CJSON_LIBS) $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_loop_control
TESTS += tests/unit/test_loop_control
tests_unit_test_loop_control_SOURCES = tests/unit/test_loop_control.c tests/unit/loop_helper.h tests/unit/control_helper.h
tests_unit_test_loop_control_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_control_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_control_bind
TESTS += tests/unit/test_loop_control_bind
tests_unit_test_loop_control_bind_SOURCES = tests/unit/test_loop_control_bind.c tests/unit/loop_helper.h tests/unit/control_helper.h
tests_unit_test_loop_control_bind_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_control_bind_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_control_fuzz
TESTS += tests/unit/test_loop_control_fuzz
tests_unit_test_loop_control_fuzz_SOURCES = tests/unit/test_loop_control_fuzz.c tests/unit/loop_helper.h tests/unit/control_helper.h
tests_unit_test_loop_control_fuzz_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_control_fuzz_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_control_users
TESTS += tests/unit/test_loop_control_users
tests_unit_test_loop_control_users_SOURCES = tests/unit/test_loop_control_users.c tests/unit/loop_helper.h tests/unit/control_helper.h
tests_unit_test_loop_control_users_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_control_users_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_watcher
TESTS += tests/unit/test_loop_watcher
tests_unit_test_loop_watcher_SOURCES = tests/unit/test_loop_watcher.c tests/unit/loop_helper.h
tests_unit_test_loop_watcher_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_watcher_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_survey
TESTS += tests/unit/test_loop_survey
tests_unit_test_loop_survey_SOURCES = tests/unit/test_loop_survey.c tests/unit/loop_helper.h
tests_unit_test_loop_survey_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_survey_LDADD = libloop.a libsys.a libcore.a libbase.a $(UV_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_loop_child
TESTS += tests/unit/test_loop_child
tests_unit_test_loop_child_SOURCES = tests/unit/test_loop_child.c tests/unit/loop_helper.h
tests_unit_test_loop_child_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_child_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_output
TESTS += tests/unit/test_loop_output
tests_unit_test_loop_output_SOURCES = tests/unit/test_loop_output.c tests/unit/loop_helper.h
tests_unit_test_loop_output_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_output_LDADD = $(loop_test_LDADD)

check_PROGRAMS += tests/unit/test_loop_transfers
TESTS += tests/unit/test_loop_transfers
tests_unit_test_loop_transfers_SOURCES = tests/unit/test_loop_transfers.c tests/unit/loop_helper.h \
    tests/unit/http_server.c tests/unit/http_server.h
tests_unit_test_loop_transfers_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_transfers_LDADD = libloop.a libhttp.a libbase.a $(UV_LIBS) $(CURL_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_loop_daemon_owned
TESTS += tests/unit/test_loop_daemon_owned
tests_unit_test_loop_daemon_owned_SOURCES = tests/unit/test_loop_daemon_owned.c tests/unit/loop_helper.h
tests_unit_test_loop_daemon_owned_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_daemon_owned_LDADD = libloop.a libhttp.a libsys.a libconf.a $(loop_test_LDADD) $(SYSTEMD_LIBS) $(INIH_LIBS) \
    $(CURL_LIBS)

check_PROGRAMS += tests/unit/test_loop_registry
TESTS += tests/unit/test_loop_registry
tests_unit_test_loop_registry_SOURCES = tests/unit/test_loop_registry.c tests/unit/loop_helper.h
tests_unit_test_loop_registry_CPPFLAGS = $(loop_test_CPPFLAGS)
tests_unit_test_loop_registry_LDADD = $(loop_test_LDADD)
