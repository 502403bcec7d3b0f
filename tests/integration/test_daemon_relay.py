"""kldumpd beside a guard that does what a test wants, also what no real guard would."""
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from kldump_programs import BUILD, ControlError, Place, process_is_alive, wait_for

SECRET = "s3cret-of-the-client"
WHOSE = {"owner": pwd.getpwuid(os.geteuid()).pw_name, "uid": os.geteuid()}  # which kldumpd says, not the guard
REFUSAL = {"error": {"code": -32000, "message": "the run is loading", "data": {"error": "state", "status": 1}}}


class FakePlace(Place):
    def __init__(self):
        super().__init__()
        self.guards = []
        program = self.folder / "programs"
        program.mkdir()
        shutil.copy(BUILD / "kldumpd", program)
        shutil.copy(Path(__file__).parent / "fake_guard.py", program / "kldump-run")
        self.program = program / "kldumpd"

    def end_runs(self):
        for pid in self.guards:
            if process_is_alive(pid):
                os.kill(pid, 9)

    def start(self, name, client=None, **orders):
        orders = {"name": name, "say": json.dumps({"run": name}), **orders}
        plan = {"arguments": ["--name", name, "--", json.dumps(orders)], "directory": str(self.folder),
                "environment": [f"SECRET={SECRET}", "LANG=C"]}
        if client is not None:
            return client.send("start", **plan)
        try:
            with self.control() as control:
                return control.call("start", **plan)
        finally:
            self.guards += [event["pid"] for event in self.seen(name, "start")]

    def seen(self, name, kind=None):
        path = self.folder / f"{name}.seen"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be on its way
        return [event for event in events if kind in (None, event["event"])]

    def pid(self, name):
        return self.seen(name, "start")[-1]["pid"]

    def kill(self, name):
        os.kill(self.pid(name), 9)
        wait_for(lambda: not process_is_alive(self.pid(name)), what="end of the guard")


@pytest.fixture
def place():
    with FakePlace() as found:
        found.start_daemon(found.program)
        yield found


@pytest.fixture
def control(place):
    with place.control() as found:
        yield found


def refused(call, *arguments, **parameters):
    with pytest.raises(ControlError) as caught:
        call(*arguments, **parameters)
    return caught.value


# ---- start ----

def test_start_answers_what_the_guard_says(place):
    assert place.start("a") == {"run": "a"}


def test_a_guard_sees_nothing_of_the_daemon_and_nobody_sees_the_clients_environment(place):
    place.kill_daemon(signal.SIGTERM)
    place.start_daemon(place.program, {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "1", "LISTEN_FDS": "1", "X": "1"})
    place.start("a")
    seen = place.seen("a", "start")[0]
    home = {"HOME"} if os.geteuid() != 0 else set()  # root's is nobody else's
    assert set(seen["environment"]) - {"LC_CTYPE", "PWD"} == {"PATH", "LANG", "KLDUMP_RUNTIME_DIR"} | home
    assert seen["environment"]["KLDUMP_RUNTIME_DIR"] == str(place.runtime)
    assert seen["arguments"] == ["--plan"]
    assert seen["session"] == seen["pid"]
    assert f"SECRET={SECRET}" in seen["plan_environment"]
    assert "memfd:kldump-plan" in seen["descriptors"]["0"]
    assert seen["descriptors"]["2"] == "/dev/null"
    assert set(seen["descriptors"]) == {"0", "1", "2"}
    for file in "cmdline", "environ":
        assert SECRET.encode() not in Path(f"/proc/{seen['pid']}/{file}").read_bytes()


def test_a_refused_start_comes_back_with_code_status_and_message(place):
    say = json.dumps({"error": "settings", "status": 80, "message": "DUMPER_ENABLE=1 contradicts"})
    error = refused(place.start, "a", say=say, exit=80)
    assert (error.name, error.status, error.message) == ("settings", 80, "DUMPER_ENABLE=1 contradicts")


