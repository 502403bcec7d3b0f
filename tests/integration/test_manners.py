"""How a run behaves as a program in a terminal, in a pipe, or with neither: job control, signals, output."""
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from guarded import PYTHON, Run, children_of, is_alive, state_of, wait_for

CONTROL = {"Ctrl-C": "\x03", "Ctrl-Z": "\x1a", "Ctrl-\\": "\x1c"}
KEEPERS = [pytest.param({}, id="cgroup"), pytest.param({"KLDUMP_NO_CGROUP": "1"}, id="keeper-alone")]


class Job(Run):
    """A run that was typed into an interactive bash, which has job control."""

    def start_on_terminal(self, argv, keywords):
        keywords["env"] |= {"PS1": "$ ", "HISTFILE": ""}
        super().start_on_terminal(["/bin/bash", "--noprofile", "--norc", "-i"], keywords)
        self.tell(shlex.join(argv))

    def tell(self, line):
        self.type(line + "\n")

    @property
    def pid(self):
        with contextlib.suppress(OSError, ValueError):
            return self.record["run"]["guard_pid"]
        return 0

    def suspend(self):
        self.type(CONTROL["Ctrl-Z"])
        wait_for(lambda: state_of(self.pid) == "T", 15, "the guard to stop")
        wait_for(lambda: "Stopped" in self.output, 15, "the shell to notice")

    def leave(self, status):
        """The job has ended in the foreground: with this STATUS, as the shell saw it."""
        wait_for(lambda: not is_alive(self.pid), 30, "the end of the guard")
        self.tell("echo status=$?=")
        seen = wait_for(lambda: re.search(r"status=(\d+)=", self.output), 15, "the status")
        self.tell("exit")
        self.exit()
        assert int(seen.group(1)) == status, self.output[-3000:]


def job(place, server, keeper=None, **options):
    place.runs.append(Job(place, server, terminal=True, environment=keeper or {}, **options))
    return place.runs[-1]


def files_of(run, experiment):
    return sum(1 for _ in (run.directory / experiment).glob("*.pt"))


def still(run, experiment):
    """True when nothing is written for a while."""
    before = files_of(run, experiment)
    time.sleep(0.5)
    return files_of(run, experiment) == before


# ---- Ctrl-Z

@pytest.mark.parametrize("keeper", KEEPERS)
def test_suspended_and_continued(place, standin, keeper):
    """Longer than the keeper bears a silent guard; fg and bg go on with the same dump, which ends complete."""
    run = job(place, standin, keeper).armed()
    run.start_dump("dec")
    main = run.status()["pid"]
    run.suspend()
    assert still(run, "dec")
    time.sleep(2.5)
    assert is_alive(main) and still(run, "dec")
    seen = files_of(run, "dec")
    run.tell("bg")
    wait_for(lambda: files_of(run, "dec") > seen, 15, "the dump to go on")
    assert run.status()["state"] == "dumping"
    run.tell("fg")
    wait_for(lambda: os.tcgetpgrp(run.master) == run.pid, 15, "the foreground")
    times = run.output.count("Stopped")
    run.type(CONTROL["Ctrl-Z"])
    wait_for(lambda: run.output.count("Stopped") > times, 15)
    run.tell("fg")
    wait_for(lambda: state_of(run.pid) not in "Tt", 15)
    sealed = place.ctl("pause", "t")
    assert "dec: complete" in sealed.stdout
    texts = [event["text"] for event in run.events()]
    assert sum("suspended, with every process" in text for text in texts) == 2
    assert sum("running again after" in text for text in texts) == 2
    place.ctl("stop", "t")
    run.leave(0)


@pytest.mark.parametrize("command, status", [("kill %1", 130), ("kill -9 %1", 137)])
def test_killed_while_suspended(place, standin, command, status):
    run = job(place, standin).armed()
    run.start_dump("dec")
    run.remember_cgroup()
    run.suspend()
    run.tell(command)
    wait_for(lambda: not place.survivors() or place.survivors() == [run.process.pid], 30, "the end of the run")
    if status == 130:
        assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]
    else:
        shutil.rmtree(run.folder / "t")  # a guard that is killed cannot tidy up
    run.tell("exit")
    run.exit()


