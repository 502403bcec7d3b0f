"""Faults of the stand-in: servers that look healthy and are not, and servers that do not want to end."""
import json
import os
import signal
import subprocess
import time

import pytest
from guarded import CTL, GONE_S, PYTHON, SEND, is_alive, wait_for

TWO_RANKS = ["--tp-size", "2"]

# What is switched on, more flags, what the message must name: the setting to blame among it.
UNPROVEN = [
    ("graph-prefill", [], ["--disable-prefill-cuda-graph", "prefill"]),
    ("graph-prefill=hidden", [], ["--disable-prefill-cuda-graph", "prefill"]),
    ("graph-decode", [], ["--disable-decode-cuda-graph", "decode"]),
    ("graph-decode=hidden", [], ["--disable-decode-cuda-graph", "decode"]),
    ("graph-prefill=hidden,graph-decode=hidden", [], ["cuda-graph"]),
    ("no-hooks", [], ["DUMPER_SERVER_PORT", "no hooks"]),
    ("mode-core", [], ["DUMPER_NON_INTRUSIVE_MODE"]),
    ("foreign-request", [], ["other clients"]),
    ("health-pass", [], ["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"]),
    ("rank-silent", TWO_RANKS, ["rank 1"]),
    ("failing-writes", [], ["DUMPER_DIR"]),
    ("cached-probe", [], ["cache"]),
    ("no-rids", [], ["rids"]),
]


@pytest.mark.parametrize("faults, flags, named", UNPROVEN, ids=lambda value: value if isinstance(value, str) else "")
def test_hooks_that_cannot_be_proven(place, standin, faults, flags, named):
    run = place.run(standin, faults=faults, flags=flags)
    output = run.exits_with(82)
    end = output[output.rindex("verify-failed"):]
    assert not [word for word in named if word not in end], end
    proofs = run.record["run"]["proofs"]
    assert proofs["verdict"] == "failed" and proofs["text"]
    assert run.record["run"]["outcome"] == "verify-failed"


def test_a_reset_while_verifying(place, standin):
    place.run(standin, faults="reset-hooks=1").exits_with(82)


def test_hooks_lost_after_arming(place, standin):
    """Somebody calls /dumper/reset: what is dumped afterwards is not complete, and the seal says so."""
    run = place.run(standin, faults="reset-hooks=5").armed()
    run.dump("dec", "--requests", "2", "--new", "3", status=None)
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert not seal["complete"] and seal["reasons"]
    place.ctl("stop", "t")
    run.exits_with(0)


def test_two_healthy_ranks(place, standin):
    run = place.run(standin, flags=TWO_RANKS).armed()
    assert run.status()["proofs"]["ranks"] == 2
    run.dump("dec", "--new", "2")
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"] and seal["check"]["ranks"] == 2 and len(seal["expected"]["ranks"]) == 2
    place.ctl("stop", "t")
    run.exits_with(0)


def test_two_stages(place, standin):
    """Each has its own layers and counts its own files; between them goes a word that is no tensor."""
    run = place.run(standin, flags=["--pp-size", "2"]).armed()
    proofs = run.status()["proofs"]
    assert proofs["ranks"] == 2 and proofs["verdict"] == "proven", proofs
    run.dump("dec", "--new", "2")
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    place.ctl("stop", "t")
    run.exits_with(0)


def test_one_decode_pass_more(place, standin):
    run = place.run(standin, faults="extra-decode-pass").armed()
    assert "3 decode passes" in run.status()["proofs"]["text"]
    run.dump("dec")
    place.ctl("stop", "t")
    run.exits_with(0)


def test_control_that_hangs_while_verifying(place, standin):
    """The start limit ends it, whatever it waits for."""
    run = place.run(standin, faults="control-hang", options=["--start-timeout", "4s"])
    output = run.exits_with(81, 30)
    assert "start-timeout" in output and "verifying" in output


