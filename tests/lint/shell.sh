#!/bin/sh
# The shell scripts pass shellcheck.
command -v shellcheck >/dev/null || { echo "shellcheck is not installed" && exit 77; }
cd "${srcdir:-.}" || exit 1
exec shellcheck -x scripts/build scripts/demo scripts/packages scripts/test tests/lint/*.sh tests/fuzz/*.sh