def test_a_keeper_that_does_not_answer(place, standin):
    """Then the guard must not sleep: it says so, and the run goes on."""
    run = job(place, standin).armed()
    keeper = run.keeper()
    os.kill(keeper, signal.SIGSTOP)
    run.type(CONTROL["Ctrl-Z"])
    wait_for(lambda: "not suspended: the keeper" in run.output, 20)
    os.kill(keeper, signal.SIGCONT)
    assert run.status()["state"] == "armed"
    run.dump("dec", "--new", "2")
    run.type(CONTROL["Ctrl-C"])
    run.leave(130)


def test_a_keeper_that_takes_no_order(place, standin):
    """It has been stopped for so long that its channel is full. The run's limits count on as if nothing had been asked."""
    run = job(place, standin).armed()
    guard = run.pid
    os.kill(run.keeper(), signal.SIGSTOP)
    for _ in range(1000):
        os.kill(guard, signal.SIGUSR1)
        time.sleep(0.001)
    run.type(CONTROL["Ctrl-Z"])
    wait_for(lambda: "not suspended: the keeper" in run.output, 20)
    took = wait_for(lambda: re.search(r"running again after (\S+ ?\S*)", run.output), 10).group(1)
    assert re.match(r"[0-9.]+ m?s", took), took
    place.ctl("stop", "t", "--now")
    wait_for(lambda: not is_alive(guard), 30, "the end")
    run.tell("exit")
    run.exit()


def test_no_shell_to_continue_it(place, standin):
    run = place.run(standin, terminal=True).armed()
    run.type(CONTROL["Ctrl-Z"])
    wait_for(lambda: "not suspended: no shell waits" in run.output, 15)
    assert run.status()["state"] == "armed"
    place.ctl("stop", "t")
    run.exits_with(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, for a small filesystem of its own")
@pytest.mark.parametrize("keeper", KEEPERS)
def test_disk_that_fills_meanwhile(place, standin, keeper):
    """Free space is read before anything of the run moves again."""
    disk = place.small_disk("512M")
    config = place.folder / "config"
    config.write_text("[run]\nworst_rate = 512M\n")
    run = job(place, standin, keeper, directory=disk / "dumps", options=["--config", config]).armed()
    run.start_dump("dec")
    run.suspend()
    seen = files_of(run, "dec")
    found = os.statvfs(disk)
    subprocess.run(["fallocate", "-l", str(found.f_bavail * found.f_frsize - (50 << 20)), str(disk / "other")], check=True)
    run.tell("fg")
    run.leave(83)
    assert files_of(run, "dec") == seen
    assert run.record["run"]["outcome"] == "floor"


# ---- the other signals

def test_quit_kills_at_once(place, standin):
    run = place.run(standin, terminal=True, faults="ignore-term").armed()
    run.start_dump("dec")
    begin = time.monotonic()
    run.type(CONTROL["Ctrl-\\"])
    run.exits_with(130)
    assert time.monotonic() - begin < 10
    assert "SIGTERM received" not in run.log
    assert json.loads((run.directory / "dec.kldump.json").read_text())["sealed_by"] == "death"


def test_hang_up_of_the_terminal(place, standin):
    """The window is closed: the dump is sealed, the server stops in order."""
    run = place.run(standin, terminal=True).armed()
    run.start_dump("dec").kill()
    run.hang_up()
    run.exits_with(130)
    assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]
    assert "SIGTERM received" in run.log


def test_signals_that_mean_nothing(place, standin):
    """Also a hang-up under nohup."""
    place.before = ["/usr/bin/nohup"]
    run = place.run(standin).armed()
    place.before = []
    for number in (signal.SIGWINCH, signal.SIGPIPE, signal.SIGTTIN, signal.SIGTTOU, signal.SIGHUP, signal.SIGCONT):
        run.process.send_signal(number)
    time.sleep(0.3)
    assert run.status()["state"] == "armed"
    place.ctl("stop", "t")
    run.exits_with(0)


