#!/usr/bin/python3
"""kldumpctl doctor: each check on a world made for it. What the machine itself is like is not asserted."""
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
from ports import free_port  # noqa: E402
from test_ctl import KLDUMPCTL, Base  # noqa: E402

ALWAYS = ("programs name rules folder filesystem space inodes cgroup limits shared-memory temporary address exposure gpu "
          "daemon left-runs left-processes left-cgroups left-shm").split()
OF_COMMAND = "command python sglang settings port".split()


class Doctor(Base):
    def setUp(self):
        super().setUp()
        self.dumps = os.path.join(self.runtime, "dumps")
        self.environment["PATH"] = self.runtime + ":" + self.environment["PATH"]
        for name in [n for n in self.environment if n.startswith(("DUMPER_", "SGLANG_"))]:
            del self.environment[name]

    def program(self, name, text):
        path = os.path.join(self.runtime, name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def python(self, answer="echo 0.5.23"):
        self.program("python3", 'case "$1" in --version) echo Python 3.11.9;; *) %s;; esac\n' % answer)

    def checks(self, *arguments, before=(), **environment):
        """Runs it and returns {name: check}."""
        if not any(a.startswith(("--dir", "--config")) for a in arguments):
            arguments = ("--dir", self.dumps, *arguments)
        done = subprocess.run([*before, KLDUMPCTL, "doctor", "--json", *arguments], stdout=subprocess.PIPE,
                              env={**self.environment, **environment}, stdin=subprocess.DEVNULL, text=True, timeout=30)
        answer = json.loads(done.stdout)
        self.assertEqual(list(answer), ["schema", "checks"])
        self.assertEqual(answer["schema"], "kldump.doctor/1")
        for check in answer["checks"]:
            self.assertEqual(list(check), ["name", "result", "value", "advice"])
            self.assertIn(check["result"], ("pass", "warn", "fail"))
            self.assertNotEqual(check["value"], "", check)
            if check["result"] != "pass":
                self.assertTrue(check["advice"], check)
        found = {check["name"]: check for check in answer["checks"]}
        self.assertEqual(len(found), len(answer["checks"]))
        self.assertEqual(done.returncode, any(c["result"] == "fail" for c in found.values()), found)
        return found

    def server(self, *arguments, **environment):
        if "--port" not in arguments:
            arguments = (*arguments, "--port", str(free_port()))
        return self.checks("--", "python3", "-m", "sglang.launch_server", *arguments, **environment)

    def expect(self, checks, name, result, *texts):
        self.assertEqual(checks[name]["result"], result, checks[name])
        for text in texts:
            self.assertIn(text, checks[name]["value"] + " -> " + (checks[name]["advice"] or ""))


class Whole(Doctor):
    def test_without_a_command(self):
        shutil.rmtree(self.runtime)
        begin = time.monotonic()
        self.assertEqual(list(self.checks()), ALWAYS)
        self.assertLess(time.monotonic() - begin, 3)
        self.assertFalse(os.path.exists(self.runtime), "it makes nothing")

    def test_with_a_command_and_for_people(self):
        self.python()
        before = sorted(os.listdir(self.runtime))
        self.assertEqual([n for n in self.server() if n in ALWAYS + OF_COMMAND],
                         ALWAYS[:2] + OF_COMMAND + ALWAYS[2:])
        self.assertEqual(sorted(os.listdir(self.runtime)), before)
        process = self.start("doctor", "--floor", "1E", "--", "python3")
        self.assertIn("'1E' is not a size", self.end(process, 2)[1])
        out, _ = self.ctl("doctor", "--dir", self.dumps, "--floor", "90%", "--", "docker", status=1)
        self.assertRegex(out, r"(?m)^fail  command  +CMD runs docker.*\n +-> run kldumpctl inside instead")
        self.assertRegex(out.splitlines()[-1], r"^\d+ pass, \d+ warn, [1-9] fail$")
        out, _ = self.end(self.start("doctor", "--dir", "/proc/x"), 1)
        self.assertIn("put the server's\ncommand behind ' -- '", out)

    def test_usage(self):
        for arguments in (["--bad"], ["--floor"], ["--floor", "5"], ["x"], ["--name", "../x"], ["--"],
                          ["--config", "/no/such"], ["--json=1"]):
            _, err = self.ctl("doctor", *arguments, status=2 if "--config" not in arguments else 2)
            self.assertTrue(err.startswith("kldumpctl doctor: "), err)


class Rules(Doctor):
    def rules(self, text):
        path = os.path.join(self.runtime, "kldumpd.conf")
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o644)
        return path

    def test_a_user_whom_the_rules_do_not_allow(self):
        """The rule, its file, and what to ask the admin for."""
        rule = "uid 4711 may not use this kldumpd: [access] of /etc/k.conf allows users root, groups none, and admins"
        advice = "ask the admin to add you to 'users' or 'groups' there and to reload kldumpd, or use 'kldumpctl run'"
        refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": rule + "; " + advice,
                                                           "data": {"error": "forbidden", "status": 88}}}
        self.daemon().broken = {"hello": json.dumps(refusal).encode() + b"\n"}
        check = self.checks()["daemon"]
        self.assertEqual((check["result"], check["advice"]), ("warn", advice))
        self.assertTrue(check["value"].endswith(rule), check)

    def test_the_admins_rules(self):
        self.expect(self.checks(KLDUMP_RULES=""), "rules", "pass")
        path = self.rules("[limits]\nfloor = 1.5M\nworst_rate = 20G\nfolders = %s\n[defaults]\nsoft = 3M\n" % self.runtime)
        here = {"KLDUMP_RULES": path}
        self.expect(self.checks(**here), "rules", "pass", path + ": floor 1.5 MiB here, worst rate 20.0 GiB/s here",
                    "folders " + self.runtime, "default soft 3M")
        checks = self.checks("--floor", "1M", **here)
        self.expect(checks, "space", "fail", "floor 1.0 MiB was asked for, and [limits] of %s wants 1.5 MiB" % path)
        self.expect(self.checks("--dir", "/var/tmp/x", **here), "rules", "fail", path, "/var/tmp/x", "-> give a --dir below")
        self.rules("[limits]\nrun = 1\n")
        self.expect(self.checks(**here), "rules", "fail", "line 2: unknown key 'run'", "-> no run is guarded")
        self.rules("[access]\nusers = a\n")
        self.expect(self.checks(**here), "rules", "pass", path + ": nothing about this run")
        self.expect(self.checks(KLDUMP_RULES="/nonexistent/x"), "rules", "fail", "/nonexistent/x")


