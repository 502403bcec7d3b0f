"""The disk, level by level, with the stand-in: what is refused before the launch, warning, soft level, budget, the floor of bytes
and of inodes, and disks that go wrong: a quota, read-only, unmounted, hanging, telling nothing."""
import contextlib
import errno
import json
import os
import subprocess
import time

import pytest
from guarded import LowestSpace, wait_for

MIB = 1 << 20
SOON = 20  # for what should come within a second or two


def settings(place, **keys):
    """Options that only a file takes."""
    path = place.folder / "settings"
    path.write_text("[run]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()))
    return ["--config", path]


def events(run, kind="space"):
    return [event["text"] for event in run.record["events"] if event["kind"] == kind]


def wait_event(run, text, kind="space", limit=SOON):
    wait_for(lambda: any(text in event for event in events(run, kind)), limit, f"the event '{text}' among {events(run, kind)}")


def wait_ended(run):
    """The dump has ended by itself; the run is armed."""
    wait_for(lambda: run.record["run"]["state"] == "armed" and run.record["run"]["seals"], SOON, "the seal")
    seal = run.directory / f"{run.record['run']['seals'][-1]['experiment']}.kldump.json"
    wait_for(seal.exists, SOON, "the seal's file")  # written by a thread of its own
    return json.loads(seal.read_text())


# ---- before the launch

def test_refused_disks(place, standin):
    """Each with the numbers, before anything is launched."""
    disk = place.small_disk("256M")
    few = place.small_disk("256M", ",nr_inodes=1200", name="few")
    silent, faults = place.fuse_disk()
    (faults / "zero").touch()
    for name, (options, status, words) in {
        "larger": ({"floor": "1G"}, 88, ("1.0 GiB", "larger than the whole", "256.0 MiB")),
        "above": ({"floor": "250M"}, 88, ("256.0 MiB free", "250.0 MiB", "--floor")),
        "soft-below": ({"options": ["--soft", "32M"]}, 80, ("--soft 32.0 MiB", "floor 64.0 MiB")),
        "soft-above": ({"options": ["--soft", "300M"]}, 88, ("--soft 300.0 MiB", "256.0 MiB free")),
        "worst": ({"options": settings(place, worst_rate="100G")}, 88, ("kill level", "worst_rate")),
        "inodes": ({"directory": few / "d"}, 88, ("free inodes", "floor 120")),
        "silent": ({"directory": silent / "d"}, 88, ("(fuse) does not tell its free space",)),
    }.items():
        run = place.run(standin, name=name, **{"directory": disk / "d", **options})
        output = run.exits_with(status)
        assert all(word in output for word in words), output
        assert "launch:" not in output and not run.folder.exists()


def test_levels_are_shown(place, standin):
    """A floor in percent, in bytes from then on; of the inodes too."""
    disk = place.small_disk("512M", ",nr_inodes=100000")
    options = ["--budget", "3M", *settings(place, worst_rate="1G")]  # kill levels 6 MiB and 12 MiB above the floor
    run = place.run(standin, directory=disk / "d", floor="12.5%", options=options).armed()
    space = run.status()["space"]
    assert (space["floor_bytes"], space["soft_bytes"], space["warn_bytes"], space["budget_bytes"]) == (64 * MIB, 128 * MIB, 160 * MIB, 3 * MIB)
    assert (space["floor_inodes"], space["written_bytes"], space["level"], space["pending_bytes"]) == (12500, 0, "fine", None)
    assert space["act_inodes"] > 12500 and 12500 < space["free_inodes"] <= 100000
    line = next(line for line in run.output.splitlines() if "dumps in" in line)
    for words in ("512.0 MiB free on tmpfs", "floor 64.0 MiB", "dumping off at 128.0 MiB", "warning at 160.0 MiB", "floor 12500", "budget 3.0 MiB"):
        assert words in line, line


def test_a_soft_level_below_the_kill_level_is_raised_and_said(place, standin):
    disk = place.small_disk("512M")
    options = ["--soft", "65M", *settings(place, worst_rate="2G")]
    run = place.run(standin, directory=disk / "d", options=options).armed()
    space = run.status()["space"]
    margin = 2048 * MIB * 6 // 1000  # a rehearsed kill counts as 5 ms at least
    assert space["soft_bytes"] >= 64 * MIB + 3 * margin - 3 and space["warn_bytes"] > space["soft_bytes"]
    first, *_ = [text for text in events(run) if text.startswith("soft raised by ")]
    assert "to 100.9 MiB: a run that writes most may be killed 24.6 MiB above the floor" in first, first
    done = place.ctl("doctor", "--dir", str(disk / "d2"), "--floor", "64M", *map(str, options), status=None)
    line = next(line for line in done.stdout.splitlines() if " space " in line)
    assert "dumping off at 100.9 MiB" in done.stdout and "soft raised by 35.9 MiB" in done.stdout, line


# ---- the levels above the floor

def test_warned_then_softened_then_free_again(place, standin):
    """Low space is said; at the soft level the dump is sealed, the run lives on, and dumps again once there is room."""
    disk = place.small_disk("1G")
    run = place.run(standin, directory=disk / "d", options=["--soft", "800M"]).armed()
    run.dump("one", "--requests", 1, "--prompt", 8)
    run.dump("two")
    filler = disk / "filler"
    with open(filler, "wb") as out:
        out.write(bytes(130 * MIB))
    wait_event(run, "warning level")
    assert run.record["run"]["state"] == "dumping" and run.status()["space"]["level"] == "warn"
    with open(filler, "ab") as out:
        out.write(bytes(100 * MIB))
    seal = wait_ended(run)
    assert (seal["experiment"], seal["sealed_by"]) == ("two", "soft")
    wait_event(run, "soft level 800.0 MiB")
    assert "soft level" in run.dump("three", status=88).stderr
    filler.unlink()
    wait_event(run, "enough free space again")
    run.dump("three", "--requests", 1, "--prompt", 8)
    place.ctl("stop", run.name)
    run.exits_with(0)


def test_budget_ends_the_dump(place, standin):
    run = place.run(standin, options=["--budget", "1M"]).armed()
    run.start_dump("one")
    seal = wait_ended(run)
    assert seal["sealed_by"] == "budget" and run.record["run"]["space"]["written_bytes"] >= MIB
    assert "budget is used up" in run.dump("two", status=88).stderr
    place.ctl("stop", run.name)
    run.exits_with(0)


def test_budget_kills_what_goes_on_writing(place, standin):
    """Every rank has said that dumping is off, and the folder grows all the same."""
    run = place.run(standin, options=["--budget", "1M"]).armed()
    run.start_dump("one")
    wait_ended(run)
    begin = time.monotonic()
    number = 900000
    while run.process.poll() is None and time.monotonic() - begin < SOON:
        number += 1
        with contextlib.suppress(OSError):
            name = f"step=99999___rank=0___dump_index={number}___name=more___recompute_status=disabled.pt"
            (run.directory / "one" / name).write_bytes(bytes(4096))
        time.sleep(0.05)
    output = run.exits_with(84)
    assert "bytes still came after dumping was off" in output


# ---- the floor

def test_floor_of_inodes(place, standin):
    """Room for bytes, none for files."""
    disk = place.small_disk("2G", ",nr_inodes=12000")
    run = place.run(standin, directory=disk / "d", floor="16M", faults="fill-files=2000").armed()
    run.start_dump("one")
    lowest = 12000
    while run.process.poll() is None:
        lowest = min(lowest, os.statvfs(disk).f_favail)
        time.sleep(0.001)
    output = run.exits_with(83)
    assert lowest >= 1000 and "inodes free" in output and "floor 1000" in output


def test_the_line_says_whose_bytes(place, standin):
    """Somebody else fills the disk: the run is killed, and the line says how little of it was its own."""
    disk = place.small_disk("512M")
    run = place.run(standin, directory=disk / "d").armed()
    run.dump("one", "--requests", 1, "--prompt", 8)
    with LowestSpace(disk) as space, open(disk / "filler", "wb") as out:
        while run.process.poll() is None and out.tell() < 400 * MIB:
            out.write(bytes(MIB))
            out.flush()
            time.sleep(0.002)
    output = run.exits_with(83)
    line = next(line for line in output.splitlines() if "killed at the floor" in line)
    wrote, went = line.split("this run wrote ")[1].split(" of the ")
    assert float(wrote.split()[0]) > 0 and "MiB" in wrote or "KiB" in wrote
    assert float(went.split()[0]) > 300, line
    kill = run.record["floor_kill"]  # how fast it was ends the last line, measured
    took = -(-(kill["gone_ns"] - kill["decided_ns"]) // 1000000)
    assert output.splitlines()[-1].endswith(f"; everything dead {took} ms after the decision"), output.splitlines()[-1]
    assert place.ctl("events", "t").stdout.endswith(f"; everything dead {took} ms after the decision\n")
    assert "does not answer" not in output, "what the kill causes is no news before it"
    assert space.lowest >= 64 * MIB


def test_of_two_runs_the_larger_writer_goes_first(place, standin):
    """One small disk, one floor: who fills it is killed, by its own guard; who dumps little beside it lives, and goes on."""
    disk = place.small_disk("384M")
    options = {"options": settings(place, worst_rate="2G")}
    small = place.run(standin, name="small", directory=disk / "small", **options)
    large = place.run(standin, name="large", directory=disk / "large", **options)
    small.armed(), large.armed()
    for run in (small, large):
        run.dump("one")
    before = small.status()["space"]
    margin = before["act_bytes"] - 64 * MIB
    assert margin > 20 * MIB, "while a dump is open and little went the run counts as the writer: two margins"
    small.send("--requests", 1, "--prompt", 64)
    with LowestSpace(disk) as space:
        large.send("--requests", 100000, "--prompt", 1000, "--new", 1, background=True)
        assert large.exit(120) == 83
        time.sleep(1)
    assert "kill level" in large.output and space.lowest >= 64 * MIB
    after = small.status()
    assert after["state"] in ("dumping", "sealing", "armed"), small.output[-2000:]  # dumping may be off: the soft level
    assert after["space"]["act_bytes"] - 64 * MIB <= margin // 2 + MIB, "of what went it wrote little"
    for path in large.directory.iterdir():
        subprocess.run(["rm", "-rf", path], check=True)
    place.ctl("pause", "small", status=None)  # or the soft level has done it
    wait_for(lambda: small.status()["state"] == "armed" and small.status()["space"]["level"] == "fine", SOON, "room")
    small.dump("two", "--requests", 1, "--prompt", 8)
    place.ctl("stop", "small")
    small.exits_with(0)


# ---- disks that go wrong

@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC], ids=["quota", "full"])
def test_own_write_meets_a_limit_that_figures_do_not_show(place, standin, number):
    disk, faults = place.fuse_disk()
    run = place.run(standin, directory=disk / "d").armed()
    run.dump("one")
    (faults / "errno").write_text(str(number))
    output = run.exits_with(83)
    line = next(line for line in output.splitlines() if "killed at the floor" in line)
    assert os.strerror(number) in line and "GiB are free there" in line and "quota" in line