REPORT = """#!{python}
import os, signal, sys
lines = {{key: value for key, value in (line.split(":") for line in open("/proc/self/status") if line.startswith("Sig"))}}
descriptors = " ".join(os.listdir("/proc/self/fd"))
seen = []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda got, frame: (seen.append(got), open({file!r}, "a").write("\\n" + signal.Signals(got).name)))
open({file!r}, "w").write(" ".join(lines[key].strip() for key in ("SigBlk", "SigIgn")) + "\\n" + descriptors)
import time
while len(seen) < 2:
    time.sleep(0.01)
os.execv({server!r}, [{server!r}, "-m", "sglang.launch_server", "--model-path", "/m", "--port", {port!r}, *os.environ["KLDUMP_SGLANG_ARGS"].split()])
"""
SPOILED = "import os,signal,sys\nfor n in (1,2,10,12,13,15): signal.signal(n, signal.SIG_IGN)\n" \
          "signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 32)))\nos.execv(sys.argv[1], sys.argv[1:])"


def test_what_the_server_inherits_and_gets(place, standin):
    """No signal is blocked or ignored whatever the caller did, no descriptor but 0, 1, 2; USR1 and USR2 are passed on."""
    report, script, port = place.folder / "report", place.folder / "serve.py", str(place.port())
    script.write_text(REPORT.format(python=PYTHON, file=str(report), server=str(standin.python(place)), port=port))
    script.chmod(0o755)
    place.before = [PYTHON, "-c", SPOILED]
    run = place.run(standin, command=[script, "--port", port])
    place.before = []
    wait_for(lambda: report.exists() and report.read_text().count("\n") >= 1, 30)
    masks, descriptors = report.read_text().splitlines()[:2]
    blocked, ignored = (int(mask, 16) for mask in masks.split())
    python_itself = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert blocked == 0 and ignored & ~python_itself == 0
    assert len(descriptors.split()) == 4  # with the one that lists them
    run.wait_state("loading")  # then the guard knows whom to pass it on to
    run.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: "SIGUSR1" in report.read_text(), 10)
    run.process.send_signal(signal.SIGUSR2)
    run.armed()
    assert any("USR2 is passed on" in event["text"] for event in run.events())
    run.process.send_signal(signal.SIGTERM)
    run.exits_with(130)


def test_stopped_and_continued_a_thousand_times_a_second(place, standin):
    """Signals while a call waits end nothing and lose nothing."""
    run = place.run(standin).armed()
    run.start_dump("dec")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGWINCH):
            run.process.send_signal(number)
        time.sleep(0.001)
    assert run.status()["state"] == "dumping"
    assert "dec: complete" in place.ctl("pause", "t").stdout
    os.kill(run.status()["pid"], signal.SIGKILL)
    run.exits_with(137)


# ---- output

CLOSED = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
NULL = ["/bin/sh", "-c", 'exec "$@" </dev/null >/dev/null 2>&1', "sh"]


@pytest.mark.parametrize("before", [CLOSED, NULL], ids=["closed", "null"])
def test_without_a_terminal(place, standin, before):
    place.before = before
    run = place.run(standin)
    place.before = []  # of the run alone
    run.armed()
    run.dump("dec", "--new", "2")
    place.ctl("stop", "t")
    assert run.exit() == 0
    assert run.output == "" and "fired up and ready" in run.log


def test_output_into_a_closed_pipe(place, standin):
    """`| head -1`"""
    reader, writer = os.pipe()
    run = place.run(standin, output=writer)
    os.close(writer)
    assert os.read(reader, 1)
    os.close(reader)
    run.armed()
    run.dump("dec", "--new", "2")
    wait_for(lambda: any("cannot write to its output" in event["text"] for event in run.events()), 20, "what the thread that writes met")
    place.ctl("stop", "t")
    assert run.exit() == 0


def resident(pid, field="VmHWM"):
    return int(re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M).group(1)) * 1024


