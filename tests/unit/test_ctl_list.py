#!/usr/bin/python3
"""kldumpctl list and metrics: which runs are found, and how they are shown to people and to Prometheus."""
import datetime
import fcntl
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from prometheus_client import openmetrics
from prometheus_client import parser as textfile
from prometheus_client.openmetrics import parser as _  # noqa: F401

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_guard import Daemon, Failure, Guard, run_object  # noqa: E402
from test_ctl import KLDUMPCTL, Base  # noqa: E402

GIB = 1 << 30
HEADINGS = "NAME OWNER STATE FREE FLOOR RATE TO-FLOOR AGE".split()


def foreign(name, owner="bob", uid=4712, **changes):
    """A run of somebody else as kldumpd shows it."""
    whole = run_object(name)
    return {"name": name, "owner": owner, "uid": uid, "state": "armed", "outcome": None, "space": whole["space"], **changes}


def ago(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class More(Base):
    def listed(self, status=0):
        return [json.loads(line) for line in self.ctl("list", "--json", status=status)[0].splitlines()]

    def elsewhere(self, name, **changes):
        """A guard in another runtime folder."""
        guard = Guard(os.path.join(self.runtime, "elsewhere"), name, **changes)
        self.servers.append(guard)
        return guard

    def on_terminal(self, columns, *arguments, **environment):
        leader, follower = os.openpty()
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        subprocess.run([KLDUMPCTL, *arguments], env={**self.environment, "TERM": "xterm", **environment},
                       stdin=subprocess.DEVNULL, stdout=follower, check=True)
        return self.read_terminal(leader, follower).replace("\r\n", "\n")


class Table(More):
    def test_columns(self):
        self.guard("one", owner="alice", state="dumping", exp="dec")
        long = "a" * 30
        self.guard(long, owner="bob", uptime_ms=3 * 86400000, space={})
        self.guard("over", started_at=ago(3700), uptime_ms=100000, state="ended", outcome="floor").close()
        lines = self.ctl("list")[0].splitlines()
        self.assertEqual(lines[0].split(), HEADINGS)
        self.assertEqual([line.split()[0] for line in lines[1:]], [long, "one", "over"], "live ones first")
        self.assertEqual(lines[1].split()[1:], ["bob", "armed", "-", "-", "-", "-", "3d"])
        self.assertEqual(lines[2].split()[1:], ["alice", "dumping:", "dec", "300G", "20.0G", "1.0M/s", "3d", "83s"])
        self.assertEqual(lines[3].split()[1:], ["tester", "ended:", "floor", "-", "-", "-", "-", "60min", "ago"])
        self.assertEqual({line.index(word) for line, word in zip(lines, ["OWNER", "bob", "alice", "tester"])}, {32})
        self.assertEqual(len({len(line) for line in lines}), 1, "the last column is aligned to the right")

    def test_sizes_and_times(self):
        times = {0: "0s", 119: "119s", 120: "2min", 7199: "119min", 7200: "2h", 172799: "47h", 172800: "2d", 1e9: ">999d"}
        for i, (seconds, text) in enumerate(times.items()):
            self.guard("r%d" % i, space={"seconds_to_floor": seconds, "free_bytes": 1023 << 20 if i else 0})
        rows = [line.split() for line in self.ctl("list")[0].splitlines()[1:]]
        self.assertEqual([row[6] for row in rows], list(times.values()))
        self.assertEqual([row[3] for row in rows[:2]], ["0B", "1023M"])

    def test_old_figures_are_unknown(self):
        daemon = self.daemon()
        space = run_object("x")["space"]
        daemon.others = [foreign("blind", uptime_ms=400000, space={**space, "reading_age_ms": 300000}),
                         foreign("fresh", told_age_ms=30000), foreign("old", told_age_ms=300000, state="dumping", exp="e"),
                         foreign("over", told_age_ms=300000, state="ended", outcome="floor")]
        rows = {line.split()[0]: line.split()[2:] for line in self.ctl("list")[0].splitlines()[1:]}
        self.assertEqual(rows["blind"], ["armed", "(space", "5min", "old)", "-", "20.0G", "-", "-", "6min"])
        self.assertEqual(rows["fresh"], ["armed", "300G", "20.0G", "1.0M/s", "3d", "-"])
        self.assertEqual(rows["old"], ["dumping:", "e", "(5min", "old)", "-", "20.0G", "-", "-", "-"])
        self.assertEqual(rows["over"], ["ended:", "floor", "-", "-", "-", "-", "-"])
        out, _ = self.ctl("metrics")
        for name in "free_bytes", "rate_bytes_per_second", "seconds_to_floor":
            self.assertEqual(out.count("kldump_%s{" % name), 1, name)
        self.assertEqual(out.count("kldump_floor_bytes{"), 3)

    def test_a_guard_that_does_not_answer(self):
        guard = self.guard("hangs")
        path = os.path.join(guard.folder, "record.json")
        with open(path, "w") as f:
            json.dump({"run": guard.run}, f)
        os.utime(path, (time.time() - 600, time.time() - 600))
        guard.broken = {"hello": b"nonsense\n"}
        row = self.ctl("list")[0].splitlines()[1].split()
        self.assertEqual(row, ["hangs", "tester", "unknown", "(10min", "old)", "-", "20.0G", "-", "-", "11min"])

    def test_narrow_terminal(self):
        self.guard("one", state="dumping", exp="dec")
        wide = self.on_terminal(200, "list", NO_COLOR="1")
        self.assertEqual(wide.split("\n")[0].split(), HEADINGS)
        before = len(HEADINGS) + 1
        for columns in (80, 70, 60, 50, 40, 30, 22):
            text = self.on_terminal(columns, "list", NO_COLOR="1")
            self.assertLessEqual(max(map(len, text.splitlines())), columns, text)
            shown = text.split("\n")[0].split()
            self.assertLessEqual(len(shown), before)
            before = len(shown)
            self.assertEqual(shown, [h for h in HEADINGS if h in shown], "in the same order")
            self.assertIn("dumping: dec", text)
        self.assertEqual(shown, ["NAME", "STATE"])
        self.assertIn("TO-FLOOR", self.on_terminal(40, "list", NO_COLOR="1"))
        self.guard("n" * 60)
        text = self.on_terminal(40, "list", NO_COLOR="1")
        self.assertLessEqual(max(map(len, text.splitlines())), 40, text)
        self.assertIn("nnnnnn~", text)

    def test_colour(self):
        self.guard("one")
        self.assertIn("\x1b[32m", self.on_terminal(80, "list", NO_COLOR=""))
        self.assertNotIn("\x1b", self.on_terminal(80, "list", NO_COLOR="1"))
        self.assertNotIn("\x1b", self.ctl("list")[0])

    def test_hostile_texts(self):
        daemon = self.daemon()
        daemon.others = [foreign("\x1b[2J" + "\u00e9" * 70, owner="a\nb\u009b"), {"name": 3}, {}, None, [], "x",
                         foreign("y", space=7, state=[1])]
        text = self.on_terminal(60, "list", NO_COLOR="1")
        self.assertNotRegex(text, "[\x1b\x07\u009b]")
        self.assertEqual(len(text.splitlines()), 4)
        self.assertLessEqual(max(map(len, text.splitlines())), 60)


class Places(More):
    def test_own_and_daemon_once_each(self):
        daemon = self.daemon(self.guard("mine"), self.elsewhere("relayed"))
        daemon.others = [foreign("mine"), foreign("theirs")]
        self.assertEqual([(r["name"], r["owner"]) for r in self.listed()],
                         [("mine", "bob"), ("mine", "tester"), ("relayed", "tester"), ("theirs", "bob")])

    def test_a_later_run_of_the_same_name_is_another(self):
        self.guard("t", started_at="2026-11-29T20:00:00.000Z", state="ended", outcome="stopped").close()
        self.daemon(self.elsewhere("t", started_at="2026-11-29T21:00:00.000Z"))
        self.assertEqual([(r["name"], r["state"]) for r in self.listed()], [("t", "armed"), ("t", "ended")])
        self.assertIn("armed", self.ctl("status", "t")[0], "the live one is meant")

    def test_the_only_live_run_is_one_of_ours(self):
        daemon = self.daemon()
        daemon.others = [foreign("theirs")]
        if os.geteuid() != 0:
            self.assertIn("no run of yours is live; of others: bob/theirs\n", self.ctl("status", status=87)[1])
        self.assertIn("there is no run 'root/nix'; live now: bob/theirs; ", self.ctl("status", "root/nix", status=87)[1])
        for wrong in "/theirs", "bob/", "bob/../x", "/":
            self.assertIn("'%s' is not the name of a run; expected NAME, or OWNER/NAME; " % wrong, self.ctl("status", wrong, status=2)[1])
        self.guard("mine")
        self.assertIn("mine", self.ctl("status")[0])

    def test_a_run_of_somebody_else(self):
        guard = self.elsewhere("theirs")
        guard.run = foreign("theirs")
        self.daemon(guard)
        out, _ = self.ctl("status", "theirs")
        self.assertIn("run of bob: only name, state and space are shown to you", out)
        self.assertIn("300.0 GiB free; floor 20.0 GiB", out)
        for text in ("Proofs", "Dump"):
            self.assertNotIn(text, out)

    def test_refusals_name_the_rule(self):
        daemon = self.daemon()
        rule = "user eve may not use kldumpd: [access] groups = gpu"
        daemon.refusal = Failure("forbidden", 88, rule)
        self.assertIn(rule, self.ctl("list", status=88)[1])
        self.assertIn(rule, self.ctl("status", "x", status=88)[1])
        self.assertIn(rule, self.ctl("metrics", status=88)[1])
        self.guard("mine")
        out, err = self.ctl("list")
        self.assertIn("mine", out)
        self.assertIn(rule, err)
        self.ctl("status", "mine")

    def test_answer_that_is_cut(self):
        daemon = self.daemon(self.guard("a"))
        daemon.more = {"left_out": 7}
        self.assertIn("7 more runs do not fit", self.ctl("list")[1])

    @unittest.skipIf(os.geteuid() != 0, "only root can make a folder of root's")
    def test_folder_of_a_kldumpd_for_all(self):
        """It is open to all; the runs in it belong to their users and are asked through kldumpd, ours also without it."""
        guard = self.guard("own")
        os.chmod(self.runtime, 0o755)
        daemon = Daemon(self.runtime, [guard])
        self.servers.append(daemon)
        daemon.others = [foreign("theirs")]
        folder = os.path.join(self.runtime, "runs", "theirs")
        os.mkdir(folder)
        with open(os.path.join(folder, "record.json"), "w") as f:
            json.dump({"run": run_object("theirs", message="not to be read here")}, f)
        os.chown(folder, 4712, 4712)
        self.assertEqual([r["name"] for r in self.listed()], ["own", "theirs"])
        self.assertIn("armed", self.ctl("status", "own")[0])
        self.assertIn(("status", {"run": "own"}), daemon.calls)
        daemon.stop_serving()
        self.assertEqual([r["name"] for r in self.listed()], ["own"])
        self.assertIn("armed", self.ctl("status", "own")[0])
        os.chmod(self.runtime, 0o777)
        self.ctl("list", status=88)

    @unittest.skipIf(os.geteuid() != 0, "only root can show another /run")
    def test_own_and_system_daemon(self):
        """Without KLDUMP_RUNTIME_DIR: our folder, the kldumpd there, and the system's in /run/kldump."""
        system = tempfile.mkdtemp(prefix="kl-")
        self.addCleanup(shutil.rmtree, system, True)
        os.chmod(system, 0o755)
        own = Daemon(os.path.join(self.runtime, "kldump"), [self.elsewhere("owns")])
        wide = Daemon(system, [self.elsewhere("systems", uid=4712, owner="bob")])
        self.servers += [own, wide]
        local = Guard(own.runtime, "local")
        self.servers.append(local)
        own.more = {"ended": {"floor": 2, "stopped": 1}}
        wide.more = {"ended": {"floor": 3}}
        wide.others = [local.run, foreign("other")]
        del self.environment["KLDUMP_RUNTIME_DIR"]
        self.environment["XDG_RUNTIME_DIR"] = self.runtime
        script = 'mount -t tmpfs none /run && mkdir /run/kldump && mount --bind "$1" /run/kldump && shift && exec "$@"'

        def ctl(*arguments):
            command = ["unshare", "--mount", "sh", "-c", script, "sh", system, KLDUMPCTL, *arguments]
            return subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

        listed = [json.loads(line) for line in ctl("list", "--json").stdout.splitlines()]
        self.assertEqual([(r["name"], r["owner"]) for r in listed],
                         [("local", "tester"), ("other", "bob"), ("owns", "tester"), ("systems", "bob")])
        self.assertIn("armed", ctl("status", "systems").stdout)
        self.assertIn(("status", {"run": "systems"}), wide.calls)
        self.assertIn('kldump_runs_ended_total{outcome="floor"} 5', ctl("metrics").stdout)


class SameName(More):
    def setUp(self):
        super().setUp()
        bobs, eves = (Guard(os.path.join(self.runtime, owner), "t", uid=uid, owner=owner) for owner, uid in (("bob", 4712), ("eve", 4713)))
        self.servers += [bobs, eves]
        self.daemon().guards = {1: bobs, 2: eves}

    def test_an_owner_can_be_said(self):
        self.assertIn("by eve", self.ctl("status", "4713/t")[0])
        self.assertIn("by bob", self.ctl("status", "4712/t")[0])
        self.assertIn("there is no run", self.ctl("status", "root/t", status=87)[1])
        for bad, text in (("nobody-at-all/t", "there is no user 'nobody-at-all'"), ("4712/", "not the name of a run"),
                          ("/t", "'/t' is not the name of a run; expected NAME, or OWNER/NAME"), ("4712/../t", "not the name of a run"), ("-1/t", "unknown option")):
            self.assertIn(text, self.ctl("status", bad, status=2)[1])

    def test_a_run_of_others_takes_no_name_of_an_experiment_away(self):
        guard = self.guard("mine")
        self.ctl("dump", "t")  # as their runs are called
        self.assertEqual(guard.run["exp"], "t")
        self.assertIn("say which experiment", self.ctl("dump", "mine", status=2)[1])

    def test_both_are_stopped(self):
        self.assertEqual(self.ctl("stop", "--all")[0], "t: stopped\nt: stopped\n")


class StopAll(More):
    def test_all_and_each_has_its_line(self):
        one, two, far = self.guard("one"), self.guard("two"), self.elsewhere("far")
        self.guard("over", state="ended", outcome="floor").close()
        self.daemon(far)
        out, _ = self.ctl("stop", "--all")
        self.assertEqual(sorted(out.splitlines()), ["far: stopped", "one: stopped", "two: stopped"])
        self.assertEqual({g.run["state"] for g in (one, two, far)}, {"ended"})
        self.assertEqual(self.ctl("stop", "--all")[0], "No run to stop is live.\n")

    def test_at_once_and_as_json(self):
        guards = [self.guard(name) for name in "ab"]
        lines = [json.loads(line) for line in self.ctl("stop", "--all", "--now", "--json")[0].splitlines()]
        self.assertEqual([(line["schema"], line["runs"][0]["outcome"]) for line in lines], [("kldump.stop/1", "stopped")] * 2)
        for guard in guards:
            self.assertIn(("stop", {"now": True}), guard.calls)
        self.assertEqual(self.ctl("stop", "--all", "--json")[0], "")

    def test_what_cannot_be_stopped(self):
        """The others are stopped all the same; the status is that of the first that was not. Who has no say is not told."""
        stuck, fine = self.guard("stuck"), self.guard("zfine")
        stuck.on_stop = lambda: stuck.end("unkillable", 86, "pid 7 in state D")
        theirs = self.elsewhere("theirs", uid=4712, owner="bob")

        def refuse(_params, _connection):
            raise Failure("forbidden", 88, "stop of run theirs needs its owner bob, root or a member of kldump-admin")
        theirs.do_stop = refuse
        self.daemon(theirs)
        out, err = self.ctl("stop", "--all", status=86)
        self.assertEqual([line.split(":")[0] for line in out.splitlines()], ["stuck", "zfine"])
        self.assertEqual(err, "")
        self.assertEqual(fine.run["state"], "ended")
        self.assertIn("needs its owner bob, root or a member of kldump-admin", self.ctl("stop", "theirs", status=88)[1])
        broken = self.guard("broken")
        broken.broken = {"stop": b"hello\n"}
        self.assertIn("cannot be used", self.ctl("stop", "--all", status=125)[1])

    def test_usage(self):
        self.assertIn("--all stops every run", self.ctl("stop", "--all", "t", status=2)[1])


class Metrics(More):
    def families(self, text):
        return {f.name: f for f in openmetrics.parser.text_string_to_metric_families(text)}

    def samples(self, text):
        return {(s.name, *sorted(s.labels.items())): s.value for f in self.families(text).values() for s in f.samples}

    def textfile(self, name="kldump.prom", status=0):
        path = os.path.join(self.runtime, name)
        self.ctl("metrics", "--textfile", path, status=status)
        with open(path) as f:
            return path, f.read()

    def test_figures(self):
        daemon = self.daemon(self.guard("t"))
        daemon.others = [foreign("u", state="ended", outcome="floor")]
        daemon.more = {"ended": {"floor": 4, "stopped": 9, "novel": 1}}
        out, _ = self.ctl("metrics")
        self.assertTrue(out.endswith("\n# EOF\n"))
        samples = self.samples(out)
        labels = [("owner", "tester"), ("path", "/dumps/t"), ("run", "t")]
        for name, value in (("free_bytes", 300 * GIB), ("floor_bytes", 20 * GIB), ("rate_bytes_per_second", 1 << 20),
                            ("seconds_to_floor", 285696)):
            self.assertEqual(samples[("kldump_" + name, *labels)], value)
        states = {dict(k[1:])["state"]: v for k, v in samples.items() if k[0] == "kldump_run_state"}
        self.assertEqual({s for s, v in states.items() if v == 1}, {"armed"})
        self.assertEqual(len(states), 10)
        self.assertEqual(samples[("kldump_runs",)], 1)
        self.assertEqual(samples[("kldump_runs_ended_total", ("outcome", "floor"))], 4)
        self.assertEqual(samples[("kldump_runs_ended_total", ("outcome", "budget"))], 0)
        self.assertNotIn(("kldump_written_bytes", *labels), samples, "it is not known")
        self.assertEqual(self.families(out)["kldump_runs_ended"].type, "counter")

    def test_nothing_there(self):
        for text in (self.ctl("metrics")[0], self.textfile()[1]):
            self.assertIn("\nkldump_runs 0\n", text)
            self.assertNotIn("kldump_runs_ended", text, "nobody counts")
        self.assertEqual(self.samples(self.ctl("metrics")[0]), {("kldump_runs",): 0})

    def test_hostile_texts(self):
        daemon = self.daemon()
        hostile = 'a"b\\' + "\nkldump_runs 99\n# EOF\n"
        twice = foreign(hostile, owner='}\\"' + "\u2028\r\x0b\u0085", space=dict(run_object("x")["space"], path='/d "\\\n{}'))
        daemon.others = [twice, dict(twice, started_at="2026-11-29T21:00:00.000Z"), foreign("y", state="novel", space=[]),
                         foreign("z", space={"free_bytes": -1, "floor_bytes": "1e3", "seconds_to_floor": 1.5e300})]
        samples = self.samples(self.ctl("metrics")[0])
        [found] = [dict(k[1:]) for k in samples if k[0] == "kldump_free_bytes"]
        self.assertEqual(found, {"run": hostile, "owner": twice["owner"].replace("\r", "?").replace("\x0b", "?"), "path": twice["space"]["path"]})
        self.assertEqual(samples[("kldump_runs",)], 3)
        novel = [k for k, v in samples.items() if k[0] == "kldump_run_state" and dict(k[1:])["run"] == "y" and v == 1]
        self.assertEqual([dict(k[1:])["state"] for k in novel], ["unknown"])
        _, text = self.textfile()
        [free] = [f for f in textfile.text_string_to_metric_families(text) if f.name == "kldump_free_bytes"]
        self.assertEqual(free.samples[0].labels, found)

    def test_textfile(self):
        daemon = self.daemon(self.guard("t"))
        daemon.more = {"ended": {"floor": 4}}
        mask = os.umask(0o077)
        try:
            path, text = self.textfile()
        finally:
            os.umask(mask)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o644)
        self.assertTrue(text.endswith("\n") and "# EOF" not in text)
        families = list(textfile.text_string_to_metric_families(text))
        self.assertEqual({f.type for f in families}, {"gauge", "counter"})
        self.assertEqual(len(families), len({f.name for f in families}))
        self.assertIn("# TYPE kldump_runs_ended_total counter\n", text)
        self.assertIn('kldump_runs_ended_total{outcome="floor"} 4\n', text)
        self.assertEqual([n for n in os.listdir(self.runtime) if "prom" in n], ["kldump.prom"], "no temporary file is left")
        self.assertEqual(self.textfile()[1], text, "replaced")
        self.assertEqual(self.ctl("metrics", "--textfile", path)[0], "")

    def test_textfile_that_cannot_be(self):
        self.assertIn("must end in .prom", self.ctl("metrics", "--textfile", "/tmp/x.txt", status=2)[1])
        self.assertIn("cannot write", self.ctl("metrics", "--textfile", self.runtime + "/none/x.prom", status=125)[1])
        os.mkdir(self.runtime + "/d.prom")
        self.ctl("metrics", "--textfile", self.runtime + "/d.prom", status=125)
        self.assertEqual([n for n in os.listdir(self.runtime) if "prom" in n], ["d.prom"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
