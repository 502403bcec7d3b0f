"""kldumpd ends runs whose guards do not: below the admin's floor the largest recent writer first, below a run's own floor
that run alone; and a filesystem that hangs or lies harms nobody else."""
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import guarded
from guarded import BUILD, PYTHON, wait_for
from kldump_programs import Control

HERE = Path(__file__).parent
MIB = 1 << 20


class Box:
    """A kldumpd with rules of its own, small disks, and guards that only call in."""

    def __init__(self):
        self.place = guarded.Place()
        self.rules = self.place.folder / "rules.conf"
        self.daemon, self.guards, self.lines = None, {}, []

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        for guard in self.guards.values():
            guard.kill()
            guard.wait()
            guard.stdout.close()
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
            self.daemon.stderr.close()
        for disk in self.place.mounts:
            subprocess.run(["umount", "-l", disk], check=False)
        self.place.mounts.clear()
        self.place.end()

    def set_rules(self, text):
        self.rules.write_text(text)
        self.rules.chmod(0o644)

    def start(self, user=None):
        """As root, or for a user, whose own kldumpd it is then."""
        program = BUILD / "kldumpd"
        if user is not None:
            self.place.folder.chmod(0o755)
            os.chown(self.place.runtime, user, user)
            self.place.copy_programs()
            program = Path(shutil.copy(BUILD / "kldumpd", self.place.ctl_path.parent))
        self.daemon = subprocess.Popen([program, "--rules", self.rules], env=self.place.environment(), stdin=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, user=user, group=user,
                                       extra_groups=None if user is None else [], bufsize=0)  # for select()
        assert "listening" in self.line()

    def line(self, limit=20):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if select.select([self.daemon.stderr], [], [], 0.1)[0]:
                self.lines.append(self.daemon.stderr.readline().decode())
                return self.lines[-1]
        raise AssertionError(f"nothing was told; before: {self.lines}")

    def line_or_nothing(self, limit):
        return self.line() if select.select([self.daemon.stderr], [], [], limit)[0] else ""

    def line_with(self, words, limit=20):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if words in self.line(end - time.monotonic()):
                return self.lines[-1]
        raise AssertionError(words)

    def guard(self, name, folder, rate=0, floor=0, claimed=0, user=None):
        process = subprocess.Popen([PYTHON, "-B", HERE / "register_guard.py", self.place.runtime / "register", name, str(folder), str(rate),
                                    str(floor), str(claimed), *([] if user is None else [str(user)])], stdout=subprocess.PIPE)
        self.guards[name] = process
        assert process.stdout.readline() == b"ok\n"

    def lives(self, name):
        return self.guards[name].poll() is None

    def runs(self):
        out = self.place.ctl("list", "--json").stdout
        return {run["name"] for run in map(json.loads, out.splitlines()) if "name" in run}


@pytest.fixture
def box():
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    with Box() as found:
        yield found


def test_a_raised_floor_ends_the_largest_writer_and_no_liar(box):
    disk = box.place.small_disk("512M")
    box.set_rules("[limits]\nfloor = 16M\n")
    box.start()
    box.guard("large", disk, rate=24 * MIB)
    box.guard("small", disk, rate=3 * MIB)
    box.guard("liar", disk, claimed=1 << 40)  # says that it wrote a terabyte, and writes nothing
    assert box.runs() >= {"large", "small", "liar"}
    wait_for(lambda: os.statvfs(disk).f_bavail * 4096 < 440 * MIB, 30, "some writing")
    box.set_rules("[limits]\nfloor = 480M\n")
    box.daemon.send_signal(signal.SIGHUP)
    first = box.line_with("ended run")
    assert "ended run large of " in first and "is below the floor 480.0 MiB of " in first and "it wrote " in first
    wait_for(lambda: not box.lives("large"), 10, "the end of large")
    assert "ended run small" in box.line_with("ended run")  # it writes, and the floor stays crossed
    wait_for(lambda: not box.lives("small"), 10, "the end of small")
    time.sleep(3)
    assert box.lives("liar") and box.runs() == {"liar"}


def test_the_other_lives_where_that_is_enough_and_an_own_floor_is_its_runs_alone(box):
    disk, other = box.place.small_disk("256M"), box.place.small_disk("256M", name="other")
    box.set_rules("[limits]\nfloor = 64M\n")
    box.start()
    box.guard("writer", disk, rate=64 * MIB)
    box.guard("idle", disk)
    box.guard("own", other, rate=32 * MIB, floor=160 * MIB)
    box.guard("beside", other)
    told = sorted(box.line_with("ended run") for _ in range(2))
    assert "ended run own of " in told[0] and "160.0 MiB of the run itself" in told[0]
    assert "ended run writer of " in told[1] and "64.0 MiB of " in told[1]
    wait_for(lambda: not box.lives("own") and not box.lives("writer"), 10, "the end of both")
    for name in "own", "writer":  # known from the register alone: what kldumpd did is their last word
        [run] = json.loads(box.place.ctl("status", name, "--json").stdout)["runs"]
        assert (run["state"], run["outcome"], run["exit_status"]) == ("ended", "floor", 83) and "at the floor" in run["message"]
    time.sleep(2.5)
    assert box.lives("idle") and box.lives("beside")


