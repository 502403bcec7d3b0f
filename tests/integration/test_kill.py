"""What a kill leaves nothing of, and what is looked at when nothing lives any more: GPU memory, the port, shared memory;
and what holds when guard and keeper are both killed by 9 (one of them: test_ends.py). On the stand-in."""
import os
import signal
import socket
import time

import pytest
from guarded import GONE_S, is_alive, title_of, wait_for

ALONE = {"KLDUMP_NO_CGROUP": "1"}
GUARANTEES = [{}, ALONE]
both_guarantees = pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
HIDDEN, STRAYS = "setsid-child,double-fork", {"standin-helper", "[kworker/u4:7]"}


def notes(run):
    return [event["text"] for event in run.record["events"]]


# ---- GPU memory, with a driver that says what the test wants

class Driver:
    """nvidia-smi on the PATH of a run: prints the file `list` for the first TIMES calls."""

    def __init__(self, place, times, extra=""):
        self.folder = place.folder / "driver"
        self.folder.mkdir()
        program = self.folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncd {self.folder}\necho \"$*\" >> calls\n{extra}\n"
                           f"[ $(wc -l < calls) -gt {times} ] || cat list\n")
        program.chmod(0o755)
        (self.folder / "list").write_text("1, 80000\nno such thing\n")

    def environment(self):
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def lists(self, pids):
        (self.folder / "list").write_text("".join(f"{pid}, 1000\n" for pid in [1, *pids]))

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()


def test_gpu_memory_is_waited_for(place, standin):
    driver = Driver(place, 3)
    run = place.run(standin, environment=driver.environment()).armed()
    driver.lists(set(place.survivors()) - {run.pid, run.keeper()})
    place.ctl("stop", "t", "--now")
    run.exits_with(0)
    assert driver.calls() == ["--query-compute-apps=pid,used_memory --format=csv,noheader,nounits"] * 4
    assert any(text.startswith("GPU memory was given back") for text in notes(run))


def test_gpu_memory_that_is_not_given_back(place, standin):
    driver = Driver(place, 100000)
    run = place.run(standin, environment=driver.environment()).armed()
    driver.lists([run.status()["pid"]])
    begin = time.monotonic()
    place.ctl("stop", "t", "--now")
    run.exits_with(0)
    assert 9 < time.monotonic() - begin < 25
    assert "the driver still lists 1 dead processes of this run with 1000 MiB of GPU memory" in notes(run)


@pytest.mark.parametrize("extra", ["", "exit 9", "exec sleep 100"], ids=["others", "fails", "hangs"])
def test_a_driver_that_tells_nothing_of_this_run(place, standin, extra):
    driver = Driver(place, 100000, extra)
    run = place.run(standin, environment=driver.environment()).armed()
    begin = time.monotonic()
    place.ctl("stop", "t", "--now")
    run.exits_with(0)
    assert time.monotonic() - begin < (15 if "sleep" in extra else 8)
    assert len(driver.calls()) == 1
    assert not any("GPU" in text for text in notes(run))


# ---- the port and shared memory

def test_who_holds_the_port_afterwards_is_named(place, standin):
    run = place.run(standin).armed()
    port = run.status()["port"]
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))
        other.listen()
        place.ctl("stop", "t")
        run.exits_with(0)
        assert any(f"port {port} is held by pid {os.getpid()}" in text for text in notes(run))


def test_shared_memory_that_is_left_is_told(place, standin):
    run = place.run(standin, faults="shm-left").armed()
    place.ctl("stop", "t", "--now")
    run.exits_with(0)
    assert any(text.startswith("left in /dev/shm") and "sglang_loads_" in text for text in notes(run))

    run = place.run(standin, name="u", faults="shm-left").armed()
    place.ctl("stop", "u")
    run.exits_with(0)
    assert not any("/dev/shm" in text for text in notes(run))


# ---- guard and keeper are killed by 9

@both_guarantees
def test_both_killed(place, standin, guarantee):
    """The kernel ends the server, and its own processes follow. What had left it is nobody's: in a cgroup the next run
    kills it, without one doctor names it."""
    run = place.run(standin, faults=HIDDEN, environment=guarantee).armed()
    server, keeper = run.status()["pid"], run.keeper()
    run.process.send_signal(signal.SIGSTOP)  # so that it does not do the keeper's work
    os.kill(keeper, signal.SIGKILL)
    run.process.kill()
    wait_for(lambda: not is_alive(server) and {title_of(pid) for pid in place.survivors()} <= STRAYS, GONE_S, "the end of all but strays")
    left = place.survivors()
    assert left, "the stand-in's strays are gone by themselves: this test shows nothing"
    found = place.ctl("doctor", status=None)
    if guarantee:
        assert "processes of a run whose guard is gone" in found.stdout
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    else:
        again = place.run(standin, name="next").armed()
        assert any(event["text"].startswith("killed ") and "guard and keeper are gone" in event["text"] for event in again.events())
        assert not any(is_alive(pid) for pid in left)
        assert not os.path.exists(run.cgroup)
        place.ctl("stop", "next")
        again.exits_with(0)


def test_the_empty_cgroup_of_a_dead_run_goes(place, standin):
    run = place.run(standin).armed()
    server, keeper = run.status()["pid"], run.keeper()
    run.process.send_signal(signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    run.process.kill()
    wait_for(lambda: not is_alive(server) and not place.survivors(), GONE_S, "the end of the server")
    again = place.run(standin, name="next").armed()
    assert not os.path.exists(run.cgroup)
    place.ctl("stop", "next")
    again.exits_with(0)