class Server(Doctor):
    def test_versions_and_their_spelling(self):
        for version, texts in (("0.5.12.post1", ["--disable-cuda-graph", "--disable-piecewise-cuda-graph"]),
                               ("0.5.23", ["--disable-decode-cuda-graph", "--disable-prefill-cuda-graph"])):
            self.python("echo " + version)
            checks = self.server()
            self.expect(checks, "python", "pass", self.runtime + "/python3, Python 3.11.9")
            self.expect(checks, "sglang", "pass", version, *texts)
            self.expect(checks, "settings", "pass")
        self.python("echo 0.5.9")
        checks = self.server()
        self.expect(checks, "sglang", "fail", "0.5.9", "0.5.10 or newer")
        self.assertNotIn("settings", checks)

    def test_python_without_sglang_and_no_python(self):
        self.python("echo 'No package metadata was found for sglang' >&2; exit 1")
        self.expect(self.server(), "sglang", "fail", "No package metadata", "pip install sglang")
        checks = self.checks("--", "/no/such/python3", "-m", "sglang.launch_server")
        self.expect(checks, "command", "fail", "/no/such/python3 is not there")
        self.assertNotIn("port", checks)

    def test_python_that_hangs(self):
        self.python("sleep 60")
        begin = time.monotonic()
        self.expect(self.server(), "sglang", "warn", "did not tell the version within 2 s")
        self.assertLess(time.monotonic() - begin, 5)

    def test_contradictions(self):
        self.python()
        self.expect(self.server(), "settings", "pass")
        self.expect(self.server(DUMPER_ENABLE="1"), "settings", "fail", "DUMPER_ENABLE=1 contradicts DUMPER_ENABLE=0")
        self.expect(self.server("--enable-torch-compile"), "settings", "fail", "--enable-torch-compile")
        self.expect(self.server(DUMPER_ENABEL="1"), "settings", "warn", "DUMPER_ENABEL is not a name")

    def test_wrappers_and_what_is_not_ours(self):
        wrapper = self.program("serve", "exit 0\n")
        checks = self.checks("--", wrapper)
        self.expect(checks, "command", "warn", wrapper, "KLDUMP_SGLANG_ARGS")
        self.assertNotIn("sglang", checks)
        self.assertNotIn("port", checks)
        for outside in ("docker", "sudo", "ssh"):
            checks = self.checks("--", outside, "run", "x")
            self.expect(checks, "command", "fail", "CMD runs " + outside, "run kldumpctl inside")
            self.assertNotIn("settings", checks)

    def test_port(self):
        self.python()
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen(1)
            port = holder.getsockname()[1]
            self.expect(self.server("--port", str(port)), "port", "fail", "held by pid %d" % os.getpid(), "--port")
        self.expect(self.server("--port", str(port)), "port", "pass", "free")
        self.expect(self.server("--port", "70000"), "command", "fail", "--port 70000")


