#!/usr/bin/python3
"""kldumpctl status --watch: on a terminal, in a pipe, as JSON."""
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_guard import Guard  # noqa: E402
from test_ctl import KLDUMPCTL, Base  # noqa: E402

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """kldumpctl on a terminal of its own, with what it has written so far."""

    def __init__(self, test, *arguments, columns=100, rows=40, **environment):
        self.test = test
        self.leader, self.follower = os.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.follower)
        env = {**test.environment, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment}

        def take_signals():
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # the caller of the tests may ignore them
                signal.signal(number, signal.SIG_DFL)

        self.process = subprocess.Popen([KLDUMPCTL, "status", *arguments], env=env, stdin=self.follower,
                                        stdout=self.follower, stderr=self.follower, start_new_session=True, preexec_fn=take_signals)
        self.text = b""
        test.addCleanup(self.close)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.leader)
        os.close(self.follower)

    def resize(self, columns, rows):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        while select.select([self.leader], [], [], seconds)[0]:
            self.text += os.read(self.leader, 65536)
            seconds = 0
        return self.text.decode(errors="replace")

    def until(self, pattern, after=0):
        """Waits for the pattern; returns where it ends."""
        end = time.monotonic() + 30
        while True:
            match = re.compile(pattern, re.S).search(self.read(0.05), after)
            if match:
                return match.end()
            self.test.assertLess(time.monotonic(), end, "%r never came:\n%s" % (pattern, self.text[-1500:]))

    def frames(self):
        """The lines of each screen, without colours."""
        screens = [s.split("\x1b[J")[0] for s in self.read(0).split("\x1b[H")[1:]]
        return [re.split(r"\r+\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", s)) for s in screens]

    def end(self):
        end = time.monotonic() + 30
        while self.process.poll() is None:
            self.read(0.05)
            self.test.assertLess(time.monotonic(), end)
        text = self.read(0.05)
        self.test.assertEqual(text.count(ENTER), text.count(LEAVE))
        self.test.assertEqual(termios.tcgetattr(self.follower), self.before, "the terminal is as it was")
        return self.process.returncode, text[text.rindex(LEAVE):]


