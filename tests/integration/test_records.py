"""What kldumpd keeps about runs: found again, counted once, and with its folder full, read-only, stale or damaged."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from kldump_programs import BUILD, Place, process_is_alive, wait_for
from test_daemon_relay import FakePlace, refused

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to mount and to be other users")


class RecordPlace(FakePlace):
    def end_runs(self):
        super().end_runs()
        Place.end_runs(self)  # of real guards, too

    def listed(self):
        with self.control() as control:
            answer = control.call("list")
        return {run["name"]: run for run in answer["runs"]}

    def ended(self):
        with self.control() as control:
            return {name: count for name, count in control.call("list")["ended"].items() if count}

    def begin(self):
        return self.start_daemon(self.program)

    def again(self):
        """Killed, and started by whoever watches over it; returns its first line."""
        self.kill_daemon()
        return self.begin()

    def words(self):
        """What it says on standard error until it is ended."""
        self.daemon.send_signal(signal.SIGTERM)
        text = self.daemon.stderr.read().decode()
        assert self.daemon.wait(10) == 0
        return text

    def make_ended(self, name, outcome="stopped", at=None, **more):
        """The folder of a run that is over."""
        folder = self.runtime / "runs" / name
        folder.mkdir(parents=True, mode=0o700)
        (folder / "lock").touch(0o600)
        path = folder / "record.json"
        path.write_text(record(name, "ended", outcome, **more))
        if at is not None:
            os.utime(path, (at, at))
        return folder


def record(name, state, outcome=None, **more):
    return json.dumps({"schema": "kldump.record/1", "run": {"name": name, "state": state, "outcome": outcome, **more}})


@pytest.fixture
def place():
    with RecordPlace() as found:
        (found.runtime / "runs").mkdir(mode=0o700)
        yield found


# ---- counted once

def test_each_end_is_counted_once_whatever_the_daemon_does(place):
    place.begin()
    for name in "abcd":
        place.start(name, record=record(name, "armed", guard_pid=1))
    assert place.ended() == {}
    ended = place.runtime / "runs/a/record.json"
    ended.write_text(record("a", "ended", "floor"))
    place.kill("a")
    place.kill("b")
    wait_for(lambda: place.ended() == {"floor": 1, "guard-lost": 1}, 5, "both counted")
    place.again()
    assert place.ended() == {"floor": 1, "guard-lost": 1}
    place.kill_daemon()
    (place.runtime / "runs/c/record.json").write_text(record("c", "ended", "stopped"))
    place.kill("c")
    place.begin()
    assert place.ended() == {"floor": 1, "guard-lost": 1, "stopped": 1}
    place.again()
    assert place.ended() == {"floor": 1, "guard-lost": 1, "stopped": 1}
    assert place.listed()["d"]["state"] == "armed"


def test_what_was_over_before_or_never_began_is_not_counted(place):
    place.make_ended("old")
    place.begin()
    refused(place.start, "x", exit=80, say='{"error":"settings","status":80,"message":"no"}')
    assert place.ended() == {}


def test_a_record_of_too_many_values_is_counted_as_unknown(place):
    """Its user may write there what he likes."""
    place.begin()
    for name, values in ("a", 2000000), ("b", 100000):
        place.start(name, record=record(name, "armed"))
        (place.runtime / f"runs/{name}/record.json").write_text("[" + "0," * values + "0]")
        place.kill(name)
    wait_for(lambda: place.ended() == {"unknown": 2}, 5, "both counted")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\0", b'{"schema":"kldump.ended/9"}', b'{"schema":"kldump.ended/1","ended":{},"live":{"../x":1}}',
                                    b'{"schema":"kldump.ended/1","ended":{"floor":-1},"live":{}}', "fifo", "folder", "huge"])
def test_damaged_counters_are_set_aside(place, damage):
    path = place.runtime / "ended.json"
    if damage == "fifo":
        os.mkfifo(path)
    elif damage == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"{" if damage == "huge" else damage)
        os.truncate(path, 1 << 40 if damage == "huge" else len(damage))
    first = place.begin()
    assert "damaged record" in first and str(path) in first and "set aside" in first
    assert "listening" in place.daemon.stderr.readline().decode()
    assert place.ended() == {}
    place.start("a", record=record("a", "armed"))
    assert place.ended() == {}
    place.kill("a")
    wait_for(lambda: place.ended() == {"guard-lost": 1}, 5, "it counts again")
    assert (place.runtime / "ended.json.damaged").exists()


# ---- records

def test_a_damaged_record_of_a_run_that_is_over_is_set_aside_and_told_from_then_on(place):
    place.make_ended("good")
    folder = place.make_ended("bad")
    (folder / "record.json").write_bytes(b"\xff{")
    place.begin()
    for _ in range(2):
        runs = place.listed()
        assert runs["good"]["outcome"] == "stopped"
        assert runs["bad"]["state"] == "unknown" and f"{folder}/record.json" in runs["bad"]["message"]
    assert (folder / "record.json.damaged").read_bytes() == b"\xff{"
    with place.control() as control:
        assert refused(control.call, "status", run="bad").name == "format"
        assert control.call("logs", run="bad")["ended"]


def test_a_record_is_read_again_when_it_is_another_one(place):
    place.begin()
    place.start("a", record=record("a", "armed", note=1))
    path = place.runtime / "runs/a/record.json"
    for note in range(2, 30):
        (path.parent / "new").write_text(record("a", "armed", note=note))
        (path.parent / "new").rename(path)
        assert place.listed()["a"]["note"] == note


def test_records_in_strange_places_hold_nobody_up(place):
    outside = place.folder / "outside.json"
    outside.write_text(record("link", "ended", "stopped"))
    for name in ("link", "hard", "pipe", "folder", "huge"):
        (place.make_ended(name) / "record.json").unlink()
    runs = place.runtime / "runs"
    (runs / "link/record.json").symlink_to(outside)
    os.link(outside, runs / "hard/record.json")
    os.mkfifo(runs / "pipe/record.json")
    (runs / "folder/record.json").mkdir()
    with open(runs / "huge/record.json", "wb") as file:
        file.truncate(1 << 40)
    (runs / "pipe/lock").unlink()
    os.mkfifo(runs / "pipe/lock")
    (runs / "pipe/server.log").symlink_to("/etc/passwd")
    os.mkfifo(runs / "huge/server.log")
    place.make_ended("good")
    place.begin()
    begin = time.monotonic()
    states = {name: run["state"] for name, run in place.listed().items()}
    assert time.monotonic() - begin < 2
    assert states == {"good": "ended", **dict.fromkeys(("link", "hard", "pipe", "folder", "huge"), "unknown")}
    assert outside.exists() and json.loads(outside.read_text())["run"]["name"] == "link"
    with place.control() as control:
        for name in "pipe", "huge":
            assert control.call("logs", run=name)["text"] == ""


# ---- how many are kept

def test_the_newest_of_each_user_are_kept(place):
    now = int(time.time())
    for number in range(70):
        place.make_ended(f"run{number}", at=now - 1000 + number)
    deep = place.runtime / "runs/run0/t/a/b"
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(place.folder)
    (place.runtime / "runs/run1/record.json").unlink()  # what it holds is newer than a record of then
    place.begin()
    assert set(place.listed()) == {"run1", *(f"run{number}" for number in range(7, 70))}
    assert place.folder.exists()
    place.start("live", record=record("live", "armed"))
    place.start("b", record=record("b", "ended", "stopped"))
    place.listed()
    place.kill("b")
    wait_for(lambda: "run7" not in place.listed(), 5, "one more is over, the oldest goes")
    assert len(place.listed()) == 65 and place.listed()["live"]["state"] == "armed"


def test_a_million_files_of_an_old_run_hold_nobody_up(place):
    """Removed piece by piece from a place that is no run, by the next daemon too; the name is free at once."""
    now = int(time.time())
    for number in range(65):
        place.make_ended(f"run{number}", at=now - 1000 + number)
    many = place.runtime / "runs/run0/t"
    many.mkdir()
    for number in range(20000):
        os.mknod(many / str(number))
    first = place.begin()
    place.daemon.send_signal(signal.SIGSTOP)  # it goes on with a piece each half second
    aside = place.runtime / "runs/.removing.0"
    assert "run0 has left is too much" in first and str(aside) in first
    assert aside.is_dir() and sum(1 for _ in aside.glob("t/*")) >= 20000 - 2 * 4096
    place.daemon.send_signal(signal.SIGCONT)
    assert "listening" in place.daemon.stderr.readline().decode()
    assert set(place.listed()) == {f"run{number}" for number in range(1, 65)}
    place.kill_daemon()
    place.begin()
    place.start("run0", record=record("run0", "armed"))
    wait_for(lambda: not aside.exists(), 10, "the rest removed")
    assert place.listed()["run0"]["state"] == "armed"


@needs_root
def test_what_is_just_being_started_is_not_removed(place):
    """Its folder may be the oldest of all, and its guard does not hold the lock yet: its interpreter hangs on a disk."""
    now = int(time.time())
    for number in range(64):
        place.make_ended(f"run{number}", at=now - 1000 + number)
    disk, faults = place.folder / "fuse", place.folder / "faults"
    disk.mkdir()
    faults.mkdir()
    fuse = subprocess.Popen(["/usr/bin/python3", "-B", Path(__file__).parent / "fuse_disk.py", disk, faults])
    try:
        wait_for(disk.is_mount, 10, "the FUSE disk")
        place.begin()
        place.start("live", record=record("live", "armed"))
        (place.program.parent / "kldump-run").write_text(f"#!{disk}/python3\n")
        (faults / "hang").touch()
        with place.control() as client:
            number = place.start("run0", client=client)
            children = list(Path(f"/proc/{place.daemon.pid}/task").glob("*/children"))
            wait_for(lambda: len("".join(path.read_text() for path in children).split()) == 2, 5, "a child that hangs")
            place.kill("live")
            wait_for(lambda: place.ended() == {"guard-lost": 1}, 5, "one more is over")
            assert (place.runtime / "runs/run0/record.json").exists()
            (faults / "hang").unlink()
            assert client.receive()["id"] == number
    finally:
        (faults / "hang").unlink(missing_ok=True)
        subprocess.run(["umount", "-l", disk], check=False)
        fuse.wait(10)


def test_long_logs_are_kept_for_fewer(place):
    now = int(time.time())
    for number in range(8):
        folder = place.make_ended(f"run{number}", at=now - 1000 + number)
        with open(folder / "server.log", "wb") as log:
            os.posix_fallocate(log.fileno(), 0, 60 << 20)
    place.begin()
    assert set(place.listed()) == {f"run{number}" for number in range(4, 8)}


# ---- the folder

@pytest.fixture
def disk(place):
    """The runtime folder on a small tmpfs of its own."""
    if os.geteuid() != 0:
        pytest.skip("missing: root, to mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M,mode=0700", "kldump-test", place.runtime], check=True)
    (place.runtime / "runs").mkdir(mode=0o700)
    yield place.runtime
    place.end_runs()
    if place.daemon is not None and place.daemon.poll() is None:
        place.kill_daemon()
    subprocess.run(["umount", "-l", place.runtime], check=True)


def fill(folder):
    try:
        with open(folder / "filler", "ab", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
    except OSError:
        pass
    for name in range(10000):  # and no inode for an empty file either
        try:
            (folder / f"filler{name}").touch()
        except OSError:
            return


@needs_root
def test_a_full_folder(place, disk):
    place.begin()
    for name in "ab":
        place.start(name, record=record(name, "armed"))
        wait_for((disk / f"runs/{name}/control").exists, what="its socket, before nothing can be made any more")
    fill(disk)
    assert {name: run["state"] for name, run in place.listed().items()} == {"a": "armed", "b": "armed"}
    place.kill("a")
    wait_for(lambda: place.ended() == {"guard-lost": 1}, 5, "counted in mind")
    assert place.listed()["a"]["outcome"] == "guard-lost"
    with place.control() as control:
        assert control.call("status", run="b")["run"]["name"] == "b"
    for path in disk.glob("filler*"):
        path.unlink()
    assert place.ended() == {"guard-lost": 1}
    assert json.loads((disk / "ended.json").read_text())["ended"]["guard-lost"] == 1  # written at the first chance
    fill(disk)
    said = place.words()
    assert said.count("kept in mind alone") == 1
    assert process_is_alive(place.pid("b"))
    first = place.begin()  # whether it can serve or not, it says so, and no run ends
    assert "listening" in first or "No space left" in first
    assert process_is_alive(place.pid("b"))


def begin_real(place, name):
    """A run of the real guard on the stand-in, by a kldumpd of the build."""
    words = place.command()
    place.ctl("start", "--name", name, "--dir", place.folder / f"dumps-{name}", "--floor", "64M", "--", *words)


def told_of(place, name):
    """The outcome as each of the commands tells it."""
    listed = [json.loads(line) for line in place.ctl("list", "--json").stdout.splitlines()]
    return {"status": json.loads(place.ctl("status", name, "--json").stdout)["runs"][0]["outcome"],
            "list": next(run["outcome"] for run in listed if run.get("name") == name),
            "wait": json.loads(place.ctl("wait", name, "--for", "ended", "--json").stdout)["runs"][0]["outcome"],
            "events": place.ctl("events", name).stdout.splitlines()[-1].split(": ")[1].split()[0],
            "kldumpd": place.listed()[name]["outcome"]}


@needs_root
@pytest.mark.parametrize("when", ["before it begins", "while it lives"])
def test_a_run_that_ends_while_the_folder_is_full_is_told_as_it_ended(place, disk, when):
    """The guard's last record cannot be written, nor the copy beside the dump: the register has its last word."""
    place.start_daemon()
    if when == "before it begins":
        begin_real(place, "a")
        os.kill(place.listed()["a"]["guard_pid"], signal.SIGKILL)
        wait_for(lambda: place.ended() == {"guard-lost": 1}, 5, "the end of the older run")
        fill(disk)  # its record stays
    begin_real(place, "a")
    fill(disk)
    assert place.listed()["a"]["state"] == "armed"
    dumps = place.folder / "dumps-a"
    shutil.rmtree(dumps)
    place.ctl("stop", "a")
    ended = {"stopped": 1, **({"guard-lost": 1} if when == "before it begins" else {})}
    wait_for(lambda: place.ended() == ended, 5, "counted")
    assert not dumps.exists()
    for path in disk.glob("filler*"):
        path.unlink()
    assert told_of(place, "a") == dict.fromkeys(("status", "list", "wait", "events", "kldumpd"), "stopped")
    place.kill_daemon()
    place.start_daemon()
    assert told_of(place, "a") == dict.fromkeys(("status", "list", "wait", "events", "kldumpd"), "stopped")
    assert place.ended() == ended
    run = place.listed()["a"]
    assert run["state"] == "ended" and run["exit_status"] == 0 and run["pid"] is None
    place.kill_daemon()
    if when == "while it lives":  # else there is no record but kldumpd's
        assert json.loads(place.ctl("status", "a", "--json").stdout)["runs"][0]["outcome"] == "stopped"


