"""Clients that get into each other's way, and guards that start and end in poor conditions: on the stand-in."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from guarded import BUILD, CTL, PYTHON, children_of, is_alive, title_of, wait_for
from kldump_programs import Control, ControlError


def connect(run):
    return Control(run.folder / "control")


def test_a_refused_dump_does_not_take_the_dump_from_its_holder(place, standin):
    """The first client holds the dump; a second one is refused and goes: the dump stays on. The first goes: off."""
    run = place.run(standin).armed()
    holder = connect(run)
    holder.call("dump", experiment="first", hold=True, own_request_ids=["mine-0"])
    with connect(run) as second, pytest.raises(ControlError) as refused:
        second.call("dump", experiment="second", hold=True, own_request_ids=["other"])
    assert refused.value.name == "busy"
    run.send("--rid", "mine")
    with connect(run) as third, pytest.raises(ControlError):
        third.call("dump", experiment="third")
    assert run.status()["exp"] == "first"
    holder.close()
    run.wait_state("armed", 20)
    wait_for((run.directory / "first.kldump.json").exists)
    seal = json.loads((run.directory / "first.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    assert seal["expected"]["own_request_ids"] == ["mine-0"]
    place.ctl("stop", "t")
    run.exits_with(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, for a filesystem that is slow when told to")
def test_a_dump_is_over_when_its_seal_can_be_read(place, standin):
    """Whoever waits for the end of a dump finds its seal, on a slow disk as well; also who asks after its end, while another is dumped."""
    disk, faults = place.fuse_disk()
    (faults / "rename").write_text("few.kldump.json")
    run = place.run(standin, directory=disk / "d").armed()
    dump = place.start([CTL, "dump", "t", "few", "--passes", "2"], stdout=subprocess.PIPE, text=True)
    run.wait_state("dumping")
    run.send("--requests", "2", "--prompt", "8")
    wait_for(lambda: run.status()["seals"], what="the seal, which is known before it is written")
    with connect(run) as late:
        pause, status = late.send("pause", experiment="few"), late.send("status")
        assert late.receive()["id"] == status and dump.poll() is None
        (faults / "rename").unlink()
        assert late.receive()["id"] == pause and (run.directory / "few.kldump.json").exists()
        assert dump.communicate(timeout=30)[0].startswith("few: complete") and dump.returncode == 0
        assert json.loads((run.directory / "few.kldump.json").read_text())["sealed_by"] == "limit"
        run.start_dump("more")
        assert late.call("pause", experiment="few")["sealed_by"] == "limit" and run.status()["exp"] == "more"
        with pytest.raises(ControlError) as refused:
            late.call("pause", experiment="mere")
        assert refused.value.name == "state" and "does not dump into mere" in str(refused.value) and run.status()["exp"] == "more"
        assert late.call("pause", experiment="more")["experiment"] == "more"
        run.wait_state("armed")
        assert late.call("pause", experiment="more")["experiment"] == "more"
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_pause_joined_by_a_stop_is_answered_with_the_seal(place, standin):
    run = place.run(standin).armed()
    run.start_dump("dec")
    pause = place.start([CTL, "pause", "t"], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: run.status()["state"] != "dumping")
    place.ctl("stop", "t", "--now")
    text, _ = pause.communicate(timeout=30)
    assert "dec" in text
    run.exits_with(0)


SLOW_VERSION = """#!/bin/sh
echo $$ > "$HOME/version.pid"
exec sleep 100
"""


def test_interrupt_while_the_version_is_asked(place, standin):
    """Nothing of the run is left, the helper program neither, and the status is that of an interruption."""
    slow = place.folder / "slow/python3"
    slow.parent.mkdir()
    slow.write_text(SLOW_VERSION)
    slow.chmod(0o755)
    command = [str(slow), *place.command(standin)[1:]]
    run = place.run(standin, command=command, terminal=True)
    wait_for((place.folder / "version.pid").exists)
    wait_for(lambda: (place.folder / "version.pid").read_text().strip())
    run.type("\x03")
    output = run.exits_with(130, 10)
    assert "interrupted before the server was started" in output
    assert sorted(path.name for path in run.folder.iterdir()) == ["lock"]


@pytest.mark.parametrize("closed", ["", "0", "01", "012", "2"])
def test_closed_standard_descriptors(place, standin, closed):
    """What is meant for people goes nowhere then, and above all into no file or socket of the guard."""
    program = f"import os,sys\n[os.close(int(fd)) for fd in {closed!r}]\nos.execv(sys.argv[1], sys.argv[1:])"
    arguments = ["run", "--name", "t", "--dir", place.folder / "d", "--floor", "64M", "--", *place.command(standin)]
    place.before = [PYTHON, "-c", program]
    run = place.run(standin, arguments=arguments, directory=place.folder / "d")
    place.before = []
    run.armed()
    server = run.status()["pid"]
    assert sorted(int(fd) for fd in os.listdir(f"/proc/{server}/fd"))[:3] == [0, 1, 2]
    assert os.readlink(f"/proc/{server}/fd/0") == "/dev/null"
    run.dump("dec", "--new", "2")
    place.ctl("stop", "t")
    run.exits_with(0)
    assert (run.folder / "lock").read_bytes() == b""
    assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]


def test_no_hang_up_under_nohup(place, standin):
    place.before = ["nohup"]
    run = place.run(standin)
    place.before = []
    run.armed()
    run.process.send_signal(signal.SIGHUP)
    run.dump("dec", "--new", "2")
    assert run.status()["state"] == "armed"
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_removed_dump_folder_is_told(place, standin):
    """The seal and the record's copy cannot be written: said on the terminal and in the record; the run ends all the same."""
    run = place.run(standin).armed()
    run.dump("dec", "--new", "2")
    run.directory.rename(place.folder / "elsewhere")
    place.ctl("stop", "t")
    output = run.exits_with(0)
    path = f"{run.directory}/t.kldump-run.json"
    assert f"warning: cannot write {path}: No such file or directory" in output
    assert any(path in event["text"] for event in run.record["events"])


