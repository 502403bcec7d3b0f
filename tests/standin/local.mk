# The stand-in server: shares no file with src/.
noinst_PROGRAMS += kldump-standin
kldump_standin_SOURCES = \
    tests/standin/standin.c \
    tests/standin/arguments.c tests/standin/arguments.h tests/standin/arguments.def \
    tests/standin/bad_answer.c tests/standin/bad_answer.h \
    tests/standin/channel.c tests/standin/channel.h \
    tests/standin/compute.c tests/standin/compute.h \
    tests/standin/dump_write.c tests/standin/dump_write.h \
    tests/standin/dumper.c tests/standin/dumper.h \
    tests/standin/faults.c tests/standin/faults.h tests/standin/faults.def \
    tests/standin/filter.c tests/standin/filter.h \
    tests/standin/forward.c tests/standin/forward.h tests/standin/modules.def \
    tests/standin/generate.c tests/standin/generate.h \
    tests/standin/helpers.c tests/standin/helpers.h \
    tests/standin/http.c tests/standin/http.h \
    tests/standin/knobs.c tests/standin/knobs.h \
    tests/standin/kv.c tests/standin/kv.h \
    tests/standin/locations.c tests/standin/locations.h \
    tests/standin/log.c tests/standin/log.h \
    tests/standin/model.c tests/standin/model.h \
    tests/standin/operators.c tests/standin/operators.h \
    tests/standin/passes.c tests/standin/passes.h \
    tests/standin/processes.c tests/standin/processes.h \
    tests/standin/ranks.c tests/standin/ranks.h \
    tests/standin/request.c tests/standin/request.h \
    tests/standin/routes.c tests/standin/routes.h \
    tests/standin/scheduler.c tests/standin/scheduler.h \
    tests/standin/server.c tests/standin/server.h \
    tests/standin/server_info.c tests/standin/server_info.h \
    tests/standin/state_probe.c tests/standin/state_probe.h \
    tests/standin/text.c tests/standin/text.h \
    tests/standin/title.c tests/standin/title.h \
    tests/standin/tls.c tests/standin/tls.h \
    tests/standin/torch_file.c tests/standin/torch_file.h \
    tests/standin/version.c tests/standin/version.h \
    tests/standin/weights.c tests/standin/weights.h
# One order of every sum: no product is fused into a sum here and not there. The sums of several columns go side by side.
NUMBERS_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -ftree-vectorize
kldump_standin_CFLAGS = $(NUMBERS_CFLAGS) $(CJSON_CFLAGS)
kldump_standin_LDADD = $(CJSON_LIBS) -lm
EXTRA_DIST += tests/data/standin/seq_lens.pt tests/data/standin/rids.pt tests/data/standin/rotary_emb.pt \
    tests/data/standin/llama-3-layers-0.5.20.txt tests/data/standin/llama-3-layers-0.5.23.txt \
    tests/data/standin/llama-3-layers-0.5.23-stage-0.txt tests/data/standin/llama-3-layers-0.5.23-stage-1.txt
dist_check_SCRIPTS += tests/standin/test_standin.py tests/standin/test_numbers.py
EXTRA_DIST += tests/standin/README.md tests/standin/standin.py tests/standin/contract.py tests/data/standin/contract-0.5.23.json.gz \
    tests/data/standin/contract-0.5.23-two-stages.json.gz
TESTS += tests/standin/test_standin.py tests/standin/test_numbers.py

check_PROGRAMS += tests/unit/test_torch_file
TESTS += tests/unit/test_torch_file
tests_unit_test_torch_file_SOURCES = tests/unit/test_torch_file.c \
    tests/standin/torch_file.c tests/standin/torch_file.h tests/standin/text.c tests/standin/text.h
tests_unit_test_torch_file_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir) $(CMOCKA_CFLAGS)
tests_unit_test_torch_file_LDADD = $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_operators
TESTS += tests/unit/test_operators
tests_unit_test_operators_SOURCES = tests/unit/test_operators.c \
    tests/standin/operators.c tests/standin/operators.h tests/standin/torch_file.c tests/standin/torch_file.h \
    tests/standin/text.c tests/standin/text.h
tests_unit_test_operators_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir) $(CMOCKA_CFLAGS)
tests_unit_test_operators_CFLAGS = $(NUMBERS_CFLAGS)
tests_unit_test_operators_LDADD = $(CMOCKA_LIBS) -lm