def test_read_only_told_by_figures(place, standin):
    disk = place.small_disk("512M")
    run = place.run(standin, directory=disk / "d").armed()
    run.dump("one", "--requests", 1, "--prompt", 8)
    run.dump("two")
    wait_for(lambda: subprocess.run(["mount", "-o", "remount,ro", disk], stderr=subprocess.DEVNULL, check=False).returncode == 0, 10, "remount")
    wait_event(run, "has become read-only")
    wait_for(lambda: run.record["run"]["state"] == "armed", SOON, "the end of the dump")
    refused = run.dump("three", status=88).stderr
    assert "read-only; nothing can be dumped until it takes writes again" in refused and "soft" not in refused
    wait_for(lambda: "two.kldump.json: Read-only" in run.output, SOON, "the seal that fails")  # once is not for ever
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    wait_event(run, "enough free space again")
    place.ctl("stop", run.name)
    run.exits_with(0)


def test_read_only_told_by_an_own_write(place, standin):
    """A filesystem that failed refuses writes and says nothing of it in its figures."""
    disk, faults = place.fuse_disk()
    run = place.run(standin, directory=disk / "d").armed()
    run.dump("one")
    (faults / "errno").write_text(str(errno.EROFS))
    wait_event(run, "has become read-only")
    wait_for(lambda: run.record["run"]["state"] == "armed", SOON, "the end of the dump")
    place.ctl("stop", run.name)
    run.exits_with(0)


