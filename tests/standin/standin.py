"""Starts the stand-in server for a test and looks at it from outside. Standard library only."""
import collections
import contextlib
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
from ports import free_port  # noqa: E402

PROGRAM = Path(os.environ.get("KLDUMP_STANDIN", "kldump-standin")).resolve()
PR_SET_CHILD_SUBREAPER = 36
NAME = re.compile(r"step=(\d+)___rank=(\d+)___dump_index=(\d+)___name=(.+)___recompute_status=disabled"
                  r"(?:___layer_id=(\d+))?\.pt$")
DumpFile = collections.namedtuple("DumpFile", "step rank index name layer path")
Process = collections.namedtuple("Process", "pid parent session state title")


def become_subreaper():
    """Orphans come to this process, so that a test sees and ends them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def look_at(pid):
    """None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    state, parent, _group, session = stat[stat.rindex(")") + 2:].split()[:4]
    return Process(pid, int(parent), int(session), state, title)


def children_of(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def descendants(root=None, zombies=False):
    """All processes below `root` (this process when None)."""
    found, queue = [], children_of(root or os.getpid())
    while queue:
        pid = queue.pop()
        process = look_at(pid)
        if process and (zombies or process.state != "Z"):
            found.append(process)
        queue += children_of(pid)
    return found


def reap():
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wait_for(condition, limit=10.0):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    return condition()


class StandIn:
    """A running stand-in; use as a context manager: at its end nothing of it is left."""

    def __init__(self, faults="", arguments=("--disable-cuda-graph", "--disable-prefill-cuda-graph"), version=None,
                 environment=None, model="model"):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of small files
        self.folder = Path(tempfile.mkdtemp(prefix="kldump-standin-", dir=memory))
        self.dumps = self.folder / "dumps"
        self.port = free_port()
        (self.folder / "python3").symlink_to(PROGRAM)
        settings = {"DUMPER_ENABLE": "0", "DUMPER_SERVER_PORT": "reuse", "DUMPER_NON_INTRUSIVE_MODE": "all",
                    "DUMPER_DIR": str(self.dumps), "DUMPER_EXP_NAME": "idle", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0",
                    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0", "KLDUMP_STANDIN_FAULTS": faults,
                    "KLDUMP_STANDIN_LOAD_MS": "60", "KLDUMP_STANDIN_START_MS": "10", "KLDUMP_STANDIN_TERM_MS": "50",
                    "KLDUMP_STANDIN_CRASH_MS": "50"}
        settings.update(environment or {})
        if version:
            settings["KLDUMP_STANDIN_VERSION"] = version
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("DUMPER_", "KLDUMP_STANDIN_"))}
        clean.update({key: value for key, value in settings.items() if value is not None})
        with open(self.folder / "log", "wb") as log:
            self.child = subprocess.Popen(
                [self.folder / "python3", "-m", "sglang.launch_server", "--model-path", model, "--port", str(self.port),
                 "--skip-tokenizer-init", *arguments], env=clean, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill_all(self):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
            left = descendants()
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            if self.child.poll() is not None:
                reap()
            if not left:
                break
            time.sleep(0.005)
        self.child.wait(10)

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def request(self, method, path, body=None, timeout=20, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode(errors="replace")

    def status(self, path):
        try:
            return self.request("GET", path)[0]
        except OSError:
            return 0

    def ready(self, limit=10.0):
        """True when it is up, False when it has ended or the time is over."""
        wait_for(lambda: self.child.poll() is not None or "fired up and ready" in self.log(), limit)
        return self.child.poll() is None and "fired up and ready" in self.log()

    def configure(self, **keys):
        return self.request("POST", "/dumper/configure", keys)

    def counters(self):
        return [(one["dump_index"], one["step"]) for one in self.request("POST", "/dumper/get_state")[1]]

    def generate(self, rid="own", tokens=3, ids=tuple(range(20, 32)), **more):
        body = {"input_ids": list(ids), "rid": rid, **more,
                "sampling_params": {"max_new_tokens": tokens, "temperature": 1.0, "ignore_eos": True}}
        return self.request("POST", "/generate", body)

    def files(self, experiment="exp"):
        found = []
        for path in (self.dumps / experiment).glob("*.pt"):
            step, rank, index, name, layer = NAME.match(path.name).groups()
            found.append(DumpFile(int(step), int(rank), int(index), name, int(layer) if layer else None, path))
        return sorted(found, key=lambda file: (file.rank, file.index))

    def passes(self, experiment="exp"):
        """Number of files by rank and step."""
        return dict(collections.Counter((file.rank, file.step) for file in self.files(experiment)))

    def dump(self, **request):
        """Enables, sends one request, disables; the answer of the request."""
        self.configure(enable=True, exp_name="exp")
        answer = self.generate(**request)
        self.configure(enable=False)
        return answer


def member(path, name):
    with zipfile.ZipFile(path) as archive:
        return archive.read(f"{path.name[:-3]}/{name}")


def integers(path):
    raw = member(path, "data/0")
    return list(struct.unpack(f"<{len(raw) // 8}q", raw))
