# tests/unit
include tests/unit/loop.mk
include tests/unit/check.mk
include tests/unit/scan.mk
include tests/unit/diff.mk

check_PROGRAMS += tests/unit/test_json
TESTS += tests/unit/test_json
tests_unit_test_json_SOURCES = tests/unit/test_json.c
tests_unit_test_json_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_json_LDADD = libjson.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_settings
TESTS += tests/unit/test_settings
tests_unit_test_settings_SOURCES = tests/unit/test_settings.c
tests_unit_test_settings_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_settings_LDADD = libconf.a libbase.a $(INIH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_http
TESTS += tests/unit/test_http
tests_unit_test_http_SOURCES = tests/unit/test_http.c tests/unit/http_server.c tests/unit/http_server.h
tests_unit_test_http_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_http_LDADD = libhttp.a libbase.a $(CURL_LIBS) $(CMOCKA_LIBS)
# Core's tests link base and core alone: a wrong dependency fails to link.
check_PROGRAMS += tests/unit/test_run
TESTS += tests/unit/test_run
tests_unit_test_run_SOURCES = tests/unit/test_run.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_run_dump
TESTS += tests/unit/test_run_dump
tests_unit_test_run_dump_SOURCES = tests/unit/test_run_dump.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_dump_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_dump_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_run_end
TESTS += tests/unit/test_run_end
tests_unit_test_run_end_SOURCES = tests/unit/test_run_end.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_end_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_end_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_run_space
TESTS += tests/unit/test_run_space
tests_unit_test_run_space_SOURCES = tests/unit/test_run_space.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_space_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_space_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_run_external
TESTS += tests/unit/test_run_external
tests_unit_test_run_external_SOURCES = tests/unit/test_run_external.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_external_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_external_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_run_watch
TESTS += tests/unit/test_run_watch
tests_unit_test_run_watch_SOURCES = tests/unit/test_run_watch.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_watch_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_watch_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_run_start
TESTS += tests/unit/test_run_start
tests_unit_test_run_start_SOURCES = tests/unit/test_run_start.c tests/unit/run_world.c tests/unit/run_world.h
tests_unit_test_run_start_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/unit $(CMOCKA_CFLAGS)
tests_unit_test_run_start_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_space
TESTS += tests/unit/test_space
tests_unit_test_space_SOURCES = tests/unit/test_space.c
tests_unit_test_space_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_space_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_backstop
TESTS += tests/unit/test_backstop
tests_unit_test_backstop_SOURCES = tests/unit/test_backstop.c
tests_unit_test_backstop_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_backstop_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_written
TESTS += tests/unit/test_written
tests_unit_test_written_SOURCES = tests/unit/test_written.c
tests_unit_test_written_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_written_LDADD = libsys.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_keeper
TESTS += tests/unit/test_keeper
tests_unit_test_keeper_SOURCES = tests/unit/test_keeper.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_unit_test_keeper_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_test_keeper_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_keeper_guard
TESTS += tests/unit/test_keeper_guard
tests_unit_test_keeper_guard_SOURCES = tests/unit/test_keeper_guard.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_unit_test_keeper_guard_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_test_keeper_guard_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_process
TESTS += tests/unit/test_process
tests_unit_test_process_SOURCES = tests/unit/test_process.c
tests_unit_test_process_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_process_LDADD = libsys.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_passing
TESTS += tests/unit/test_passing
tests_unit_test_passing_SOURCES = tests/unit/test_passing.c
tests_unit_test_passing_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_passing_LDADD = libsys.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_file
TESTS += tests/unit/test_file
tests_unit_test_file_SOURCES = tests/unit/test_file.c
tests_unit_test_file_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_file_LDADD = libsys.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_sink
TESTS += tests/unit/test_sink
tests_unit_test_sink_SOURCES = tests/unit/test_sink.c
tests_unit_test_sink_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sink_LDADD = libsys.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_sglang_command
TESTS += tests/unit/test_sglang_command
tests_unit_test_sglang_command_SOURCES = tests/unit/test_sglang_command.c
tests_unit_test_sglang_command_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_command_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_settings
TESTS += tests/unit/test_sglang_settings
tests_unit_test_sglang_settings_SOURCES = tests/unit/test_sglang_settings.c
tests_unit_test_sglang_settings_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_settings_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_answers
TESTS += tests/unit/test_sglang_answers
tests_unit_test_sglang_answers_SOURCES = tests/unit/test_sglang_answers.c
tests_unit_test_sglang_answers_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -DTEST_DATA='"$(abs_srcdir)/tests/data"'
tests_unit_test_sglang_answers_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_lines
TESTS += tests/unit/test_sglang_lines
tests_unit_test_sglang_lines_SOURCES = tests/unit/test_sglang_lines.c
tests_unit_test_sglang_lines_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_lines_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_filter
TESTS += tests/unit/test_sglang_filter
tests_unit_test_sglang_filter_SOURCES = tests/unit/test_sglang_filter.c
tests_unit_test_sglang_filter_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_filter_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_vary
TESTS += tests/unit/test_sglang_vary
tests_unit_test_sglang_vary_SOURCES = tests/unit/test_sglang_vary.c
tests_unit_test_sglang_vary_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_vary_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_respell
TESTS += tests/unit/test_sglang_respell
tests_unit_test_sglang_respell_SOURCES = tests/unit/test_sglang_respell.c
tests_unit_test_sglang_respell_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_respell_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_probe
TESTS += tests/unit/test_sglang_probe
tests_unit_test_sglang_probe_SOURCES = tests/unit/test_sglang_probe.c
tests_unit_test_sglang_probe_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sglang_probe_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_sglang_generate
TESTS += tests/unit/test_sglang_generate
tests_unit_test_sglang_generate_SOURCES = tests/unit/test_sglang_generate.c
tests_unit_test_sglang_generate_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -DTEST_DATA='"$(abs_srcdir)/tests/data"'
tests_unit_test_sglang_generate_LDADD = libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
EXTRA_DIST += \
    tests/data/answers/body-list-400.body \
    tests/data/answers/disable-200.body \
    tests/data/answers/enable-200.body \
    tests/data/answers/flush-200.body \
    tests/data/answers/generate-200.body \
    tests/data/answers/generate-types-400.body \
    tests/data/answers/generate-decode-200.body \
    tests/data/answers/generate-score-200.body \
    tests/data/answers/generate-restore-200.body \
    tests/data/answers/generate-vocab-200.body \
    tests/data/answers/generate-toolong-400.body \
    tests/data/answers/model-config.json \
    tests/data/answers/model-info-200.body \
    tests/data/answers/server-info-whole-200.body \
    tests/data/answers/get-load-404.body \
    tests/data/answers/loads-200.body \
    tests/data/answers/malformed-500.body \
    tests/data/answers/notfound-404.body \
    tests/data/answers/server-info-200.body \
    tests/data/answers/starting-state-200.body \
    tests/data/answers/state-after-200.body \
    tests/data/answers/state-before-200.body \
    tests/data/answers/state-during-200.body \
    tests/data/answers/too-long-400.body \
    tests/data/answers/unauthorized-401.body \
    tests/data/answers/unknown-key-400.body \
    tests/data/answers/unknown-method-400.body \
    tests/data/answers/wrong-type-400.body
check_PROGRAMS += tests/unit/test_cgroup
TESTS += tests/unit/test_cgroup
tests_unit_test_cgroup_SOURCES = tests/unit/test_cgroup.c
tests_unit_test_cgroup_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_cgroup_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_space_start
TESTS += tests/unit/test_space_start
tests_unit_test_space_start_SOURCES = tests/unit/test_space_start.c
tests_unit_test_space_start_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_space_start_LDADD = libcore.a libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_spark
TESTS += tests/unit/test_spark
tests_unit_test_spark_SOURCES = tests/unit/test_spark.c
tests_unit_test_spark_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_spark_LDADD = libctl.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_progress
TESTS += tests/unit/test_progress
tests_unit_test_progress_SOURCES = tests/unit/test_progress.c
tests_unit_test_progress_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_progress_LDADD = libctl.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_foreign
TESTS += tests/unit/test_foreign
tests_unit_test_foreign_SOURCES = tests/unit/test_foreign.c
tests_unit_test_foreign_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_foreign_LDADD = $(kldumpctl_LDADD) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_prompts
TESTS += tests/unit/test_prompts
tests_unit_test_prompts_SOURCES = tests/unit/test_prompts.c
tests_unit_test_prompts_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_prompts_LDADD = $(kldumpctl_LDADD) $(CMOCKA_LIBS)

# kldumpctl itself against a guard without a server
dist_check_SCRIPTS += tests/unit/test_bad_options.py tests/unit/test_ctl.py tests/unit/test_ctl_list.py tests/unit/test_doctor.py tests/unit/test_watch.py
EXTRA_DIST += tests/unit/fake_guard.py
TESTS += tests/unit/test_bad_options.py tests/unit/test_ctl.py tests/unit/test_ctl_list.py tests/unit/test_doctor.py tests/unit/test_watch.py
check_PROGRAMS += tests/unit/test_systemd
TESTS += tests/unit/test_systemd
tests_unit_test_systemd_SOURCES = tests/unit/test_systemd.c
tests_unit_test_systemd_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_systemd_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_base
TESTS += tests/unit/test_base
tests_unit_test_base_SOURCES = tests/unit/test_base.c
tests_unit_test_base_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_base_LDADD = libbase.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_keeper_freeze
TESTS += tests/unit/test_keeper_freeze
tests_unit_test_keeper_freeze_SOURCES = tests/unit/test_keeper_freeze.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_unit_test_keeper_freeze_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_test_keeper_freeze_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_keeper_kill
TESTS += tests/unit/test_keeper_kill
tests_unit_test_keeper_kill_SOURCES = tests/unit/test_keeper_kill.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_unit_test_keeper_kill_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_test_keeper_kill_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_rules
TESTS += tests/unit/test_rules
tests_unit_test_rules_SOURCES = tests/unit/test_rules.c
tests_unit_test_rules_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_rules_LDADD = libconf.a libbase.a $(INIH_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_admin
TESTS += tests/unit/test_admin
tests_unit_test_admin_SOURCES = tests/unit/test_admin.c
tests_unit_test_admin_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_admin_LDADD = libsys.a libcore.a libconf.a libbase.a $(INIH_LIBS) $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_dump_folder
TESTS += tests/unit/test_dump_folder
tests_unit_test_dump_folder_SOURCES = tests/unit/test_dump_folder.c
tests_unit_test_dump_folder_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_dump_folder_LDADD = libsys.a libcore.a libconf.a libjson.a libbase.a $(CJSON_LIBS) $(INIH_LIBS) $(CMOCKA_LIBS)

# Reports of diffs that are made by hand
check_PROGRAMS += tests/unit/test_report
TESTS += tests/unit/test_report
tests_unit_test_report_SOURCES = tests/unit/test_report.c tests/unit/diff_world.c tests/unit/diff_world.h
tests_unit_test_report_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_test_report_LDADD = libanalysis.a libpt.a libsglang.a libjson.a libcore.a libbase.a $(CJSON_LIBS) $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/report_samples
tests_unit_report_samples_SOURCES = tests/unit/report_samples.c tests/unit/diff_world.c tests/unit/diff_world.h
tests_unit_report_samples_CPPFLAGS = $(AM_CPPFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_report_samples_LDADD = $(kldumpctl_LDADD)
dist_check_SCRIPTS += tests/unit/test_reports.py
TESTS += tests/unit/test_reports.py
