# tests/integration
EXTRA_DIST += tests/integration/fake_guard.py tests/integration/kldump_programs.py \
    tests/integration/test_daemon.py tests/integration/test_daemon_relay.py \
    tests/integration/conftest.py tests/integration/guarded.py tests/integration/send.py \
    tests/integration/test_armed_run.py tests/integration/test_ends.py tests/integration/test_starts.py
EXTRA_DIST += tests/integration/systemd_guest.py tests/integration/test_systemd.py
