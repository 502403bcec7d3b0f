"""Guarded runs as a user starts them, and a look at what they leave behind. Standard library only.

KLDUMP_BUILD names the build folder; the programs are taken from there. Each test has a Place: a folder with its own
runtime folder, its own dumps and its own python3. Every process of a test carries that folder in its environment or
works in it, which is how survivors are found whatever they call themselves.
"""
import collections
import contextlib
import json
import os
import pickle
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))
import cache_folder  # noqa: E402
import sglang_cpu  # noqa: E402
import shared_memory  # noqa: E402
from kldump_programs import process_is_alive as is_alive  # noqa: E402
from ports import free_port  # noqa: E402

BUILD = Path(os.environ.get("KLDUMP_BUILD") or os.environ.get("KLDUMP_BUILD_DIR") or HERE.parents[1] / "build-test").resolve()
STANDIN = Path(os.environ.get("KLDUMP_STANDIN") or BUILD / "kldump-standin").resolve()
CTL = BUILD / "kldumpctl"
VERSION = "0.5.23"
SEND = HERE / "send.py"
PYTHON = "/usr/bin/python3"
GONE_S = 3  # nothing may be left of a run whose guard or keeper was killed after this long
FAST = {"KLDUMP_STANDIN_LOAD_MS": "60", "KLDUMP_STANDIN_START_MS": "10", "KLDUMP_STANDIN_TERM_MS": "50",
        "KLDUMP_STANDIN_CRASH_MS": "50"}
NAME = re.compile(r"step=(\d+)___rank=(\d+)___dump_index=(\d+)___name=(.+)___recompute_status=disabled"
                  r"(?:___layer_id=(\d+))?\.pt$")
DumpFile = collections.namedtuple("DumpFile", "step rank index name layer path")


# ---- waiting and looking

def wait_for(condition, limit=30.0, what="what was waited for"):
    """The first true value of CONDITION; fails after LIMIT seconds."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit} s")
        time.sleep(0.01)


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def stat_of(pid):
    """What follows the name in /proc/PID/stat; [] when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return stat[stat.rindex(")") + 2:].split()


def state_of(pid):
    """The state letter of a process; "" when it is gone."""
    return (stat_of(pid) or [""])[0]


def is_exiting(pid):
    """It runs no instruction of its own any more: the kernel frees what it had (PF_EXITING), or it is gone."""
    fields = stat_of(pid)
    return fields == [] or bool(int(fields[6]) & 4)


def title_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def environment_of(pid):
    items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(item.decode(errors="replace").split("=", 1) for item in items if b"=" in item)


def processes_of(folder):
    """Living processes that carry FOLDER in their environment or work in it."""
    found, mark = [], os.fsencode(folder)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            ours = mark in Path(f"/proc/{entry}/environ").read_bytes() or os.readlink(f"/proc/{entry}/cwd").startswith(str(folder))
            if ours and is_alive(entry):
                found.append(int(entry))
    return found


