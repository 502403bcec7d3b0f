#!/usr/bin/python3
"""Options that are wrong: each message names the thing, the value, what was expected, and what to do; nothing is begun.

The same options for `run`, which is the guard itself, and for `start` and `doctor`, which check them beforehand."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_ctl import Base  # noqa: E402

SIZE = ["is not a size", "expected a number with a unit", "such as 20G"]
NAME = ["is not a name", "1 to 64 of A-Z a-z 0-9 . _ -"]
DURATION = ["is not a duration", "expected a whole number with a unit", "such as 30s"]
# (options, texts that the message must hold)
BAD = [
    (["--bogus"], ["unknown option '--bogus'", "kldumpctl help run"]),
    (["--flor", "5G"], ["unknown option '--flor'", "did you mean --floor?"]),
    (["-x"], ["unknown option '-x'"]),
    (["--floor"], ["--floor needs a value after it"]),
    (["--floor", "1G", "--floor", "2G"], ["--floor is given twice", "'1G' and '2G'"]),
    (["--floor", "20"], ["--floor: '20'", *SIZE]),
    (["--floor", "-1G"], ["--floor: '-1G'", *SIZE]),
    (["--floor", "1e3"], ["--floor: '1e3'", *SIZE]),
    (["--floor", "12345678901234567"], ["--floor: '12345678901234567'", *SIZE]),
    (["--floor", "0"], ["--floor: '0'", *SIZE]),
    (["--floor", "0G"], ["--floor: 0G is out of bounds", "at least 1 B"]),
    (["--floor", "10GB"], ["--floor: '10GB'", *SIZE]),
    (["--floor", ""], ["--floor: ''", *SIZE]),
    (["--floor", "123456789012345678901T"], ["--floor: 123456789012345678901T is larger than any disk", "such as 20G"]),
    (["--floor", "0%"], ["--floor: 0% is out of bounds", "at most 90%"]),
    (["--floor", "95%"], ["--floor: 95% is out of bounds", "at most 90%"]),
    (["--floor", "150%"], ["--floor: 150% is more than the whole"]),
    (["--soft", "5"], ["--soft: '5'", *SIZE]),
    (["--soft", "0%"], ["--soft: 0% is out of bounds"]),
    (["--budget", "5%"], ["--budget: '5%'", *SIZE]),
    (["--budget", "0B"], ["--budget: 0B is out of bounds", "at least 1 B"]),
    (["--name", "a/b"], ["--name: 'a/b'", *NAME]),
    (["--name", "a\nb"], ["--name: 'a?b'", *NAME]),
    (["--name", "\x1b[31m"], ["--name: '?[31m'", *NAME]),
    (["--name", ".."], ["--name: '..'", *NAME]),
    (["--name", "-n"], ["--name: '-n'", *NAME]),
    (["--name", ""], ["--name: ''", *NAME]),
    (["--name", "n" * 300], ["--name: 'nnnn", *NAME]),
    (["--name", "n\u00e4me"], ["--name: 'n\u00e4me'", *NAME]),
    (["--start-timeout", "5"], ["--start-timeout: '5'", *DURATION]),
    (["--start-timeout", "1e3s"], ["--start-timeout: '1e3s'", *DURATION]),
    (["--stop-timeout", "0s"], ["--stop-timeout: 0s is out of bounds", "at least 100 ms"]),
    (["--stop-timeout", "9999999999999999999h"], ["--stop-timeout: 9999999999999999999h is longer than 30 days"]),
    (["--floor", "5", "--name", "/", "--what"], ["--floor: '5'", "--name: '/'", "'--what'"]),
]


class BadOptions(Base):
    def refuse(self, command, options, status, texts):
        _, err = self.ctl(command, *options, "--", "true", status=status)
        first = err.splitlines()[0]
        for text in texts:
            self.assertIn(text, first, (command, options))
        self.assertLess(len(first), 700)
        self.assertNotRegex(err, "[\x00-\x09\x0b-\x1f\x7f]")
        return err

    def test_table(self):
        for options, texts in BAD:
            for command, status in (("run", 125), ("start", 2), ("doctor", 2)):
                self.refuse(command, options, status, texts)
        self.assertEqual(os.listdir(self.runtime), [], "nothing was begun")

    def run_guard(self, *options, status):
        return self.ctl("run", "--dir", self.runtime + "/dumps", *options, "--", "/bin/false", status=status)[1]

    def test_floor_larger_than_the_disk(self):
        err = self.run_guard("--floor", "8000T", status=88)
        self.assertIn("the floor 7.8 PiB is larger than the whole filesystem of " + self.runtime, err)
        self.assertIn("give a lower --floor or another --dir", err)

    def test_soft_below_the_floor(self):
        err = self.run_guard("--floor", "2M", "--soft", "1M", status=80)
        self.assertIn("--soft 1.0 MiB is below the floor 2.0 MiB", err)
        self.assertIn("give a higher --soft or a lower --floor", err)

    def test_two_runs_with_one_name(self):
        self.guard("t")
        err = self.run_guard("--name", "t", "--floor", "1M", status=88)
        self.assertIn("a run named t is live; choose another --name, or end it: kldumpctl stop t", err)

    def test_no_command(self):
        for arguments, text in (([], "the command is missing"), (["--"], "no command stands after ' -- '"),
                                (["true"], "'true' is not an option; the command comes after ' -- '")):
            self.assertIn(text, self.ctl("run", *arguments, status=125)[1])
            self.assertIn(text, self.ctl("start", *arguments, status=2)[1])


if __name__ == "__main__":
    unittest.main(verbosity=1)
