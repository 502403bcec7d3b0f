"""Each exit status that the manual promises occurs, and the record says the same."""
import os
import signal
import subprocess

import pytest
from guarded import CTL, PYTHON, SEND, wait_for


def stop(place, run):
    place.ctl("stop", "t")


def nothing(place, run):
    pass


def interrupt(place, run):
    run.process.send_signal(signal.SIGINT)


def kill_keeper(place, run):
    os.kill(run.keeper(), signal.SIGKILL)


def kill_server(place, run):
    os.kill(run.status()["pid"], signal.SIGKILL)


def fill(place, run):
    subprocess.run(["fallocate", "-l", "200M", str(run.directory.parent / "other")], check=True)


# status, outcome of the record (None: refused before there is one), how it is started, what is done once armed
ENDS = [
    (0, "stopped", {}, stop),
    (80, None, {"environment": {"DUMPER_ENABLE": "1"}}, None),
    (81, "start-failed", {"faults": "crash-loading"}, None),
    (81, "start-timeout", {"faults": "hang-loading", "options": ["--start-timeout", "2s"]}, None),
    (82, "verify-failed", {"faults": "graph-prefill"}, None),
    (83, "floor", {"disk": True}, fill),
    (85, "guard-lost", {}, kill_keeper),
    (88, None, {"floor": "900T"}, None),
    (125, None, {"options": ["--no-such-option"]}, None),
    (126, "start-failed", {"command": ["/etc/passwd"]}, None),
    (127, "start-failed", {"command": ["/nonexistent/program"]}, None),
    (130, "stopped", {}, interrupt),
    (137, "server-exited", {}, kill_server),
]


@pytest.mark.parametrize("status, outcome, how, act", ENDS, ids=[f"{row[0]}-{row[1]}" for row in ENDS])
def test_run(place, standin, status, outcome, how, act):
    how = dict(how)
    if how.pop("disk", False):
        if os.geteuid() != 0:
            pytest.skip("missing: root, for a small filesystem of its own")
        config = place.folder / "config"
        config.write_text("[run]\nworst_rate = 2G\n")
        how.update(directory=place.small_disk("256M") / "dumps", options=["--config", config])
    run = place.run(standin, **how)
    if act:
        run.armed()
        act(place, run)
    output = run.exits_with(status)
    assert output.startswith("kldump")
    if outcome:
        ended = run.record["run"]
        assert (ended["state"], ended["outcome"], ended["exit_status"]) == ("ended", outcome, status)
        place.ctl("wait", "t", "--for", "ended")


SERVER = """#!/usr/bin/python3
import os, signal, subprocess, sys
child = subprocess.Popen([{python!r}, "-m", "sglang.launch_server", "--model-path", "/m", "--port", {port!r},
                          *os.environ["KLDUMP_SGLANG_ARGS"].split()])
signal.signal(signal.SIGUSR1, lambda *ignored: (child.kill(), child.wait(), sys.exit({status})))
signal.pause()
"""


@pytest.mark.parametrize("status, outcome", [(0, "completed"), (7, "server-exited")])
def test_own_status_of_a_server_that_ends_by_itself(place, standin, status, outcome):
    port, script = str(place.port()), place.folder / "serve.py"
    script.write_text(SERVER.format(python=str(standin.python(place)), port=port, status=status))
    script.chmod(0o755)
    run = place.run(standin, command=[str(script), "--port", port]).armed()
    os.kill(run.status()["pid"], signal.SIGUSR1)
    run.exits_with(status)
    assert run.record["run"]["outcome"] == outcome


def test_commands(place, standin):
    """1, 2, 4, 87, 88, 89 and the client's own: what the other commands end with."""
    run = place.run(standin, name="u", directory=place.folder / "d").armed()
    place.ctl("pause", "u", status=1)
    place.ctl("dump", status=2)
    place.ctl("status", "nobody", status=87)
    place.ctl("start", "--name", "x", "--floor", "64M", "--", "python3", status=87)
    place.ctl("wait", "u", "--for", "ended", "--timeout", "200ms", status=89)
    run.dump("dec", "--new", "3")
    run.dump("dec", "--new", "1", status=88)
    place.ctl("dump", "u", "x1", "--", "/bin/sh", "-c", "exit 9", status=9)
    place.ctl("dump", "u", "x2", "--", "/bin/sh", "-c", "kill -9 $$", status=137)
    place.ctl("dump", "u", "x3", "--", "/bin/true", status=4)
    place.ctl("check", place.folder / "d/dec")
    next(path for path in (place.folder / "d/dec").iterdir()).write_bytes(b"")
    place.ctl("check", place.folder / "d/dec", status=4)
    place.ctl("stop", "u")
    run.exits_with(0)


def test_interrupted_dump(place, standin):
    """Ctrl-C goes to the client; the dump is sealed all the same."""
    run = place.run(standin).armed()
    dumper = place.start([CTL, "dump", "t", "dec", "--", PYTHON, "-B", SEND, "--sleep", "100"], start_new_session=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run.wait_state("dumping", 20)
    wait_for(lambda: len(list((run.directory / "dec").glob("*.pt"))) > 300, 20)
    os.killpg(dumper.pid, signal.SIGINT)
    assert dumper.wait(30) == 130
    run.wait_state("armed", 20)
    place.ctl("stop", "t")
    run.exits_with(0)
    assert (run.directory / "dec.kldump.json").exists()
