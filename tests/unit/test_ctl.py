#!/usr/bin/python3
"""kldumpctl against a guard without a server (fake_guard.py)."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_guard import Daemon, Guard, run_object  # noqa: E402

KLDUMPCTL = os.path.abspath(os.environ.get("KLDUMPCTL", "kldumpctl"))
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script, and inherited so


class Base(unittest.TestCase):
    def setUp(self):
        self.runtime = tempfile.mkdtemp(prefix="kl-")
        self.environment = dict(os.environ, KLDUMP_RUNTIME_DIR=self.runtime)
        self.servers = []
        self.addCleanup(self.clean)

    def clean(self):
        for server in self.servers:
            server.abandon()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def guard(self, name="t", **changes):
        guard = Guard(self.runtime, name, **changes)
        self.servers.append(guard)
        return guard

    def daemon(self, *guards):
        daemon = Daemon(self.runtime, guards)
        self.servers.append(daemon)
        return daemon

    def start(self, *arguments, **more):
        return subprocess.Popen([KLDUMPCTL, *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def end(self, process, status):
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def ctl(self, *arguments, status=0):
        return self.end(self.start(*arguments), status)

    def read_terminal(self, leader, follower):
        """All that was written to a terminal whose last writer but us is gone."""
        os.close(follower)
        text = b""
        try:
            while True:
                text += os.read(leader, 65536)
        except OSError:  # nobody has it open any more
            os.close(leader)
        return text.decode()

    def until(self, condition):
        end = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), end, "it never came")
            time.sleep(0.01)


class Framework(Base):
    def test_help_and_version(self):
        out, _ = self.ctl("help")
        names = re.findall(r"^  ([a-z]+)  +\S", out[out.index("Commands:"):], re.M)
        for name in "doctor run start list status dump pause stop wait logs events metrics check help".split():
            self.assertIn(name, names)
        for name in names:
            out, _ = self.ctl("help", name)
            self.assertTrue(out.startswith("Usage: kldumpctl " + name), out)
            self.assertLess(out.index("Examples:"), 400 + out.index(name), "examples come first")
            self.assertEqual(self.ctl(name, "--help")[0], out)
        self.assertRegex(self.ctl("--version")[0], r"^kldumpctl \d+\.\d+")

    def test_usage_errors(self):
        self.assertIn("did you mean 'status'?", self.ctl("statsu", status=2)[1])
        self.assertIn("did you mean 'dump'?", self.ctl("help", "dmup", status=2)[1])
        self.assertNotIn("did you mean", self.ctl("xyzzyxyzzy", status=2)[1])
        self.ctl(status=2)
        for arguments in (["status", "a", "b"], ["status", "--x"], ["status", "--json=1"], ["wait", "t"],
                          ["wait", "t", "--for"], ["wait", "t", "--for", "asleep"], ["dump"], ["dump", "t", "-x"],
                          ["wait", "t", "--for", "armed", "--for", "armed"], ["dump", "t", "../x"],
                          ["wait", "t", "--for", "armed", "--timeout", "5"], ["events", "--since", "soon"],
                          ["dump", "t", "e", "--"], ["status", ""], ["status", "../t"]):
            _, err = self.ctl(*arguments, status=2)
            self.assertTrue(err.startswith("kldumpctl " + arguments[0] + ": "), err)

    def test_start_checks_options_first(self):
        _, err = self.ctl("start", "--floor", "5", "--bad", "--", "x", status=2)
        self.assertIn("--floor: '5' is not a size", err)
        self.assertIn("unknown option '--bad'", err)


class Finding(Base):
    def test_no_run(self):
        self.assertIn("no run is live", self.ctl("status", status=87)[1])
        self.assertIn("there is no run 'x'", self.ctl("status", "x", status=87)[1])
        self.assertRegex(self.ctl("status", "9999", status=87)[1],
                         r"^kldumpctl status: there is no run '9999' \(a run is given by its name, not by a pid\); no run is live now; "
                         "'kldumpctl list' shows those that have ended\n$")
        self.assertIn("No runs", self.ctl("list")[0])
        self.assertIn("kldumpd is not running", self.ctl("start", "--", "x", status=87)[1])

    def test_the_only_live_run(self):
        self.guard("a")
        self.guard("b").close()
        self.assertIn("a", self.ctl("status")[0].splitlines()[0])
        self.guard("c")
        _, err = self.ctl("status", status=2)
        self.assertIn("several runs are live, say which: a, c", err)
        self.assertIn("there is no run 'zz'; live now: a, c; 'kldumpctl list' shows all", self.ctl("status", "zz", status=87)[1])
        for pid in "4711", str(os.getpid()):
            self.assertIn("there is no run '%s': that is the pid of a process of run a, and a run is given by its name" % pid,
                          self.ctl("status", pid, status=87)[1])

    def test_dead_run_from_its_record(self):
        guard = self.guard("d", state="dumping", exp="dec")
        guard.say("last words\n")
        guard.event("last deed")
        guard.close()
        run = json.loads(self.ctl("status", "d", "--json")[0])["runs"][0]
        self.assertEqual((run["state"], run["outcome"], run["exit_status"]), ("ended", "guard-lost", 85))
        self.assertIn("killed while the run was dumping", self.ctl("status", "d")[0])
        self.assertEqual(self.ctl("logs", "d")[0], "last words\n")
        self.assertEqual(self.ctl("logs", "d", "-f")[0], "last words\n")
        self.ctl("wait", "d", "--for", "ended")
        self.ctl("wait", "d", "--for", "armed", status=85)
        self.assertIn("has ended", self.ctl("pause", "d", status=1)[1])
        event, why = self.ctl("events", "d", "-f")[0].splitlines()
        self.assertIn("last deed", event)
        self.assertEqual(why, "d: killed, since its guard was lost: the guard was killed while the run was dumping; seen last: "
                              "300.0 GiB free, floor 20.0 GiB, shrinking by 1.0 MiB/s")

    def test_record_that_is_no_record(self):
        folder = os.path.join(self.runtime, "runs", "x")
        os.makedirs(folder)
        os.chmod(self.runtime, 0o700)
        self.assertIn("left no record", self.ctl("status", "x", status=87)[1])
        for text in ("", "{", "[]", '{"run": 3}', '{"run": {}} x'):
            with open(os.path.join(folder, "record.json"), "w") as f:
                f.write(text)
            self.ctl("status", "x", status=125)
        self.ctl("list")

    def test_guard_that_starts(self):
        guard = self.guard("late")
        os.rename(guard.path, guard.path + ".not-yet")
        process = self.start("status", "late")
        time.sleep(0.3)
        os.rename(guard.path + ".not-yet", guard.path)
        self.end(process, 0)

    def test_relayed_by_the_daemon(self):
        elsewhere = tempfile.mkdtemp(prefix="kl-")
        self.addCleanup(shutil.rmtree, elsewhere, True)
        guard = Guard(elsewhere, "r")
        self.servers.append(guard)
        self.daemon(guard)
        self.assertIn("r", self.ctl("list")[0])
        self.assertEqual(json.loads(self.ctl("status", "--json")[0])["runs"][0]["name"], "r")
        self.ctl("wait", "r", "--for", "armed")
        self.assertIn("there is no run 'q'", self.ctl("status", "q", status=87)[1])

    def test_a_run_of_ours_is_listed_once(self):
        self.daemon(self.guard("o"))
        self.assertEqual(len(self.ctl("list", "--json")[0].splitlines()), 1)

    def test_bad_peers(self):
        guard = self.guard("p")
        for answer, text in ((b"", "closed the connection"), (b"hello\n", "cannot be used"),
                             (b'{"jsonrpc":"2.0","id":2}\n', "neither a result nor an error"),
                             (b'{"jsonrpc":"2.0","id":2,"result":{},"result":{}}\n', "cannot be used"),
                             (b'{"jsonrpc":"2.0","id":2,"result":[' + b"[]," * 70000 + b"0]}\n", "more than 65536 values"),
                             (b"x" * (1 << 20) + b"xxxxx\n", "longer than")):
            guard.broken = {"pause": answer}
            _, err = self.ctl("pause", "p", status=85 if answer == b"" else 125)
            self.assertIn(text, err)
        guard.broken = {"hello": b"\x00\n"}
        self.ctl("pause", "p", status=125)

    def test_socket_path_too_long(self):
        name = "n" * 64
        folder = os.path.join(self.runtime, "x" * 40)
        for part in (folder, os.path.join(folder, "runs"), os.path.join(folder, "runs", name)):
            os.mkdir(part, 0o700)
        self.environment["KLDUMP_RUNTIME_DIR"] = folder
        _, err = self.ctl("status", name, status=2)
        self.assertIn("the limit is 107", err)

    def test_guard_that_hangs(self):
        self.guard("a")
        guard = self.guard("h")
        os.unlink(guard.path)
        with socket.socket(socket.AF_UNIX) as hanging:  # takes connections, never answers
            hanging.bind(guard.path)
            hanging.listen(8)
            self.assertIn("no answer in time", self.ctl("status", "h", status=89)[1])
            states = {r["name"]: r["state"] for r in map(json.loads, self.ctl("list", "--json")[0].splitlines())}
            self.assertEqual(states, {"a": "armed", "h": "unknown"})

    @unittest.skipIf(os.geteuid() != 0, "only root can be another user")
    def test_another_users_program(self):
        guard = self.guard("n")
        os.unlink(guard.path)
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(guard.path)
            os.seteuid(65534)
            try:
                foreign.listen(8)
            finally:
                os.seteuid(0)
            self.assertIn("belongs to user 65534", self.ctl("status", "n", status=88)[1])

    def test_foreign_runtime_folder(self):
        os.chmod(self.runtime, 0o777)
        self.ctl("status", status=88)


class Reading(Base):
    def test_status(self):
        self.guard("s", stage="")
        out, _ = self.ctl("status", "s")
        for text in ("s", "armed", "proven: 1 extend", "300.0 GiB free; floor 20.0 GiB, killed at 21.0 GiB",
                     "1,116,000 prefill tokens still fit", "keeper alone", "1.0 MiB/s", "SGLang 0.5.23"):
            self.assertIn(text, out)
        columns = {line[11:12] != " " for line in out.splitlines() if line[:1] != " "}
        self.assertEqual(columns, {True}, "aligned:\n" + out)
        answer = json.loads(self.ctl("status", "s", "--json")[0])
        self.assertEqual(list(answer)[0], "schema")
        self.assertEqual(answer["schema"], "kldump.status/1")
        self.assertEqual(answer["runs"][0], run_object("s", guard_pid=answer["runs"][0]["guard_pid"]))

    def test_status_of_what_bounds_a_run(self):
        guard = self.guard("s", state="dumping", exp="dec", external=True, disturbance="it was switched off in between")
        space = guard.run["space"]
        space.update(level="warn", soft_bytes=40 << 30, budget_bytes=10 << 30, written_bytes=3 << 30, pending_bytes=2 << 20,
                     free_inodes=1234567, floor_inodes=1000, act_inodes=2200, reading_age_ms=7000)
        out, _ = self.ctl("status", "s")
        for text in ("on, by somebody else: /dumps/s/dec", "disturbed: it was switched off in between",
                     "killed at 21.0 GiB, dumping off at 40.0 GiB", "getting low", "the reading is 7.0 s old",
                     "2.0 MiB of it is spoken for", "3.0 GiB of dumps, of a budget of 10.0 GiB",
                     "1,234,567 free; floor 1,000, killed at 2,200"):
            self.assertIn(text, out)
        guard.run["revoked"] = True
        guard.run["proofs"]["text"] = "a reset has removed the hooks; start the run anew"
        space["level"] = "blind"
        out, _ = self.ctl("status", "s")
        self.assertIn("void: a reset has removed the hooks", out)
        self.assertIn("cannot be read now", out)
        guard.end("budget", 84, "the budget was used up")
        out, _ = self.ctl("status", "s")
        self.assertIn("300.0 GiB were free at the end", out)
        self.assertIn("3.0 GiB of dumps", out)
        self.assertNotIn("cannot be read now", out)

    def test_status_with_members_missing_or_odd(self):
        guard = self.guard("s")
        guard.run = {"name": "s", "state": "armed"}
        self.ctl("status", "s")
        guard.run = {k: [1] for k in run_object("s")}
        self.ctl("status", "s")
        self.ctl("list")
        guard.run = run_object("s", stage="\x1b]0;owned\x07\u009b2J", message="a\nb\x1b[31m")
        out, _ = self.ctl("status", "s")
        self.assertNotRegex(out, "[\x1b\x07\u009b]")

    def test_no_colour_in_pipes_and_with_no_color(self):
        self.guard("s")
        self.assertNotIn("\x1b", self.ctl("status", "s")[0])
        for no_colour, expected in (("", True), ("1", False)):
            leader, follower = os.openpty()
            env = dict(self.environment, NO_COLOR=no_colour, TERM="xterm")
            subprocess.run([KLDUMPCTL, "status", "s"], env=env, stdout=follower, check=True)
            self.assertEqual("\x1b[" in self.read_terminal(leader, follower), expected)

    def test_a_reader_that_goes_while_nothing_happens(self):
        """kldumpctl events -f | head -1: not at the next event, but now, and without a word."""
        guard = self.guard()
        guard.event("the only one")
        guard.say("a line\n")
        for command in "events", "logs":
            process = self.start(command, "t", "-f")
            process.stdout.readline()
            begin = time.monotonic()
            process.stdout.close()
            self.assertEqual(process.wait(timeout=30), 0)
            self.assertLess(time.monotonic() - begin, 5, command)
            self.assertEqual(process.stderr.read(), "")
            process.stderr.close()

    def test_a_user_without_a_name(self):
        self.guard(owner="4711")
        self.assertIn(", by uid 4711\n", self.ctl("status", "t")[0])

    def test_large_answer_through_a_slow_non_blocking_pipe(self):
        guard = self.guard("s", message="m" * 900000)
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        process = subprocess.Popen([KLDUMPCTL, "status", "s", "--json"], env=self.environment, stdout=theirs)
        os.close(theirs)
        time.sleep(0.5)
        with open(ours, "rb") as f:
            text = f.read()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(json.loads(text)["runs"][0]["message"], guard.run["message"])

    def test_reader_that_went_away(self):
        self.guard("s", message="m" * 900000)
        ours, theirs = os.pipe()
        os.close(ours)
        process = subprocess.run([KLDUMPCTL, "status", "s", "--json"], env=self.environment, stdout=theirs,
                                 stderr=subprocess.PIPE)
        os.close(theirs)
        self.assertEqual((process.returncode, process.stderr), (0, b""))

    def test_events(self):
        guard = self.guard("e")
        guard.event("one")
        guard.event("two \x1b[2J", level="warn")
        out, _ = self.ctl("events", "e")
        self.assertEqual(len(out.splitlines()), 2)
        self.assertRegex(out.splitlines()[0], r"^\d\d:\d\d:\d\d\.\d{3} +0\.0 s  one$")
        process = self.start("events", "e", "-f", "--json")
        first = json.loads(process.stdout.readline())
        self.assertEqual((list(first)[0], first["schema"], first["text"]), ("schema", "kldump.events/1", "one"))
        process.stdout.readline()
        guard.event("three")
        self.assertEqual(json.loads(process.stdout.readline())["text"], "three")
        guard.end("completed", 0)
        out, _ = self.end(process, 0)
        self.assertIn("ended: completed", out)

    def test_why(self):
        """The last line of events, and of status, answers why the run is over: a word for the outcome, and the numbers."""
        floor = "20.1 GiB free on /d, kill level 21.0 GiB (floor 20.0 GiB), shrinking by 4.2 GiB/s"
        seen = "; seen last: 300.0 GiB free, floor 20.0 GiB, shrinking by 1.0 MiB/s, 3.0 GiB written"
        backstop = "kldumpd ended it: its guard had not acted 20 MiB below the floor"
        for i, (outcome, status, message, line) in enumerate((
                ("completed", 0, "", "completed"),
                ("stopped", 0, "asked for by bob (uid 1001)", "stopped: asked for by bob (uid 1001)"),
                ("floor", 83, floor, "killed at the floor: " + floor),
                ("budget", 84, "12.0 GiB written, --budget 10.0 GiB", "killed at the byte budget: 12.0 GiB written, --budget 10.0 GiB"),
                ("verify-failed", 82, "no decode pass", "ended, since the hooks could not be proven: no decode pass"),
                ("start-failed", 81, "exit status 3", "ended before it was ready: exit status 3"),
                ("start-timeout", 81, "not ready after 5 s", "ended, since it was not ready in time: not ready after 5 s"),
                ("server-exited", 7, "exit status 7", "the server ended by itself: exit status 7"),
                ("control-lost", 85, "unanswered for 60 s", "killed, since the dumper's control was lost: unanswered for 60 s" + seen),
                ("guard-lost", 85, backstop, "killed, since its guard was lost: " + backstop + seen),
                ("unkillable", 86, "pid 7 in state D", "over, but processes that cannot be killed remain: pid 7 in state D"),
                ("novel", 1, "m", "novel: m"))):
            guard = self.guard("r%d" % i)
            guard.event("begun")
            guard.run["space"]["written_bytes"] = 3 << 30
            guard.end(outcome, status, message)
            out = self.ctl("events", "r%d" % i)[0].splitlines()
            self.assertEqual(len(out), 3)
            self.assertEqual(out[-1], "r%d: %s" % (i, line))
            self.assertEqual(self.ctl("status", "r%d" % i)[0].splitlines()[-1], "Why        " + line)
            self.assertEqual(len(self.ctl("events", "r%d" % i, "--json")[0].splitlines()), 2)

    def test_events_since(self):
        guard = self.guard("e")
        guard.event("old")
        guard.events[0]["at"] = "2020-01-01T00:00:00.000Z"
        guard.event("new")
        self.assertEqual(len(self.ctl("events", "e", "--since", "1h")[0].splitlines()), 1)

    def test_logs(self):
        guard = self.guard("l")
        text = "".join("line %d \u00e9\n" % i for i in range(2000))
        guard.say(text)
        self.assertEqual(self.ctl("logs", "l")[0], text)
        process = self.start("logs", "l", "-f")
        while process.stdout.readline() != "line 1999 \u00e9\n":
            pass
        guard.say("more\n")
        self.assertEqual(process.stdout.readline(), "more\n")
        guard.end("completed", 0)
        self.end(process, 0)


class Doing(Base):
    def test_wait(self):
        guard = self.guard("w", state="loading")
        process = self.start("wait", "w", "--for", "armed", "--timeout", "20s")
        self.until(lambda: any(m == "wait" for m, _ in guard.calls))
        guard.set("armed")
        self.end(process, 0)
        begin = time.monotonic()
        _, err = self.ctl("wait", "w", "--for", "dumping", "--timeout", "200ms", status=89)
        self.assertTrue(err.startswith("kldumpctl wait: run w is still armed"), err)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertIn("still armed", err)
        process = self.start("wait", "w", "--for", "dumping")
        self.until(lambda: sum(m == "wait" for m, _ in guard.calls) == 3)
        guard.end("floor", 83, "killed at the floor")
        out, _ = self.end(process, 83)
        self.assertIn("killed at the floor", out)

    def test_wait_when_the_guard_is_killed(self):
        guard = self.guard("w")
        process = self.start("wait", "w", "--for", "dumping")
        self.until(lambda: any(m == "wait" for m, _ in guard.calls))
        guard.close()
        self.end(process, 85)

    def test_dump_and_pause(self):
        guard = self.guard("d")
        out, _ = self.ctl("dump", "d", "dec")
        self.assertIn("/dumps/d/dec\n", out)
        self.assertEqual(guard.run["state"], "dumping")
        out, _ = self.ctl("pause", "d")
        self.assertIn("dec: complete, 3 steps, 936 files, 5.0 MiB", out)
        self.ctl("dump", "d", "two", "--force", "--wait-idle", "3s")
        self.assertEqual(guard.calls[-1][1], {"experiment": "two", "hold": False, "force": True, "wait_idle_ms": 3000})
        guard.seal_complete = False
        seal = json.loads(self.ctl("pause", "--json", status=4)[0])
        self.assertEqual((seal["schema"], seal["complete"]), ("kldump.pause/1", False))
        self.assertIn("is not dumping", self.ctl("pause", "d", status=1)[1])

    def test_dump_around_a_client(self):
        guard = self.guard("d")
        out, _ = self.ctl("dump", "d", "dec", "--", "/bin/sh", "-c", "echo $KLDUMP_RUN $KLDUMP_EXP $KLDUMP_URL")
        self.assertTrue(out.startswith("d dec http://127.0.0.1:30000\ndec: complete"), out)
        self.assertEqual((guard.run["state"], guard.calls[-2][0]), ("armed", "pause"))
        out, err = self.ctl("dump", "e2", "--", "/bin/sh", "-c", "exit 7", status=7)
        self.assertIn("ended with status 7", err)
        self.assertIn("e2: complete", out)
        self.ctl("dump", "e3", "--", "/bin/sh", "-c", "kill -9 $$", status=137)
        guard.seal_complete = False
        out, _ = self.ctl("dump", "e4", "--", "true", status=4)
        self.assertIn("dump_index 5 is missing", out)
        self.ctl("dump", "e5", "--", "/bin/sh", "-c", "exit 7", status=7)
        seal = json.loads(self.ctl("dump", "e6", "--json", "--", "true", status=4)[0])
        self.assertEqual((seal["schema"], seal["experiment"]), ("kldump.dump/1", "e6"))

    def test_dump_with_a_forgotten_experiment(self):
        guard = self.guard("d")
        for words in ["d"], ["d", "--", "true"]:
            _, err = self.ctl("dump", *words, status=2)
            self.assertIn("'d' is the name of a live run; say which experiment to dump into: dump d EXP", err)
        self.assertNotIn("dump", [method for method, _ in guard.calls])
        self.guard("e", state="ended")
        self.ctl("dump", "e")  # of a run that is over: a name like any other
        self.ctl("pause", "d")
        self.ctl("dump", "d", "d")

    def test_dump_with_a_limit(self):
        guard = self.guard("d")
        out, _ = self.ctl("dump", "d", "dec", "--for", "200ms")
        self.assertIn("dec: complete", out)
        self.assertNotIn("switched off", out)
        call = next(p for m, p in guard.calls if m == "dump")
        self.assertEqual((call["hold"], call["for_ms"]), (True, 200))
        self.assertEqual([p["experiment"] for m, p in guard.calls if m == "pause"], ["dec"], "nothing of somebody else is paused")
        process = self.start("dump", "d", "two", "--passes", "7", "--json")
        self.until(lambda: guard.run["exp"] == "two")
        self.assertEqual(guard.calls[-1][1].get("passes", 7), 7)
        guard.seal_by("limit")
        seal = json.loads(self.end(process, 0)[0])
        self.assertEqual((seal["schema"], seal["sealed_by"]), ("kldump.dump/1", "limit"))

    def test_dump_with_a_limit_that_is_interrupted(self):
        guard = self.guard("d")
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("dump", "d", "e%d" % number, "--for", "1h")
            self.until(lambda: guard.run["exp"] == "e%d" % number and guard.calls[-1][0] == "events")
            process.send_signal(number)
            out, _ = self.end(process, 130)
            self.assertIn("e%d: complete" % number, out)
        for timer in guard.timers:
            timer.cancel()

    def test_dump_that_ends_before_its_client(self):
        guard = self.guard("d")
        for by, status, text in (("limit", 0, ""), ("soft", 4, "free space was at the soft level"),
                                 ("budget", 4, "byte budget"), ("other", 4, "somebody else")):
            process = self.start("dump", "d", by, "--", "/bin/sh", "-c", "echo up; exec sleep 0.5")
            self.assertEqual(process.stdout.readline(), "up\n")
            guard.seal_by(by)
            out, _ = self.end(process, status)
            self.assertIn(by + ": complete", out)
            self.assertIn(text, out)
            self.assertEqual("switched off" in out, text != "")

    def test_limit_and_the_end_of_the_run(self):
        guard = self.guard("d")
        process = self.start("dump", "d", "dec", "--passes", "5")
        self.until(lambda: guard.run["exp"] == "dec")
        with guard.changed:
            guard._seal(complete=False, by="death")
        guard.end("floor", 83, "killed at the floor")
        out, _ = self.end(process, 4)
        self.assertIn("dec: incomplete", out)

    def test_tokens(self):
        guard = self.guard("d")  # 279 GiB above the kill level, 256 KiB each
        _, err = self.ctl("dump", "d", "a", "--tokens", "1000000")
        self.assertEqual(err, "")
        self.ctl("pause")
        _, err = self.ctl("dump", "d", "b", "--tokens", "2000000")
        self.assertIn("warning: 2000000 tokens need about 500.0 GiB; only about 1116001 fit until the run is killed at "
                      "21.0 GiB", err)
        self.ctl("pause")
        guard.run["space"]["soft_bytes"] = 150 << 30
        _, err = self.ctl("dump", "d", "c", "--tokens", "1000000")
        self.assertIn("only about 600001 fit until dumping is switched off at 150.0 GiB", err)
        self.ctl("pause")
        del guard.run["costs"]
        _, err = self.ctl("dump", "d", "d", "--tokens", "1")
        self.assertIn("is not known", err)

    def test_limits_that_are_none(self):
        for arguments in (["--for", "5"], ["--for", "0s"], ["--for", "-1s"], ["--for", "1e3s"], ["--passes", "0"],
                          ["--passes", "-1"], ["--passes", "1.5"], ["--tokens", "0"], ["--tokens", "1k"],
                          ["--passes", "99999999999999999"]):
            _, err = self.ctl("dump", "d", "e", *arguments, status=2)
            self.assertIn(arguments[0] + ": '" + arguments[1] + "'", err)

    def test_client_that_is_not_there(self):
        guard = self.guard("d")
        self.assertIn("in no folder of PATH", self.ctl("dump", "x", "--", "no-such-client", status=127)[1])
        self.ctl("dump", "x", "--", "/etc/passwd", status=126)
        self.ctl("dump", "x", "--", "/no/such", status=127)
        script = os.path.join(self.runtime, "script")
        with open(script, "w") as f:
            f.write("#!/no/such/interpreter\n")
        os.chmod(script, 0o700)
        self.assertNotIn("dump", [m for m, _ in guard.calls])
        out, _ = self.ctl("dump", "x", "--", script, status=127)
        self.assertIn("x: complete", out)
        self.assertEqual(guard.run["state"], "armed")

    def test_interrupted_client(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            guard = self.guard("i%d" % number)
            process = self.start("dump", guard.run["name"], "dec", "--", "/bin/sh", "-c", "echo up; exec sleep 60")
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(number)
            out, _ = self.end(process, status)
            self.assertIn("dec: complete", out)
            self.assertEqual(guard.calls[-2][0], "pause")

    def test_the_dump_ends_with_the_client_tool(self):
        guard = self.guard("k")
        process = self.start("dump", "k", "dec", "--", "/bin/sh", "-c", "echo $$; exec sleep 60")
        client = int(process.stdout.readline())
        process.kill()
        process.wait()
        os.kill(client, signal.SIGKILL)
        process.communicate()
        self.until(lambda: guard.run["state"] == "armed")
        self.assertEqual(len(guard.run["seals"]), 1)

    def test_run_that_ends_while_dumping(self):
        guard = self.guard("f")
        process = self.start("dump", "f", "dec", "--", "/bin/sh", "-c", "echo up; exec sleep 1")
        process.stdout.readline()
        with guard.changed:
            guard._seal(complete=False)
        guard.end("floor", 83, "killed at the floor: 19 GiB were free")
        out, err = self.end(process, 4)
        self.assertIn("dec: incomplete", out)
        self.assertIn("killed at the floor: 19 GiB were free", err)

    def test_stop(self):
        self.guard("s")
        out, _ = self.ctl("stop", "s")
        self.assertTrue(out.startswith("s: stopped"), out)
        out, _ = self.ctl("stop", "s")  # it is so already
        self.assertTrue(out.startswith("s: stopped"), out)
        guard = self.guard("u")
        guard.on_stop = lambda: guard.end("unkillable", 86, "pid 5 is in state D")
        out, _ = self.ctl("stop", "u", "--now", status=86)
        self.assertIn("pid 5 is in state D", out)
        self.assertIn(("stop", {"now": True}), guard.calls)

    def test_start(self):
        daemon = self.daemon()

        def go(params):
            self.params = params
            guard = self.guard(params["arguments"][1], state="loading")
            guard.later(0.3, lambda: guard.set("armed"))
            return guard
        daemon.on_start = go
        out, _ = self.ctl("start", "--name", "u", "--no-wait", "--", "python3", "--no-wait")
        self.assertEqual(out, "u\n")
        self.assertEqual(self.params["arguments"], ["--name", "u", "--", "python3", "--no-wait"])
        self.assertEqual(self.params["directory"], os.getcwd())
        self.assertIn("KLDUMP_RUNTIME_DIR=" + self.runtime, self.params["environment"])
        out, _ = self.ctl("start", "--name", "v", "--", "python3")
        self.assertEqual(out, "v\n")
        self.assertEqual(self.servers[-1].run["state"], "armed")

    def refused_start(self, variables, *arguments, status=2):
        environment = {**{os.fsencode(k): os.fsencode(v) for k, v in self.environment.items()}, **variables}
        done = subprocess.run([KLDUMPCTL, "start", "--name", "n", "--", "python3", *arguments], env=environment, timeout=30,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1)
        return done.stderr.decode()

    def test_what_cannot_be_handed_over_to_kldumpd(self):
        daemon = self.daemon()
        err = self.refused_start({b"LOCAL": b"caf\xe9"})
        self.assertEqual(err, "kldumpctl start: the environment variable LOCAL is not UTF-8, and kldumpd takes nothing else; set it "
                              "anew or leave it out (env -u LOCAL kldumpctl start ...), or use 'kldumpctl run', which needs no kldumpd\n")
        err = self.refused_start({b"LOCAL": b"caf\xe9", b"W\xff": b"1", **{b"M%d" % i: b"\xff" for i in range(9)}})
        self.assertIn("the environment variables LOCAL, W?, M0, M1, M2, M3, M4, M5, ... are not UTF-8", err)
        self.assertIn("the argument 'caf?' is not UTF-8", self.refused_start({}, b"caf\xe9"))
        many = {b"V%02d" % i: b"x" * 100000 for i in range(9)}  # of one variable the kernel takes 128 KiB
        err = self.refused_start({b"SECOND": b"y" * 110000, b"FIRST": b"z" * 120000, **many})
        self.assertRegex(err, r"command and environment come to 1\.\d MiB, and kldumpd takes 1\.0 MiB; largest: the command 20 B, FIRST "
                              r"117\.2 KiB, SECOND 107\.4 KiB, V\d\d 97\.7 KiB; leave out what CMD does not need \(env -u FIRST")
        err = self.refused_start({}, *["w" * 120000] * 10)
        self.assertIn("largest: the command 1.1 MiB, ", err)
        self.assertEqual(daemon.calls, [])

    def test_kldumpd_that_goes_while_it_starts_a_run(self):
        daemon = self.daemon()
        daemon.broken = {"start": b""}
        _, err = self.ctl("start", "--", "python3", status=85)
        self.assertEqual(err, "kldumpctl start: kldumpd ended before it answered; if it had begun the run already, that goes on without "
                              "it: 'kldumpctl list' shows it, 'kldumpctl stop' ends it\n")
        daemon.broken = {}
        daemon.on_start = lambda params: self.guard("g", state="loading")
        process = self.start("start", "--", "python3")
        self.assertEqual(process.stdout.readline(), "g\n")
        daemon.stop_serving()
        self.servers[-1].later(0.3, lambda: self.servers[-1].set("armed"))
        self.assertEqual(self.end(process, 0)[1], "")  # its guard was asked from then on

    def test_start_that_fails(self):
        daemon = self.daemon()

        def go(params):
            guard = self.guard("bad", state="loading")
            guard.say("".join("line %d\n" % i for i in range(100)) + "RuntimeError: out of memory")
            guard.later(0.3, lambda: guard.end("start-failed", 81, "the server ended: out of memory"))
            return guard
        daemon.on_start = go
        out, err = self.ctl("start", "--", "python3", status=81)
        self.assertEqual(out, "bad\n")
        self.assertIn("  RuntimeError: out of memory\n", err)
        self.assertIn("  line 99\n", err)
        self.assertNotIn("  line 80\n", err)
        self.assertIn("run bad did not get to armed: start-failed: the server ended: out of memory", err)

    def test_progress_on_a_terminal_only(self):
        daemon = self.daemon()

        def go(params):
            guard = self.guard("p", state="loading")
            guard.event("loading weights")
            guard.later(0.3, lambda: guard.set("armed", "armed and idle"))
            return guard
        daemon.on_start = go
        leader, follower = os.openpty()
        subprocess.run([KLDUMPCTL, "start", "--", "python3"], env=self.environment, stderr=follower,
                       stdout=subprocess.DEVNULL, check=True)
        text = self.read_terminal(leader, follower)
        self.assertRegex(text, r"\[ +0\.0 s\] loading weights")
        self.assertRegex(text, r"\[ +1\.0 s\] armed and idle")



class TurnedAway(Base):
    def test_the_reason_is_read_though_the_other_side_has_closed(self):
        """A daemon that refuses a client says why and closes, before or after the client's first words."""
        refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "[access] of /k allows users a",
                                                           "data": {"error": "forbidden", "status": 88}}}
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.path.join(self.runtime, "control"))
        server.listen(8)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client = server.accept()[0]
                    client.sendall(json.dumps(refusal).encode() + b"\n")
                    client.close()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            for _ in range(30):
                _, err = self.end(self.start("start", "--", "python3"), 88)
                self.assertIn("[access] of /k allows users a", err)
            for words in (["list"], ["status"], ["events"], ["stop", "--all"], ["status", "x"]):  # not: there is no run
                _, err = self.ctl(*words, status=88)
                self.assertIn("[access] of /k allows users a", err)
                self.assertEqual(err.count(self.runtime), 1, err)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join(5)


if __name__ == "__main__":
    unittest.main(verbosity=1)
