# tests/lint
dist_check_SCRIPTS += tests/lint/shell.sh tests/lint/source.py
TESTS += tests/lint/shell.sh tests/lint/source.py
dist_check_SCRIPTS += tests/lint/manual.py
TESTS += tests/lint/manual.py
dist_check_SCRIPTS += tests/lint/facts.py
TESTS += tests/lint/facts.py
EXTRA_DIST += tests/facts.md
