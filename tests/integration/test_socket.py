"""The control sockets of kldumpd and of a guard beside clients that are slow, broken, many, or hostile."""
import json
import os
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from kldump_programs import BUILD, PATIENCE_S, Place, connected, process_is_alive, wait_for

FRAME_MAX = 1024 * 1024
HELLO = b'{"jsonrpc":"2.0","id":0,"method":"hello","params":{"version":1}}\n'
AT_ONCE_S = 2  # for an answer that has nothing to wait for, on a busy machine


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, path, hello=True):
        self.socket = connected(path)
        self.stream = self.socket.makefile("rb")
        if hello:
            self.send(HELLO)
            assert self.answer()["result"]["version"] == 1

    def send(self, data):
        self.socket.sendall(data)

    def answer(self):
        """None at the end."""
        try:
            line = self.stream.readline()
        except ConnectionResetError:
            return None
        assert line == b"" or line.endswith(b"\n")
        return json.loads(line) if line else None

    def close(self):
        self.stream.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()


def request(method, number=1, **parameters):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}).encode() + b"\n"


class Target:
    """Whom a test speaks to: where, with which method that answers at once, and which process."""

    def __init__(self, path, pid, method):
        self.path, self.pid, self.method = path, pid, method

    def raw(self, hello=True):
        return Raw(self.path, hello)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_kib(self):
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def serves(self):
        """Somebody else is served, and quickly."""
        began = time.monotonic()
        with self.raw() as client:
            client.send(request(self.method))
            assert "result" in client.answer()
        assert time.monotonic() - began < AT_ONCE_S
        assert process_is_alive(self.pid)


def few_descriptors():
    """As a login has it; kldumpd takes what it may have."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.fixture(scope="module")
def places():
    with Place() as place:
        place.start_daemon(preexec_fn=few_descriptors)
        with place.control() as control:
            control.call("start", **place.plan("a"))
            guard = control.call("wait", run="a", **{"for": "armed", "timeout_ms": 30000})["run"]["guard_pid"]
        yield {"daemon": Target(place.runtime / "control", place.daemon.pid, "list"),
               "guard": Target(place.runtime / "runs/a/control", guard, "status")}


@pytest.fixture(params=["daemon", "guard"])
def target(places, request):
    found = places[request.param]
    before = found.descriptors()
    yield found
    # a guard may be speaking to its server just now
    wait_for(lambda: found.descriptors() <= before + 4 * (request.param == "guard"), what="the descriptors of clients that have gone")
    found.serves()


def nested(depth):
    return b'{"jsonrpc":"2.0","id":1,"method":"wait","params":{"for":' + b"[" * depth + b"]" * depth + b',"timeout_ms":0}}\n'


BROKEN = {
    "not utf-8": b'{"jsonrpc":"2.0","id":1,"method":"li\xffst"}\n',
    "overlong utf-8": b'{"jsonrpc":"2.0","id":"\xc0\xaf","method":"list"}\n',
    "lone surrogate": b'{"jsonrpc":"2.0","id":"\\ud800","method":"list"}\n',
    "a zero byte": b'{"jsonrpc":"2.0","id":1,\x00"method":"list"}\n',
    "33 deep": nested(31),  # and the two objects around
    "100000 deep": nested(100000),
    "100000 open": b"[" * 100000 + b"\n",
    "twice the same key": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"list"}\n',
    "twice in params": b'{"jsonrpc":"2.0","id":1,"method":"stop","params":{"run":"b","run":"a"}}\n',
    "no json": b"GET / HTTP/1.1\r\n",
    "half": b'{"jsonrpc":"2.0","id":1,"method":"list"\n',
    "more": b'{"jsonrpc":"2.0","id":1,"method":"list"} {}\n',
    "a long number": b'{"jsonrpc":"2.0","id":' + b"1" * 100000 + b',"method":"list"}\n',
    "an empty line": b"\n",
}


def test_broken_requests_are_answered_and_cost_nothing_else(target):
    with target.raw() as client:
        for what, line in BROKEN.items():
            client.send(line)
            error = client.answer()["error"]
            assert error["code"] == -32700 and error["data"]["error"] == "protocol", (what, error)
            client.send(request(target.method, 7))
            assert client.answer()["id"] == 7, what
    for what, line in BROKEN.items():  # in place of hello it ends the connection
        with target.raw(hello=False) as client:
            client.send(line)
            assert client.answer()["error"]["data"]["error"] == "protocol", what
            assert client.answer() is None, what


def test_a_request_of_many_tiny_values_is_refused_before_it_costs_memory(target):
    """A byte of text can be a hundred bytes of memory."""
    for one in b"[],", b'"",', b"0,":
        many = one * 4000  # and few enough
        with target.raw() as client:
            client.send(b'{"jsonrpc":"2.0","id":1,"method":"wait","params":{"for":[' + many + b'0],"timeout_ms":0}}\n')
            assert client.answer()["error"]["data"]["error"] != "too-large"
            client.send(b'{"jsonrpc":"2.0","id":1,"method":"wait","params":{"for":[' + many * 20 + b'0],"timeout_ms":0}}\n')
            error = client.answer()["error"]
            assert error["data"]["error"] == "too-large" and "more than 4096 values" in error["message"], error
            client.send(request(target.method, 7))
            assert client.answer()["id"] == 7


SO_PASSRIGHTS = 83  # Linux 6.16; Python does not know it yet


def test_no_descriptor_reaches_a_control_socket(target):
    """Its close could take for ever, and would be done where it is read."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 1)
        except OSError:
            pytest.skip("missing: SO_PASSRIGHTS, Linux 6.16")
    with target.raw() as client:
        with pytest.raises(PermissionError):
            socket.send_fds(client.socket, [request(target.method)], [0])
        client.send(request(target.method, 4))
        assert client.answer()["id"] == 4


