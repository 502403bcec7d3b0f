"""What a user gives to `start` is readable by nobody else: a secret in the environment, one in the options, one in the
command. Only CMD's own arguments, which stand in the server's and its keeper's own title, can be seen, as after every start
of it."""
import json
import os
import subprocess
from pathlib import Path

import pytest

import systemd_guest
from kldump_programs import FAST, free_port, wait_for
from many_users import SharedPlace, parent_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to be several users")

IN_ENVIRONMENT, IN_OPTIONS, IN_COMMAND = "s3cret-in-the-environment", "s3cret-in-the-options", "s3cret-in-the-command"
SECRETS = (IN_ENVIRONMENT, IN_OPTIONS, IN_COMMAND)

# Run as another user, with a file of words to look for and folders: each word in what can be read of /proc and below those.
LOOK = """
import os, sys
words, found = open(sys.argv[1]).read().split(), {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    for file in "cmdline", "environ", "comm", "cgroup", "maps", "mountinfo", "status":
        try:
            found[f"/proc/{pid}/{file}"] = open(f"/proc/{pid}/{file}", "rb").read()
        except OSError:
            pass
for top in sys.argv[2:]:
    for folder, folders, files in os.walk(top):
        found[folder] = " ".join(folders + files).encode()
        for file in files:
            try:
                found[f"{folder}/{file}"] = open(f"{folder}/{file}", "rb").read()
            except OSError:
                pass
for path, data in found.items():
    for word in words:
        if word.encode() in data:
            print(path, word)
print("looked at", len(found))
"""


@pytest.fixture
def place():
    with SharedPlace() as found:
        yield found


def look(person, *folders):
    """What this person finds, as "PATH SECRET"."""
    words = person.place.folder / "words"
    words.write_text(" ".join(SECRETS))
    process = person.popen("/usr/bin/python3", "-c", LOOK, words, *folders)
    out, err = process.communicate(timeout=60)
    lines = out.splitlines()
    assert process.returncode == 0 and lines[-1].startswith("looked at"), err
    return lines[:-1]


def test_nobody_else_reads_what_a_user_gives_to_start(place):
    log = open(place.folder / "daemon.log", "w+")
    daemon = subprocess.Popen([place.programs / "kldumpd"], env=place.environment, stdin=subprocess.DEVNULL, stderr=log)
    place.daemon = daemon
    for _ in range(500):
        if (place.runtime / "control").exists() or daemon.poll() is not None:
            break
        __import__("time").sleep(0.02)
    one, two = place.person(47101), place.person(47102)
    one.ctl(*one.start_words("a", folder=one.folder / IN_OPTIONS), "--served-model-name", IN_COMMAND,
            environment=one.environment(MY_TOKEN=IN_ENVIRONMENT))
    run = place.run("a")
    guard, keeper, server = run["guard_pid"], parent_of(run["pid"]), run["pid"]
    assert IN_ENVIRONMENT in Path(f"/proc/{server}/environ").read_text() and IN_COMMAND in Path(f"/proc/{server}/cmdline").read_text()
    # its own title, and the keeper's, which is that of what it keeps
    expected = {f"/proc/{pid}/cmdline {IN_COMMAND}" for pid in (keeper, server)}
    assert set(look(two, place.runtime)) <= expected
    # neither do guard and daemon carry any of it where their own user or root would see it in a list of processes
    for pid in guard, daemon.pid:
        for file in "cmdline", "environ":
            assert not [secret for secret in SECRETS if secret.encode() in Path(f"/proc/{pid}/{file}").read_bytes()]
    # what kldump tells another user of it, or writes for the daemon
    for arguments in ("list", "--json"), ("list",), ("status", "a", "--json"), ("status", "a"):
        told = two.ctl(*arguments, check=False)
        assert "a" in told.stdout and not [secret for secret in SECRETS if secret in told.stdout + told.stderr], told
    for arguments in ("logs", "a"), ("events", "a"), ("stop", "a"), ("dump", "a", "e"):
        told = two.ctl(*arguments, check=False)
        assert told.returncode == 88 and not [secret for secret in SECRETS if secret in told.stdout + told.stderr], told
    one.ctl("stop", "a")
    assert not [line for line in look(two, place.runtime) if "/proc/" not in line]
    log.seek(0)
    assert not [secret for secret in SECRETS if secret in log.read()]
    record = (place.runtime / "runs/a/record.json").read_text()
    assert IN_ENVIRONMENT not in record and json.loads(record)["run"]["state"] == "ended"
    for path in (place.runtime / "owned").iterdir():
        assert not [secret for secret in SECRETS if secret in path.read_text()]


@pytest.mark.real
def test_nobody_else_reads_it_where_the_run_is_a_unit_of_systemd():
    missing = systemd_guest.what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    with systemd_guest.Guest() as guest:
        guest.run("useradd", "-m", "one")
        guest.run("useradd", "-m", "two")
        guest.run("mkdir", "-p", "/etc/systemd/system/kldumpd.service.d")
        (guest.shared / "more.conf").write_text("[Service]\nRuntimeDirectoryMode=0755\nNoNewPrivileges=yes\nProtectSystem=strict\n")
        guest.run("cp", "/t/more.conf", "/etc/systemd/system/kldumpd.service.d/more.conf")
        guest.run("systemctl", "daemon-reload")
        guest.run("systemctl", "start", "kldumpd.service")
        guest.run("runuser", "-u", "one", "--", "env", "HOME=/home/one", *[f"{key}={value}" for key, value in FAST.items()],
                  f"MY_TOKEN={IN_ENVIRONMENT}", "kldumpctl", "start", "--name", "a", "--dir", f"/home/one/{IN_OPTIONS}", "--floor", "1M", "--",
                  "/t/python3", "-m", "sglang.launch_server", "--model-path", "/nonexistent", "--port", free_port(),
                  "--served-model-name", IN_COMMAND)
        run = json.loads(guest.run("kldumpctl", "status", "a", "--json").stdout)["runs"][0]
        assert "/system.slice/kldump-run-a.service/" in run["guarantee"] and run["owner"] == "one"
        status = guest.run("cat", f"/proc/{run['pid']}/status").stdout
        assert "NoNewPrivs:\t0" in status and guest.run("id", "-u", "one").stdout.strip() in status  # nothing of the daemon's hardening
        told = guest.run("systemctl", "show", "kldump-run-a.service").stdout + guest.run("journalctl", "--no-pager").stdout
        assert "kldump run a" in told and not [secret for secret in SECRETS if secret in told]
        (guest.shared / "look.py").write_text(LOOK)
        (guest.shared / "words").write_text(" ".join(SECRETS))
        found = guest.run("runuser", "-u", "two", "--", "python3", "/t/look.py", "/t/words", "/run/kldump").stdout.splitlines()
        assert found[-1].startswith("looked at")
        assert all(line.endswith(f"/cmdline {IN_COMMAND}") for line in found[:-1]), found
        guest.run("kldumpctl", "stop", "a", "--now")