def children_of(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


# ---- asking a server without kldump

def post(url, body, key=None, limit=60):
    """The JSON of the answer; as somebody's curl would do it."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=limit) as answer:
        return json.load(answer)


# ---- dump files, read without torch

class Reader(pickle.Unpickler):
    """The value and its tags; a tensor becomes its shape. No class is ever made."""

    def persistent_load(self, pid):
        return pid

    def find_class(self, module, name):
        known = {"_rebuild_tensor_v2": lambda storage, offset, size, *rest: tuple(size), "OrderedDict": dict}
        return known.get(name, name)


def dump_files(folder):
    found = []
    for path in Path(folder).iterdir():
        step, rank, index, name, layer = NAME.match(path.name).groups()
        found.append(DumpFile(int(step), int(rank), int(index), name, int(layer) if layer else None, path))
    return sorted(found, key=lambda file: (file.rank, file.index))


def value_of(path):
    with zipfile.ZipFile(path) as archive:
        return Reader(archive.open(f"{path.name[:-3]}/data.pkl")).load()["value"]


def integers_of(path):
    with zipfile.ZipFile(path) as archive:
        raw = archive.read(f"{path.name[:-3]}/data/0")
    return list(struct.unpack(f"<{len(raw) // 8}q", raw))


# ---- the two servers

class StandIn:
    name = "standin"
    boot_s = 30

    def python(self, place):
        link = place.folder / "bin/python3"
        if not link.is_symlink():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(place.standin)
        return link

    def model(self, _place):
        return "/nonexistent"

    def flags(self):
        return ["--skip-tokenizer-init"]

    def environment(self):
        return FAST


class Real:
    name = "real"
    boot_s = 300

    def __init__(self, directory, model):
        self.directory, self.model_folder = directory, model

    def python(self, _place):
        return self.directory / "bin/python"

    def model(self, _place):
        return self.model_folder

    def flags(self):
        return sglang_cpu.server_command(self.directory, "M", 1)[7:]

    def environment(self):
        return sglang_cpu.server_environment()


class TwoRanks(Real):
    """A core for each of two ranks. Without a GPU there is no NCCL either: looked for, it would end the start."""

    def environment(self):
        return {**super().environment(), "SGLANG_CPU_OMP_THREADS_BIND": "0|1", "SGLANG_NCCL_SO_PATH": "/nonexistent/libnccl.so"}


class Misreported(Real):
    """Its python3 says that another release is installed, as a stray package or a stale image makes it say."""

    def __init__(self, real, reported):
        super().__init__(real.directory, real.model_folder)
        self.reported = reported

    def python(self, place):
        path = place.folder / "misreporting/python3"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec echo {self.reported}\nexec {super().python(place)} "$@"\n')
        path.chmod(0o755)
        return path


def real_server(model, version=VERSION):
    """The real SGLang of the cache folder; Missing with one line where it was not made."""
    directory = sglang_cpu.default_directory(version)
    if cache_folder.finished(directory) is None:
        raise cache_folder.Missing(f"the real SGLang in {directory} (tests/real/sglang_cpu.py install {version} makes it)")
    sglang_cpu.write_model(model)
    return Real(directory, model)


# ---- a place, and runs in it

class Place:
    def __init__(self, folder=None):
        self.folder = Path(folder or tempfile.mkdtemp(prefix="kli-", dir="/tmp"))
        self.runtime = self.folder / "r"
        self.runtime.mkdir(mode=0o700)
        self.ports, self.runs, self.others, self.mounts = [], [], [], []
        self.before = []  # what kldumpctl is started through
        self.ctl_path, self.standin, self.client = CTL, STANDIN, SEND
        self.shared_memory = shared_memory.found()

    def environment(self, **more):
        """PATH, a language and nothing of the caller's that a server could read."""
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", "KLDUMP_RUNTIME_DIR": str(self.runtime)}
        return {**base, **more}

    def hold_path(self, experiment=None):
        """The file that holds the passes of stand-ins whose KLDUMP_STANDIN_HOLD is that of no experiment."""
        return self.folder / (f"hold-{experiment}" if experiment else "hold")

    def hold_environment(self):
        """Of a run with `held`."""
        return {"KLDUMP_STANDIN_HOLD": str(self.hold_path())}

    def port(self):
        self.ports.append(free_port())
        return self.ports[-1]

    def command(self, server, *flags, port=None, model=None):
        return [str(server.python(self)), "-m", "sglang.launch_server", "--model-path", str(model or server.model(self)), "--port",
                str(port or self.port()), *server.flags(), *flags]

    def run(self, server, **options):
        self.runs.append(Run(self, server, **options))
        return self.runs[-1]

    def ctl(self, *arguments, status=0, limit=120, **more):
        """One kldumpctl; its exit status must be STATUS (None: any)."""
        done = subprocess.run([*self.before, self.ctl_path, *map(str, arguments)], env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit, check=False, **more)
        if status is not None:
            assert done.returncode == status, f"kldumpctl {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def copy_programs(self):
        """For a user who may not read the folder of the build."""
        here = self.folder / "programs"
        here.mkdir()
        here.chmod(0o755)  # whatever the umask
        for path in (CTL, BUILD / "kldump-run", BUILD / "kldump-keeper", STANDIN, SEND):
            shutil.copy(path, here)
            (here / path.name).chmod(0o755)
        self.ctl_path, self.standin, self.client = here / CTL.name, here / STANDIN.name, here / SEND.name

    def start(self, command, more=None, **options):
        """Another program of this test, in the background; MORE joins its environment."""
        self.others.append(subprocess.Popen([*map(str, command)], env=self.environment(**(more or {})), cwd=self.folder,
                                            stdin=subprocess.DEVNULL, **options))
        return self.others[-1]

    def small_disk(self, size, options="", name="small"):
        disk = self.folder / name
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "kldump-test", disk], check=True)
        self.mounts.append(disk)
        return disk

    def fuse_disk(self, *options):
        """A disk that goes wrong when it is told to, and the folder in which it is told (fuse_disk.py)."""
        disk, faults = self.folder / "fuse", self.folder / "faults"
        disk.mkdir()
        faults.mkdir()
        self.start([PYTHON, "-B", HERE / "fuse_disk.py", disk, faults, *options])
        self.mounts.append(disk)
        wait_for(disk.is_mount, 10, "the FUSE disk")
        return disk, faults

    def survivors(self):
        """What lives of this test's runs: not the clients that it started beside them."""
        others = {process.pid for process in self.others}
        return [pid for pid in processes_of(self.folder) if pid not in others]

    def nothing_lives(self):
        """Asserts it. A process whose memory is being freed has lost its environment (and with it the guard's sight) before
        its working directory, by which this still finds it: such a one has ended, and is only waited for."""
        seen = self.survivors()
        left = [(pid, state_of(pid), title_of(pid)) for pid in seen if is_alive(pid) and not is_exiting(pid)]
        assert not left, left
        wait_for(lambda: not any(is_alive(pid) for pid in seen), 30, "the end of what exits")

    def leftovers(self):
        """One line for each thing that a finished test has left behind."""
        found = [f"process {pid} {state_of(pid)} {title_of(pid)[:80]}" for pid in self.survivors()]
        found += [f"port {port} is held" for port in self.ports if not port_is_free(port)]
        found += [f"cgroup {run.cgroup}" for run in self.runs if run.cgroup and Path(run.cgroup).exists()]
        found += [f"folder {path}" for path in self.runtime.glob("runs/*/t") if not self.was_killed(path.parent.name)]
        return found

    def was_killed(self, name):
        """A guard that was killed by 9 cannot tidy up its folder; the next run of the name does."""
        return any(run.name == name and run.process.returncode == -signal.SIGKILL for run in self.runs)

    def end(self):
        """Kills what this test started, removes its folder, and returns what it should not have left."""
        for process in self.others:
            if process.poll() is None:
                process.kill()
            process.wait()
        for run in self.runs:
            run.remember_cgroup()
            if run.process.poll() is None:
                run.note = f"the test left run {run.name} to its end"
                run.process.send_signal(signal.SIGCONT)
                run.process.send_signal(signal.SIGINT)
                run.process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.process.wait(15)
        end = time.monotonic() + GONE_S
        while (found := self.leftovers()) and time.monotonic() < end:
            time.sleep(0.02)
        while left := self.survivors():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for run in self.runs:
            run.close()
        for disk in self.mounts:
            subprocess.run(["umount", "-l", disk], check=False)
        shared_memory.remove(shared_memory.found() - self.shared_memory)
        shutil.rmtree(self.folder, ignore_errors=True)
        return found