def written_by(pid):
    """Bytes that a process has written so far."""
    with contextlib.suppress(OSError):
        return int(re.search(r"^wchar: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.M).group(1))
    return 0


@pytest.mark.parametrize("size, reads", [(1 << 30, True), (128 << 20, False)], ids=["read-on", "nobody-reads"])
def test_a_flood_of_output(place, standin, size, reads):
    """A gigabyte of log, or a terminal that was stopped: the server is never held up, the guard stays small and goes on
    guarding, the log keeps the end, and the exit status is right."""
    reader, writer = os.pipe()
    counter = subprocess.Popen(["/usr/bin/wc", "-c"], stdin=reader, stdout=subprocess.PIPE) if reads else None
    try:
        run = place.run(standin, faults=f"log-flood={size}", output=writer)
        os.close(writer)
        run.wait_state("armed", 120)
        server = run.status()["pid"]
        run.dump("dec", "--new", "2")
        wait_for(lambda: sum(written_by(pid) for pid in [server, *children_of(server)]) >= size, 120, "the end of the flood")
        assert resident(run.pid) < 48 << 20
        assert run.status()["state"] == "armed"
        assert 1 << 20 < len(run.log) <= 16 << 20
        os.kill(server, signal.SIGKILL)
        assert run.exit() == 137
        if reads:
            seen = int(counter.communicate(timeout=30)[0])
            dropped = any("left out" in event["text"] for event in run.record["events"])
            assert seen >= size or dropped
        else:
            assert any("left out" in event["text"] for event in run.record["events"])
    finally:
        os.close(reader)
        if counter and counter.poll() is None:
            counter.kill()
            counter.wait()


def test_binary_output(place, standin):
    run = place.run(standin, faults="binary-output").armed()
    wait_for(lambda: "fired up and ready" in place.ctl("logs", "t").stdout, 20, "the log, which a thread of its own writes")
    assert all(ord(char) >= 32 for event in run.events() for char in event["text"])
    place.ctl("stop", "t")
    run.exits_with(0)
    raw = run.output_path.read_bytes()
    assert bytes(range(256)) in raw or all(bytes([value]) in raw for value in range(256))
    assert len(max(raw.split(b"\n"), key=len)) > 900000  # the guard's own lines may stand between


def script(place, text):
    made = place.folder / "cmd"
    made.write_text("#!/bin/sh\n" + text)
    made.chmod(0o755)
    return [made]


def test_output_of_a_server_that_ends_at_once(place, standin):
    """Not a byte of its last words is lost, however fast it goes."""
    for number in range(10):
        run = place.run(standin, name=f"q{number}", command=script(place, "head -c 500000 /dev/zero | tr '\\0' x; exit 5"))
        run.exits_with(81)
        assert run.log == "x" * 500000


def test_a_grandchild_that_holds_the_output(place, standin):
    """The end of the server is told although somebody could still write."""
    begin = time.monotonic()
    run = place.run(standin, command=script(place, "sleep 1000 & echo gone; exit 5"))
    output = run.exits_with(81)
    assert "status 5" in output and "  | gone" in output
    assert time.monotonic() - begin < 10


def test_interrupted_at_birth(place, standin):
    """At any moment: nothing is left, no zombie either."""
    for number in range(8):
        run = place.run(standin, name=f"b{number}")
        time.sleep(0.01 * 2 ** number / 4)
        run.process.send_signal(signal.SIGINT)
        assert run.exit(20) in (130, -signal.SIGINT), run.output
        place.nothing_lives()


def test_the_folder_of_the_run_is_removed(place, standin):
    """Somebody tidies up /tmp: the run goes on, is guarded, and warns once."""
    run = place.run(standin).armed()
    run.remember_cgroup()
    server = run.status()["pid"]
    shutil.rmtree(run.folder)
    wait_for(lambda: "warning: cannot write" in run.output, 70, "the warning")
    os.kill(server, signal.SIGKILL)
    run.exits_with(137)
    assert run.output.count("warning: cannot write") <= 2
    assert (run.directory / "t.kldump-run.json").exists()


# ---- another spelling of a flag

def test_unknown_flag_leads_to_the_next_spelling(place, standin):
    run = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": "0.5.16", "KLDUMP_STANDIN_REPORTED": "0.5.23"})
    run.armed()
    assert [event["text"] for event in run.events() if "disable-prefill-cuda-graph" in event["text"]]
    run.dump("dec", "--new", "2")
    os.kill(run.status()["pid"], signal.SIGKILL)
    run.exits_with(137)
