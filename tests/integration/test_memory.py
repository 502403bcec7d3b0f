"""What one user can make root's kldumpd hold in memory, whatever he sends, and what it is to the others when he fills the tmpfs
of its runtime folder. Root only."""
import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kldump_programs import PATIENCE_S, Control, wait_for
from many_users import SharedPlace, resident_kib
from test_access import being
from test_socket import FRAME_MAX, HELLO, Raw, request

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to be several users")

USER_MIB = 24  # of begun lines, requests and answers: CONTROL_USER_BYTES
GUARDS_MIB = 12  # of what guards said last, and as much of begun answers
MARGIN_MIB = 6

# Calls in at the register as the guard of NAME, COUNT times, with a run of so many VALUES; then sends PIECE to each client of its
# control socket and reads nothing. Prints what came back.
GUARD = r"""
import json, os, socket, sys, threading
register, name, count, values, piece = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
control = socket.socket(socket.AF_UNIX)
control.bind(name)
control.listen(512)
keep, answers = [], []
for i in range(count):
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(register)
    descriptors = [os.open(".", os.O_PATH | os.O_DIRECTORY), os.open(name, os.O_PATH)]
    run = {"state": "armed", "uid": os.getuid(), "x": [0] * values}
    socket.send_fds(link, [json.dumps({"version": 1, "name": name if i == 0 else f"{name}-{i}", "run": run}, separators=(",", ":")).encode()], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    answers.append(json.loads(link.recv(65536) or "{}"))
    keep.append(link)
print(json.dumps(answers), flush=True)
def flood(client):
    try:
        client.sendall(b'{"' + bytes(0x61 for _ in range(piece)))
    except OSError:
        pass
while True:
    client = control.accept()[0]
    keep.append(client)
    threading.Thread(target=flood, args=[client], daemon=True).start()
"""


class MemoryPlace(SharedPlace):
    def __init__(self):
        super().__init__()
        self.start_daemon()
        self.user, self.other = self.person(48701), self.person(48702)
        self.before_kib = self.resident_kib()

    def resident_kib(self):
        return resident_kib(self.daemon.pid)

    def holds_at_most(self, mib):
        time.sleep(0.3)  # a moment in which more would come
        assert self.resident_kib() - self.before_kib < (mib + MARGIN_MIB) * 1024

    def raw(self, person):
        with being(person):
            return Raw(self.runtime / "control")

    @contextlib.contextmanager
    def guard(self, name, count=1, values=0, piece=0):
        process = self.user.popen("/usr/bin/python3", "-c", GUARD, self.runtime / "register", name, count, values, piece)
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()
            process.communicate()

    def serves_others(self):
        with self.raw(self.other) as client:
            began = time.monotonic()
            client.send(request("list"))
            assert "result" in client.answer()
            assert time.monotonic() - began < 2


@pytest.fixture
def place():
    with MemoryPlace() as found:
        yield found


def test_500_clients_with_a_begun_frame_of_1_mib(place):
    clients, closed = [], 0
    for _ in range(500):
        with being(place.user):
            client = Raw(place.runtime / "control", hello=False)
        clients.append(client)
        with contextlib.suppress(OSError):
            client.send(HELLO + b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (FRAME_MAX - 1000))
    place.holds_at_most(USER_MIB)
    place.serves_others()
    for client in clients:
        client.socket.settimeout(0.01)
        with contextlib.suppress(TimeoutError):
            answers = [client.answer(), client.answer()]
            closed += any(answer is None or answer.get("error", {}).get("data", {}).get("error") == "busy" for answer in answers)
        client.close()
    assert 500 - USER_MIB <= closed < 500
    place.serves_others()
    wait_for(lambda: place.resident_kib() - place.before_kib < MARGIN_MIB * 1024, what="the memory of clients that have gone")


def test_256_guards_that_say_as_much_as_they_may(place):
    with place.guard("g", 256, 4000) as answers:
        refused = [answer for answer in answers if not answer.get("ok")]
        assert {answer["error"] for answer in refused} == {"too-large"} and 1 <= len(refused) < 256
        assert "12 MiB, the limit for one user" in refused[0]["message"] and "without its seals" in refused[0]["message"]
        place.holds_at_most(GUARDS_MIB)
        place.serves_others()
    with place.guard("h", 1, 5000) as [answer]:
        assert answer["error"] == "protocol" and "more than 4096 values" in answer["message"]


