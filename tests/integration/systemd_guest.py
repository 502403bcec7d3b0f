"""A booted systemd with kldump installed, in systemd-nspawn: root only, nothing of it is left behind. Standard library
only.

The root folder is that of tests/real/systemd_root.py. One cgroup of our own holds nspawn and guest; changes of the root
go to memory (--volatile=overlay); /t in the guest is a folder of the test.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kldump_programs import BUILD, STANDIN, wait_for

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "real"))
import cache_folder  # noqa: E402
import systemd_root  # noqa: E402

BOOT_S = 60
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def what_is_missing():
    """One line, or None."""
    if os.geteuid() != 0:
        return "root is needed to boot a systemd"
    if shutil.which("systemd-nspawn") is None:
        return "systemd-nspawn is needed (package systemd-container)"
    try:
        cgroup_root()
        systemd_root.systemd_root()
    except cache_folder.Missing as missing:
        return f"{missing} is missing"
    return None


def cgroup_root():
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        if right.startswith("cgroup2 ") and "rw" in left.split()[5].split(","):
            return Path(left.split()[4])
    raise cache_folder.Missing("a writable mount of cgroup version 2")


def remove_cgroup(cgroup):
    """It and those in it, as soon as all that lived there has ended."""
    end = time.monotonic() + 20
    for folder in sorted((Path(found[0]) for found in os.walk(cgroup)), key=lambda path: -len(path.parts)):
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


class Guest:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kldump-guest-"))
        self.name = self.folder.name.replace("_", "x")  # a host name
        self.cgroup = cgroup_root() / self.name
        self.shared = self.folder / "t"
        self.process = None
        self.pid = None

    def __enter__(self):
        try:
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *ignored):
        if self.pid is not None:
            subprocess.run(["nsenter", "-t", str(self.pid), "-a", "--", "systemctl", "poweroff"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=20, check=False)
        if self.process is not None:
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                pass
        self.end_cgroup()
        if self.process is not None:
            self.process.wait()
        for mirror in Path("/sys/fs/cgroup").glob(f"*/{self.name}"):  # what nspawn makes of it in a hierarchy of version 1
            remove_cgroup(mirror)
        shutil.rmtree(f"/run/systemd/nspawn/propagate/{self.name}", ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def end_cgroup(self):
        if not self.cgroup.exists():
            return
        (self.cgroup / "cgroup.kill").write_text("1")
        remove_cgroup(self.cgroup)

    def installed_files(self):
        """Those of `make install`, and where they belong."""
        stage = self.folder / "stage"
        done = subprocess.run(["make", "-s", "-C", BUILD, "install", f"DESTDIR={stage}"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        return {path: Path("/") / path.relative_to(stage) for path in stage.rglob("*") if path.is_file()}

    def boot(self):
        binds = [f"--bind={self.shared}:/t", f"--bind-ro={STANDIN}:/t/python3"]
        self.shared.mkdir()
        (self.shared / "python3").touch()
        self.shared.chmod(0o1777)
        for path, place in self.installed_files().items():
            binds.append(f"--bind-ro={path}:{place}")
            if not place.is_relative_to("/usr"):  # only there they are found below lib
                binds += [f"--bind-ro={path}:/etc/{part}" for part in [str(place).partition("/lib/")[2]]
                          if part.startswith(("systemd/", "sysusers.d/", "tmpfiles.d/"))]
        Path("/run/systemd/nspawn/propagate").mkdir(parents=True, exist_ok=True)
        self.cgroup.mkdir()
        procs = os.open(self.cgroup / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        log = open(self.folder / "console", "wb")
        self.process = subprocess.Popen(
            ["systemd-nspawn", "-q", "--keep-unit", "--register=no", "--resolv-conf=off", "--link-journal=no",
             f"--machine={self.name}", "-D", systemd_root.systemd_root(), "--volatile=overlay", *binds, "-b"],
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=lambda: os.write(procs, b"0"))
        os.close(procs)
        log.close()
        self.pid = wait_for(self.find_pid, BOOT_S, "boot of the guest")
        try:
            wait_for(self.is_up, BOOT_S, "boot of the guest")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.console()}") from late

    def find_pid(self):
        assert self.process.poll() is None, self.console()
        try:
            lines = (self.cgroup / "payload/init.scope/cgroup.procs").read_text().split()
        except OSError:
            return None
        return int(lines[0]) if lines else None

    def is_up(self):
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def console(self):
        return (self.folder / "console").read_text(errors="replace")[-3000:]

    def run(self, *command, check=True, limit=60):
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-a", "--", "env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8",
                               *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=limit, check=False)
        if check:
            assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.journal()}"
        return done

    def journal(self):
        return self.run("journalctl", "-n", "40", "--no-pager", "-o", "cat", check=False).stdout
