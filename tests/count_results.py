#!/usr/bin/python3
"""Prints 'PASSED FAILED SKIPPED' of finished tests.

  count_results.py FOLDER     a build folder after make check: a cmocka program by its tests, any other program as one
  count_results.py FILE.xml   a JUnit report, as pytest writes it
"""
import collections
import re
import sys
import xml.etree.ElementTree
from pathlib import Path


def of_programs(folder):
    total = collections.Counter()
    for result_file in folder.rglob("*.trs"):
        results = set(re.findall(r"^:test-result: (\w+)", result_file.read_text(encoding="utf-8"), re.M))
        log = result_file.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
        tests = collections.Counter()
        for word, number in re.findall(r"^\[ *(PASSED|FAILED|SKIPPED) *\] (\d+) test", log, re.M):
            tests[word] += int(number)
        bad = bool(results & {"FAIL", "ERROR", "XPASS"})
        if not tests and not bad:
            tests["SKIPPED" if "SKIP" in results else "PASSED"] = 1
        if bad and not tests["FAILED"]:  # a crash: it never came to count
            tests["FAILED"] = 1
        total += tests
    return total


def of_report(path):
    total = collections.Counter()
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        found = {child.tag for child in case}
        total["FAILED" if found & {"failure", "error"} else "SKIPPED" if "skipped" in found else "PASSED"] += 1
    return total


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    total = of_programs(path) if path.is_dir() else of_report(path)
    print(total["PASSED"], total["FAILED"], total["SKIPPED"])


if __name__ == "__main__":
    main()
