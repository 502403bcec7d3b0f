"""kldumpd as a service of a real systemd, and runs in the cgroups that systemd gives."""
import json
import os

import pytest

import systemd_guest
from kldump_programs import FAST, free_port, wait_for

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def guest():
    missing = systemd_guest.what_is_missing()
    if missing is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with systemd_guest.Guest() as found:
        found.run("useradd", "-m", "-s", "/bin/sh", "u1")
        yield found


@pytest.fixture
def daemon(guest):
    guest.run("systemctl", "start", "kldumpd")
    yield guest
    for run in runs(guest):
        if run["state"] != "ended":
            guest.run("kldumpctl", "stop", run["name"], "--now", check=False)
    guest.run("systemctl", "stop", "kldumpd")


def command(*options):
    return ["/t/python3", "-m", "sglang.launch_server", "--model-path", "/nonexistent", "--port", free_port(), *options]


def start(guest, name):
    guest.run("env", *[f"{key}={value}" for key, value in FAST.items()], "kldumpctl", "start", "--name", name, "--dir",
              f"/t/dumps-{name}", "--floor", "1M", "--", *command())


def runs(guest):
    return [json.loads(line) for line in guest.run("kldumpctl", "list", "--json").stdout.splitlines()]


def status(guest, name):
    return next(run for run in runs(guest) if run["name"] == name)


def show(guest, unit, name):
    return guest.run("systemctl", "show", "-P", name, unit).stdout.strip()


def is_alive(guest, pid):
    return guest.run("test", "-d", f"/proc/{pid}", check=False).returncode == 0


def servers(guest):
    """Processes of stand-ins anywhere in the guest."""
    return guest.run("pgrep", "-f", "sglang", check=False).stdout.split()


def test_the_unit_is_right(guest):
    done = guest.run("systemd-analyze", "verify", "--man=no", "kldumpd.service")
    assert (done.stdout, done.stderr) == ("", "")


def test_start_reaches_active_and_tells_its_state(daemon):
    assert show(daemon, "kldumpd", "ActiveState") == "active"
    wait_for(lambda: show(daemon, "kldumpd", "StatusText") == "0 runs live", 5, "the status line")
    assert daemon.run("stat", "-c", "%a %U", "/run/kldump").stdout == "700 root\n"
    assert daemon.run("stat", "-c", "%a %U", "/run/kldump/control").stdout == "600 root\n"
    assert daemon.run("kldumpctl", "list").returncode == 0


def test_a_run_lives_through_restart_stop_and_crash_of_the_service(daemon):
    start(daemon, "a")
    before = status(daemon, "a")
    assert before["state"] == "armed"
    wait_for(lambda: show(daemon, "kldumpd", "StatusText") == "1 run live", 5, "the status line")
    main = show(daemon, "kldumpd", "MainPID")
    daemon.run("systemctl", "restart", "kldumpd")
    assert show(daemon, "kldumpd", "MainPID") != main
    after = status(daemon, "a")
    assert (after["state"], after["pid"], after["guard_pid"]) == ("armed", before["pid"], before["guard_pid"])
    main = show(daemon, "kldumpd", "MainPID")
    daemon.run("systemctl", "kill", "-s", "KILL", "--kill-whom=main", "kldumpd")
    wait_for(lambda: show(daemon, "kldumpd", "ActiveState") == "active" and show(daemon, "kldumpd", "MainPID") != main,
             what="the service after a crash")
    wait_for(lambda: show(daemon, "kldumpd", "StatusText") == "1 run live", 5, "the status line")
    daemon.run("systemctl", "stop", "kldumpd")
    assert is_alive(daemon, before["pid"]) and is_alive(daemon, before["guard_pid"])
    daemon.run("systemctl", "start", "kldumpd")
    now = json.loads(daemon.run("kldumpctl", "status", "a", "--json").stdout)["runs"][0]
    assert now["uptime_ms"] > before["uptime_ms"] and now["pid"] == before["pid"]
    daemon.run("kldumpctl", "stop", "a")
    ended = status(daemon, "a")
    assert (ended["state"], ended["outcome"], ended["exit_status"]) == ("ended", "stopped", 0)
    wait_for(lambda: not is_alive(daemon, before["guard_pid"]) and not servers(daemon), what="the end of all of it")


def test_a_run_of_the_service_has_a_delegated_cgroup_and_dies_with_its_guard(daemon):
    start(daemon, "b")
    run = status(daemon, "b")
    assert run["guarantee"].startswith("cgroup: /sys/fs/cgroup/system.slice/kldumpd.service/kldump-b-"), run["guarantee"]
    folder = run["guarantee"].removeprefix("cgroup: ")
    assert str(run["pid"]) in daemon.run("cat", f"{folder}/cgroup.procs").stdout.split()
    daemon.run("kill", "-9", run["guard_pid"])
    wait_for(lambda: not servers(daemon), 5, "the end of the server")
    wait_for(lambda: daemon.run("test", "-e", folder, check=False).returncode != 0, 5, "the end of the cgroup")
    lost = status(daemon, "b")
    assert (lost["state"], lost["outcome"]) == ("ended", "guard-lost")
    assert show(daemon, "kldumpd", "ActiveState") == "active"


def test_nothing_of_the_service_manager_reaches_a_server(daemon):
    start(daemon, "c")
    environment = daemon.run("cat", f"/proc/{status(daemon, 'c')['pid']}/environ").stdout.split("\0")
    names = {variable.split("=")[0] for variable in environment}
    assert not [name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_", "RUNTIME_", "INVOCATION_", "FDSTORE"))]


def test_a_second_daemon_is_refused(daemon):
    program = show(daemon, "kldumpd", "ExecStart").split("path=")[1].split(" ")[0]
    done = daemon.run("env", "RUNTIME_DIRECTORY=/run/kldump", program, check=False)
    assert done.returncode == 88 and "another kldumpd" in done.stderr


def test_a_run_in_a_users_session_has_a_delegated_scope_and_dies_with_its_guard(guest):
    environment = [f"--setenv={key}={value}" for key, value in FAST.items()]
    guest.run("systemd-run", "-q", "--unit=terminal", "--uid=u1", "-p", "PAMName=login", *environment, "--working-directory=/home/u1",
              "kldumpctl", "run", "--name", "u", "--dir", "/t/dumps-u", "--floor", "1M", "--", *command())
    uid = guest.run("id", "-u", "u1").stdout.strip()
    record = f"/run/user/{uid}/kldump/runs/u/record.json"

    def run():
        text = guest.run("cat", record, check=False).stdout
        return json.loads(text)["run"] if text else {}

    try:
        wait_for(lambda: run().get("state") == "armed", what=f"an armed run\n{guest.journal()}")
        found = run()
        assert found["guarantee"].startswith(
            f"cgroup: /sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/"), found["guarantee"]
        assert ".scope/kldump-u-" in found["guarantee"]
        folder = found["guarantee"].removeprefix("cgroup: ")
        assert str(found["pid"]) in guest.run("cat", f"{folder}/cgroup.procs").stdout.split()
        guest.run("kill", "-9", found["guard_pid"])
        wait_for(lambda: not servers(guest), 5, "the end of the server")
        wait_for(lambda: guest.run("test", "-e", os.path.dirname(folder), check=False).returncode != 0, 5, "the end of the scope")
    finally:
        guest.run("systemctl", "stop", "terminal", check=False)
