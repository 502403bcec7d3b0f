#!/usr/bin/env python3
"""Lint of tests/facts.md: every test that it names is there, and no fact is without one.

Run by `make check`, with the source folder in $srcdir. A test of the last column must run on the real server: it has the
parameter `server`, `servers` or `armed`, or stands in a file that is marked `real`.
"""
import os
import re
import sys
from pathlib import Path

SOURCE = Path(os.environ.get("srcdir", ".")).resolve()
TABLE = SOURCE / "tests/facts.md"
NAMED = re.compile(r"`([\w/]+)::(\w+)`")


def file_of(short):
    if short == "standin":
        return SOURCE / "tests/standin/test_standin.py"
    if short.startswith("unit/"):
        stem = SOURCE / f"tests/unit/test_{short[5:]}"
        return stem.with_suffix(".c") if stem.with_suffix(".c").exists() else stem.with_suffix(".py")
    return SOURCE / f"tests/integration/test_{short}.py"


def definition(path, name):
    """The line that defines the test, "" when there is none."""
    if not path.exists():
        return ""
    form = rf"^static void {name}\(void \*\*" if path.suffix == ".c" else rf"^ *def {name}\(.*"
    found = re.search(form, path.read_text(), re.M)
    return found.group(0) if found else ""


def is_real(path, line):
    return bool(re.search(r"[(, ](server|servers|armed)[,)]", line)) or re.search(r"^pytestmark = .*\breal\b", path.read_text(), re.M) is not None


def main():
    problems, rows, tests = [], 0, 0
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if not line.startswith("| ") or line.startswith("| fact |"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        rows += 1
        if len(cells) != 3:
            problems.append(f"{number}: {len(cells)} columns; expected fact, stand-in, real server")
            continue
        if not NAMED.search(cells[1]):
            problems.append(f"{number}: no test against the stand-in: {cells[0][:60]}")
        if not cells[2]:
            problems.append(f"{number}: neither a test with the real server nor why there is none: {cells[0][:60]}")
        for column in (1, 2):
            for short, name in NAMED.findall(cells[column]):
                tests += 1
                found = definition(file_of(short), name)
                if not found:
                    problems.append(f"{number}: {short}::{name}: no such test in {file_of(short).relative_to(SOURCE)}")
                elif column == 2 and not is_real(file_of(short), found):
                    problems.append(f"{number}: {short}::{name}: does not run on the real server")
    for problem in problems:
        print(f"tests/facts.md:{problem}")
    print(f"{rows} facts, {tests} tests named, {len(problems)} problems")
    return 1 if problems or rows == 0 or tests == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
