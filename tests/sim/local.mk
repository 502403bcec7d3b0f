# tests/sim: links base and core alone
check_PROGRAMS += tests/sim/sim_run
TESTS += tests/sim/sim_run
tests_sim_sim_run_SOURCES = tests/sim/sim_run.c
tests_sim_sim_run_LDADD = libcore.a libbase.a
