"""Many runs come and go while one daemon lives: it grows in nothing, and nothing of them stays but what is kept on purpose."""
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from kldump_programs import ControlError, Place, process_is_alive, wait_for

WAVES, WIDTH = 5, 6
KEPT = {"lock", "record.json", "server.log", "server.log.1"}  # of a run that has ended


@pytest.fixture
def place():
    with Place() as found:
        found.start_daemon()
        yield found


def look(pid):
    children = {int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()}
    rss_kb = next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "children": children}, len(os.listdir(f"/proc/{pid}/task")), rss_kb


def live(place, name, number):
    """One run's life: most are dumped and stopped, one in six loses its guard, one is refused, one client goes too early."""
    with place.control() as control:
        if number % WIDTH == 1:
            with pytest.raises(ControlError):
                control.call("start", **place.plan(name, environment={"DUMPER_ENABLE": "1"}))
            return None
        control.call("start", **place.plan(name))
        run = control.call("wait", run=name, **{"for": "armed", "timeout_ms": 30000})["run"]
        assert run["state"] == "armed", run
        if number % WIDTH == 2:
            os.kill(run["guard_pid"], signal.SIGKILL)
        else:
            control.call("dump", run=name, experiment="e")
            with place.control() as early:
                early.send("wait", run=name, **{"for": "ended", "timeout_ms": 30000})
            control.call("stop", run=name, now=number % 2 == 0)
        control.send("wait", run=name, **{"for": "ended", "timeout_ms": 30000})
        assert control.receive()["result"]["run"]["state"] == "ended"
    return run


def test_runs_come_and_go_and_the_daemon_stays_as_it_was(place):
    pid, found, failures, looks = place.daemon.pid, [], [], []

    def work(number):
        try:
            found.append(live(place, f"r-{number}", number))
        except BaseException as failure:
            failures.append(failure)

    idle = [place.control() for _ in range(3)]
    before, _, _ = look(pid)
    for wave in range(WAVES):
        threads = [threading.Thread(target=work, args=(wave * WIDTH + i,)) for i in range(WIDTH)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        runs = [run for run in found if run is not None]
        wait_for(lambda: not any(process_is_alive(run["guard_pid"]) or process_is_alive(run["pid"]) for run in runs), what="the end of all runs")
        try:  # what a client leaves behind goes with the loop's next turns
            wait_for(lambda: look(pid)[0] == before)
        except AssertionError:
            pytest.fail(f"before {before}, after wave {wave} {look(pid)[0]}")
        looks.append(look(pid))
    for control in idle:  # they are still served
        assert control.call("list")["runs"]
        control.close()
    # those of libuv's pool come with the first need; one that has closed what it was for is about to end
    fewest = min(threads for _, threads, _ in looks)
    wait_for(lambda: look(pid)[1] <= fewest, what="as few threads as after another wave")
    assert looks[-1][2] - looks[0][2] < 1024, [rss_kb for _, _, rss_kb in looks]

    with place.control() as control:
        outcomes = {run["name"]: run["outcome"] for run in control.call("list")["runs"]}
    for number in range(WAVES * WIDTH):
        name, folder = f"r-{number}", place.runtime / f"runs/r-{number}"
        if number % WIDTH != 1:
            assert outcomes[name] == ("guard-lost" if number % WIDTH == 2 else "stopped"), name
        if folder.exists() and number % WIDTH != 2:  # a guard that is killed cannot tidy up
            assert {path.name for path in folder.iterdir()} <= KEPT
    for run in runs:
        cgroup = run["guarantee"].removeprefix("cgroup: ")
        # of a guard that was killed the keeper removes it, after the last process has died
        wait_for(lambda cgroup=cgroup: not cgroup.startswith("/") or not os.path.exists(cgroup), what=f"the end of the cgroup of {json.dumps(run)}")


def test_lists_of_many_runs_are_answered_in_turn_whoever_goes(place):
    """Left folders of runs stand for many; a client that goes takes its own list along, and the daemon's end is told."""
    live(place, "a", 0)
    record = json.loads((place.runtime / "runs/a/record.json").read_text())
    place.kill_daemon(signal.SIGTERM)
    for number in range(50):
        folder = place.runtime / f"runs/x-{number:02}"
        folder.mkdir(mode=0o700)
        (folder / "lock").touch()
        record["run"]["name"] = folder.name
        (folder / "record.json").write_text(json.dumps(record) if number % 7 else "{")
    place.start_daemon()
    names = ["a", *(f"x-{number:02}" for number in range(50))]
    with place.control() as control:
        for _ in range(5):
            with place.control() as early:
                early.send("list")
                early.send("list")
        asked = [control.send("list") for _ in range(5)]
        for number in asked:
            answer = control.receive()
            assert answer["id"] == number
            assert [run["name"] for run in answer["result"]["runs"]] == names
            assert {run["name"] for run in answer["result"]["runs"] if run["state"] == "unknown"} == set(names[1::7])
        for _ in range(20):
            control.send("list")
        place.daemon.send_signal(signal.SIGTERM)
        for _ in range(20):
            answer = control.receive()
            assert "result" in answer or answer["error"]["data"]["error"] == "interrupted"
    assert place.daemon.wait(10) == 0