def memory_of(pid):
    return int(next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")))


def test_a_thousand_refused_starts_leave_nothing(place, control):
    """No memory, descriptor, folder, record, nor cgroup; and what was known of an older run of the name."""
    place.start("old")
    place.kill("old")
    wait_for(lambda: control.call("list")["ended"], what="the end of the older run")
    before_record = (place.runtime / "owned/old.json").read_text()
    (place.program.parent / "kldump-run").write_text("#!/bin/sh\necho '{\"error\":\"settings\",\"message\":\"no\"}'\nexit 80\n")
    plan = {"arguments": ["--", "x"], "environment": [], "directory": "/"}

    def refuse(count, **more):
        for _ in range(count):
            assert refused(control.call, "start", **{**plan, **more}).name == "settings"

    def used():
        return memory_of(place.daemon.pid), len(os.listdir(f"/proc/{place.daemon.pid}/fd"))

    descriptors = used()[1]
    refuse(1000)  # malloc has then all that it keeps
    wait_for(lambda: used()[1] <= descriptors, what="their ends")
    memory = used()[0]
    refuse(1000)
    refuse(1, arguments=["--name", "old", "--", "x"])
    wait_for(lambda: used()[1] <= descriptors, what="their ends")
    assert used()[0] - memory < 400, "KiB for 1000 starts"
    assert os.listdir(place.runtime / "owned") == ["old.json"] and os.listdir(place.runtime / "runs") == ["old"]
    assert (place.runtime / "owned/old.json").read_text() == before_record
    assert control.call("list")["runs"][0]["outcome"] == "guard-lost"


@pytest.mark.parametrize("orders, words", [
    ({"exit": 3, "say": ""}, "no answer"), ({"exit": 0, "say": "hello"}, "no answer: hello"),
    ({"exit": 0, "say": '{"run":"../../x"}'}, "no answer"), ({"exit": 0, "say": "x" * 20000}, "no answer")])
def test_a_guard_that_talks_nonsense_is_an_internal_error(place, orders, words):
    error = refused(place.start, "a", **orders)
    assert (error.name, error.status) == ("internal", 125)
    assert words in error.message


def test_a_guard_that_ends_without_a_word(place, control):
    (place.program.parent / "kldump-run").write_text("#!/bin/sh\nexit 7\n")
    error = refused(place.start, "a")
    assert error.name == "internal" and "status 7 without a word" in error.message
    (place.program.parent / "kldump-run").write_text("#!/bin/sh\nkill -9 $$\n")
    assert "signal 9 without a word" in refused(place.start, "a").message
    (place.program.parent / "kldump-run").unlink()
    assert "kldump-run" in refused(place.start, "a").message


NO_POLL = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int uv_poll_init(void *loop, void *poll, int fd)
{
    int (*real)(void *, void *, int) = (int (*)(void *, void *, int))dlsym((void *)-1L, "uv_poll_init");
    return access(getenv("NO_POLL"), F_OK) == 0 ? -12 : real(loop, poll, fd);
}
"""


SLOW_POLL = NO_POLL.replace("return access", "if (access").replace(" ? -12 : ", ")\n        usleep(500000);\n    return ")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="missing: cc, for a library that changes a call")


def with_library(place, text):
    """A daemon with it, and the file that switches the change on."""
    library, switch = place.folder / "changed.so", place.folder / "switch"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=text, text=True, check=True)
    place.kill_daemon(signal.SIGTERM)
    place.start_daemon(place.program, {"LD_PRELOAD": str(library), "NO_POLL": str(switch)})
    return switch


@needs_cc
def test_a_guard_that_has_refused_and_ended_before_it_is_watched_is_not_counted(place):
    with_library(place, SLOW_POLL).touch()
    assert refused(place.start, "a", say='{"error":"settings","status":80,"message":"no"}', exit=80).name == "settings"
    with place.control() as control:
        assert not any(control.call("list")["ended"].values())


@needs_cc
def test_a_guard_that_cannot_be_watched_is_ended_and_its_start_refused(place):
    switch = with_library(place, NO_POLL)
    switch.touch()
    error = refused(place.start, "a")
    assert error.name == "system" and "cannot be watched" in error.message and "Cannot allocate memory" in error.message
    for pid in place.seen("a", "start"):
        wait_for(lambda: not Path(f"/proc/{pid['pid']}").exists(), what="the end of the guard, reaped")
    assert not (place.runtime / "owned/a.json").exists()
    switch.unlink()
    assert place.start("a") == {"run": "a"}


@pytest.mark.parametrize("change", [{"directory": "relative"}, {"environment": ["NOVALUE"]}, {"arguments": [1]},
                                    {"environment": "A=1"}, {"directory": 1}])
def test_bad_parameters_of_start_are_refused(place, control, change):
    plan = {"arguments": ["--", "x"], "environment": [], "directory": "/", **change}
    assert refused(control.call, "start", **plan).name == "bad-value"


def test_a_client_that_goes_does_not_stop_its_start(place):
    with place.control() as client:
        place.start("a", client=client)
    wait_for(lambda: (place.runtime / "runs/a/control").exists(), what="the run")
    place.guards.append(place.pid("a"))
    with place.control() as control:
        assert control.call("status", run="a") == {"run": {"name": "a", **WHOSE}}


# ---- which run ----

def test_the_only_live_run_is_meant_when_none_is_named(place, control):
    assert refused(control.call, "status").name == "no-run"
    place.start("a")
    assert control.call("status")["run"]["name"] == "a"
    place.start("b")
    error = refused(control.call, "status")
    assert error.status == 2 and "a, b" in error.message
    place.kill("b")
    assert control.call("status")["run"]["name"] == "a"


def test_an_unknown_run_is_answered_with_the_live_ones(place, control):
    place.start("a")
    error = refused(control.call, "status", run="nix")
    assert (error.name, error.status) == ("no-run", 87) and "live now: a" in error.message
    for name in "..", "", "a/b", "x" * 65:
        assert refused(control.call, "status", run=name).name == "bad-value"
    assert refused(control.call, "status", run=7).name == "bad-value"


# ---- relay ----

def test_requests_reach_the_guard_without_the_run_and_answers_come_back_whole(place, control):
    place.start("a", answers={"events": {"result": {"events": [{"n": 5, "text": "ü"}], "next": 5}}})
    assert control.call("events", run="a", after=4, wait_ms=100) == {"events": [{"n": 5, "text": "ü"}], "next": 5}
    asked = [event for event in place.seen("a", "request") if event["method"] == "events"]
    assert asked[0]["params"]["after"] == 4 and asked[0]["params"]["wait_ms"] <= 100 and "run" not in asked[0]["params"]


def test_the_most_events_that_a_guard_keeps_are_served_while_it_lives_and_afterwards(place, control):
    events = [{"n": 2000 + n, "at": "2026-01-01T00:00:00.000Z", "uptime_ms": n, "level": "info", "kind": "state", "text": "x" * 250}
              for n in range(1000)]
    place.start("a", answers={"events": {"result": {"events": events, "next": 2999, "ended": False}}}, events=events)
    assert control.call("events", run="a")["events"] == events
    place.kill("a")
    assert control.call("events", run="a")["events"] == events
    shown = place.ctl("events", "a").stdout.splitlines()
    assert shown[0] == "1999 older events are not kept" and len(shown) == 1 + 1000 + 1


def test_errors_of_the_guard_come_back_as_they_are(place, control):
    place.start("a", answers={"pause": REFUSAL})
    error = refused(control.call, "pause", run="a")
    assert (error.name, error.status, error.message) == ("state", 1, "the run is loading")


@pytest.mark.parametrize("answer", ["nonsense", '{"jsonrpc":"2.0","id":1}', '{"jsonrpc":"2.0","id":99,"result":{}}',
                                    '{"jsonrpc":"2.0","id":1,"result":[]}', "long", '{"jsonrpc":"2.0","id":1,"result":[' + "0," * 17000 + "0]}"],
                         ids=["nonsense", "empty", "unasked", "array", "long", "many values"])
def test_a_broken_answer_is_an_error_and_harms_nobody(place, control, answer):
    place.start("a", answers={"pause": answer})
    place.start("b")
    assert refused(control.call, "pause", run="a").name == "protocol"
    assert control.call("status", run="b")["run"]["name"] == "b"


def test_a_held_dump_ends_with_its_client_and_not_before(place, control):
    place.start("a", answers={"dump": {"result": {"experiment": "e"}}})
    with place.control() as client:
        assert client.call("dump", run="a", experiment="e", hold=True) == {"experiment": "e"}
        control.call("status", run="a")  # a full round after it
        dump = [event for event in place.seen("a", "request") if event["method"] == "dump"][0]
        closed = [event["connection"] for event in place.seen("a", "closed")]
        assert dump["connection"] not in closed
    wait_for(lambda: dump["connection"] in [event["connection"] for event in place.seen("a", "closed")], 5, "the end of the hold")


def test_a_dump_without_hold_leaves_no_connection(place, control):
    place.start("a", answers={"dump": {"result": {"experiment": "e"}}})
    control.call("dump", run="a", experiment="e")
    wait_for(lambda: len(place.seen("a", "closed")) == 1, 5, "the end of the connection")


def test_a_wait_goes_with_its_client_a_pause_does_not(place, control):
    place.start("a", answers={"wait": "silence", "pause": "silence"})
    with place.control() as client:
        client.send("pause", run="a")
        client.send("wait", run="a", **{"for": "armed", "timeout_ms": 60000})
        wait_for(lambda: {"wait", "pause"} <= {event["method"] for event in place.seen("a", "request")}, what="both requests")
    wait_for(lambda: place.seen("a", "closed"), 5, "the end of the wait")
    asked = {event["method"]: event["connection"] for event in place.seen("a", "request")}
    assert [event["connection"] for event in place.seen("a", "closed")] == [asked["wait"]]


def test_requests_of_one_client_do_not_wait_for_each_other(place, control):
    place.start("a", answers={"wait": "silence"})
    control.send("wait", run="a", **{"for": "ended", "timeout_ms": 60000})
    number = control.send("status", run="a")
    assert control.receive()["id"] == number


def test_a_guard_on_its_way_is_waited_for(place, control):
    place.start("a", late="go")
    asked, other = control.send("status", run="a"), control.send("list")
    assert control.receive()["id"] == other  # so it has been asked for, and there is nobody yet
    assert not (place.runtime / "runs/a/control").exists()
    (place.folder / "go").touch()
    answer = control.receive()
    assert answer["id"] == asked and answer["result"]["run"]["name"] == "a"


def test_a_guard_that_goes_after_stop_has_stopped(place, control):
    place.start("a", answers={"stop": "end"})
    assert control.call("stop", run="a") == {"state": "ended"}
    assert [event["method"] for event in place.seen("a", "request")].count("stop") == 1


def test_a_wait_survives_the_end_of_the_guard(place, control):
    place.start("a", answers={"wait": "end"})
    run = control.call("wait", run="a", **{"for": "ended", "timeout_ms": 5000})["run"]
    assert (run["state"], run["outcome"]) == ("ended", "stopped")


def test_a_wait_for_the_end_is_answered_when_the_guard_is_gone(place, control):
    """So that the name is free. A guard that hangs after its last word holds nobody up for long."""
    over = {"result": {"run": {"name": "a", "state": "ended", "outcome": "completed"}}}
    waits = {"for": "ended", "timeout_ms": 60000}
    place.start("a", answers={"wait": over})
    control.send("wait", run="a", **waits)
    wait_for(lambda: [event for event in place.seen("a", "request") if event["method"] == "wait"], what="the question")
    with pytest.raises(ControlError) as refused:
        place.start("a")
    assert "is live" in str(refused.value)
    place.kill("a")
    assert control.receive()["result"]["run"]["state"] == "ended"
    place.start("hangs", answers={"wait": over})
    began = time.monotonic()
    assert control.call("wait", run="hangs", **waits)["run"]["outcome"] == "completed"
    assert 1.5 < time.monotonic() - began < 8
    # a state that is not the end is told at once
    place.start("b", answers={"wait": {"result": {"run": {"name": "b", "state": "armed"}}}})
    began = time.monotonic()
    assert control.call("wait", run="b", **{**waits, "for": "armed"})["run"]["state"] == "armed"
    assert time.monotonic() - began < 1.5


def test_a_start_waits_for_the_guard_of_an_older_run_that_is_just_going(place, control):
    """Its lock is free, so that a client believes that the name is; its process is there for a moment."""
    place.start("a", answers={"stop": "end"}, going="gone")
    before = place.pid("a")
    control.send("stop", run="a", now=True)
    wait_for(lambda: place.seen("a", "unlocked"), what="its lock")
    with place.control() as client:
        asked, other = place.start("a", client=client), client.send("list")
        assert client.receive()["id"] == other and process_is_alive(before)
        (place.folder / "gone").touch()
        answer = client.receive()
        place.guards += [event["pid"] for event in place.seen("a", "start")]
        assert (answer["id"], answer["result"]) == (asked, {"run": "a"}) and not process_is_alive(before)
    # one that stays is told, and holds nobody else up; the daemon ends meanwhile
    place.start("stays", answers={"stop": "end"}, going=60)
    control.send("stop", run="stays", now=True)
    wait_for(lambda: place.seen("stays", "unlocked"), what="its lock")
    began = time.monotonic()
    with pytest.raises(ControlError) as caught:
        place.start("stays")
    assert "is live" in str(caught.value) and 1 < time.monotonic() - began < 8
    with place.control() as waiting:
        place.start("b", client=waiting)
        other = waiting.send("list")
        assert waiting.receive()["id"] == other
        assert not place.seen("b") and place.kill_daemon(signal.SIGTERM) == 0
        assert waiting.receive()["error"]["data"]["error"] == "interrupted"


def test_a_silent_guard_is_a_timeout(place, control):
    place.start("a", hello=False)
    place.start("b", answers={"status": "silence"})
    began = time.monotonic()
    control.send("status", run="a")
    control.send("status", run="b")
    for answer in control.receive(), control.receive():
        assert answer["error"]["data"] == {"error": "timeout", "status": 89}
    assert 9 < time.monotonic() - began < 15


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_another_users_program_on_a_guards_socket_is_not_asked(place, control):
    place.start("a", late=60)
    path = place.runtime / "runs/a/control"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.seteuid(65534)  # the kernel keeps who called listen
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        error = refused(control.call, "status", run="a")
    assert error.name == "forbidden" and "65534" in error.message


# ---- runs that have ended ----

def test_a_lost_guard_is_shown_as_such(place, control):
    place.start("a", state="dumping", events=[{"n": 1, "text": "one"}, {"n": 2, "text": "two"}])
    place.kill("a")
    for run in control.call("status", run="a")["run"], control.call("list")["runs"][0], \
            control.call("wait", run="a", **{"for": "armed", "timeout_ms": 0})["run"]:
        assert (run["state"], run["outcome"], run["exit_status"]) == ("ended", "guard-lost", 85)
    assert control.call("events", run="a", after=1) == {"events": [{"n": 2, "text": "two"}], "next": 2, "ended": True}
    for method, more in ("pause", {}), ("stop", {}), ("dump", {"experiment": "e"}):
        error = refused(control.call, method, run="a", **more)
        assert (error.name, error.message) == ("no-run", "run a has ended; 'kldumpctl status a' shows how")


@pytest.mark.parametrize("older, newer", [("", ""), ("", "abc"), ("äöü", "xyz"), ("x" * 199999, "ä" * 150000)],
                         ids=["none", "one", "two", "long"])
def test_logs_of_an_ended_run_are_whole(place, control, older, newer):
    place.start("a")
    place.kill("a")
    (place.runtime / "runs/a/server.log.1").write_text(older)
    (place.runtime / "runs/a/server.log").write_text(newer)
    offset, text, ended = 0, "", False
    while not ended:
        part = control.call("logs", run="a", offset=offset)
        assert part["offset"] == offset
        text, offset, ended = text + part["text"], part["next_offset"], part["ended"]
    assert text == older + newer
    assert control.call("logs", run="a", offset=offset + 5) == {"offset": offset, "next_offset": offset, "text": "", "ended": True}


@pytest.mark.parametrize("record", ["", "{", "[]", '{"schema":"kldump.record/2"}', '{"schema":"kldump.record/1"}',
                                    '{"schema":"kldump.record/1","run":{"name":"other","state":"armed"}}', "\0" * 100])
def test_a_damaged_record_is_told_and_harms_nobody(place, control, record):
    place.start("a", record=record)
    place.start("b")
    place.kill("a")
    runs = {run["name"]: run for run in control.call("list")["runs"]}
    assert runs["a"]["state"] == "unknown" and "record.json" in runs["a"]["message"]
    assert runs["b"]["state"] == "armed"
    assert refused(control.call, "status", run="a").name in ("format", "internal")


def test_strange_things_among_the_runs_are_passed_over(place, control):
    runs = place.runtime / "runs"
    (runs / "file").write_text("x")
    (runs / "empty").mkdir()
    (runs / "link").symlink_to("/")
    os.mkfifo(runs / "fifo")
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe/record.json")
    place.start("a")
    states = {run["name"]: run["state"] for run in control.call("list")["runs"]}
    assert states == {"a": "armed", "empty": "ended", "pipe": "unknown"}
    assert refused(control.call, "status", run="empty").name == "no-run"


def test_a_list_of_many_long_runs_fits_one_frame(place, control):
    for number in range(40):
        folder = place.runtime / f"runs/r{number:02}"
        folder.mkdir(mode=0o700)
        run = {"name": folder.name, "state": "ended", "outcome": "stopped", "command": ["x" * 60000]}
        (folder / "record.json").write_text(json.dumps({"schema": "kldump.record/1", "run": run}))
    assert len(control.call("list")["runs"]) == 40


def test_a_run_that_says_too_much_does_not_push_the_others_out_of_the_list(place, control):
    for number in range(20):
        folder = place.runtime / f"runs/r{number:02}"
        folder.mkdir(mode=0o700)
        run = {"name": folder.name, "state": "ended", "outcome": "stopped", "message": "x" * 900000, "space": {"path": {"a": ["x"] * 9000}}}
        (folder / "record.json").write_text(json.dumps({"schema": "kldump.record/1", "run": run}))
    answer = control.call("list")
    assert len(answer["runs"]) == 20 and "left_out" not in answer


# ---- a start that is interrupted ----

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_interrupted_before_its_name_is_there_stops_the_run(place, number):
    guard = place.program.parent / "kldump-run"
    guard.rename(guard.with_name("guard.py"))
    os.mkfifo(place.folder / "go")
    guard.write_text(f"#!/bin/sh\ntouch {place.folder}/begun\nread line <{place.folder}/go\nexec {guard.with_name('guard.py')} \"$@\"\n")
    guard.chmod(0o755)
    orders = json.dumps({"name": "a", "say": json.dumps({"run": "a"}), "answers": {"stop": "end"}})
    started = subprocess.Popen([BUILD / "kldumpctl", "start", "--name", "a", "--", orders], env=place.environment, cwd=place.folder,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for((place.folder / "begun").exists, what="the guard's beginning")
    started.send_signal(number)
    (place.folder / "go").write_text("on\n")
    out, err = started.communicate(timeout=20)
    place.guards += [event["pid"] for event in place.seen("a", "start")]
    assert (started.returncode, out) == (-number, "")
    assert err == "kldumpctl start: interrupted; run a had begun, and is being stopped\n"
    assert [event["method"] for event in place.seen("a", "request")][-1] == "stop"
    wait_for(lambda: not process_is_alive(place.pid("a")), what="the end of the run")


def test_a_second_signal_ends_the_start_and_says_how_to_see_the_run(place):
    place.daemon.send_signal(signal.SIGSTOP)
    started = subprocess.Popen([BUILD / "kldumpctl", "start", "--name", "a", "--", "{}"], env=place.environment, cwd=place.folder,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    status = Path(f"/proc/{started.pid}/status")
    wait_for(lambda: int(next(line for line in status.read_text().splitlines() if line.startswith("SigCgt")).split()[1], 16) & 0x4003 == 0x4003,
             what="its handlers of HUP, INT and TERM")
    started.send_signal(signal.SIGINT)
    wait_for(lambda: "ShdPnd:\t0000000000000000" in status.read_text(), what="the first one taken")
    started.send_signal(signal.SIGTERM)
    out, err = started.communicate(timeout=20)
    place.daemon.send_signal(signal.SIGCONT)
    assert (started.returncode, out) == (143, "") and "'kldumpctl list' shows it" in err and err.count("\n") == 1


# ---- the daemon itself ----

def test_a_second_daemon_ends_and_harms_nothing(place, control):
    done = subprocess.run([place.program], env=place.environment, stderr=subprocess.PIPE, text=True, timeout=10, check=False)
    assert done.returncode == 88 and "another kldumpd" in done.stderr
    assert done.stderr.count("\n") == 1
    assert control.call("list")["runs"] == []
    with place.control() as other:
        assert other.hello["program"].startswith("kldumpd")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_and_no_run(place, number):
    place.start("a", answers={"wait": "silence"})
    with place.control() as client:
        client.send("wait", run="a", **{"for": "ended", "timeout_ms": 60000})
        wait_for(lambda: "wait" in [event.get("method") for event in place.seen("a")], what="the wait")
        assert place.kill_daemon(number) == 0
        assert client.receive()["error"]["data"]["error"] == "interrupted"
    assert not (place.runtime / "control").exists()
    assert process_is_alive(place.pid("a"))
    assert "1 run live" in place.start_daemon(place.program)
    with place.control() as control:
        assert control.call("status", run="a")["run"]["name"] == "a"


def test_a_folder_open_to_others_is_refused(place):
    place.kill_daemon(signal.SIGTERM)
    place.runtime.chmod(0o777)
    assert "kldumpd: " in place.start_daemon(place.program)
    assert place.daemon.wait(10) == 88


def test_the_service_manager_is_told(place):
    place.kill_daemon(signal.SIGTERM)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place.folder / "notify"))
        manager.settimeout(10)
        place.start_daemon(place.program, {"NOTIFY_SOCKET": str(place.folder / "notify")})
        assert manager.recv(4096) == b"READY=1\nSTATUS=0 runs live"
        place.start("a")
        assert manager.recv(4096) == b"STATUS=1 run live"
        place.kill("a")
        assert manager.recv(4096) == b"STATUS=0 runs live"
        place.kill_daemon(signal.SIGTERM)
        assert manager.recv(4096).startswith(b"STOPPING=1\n")


def test_no_zombie_and_no_descriptor_is_left(place, control):
    def descriptors():
        return len(os.listdir(f"/proc/{place.daemon.pid}/fd"))

    before = descriptors()
    for _ in range(20):
        with pytest.raises(ControlError):
            place.start("x", exit=80, say='{"error":"settings","status":80,"message":"no"}')
    place.start("a")
    for _ in range(50):
        control.call("status", run="a")
    place.kill("a")
    wait_for(lambda: descriptors() == before, 5, "the descriptors")
    children = Path(f"/proc/{place.daemon.pid}/task/{place.daemon.pid}/children")
    wait_for(lambda: children.read_text() == "", 5, "the children")
