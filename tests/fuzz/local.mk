# tests/fuzz: `make check` replays what the fuzzers found; `make fuzz` looks for more (clang with libFuzzer)
AM_TESTS_ENVIRONMENT = CC='$(CC)'; export CC;
check_PROGRAMS += tests/fuzz/fuzz_replay tests/fuzz/fuzz_seeds
dist_check_SCRIPTS += tests/fuzz/replay.sh
TESTS += tests/fuzz/replay.sh
EXTRA_DIST += tests/fuzz/corpus.tar.gz tests/fuzz/fuzz_entry.c
fuzz_targets = tests/fuzz/fuzz_container.c tests/fuzz/fuzz_pickle.c tests/fuzz/fuzz_dump_name.c tests/fuzz/fuzz_meta.c
tests_fuzz_fuzz_replay_SOURCES = tests/fuzz/fuzz_replay.c $(fuzz_targets) tests/fuzz/fuzz.h
tests_fuzz_fuzz_replay_LDADD = libpt.a libsglang.a libbase.a -lm
tests_fuzz_fuzz_seeds_SOURCES = tests/fuzz/fuzz_seeds.c tests/unit/dump_files.c tests/unit/dump_files.h \
    tests/unit/hostile_files.c tests/unit/hostile_files.h
tests_fuzz_fuzz_seeds_CPPFLAGS = $(AM_CPPFLAGS) -iquote $(srcdir)/tests/unit
tests_fuzz_fuzz_seeds_LDADD = libpt.a libbase.a -lm

# Nightly. FUZZ_SECONDS for each of the four; what is found stays in fuzz/ of the build folder, bad inputs as fuzz/bad-*.
# A corpus worth keeping is made smaller and packed with `make fuzz-keep`.
FUZZ_CC = clang
FUZZ_SECONDS = 600
fuzz_names = container pickle dump_name meta
fuzz_build = $(FUZZ_CC) -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all $(AM_CPPFLAGS)
fuzz: tests/fuzz/fuzz_seeds
	tests/fuzz/fuzz_seeds fuzz-seeds
	for name in $(fuzz_names); do \
	    mkdir -p fuzz/corpus/$$name && tar -xzf $(srcdir)/tests/fuzz/corpus.tar.gz -C fuzz/corpus && \
	    $(fuzz_build) -DFUZZ_TARGET=fuzz_$$name -o fuzz/fuzz_$$name $(srcdir)/tests/fuzz/fuzz_$$name.c \
	        $(srcdir)/tests/fuzz/fuzz_entry.c $(srcdir)/src/pt/*.c $(srcdir)/src/base/*.c \
	        $(srcdir)/src/sglang/dump_name.c -lm -pthread && \
	    fuzz/fuzz_$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=16384 -print_final_stats=1 \
	        -artifact_prefix=fuzz/bad-$$name- fuzz/corpus/$$name fuzz-seeds/$$name || exit 1; \
	done
fuzz-keep:
	for name in $(fuzz_names); do \
	    mkdir -p fuzz/kept/$$name && fuzz/fuzz_$$name -merge=1 fuzz/kept/$$name fuzz/corpus/$$name || exit 1; \
	done
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C fuzz/kept -c $(fuzz_names) | \
	    gzip -9n >$(srcdir)/tests/fuzz/corpus.tar.gz
clean-local: fuzz-clean
fuzz-clean:
	rm -rf fuzz fuzz-seeds
.PHONY: fuzz fuzz-keep fuzz-clean
