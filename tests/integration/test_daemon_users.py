"""Runs of several users through a kldumpd of root's that spawns them: each is his own in every respect, and nobody reaches
what is another's."""
import contextlib
import json
import os
import resource
import signal
from pathlib import Path

import pytest

from kldump_programs import Control, ControlError, process_is_alive, wait_for
from many_users import SharedPlace, environment_of, limits_of, parent_of, status_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to be several users")

DENIED = {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "1", "LISTEN_FDS": "3", "FDSTORE": "1", "MAINPID": "1", "INVOCATION_ID": "x",
          "JOURNAL_STREAM": "1:2", "SYSTEMD_EXEC_PID": "1", "CREDENTIALS_DIRECTORY": "/x", "RUNTIME_DIRECTORY": "/x",
          "STATE_DIRECTORY": "/x", "KLDUMP_RULES": "/nonexistent", "KLDUMP_RUN": "other", "KLDUMP_NO_CGROUP": "1"}


@pytest.fixture
def place():
    with SharedPlace() as found:
        found.start_daemon(environment={"INVOCATION_ID": "of-the-daemon", "SECRET_OF_ROOT": "x"})
        yield found


def cgroup_folder(pid):
    """Of the run: below it are guard, keeper, and the leaf of the server."""
    path = next(line[3:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
    mount = next(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line)
    return Path(mount + path)


def is_this_person(person, pid):
    status = status_of(pid)
    return (status["Uid"] == [str(person.uid)] * 4 and status["Gid"] == [str(person.gid)] * 4
            and sorted(map(int, status["Groups"])) == sorted(person.groups) and int(status["Umask"][0], 8) == person.umask
            and int(status["CapEff"][0], 16) == 0)


def test_three_users_start_at_once_and_each_run_is_his_own(place):
    people = [
        place.person(47101, groups=[47000, 47001], umask=0o027, limits=[(resource.RLIMIT_NOFILE, (777, 1777))]),
        place.person(47102, groups=[47000], umask=0o077, limits=[(resource.RLIMIT_CORE, (0, 0)), (resource.RLIMIT_NOFILE, (999, 999))]),
        place.person(47103, limits=[(resource.RLIMIT_MEMLOCK, (65536, 131072))])]
    starts = [person.popen(place.programs / "kldumpctl", *person.start_words(f"r{person.uid}"),
                           environment=person.environment(MINE=str(person.uid), **DENIED)) for person in people]
    for process in starts:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    with place.control() as control:
        for person in people:
            name = f"r{person.uid}"
            run = control.call("status", run=name)["run"]
            assert (run["state"], run["uid"]) == ("armed", person.uid)
            guard, server = run["guard_pid"], run["pid"]
            for pid in guard, parent_of(server), server:
                assert is_this_person(person, pid), Path(f"/proc/{pid}/status").read_text()
                names = {resource.RLIMIT_NOFILE: "Max open files", resource.RLIMIT_CORE: "Max core file size",
                         resource.RLIMIT_MEMLOCK: "Max locked memory"}
                for limit, values in person.limits:
                    assert limits_of(pid)[names[limit]] == tuple(map(str, values))
            environment = environment_of(server)
            assert environment["MINE"] == str(person.uid) and environment["HOME"] == str(person.folder)
            assert not (DENIED.keys() | {"KLDUMP_RUNTIME_DIR", "SECRET_OF_ROOT"}) & environment.keys()
            assert environment_of(guard).keys() <= {"PATH", "LANG", "KLDUMP_RUNTIME_DIR", "KLDUMP_RULES"}
            assert os.readlink(f"/proc/{server}/cwd") == str(person.folder)
            assert os.getsid(guard) == guard
            assert f"/kldump-run-{name}.run/" in run["guarantee"] and cgroup_folder(guard).name == f"kldump-run-{name}.run"
            assert person.owns(cgroup_folder(guard)) and not (cgroup_folder(guard) / "cgroup.subtree_control").read_text().strip()
            folder = place.runtime / "runs" / name
            assert person.owns(folder) and folder.stat().st_mode & 0o777 == 0o700
            person.ctl("dump", name, "e", "--", "/usr/bin/python3", "-B", place.programs / "send.py")
            files = [*folder.rglob("*"), *(person.folder / f"dumps-{name}").rglob("*")]
            assert any(path.suffix == ".pt" for path in files) and any(path.name == "e.kldump.json" for path in files)
            files = [path for path in files if path.suffix != ".tmp"]  # a record on its way
            assert all(person.owns(path) for path in files), [path for path in files if not person.owns(path)]
            cgroup = cgroup_folder(guard)
            person.ctl("stop", name)
            wait_for(lambda guard=guard: not process_is_alive(guard), what="the end of the guard")
            wait_for(lambda cgroup=cgroup: not cgroup.exists(), what="the end of its cgroup")


def test_a_guard_that_is_killed_takes_its_run_along_and_its_cgroup_goes(place):
    person = place.person(47101)
    person.start("a")
    run = place.run("a")
    cgroup = cgroup_folder(run["guard_pid"])
    os.kill(run["guard_pid"], signal.SIGKILL)
    wait_for(lambda: not process_is_alive(run["pid"]), 5, "the end of the server")
    wait_for(lambda: not cgroup.exists(), what="the end of its cgroup")
    person.start("a")
    assert place.run("a")["state"] == "armed"


def test_a_record_that_cannot_be_written_makes_no_old_figures(place):
    """list tells what the guard says at the register, whatever its record says; others see as much of it as they may."""
    person, other = place.person(47101), place.person(47102)
    person.start("a")
    folder = place.runtime / "runs/a"
    folder.chmod(0o500)
    with (folder / "record.json").open("r+") as file:
        record = json.load(file)
        record["run"].update(state="launching", uptime_ms=1, space={"free_bytes": 1, "rate_bytes_per_s": 7})
        file.seek(0)
        json.dump(record, file)
        file.truncate()
    os.utime(folder / "record.json", (1e9, 1e9))
    person.ctl("dump", "a", "e")
    for who in person, other:
        run = json.loads(who.ctl("list", "--json").stdout)
        assert (run["name"], run["state"]) == ("a", "dumping") and run["told_age_ms"] < 15000
        assert run["space"]["free_bytes"] > 1 and run["space"]["reading_age_ms"] < 30000
        assert ("uptime_ms" in run) == (who is person)
        assert run["owner"] == json.loads(who.ctl("status", "a", "--json").stdout)["runs"][0]["owner"] == str(person.uid)
        assert f", by uid {person.uid}\n" in who.ctl("status", "a").stdout
        assert "old)" not in who.ctl("list").stdout
    folder.chmod(0o700)
    person.ctl("stop", "a")


def refusal(person, name, *options, **more):
    done = person.start(name, *options, check=False, **more)
    assert done.returncode != 0
    return done.returncode, done.stderr


def test_two_runs_do_not_share_a_folder_and_a_reader_cannot_take_one(place):
    """Of another user's run the pid is told. Who may only look into a folder does not lock its owner out."""
    person, other = place.person(47101), place.person(47102)
    shared, own = place.folder / "shared", place.folder / "own"
    for folder, mode in (shared, 0o777), (own, 0o755):
        folder.mkdir()
        os.chown(folder, person.uid, person.gid)
        folder.chmod(mode)
    person.start("a", folder=shared)
    guard = place.run("a")["guard_pid"]
    done = person.start("b", folder=shared, check=False)
    assert done.returncode == 88 and f"dump folder {shared} is that of the live run a; two runs" in done.stderr, done.stderr
    done = other.start("d", folder=shared, check=False)  # b is the first one's until its guard has ended
    assert done.returncode == 88 and f"in use by process {guard} of user {person.uid}, the guard of a live run" in done.stderr, done.stderr
    holder = other.popen("/usr/bin/flock", "--no-fork", own, "/usr/bin/sleep", "600")
    try:
        wait_for(lambda: f":{own.stat().st_ino} " in Path("/proc/locks").read_text(), what="the lock")
        person.start("c", folder=own)
    finally:
        holder.kill()
        holder.communicate()


def test_a_name_is_its_owners_while_the_run_lives_and_after(place):
    one, two = place.person(47101), place.person(47102)
    one.start("a")
    status, words = refusal(two, "a")
    assert status == 88 and "a run named a is live" in words and "uid 47101" in words
    one.ctl("stop", "a")
    record = place.runtime / "runs/a/record.json"
    before = record.read_bytes()
    status, words = refusal(two, "a")
    assert status == 88 and "uid 47101" in words and "choose another --name" in words
    assert record.read_bytes() == before and one.owns(record)
    for name in "..", "x/y", "../../etc", ".hidden", "x" * 65:
        assert refusal(two, name)[0] in (2, 125)
    with pytest.raises(ControlError) as caught, Control(place.runtime / "control") as control:
        control.call("start", arguments=["--name", "../../x", "--", "true"], environment=[], directory="/")
    assert caught.value.name == "bad-value"
    assert {path.name for path in (place.runtime / "runs").iterdir()} == {"a"}
    one.start("a")


def test_a_refused_start_leaves_nothing_and_an_older_run_as_it_was(place):
    person = place.person(47101)
    assert refusal(person, "new", environment=person.environment(DUMPER_ENABLE="1"))[0] == 80
    assert not (place.runtime / "runs/new").exists()
    wait_for(lambda: not (place.runtime / "owned/new.json").exists(), what="its guard's end, until which kldumpd remembers it")
    person.start("a")
    person.ctl("stop", "a")
    record = (place.runtime / "runs/a/record.json").read_bytes()
    assert refusal(person, "a", environment=person.environment(DUMPER_ENABLE="1"))[0] == 80
    assert (place.runtime / "runs/a/record.json").read_bytes() == record
    assert json.loads((place.runtime / "owned/a.json").read_text())["uid"] == person.uid


def test_no_user_makes_the_daemon_write_or_delete_what_is_not_his(place):
    one, two = place.person(47101), place.person(47102)
    two.folder.chmod(0o755)
    victim = two.folder / "precious"
    victim.write_text("of two")
    victim.chmod(0o644)
    os.chown(victim, two.uid, two.gid)
    roots = place.folder / "of-root"
    roots.mkdir()
    (roots / "file").write_text("of root")
    # his folder: dumps go there as the user who asks
    status, words = refusal(one, "a", folder=two.folder / "dumps")
    assert status == 88 and "Permission denied" in words
    # in the place of what a run makes: links to what is another's, then a start, a refused start and a stop
    one.start("b")
    one.ctl("stop", "b")
    folder = place.runtime / "runs/b"
    for entry, target in {"record.json": victim, "server.log": victim, "control": roots / "file", "t": roots, "lock": roots / "file"}.items():
        with contextlib.suppress(FileNotFoundError):
            (folder / entry).unlink() if not (folder / entry).is_dir() else (folder / entry).rmdir()
        (folder / entry).symlink_to(target)
        os.lchown(folder / entry, one.uid, one.gid)
    assert refusal(one, "b")[0] != 0  # the lock is a link
    (folder / "lock").unlink()
    assert refusal(one, "b", environment=one.environment(DUMPER_ENABLE="1"))[0] == 80
    one.start("b")
    one.ctl("stop", "b")
    os.link(victim, folder / "hard")
    refusal(one, "b", environment=one.environment(DUMPER_ENABLE="1"))
    assert victim.read_text() == "of two" and (roots / "file").read_text() == "of root" and os.lstat(victim).st_uid == two.uid
    # nor can he put another folder in the place of a run's, or among them
    for command in (["mv", folder, place.runtime / "runs/c"], ["ln", "-s", two.folder, place.runtime / "runs/d"], ["rmdir", folder],
                    ["touch", place.runtime / "owned/b.json"], ["rm", "-f", place.runtime / "control"]):
        process = one.popen(*command)
        process.communicate(timeout=30)
        assert process.returncode != 0, command


def test_a_run_of_roots_is_started_as_before(place):
    done = place.ctl("start", "--name", "z", "--dir", place.folder / "dz", "--floor", "64M", "--", *place.command())
    assert done.stdout == "z\n"
    run = place.run("z")
    assert (run["state"], run["uid"]) == ("armed", 0) and "/kldump-run-z.run/" in run["guarantee"]
    with pytest.raises(ControlError) as caught, Control(place.runtime / "control") as control:
        control.call("start", arguments=["--name", "y", "--", "true"], environment=[], directory="/", umask=0o1000)
    assert caught.value.name == "bad-value" and "umask" in caught.value.message


def test_who_waits_for_a_run_goes_on_when_kldumpd_ends(place):
    """The owner's command asks the guard then; somebody else's, who may not, the next kldumpd."""
    alice = place.person(47201)
    alice.start("w")
    guard = place.run("w")["guard_pid"]

    def connections():
        lines = Path("/proc/net/unix").read_text().splitlines()
        return sum(line.endswith(f"{place.runtime}/control") for line in lines)

    wait_for(lambda: connections() == 1, what="only kldumpd's own socket")
    words = [place.programs / "kldumpctl", "wait", "w", "--for", "ended"]
    waits = [alice.popen(*words), place.person(47202).popen(*words)]
    followed = alice.popen(place.programs / "kldumpctl", "logs", "w", "-f")
    wait_for(lambda: connections() == 4, what="all of them are connected, and wait or are about to")
    place.kill_daemon(signal.SIGTERM)
    wait_for(lambda: any(line.endswith(f"{place.runtime}/runs/w/control") for line in Path("/proc/net/unix").read_text().splitlines()
                         if " 03 " in line), what="one that asks the guard")
    place.start_daemon()
    assert all(process.poll() is None for process in [*waits, followed]) and process_is_alive(guard)
    alice.ctl("stop", "w")
    for process in waits:
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0 and "stopped" in out, (process.returncode, out, err)
    assert followed.communicate(timeout=20)[0].count("Uvicorn running") == 1 and followed.returncode == 0
