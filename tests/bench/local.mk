# tests/bench: figures side by side with what a user would otherwise take; never a test
EXTRA_PROGRAMS = tests/bench/floor_writer tests/bench/request_load tests/bench/dump_pairs tests/bench/bare_compare tests/bench/pt_open
tests_bench_bare_compare_SOURCES = tests/bench/bare_compare.c
tests_bench_dump_pairs_SOURCES = tests/bench/dump_pairs.c tests/standin/torch_file.c tests/standin/torch_file.h \
    tests/standin/text.c tests/standin/text.h
tests_bench_dump_pairs_CPPFLAGS = $(AM_CPPFLAGS) -iquote $(srcdir)
tests_bench_pt_open_SOURCES = tests/bench/pt_open.c
tests_bench_pt_open_LDADD = libpt.a libbase.a -lm
tests_bench_floor_writer_SOURCES = tests/bench/floor_writer.c
tests_bench_request_load_SOURCES = tests/bench/request_load.c
dist_noinst_SCRIPTS += tests/bench/bench_daemon.py tests/bench/bench_diff.py tests/bench/bench_floor.py tests/bench/bench_idle.py tests/bench/bench_real.py

check_PROGRAMS += tests/bench/keeper_kill
tests_bench_keeper_kill_SOURCES = tests/bench/keeper_kill.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_bench_keeper_kill_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_bench_keeper_kill_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)

# BENCH_RUNS=50 for figures that are kept: a quarter of an hour
BENCH_RUNS = 5
# BENCH_DAEMON='--churn-runs 500 --churn-seconds 600' likewise: ten minutes
BENCH_DAEMON =
bench: all tests/bench/floor_writer tests/bench/keeper_kill tests/bench/request_load
	tests/bench/keeper_kill
	/usr/bin/python3 $(srcdir)/tests/bench/bench_floor.py $(BENCH_RUNS)
	/usr/bin/python3 $(srcdir)/tests/bench/bench_idle.py
	/usr/bin/python3 -B $(srcdir)/tests/bench/bench_daemon.py $(BENCH_DAEMON)
	/usr/bin/python3 -B $(srcdir)/tests/bench/bench_real.py

# BENCH_DIFF='--million' for figures that are kept: 10 GB below TMPDIR
BENCH_DIFF =
bench-diff: all tests/bench/dump_pairs tests/bench/bare_compare
	/usr/bin/python3 -B $(srcdir)/tests/bench/bench_diff.py $(BENCH_DIFF)
CLEANFILES += bench_daemon.json bench_diff.json bench_floor.json bench_idle.json bench_real.json
.PHONY: bench bench-diff

# BENCH_DUMPS: folders with dump files
BENCH_DUMPS =
bench-pt: tests/bench/pt_open
	tests/bench/pt_open $(BENCH_DUMPS)
.PHONY: bench-pt
