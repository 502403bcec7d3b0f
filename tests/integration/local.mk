# tests/integration
EXTRA_DIST += tests/integration/fake_guard.py tests/integration/kldump_programs.py tests/integration/ports.py tests/integration/shared_memory.py \
    tests/integration/test_doctor.py tests/integration/test_daemon.py tests/integration/test_daemon_relay.py \
    tests/integration/conftest.py tests/integration/guarded.py tests/integration/send.py \
    tests/integration/test_armed_run.py tests/integration/test_ends.py tests/integration/test_starts.py \
    tests/integration/test_bad_input.py tests/integration/test_clients.py tests/integration/test_completions.py \
    tests/integration/test_socket.py tests/integration/test_access.py tests/integration/test_memory.py tests/integration/test_protocol.py tests/integration/test_contract.py tests/integration/test_death.py tests/integration/test_faults.py tests/integration/test_filters.py \
    tests/integration/test_manners.py tests/integration/test_tls.py tests/integration/tls_front.py tests/integration/test_statuses.py
EXTRA_DIST += tests/integration/test_capture.py tests/integration/test_plain.py tests/integration/test_diff_standin.py
EXTRA_DIST += tests/integration/test_space.py tests/integration/fuse_disk.py
EXTRA_DIST += tests/integration/test_real.py tests/integration/test_real_daemon.py tests/integration/test_rules.py tests/integration/test_versions.py
EXTRA_DIST += tests/integration/test_daemon_churn.py tests/integration/test_records.py
EXTRA_DIST += tests/integration/guarantees.py tests/integration/test_guarantees.py
EXTRA_DIST += tests/integration/systemd_guest.py tests/integration/test_systemd.py

EXTRA_DIST += tests/integration/test_kill.py tests/integration/test_backstop.py tests/integration/register_guard.py
check_PROGRAMS += tests/integration/keeper_stuck
TESTS += tests/integration/keeper_stuck
tests_integration_keeper_stuck_SOURCES = tests/integration/keeper_stuck.c tests/unit/keeper_world.c tests/unit/keeper_world.h
tests_integration_keeper_stuck_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) -iquote $(srcdir)/tests/unit
tests_integration_keeper_stuck_LDADD = libsys.a libbase.a $(SYSTEMD_LIBS) $(CMOCKA_LIBS)

EXTRA_DIST += tests/integration/test_pt_torch.py tests/integration/torch_dumps.py
check_PROGRAMS += tests/integration/torch_read
tests_integration_torch_read_SOURCES = tests/integration/torch_read.c
tests_integration_torch_read_LDADD = libpt.a libbase.a -lm
EXTRA_DIST += tests/integration/test_diff.py tests/integration/test_ab.py
EXTRA_DIST += tests/integration/test_invariance.py tests/integration/test_investigate.py
EXTRA_DIST += tests/integration/test_state_diff.py tests/integration/test_state_probe.py tests/integration/state_probe_world.py
EXTRA_DIST += tests/integration/test_kl_explain.py
EXTRA_DIST += tests/integration/test_kl.py tests/integration/kl_helpers.py tests/integration/recorder.py tests/integration/test_kl_harness.py tests/integration/test_kl_planted.py tests/integration/test_kl_vary.py tests/integration/test_method_bad_input.py
EXTRA_DIST += tests/integration/many_users.py tests/integration/test_daemon_users.py tests/integration/test_secret.py