def test_a_full_standard_error_harms_nothing(place, standin):
    with open("/dev/full", "wb") as full:
        run = place.run(standin, output=full).armed()
    run.dump("dec", "--new", "2")
    place.ctl("stop", "t")
    run.exits_with(0)
    assert sum("No space left on device" in event["text"] for event in run.record["events"]) == 1


def reads(pid, folder):
    with contextlib.suppress(OSError):
        return any(os.readlink(link).startswith(str(folder)) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_an_audit_ends_with_its_guard(place, standin):
    """It reads a large dump for minutes; when its guard is killed nothing of the run may go on."""
    run = place.run(standin).armed()
    run.start_dump("dec")
    wait_for(lambda: sum(1 for _ in (run.directory / "dec").iterdir()) > 3000)
    pause = place.start([CTL, "pause", "t"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    audit = wait_for(lambda: [pid for pid in children_of(run.pid) if " check " in title_of(pid) and reads(pid, run.directory)], 60)[0]
    os.kill(audit, signal.SIGSTOP)
    run.process.kill()
    run.dies_within()
    assert not is_alive(audit)
    pause.wait(10)


def test_the_key_in_the_last_lines_of_a_failed_start(place, standin):
    """The server prints its arguments, and its last lines go into the record, which is copied beside the dumps."""
    key = "correct-horse-battery"
    run = place.run(standin, flags=["--api-key", key], faults="exit-loading")
    output = run.exits_with(81)
    assert any("server_args=" in line for line in output.splitlines() if line.startswith("kldump:")), output
    assert "server_args=" in run.log and "*" * len(key) in run.log
    assert key not in output + run.log
    assert key not in (run.folder / "record.json").read_text()
    assert key not in (run.directory / "t.kldump-run.json").read_text()


# Beside the guard in place of kldumpctl: audits, and says of each pass what it says a hundred thousand times.
LARGE_AUDIT = """#!/usr/bin/python3
import json, subprocess, sys
done = subprocess.run([{ctl!r}, *sys.argv[1:]], stdout=subprocess.PIPE)
audit = json.loads(done.stdout)
if "kldump-probe" not in sys.argv[-1]:
    audit["passes"] = audit["passes"][:1] * 250000
print(json.dumps(audit))
sys.exit(done.returncode)
"""


def test_a_large_audit_is_no_silence(place, standin):
    """The guard reads for seconds what was found in a quarter of a million passes: its keeper must not take it for dead."""
    programs = place.folder / "programs"
    programs.mkdir()
    for name in ("kldump-run", "kldump-keeper"):
        shutil.copy(BUILD / name, programs)
    audit = programs / "kldumpctl"
    audit.write_text(LARGE_AUDIT.format(ctl=str(CTL)))
    audit.chmod(0o755)
    place.before = [PYTHON, "-c", f"import os,sys\nos.execv({str(programs / 'kldump-run')!r}, ['kldump-run', *sys.argv[3:]])"]
    run = place.run(standin)
    place.before = []
    run.armed()
    run.dump("dec", "--new", "2", status=None)
    assert run.wait_state("armed", 60).status()["seals"][0]["experiment"] == "dec"
    assert len(json.loads((run.directory / "dec.kldump.json").read_text())["check"]["passes"]) == 250000
    run.send("--new", "2")
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_refused_rerun_keeps_the_record_of_the_run_before(place, standin):
    run = place.run(standin).armed()
    place.ctl("stop", "t")
    run.exits_with(0)
    before = run.record
    place.run(standin, flags=["--debug-tensor-dump-output-folder", "x"]).exits_with(80)
    assert run.record == before
    assert (run.folder / "server.log").exists()


def test_names_of_kldump_are_no_experiments(place, standin):
    run = place.run(standin).armed()
    refused = place.ctl("dump", "t", "kldump-idle", status=2)
    assert "kldump-" in refused.stderr
    place.ctl("stop", "t")
    run.exits_with(0)


def test_the_stop_timeout_is_the_whole_time_until_the_kill(place, standin):
    run = place.run(standin, faults="ignore-term", options=["--stop-timeout", "2s"]).armed()
    start = time.monotonic()
    place.ctl("stop", "t")
    assert 1.9 < time.monotonic() - start < 4
    run.exits_with(0)


def test_the_copy_tells_the_end_when_the_runtime_folder_is_full(place, standin):
    """The last record does not fit: status takes what stands beside the dump."""
    run = place.run(standin).armed()
    old = run.folder / "record.json"
    armed = json.loads(old.read_text())
    place.ctl("stop", "t")
    run.exits_with(0)
    old.write_text(json.dumps(armed))  # as a full disk leaves it
    status = json.loads(place.ctl("status", "t", "--json").stdout)["runs"][0]
    assert (status["state"], status["outcome"]) == ("ended", "stopped")
    (run.directory / "t.kldump-run.json").unlink()
    status = json.loads(place.ctl("status", "t", "--json").stdout)["runs"][0]
    assert status["outcome"] == "guard-lost"


def test_seals_can_be_read_by_who_may_read_the_dump(place, standin):
    run = place.run(standin).armed()
    run.dump("dec")
    place.ctl("stop", "t")
    run.exits_with(0)
    mask = os.umask(0)
    os.umask(mask)
    assert (run.directory / "dec.kldump.json").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (run.folder / "record.json").stat().st_mode & 0o777 == 0o600