@needs_root
def test_a_run_of_the_wrapper_that_ends_while_the_folder_is_full(place, disk):
    """Its status is the command's own; what is told later comes from kldumpd."""
    place.start_daemon()
    wrapper = subprocess.Popen([BUILD / "kldumpctl", "run", "--name", "w", "--dir", place.folder / "dumps-w", "--floor", "64M", "--", *place.command()],
                               env=place.environment, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: place.listed().get("w", {}).get("state") == "armed", what="armed")
    fill(disk)
    shutil.rmtree(place.folder / "dumps-w")
    place.ctl("stop", "w")
    assert wrapper.wait(20) == 0
    wait_for(lambda: place.ended() == {"stopped": 1}, 5, "counted")
    for path in disk.glob("filler*"):
        path.unlink()
    place.kill_daemon(signal.SIGTERM)  # which writes what could not be written
    place.start_daemon()
    assert told_of(place, "w") == dict.fromkeys(("status", "list", "wait", "events", "kldumpd"), "stopped")


@contextlib.contextmanager
def covered_read_only(folder):
    """FOLDER lies under a view of itself that takes no writes. The view turns read-only elsewhere, before anybody writes through it:
    a mount in which a file is open for writing at that moment is busy."""
    with tempfile.TemporaryDirectory() as view:
        subprocess.run(["mount", "--bind", folder, view], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
            subprocess.run(["mount", "--bind", view, folder], check=True)
        finally:
            subprocess.run(["umount", "-l", view], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)  # whoever ends in it may not be gone yet


@needs_root
def test_a_read_only_folder(place, disk):
    place.begin()
    for name in "ab":
        place.start(name, record=record(name, "armed"))
        wait_for((disk / f"runs/{name}/control").exists, what="its socket, before nothing can be made any more")
    with covered_read_only(disk):
        assert place.listed()["a"]["state"] == "armed"
        place.kill("a")
        wait_for(lambda: place.ended() == {"guard-lost": 1}, 5, "counted in mind")
        refused(place.start, "c", exit=125, say='{"error":"system","status":125,"message":"read-only"}')
        with place.control() as control:
            assert control.call("status", run="b")["run"]["name"] == "b"
        place.kill_daemon()
        first = place.begin()
        assert str(disk) in first and "Read-only file system" in first and place.daemon.wait(10) == 125
        assert process_is_alive(place.pid("b"))
    assert "1 run live" in place.begin()
    assert place.listed()["b"]["state"] == "armed"


@needs_root
def test_a_run_in_a_folder_that_turns_read_only():
    """Nothing of it can be written any more: the run dumps, is shown as it is and stopped as ever, and a start says why not."""
    with Place() as place:
        assert "listening" in place.start_daemon()
        with place.control() as control:
            control.call("start", **place.plan("a"))
            control.call("wait", run="a", **{"for": "armed", "timeout_ms": 30000})
        with covered_read_only(place.runtime):
            place.ctl("dump", "a", "e")
            with place.control() as control:
                [listed] = control.call("list")["runs"]
            assert (listed["state"], listed["exp"]) == ("dumping", "e") and listed["told_age_ms"] < 15000
            place.ctl("pause", "a", check=False)
            plan = place.plan("b")
            done = place.ctl("start", *plan["arguments"], check=False)
            assert done.returncode == 125 and "Read-only file system" in done.stderr and "run b" in done.stderr, done.stderr
            assert place.ctl("stop", "a").stdout.startswith("a: stopped")
            run = json.loads(place.ctl("status", "a", "--json").stdout)["runs"][0]
            assert (run["state"], run["outcome"]) == ("ended", "stopped"), run


def owned(place, name, pid, **more):
    """The daemon's own record, as of another daemon."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    folder = place.runtime / "owned"
    folder.mkdir(mode=0o700, exist_ok=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"schema": "kldump.owned/1", "boot_id": boot, "name": name, "uid": os.geteuid(), "owner": "me",
                                "started_unix_ms": 1, "pid": pid, "start_ticks": ticks, "unit": "", "cgroup": "", "cgroup_inode": 0,
                                "end": "", **more}))
    path.chmod(0o600)
    return path


def test_state_of_another_boot(place):
    """Everything is still there but the processes, and their numbers are taken by others."""
    for name in "ab":
        folder = place.make_ended(name)
        (folder / "record.json").write_text(record(name, "dumping", pid=os.getpid(), guard_pid=os.getpid()))
        os.mknod(folder / "control", 0o600 | 0o140000)
    owned(place, "a", os.getpid(), boot_id="0e2d6c1e-0000-4000-8000-000000000000")
    owned(place, "b", os.getpid(), start_ticks=1)
    (place.runtime / "control.lock").write_text("")
    os.mknod(place.runtime / "control", 0o600 | 0o140000)
    (place.runtime / "ended.json").write_text('{"schema":"kldump.ended/1","ended":{"floor":2},"live":{"a":77,"b":78}}')
    assert "0 runs live" in place.begin()
    runs = place.listed()
    assert {name: run["outcome"] for name, run in runs.items()} == {"a": "guard-lost", "b": "guard-lost"}
    assert place.ended() == {"floor": 2, "guard-lost": 2}
    place.start("a", record=record("a", "armed"))
    assert place.listed()["a"]["state"] == "armed"


def test_a_run_whose_own_record_is_damaged_goes_on(place):
    place.begin()
    place.start("a", record=record("a", "armed"))
    place.kill_daemon()
    path = owned(place, "a", place.pid("a"))
    path.write_bytes(path.read_bytes()[:40])
    first = place.begin()
    assert "damaged record" in first and "owned/a.json" in first
    assert "1 run live" in place.daemon.stderr.readline().decode()
    assert place.listed()["a"]["state"] == "armed"
    assert (path.parent / "a.json.damaged").exists()
    with place.control() as control:
        assert control.call("status", run="a")["run"]["name"] == "a"


@needs_root
def test_a_run_of_which_no_record_is_left_is_taken_over(place):
    """As of a daemon that was killed between the launch and the record: by what the kernel knows of the guard."""
    place.start_daemon()
    begin_real(place, "a")
    path = place.runtime / "owned/a.json"
    before = json.loads(path.read_text())
    if not before["cgroup"]:
        pytest.skip("missing: a cgroup of version 2 that can be written in")
    place.kill_daemon()
    path.unlink()
    place.start_daemon()
    wait_for(path.exists, 5, "a record")
    after = json.loads(path.read_text())
    same = ("name", "uid", "pid", "start_ticks", "unit", "cgroup", "cgroup_inode")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    run = place.listed()["a"]
    os.kill(run["guard_pid"], signal.SIGSTOP)  # neither of them acts any more
    os.kill(run["guard_pid"], signal.SIGKILL)
    wait_for(lambda: not process_is_alive(run["pid"]) and place.listed()["a"]["outcome"] == "guard-lost", 5, "the end of all")


def test_a_run_is_live_by_its_own_record_alone(place):
    """Found again by pid and start time, also when its user has removed the lock; and its end is noticed at once."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        folder = place.make_ended("a")
        (folder / "record.json").write_text(record("a", "armed"))
        (folder / "lock").unlink()
        owned(place, "a", sleeper.pid)
        assert "1 run live" in place.begin()
        assert place.listed()["a"]["state"] == "armed" and place.listed()["a"]["owner"] == "me"
    finally:
        sleeper.kill()
        sleeper.wait()
    wait_for(lambda: place.listed()["a"]["outcome"] == "guard-lost", 2, "its end")
    assert place.ended() == {"guard-lost": 1}


@needs_root
def test_what_a_user_mounts_over_his_folder_is_not_entered(place):
    folder = place.make_ended("mounted")
    place.make_ended("good")
    subprocess.run(["mount", "-t", "tmpfs", "kldump-test", folder], check=True)
    try:
        (folder / "record.json").write_text(record("mounted", "ended", "stopped"))
        place.begin()
        runs = place.listed()
        assert runs["good"]["state"] == "ended"
        assert runs["mounted"]["state"] == "unknown" and "mounted over" in runs["mounted"]["message"]
    finally:
        subprocess.run(["umount", folder], check=True)


def test_the_folder_is_removed_under_it(place):
    place.begin()
    place.start("a", record=record("a", "armed"))
    wait_for((place.runtime / "runs/a/control").exists, what="its socket: nothing is made in the folder any more")
    shutil.rmtree(place.runtime / "runs")
    assert place.listed() == {}
    (place.runtime / "runs").mkdir(mode=0o700)
    assert place.listed() == {}