class Run:
    """`kldumpctl run` in the background, as in another terminal. The process is the guard itself."""

    def __init__(self, place, server, name="t", command=None, flags=(), options=(), floor="64M", directory=None, faults="",
                 environment=None, terminal=False, output=None, arguments=None):
        self.place, self.server, self.name, self.cgroup, self.note = place, server, name, None, ""
        self.directory = Path(directory or place.folder / f"dumps-{name}")
        self.command = command or place.command(server, *flags)
        self.output_path = place.folder / f"{name}-{len(place.runs)}.out"
        variables = {**server.environment(), "KLDUMP_STANDIN_FAULTS": faults, **(environment or {})}
        arguments = arguments or ["run", "--name", name, "--dir", self.directory, "--floor", floor, *options, "--", *self.command]
        self.master = self.reader = None
        self.hung_up = False
        keywords = {"env": place.environment(**variables), "cwd": place.folder}
        argv = [*place.before, str(place.ctl_path), *map(str, arguments)]
        if terminal:
            self.start_on_terminal(argv, keywords)
        else:
            with open(self.output_path, "wb") as own:
                self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output or own, stderr=output or own,
                                                start_new_session=True, **keywords)

    def start_on_terminal(self, argv, keywords):
        """Its own terminal, in whose foreground it is: a Ctrl-C typed there reaches it."""
        self.master, slave = os.openpty()
        program = "import fcntl,os,sys,termios\nfcntl.ioctl(0,termios.TIOCSCTTY,0)\nos.execv(sys.argv[1],sys.argv[1:])"
        self.process = subprocess.Popen([PYTHON, "-c", program, *argv], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, **keywords)
        os.close(slave)
        self.reader = threading.Thread(target=self.copy_terminal, daemon=True)
        self.reader.start()

    def copy_terminal(self):
        with open(self.output_path, "wb") as own, contextlib.suppress(OSError):
            while not self.hung_up:
                if select.select([self.master], [], [], 0.05)[0]:
                    own.write(os.read(self.master, 65536))
                    own.flush()

    def hang_up(self):
        """Its window is closed."""
        self.hung_up = True
        self.reader.join(5)
        os.close(self.master)
        self.master = None

    def type(self, text):
        os.write(self.master, text.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master is not None:
            os.close(self.master)
            self.reader.join(5)

    # what it says

    @property
    def output(self):
        return self.output_path.read_text(errors="replace")

    @property
    def folder(self):
        return self.place.runtime / "runs" / self.name

    @property
    def record(self):
        return json.loads((self.folder / "record.json").read_text())

    @property
    def log(self):
        text = ""
        for path in (self.folder / "server.log.1", self.folder / "server.log"):
            with contextlib.suppress(FileNotFoundError):  # the second one too, in the moment in which it becomes the first
                text += path.read_text(errors="replace")
        return text

    @property
    def pid(self):
        """The guard."""
        return self.process.pid

    def status(self):
        return json.loads(self.place.ctl("status", self.name, "--json").stdout)["runs"][0]

    def events(self):
        return [json.loads(line) for line in self.place.ctl("events", self.name, "--json").stdout.splitlines()]

    def keeper(self):
        return next(pid for pid in children_of(self.pid) if "kldump-keeper" in title_of(pid))

    def is_listening(self):
        """Also when the folder still holds what an older run of the name has left."""
        with contextlib.suppress(OSError, ValueError):
            return (self.folder / "control").exists() and self.record["run"]["guard_pid"] == self.pid
        return False

    def remember_cgroup(self, found=None):
        """From what the guard has just told of the run, else from its record, which a thread of its own writes."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            guarantee = (found or self.record["run"])["guarantee"]
            if guarantee.startswith("cgroup: "):
                self.cgroup = guarantee[len("cgroup: "):]

    # what is done to it

    def wait_state(self, state, limit=None):
        """`kldumpctl wait`, from the moment the run can be found."""
        limit = limit or self.server.boot_s
        wait_for(lambda: self.is_listening() or self.process.poll() is not None, 30, "the run's socket")
        done = self.place.ctl("wait", self.name, "--for", state, "--timeout", f"{limit}s", "--json", status=None, limit=limit + 20)
        assert done.returncode == 0, f"{state}: {done.returncode} {done.stderr}\n{self.output[-4000:]}"
        self.remember_cgroup(json.loads(done.stdout)["runs"][0])
        return self

    def armed(self):
        return self.wait_state("armed")

    @contextlib.contextmanager
    def held(self, experiment=None, files=0):
        """The stand-in comes no further in a pass before this ends; dumped as EXPERIMENT: than to so many files of it, at least one."""
        path = self.place.hold_path(experiment)
        path.with_suffix(".new").write_text(str(files))
        path.with_suffix(".new").rename(path)
        try:
            yield self.place.hold_path().with_name("hold.held")
        finally:
            path.unlink()

    def send(self, *arguments, background=False, status=0):
        """One request to its server, outside of any dump command."""
        command = [PYTHON, "-B", SEND, f"http://127.0.0.1:{self.status()['port']}", *arguments]
        if background:
            return self.place.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
        assert status is None or done.returncode == status, done.stdout
        return done

    def wait_counters(self):
        """While it dumps: until the guard has read the server's counters as they are now. It asks once a second, never before it
        has read what came: the first answer behind our own request may be older, and the third shows that the second was read."""
        mark = f"/seen-{time.monotonic_ns()}"
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{self.status()['port']}{mark}", timeout=60).close()
        wait_for(lambda: self.log.partition(mark)[2].count("POST /dumper/get_state") >= 3, 60, "a look at the counters")

    def dump(self, experiment, *client, status=0, options=()):
        """`kldumpctl dump`; with CLIENT arguments: around send.py with these."""
        around = ["--", PYTHON, "-B", self.place.client, *client] if client else []
        return self.place.ctl("dump", self.name, experiment, *options, *around, status=status)

    def start_dump(self, experiment):
        """Dumping is on, with requests that do not end, when this returns."""
        self.dump(experiment)
        sender = self.send("--requests", 100000, "--prompt", 64, background=True)
        wait_for(lambda: any((self.directory / experiment).glob("*.pt")), 30, "the first dump file")
        return sender

    def exit(self, limit=60):
        """Its exit status."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"run {self.name} has not ended\n{self.output[-3000:]}") from None
        if self.reader:
            self.reader.join(5)
        return status

    def exits_with(self, wanted, limit=60):
        status = self.exit(limit)
        self.remember_cgroup()
        assert status == wanted, f"status {status}, wanted {wanted}\n{self.output[-4000:]}"
        self.place.nothing_lives()
        return self.output

    def dies_within(self, limit=GONE_S):
        """Nothing of it lives any more after LIMIT seconds, whatever happened to its guard; returns the seconds taken."""
        begin = time.monotonic()

        def gone():
            self.process.poll()
            return not self.place.survivors()
        try:
            wait_for(gone, limit)
        except AssertionError:
            left = [(pid, state_of(pid), title_of(pid)[:60]) for pid in self.place.survivors()]
            raise AssertionError(f"still alive after {limit} s: {left}") from None
        return time.monotonic() - begin


class LowestSpace:
    """Samples the free space of a folder's filesystem as fast as it can."""

    def __init__(self, folder):
        self.folder, self.lowest, self.running = folder, 1 << 62, True
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while self.running:
            found = os.statvfs(self.folder)
            self.lowest = min(self.lowest, found.f_bavail * found.f_frsize)
            time.sleep(0.0005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *ignored):
        self.running = False
        self.thread.join()
