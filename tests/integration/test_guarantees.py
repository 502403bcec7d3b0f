"""The table of guarantees of kldumpd(8): each cell a test, with runs at points spread over their life.

KLDUMP_TEST_POINTS=20 takes 20 points a cell instead of 2; KLDUMP_TEST_SEED=N repeats the points of another pass.
"""
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

import guarantees
import systemd_guest
from guarantees import ROWS, Life, World
from guarded import children_of, is_alive, title_of
from kldump_programs import BUILD, Place, free_port, wait_for

HOST = ["spawn", "wrapper", "wrapper-alone"]
GUEST = [pytest.param("system", marks=pytest.mark.real), pytest.param("user", marks=pytest.mark.real)]
WITHOUT, WITH = [row for row in ROWS if "daemon" not in row], [row for row in ROWS if "daemon" in row]
BATCHES = -(-guarantees.POINTS // 3)
STRAYS = {("wrapper", "guard+keeper"), ("wrapper-alone", "guard+keeper")}  # nobody is left who knows of them


def cells_of(setup, guest):
    """row -> its lives, or why there are none."""
    found = {}

    def collect(rows, make_world):
        try:
            for first in range(BATCHES):  # so that a small machine is not crowded with runs
                numbers = range(first, guarantees.POINTS, BATCHES)
                for row, lives in guarantees.run_cells(make_world(), rows, numbers).items():
                    found.setdefault(row, []).extend(lives)
        except BaseException as failure:  # pylint: disable=broad-except
            found.update(dict.fromkeys(rows, failure))
    if guest is not None:
        for rows in WITHOUT, WITH:
            collect(rows, lambda: guarantees.GuestWorld(setup, guest, "root" if setup == "system" else "u1"))
        return found
    threads = [threading.Thread(target=collect, args=(rows, lambda: World(setup))) for rows in (WITHOUT, WITH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture(scope="module")
def guest():
    made = []

    def get():
        if not made:
            missing = systemd_guest.what_is_missing()
            if missing is not None:
                pytest.skip(missing)
            made.append(systemd_guest.Guest())
            made[0].__enter__()
            made[0].run("useradd", "-m", "-s", "/bin/sh", "u1")
        return made[0]
    yield get
    for one in made:
        one.__exit__()


@pytest.fixture(scope="module", params=HOST + GUEST)
def setup(request, guest):
    if os.geteuid() != 0:
        pytest.skip("missing: root, for the cgroups of runs")
    print(f"KLDUMP_TEST_SEED={guarantees.SEED}")
    return request.param, cells_of(request.param, guest() if request.param in ("system", "user") else None)


@pytest.mark.parametrize("row", list(ROWS))
def test_cell(setup, row):
    name, cells = setup
    if isinstance(cells[row], BaseException):
        raise cells[row]
    lives = cells[row]
    told = f"{name}, {row}\n{guarantees.tell(lives)}"
    for life in lives:
        if "daemon" in row and life.row:  # found again, and told right at once
            assert life.listed_s < 1, told
        if row == "daemon":
            assert life.lives_on and life.finished, told
            assert (life.after["outcome"], life.after["exit_status"]) == ("stopped", 0), told
        elif not life.over:
            assert life.gone_s is not None or (name, row) in STRAYS, told
            assert life.after.get("outcome") in ("guard-lost", "stopped", None), told
            assert life.after.get("exit_status") in (85, 0, None), told
        if row.startswith("keeper") and life.state == "dumping" and life.after.get("outcome") == "guard-lost":
            assert [seal["sealed_by"] for seal in life.after["seals"]], told
        if "guard" in row and "daemon" in row and not life.over and life.row:
            assert life.row["state"] == "ended", told
        assert not life.left or (name, row) in STRAYS, told
        if (name, row) in STRAYS:  # the server itself is gone in any case
            assert not [title for title in life.left if "launch_server" in title], told


@pytest.mark.parametrize("alone", [{}, {"KLDUMP_NO_CGROUP": "1"}], ids=["cgroup", "keeper-alone"])
def test_a_keeper_that_is_killed_while_it_begins(alone):
    """Also while it tries out how long a kill takes, with a child that holds what it holds."""
    with Place() as place:
        guards = []
        for number in range(12):
            place.folder.joinpath(f"d{number}").mkdir()
            guard = subprocess.Popen([BUILD / "kldumpctl", "run", "--name", f"a{number}", "--dir", place.folder / f"d{number}", "--floor", "1M", "--",
                                      *place.command()], env={**place.environment, **alone}, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            guards.append(guard)
            keeper = None
            while keeper is None and guard.poll() is None:
                keeper = next((pid for pid in children_of(guard.pid) if "kldump-keeper" in title_of(pid)), None)
            time.sleep(number * 0.0005)
            if keeper is not None:
                os.kill(keeper, signal.SIGKILL)
        try:
            assert {guard.wait(20) for guard in guards} == {85}
        finally:
            for guard in guards:
                guard.kill()
                guard.wait()


def test_an_upgrade_while_runs_dump():
    """The programs are replaced and the daemon started anew, while runs dump and talk: nothing of their output is lost, and
    each ends with its own status."""
    world = World("spawn")
    world.environment = {"KLDUMP_STANDIN_LOAD_MS": "300"}
    place = world.place
    programs = place.folder / "programs"
    programs.mkdir()
    names = ("kldumpd", "kldump-run", "kldump-keeper", "kldumpctl")
    for name in names:
        shutil.copy(BUILD / name, programs)
    lives = [Life(world, f"up-{number}") for number in range(3)]
    running = threading.Event()
    world.send = lambda port: (running.wait(20), World.send(world, port))
    try:
        place.start_daemon(programs / "kldumpd")
        for life in lives:
            life.thread.start()
        wait_for(lambda: all(life.record().get("state") == "dumping" for life in lives), 30, "all runs dump")
        before = {life.name: life.record() for life in lives}
        for name in names:  # as a package manager does it
            shutil.copy(BUILD / name, programs / f"{name}.new")
            (programs / f"{name}.new").rename(programs / name)
        place.kill_daemon(signal.SIGTERM)
        assert all(is_alive(one["guard_pid"]) and is_alive(one["pid"]) for one in before.values())
        begin = time.monotonic()
        assert "3 runs live" in place.start_daemon(programs / "kldumpd")
        with place.control() as control:
            for life in lives:
                run = control.call("status", run=life.name)["run"]
                assert (run["state"], run["guard_pid"], run["pid"]) == ("dumping", before[life.name]["guard_pid"], before[life.name]["pid"])
        assert time.monotonic() - begin < 1
        running.set()
        for life in lives:
            life.thread.join(60)
            assert life.finished, life.failed
        wait_for(lambda: all(run["state"] == "ended" for run in world.listed().values()), 10, "the end of all")
        with place.control() as control:
            for life in lives:
                run = control.call("status", run=life.name)["run"]
                assert (run["outcome"], run["exit_status"]) == ("stopped", 0)
                text = (world.runs / life.name / "server.log").read_text()
                assert control.call("logs", run=life.name)["text"] == text
                assert "fired up" in text and text.endswith("\n") and not [e for e in control.call("events", run=life.name)["events"]
                                                                           if "left out" in e["text"]]
    finally:
        running.set()
        world.close(lives)


def test_an_older_name_is_free_again_after_a_loss():
    with Place() as place:
        place.start_daemon()
        with place.control() as control:
            for _ in range(2):
                control.call("start", **place.plan("a", command=place.command(free_port())))
                control.call("wait", run="a", **{"for": "armed", "timeout_ms": 20000})
                run = control.call("status", run="a")["run"]
                os.kill(run["guard_pid"], signal.SIGKILL)
                wait_for(lambda: control.call("status", run="a")["run"]["state"] == "ended", 5, "the loss in the status")
                wait_for(lambda: not is_alive(run["pid"]), 5, "the end of the server")
            assert control.call("list")["ended"]["guard-lost"] == 2
