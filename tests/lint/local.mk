# tests/lint
dist_check_SCRIPTS += tests/lint/shell.sh
TESTS += tests/lint/shell.sh