def test_guards_whose_answers_never_end(place):
    """Asked 128 times by their own user, and once by another, who is told why not."""
    with place.guard("g", piece=FRAME_MAX - 100), contextlib.ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(place.raw(place.user))
            client.send(b"".join(request("wait", number, run="g", **{"for": "armed", "timeout_ms": 60000}) for number in range(1, 65)))
        place.holds_at_most(GUARDS_MIB)
        client.socket.settimeout(PATIENCE_S)
        error = client.answer()["error"]
        assert error["data"]["error"] == "too-large" and "12 MiB, the limit for one user" in error["message"], error
        place.serves_others()


def test_a_record_that_is_full_of_values_is_shown_as_far_as_it_is_sensible(place):
    place.user.start("a")
    record = place.runtime / "runs/a/record.json"
    guard = place.run("a")["guard_pid"]
    place.user.ctl("stop", "a", "--now")
    wait_for(lambda: not Path(f"/proc/{guard}").exists(), what="the end of the guard")
    whole = json.loads(record.read_text())

    def listed(x):
        whole["run"]["x"] = x
        record.write_text(json.dumps(whole))
        with place.raw(place.user) as client:
            client.send(request("list"))
            [run] = client.answer()["result"]["runs"]
        return run

    assert listed([])["x"] == []
    run = listed([0] * 10000)  # not kept whole
    assert "x" not in run and (run["name"], run["state"], run["outcome"]) == ("a", "ended", "stopped")
    run = listed([0] * 20000)  # not even read
    assert run["state"] == "unknown" and "more than 16384 values" in run["message"]
    place.holds_at_most(0)


FILL = """
import sys
with open(sys.argv[1], "ab", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def small_place():
    """With its runtime folder on a tmpfs of its own."""
    with SharedPlace() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M,mode=0755", "kldump-test", place.runtime], check=True)
        try:
            place.start_daemon()
            yield place
        finally:
            place.ctl("stop", "--all", "--now", check=False)  # some have no record that would name their guard
            place.end_runs()
            subprocess.run(["umount", "-l", place.runtime], check=True)


def test_a_user_who_fills_the_runtime_folder_ends_no_run_and_no_daemon(small_place):
    """He can: the folder of his run is his. The others' runs go on, begin, are controlled and told."""
    place = small_place
    user, other = place.person(48701), place.person(48702)
    user.start("a")
    other.start("b")
    junk = place.runtime / "runs/a/junk"
    assert user.popen("/usr/bin/python3", "-c", FILL, junk).communicate(timeout=PATIENCE_S)[0] == "No space left on device\n"
    with being(other), Control(place.runtime / "control") as control:
        assert control.call("dump", run="b", experiment="e")["experiment"] == "e"
        assert control.call("status", run="b")["run"]["state"] == "dumping"
        control.call("pause", run="b")
    other.start("c")  # what is written of it is kept in mind
    assert place.run("c")["state"] == "armed"
    other.ctl("stop", "b", "--now")
    states = {run["name"]: (run["state"], run["outcome"]) for run in map(json.loads, other.ctl("list", "--json").stdout.splitlines())
              if "name" in run}
    assert states == {"a": ("armed", None), "b": ("ended", "stopped"), "c": ("armed", None)}
    assert place.daemon.poll() is None
    junk.unlink()
    other.ctl("list")
    assert json.loads((place.runtime / "owned/c.json").read_text())["uid"] == other.uid  # written at the first chance


def make_ended_runs(place, count):
    """As many as cost some milliseconds for each list."""
    for number in range(count):
        name, uid = f"r{number}", 48800 + number % 10
        folder = place.runtime / "runs" / name
        folder.mkdir(mode=0o700)
        record = {"schema": "kldump.record/1", "run": {"name": name, "state": "ended", "outcome": "stopped", "exit_status": 0}}
        (folder / "record.json").write_text(json.dumps(record))
        for path in folder / "record.json", folder:
            os.chown(path, uid, uid)


def test_lists_of_one_user_do_not_keep_the_others_waiting(place):
    """Each user's first comes before anybody's second; those that wait cost next to nothing."""
    make_ended_runs(place, 300)
    place.serves_others()
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(place.raw(place.user)) for _ in range(60)]
        one = stack.enter_context(place.raw(place.other))
        place.daemon.send_signal(signal.SIGSTOP)  # so that all of them are there before the first is answered
        for client in many:
            client.send(b"".join(request("list", number) for number in range(1, 65)))
        one.send(request("list"))
        began = time.monotonic()
        place.daemon.send_signal(signal.SIGCONT)
        assert len(one.answer()["result"]["runs"]) == 300
        assert time.monotonic() - began < 2  # all together take many times that
        place.holds_at_most(USER_MIB)
