"""A kldumpd of root's and people without a name in /etc/passwd who use it. Root only. Standard library only."""
import os
import resource
import shutil
import subprocess
from pathlib import Path

from kldump_programs import BUILD, FAST, PATIENCE_S, STANDIN, Control, Place, free_port

PROGRAMS = ("kldumpd", "kldump-run", "kldump-keeper", "kldumpctl")


class Person:
    """One user: numbers, groups, limits and a folder of his own."""

    def __init__(self, place, uid, groups=(), umask=0o022, limits=()):
        self.place, self.uid, self.gid, self.groups, self.umask, self.limits = place, uid, uid + 10000, list(groups), umask, limits
        self.folder = place.folder / f"u{uid}"
        self.folder.mkdir(mode=0o700)
        os.chown(self.folder, self.uid, self.gid)

    def environment(self, **more):
        return {"PATH": f"{self.place.programs}:{os.environ['PATH']}", "HOME": str(self.folder), "LANG": "C.UTF-8",
                "KLDUMP_RUNTIME_DIR": str(self.place.runtime), **FAST, **more}

    def set_limits(self):
        for name, limit in self.limits:
            resource.setrlimit(name, limit)

    def popen(self, *command, environment=None, **options):
        return subprocess.Popen([str(word) for word in command], env=environment or self.environment(), cwd=self.folder, user=self.uid,
                                group=self.gid, extra_groups=self.groups, umask=self.umask, preexec_fn=self.set_limits,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def ctl(self, *arguments, check=True, environment=None):
        process = self.popen(self.place.programs / "kldumpctl", *arguments, environment=environment)
        out, err = process.communicate(timeout=2 * PATIENCE_S)
        if check:
            assert process.returncode == 0, f"kldumpctl {arguments} as {self.uid}: {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def start_words(self, name, *options, folder=None):
        return ["start", "--name", name, "--dir", folder or self.folder / f"dumps-{name}", "--floor", "64M", *options, "--",
                *self.place.command()]

    def start(self, name, *options, folder=None, **more):
        return self.ctl(*self.start_words(name, *options, folder=folder), **more)

    def owns(self, path):
        status = os.lstat(path)
        return (status.st_uid, status.st_gid) == (self.uid, self.gid)


class SharedPlace(Place):
    """The programs lie where everybody can execute them, whatever the build folder's parents are."""

    def __init__(self):
        super().__init__()
        self.folder.chmod(0o755)
        self.runtime.chmod(0o755)
        self.programs = self.folder / "bin"
        self.programs.chmod(0o755)
        for name in PROGRAMS:
            shutil.copy(BUILD / name, self.programs)
        (self.programs / "python3").unlink()
        shutil.copy(STANDIN, self.programs / "python3")
        shutil.copy(Path(__file__).parent / "send.py", self.programs)
        for path in self.programs.iterdir():
            path.chmod(0o755)

    def start_daemon(self, *options, **more):
        return super().start_daemon(*options or (self.programs / "kldumpd",), **more)

    def person(self, uid, **more):
        return Person(self, uid, **more)

    def run(self, name):
        """As root sees it."""
        with Control(self.runtime / "control") as control:
            return control.call("status", run=name)["run"]

    def command(self, port=None):
        return [str(self.programs / "python3"), "-m", "sglang.launch_server", "--model-path", "/nonexistent", "--port",
                str(port or free_port())]


def status_of(pid):
    """/proc/PID/status by name; numbers as they stand there."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.split() for key, _, value in (line.partition(":") for line in lines)}


def resident_kib(pid):
    return int(status_of(pid)["VmRSS"][0])


def limits_of(pid):
    found = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        found[line[:26].strip()] = tuple(line[26:].split()[:2])
    return found


def environment_of(pid):
    return dict(item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in item)


def parent_of(pid):
    return int(status_of(pid)["PPid"][0])
