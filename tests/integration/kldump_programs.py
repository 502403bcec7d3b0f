"""The programs under test, started as a person or a service manager would. Standard library only.

KLDUMP_BUILD_DIR or KLDUMP_BUILD names the build folder (default: the current one). Every test has a runtime folder of
its own.
"""
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from ports import free_port

BUILD = Path(os.environ.get("KLDUMP_BUILD_DIR") or os.environ.get("KLDUMP_BUILD") or ".").resolve()
STANDIN = Path(os.environ.get("KLDUMP_STANDIN", BUILD / "kldump-standin")).resolve()
PATIENCE_S = 30
FAST = {"KLDUMP_STANDIN_LOAD_MS": "60", "KLDUMP_STANDIN_START_MS": "10", "KLDUMP_STANDIN_TERM_MS": "50",
        "KLDUMP_STANDIN_CRASH_MS": "50"}


def wait_for(condition, limit=PATIENCE_S, what="condition"):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {limit} s")


def process_is_alive(pid):
    """Of a killed one the first thread is often a zombie while others still hold its files and locks."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat[stat.rindex(")") + 2:].split()
    return fields[0] not in "ZX" or int(fields[17]) > 1


class ControlError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.name = error["data"]["error"]
        self.status = error["data"]["status"]
        self.message = error["message"]


def connected(path, patience=PATIENCE_S):
    """A connection. Where many are waiting to be accepted it waits, too: a socket that has Python's timeout fails at once then."""
    found = socket.socket(socket.AF_UNIX)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", patience, 0))
    found.connect(str(path))
    found.settimeout(patience)
    return found


class Control:
    """One connection to a control socket."""

    def __init__(self, path, patience=PATIENCE_S):
        self.socket = connected(path, patience)
        self.stream = self.socket.makefile("rwb")
        self.number = 0
        self.hello = self.call("hello", version=1)

    def send(self, method, **parameters):
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": parameters}
        try:
            self.socket.sendall(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            pass  # it has closed; what it said last can be read
        return self.number

    def receive(self):
        line = self.stream.readline()
        if not line:
            raise EOFError("the connection was closed")
        return json.loads(line)

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        answer = self.receive()
        assert answer["id"] == number, answer
        if "error" in answer:
            raise ControlError(answer["error"])
        return answer["result"]

    def close(self):
        self.stream.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()


class Place:
    """A folder for one test: runtime folder, dumps, and python3 that is the stand-in. Nothing of it is left behind,
    no process either."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kldump-", dir=os.environ.get("TMPDIR", "/tmp")))
        self.runtime = self.folder / "r"
        self.runtime.mkdir(mode=0o700)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/python3").symlink_to(STANDIN)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8",
                            "KLDUMP_RUNTIME_DIR": str(self.runtime), **FAST}
        self.daemon = None

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.end_runs()
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        self.remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_cgroups(self):
        """Of runs that ended when no daemon was there any more."""
        for record in (self.runtime / "owned").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, StopIteration):
                path = json.loads(record.read_text())["cgroup"]
                mounts = Path("/proc/self/mountinfo").read_text().splitlines()
                if path.endswith(".run"):
                    os.rmdir(next(line.split()[4] for line in mounts if " - cgroup2 " in line) + path)

    def end_runs(self):
        for run in (self.runtime / "runs").glob("*"):
            try:
                pid = json.loads((run / "record.json").read_text())["run"]["guard_pid"]
                if Path(os.readlink(f"/proc/{pid}/exe")).name == "kldump-run":
                    os.kill(pid, 9)  # its keeper kills the rest
                    wait_for(lambda: not process_is_alive(pid), what="end of a guard")
            except (OSError, ValueError, KeyError):
                pass

    def start_daemon(self, program=None, environment=None, arguments=(), **options):
        """Returns its first line."""
        self.daemon = subprocess.Popen([program or BUILD / "kldumpd", *arguments], env={**self.environment, **(environment or {})},
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
        return self.daemon.stderr.readline().decode()

    def kill_daemon(self, number=9):
        self.daemon.send_signal(number)
        self.daemon.stderr.close()
        return self.daemon.wait(PATIENCE_S)

    def control(self, run=None):
        return Control(self.runtime / "control" if run is None else self.runtime / "runs" / run / "control")

    def ctl(self, *arguments, check=True, environment=None):
        done = subprocess.run([BUILD / "kldumpctl", *map(str, arguments)], env={**self.environment, **(environment or {})},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              cwd=self.folder, timeout=2 * PATIENCE_S, check=False)
        if check:
            assert done.returncode == 0, f"kldumpctl {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def command(self, port=None):
        return [str(self.folder / "bin/python3"), "-m", "sglang.launch_server", "--model-path", "/nonexistent", "--port",
                str(port or free_port())]

    def plan(self, name, *options, environment=None, command=None):
        """What `start` takes."""
        return {"arguments": ["--name", name, "--dir", str(self.folder / f"dumps-{name}"), "--floor", "64M", *options, "--",
                              *(command or self.command())],
                "environment": [f"{key}={value}" for key, value in {**self.environment, **(environment or {})}.items()],
                "directory": str(self.folder)}
