# Tests of `kldumpctl diff`: dump folders of a small model, and what is found in them.
check_LIBRARIES = libscenario.a
libscenario_a_SOURCES = \
    tests/unit/scenario.c tests/unit/scenario.h tests/unit/scenario_forward.c tests/unit/scenario_internal.h \
    tests/unit/scenarios.c tests/unit/scenarios_restored.c tests/unit/scenarios.h tests/unit/scenarios.def tests/unit/dump_files.c tests/unit/dump_files.h \
    tests/standin/torch_file.c tests/standin/torch_file.h tests/standin/text.c tests/standin/text.h
libscenario_a_CPPFLAGS = $(AM_CPPFLAGS) -iquote $(srcdir)

check_PROGRAMS += tests/unit/test_scenario
TESTS += tests/unit/test_scenario
tests_unit_test_scenario_SOURCES = tests/unit/test_scenario.c
tests_unit_test_scenario_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir) -DTEST_DATA='"$(abs_srcdir)/tests/data"'
tests_unit_test_scenario_LDADD = libscenario.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_segment
TESTS += tests/unit/test_segment
tests_unit_test_segment_SOURCES = tests/unit/test_segment.c
tests_unit_test_segment_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_segment_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_side
TESTS += tests/unit/test_side
tests_unit_test_side_SOURCES = tests/unit/test_side.c
tests_unit_test_side_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_side_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_alignment
TESTS += tests/unit/test_alignment
tests_unit_test_alignment_SOURCES = tests/unit/test_alignment.c
tests_unit_test_alignment_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_alignment_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_alignment_real
TESTS += tests/unit/test_alignment_real
tests_unit_test_alignment_real_SOURCES = tests/unit/test_alignment_real.c tests/unit/real_dump.c tests/unit/real_dump.h
tests_unit_test_alignment_real_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_alignment_real_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libjson.a libcore.a libbase.a \
    $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
EXTRA_DIST += \
    tests/data/real/fault-rms-f32-0.5.23.tar.gz tests/data/real/gpu-attn-bf16-0.5.16.tar.gz \
    tests/data/real/gpu-equal-bf16-0.5.16.tar.gz tests/data/real/gpu-graph-bf16-0.5.16.tar.gz \
    tests/data/real/invariant-f32-0.5.23.tar.gz tests/data/real/llama-bf16-0.5.23.tar.gz \
    tests/data/real/llama-f32-0.5.20.tar.gz tests/data/real/llama-f32-0.5.23.tar.gz

check_PROGRAMS += tests/unit/test_alignment_random
TESTS += tests/unit/test_alignment_random
tests_unit_test_alignment_random_SOURCES = tests/unit/test_alignment_random.c
tests_unit_test_alignment_random_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_alignment_random_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_diff_scenarios
TESTS += tests/unit/test_diff_scenarios
tests_unit_test_diff_scenarios_SOURCES = tests/unit/test_diff_scenarios.c
tests_unit_test_diff_scenarios_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)
tests_unit_test_diff_scenarios_LDADD = libscenario.a libanalysis.a libpt.a libsglang.a libcore.a libbase.a $(CMOCKA_LIBS) -lm

# kldumpctl diff as a program's caller sees it
check_PROGRAMS += tests/unit/diff_folders
tests_unit_diff_folders_SOURCES = tests/unit/diff_folders.c
tests_unit_diff_folders_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir) -iquote $(srcdir)/tests/unit
tests_unit_diff_folders_LDADD = libscenario.a libbase.a $(CMOCKA_LIBS)
dist_check_SCRIPTS += tests/unit/test_command_diff.py
TESTS += tests/unit/test_command_diff.py

# kldumpctl kl: numbers and their reading
check_PROGRAMS += tests/unit/test_invariance
TESTS += tests/unit/test_invariance
tests_unit_test_invariance_SOURCES = tests/unit/test_invariance.c
tests_unit_test_invariance_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_invariance_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_operator_script
TESTS += tests/unit/test_operator_script
tests_unit_test_operator_script_SOURCES = tests/unit/test_operator_script.c
tests_unit_test_operator_script_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_operator_script_LDADD = libsglang.a libbase.a $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_kl
TESTS += tests/unit/test_kl
tests_unit_test_kl_SOURCES = tests/unit/test_kl.c tests/unit/kl_world.c tests/unit/kl_world.h
tests_unit_test_kl_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_kl_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_kl_token
TESTS += tests/unit/test_kl_token
tests_unit_test_kl_token_SOURCES = tests/unit/test_kl_token.c
tests_unit_test_kl_token_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_kl_token_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS) -lm

# kldumpctl kl --explain: altered ids, numbers, the answer
check_PROGRAMS += tests/unit/test_kl_explain
TESTS += tests/unit/test_kl_explain
tests_unit_test_kl_explain_SOURCES = tests/unit/test_kl_explain.c
tests_unit_test_kl_explain_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_kl_explain_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_kl_vary
TESTS += tests/unit/test_kl_vary
tests_unit_test_kl_vary_SOURCES = tests/unit/test_kl_vary.c
tests_unit_test_kl_vary_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_kl_vary_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS)

# kldumpctl state-diff: the lines of the probe and their slots
check_PROGRAMS += tests/unit/test_state_diff
TESTS += tests/unit/test_state_diff
tests_unit_test_state_diff_SOURCES = tests/unit/test_state_diff.c
tests_unit_test_state_diff_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_state_diff_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS)

# kldumpctl ab: two results of the same requests
check_PROGRAMS += tests/unit/test_ab
TESTS += tests/unit/test_ab
tests_unit_test_ab_SOURCES = tests/unit/test_ab.c
tests_unit_test_ab_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ab_LDADD = libanalysis.a libbase.a $(CMOCKA_LIBS) -lm

# kldumpctl investigate: what its steps mean together
check_PROGRAMS += tests/unit/test_investigation
TESTS += tests/unit/test_investigation
tests_unit_test_investigation_SOURCES = tests/unit/test_investigation.c \
    tests/unit/investigation_world.c tests/unit/investigation_world.h
tests_unit_test_investigation_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_test_investigation_LDADD = libanalysis.a libpt.a libsglang.a libbase.a $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_investigate_read
TESTS += tests/unit/test_investigate_read
tests_unit_test_investigate_read_SOURCES = tests/unit/test_investigate_read.c
tests_unit_test_investigate_read_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_investigate_read_LDADD = $(kldumpctl_LDADD) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/investigate_samples
tests_unit_investigate_samples_SOURCES = tests/unit/investigate_samples.c \
    tests/unit/investigation_world.c tests/unit/investigation_world.h
tests_unit_investigate_samples_CPPFLAGS = $(AM_CPPFLAGS) -iquote $(srcdir)/tests/unit
tests_unit_investigate_samples_LDADD = $(kldumpctl_LDADD)
dist_check_SCRIPTS += tests/unit/test_investigate_reports.py
TESTS += tests/unit/test_investigate_reports.py
