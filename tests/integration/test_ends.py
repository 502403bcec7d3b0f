"""How runs end, on both servers: asked for, interrupted, at the floor, and when the guard or its keeper is killed."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from guarded import GONE_S, LowestSpace, is_alive, state_of, title_of, wait_for
from kldump_programs import Control

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, for a small filesystem of its own")


def test_stop_in_order(place, server):
    """An open dump is sealed, the server ends by TERM, the record lies beside the dump, and nothing else is left."""
    run = place.run(server).armed()
    run.dump("dec", "--new", "2")
    run.start_dump("open").kill()  # a server waits for its clients before it ends
    done = place.ctl("stop", "t")
    assert done.stdout.startswith("t: stopped") and "open: complete" in done.stdout
    output = run.exits_with(0)
    assert "SIGTERM received" in run.log and "Application shutdown complete" in run.log
    assert "stopped: asked for by uid" in output
    seal = json.loads((run.directory / "open.kldump.json").read_text())
    assert seal["sealed_by"] == "stop" and seal["complete"], seal["reasons"]
    record = json.loads((run.directory / "t.kldump-run.json").read_text())
    assert record["events"] == run.record["events"]
    assert record["schema"] == "kldump.record/1"
    assert (record["run"]["state"], record["run"]["outcome"], record["run"]["exit_status"]) == ("ended", "stopped", 0)
    assert [seal["experiment"] for seal in record["run"]["seals"]] == ["dec", "open"]
    assert record["settings"]["floor"] and record["notes"] and record["space_history"]
    assert sorted(path.name for path in run.directory.iterdir()) == ["dec", "dec.kldump.json", "open", "open.kldump.json",
                                                                     "t.kldump-run.json"]
    assert not (run.folder / "control").exists() and not (run.folder / "t").exists()
    ended = place.ctl("status", "t").stdout
    assert "ended: stopped" in ended
    place.ctl("wait", "t", "--for", "ended")
    assert "fired up and ready" in place.ctl("logs", "t").stdout
    assert "stopped" in place.ctl("events", "t").stdout


def test_stop_now(place, server):
    run = place.run(server).armed()
    run.start_dump("cut")
    place.ctl("stop", "t", "--now")
    run.exits_with(0)
    assert "SIGTERM received" not in run.log
    assert json.loads((run.directory / "cut.kldump.json").read_text())["sealed_by"] == "death"


def test_one_interrupt_seals_and_stops(place, server):
    run = place.run(server, terminal=True).armed()
    run.start_dump("dec").kill()
    run.type("\x03")
    output = run.exits_with(130)
    assert "once more kills at once" in output
    assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]
    assert "SIGTERM received" in run.log


def test_two_interrupts_kill(place, server):
    run = place.run(server, terminal=True).armed()
    run.start_dump("dec")
    os.kill(run.status()["pid"], signal.SIGSTOP)  # so that the seal waits for the second one
    begin = time.monotonic()
    run.type("\x03")
    wait_for(lambda: "once more kills at once" in run.output, 10)
    run.type("\x03")
    output = run.exits_with(130)
    assert time.monotonic() - begin < 10
    assert "interrupted again: killing" in output
    assert json.loads((run.directory / "dec.kldump.json").read_text())["sealed_by"] == "death"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["TERM", "HUP"])
def test_term_and_hang_up_are_orderly_stops(place, standin, number):
    run = place.run(standin).armed()
    run.start_dump("dec").kill()
    run.process.send_signal(number)
    run.exits_with(130)
    assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]
    assert "SIGTERM received" in run.log


# ---- the guard is killed, and nothing may be left

def loading(place, server, **options):
    run = place.run(server, environment={"KLDUMP_STANDIN_LOAD_MS": "20000"}, **options)
    run.wait_state("loading", 20)
    wait_for(lambda: len(place.survivors()) >= 5, 60, "the server's children")
    return run


def verifying(place, server, **options):
    return place.run(server, faults="slow-dump=20", **options).wait_state("verifying")


def armed(place, server, **options):
    return place.run(server, **options).armed()


def dumping(place, server, **options):
    run = place.run(server, **options).armed()
    run.start_dump("dec")
    return run


def sealing(place, server, **options):
    run = place.run(server, faults="slow-dump=5", **options).armed()
    run.start_dump("dec")
    with Control(run.folder / "control") as control:
        control.send("wait", **{"for": "sealing", "timeout_ms": 20000})  # begun first: a seal may be there before a command has begun
        threading.Thread(target=place.ctl, args=("pause", "t"), kwargs={"status": None}, daemon=True).start()
        assert control.receive()["result"]["run"]["state"] == "sealing"
    return run


STATES = [loading, verifying, armed, dumping, sealing]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_guard_killed(place, server, state):
    run = state(place, server)
    run.remember_cgroup()
    run.process.kill()
    assert run.dies_within(GONE_S) < GONE_S
    assert run.exit() == -signal.SIGKILL
    status = place.ctl("status", "t", "--json")
    found = json.loads(status.stdout)["runs"][0]
    assert (found["state"], found["outcome"], found["exit_status"]) == ("ended", "guard-lost", 85)
    place.ctl("wait", "t", "--for", "ended")
    place.ctl("dump", "t", "more", status=1)


def test_the_name_of_a_killed_guard_is_free_again(place, standin):
    run = armed(place, standin)
    run.process.kill()
    run.dies_within()
    again = place.run(standin, directory=place.folder / "other").armed()
    place.ctl("stop", "t")
    again.exits_with(0)


def test_guard_killed_while_its_server_has_orphans(place, server):
    """Killed in the same moment: the server's main process, so that its children have no parent, and the guard."""
    run = loading(place, server)
    main = run.status()["pid"]
    os.kill(main, signal.SIGKILL)
    run.process.kill()
    run.dies_within(GONE_S)


