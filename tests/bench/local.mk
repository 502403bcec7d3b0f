# tests/bench
check_PROGRAMS += tests/bench/keeper_kill
tests_bench_keeper_kill_SOURCES = tests/bench/keeper_kill.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_bench_keeper_kill_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_bench_keeper_kill_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)