def test_what_cannot_be_ended_is_tried_again(box):
    """A guard that has become root's, which its user's kldumpd may not end, and then the user's again."""
    disk = box.place.small_disk("64M")
    box.set_rules("[limits]\nfloor = 32M\n")
    box.start(user=12345)
    box.guard("roots", disk, rate=24 * MIB, user=12345)
    assert "ended run roots of " in box.line_with("ended run")
    assert "run roots could not be ended" in box.line()
    assert box.line_or_nothing(2.5) == "" and box.lives("roots")
    box.guards["roots"].send_signal(signal.SIGUSR1)
    assert "run roots is ended now" in box.line()
    wait_for(lambda: not box.lives("roots"), 10, "its end")


@pytest.mark.parametrize("fault", ["hang", "zero"])
def test_a_users_filesystem_that_fails_harms_nobody_else(box, fault):
    fuse, faults = box.place.fuse_disk()
    disk = box.place.small_disk("128M")
    box.set_rules("[limits]\nfloor = 32M\n")
    box.start()
    if fault == "zero":
        (faults / "zero").touch()
    box.guard("odd", fuse, floor=1 << 50 if fault == "zero" else 0)
    if fault == "hang":
        (faults / "hang").touch()
    box.line_with({"hang": "blind: filesystem ", "zero": "does not tell its free space"}[fault])
    box.guard("writer", disk, rate=32 * MIB)
    assert "ended run writer of " in box.line_with("ended run")
    begin = time.monotonic()
    assert box.runs() >= {"odd"}
    assert time.monotonic() - begin < 2
    assert box.lives("odd")
    for path in faults.iterdir():
        path.unlink()
    if fault == "hang":
        box.line_with("answers again")


GUARD_WITH_SOCKET = '''
import json, os, socket, sys
register, name, path = sys.argv[1:]
control = socket.socket(socket.AF_UNIX)
control.bind(path)
control.listen(64)
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(register)
socket.send_fds(link, [json.dumps({"version": 1, "name": name, "run": {"state": "armed"}}).encode()],
                [os.open(".", os.O_PATH | os.O_DIRECTORY), os.open(path, os.O_PATH)])
print(json.loads(link.recv(65536)), flush=True)
while True:
    client = control.accept()[0]
    for line in client.makefile():
        client.sendall(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {"run": {"name": name}}}).encode() + bytes([10]))
'''


def test_a_guards_socket_on_a_filesystem_that_hangs_keeps_nobody_waiting(box):
    """connect(2) asks the filesystem for permission. So many attempts wait for it, and no more."""
    fuse, faults = box.place.fuse_disk("default_permissions")
    box.set_rules("")
    box.start()
    box.guards["odd"] = subprocess.Popen([PYTHON, "-c", GUARD_WITH_SOCKET, box.place.runtime / "register", "odd", fuse / "s"],
                                         stdout=subprocess.PIPE, text=True, cwd=box.place.folder)
    assert box.guards["odd"].stdout.readline() == "{'ok': True}\n"
    with Control(box.place.runtime / "control") as control, Control(box.place.runtime / "control") as other:
        for _ in range(20):  # one after the other: the socket is asked each time
            assert control.call("status", run="odd")["run"]["name"] == "odd"
        (faults / "hang").touch()
        for _ in range(12):
            control.send("status", run="odd")
        begin = time.monotonic()
        assert {run["name"] for run in other.call("list")["runs"]} == {"odd"}
        assert time.monotonic() - begin < 2
        threads = len(os.listdir(f"/proc/{box.daemon.pid}/task"))
        messages = [control.receive()["error"]["message"] for _ in range(12)]  # after 10 s
        assert sum("8 descriptors or sockets that user 0 has passed" in message for message in messages) == 4, messages
        assert len(os.listdir(f"/proc/{box.daemon.pid}/task")) <= threads
        (faults / "hang").unlink()
        wait_for(lambda: len(os.listdir(f"/proc/{box.daemon.pid}/task")) <= threads - 8, 10, "the end of the threads")
        assert control.call("status", run="odd")["run"]["name"] == "odd"


def test_a_run_that_kldumpd_started_is_ended_whole_and_its_status_says_why(box, standin):
    """Nobody of its runs is seen writing while the disk fills: they go in the end."""
    disk = box.place.small_disk("512M")
    box.set_rules("[limits]\nfloor = 16M\n")
    box.start()
    done = subprocess.run([guarded.CTL, "start", "--name", "started", "--dir", disk / "dumps", "--floor", "16M", "--", *box.place.command(standin)],
                          env=box.place.environment(**standin.environment()), cwd=box.place.folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

    def status():
        return json.loads(box.place.ctl("status", "started", "--json").stdout)["runs"][0]

    before = status()
    assert before["state"] == "armed"
    box.set_rules("[limits]\nfloor = 480M\n")
    box.daemon.send_signal(signal.SIGHUP)
    box.line_with("limits.floor")
    with open(disk / "somebody", "wb") as file:
        told = ""
        while "ended run started of " not in told:
            assert file.tell() < 450 * MIB, box.lines
            file.write(bytes(16 * MIB))
            file.flush()
            told = box.line_or_nothing(0.5)
    assert "is below the floor 480.0 MiB of [limits] of " in told
    wait_for(lambda: not guarded.is_alive(before["pid"]) and not guarded.is_alive(before["guard_pid"]), 10, "the end of all of it")
    after = status()
    assert (after["state"], after["outcome"], after["exit_status"]) == ("ended", "floor", 83), after
    assert "kldumpd" in after["message"]
    assert json.loads((box.place.runtime / "owned/started.json").read_text())["end"] == "backstop"
