"""Several runs through kldumpd and kldumpctl: they outlive the daemon and are found again."""
import contextlib
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from kldump_programs import Place, process_is_alive, wait_for

SECRET = "s3cret-of-the-client"


@pytest.fixture
def place():
    with Place() as found:
        found.start_daemon()
        yield found


def start(place, name, *options, **more):
    return place.ctl("start", "--name", name, "--dir", place.folder / f"dumps-{name}", "--floor", "64M", *options, "--",
                     *place.command(), **more)


def status(place, *arguments):
    return json.loads(place.ctl("status", "--json", *arguments).stdout)["runs"]


def listed(place):
    return {run["name"]: run for run in map(json.loads, place.ctl("list", "--json").stdout.splitlines())}


def test_runs_outlive_the_daemon_and_are_found_again(place):
    start(place, "one")
    start(place, "two")
    assert {name: run["state"] for name, run in listed(place).items()} == {"one": "armed", "two": "armed"}
    [one] = status(place, "one")
    assert one["state"] == "armed" and one["proofs"]["verdict"] == "proven"
    place.ctl("stop", "one")
    assert listed(place)["one"]["outcome"] == "stopped"
    [before] = status(place, "two")
    place.kill_daemon(signal.SIGKILL)
    assert process_is_alive(before["guard_pid"]) and process_is_alive(before["pid"])
    assert "1 run live" in place.start_daemon()
    with place.control() as control:
        [after] = [run for run in control.call("list")["runs"] if run["name"] == "two"]
        assert (after["pid"], after["state"]) == (before["pid"], "armed")
        assert control.call("status")["run"]["guard_pid"] == before["guard_pid"]
        control.send("wait", run="two", **{"for": "ended", "timeout_ms": 30000})
        with place.control() as other:
            assert other.call("stop", run="two")["state"] == "stopping"
        ended = control.receive()["result"]["run"]
        assert (ended["state"], ended["outcome"], ended["exit_status"]) == ("ended", "stopped", 0)
    wait_for(lambda: not process_is_alive(before["guard_pid"]) and not process_is_alive(before["pid"]), what="the end of two")


def test_a_daemon_that_ends_while_it_launches_ends_and_the_run_is_found_again(place):
    with place.control() as control:
        place.daemon.send_signal(signal.SIGSTOP)  # both are there when it goes on: the request first, then the signal
        control.send("start", **place.plan("a"))
        place.daemon.send_signal(signal.SIGTERM)
        place.daemon.send_signal(signal.SIGCONT)
        assert control.receive()["error"]["data"]["error"] == "interrupted"
        assert place.daemon.wait(10) == 0
    place.daemon.stderr.close()
    place.start_daemon()
    place.ctl("wait", "a", "--for", "armed", "--timeout", "30s")
    assert json.loads((place.runtime / "owned/a.json").read_text())["name"] == "a"
    place.ctl("stop", "a")


def test_wait_returns_when_the_state_is_reached(place):
    with place.control() as control:
        assert control.call("start", **place.plan("a")) == {"run": "a"}
    place.ctl("wait", "a", "--for", "armed", "--timeout", "30s")
    assert place.ctl("wait", "a", "--for", "ended", "--timeout", "100ms", check=False).returncode == 89


@pytest.mark.parametrize("change, words", [({"DUMPER_ENABLE": "1"}, "DUMPER_ENABLE"), ({"DUMPER_SERVER_PORT": "-1"}, "DUMPER_SERVER_PORT")])
def test_a_contradiction_is_refused_with_both_values(place, change, words):
    done = start(place, "a", check=False, environment=change)
    assert done.returncode == 80
    assert words in done.stderr
    assert not (place.runtime / "runs/a/record.json").exists()


def test_a_name_that_lives_is_refused_and_one_that_ended_is_taken_again(place):
    start(place, "a")
    done = start(place, "a", check=False)
    assert done.returncode == 88 and "a run named a is live" in done.stderr
    place.ctl("stop", "a", "--now")
    start(place, "a")
    assert listed(place)["a"]["state"] == "armed"


def test_a_start_that_fails_shows_the_servers_last_lines(place):
    done = place.ctl("start", "--name", "a", "--dir", place.folder / "d", "--floor", "64M", "--", "/nonexistent/python3", "-m",
                     "sglang.launch_server", "--model-path", "x", check=False)
    assert done.returncode in (81, 126, 127)


def test_the_clients_environment_is_secret(place):
    start(place, "a", environment={"MY_TOKEN": SECRET})
    [run] = status(place, "a")
    assert SECRET.encode() in Path(f"/proc/{run['pid']}/environ").read_bytes()  # it did arrive
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert SECRET.encode() not in (process / "cmdline").read_bytes(), process
        except OSError:
            pass
    assert SECRET.encode() not in Path(f"/proc/{run['guard_pid']}/environ").read_bytes()
    # first those on their way to the place of another, which is read after them
    for path in sorted((place.runtime / "runs/a").iterdir(), key=lambda path: path.suffix != ".tmp"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path


def test_a_held_dump_through_the_daemon_ends_with_the_client(place):
    start(place, "a")
    with place.control() as client:
        assert client.call("dump", run="a", experiment="e", hold=True)["ranks"] == 1
        assert status(place, "a")[0]["state"] == "dumping"
    place.ctl("wait", "a", "--for", "armed", "--timeout", "30s")
    [run] = status(place, "a")
    assert [seal["experiment"] for seal in run["seals"]] == ["e"]


def test_dump_and_pause_through_the_daemon(place):
    start(place, "a")
    with place.control() as client:
        client.call("dump", run="a", experiment="e")
        seal = client.call("pause", run="a")
        assert seal["experiment"] == "e"
        texts = [event["text"] for event in client.call("events", run="a")["events"]]
        assert any("dumping" in text for text in texts)
        assert "fired up" in client.call("logs", run="a")["text"]


def test_a_lost_guard_leaves_nothing_and_is_told(place):
    start(place, "a")
    [run] = status(place, "a")
    os.kill(run["guard_pid"], signal.SIGKILL)
    wait_for(lambda: not process_is_alive(run["pid"]), 5, "the end of the server")
    with place.control() as control:
        lost = control.call("status", run="a")["run"]
    assert (lost["state"], lost["outcome"], lost["exit_status"]) == ("ended", "guard-lost", 85)


def test_the_status_line_tells_of_dumps(place):
    place.kill_daemon(signal.SIGTERM)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place.folder / "notify"))
        manager.settimeout(30)

        def told(pattern):
            while not re.fullmatch(pattern, (text := manager.recv(4096).decode())):
                assert not text.startswith("STOPPING"), text

        place.start_daemon(environment={"NOTIFY_SOCKET": str(place.folder / "notify")})
        start(place, "a")
        told("STATUS=1 run live")
        with place.control() as client:
            client.call("dump", run="a", experiment="e")
            told(r"STATUS=1 run live \(1 dumping\); least free [0-9.]+ [KMGT]iB")
            client.call("pause", run="a")
        told("STATUS=1 run live")