def test_server_that_dies_while_dumping(place, standin):
    run = place.run(standin, faults="crash-on-dump=6").armed()
    done = run.dump("dec", "--requests", "9", status=None)
    assert done.returncode != 0
    output = run.exits_with(137)
    assert "server-exited" in output and "signal 9" in output
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["sealed_by"] == "death"


def test_slow_dump_is_not_lost_control(place, standin):
    run = place.run(standin, faults="slow-dump=10").armed()
    run.dump("dec", "--new", "3")
    assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]
    place.ctl("stop", "t")
    run.exits_with(0)


# ---- servers that do not want to end

STUBBORN = ["setsid-child", "double-fork", "stopped-child", "fork-storm", "ignore-term",
            "setsid-child,double-fork,stopped-child,ignore-term"]
GUARANTEES = [{}, {"KLDUMP_NO_CGROUP": "1"}]


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
@pytest.mark.parametrize("faults", STUBBORN)
def test_orderly_stop_leaves_nothing(place, standin, faults, guarantee):
    run = place.run(standin, faults=faults, environment=guarantee, options=["--stop-timeout", "1s"]).armed()
    if guarantee:
        assert run.status()["guarantee"].startswith("keeper alone")
    place.ctl("stop", "t")
    run.exits_with(0)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
@pytest.mark.parametrize("faults", STUBBORN)
def test_killed_guard_leaves_nothing(place, standin, faults, guarantee):
    run = place.run(standin, faults=faults, environment=guarantee).armed()
    run.process.kill()
    run.dies_within(GONE_S)


@pytest.mark.parametrize("faults", ["", "setsid-child,double-fork", "fork-storm"])
def test_killed_keeper_leaves_nothing_without_a_cgroup(place, standin, faults):
    run = place.run(standin, faults=faults, environment={"KLDUMP_NO_CGROUP": "1"}).armed()
    os.kill(run.keeper(), signal.SIGKILL)
    run.exits_with(85)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
def test_orphans_without_a_guard(place, standin, guarantee):
    """A server that is still loading, whose children have no parent."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_LOAD_MS": "20000", **guarantee}).wait_state("loading", 20)
    wait_for(lambda: len(place.survivors()) >= 5, 20, "the server's children")
    os.kill(run.status()["pid"], signal.SIGKILL)
    run.process.kill()
    run.dies_within(GONE_S)


def test_an_ended_server_with_a_child_that_stays(place, standin):
    """The child in its own session outlives a server that ends in order: it is killed, nobody waits for it for ever."""
    run = place.run(standin, faults="setsid-child").armed()
    begin = time.monotonic()
    place.ctl("stop", "t")
    run.exits_with(0)
    assert time.monotonic() - begin < 15


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def test_strangers_are_left_alone(place, standin):
    """A process with the same name and of the same user, but of nobody's run, lives on."""
    canary = place.start([standin.python(place), "-m", "sglang.launch_server", "--model-path", "/m", "--port", str(place.port())],
                         start_new_session=True)
    try:
        run = place.run(standin, environment={"KLDUMP_NO_CGROUP": "1"}).armed()
        run.process.kill()
        end = time.monotonic() + GONE_S
        mine = lambda: [pid for pid in place.survivors() if session_of(pid) not in (None, canary.pid)]  # noqa: E731
        while mine() and time.monotonic() < end:
            time.sleep(0.02)
        assert not mine()
        assert is_alive(canary.pid)
    finally:
        os.killpg(canary.pid, signal.SIGKILL)


def test_a_client_under_which_the_run_is_stopped(place, standin):
    """The run is stopped under a dump with a client: the dump ends with the run, and says how."""
    run = place.run(standin).armed()
    client = place.start([CTL, "dump", "t", "dec", "--", PYTHON, "-B", SEND, "--sleep", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list((run.directory / "dec").glob("*.pt"))) >= 369, 20, "all files of the request")
    place.ctl("stop", "t")
    assert client.wait(30) == 0
    run.exits_with(0)
    assert json.loads((run.directory / "dec.kldump.json").read_text())["sealed_by"] == "stop"