class Folder(Doctor):
    def test_folder(self):
        self.expect(self.checks(), "folder", "pass", self.dumps + ", which the run will make")
        self.expect(self.checks("--dir", "./none/below"), "folder", "pass", os.getcwd() + "/none/below")
        os.makedirs(self.dumps + "/dec")
        self.expect(self.checks(), "folder", "fail", "holds 'dec'", "--dir")
        open(self.dumps + "/dec.kldump.json", "w").close()
        os.symlink(self.dumps, self.runtime + "/link")
        self.expect(self.checks("--dir", self.runtime + "/link"), "folder", "pass", self.dumps)
        os.symlink("/no/such", self.runtime + "/dangling")
        self.expect(self.checks("--dir", self.runtime + "/dangling"), "folder", "fail", "/dangling")
        open(self.runtime + "/file", "w").close()
        for path in ("/file", "/file/below"):
            checks = self.checks("--dir", self.runtime + path)
            self.expect(checks, "folder", "fail", "Not a directory")
            self.assertNotIn("space", checks)
        self.assertFalse(os.path.exists("none"))

    def test_folder_that_may_not_be_written(self):
        os.mkdir(self.dumps)
        before = ()
        if os.geteuid() == 0:  # who may write everywhere
            os.chown(self.dumps, 65534, 65534)
            before = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
        os.chmod(self.dumps, 0o555)
        for path in (self.dumps, self.dumps + "/below"):
            self.expect(self.checks("--dir", path, before=before), "folder", "fail", "may not write to " + self.dumps)

    def test_space(self):
        checks = self.checks("--floor", "1M")
        self.expect(checks, "space", "pass", "floor 1.0 MiB", "tokens")
        self.expect(self.checks("--floor", "90%", "--dir", "/proc"), "space", "fail", "does not tell its free space")
        self.expect(self.checks("--floor", "8000T"), "space", "fail", "larger than the whole filesystem", "lower --floor")
        figures = os.statvfs(self.runtime)
        left = figures.f_bavail * figures.f_frsize
        self.expect(self.checks("--floor", "%dM" % (left >> 20)), "space", "fail", "starts from", "make room")
        self.expect(self.checks("--floor", "2M", "--soft", "1M"), "space", "fail", "--soft 1.0 MiB is below the floor")
        self.expect(self.checks("--floor", "1M", "--soft", "8000T"), "space", "fail", "no dump could begin")

    def test_name(self):
        self.expect(self.checks("--name", "t"), "name", "pass")
        self.guard("t")
        self.expect(self.checks("--name", "t"), "name", "fail", "a run named t is live", "kldumpctl stop t")
        os.chmod(self.runtime, 0o777)
        self.expect(self.checks("--name", "u"), "name", "fail", self.runtime)

    def test_temporary(self):
        self.expect(self.checks(), "temporary", "pass", self.runtime)
        self.expect(self.checks("--name", "n" * 64, KLDUMP_RUNTIME_DIR="/tmp/" + "x" * 30), "temporary", "fail",
                    "shorter --name")


class Left(Doctor):
    def test_runs(self):
        self.expect(self.checks(), "left-runs", "pass", "0 live, 0 ended")
        self.guard("alive")
        self.guard("over", state="ended").close()
        self.expect(self.checks(), "left-runs", "pass", "1 live, 1 ended")
        self.guard("torn", state="dumping").close()
        self.expect(self.checks(), "left-runs", "warn", "the guard of torn was killed", "kldumpctl status torn")

    def test_processes(self):
        environment = dict(os.environ, KLDUMP_RUN_COOKIE="c0ffee")
        with subprocess.Popen(["sleep", "60"], env=environment) as orphan:
            try:
                self.expect(self.checks(), "left-processes", "warn", "kill them")
            finally:
                orphan.kill()

    def test_probes(self):
        os.makedirs(self.dumps)
        self.expect(self.checks(), "left-probes", "pass")
        os.mkdir(self.dumps + "/kldump-probe-1")
        self.expect(self.checks(), "left-probes", "warn", "rm -r " + self.dumps + "/kldump-probe-1")

    def test_shared_memory(self):
        for name in ("sglang_loads_kldump_test_%d.shm", "sem.loky-kldump-test-%d"):
            path = "/dev/shm/" + name % os.getpid()
            with open(path, "wb+") as f:
                try:
                    f.truncate(4096)
                    with mmap.mmap(f.fileno(), 4096):  # one that is in use is no leftover
                        self.assertNotIn(os.path.basename(path), self.checks()["left-shm"]["value"])
                    self.expect(self.checks(), "left-shm", "warn", "rm /dev/shm/s")
                finally:
                    os.unlink(path)


class Network(Doctor):
    def namespace(self, *commands):
        command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec", "; ".join(commands) + '; exec "$@"', "sh"]
        probe = subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if probe.returncode != 0:
            self.skipTest("no network namespace can be made: " + probe.stderr.strip())
        return command

    def test_loopback_alone(self):
        checks = self.checks(before=self.namespace("ip link set lo up"))
        self.expect(checks, "exposure", "pass", "loopback")
        if checks["address"]["result"] == "fail":  # else the host name has an address of its own
            self.assertIn("ip route add default dev lo", checks["address"]["advice"])
        checks = self.checks(before=self.namespace("ip link set lo up", "ip route add default dev lo src 127.0.0.1"))
        self.expect(checks, "address", "pass", "127.0.0.1")

    def test_another_interface(self):
        checks = self.checks(before=self.namespace("ip link set lo up", "ip link add d0 type veth peer name d1",
                                                   "ip link set d0 up", "ip address add 192.0.2.1/24 dev d0"))
        self.expect(checks, "exposure", "warn", "d0 192.0.2.1", "SECURITY")


if __name__ == "__main__":
    unittest.main(verbosity=1)