class OnATerminal(Base):
    def test_draws_again_and_leaves_with_q(self):
        guard = self.guard("s")
        terminal = Terminal(self, "s", "--watch")
        at = terminal.until("State +.*armed.*q or Ctrl-C")
        self.assertNotIn("Free space", terminal.frames()[0])
        guard.run["space"]["free_bytes"] -= 100 << 30
        guard.run["uptime_ms"] += 1000
        at = terminal.until("200.0 GiB free.*Free space +[^ ]*█▁ 200.0 GiB to 300.0 GiB in 1.0 s", at)
        guard.set("dumping", exp="dec")
        terminal.until("on: /dumps/s/dec", at)
        os.write(terminal.leader, b"q")
        status, rest = terminal.end()
        self.assertEqual(status, 0)
        self.assertIn("on: /dumps/s/dec", rest, "the last state stays")
        self.assertEqual(guard.run["state"], "dumping")

    def test_the_run_ends(self):
        guard = self.guard("s")
        terminal = Terminal(self, "s", "-w")
        terminal.until("q or Ctrl-C")
        guard.end("floor", 83, "killed at the floor")
        status, rest = terminal.end()
        self.assertEqual(status, 0)
        self.assertIn("killed at the floor", rest)

    def test_signals_put_the_terminal_back(self):
        self.guard("s")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            terminal = Terminal(self, "s", "--watch")
            terminal.until("q or Ctrl-C")
            terminal.process.send_signal(number)
            self.assertEqual(terminal.end()[0], 0)

    def test_size(self):
        self.guard("s", message="m" * 300)
        terminal = Terminal(self, "s", "--watch", columns=40, rows=6)
        terminal.until("m{20}")
        for line in terminal.frames()[-1]:
            self.assertLessEqual(len(line), 40)
        self.assertLessEqual(len(terminal.frames()[-1]), 6)
        count = len(terminal.frames())
        terminal.resize(120, 50)
        begin = time.monotonic()
        terminal.process.send_signal(signal.SIGWINCH)
        self.until(lambda: len(terminal.frames()) > count)
        terminal.until("m{100}.*q or Ctrl-C")
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(max(map(len, terminal.frames()[-1])), 120)

    def test_narrow(self):
        """40 columns, a run relayed through kldumpd: each word of the wide table is there, none is cut, no number is parted from
        its unit, and no line is wider than the terminal, on the screen and in what stays after it."""
        guard = Guard(os.path.join(self.runtime, "elsewhere"), "relayed", message="the soft level is 40.0 GiB of 1023.9 GiB",
                      dir="/data/dumps/relayed")
        guard.run["space"].update(soft_bytes=40 << 30, budget_bytes=100 << 30, written_bytes=99 << 30, level="warn",
                                  free_inodes=123456789, floor_inodes=1234567, act_inodes=2345678)
        guard.run["seals"].append({"experiment": "e1", "complete": False, "reasons": ["rank 0: dump_index 12345 is missing"], "files": 936,
                                   "steps": 3, "bytes": 5 << 20})
        self.servers.append(guard)
        self.daemon(guard)
        words = [self.ctl("status", "relayed")[0].split()]
        terminal = Terminal(self, "relayed", "--watch", columns=40, rows=60, NO_COLOR="1")
        terminal.until("q or Ctrl-C")
        first = terminal.frames()[0]
        guard.run["uptime_ms"] += 1000
        terminal.until("Free space +[▁-█]+ 300.0 GiB.*q or Ctrl-C")
        last = terminal.frames()[-1]
        os.write(terminal.leader, b"q")
        status, rest = terminal.end()
        self.assertEqual(status, 0)
        stays = rest[len(LEAVE):].replace("\r\n", "\n").split("\n")
        for lines in first, last, stays:
            self.assertEqual([line for line in lines if len(line) > 40], [])
            self.assertNotRegex("\n".join(lines), r"\d\n +([KMG]iB|B|ms|s|min|h|d)\b", "a number without its unit")
        words.append(self.ctl("status", "relayed")[0].split())
        for lines, expected in zip((first, stays), words):
            self.assertEqual("\n".join(lines).split("q or")[0].split(), expected)

    def test_a_word_wider_than_the_screen_is_cut_with_a_mark(self):
        self.guard("s", dir="/" + "d" * 60)
        terminal = Terminal(self, "s", "--watch", columns=40)
        terminal.until("q or Ctrl-C")
        self.assertIn(" " * 11 + "/" + "d" * 27 + "~", terminal.frames()[0])

    def test_no_colour_and_no_utf8(self):
        guard = self.guard("s")
        terminal = Terminal(self, "s", "--watch", NO_COLOR="1", LC_ALL="C")
        terminal.until("q or Ctrl-C")
        guard.run["uptime_ms"] += 1000
        terminal.until("Free space")
        self.assertNotRegex(terminal.read(0), r"\x1b\[\d+m")
        self.assertTrue(terminal.read(0).isascii())

    def test_history_of_the_record(self):
        guard = self.guard("s")
        with open(os.path.join(guard.folder, "record.json"), "w") as f:
            json.dump({"run": {}, "space_history": [{"uptime_ms": 1000 * i, "free_bytes": (400 - i) << 30}
                                                    for i in range(80)] + [None, 3]}, f)
        terminal = Terminal(self, "s", "--watch")
        terminal.until("Free space +[▁-█]{40,} 300.0 GiB to 400.0 GiB in 83.5 s")

    def test_guard_that_stands_still(self):
        guard = self.guard("s")
        terminal = Terminal(self, "s", "--watch")
        at = terminal.until("q or Ctrl-C")
        guard.broken = {"status": b""}
        at = terminal.until("No answer", at)
        self.assertIn("armed", "\n".join(terminal.frames()[-1]), "the last state stays")
        guard.run["message"] = "here again"
        guard.broken = {}
        terminal.until("here again", at)
        self.assertNotIn("No answer", "\n".join(terminal.frames()[-1]))
        os.write(terminal.leader, b"q")
        self.assertEqual(terminal.end()[0], 0)

    def test_suspended(self):
        self.guard("s")
        terminal = Terminal(self, "s", "--watch")
        terminal.until("q or Ctrl-C")
        terminal.process.send_signal(signal.SIGTSTP)
        at = terminal.until(re.escape(LEAVE))
        _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertEqual(termios.tcgetattr(terminal.follower), terminal.before)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(re.escape(ENTER) + ".*q or Ctrl-C", at)
        os.write(terminal.leader, b"q")
        self.assertEqual(terminal.end()[0], 0)


class InAPipe(Base):
    def test_blocks(self):
        guard = self.guard("s")
        process = self.start("status", "s", "--watch")
        blocks = 0
        for line in process.stdout:
            if line == "\n":
                blocks += 1
                if blocks == 2:
                    guard.end("completed", 0)
        self.end_of(process, 0)
        self.assertGreaterEqual(blocks, 2)

    def test_json(self):
        guard = self.guard("s")
        process = self.start("status", "s", "--watch", "--json")
        first = json.loads(process.stdout.readline())
        self.assertEqual((first["schema"], first["runs"][0]["state"]), ("kldump.status/1", "armed"))
        guard.end("completed", 0)
        lines = process.stdout.readlines()
        self.assertEqual(json.loads(lines[-1])["runs"][0]["state"], "ended")
        self.end_of(process, 0)

    def test_a_run_that_has_ended(self):
        self.guard("s", state="ended", outcome="stopped").close()
        out, _ = self.ctl("status", "s", "--watch")
        self.assertEqual(out, self.ctl("status", "s")[0])

    def test_reader_that_goes_away(self):
        self.guard("s")
        process = self.start("status", "s", "--watch")
        process.stdout.readline()
        process.stdout.close()
        self.end_of(process, 0)

    def end_of(self, process, status):
        self.assertEqual(process.wait(timeout=30), status, process.stderr.read())
        process.stderr.close()
        if not process.stdout.closed:
            process.stdout.close()


if __name__ == "__main__":
    unittest.main(verbosity=1)
