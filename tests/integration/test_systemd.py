"""kldumpd as a service of a real systemd: its units, the runs of several users, and what becomes of them when the daemon
is restarted, killed or hangs, or the machine boots again."""
import json
import os
import re
import time

import pytest

import systemd_guest
from kldump_programs import FAST, free_port, wait_for

pytestmark = pytest.mark.real

EXPOSURE_MOST = 2.2  # of systemd-analyze security; 0 is nothing, a unit without a word about it has 9.6
USERS = ("alice", "bob", "carol")  # carol is in the admins' group
RULES = "/usr/local/etc/kldump/kldumpd.conf"
SECRET = "s3cret-of-alice"


@pytest.fixture(scope="module")
def guest():
    missing = systemd_guest.what_is_missing()
    if missing is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with systemd_guest.Guest() as found:
        prepare(found)
        yield found


def prepare(guest):
    for user in USERS:
        guest.run("useradd", "-m", "-s", "/bin/sh", user)
    guest.run("usermod", "-aG", "kldump-admin", "carol")


@pytest.fixture
def service(guest):
    """The socket is there, the daemon is not; afterwards no run is left."""
    guest.run("systemctl", "start", "kldumpd.socket")
    yield guest
    for run in runs(guest):
        if run["state"] != "ended":
            guest.run("kldumpctl", "stop", run["name"], "--now", check=False)
    guest.run("systemctl", "stop", "kldumpd.socket", "kldumpd.service")