def test_depth_32_is_read(target):
    with target.raw() as client:
        client.send(nested(30))
        assert client.answer()["error"]["code"] != -32700


def test_a_frame_in_parts_and_one_byte_at_a_time(target):
    line = request(target.method, 5)
    with target.raw(hello=False) as client:
        for byte in HELLO + line:
            client.send(bytes([byte]))
        assert "result" in client.answer()
        assert client.answer()["id"] == 5
        for cut in range(1, len(line)):
            client.send(line[:cut])
            client.send(line[cut:])
            assert client.answer()["id"] == 5


def test_a_frame_of_1_mib_and_one_byte_more(target):
    line = request(target.method, 3)[:-1]
    with target.raw() as client:
        client.send(line + b" " * (FRAME_MAX - len(line)) + b"\n")
        assert client.answer()["id"] == 3
        client.send(line + b" " * (FRAME_MAX - len(line) + 1))  # found out before its end has come
        assert client.answer()["error"]["data"]["error"] == "too-large"
        assert client.answer() is None


def test_pipelined_requests_are_all_answered_by_id(target):
    numbers = range(1, 301)
    with target.raw(hello=False) as client:
        client.send(HELLO + b"".join(request(target.method, number) for number in numbers))
        answers = [client.answer() for _ in range(301)]
        assert answers[0]["id"] == 0 and sorted(answer["id"] for answer in answers) == [0, *numbers]
        busy = [answer for answer in answers if "error" in answer]  # more than 64 that were not answered yet
        assert all(answer["error"]["data"]["error"] == "busy" for answer in busy) and len(busy) <= 300 - 64


def test_relayed_answers_may_come_in_another_order(places):
    with places["daemon"].raw() as client:
        client.send(request("wait", 1, run="a", **{"for": "dumping", "timeout_ms": 60000}) + request("list", 2) +
                    request("status", 3, run="a") + request("status", 4, run="nix"))
        assert sorted(client.answer()["id"] for _ in range(3)) == [2, 3, 4]
        with places["daemon"].raw() as other:
            other.send(request("dump", 5, run="a", experiment="e"))
            assert "result" in other.answer()
            answer = client.answer()
            assert answer["id"] == 1 and answer["result"]["run"]["state"] == "dumping"
            other.send(request("pause", 6, run="a"))
            assert "result" in other.answer()


def test_clients_that_do_not_read_and_go(target):
    """Reported for bpfcountd: the answer to a client that had gone ended the daemon by SIGPIPE."""
    for number in range(1000):
        with target.raw(hello=False) as client:
            client.send(HELLO + request(target.method) + (request("nix") if number % 2 else b'{"half'))
            if number % 10 == 0:
                client.socket.recv(10)  # goes in the middle of an answer


def test_500_idle_clients_keep_nobody_out(target):
    idle = [target.raw() for _ in range(400)] + [target.raw(hello=False) for _ in range(100)]
    target.serves()
    for client in idle:
        client.close()


def test_who_does_not_say_hello_is_sent_away():
    with Place() as place:
        place.start_daemon()
        began = time.monotonic()
        with Raw(place.runtime / "control", hello=False) as silent, Raw(place.runtime / "control", hello=False) as slow:
            slow.send(HELLO[:20])
            for client in silent, slow:
                assert client.answer()["error"]["data"]["error"] == "timeout"
                assert client.answer() is None
        assert 9 < time.monotonic() - began < 15


