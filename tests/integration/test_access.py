"""Who may do what with a kldumpd of root's: allowed users, strangers, members of an admin group, root. Users without names,
groups by number. Root only."""
import contextlib
import json
import os
import signal
import socket
import subprocess

import pytest

from kldump_programs import PATIENCE_S, Control, ControlError, process_is_alive, wait_for
from many_users import SharedPlace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to be several users")

ALLOWED, ADMINS = 48900, 48901
RULES = f"[access]\ngroups = {ALLOWED}\nadmin_groups = {ADMINS}\n"
CONTROL = {"dump": {"experiment": "e"}, "pause": {}, "stop": {}, "events": {}, "logs": {}}
SEEN_BY_OTHERS = {"name", "owner", "uid", "state", "outcome", "exit_status", "guarantee", "started_at", "space"}


class RuledPlace(SharedPlace):
    """Its people: the owner of run `a`, another who may use kldumpd, one who may not, and a member of the admin group."""

    def __init__(self):
        super().__init__()
        self.rules = self.folder / "kldumpd.conf"
        self.rules.write_text(RULES)
        self.owner, self.other = self.person(48101, groups=[ALLOWED]), self.person(48102, groups=[48999, ALLOWED])
        self.outsider, self.admin = self.person(48103, groups=[48999]), self.person(48104, groups=[ADMINS])

    def start_daemon(self):
        self.daemon = subprocess.Popen([self.programs / "kldumpd", "--rules", self.rules], env=self.environment,
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return self.daemon.stderr.readline().decode()

    def control_of(self, person):
        with being(person):
            return Control(self.runtime / "control")


@contextlib.contextmanager
def being(person):
    """The kernel notes who connects."""
    groups = os.getgroups()
    os.setgroups(person.groups)
    os.setegid(person.gid)
    os.seteuid(person.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def refused(call, *arguments, **parameters):
    with pytest.raises(ControlError) as caught:
        call(*arguments, **parameters)
    assert (caught.value.name, caught.value.status) == ("forbidden", 88), caught.value.message
    return caught.value.message


@pytest.fixture(scope="module")
def place():
    with RuledPlace() as found:
        found.start_daemon()
        found.owner.start("a")
        yield found


def test_who_may_not_come_hears_the_rule_and_that_is_all(place):
    with being(place.outsider), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(place.runtime / "control"))
        answer = json.loads(client.makefile().readline())
        assert answer["id"] is None and answer["error"]["data"] == {"error": "forbidden", "status": 88}
        assert f"[access] of {place.rules}" in answer["error"]["message"] and str(ALLOWED) in answer["error"]["message"]
    for words in (["list"], ["status", "a"], ["stop", "a"]):
        done = place.outsider.ctl(*words, check=False)
        assert done.returncode in (87, 88), done
    done = place.outsider.start("x", check=False)
    assert done.returncode == 88 and f"[access] of {place.rules}" in done.stderr, done.stderr


def test_another_user_sees_what_everybody_may_see_and_no_more(place):
    with place.control_of(place.owner) as control:
        [whole] = control.call("list")["runs"]
        assert {"command", "dir", "message", "pid"} <= set(whole)
    with place.control_of(place.other) as control:
        [listed] = control.call("list")["runs"]
        assert listed.pop("told_age_ms") < 20000
        status = control.call("status", run="a")["run"]
        waited = control.call("wait", run="a", **{"for": "armed", "timeout_ms": 1000})["run"]
        for run in listed, status, waited:
            assert set(run) == SEEN_BY_OTHERS, sorted(set(run) ^ SEEN_BY_OTHERS)
            assert "path" not in run["space"] and run["space"]["free_bytes"] > 0
            assert (run["name"], run["uid"], run["state"]) == ("a", place.owner.uid, "armed")
            assert str(place.folder) not in json.dumps(run)
        for method, more in CONTROL.items():
            message = refused(control.call, method, run="a", **more)
            assert message.startswith(f"{method} of run a needs its owner uid {place.owner.uid}, root or a member of {ADMINS}")
        # of his own he has none
        with pytest.raises(ControlError) as caught:
            control.call("status")
        assert caught.value.name == "no-run" and "of yours" in caught.value.message
    assert place.run("a")["state"] == "armed"
    assert place.other.ctl("stop", "a", check=False).returncode == 88
    assert place.other.ctl("list").returncode == 0


def test_an_admin_sees_and_controls_all(place):
    with place.control_of(place.admin) as control:
        run = control.call("status")["run"]  # the only live one of all
        assert run["name"] == "a" and {"command", "dir", "message"} <= set(run)
        assert "fired up" in control.call("logs", run="a")["text"]
        control.call("dump", run="a", experiment="of-admin")
        control.call("pause", run="a")
        texts = [event["text"] for event in control.call("events", run="a")["events"]]
        assert f"dump of-admin asked for by uid {place.admin.uid}" in texts
        # what is refused is told as that, with the reason
        control.call("dump", run="a", experiment="first")
        why = {}
        for experiment in "second", None:
            with pytest.raises(ControlError) as caught:
                if experiment is None:
                    control.call("pause", run="a")
                    control.call("pause", run="a")
                else:
                    control.call("dump", run="a", experiment=experiment)
            why[experiment] = caught.value.message
        texts = [event["text"] for event in control.call("events", run="a")["events"]]
        at = texts.index(f"dump second asked for by uid {place.admin.uid}")
        assert texts[at + 1] == f"dump second refused: {why['second']}"
        assert texts[-2:] == [f"pause asked for by uid {place.admin.uid}", f"pause refused: {why[None]}"]


@contextlib.contextmanager
def wrapper(place, person, name):
    """kldumpctl run, with a runtime folder of the person's own."""
    folder = person.folder / f"r-{name}"
    folder.mkdir(mode=0o700)
    os.chown(folder, person.uid, person.gid)
    (folder / "register").symlink_to(place.runtime / "register")  # this daemon is not at its usual place
    process = person.popen(place.programs / "kldumpctl", "run", "--name", name, "--dir", person.folder / f"d-{name}", "--floor", "64M",
                           "--", *place.command(), environment=person.environment(KLDUMP_RUNTIME_DIR=str(folder)))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_admin_and_root_stop_the_wrapper_run_of_another(place):
    """It is nobody's but its user's: kldumpd knows it from the register alone, and passes status and stop on."""
    def as_root(*arguments, check=True):
        return place.ctl(*arguments, check=check)

    for name, ctl, who in (("w1", place.admin.ctl, f"uid {place.admin.uid}"), ("w2", as_root, "root (uid 0)")):
        with wrapper(place, place.other, name) as process:
            wait_for(lambda: ctl("status", name, check=False).stdout.count("armed") > 0, what="the run")
            shown = ctl("status", name).stdout
            assert f"by uid {place.other.uid}" in shown and f"pid {process.pid}" not in shown
            assert f"folder {place.other.folder}/d-{name}" in shown, "all of it, not what everybody sees"
            refusal = place.owner.ctl("stop", name, check=False)
            assert refusal.returncode == 88 and f"needs its owner uid {place.other.uid}, root or a member of {ADMINS}" in refusal.stderr
            assert ctl("stop", name).stdout.startswith(f"{name}: stopped: asked for by ")
            out, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0 and f"stop asked for by {who}" in out + err
            wait_for(lambda: name not in ctl("list").stdout, what="its end in the list")


def test_ones_own_run_comes_first_and_root_is_asked_which(place):
    """A wrapper's run may have the name of another user's."""
    with wrapper(place, place.other, "a") as process:
        with place.control_of(place.other) as control, place.control_of(place.owner) as owner, place.control() as root:
            def own():
                runs = [run for run in control.call("list")["runs"] if run["uid"] == place.other.uid]
                return [run for run in runs if run["state"] == "armed"]

            [mine] = wait_for(own, what="the wrapper's run in the list")
            assert control.call("status", run="a")["run"]["guard_pid"] == mine["guard_pid"] == process.pid
            assert owner.call("status", run="a")["run"]["uid"] == place.owner.uid
            assert control.call("status")["run"]["uid"] == place.other.uid
            with pytest.raises(ControlError) as caught:
                root.call("status", run="a")
            message = caught.value.message
            assert caught.value.name == "usage" and f"uid {place.owner.uid}" in message and f"uid {place.other.uid}" in message
            assert control.call("stop", run="a", now=True)["state"] in ("stopping", "ended")
            process.communicate(timeout=PATIENCE_S)
            wait_for(lambda: not own(), what="its end in the list")
            assert root.call("status", run="a")["run"]["uid"] == place.owner.uid
            ended = control.call("status", run="a")["run"]  # his own, still: not the other one
            assert (ended["uid"], ended["state"], ended["outcome"]) == (place.other.uid, "ended", "stopped")
    assert place.run("a")["state"] == "armed"


LIAR = """
import json, os, socket, sys
register, folder = sys.argv[1:]
control = socket.socket(socket.AF_UNIX)
control.bind(folder + "/control")
control.listen()
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(register)
lie = {"name": "a", "owner": "root", "uid": 0, "state": "armed"}
socket.send_fds(link, [json.dumps({"version": 1, "name": "liar", "run": lie}).encode()],
                [os.open(folder, os.O_PATH | os.O_DIRECTORY), os.open(folder + "/control", os.O_PATH)])
print(link.recv(65536).decode(), flush=True)
while True:
    client = control.accept()[0]
    for line in client.makefile():
        answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {"version": 1, "run": lie}}
        client.sendall(json.dumps(answer).encode() + bytes([10]))
"""


def test_whose_a_run_is_says_the_kernel_and_no_guard(place):
    """A guard that calls itself root's, and another run; and what its user has written into a record."""
    person = place.other
    process = person.popen("/usr/bin/python3", "-B", "-c", LIAR, place.runtime / "register", person.folder)
    try:
        assert json.loads(process.stdout.readline()) == {"ok": True}
        for who in person, place.owner, place.admin:
            with place.control_of(who) as control:
                [listed] = [run for run in control.call("list")["runs"] if run["name"] == "liar"]
                for run in listed, control.call("status", run="liar")["run"]:
                    assert (run["name"], run["owner"], run["uid"]) == ("liar", str(person.uid), person.uid)
    finally:
        process.kill()
        process.communicate()
    person.start("told")
    person.ctl("stop", "told")
    record = place.runtime / "runs/told/record.json"
    content = json.loads(record.read_text())
    content["run"].update(owner="root", uid=0)
    record.write_text(json.dumps(content))
    for who in person, place.owner:
        with place.control_of(who) as control:
            run = control.call("status", run="told")["run"]
            assert (run["owner"], run["uid"], run["state"]) == (str(person.uid), person.uid, "ended")


GOING = """
import json, os, socket, sys
register, folder, last = sys.argv[1:]
control = socket.socket(socket.AF_UNIX)
control.bind(folder + "/control-" + last)
control.listen()
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(register)
run, asked = {"name": "going", "state": "armed", "outcome": None, "exit_status": None}, []
socket.send_fds(link, [json.dumps({"version": 1, "name": "going", "run": run}).encode()],
                [os.open(folder, os.O_PATH | os.O_DIRECTORY), os.open(folder + "/control-" + last, os.O_PATH)])
print(link.recv(65536).decode(), flush=True)
while True:
    client = control.accept()[0]
    for line in client.makefile():
        request = json.loads(line)
        asked.append(request["method"])
        if asked.count(last) == (2 if last == "status" else 1):
            run.update(state="ended", outcome="stopped", exit_status=0)
            link.send(json.dumps({"run": run}).encode())
            os._exit(0)
        if request["method"] == "stop":
            run["state"] = "stopping"
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"version": 1, "run": run, "state": run["state"]}}
        client.sendall(json.dumps(answer).encode() + bytes([10]))
"""


@pytest.mark.parametrize("last", ["status", "stop", "events"])
def test_a_wrapper_run_that_goes_while_a_stop_asks_it_is_stopped(place, last):
    """Before it is asked to, before it answers, afterwards. kldumpd has its last words, and no events: they are with its owner."""
    person = place.other
    process = person.popen("/usr/bin/python3", "-B", "-c", GOING, place.runtime / "register", person.folder, last)
    try:
        assert json.loads(process.stdout.readline()) == {"ok": True}
        assert place.admin.ctl("stop", "going").stdout.startswith("going: stopped")
    finally:
        process.kill()
        process.communicate()


def test_a_program_of_another_user_in_the_place_of_a_guard_is_not_asked(place):
    """The owner of a run's folder may put there what he likes: a link to another's socket, or one of somebody else's."""
    place.owner.start("b")
    with place.control_of(place.owner) as control:
        guard = control.call("status", run="b")["run"]["guard_pid"]
        path = place.runtime / "runs/b/control"
        ready = path.with_name("ready")  # moved into its place: a guard makes its socket again as soon as nothing is there
        ready.symlink_to(place.runtime / "control")
        ready.rename(path)
        for method in "status", "stop":
            with pytest.raises(ControlError) as caught:
                control.call(method, run="b")
            assert "control is not a socket" in caught.value.message, caught.value.message
        with socket.socket(socket.AF_UNIX) as impostor:
            impostor.bind(str(ready))
            impostor.listen()
            ready.rename(path)
            with pytest.raises(ControlError) as caught:
                control.call("status", run="b")
            assert caught.value.name == "forbidden"
            assert f"a program of uid 0 (pid {os.getpid()}) listens on its socket" in caught.value.message
            with being(place.owner):  # his own uid, and not the guard's process
                with socket.socket(socket.AF_UNIX) as other:
                    other.bind(str(ready))
                    other.listen()
                    ready.rename(path)
                    with pytest.raises(ControlError) as caught:
                        control.call("status", run="b")
                    assert caught.value.name == "forbidden" and f"(pid {os.getpid()})" in caught.value.message
                    path.unlink()
        wait_for(path.exists, 5, "the guard's own socket")
        assert control.call("stop", run="b", now=True)["state"] in ("stopping", "ended")
    wait_for(lambda: not process_is_alive(guard), what="the end of the guard")


def test_one_user_cannot_take_all_connections_to_kldumpd_or_to_a_guard(place):
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(place.control_of(place.other)) for _ in range(3)]
        for client in many[:2]:
            for _ in range(64):
                client.send("wait", run="a", uid=place.owner.uid, **{"for": "ended", "timeout_ms": 60000})
        with pytest.raises(ControlError) as caught:
            many[2].call("status", run="a", uid=place.owner.uid)
        assert caught.value.name == "busy" and "128 requests of user" in caught.value.message
        with place.control_of(place.owner) as owner:
            assert owner.call("status", run="a")["run"]["name"] == "a"
        while True:
            try:
                many.append(stack.enter_context(place.control_of(place.other)))
            except AssertionError as error:  # an error about the connection has no id
                assert "the limit for one user" in str(error)
                break
        assert len(many) == 256
        with place.control_of(place.owner) as owner, place.control() as root:
            assert owner.call("status", run="a")["run"]["name"] == root.call("status", run="a")["run"]["name"]

    def comes():
        try:
            place.control_of(place.other).close()
        except AssertionError:
            return False
        return True

    wait_for(comes, what="the end of those connections")