def user_command(user, *command):
    """Not by runuser: PAM would write the command, and what is secret in it, to the journal."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "env", f"HOME=/home/{user}", *command]


def ctl(guest, user, *arguments, **more):
    return guest.run(*user_command(user, "kldumpctl", *arguments), **more)


def start(guest, user, name, *options, extra=(), check=True):
    settings = [f"{key}={value}" for key, value in FAST.items()]
    return guest.run(*user_command(user, *settings, *extra, "kldumpctl", "start", "--name", name, "--dir", f"/t/dumps-{name}", "--floor", "1M",
                                   *options, "--", "/t/python3", "-m", "sglang.launch_server", "--model-path", "/nonexistent", "--port",
                                   free_port()), check=check)


def runs(guest, user="root"):
    return [json.loads(line) for line in ctl(guest, user, "list", "--json").stdout.splitlines()]


def status(guest, name):
    return next(run for run in runs(guest) if run["name"] == name)


def show(guest, unit, name):
    return guest.run("systemctl", "show", "-P", name, unit).stdout.strip()


def main_pid(guest):
    return int(show(guest, "kldumpd", "MainPID"))


def is_alive(guest, pid):
    return guest.run("test", "-d", f"/proc/{pid}", check=False).returncode == 0


def servers(guest):
    """Processes of stand-ins anywhere in the guest."""
    return guest.run("pgrep", "-f", "sglang", check=False).stdout.split()


def wait_status_text(guest, pattern, limit=5):
    wait_for(lambda: re.fullmatch(pattern, show(guest, "kldumpd", "StatusText")), limit,
             f"{pattern!r} in place of {show(guest, 'kldumpd', 'StatusText')!r}")


def wait_new_daemon(guest, old):
    return wait_for(lambda: show(guest, "kldumpd", "ActiveState") == "active" and main_pid(guest) not in (0, old) and main_pid(guest),
                    what=f"another daemon than {old}")


def same_run(before, after):
    return all(before[key] == after[key] for key in ("name", "pid", "guard_pid", "state", "uid", "port"))


# ---- the units ----


def test_the_units_are_right(guest):
    for manager in ([], ["env", "XDG_RUNTIME_DIR=/run"]):
        options = ["--user"] if manager else []
        done = guest.run(*manager, "systemd-analyze", *options, "verify", "--man=no", "kldumpd.service", "kldumpd.socket")
        assert (done.stdout, done.stderr) == ("", "")
    assert guest.run("stat", "-c", "%a %U", "/run/kldump").stdout == "755 root\n"  # by tmpfiles
    assert guest.run("getent", "group", "kldump-admin").stdout.startswith("kldump-admin:")  # by sysusers


def test_the_service_is_hardened(guest):
    done = guest.run("systemd-analyze", "security", "--no-pager", f"--threshold={EXPOSURE_MOST * 10:.0f}", "kldumpd.service", check=False)
    exposure = float(re.search(r"exposure level for kldumpd.service: ([\d.]+)", done.stdout).group(1))
    print(f"exposure {exposure}, at most {EXPOSURE_MOST}")
    assert done.returncode == 0 and exposure <= EXPOSURE_MOST, done.stdout
    assert (show(guest, "kldumpd", "MemoryMax"), show(guest, "kldumpd", "TasksMax")) == (str(1 << 30), "512")


def test_the_first_client_starts_the_daemon(service):
    assert show(service, "kldumpd", "ActiveState") == "inactive"
    assert service.run("stat", "-c", "%a %U", "/run/kldump/control", "/run/kldump/register").stdout == "666 root\n666 root\n"
    assert runs(service, "alice") == []
    assert show(service, "kldumpd", "ActiveState") == "active"
    wait_status_text(service, "0 runs live")
    assert service.run("stat", "-c", "%a %U", "/run/kldump").stdout == "755 root\n"
    old = main_pid(service)
    service.run("systemctl", "stop", "kldumpd")
    assert runs(service, "bob") == []  # the sockets stayed
    assert main_pid(service) not in (0, old)


def test_a_second_daemon_is_refused(service):
    runs(service)
    program = show(service, "kldumpd", "ExecStart").split("path=")[1].split(" ")[0]
    done = service.run(program, check=False)
    assert done.returncode == 88 and "another kldumpd" in done.stderr


# ---- runs of three users ----


def test_runs_of_three_users_live_through_all_that_happens_to_the_daemon(service):
    for user in USERS:
        start(service, user, f"of-{user}", extra=[f"MY_TOKEN={SECRET}"] if user == "alice" else [])
    before = {run["owner"]: run for run in runs(service)}
    assert {user: run["state"] for user, run in before.items()} == dict.fromkeys(USERS, "armed")
    wait_status_text(service, "3 runs live.*")
    check_unit(service, before["alice"])
    check_secret(service, before["alice"])
    check_refusals(service)

    def unharmed(what):
        after = {run["owner"]: run for run in runs(service)}
        assert all(same_run(before[user], after[user]) for user in USERS), (what, before, after)
        assert all(is_alive(service, run["pid"]) and is_alive(service, run["guard_pid"]) for run in before.values()), what
        wait_status_text(service, "3 runs live.*")

    main = main_pid(service)
    service.run("systemctl", "restart", "kldumpd")
    assert main_pid(service) != main
    unharmed("restart")
    main = main_pid(service)
    service.run("kill", "-9", main)
    wait_new_daemon(service, main)
    unharmed("crash")
    check_watchdog(service)
    unharmed("hang")
    service.run("systemctl", "stop", "kldumpd.socket", "kldumpd.service")
    assert all(is_alive(service, run["pid"]) for run in before.values())
    service.run("systemctl", "start", "kldumpd.socket")
    unharmed("stop")
    ctl(service, "alice", "stop", "of-alice")
    ended = status(service, "of-alice")
    assert (ended["state"], ended["outcome"], ended["exit_status"]) == ("ended", "stopped", 0)
    ctl(service, "carol", "stop", "of-bob")  # an admin
    ctl(service, "root", "stop", "--all")
    assert [run["outcome"] for run in runs(service)] == ["stopped"] * 3
    wait_for(lambda: not servers(service), what="the end of all servers")
    wait_for(lambda: "kldump-run-" not in service.run("systemctl", "list-units", "--all", "--plain", "--no-legend").stdout, 5, "the end of the units")


def check_unit(guest, run):
    unit = f"kldump-run-{run['name']}.service"
    assert run["guarantee"].startswith(f"cgroup: /sys/fs/cgroup/system.slice/{unit}/"), run["guarantee"]
    assert show(guest, unit, "User") in (run["owner"], str(run["uid"]))
    assert guest.run("stat", "-c", "%U", f"/proc/{run['pid']}").stdout == f"{run['owner']}\n"
    # the daemon's hardening stays the daemon's
    fields = dict(line.split(":", 1) for line in guest.run("cat", f"/proc/{run['pid']}/status").stdout.splitlines())
    own = dict(line.split(":", 1) for line in guest.run("cat", "/proc/1/status").stdout.splitlines())
    assert (int(fields["NoNewPrivs"]), fields["CapBnd"]) == (0, own["CapBnd"])
    assert fields["Seccomp_filters"] == own["Seccomp_filters"]
    for namespace in ("mnt", "net", "ipc"):
        assert guest.run("readlink", f"/proc/{run['pid']}/ns/{namespace}").stdout == guest.run("readlink", f"/proc/1/ns/{namespace}").stdout
    assert guest.run("cat", f"/proc/{run['pid']}/oom_score_adj").stdout == guest.run("cat", "/proc/1/oom_score_adj").stdout
    names = {variable.split("=")[0] for variable in guest.run("cat", f"/proc/{run['pid']}/environ").stdout.split("\0")}
    assert not [name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_", "RUNTIME_", "INVOCATION_", "FDSTORE"))]


def check_secret(guest, run):
    assert SECRET in guest.run("cat", f"/proc/{run['pid']}/environ").stdout  # it did arrive
    assert SECRET not in guest.run("systemctl", "show", f"kldump-run-{run['name']}.service").stdout
    assert SECRET not in guest.run("journalctl", "-o", "json", "--no-pager").stdout
    done = guest.run(*user_command("bob", "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; systemctl show 'kldump-run-*'; "
                                   "find /run/kldump -type f | xargs -r cat"), check=False)
    assert SECRET not in done.stdout


def check_refusals(guest):
    for command in (["stop", "of-alice"], ["dump", "of-alice", "e"], ["logs", "of-alice"], ["events", "of-alice"]):
        done = ctl(guest, "bob", *command, check=False)
        assert done.returncode == 88 and "alice" in done.stderr and "kldump-admin" in done.stderr, (command, done.stderr)
    shown = next(run for run in runs(guest, "bob") if run["name"] == "of-alice")
    assert (shown["owner"], shown["state"]) == ("alice", "armed") and not shown.get("command")
    assert guest.run(*user_command("bob", "ls", "/run/kldump/runs/of-alice"), check=False).returncode != 0


def check_watchdog(guest):
    """A daemon that hangs is killed by systemd, and comes back."""
    main = main_pid(guest)
    guest.run("mkdir", "-p", "/run/systemd/system/kldumpd.service.d")
    guest.run("sh", "-c", "printf '[Service]\\nWatchdogSec=1s\\n' >/run/systemd/system/kldumpd.service.d/quick.conf; systemctl daemon-reload")
    guest.run("systemctl", "restart", "kldumpd")
    main = main_pid(guest)
    time.sleep(2.5)  # healthy for longer than the limit
    assert main_pid(guest) == main and show(guest, "kldumpd", "NRestarts") == "0"
    guest.run("kill", "-STOP", main)
    wait_new_daemon(guest, main)
    wait_for(lambda: "Watchdog timeout" in guest.run("journalctl", "-u", "kldumpd", "--no-pager", "-o", "cat").stdout, 5, "systemd's line about it")
    guest.run("sh", "-c", "rm -r /run/systemd/system/kldumpd.service.d; systemctl daemon-reload")
    guest.run("systemctl", "restart", "kldumpd")


def test_rules_are_read_again_whole_or_not_at_all(service):
    guest = service
    guest.run("mkdir", "-p", os.path.dirname(RULES))

    def reload(text):
        guest.run("sh", "-c", f"cat >{RULES} <<'E'\n{text}\nE\n")
        guest.run("systemctl", "reload", "kldumpd")

    def is_refused(user):
        return "may not use this kldumpd" in ctl(guest, user, "list", check=False).stderr

    runs(guest, "root")  # it runs now
    assert not is_refused("alice")
    try:
        reload("[access]\nusers = bob")
        wait_for(lambda: is_refused("alice"), 5, "the new rules")
        assert not is_refused("bob")
        reload("[access]\nusers = alice bob\nusers = carol\n[nonsense]")
        wait_for(lambda: f"{RULES} line 3" in guest.run("journalctl", "-u", "kldumpd", "--no-pager", "-o", "cat").stdout, 5,
                 "the line that is wrong")
        assert show(guest, "kldumpd", "ActiveState") == "active"
        assert is_refused("alice")  # the old ones still hold
    finally:
        guest.run("rm", "-f", RULES)
        guest.run("systemctl", "reload", "kldumpd")
    wait_for(lambda: not is_refused("alice"), 5, "no rules again")


def test_a_server_that_ignores_term_is_ended_in_time(service):
    """By the daemon's stop, and when systemd itself stops the run's unit."""
    for name in ("stubborn", "unit"):
        start(service, "bob", name, "--stop-timeout", "2s", extra=["KLDUMP_STANDIN_FAULTS=ignore-term"])
    ctl(service, "bob", "stop", "stubborn")
    assert status(service, "stubborn")["outcome"] == "stopped"
    pid = status(service, "unit")["pid"]
    service.run("systemctl", "stop", "kldump-run-unit.service")
    assert not is_alive(service, pid)
    wait_for(lambda: status(service, "unit")["state"] == "ended", 5, "the end of the run")
    assert not servers(service)


@pytest.mark.parametrize("what", ["ExecStartPre", "ExecStartPost"])
def test_a_start_for_which_systemd_is_too_slow(service, what):
    """Without a guard it is refused and nothing begins later; with one that is the run, as any other."""
    guest = service
    guest.run("sh", "-c", f"mkdir -p /run/systemd/system/kldump-run-late.service.d; printf '[Service]\\n{what}=/bin/sleep 8\\n' "
                          ">/run/systemd/system/kldump-run-late.service.d/late.conf")
    guest.run("systemctl", "daemon-reload")
    try:
        done = start(guest, "alice", "late", check=False)
        if what == "ExecStartPre":
            assert done.returncode != 0 and "systemd did not start kldump-run-late.service within 5 s" in done.stderr
            assert all(run["name"] != "late" or run["state"] == "ended" for run in runs(guest))
        else:
            assert done.returncode == 0 and done.stdout == "late\n", done.stderr
            assert json.loads(guest.run("cat", "/run/kldump/owned/late.json").stdout)["unit"] == "kldump-run-late.service"
            ctl(guest, "alice", "stop", "late")
            assert status(guest, "late")["outcome"] == "stopped"
        wait_for(lambda: not servers(guest) and show(guest, "kldump-run-late", "ActiveState") == "inactive", 15, "the end of all of it")
    finally:
        guest.run("rm", "-r", "/run/systemd/system/kldump-run-late.service.d")
        guest.run("systemctl", "daemon-reload")


def test_a_run_of_a_unit_of_which_no_record_is_left_is_taken_over(service):
    guest = service
    start(guest, "alice", "taken")
    before = json.loads(guest.run("cat", "/run/kldump/owned/taken.json").stdout)
    guest.run("systemctl", "kill", "-s", "STOP", "kldumpd")  # neither it nor the next one looks before the record is gone
    guest.run("rm", "/run/kldump/owned/taken.json")
    guest.run("systemctl", "kill", "-s", "KILL", "kldumpd")
    wait_for(lambda: guest.run("test", "-e", "/run/kldump/owned/taken.json", check=False).returncode == 0, 10, "a record")
    after = json.loads(guest.run("cat", "/run/kldump/owned/taken.json").stdout)
    same = ("name", "uid", "pid", "start_ticks", "unit", "cgroup", "cgroup_inode")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    ctl(guest, "alice", "stop", "taken")


def test_a_full_runtime_folder(service):
    """Runs go on and begin, and are found again."""
    guest = service
    guest.run("systemctl", "stop", "kldumpd.socket", "kldumpd.service")
    guest.run("mount", "-t", "tmpfs", "-o", "size=4M,mode=0755", "kldump-small", "/run/kldump")
    try:
        guest.run("systemctl", "start", "kldumpd.socket")
        start(guest, "alice", "before")
        before = status(guest, "before")
        assert guest.run("sh", "-c", "cat /dev/zero >/run/kldump/filler", check=False).returncode != 0
        start(guest, "bob", "full")
        wait_for(lambda: "No space left" in guest.run("journalctl", "-u", "kldumpd", "--no-pager", "-o", "cat").stdout, 5, "a line about it")
        main = main_pid(guest)
        guest.run("systemctl", "restart", "kldumpd")
        assert main_pid(guest) != main and same_run(before, status(guest, "before"))
        wait_status_text(guest, "2 runs live.*")
        guest.run("rm", "/run/kldump/filler")
        assert "not found again" not in guest.run("journalctl", "-u", "kldumpd", "--no-pager", "-o", "cat").stdout
        wait_for(lambda: status(guest, "full")["state"] != "ended" and
                 guest.run("test", "-e", "/run/kldump/owned/full.json", check=False).returncode == 0, 5, "a record at the first chance")
        assert json.loads(guest.run("cat", "/run/kldump/owned/full.json").stdout)["unit"] == "kldump-run-full.service"
        ctl(guest, "root", "stop", "--all")
        assert status(guest, "before")["outcome"] == "stopped"
    finally:
        ctl(guest, "root", "stop", "--all", "--now", check=False)
        guest.run("systemctl", "stop", "kldumpd.socket", "kldumpd.service")
        guest.run("umount", "-l", "/run/kldump")


def test_state_of_another_boot_is_told_and_in_nobodys_way(service):
    """What a /run that outlived its boot would hold: sockets, locks, a live run's records, with another boot's id."""
    start(service, "alice", "old")
    service.run("systemctl", "stop", "kldumpd.socket", "kldumpd.service")
    service.run("cp", "-a", "/run/kldump", "/run/kept")
    service.run("systemctl", "start", "kldumpd.socket")
    ctl(service, "alice", "stop", "old")
    service.run("systemctl", "stop", "kldumpd.socket", "kldumpd.service")
    service.run("sh", "-c", "rm -r /run/kldump && mv /run/kept /run/kldump && "
                "sed -i -E 's/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/00000000-0000-0000-0000-000000000001/' /run/kldump/owned/old.json")
    service.run("systemctl", "start", "kldumpd.socket")
    run = status(service, "old")
    assert (run["owner"], run["state"], run["outcome"]) == ("alice", "ended", "guard-lost")
    start(service, "alice", "old")  # the name is free
    assert status(service, "old")["state"] == "armed"


def test_a_user_without_root_has_a_service_of_his_own(guest):
    """Through the manager of his session; his runs are units of it."""
    number = guest.run("id", "-u", "alice").stdout.strip()
    folder = f"/run/user/{number}"
    guest.run("loginctl", "enable-linger", "alice")
    wait_for(lambda: guest.run("test", "-S", f"{folder}/bus", check=False).returncode == 0, 20, "the manager of alice's session")
    own = [f"XDG_RUNTIME_DIR={folder}"]

    def by_alice(*command, **more):
        return guest.run(*user_command("alice", *own, *command), **more)

    def mine(user="alice"):
        lines = by_alice("kldumpctl", "list", "--json", check=False) if user == "alice" else ctl(guest, user, "list", "--json")
        return [run for run in map(json.loads, lines.stdout.splitlines()) if run["name"] == "mine"]

    by_alice("systemctl", "--user", "start", "kldumpd.socket")
    try:
        start(guest, "alice", "mine", extra=own)
        [run] = mine()
        assert (run["state"], run["owner"]) == ("armed", "alice")
        main = by_alice("systemctl", "--user", "show", "-P", "MainPID", "kldumpd").stdout.strip()
        guest.run("kill", "-9", main)
        [again] = wait_for(mine, what="the daemon of alice's session")
        assert same_run(run, again) and is_alive(guest, run["pid"])
        assert mine("bob") == []  # the system's daemon did not start it
        by_alice("kldumpctl", "stop", "mine")
        assert not is_alive(guest, run["pid"])
    finally:
        by_alice("kldumpctl", "stop", "--all", "--now", check=False)
        guest.run("loginctl", "disable-linger", "alice")