def test_a_client_that_does_not_read_is_closed_and_memory_stays_bounded():
    with Place() as place:
        place.start_daemon()
        for number in range(16):
            folder = place.runtime / f"runs/r{number}"
            folder.mkdir(mode=0o700)
            run = {"name": folder.name, "state": "ended", "outcome": "stopped", "command": ["x" * 60000]}
            (folder / "record.json").write_text(json.dumps({"schema": "kldump.record/1", "run": run}))
        daemon = Target(place.runtime / "control", place.daemon.pid, "list")
        before = daemon.resident_kib()
        slow = [daemon.raw() for _ in range(4)]
        for client in slow:
            client.socket.settimeout(0.2)
            try:
                for _ in range(200):
                    client.send(request("list"))
            except OSError:
                pass  # it was closed, or does not read us either
        wait_for(lambda: all(closed(client) for client in slow), what="the end of the slow ones")
        daemon.serves()
        assert daemon.resident_kib() - before < 64 * 1024
        for client in slow:
            client.close()


def closed(client):
    """The other end has closed, whatever is still to be read."""
    try:
        return client.socket.send(b"\n") == 0
    except BlockingIOError:
        return False
    except TimeoutError:
        return False
    except OSError:
        return True


# ---- the socket file and its folder ----

def ends_with(place, status, words, environment=None):
    done = subprocess.run([BUILD / "kldumpd"], env={**place.environment, **(environment or {})}, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == status and words in done.stderr, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_path_that_is_too_long_is_refused_and_not_cut():
    with Place() as place:
        long = place.folder / ("x" * 100)
        long.mkdir(mode=0o700)
        ends_with(place, 2, "characters; at most", {"KLDUMP_RUNTIME_DIR": str(long)})
        assert not list(long.iterdir()) and not [path for path in place.folder.iterdir() if path.is_socket()]


@pytest.mark.parametrize("wrong", ["owner", "group writes", "others write", "link", "file"])
def test_a_folder_that_is_not_safe_is_refused_and_left_as_it_is(wrong):
    with Place() as place:
        if wrong == "owner":
            if os.geteuid() != 0:
                pytest.skip("missing: root, to make a folder somebody else's")
            os.chown(place.runtime, 65534, 65534)
        elif wrong.endswith("write") or wrong.endswith("writes"):
            place.runtime.chmod(0o775 if wrong.startswith("group") else 0o757)
        else:
            place.runtime.rmdir()
            (place.folder / "elsewhere").mkdir(mode=0o700)
            place.runtime.symlink_to(place.folder / "elsewhere") if wrong == "link" else place.runtime.write_text("")
        ends_with(place, 88, str(place.runtime))
        if wrong != "file":
            assert not list(place.runtime.iterdir())


def test_what_lies_at_the_sockets_place():
    with Place() as place:
        path = place.runtime / "control"
        path.write_text("mine")
        ends_with(place, 88, "is not a socket")
        assert path.read_text() == "mine"
        path.unlink()
        with socket.socket(socket.AF_UNIX) as alive:
            alive.bind(str(path))
            alive.listen()
            ends_with(place, 88, "another program is answering")
            assert path.is_socket()
        place.start_daemon()  # a dead one is replaced
        with place.control() as control:
            assert control.call("list")["runs"] == []
        inode = path.stat().st_ino
        ends_with(place, 88, "another kldumpd serves")  # and its end leaves the first one's socket alone
        assert path.stat().st_ino == inode
        with place.control() as control:
            assert control.call("list")["runs"] == []
        assert place.kill_daemon(signal.SIGTERM) == 0
        assert not path.exists()


def test_a_socket_that_was_removed_is_made_again():
    """Reported for tmux: a cleaner of temporary folders took the socket after some days."""
    with Place() as place:
        place.start_daemon()
        path = place.runtime / "control"
        with place.control() as before:
            for _ in range(3):
                began = time.monotonic()
                path.unlink()
                wait_for(path.exists, 5, "the new socket")
                assert time.monotonic() - began < AT_ONCE_S
                assert "it was made again" in place.daemon.stderr.readline().decode()
                with place.control() as control:
                    assert control.call("list")["runs"] == []
            assert before.call("list")["runs"] == []
        place.runtime.chmod(0o777)  # no place for a socket now
        path.unlink()
        assert "cannot be made again" in place.daemon.stderr.readline().decode()
        place.runtime.chmod(0o700)
        place.daemon.send_signal(signal.SIGUSR1)
        wait_for(path.exists, 5, "the new socket")
        done = place.ctl("list")
        assert done.returncode == 0


def test_a_guards_socket_that_was_removed_is_made_again():
    with Place() as place:
        place.start_daemon()
        with place.control() as control:
            control.call("start", **place.plan("a"))
            path = place.runtime / "runs/a/control"
            path.unlink()
            wait_for(path.exists, 5, "the new socket")
            assert control.call("status", run="a")["run"]["name"] == "a"
            texts = [event["text"] for event in control.call("events", run="a")["events"]]
            assert any("control socket was removed" in text for text in texts)