def test_strangers_together_cannot_keep_the_owner_from_his_run(place):
    """Each has his own limit; all have one for a run that is not theirs, and where connections run out, who has most gives way."""
    strangers = [place.person(48110 + number, groups=[ALLOWED]) for number in range(5)]
    with contextlib.ExitStack() as stack:
        for stranger in strangers[:4]:
            for _ in range(2):
                client = stack.enter_context(place.control_of(stranger))
                for _ in range(64):
                    client.send("wait", run="a", **{"for": "ended", "timeout_ms": 60000})

        def refusal():
            with pytest.raises(ControlError) as caught, place.control_of(strangers[4]) as control:
                control.call("status", run="a")
            return caught.value.name == "busy" and caught.value.message

        assert wait_for(refusal, what="a refusal") == "256 requests of users whose run it is not wait for the guard of run a already"
        held = []
        for stranger in strangers[:4]:  # all that are not root's
            with contextlib.suppress(AssertionError):
                while True:
                    held.append(stack.enter_context(place.control_of(stranger)))
        assert len(held) > 900
        with place.control_of(place.owner) as owner:
            assert owner.call("status", run="a")["run"]["name"] == "a"
            assert owner.call("wait", run="a", **{"for": "armed", "timeout_ms": 1000})["run"]["state"] == "armed"
            assert owner.call("events", run="a")["events"]
            more = [stack.enter_context(place.control_of(place.owner)) for _ in range(50)]
            for client in more:
                client.send("wait", run="a", **{"for": "dumping", "timeout_ms": 60000})
            owner.call("dump", run="a", experiment="in-a-crowd")
            for client in more:
                assert client.receive()["result"]["run"]["state"] == "dumping"
            owner.call("pause", run="a")


