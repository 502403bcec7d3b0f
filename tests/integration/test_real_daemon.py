"""The real SGLang as a run of kldumpd, of a user who is not root where the daemon is: started, dumped around a client, dumping while
the daemon is killed and comes back, paused, stopped. One boot."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from guarded import BUILD, PYTHON, Real, is_alive, wait_for

pytestmark = pytest.mark.real
USER = 4242
IS_ROOT = os.geteuid() == 0


def others_may_read(place, real):
    """The server's folder, below a home that is closed, and its model, for another user: in the place of the test."""
    folder, model = place.folder / "sglang", place.folder / "model"
    folder.mkdir()
    subprocess.run(["mount", "--bind", "-o", "ro", real.directory, folder], check=True)
    place.mounts.append(folder)
    shutil.copytree(real.model_folder, model)
    subprocess.run(["chmod", "-R", "a+rX", model], check=True)
    place.folder.chmod(0o755)
    place.copy_programs()
    shutil.copy(BUILD / "kldumpd", place.folder / "programs")
    home = place.folder / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    place.before = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *place.before, f"HOME={home}"]
    return Real(folder, model), home


def start_daemon(place):
    """Returns it when it serves."""
    program = place.folder / "programs/kldumpd"
    daemon = place.start([program if program.exists() else BUILD / "kldumpd"], stderr=subprocess.PIPE)
    assert b"listening on" in daemon.stderr.readline()
    return daemon


def kill_daemon(daemon):
    daemon.kill()
    daemon.wait()
    daemon.stderr.close()


def status(place):
    [run] = json.loads(place.ctl("status", "r", "--json").stdout)["runs"]
    return run


def send(place, run, rid):
    place.ctl_path, ctl = PYTHON, place.ctl_path
    try:
        place.ctl("-B", place.client, f"http://127.0.0.1:{run['port']}", "--rid", rid, "--prompt", "24", "--new", "4")
    finally:
        place.ctl_path = ctl


def test_started_dumped_and_stopped_through_the_daemon_across_its_restart(place, servers):
    real, home = servers("real"), place.folder
    place.before = ["env", *(f"{name}={value}" for name, value in real.environment().items())]
    if IS_ROOT:
        place.runtime.chmod(0o755)
        real, home = others_may_read(place, real)
    dumps, daemon = home / "dumps", start_daemon(place)
    place.ctl("start", "--name", "r", "--dir", dumps, "--floor", "64M", "--", *place.command(real, "--sleep-on-idle"), limit=360)
    before = status(place)
    assert (before["state"], before["uid"]) == ("armed", USER if IS_ROOT else os.geteuid())
    assert before["proofs"]["verdict"] == "proven"

    place.ctl("dump", "r", "around", "--", PYTHON, "-B", place.client, "--rid", "mine", "--requests", "2")
    seal = json.loads((dumps / "around.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    assert (dumps / "around.kldump.json").stat().st_uid == before["uid"]

    place.ctl("dump", "r", "across")
    send(place, before, "before")
    kill_daemon(daemon)
    assert is_alive(before["guard_pid"]) and is_alive(before["pid"])
    send(place, before, "without")
    daemon = start_daemon(place)
    begin = time.monotonic()
    after = status(place)
    assert time.monotonic() - begin < 1
    assert {key: after[key] for key in ("state", "exp", "pid", "guard_pid")} == {
        "state": "dumping", "exp": "across", "pid": before["pid"], "guard_pid": before["guard_pid"]}
    send(place, after, "after")
    place.ctl("pause", "r")
    seal = json.loads((dumps / "across.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    found = json.dumps(seal)
    assert all(rid in found for rid in ("before", "without", "after"))

    place.ctl("stop", "r")
    place.ctl("wait", "r", "--for", "ended", "--timeout", "60s")
    end = status(place)
    assert (end["state"], end["outcome"], end["exit_status"]) == ("ended", "stopped", 0)
    wait_for(lambda: not is_alive(before["guard_pid"]) and not is_alive(before["pid"]), what="the end of the run")
    log = place.ctl("logs", "r").stdout
    kept = (place.runtime / "runs/r/server.log").read_text(errors="replace")
    assert "fired up and ready to roll" in log and log.strip() == kept.strip()
    texts = [json.loads(line)["text"] for line in place.ctl("events", "r", "--json").stdout.splitlines()]
    assert sum("complete" in text for text in texts) >= 2, texts
    cgroup = end["guarantee"].removeprefix("cgroup: ")
    assert not cgroup.startswith("/") or not os.path.exists(cgroup)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(10) == 0
    daemon.stderr.close()
