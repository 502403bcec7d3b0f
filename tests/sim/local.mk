# tests/sim: links base and core alone
check_PROGRAMS += tests/sim/sim_run
TESTS += tests/sim/sim_run
tests_sim_sim_run_SOURCES = tests/sim/sim.h tests/sim/sim_happen.c tests/sim/sim_plan.c tests/sim/sim_rules.c \
    tests/sim/sim_run.c tests/sim/sim_server.c tests/sim/sim_shrink.c tests/sim/sim_world.c
tests_sim_sim_run_CPPFLAGS = $(AM_CPPFLAGS) -iquote $(srcdir)/tests/sim
tests_sim_sim_run_LDADD = libcore.a libbase.a

# bugs planted in copies of the machine, each found by the simulation
dist_check_SCRIPTS += tests/sim/planted.py
TESTS += tests/sim/planted.py