def test_a_reload_holds_for_open_connections(place):
    with place.control_of(place.other) as control:
        assert control.call("list")["runs"]
        place.rules.write_text(RULES.replace(str(ALLOWED), "48998"))
        try:
            place.daemon.send_signal(signal.SIGHUP)
            wait_for(lambda: "access.groups" in place.daemon.stderr.readline().decode(), what="the difference")
            assert f"[access] of {place.rules}" in refused(control.call, "list")
        finally:
            place.rules.write_text(RULES)
            place.daemon.send_signal(signal.SIGHUP)
            wait_for(lambda: "access.groups" in place.daemon.stderr.readline().decode(), what="the difference")
        assert control.call("list")["runs"]


def test_an_admin_may_stop_and_the_owner_learns_who_it_was(place):
    """The last one: it ends run `a`."""
    with place.control_of(place.admin) as control, place.control_of(place.owner) as owner:
        control.call("stop", run="a")
        assert owner.call("wait", run="a", **{"for": "ended", "timeout_ms": 30000})["run"]["message"] == \
            f"asked for by uid {place.admin.uid}"
        texts = [event["text"] for event in owner.call("events", run="a")["events"]]
        assert any(text.startswith(f"stop asked for by uid {place.admin.uid}") for text in texts)
        wait_for(lambda: owner.call("status", run="a")["run"]["state"] == "ended", what="the end")
    with place.control_of(place.other) as control:  # of the record, too
        wait_for(lambda: set(control.call("status", run="a", uid=place.owner.uid)["run"]) == SEEN_BY_OTHERS)
        assert refused(control.call, "logs", run="a", uid=place.owner.uid)
    with place.control_of(place.owner) as owner:
        assert "fired up" in owner.call("logs", run="a")["text"]