def test_orphans_of_a_server_that_is_killed_while_loading(place, server):
    run = loading(place, server)
    os.kill(run.status()["pid"], signal.SIGKILL)
    output = run.exits_with(81)
    assert "signal 9" in output


def test_guard_stopped(place, server):
    """A guard that sleeps guards nothing: its keeper kills the run, and the guard says so when it goes on."""
    run = armed(place, server)
    run.remember_cgroup()
    guard, keeper = run.pid, run.keeper()
    server_pid = run.status()["pid"]
    run.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: not is_alive(server_pid), 2 + GONE_S, "the end of the server")
    wait_for(lambda: set(place.survivors()) <= {guard, keeper}, GONE_S, "the end of everything but the guard and its keeper")
    run.process.send_signal(signal.SIGCONT)
    output = run.exits_with(85)
    assert "stopped for too long" in output


@pytest.mark.parametrize("state", [loading, dumping], ids=lambda state: state.__name__)
def test_keeper_killed(place, server, state):
    run = state(place, server)
    run.remember_cgroup()
    guard = run.pid
    os.kill(run.keeper(), signal.SIGKILL)
    wait_for(lambda: set(place.survivors()) <= {guard}, GONE_S, "the end of the server")
    output = run.exits_with(85)
    assert "keeper" in output


# ---- the floor

@needs_root
def test_floor_reached_by_dumping(place, server):
    """The dump fills a small disk; the run is killed before the floor is crossed. The real server writes 1.5 GB/s for
    milliseconds, and the floor holds for writers up to worst_rate."""
    disk, floor = place.small_disk("384M"), 64 << 20
    config = place.folder / "config"
    config.write_text("[run]\nworst_rate = 4G\n")
    run = place.run(server, directory=disk / "dumps", options=["--config", config]).armed()
    with LowestSpace(disk) as space:
        run.dump("big")
        run.send("--requests", 100000, "--prompt", 1000, "--new", 1, background=True)
        run.exit(240)
        place.nothing_lives()
    assert run.process.returncode == 83, run.output[-3000:]
    assert space.lowest >= floor, f"lowest {space.lowest}, floor {floor}"
    line = next(line for line in run.output.splitlines() if line.startswith("kldump:") and "floor" in line and "error" in line)
    assert "64.0 MiB" in line
    ended = run.record["run"]
    assert (ended["outcome"], ended["exit_status"], ended["space"]["level"]) == ("floor", 83, "floor")
    seal = json.loads((run.directory / "big.kldump.json").read_text())
    assert seal["sealed_by"] == "death"


@needs_root
def test_floor_reached_by_somebody_else(place, standin):
    """Whoever filled the disk: the run that could fill it further is killed."""
    disk = place.small_disk("256M")
    config = place.folder / "config"
    config.write_text("[run]\nworst_rate = 2G\n")
    run = place.run(standin, directory=disk / "dumps", options=["--config", config]).armed()
    subprocess.run(["fallocate", "-l", "200M", str(disk / "other")], check=True)
    assert "floor" in run.exits_with(83)


@needs_root
def test_floor_while_verifying(place, standin):
    """Also a probe is a dump: the floor holds before the run is armed."""
    disk = place.small_disk("256M")
    config = place.folder / "config"
    config.write_text("[run]\nworst_rate = 2G\n")
    run = place.run(standin, directory=disk / "dumps", options=["--config", config], faults="slow-dump=50").wait_state("verifying")
    subprocess.run(["fallocate", "-l", "200M", str(disk / "other")], check=True)
    assert run.exit(20) == 83


STUCK = "#!/bin/sh\n(while :; do echo x >> {disk}/file; done) &\nexec {server} -m sglang.launch_server --model-path /m --port {port} $KLDUMP_SGLANG_ARGS\n"


@needs_root
def test_a_process_that_the_kernel_holds(place, standin):
    """It waits for a disk that was frozen, where no KILL reaches it: the run ends all the same and names it."""
    image, disk, port = place.folder / "image", place.folder / "frozen", place.port()
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    disk.mkdir()
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    place.mounts.append(disk)
    script = place.folder / "serve"
    script.write_text(STUCK.format(disk=disk, server=standin.python(place), port=port))
    script.chmod(0o755)
    run = place.run(standin, command=[script, "--port", str(port)]).armed()
    subprocess.run(["fsfreeze", "-f", disk], check=True)
    try:
        [writer] = [pid for pid in place.survivors() if title_of(pid) == f"/bin/sh {script} --port {port}"]
        wait_for(lambda: state_of(writer) == "D", 20, "the writer to be held")  # others may be in D for a moment
        place.ctl("stop", "t", "--now", status=None)
        assert run.exit(60) == 86, run.output[-3000:]
    finally:
        subprocess.run(["fsfreeze", "-u", disk], check=True)
    run.dies_within(10)
    ended = run.record["run"]
    assert ended["outcome"] == "unkillable" and f"pid {writer} " in ended["message"] and "state D" in ended["message"]
