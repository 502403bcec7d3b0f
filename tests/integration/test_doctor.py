"""The doctor beside real guards, dumps that end by themselves, and the live view: what it says is what then happens."""
import json
import os
import signal
import subprocess
import time

import pytest
from guarded import CTL, VERSION, wait_for


def doctor(place, *arguments, status=0):
    done = place.ctl("doctor", "--json", *arguments, status=None)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    failing = {name for name, check in checks.items() if check["result"] == "fail"}
    assert done.returncode == bool(failing)
    return checks, failing - {"address"}  # a machine without a network is none of a run's here


@pytest.mark.real
def test_the_real_sglang_is_recognised(place, servers):
    """Nothing is booted."""
    checks, failing = doctor(place, "--dir", str(place.folder / "d"), "--floor", "64M", "--", *place.command(servers("real")))
    assert not failing, checks
    for name in ("command", "python", "sglang", "settings"):
        assert checks[name]["result"] == "pass", checks[name]
    assert checks["sglang"]["value"].startswith(VERSION + ", gets --disable-decode-cuda-graph --disable-prefill-cuda-graph")


def test_what_the_doctor_says_is_what_happens(place, standin):
    """Nothing fails: the run gets to armed. Then its name, port and folder are taken, and a second run is refused so."""
    command = place.command(standin)
    options = ["--name", "t", "--dir", str(place.folder / "dumps-t"), "--floor", "64M", "--", *command]
    begin = time.monotonic()
    checks, failing = doctor(place, *options)
    assert time.monotonic() - begin < 10  # less than 3 s on a machine that does nothing else
    assert not failing, checks
    for name in ("command", "sglang", "settings", "port", "folder", "space", "name"):
        assert checks[name]["result"] == "pass", checks[name]
    assert "--disable-prefill-cuda-graph" in checks["sglang"]["value"]
    assert not (place.folder / "dumps-t").exists()

    run = place.run(standin, command=command).armed()
    checks, failing = doctor(place, *options)
    assert failing == {"name", "port", "folder"}, checks
    assert "that of the live run t" in checks["folder"]["value"]
    assert f"held by pid {run.status()['pid']} " in checks["port"]["value"]
    assert checks["left-processes"]["result"] == "pass" or str(run.status()["pid"]) not in checks["left-processes"]["value"]

    os.kill(run.pid, signal.SIGKILL)
    run.process.wait()
    wait_for(lambda: not place.survivors(), 10)
    checks, failing = doctor(place, *options)
    assert not failing, checks
    assert "the guard of t was killed" in checks["left-runs"]["value"]


def test_refusals_of_the_guard_are_those_of_the_doctor(place, standin):
    """(options, environment, the check that fails); the guard refuses each, too, before anything runs."""
    foreign = place.folder / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    here = ["--dir", place.folder / "d", "--floor", "64M"]
    for options, flags, check in ((["--dir", foreign, "--floor", "64M"], [], "folder"),
                                  (["--dir", place.folder / "d", "--floor", "8000T"], [], "space"),
                                  ([*here, "--soft", "1M"], [], "space"),
                                  ([*here, "--soft", "8000T"], [], "space"),
                                  (here, ["--enable-torch-compile"], "settings"),
                                  (here, ["--dp-size", "2"], "settings")):
        arguments = [*options, "--", *place.command(standin, *flags)]
        checks, failing = doctor(place, *map(str, arguments))
        assert failing == {check}, (options, flags, checks)
        assert checks[check]["advice"]
        done = place.ctl("run", *arguments, status=None, limit=30)
        assert done.returncode in (80, 88), done.stderr


def test_dumps_that_end_by_themselves(place, standin):
    run = place.run(standin).armed()
    sender = run.send("--requests", 100000, "--prompt", 8, background=True)
    done = run.dump("passes", options=["--passes", "5", "--force"])
    assert done.stdout.startswith("passes: "), done.stdout
    seal = json.loads((run.directory / "passes.kldump.json").read_text())
    assert seal["sealed_by"] == "limit"
    assert seal["check"]["steps"] >= 5
    run.wait_state("armed")
    begin = time.monotonic()
    done = place.ctl("dump", "t", "while", "--for", "300ms", "--force", "--json", status=None)
    assert time.monotonic() - begin >= 0.3
    assert json.loads(done.stdout)["sealed_by"] == "limit"
    sender.kill()
    sender.wait()
    # a limit that is reached under a client is the client's dump
    done = run.dump("client", "--requests", "3", options=["--for", "1h"])
    assert "client: complete" in done.stdout
    place.ctl("stop", "t")
    run.exits_with(0)


def test_watching_a_run_to_its_end(place, standin):
    run = place.run(standin).armed()
    watcher = place.start([CTL, "status", "t", "--watch", "--json"], stdout=subprocess.PIPE, text=True)
    first = json.loads(watcher.stdout.readline())["runs"][0]
    assert first["state"] == "armed"
    place.ctl("stop", "t")
    run.exits_with(0)
    rest, _ = watcher.communicate(timeout=30)
    last = json.loads(rest.splitlines()[-1])["runs"][0]
    assert (last["state"], last["outcome"]) == ("ended", "stopped")
    assert watcher.returncode == 0
