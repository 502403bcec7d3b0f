# tests/integration
EXTRA_DIST += tests/integration/fake_guard.py tests/integration/kldump_programs.py \
    tests/integration/test_daemon.py tests/integration/test_daemon_relay.py