def test_unmounted_underneath(place, standin):
    """The server writes by path, so it now fills another filesystem than the one that is watched."""
    disk = place.small_disk("512M")
    run = place.run(standin, directory=disk / "d", options=settings(place, blind_limit="1s")).armed()
    run.start_dump("one")
    subprocess.run(["umount", "-l", disk], check=True)
    place.mounts.remove(disk)
    output = run.exits_with(83)
    # "cannot be reached" until the server makes the folder anew where the disk was
    assert ("cannot be reached any more" in output or "on another filesystem now" in output) and "free space could not be read" in output


def test_unmounted_while_nothing_is_dumped(place, standin):
    """Nothing is written: nothing is killed. The next dump finds out."""
    disk = place.small_disk("512M")
    (disk / "d").mkdir()
    run = place.run(standin, directory=disk, options=settings(place, blind_limit="1s"))
    assert "holds 'd'" in run.exits_with(88)
    (disk / "d").rmdir()
    run = place.run(standin, directory=disk, options=settings(place, blind_limit="1s")).armed()
    subprocess.run(["umount", "-l", disk], check=True)
    place.mounts.remove(disk)
    time.sleep(1)
    assert run.process.poll() is None
    run.dump("one", status=None)
    assert "another filesystem" in run.exits_with(83)


@pytest.mark.parametrize("fault,words", [("hang", "does not answer"), ("zero", "has told no free space")])
def test_blind_while_dumping(place, standin, fault, words):
    """A disk that does not answer, or tells nothing: killed after the limit, since nobody could keep the floor."""
    disk, faults = place.fuse_disk()
    run = place.run(standin, directory=disk / "d", options=settings(place, blind_limit="1s")).armed()
    run.dump("one")
    begin = time.monotonic()
    (faults / fault).touch()
    wait_event(run, words)
    space = run.status()["space"]
    assert space["level"] == "blind" and space["reading_age_ms"] > 2500
    assert time.monotonic() - begin < 10
    wait_event(run, "killed: free space could not be read for 1")
    (faults / fault).unlink()  # what waits in the kernel for a dead disk cannot be killed before it answers
    assert "free space could not be read" in run.exits_with(83)


@pytest.mark.parametrize("fault", ["hang", "zero"])
def test_blind_while_armed(place, standin, fault):
    """Nothing is dumped, so nothing is killed; the guard answers, refuses a dump, and goes on when the disk is back."""
    disk, faults = place.fuse_disk()
    run = place.run(standin, directory=disk / "d", options=settings(place, blind_limit="1s")).armed()
    (faults / fault).touch()
    wait_event(run, "free space cannot be read")
    time.sleep(1.5)  # beyond the limit of a dump
    begin = time.monotonic()
    assert run.status()["state"] == "armed"
    assert time.monotonic() - begin < 5
    assert "free space cannot be read" in run.dump("one", status=88).stderr
    (faults / fault).unlink()
    wait_event(run, "can be read again")
    run.dump("one", "--requests", 1, "--prompt", 8)
    place.ctl("stop", run.name)
    run.exits_with(0)


def test_full_runtime_folder_ends_nothing(place, standin):
    """Log and record have no room: said, and the run goes on."""
    place.runtime = place.small_disk("4M", name="runtime")
    place.runtime.chmod(0o700)
    run = place.run(standin).armed()
    with contextlib.suppress(OSError), open(place.runtime / "filler", "wb", buffering=0) as out:
        while out.write(bytes(4096)):
            pass
    run.dump("one", "--requests", 3, "--prompt", 8)
    wait_for(lambda: "No space left" in run.output, SOON, "the warning")
    assert run.status()["state"] == "armed"
    place.ctl("stop", run.name)
    assert "floor" not in [line for line in run.exits_with(0).splitlines() if "error" in line]
