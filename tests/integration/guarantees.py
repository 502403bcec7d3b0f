"""Runs whose guard, keeper or daemon is killed by 9 at a point of their life: what happened then, as seen from outside.

One set-up and one choice of victims are a cell of the table of guarantees in kldumpd(8). The runs of a cell begin one after
the other, spread over the length of a life, and are hit in the same moment: so each is at another point of its life, and a
daemon that is killed dies once for all of them.
"""
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

from guarded import children_of, is_alive, title_of
from kldump_programs import BUILD, FAST, Control, Place, free_port, wait_for

ROWS = {"guard": "g", "keeper": "k", "daemon": "d", "guard+keeper": "gk", "guard+daemon": "gd", "keeper+daemon": "kd"}
LOAD = {"KLDUMP_STANDIN_LOAD_MS": "400", "KLDUMP_STANDIN_FAULTS": "setsid-child,double-fork"}
SEED = int(os.environ.get("KLDUMP_TEST_SEED") or random.randrange(1 << 32))
POINTS = int(os.environ.get("KLDUMP_TEST_POINTS") or 2)
LIFE_S = 3.0  # about: from the start over a dump of a second to the stop
GONE_S = 6  # time that everything of a run has to be gone in, on a machine with many runs


class Life:
    """One run, and who leads it through its life: armed, dump, requests, pause, stop; errors end it."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.home = world.home / name
        self.process = self.failed = self.kinds = self.age = self.gone_s = None
        self.finished = False
        self.thread = threading.Thread(target=self.live, daemon=True)

    def live(self):
        try:
            self.world.launch(self)
            with wait_for(self.connect, 20, "the run's socket") as control:
                control.call("wait", **{"for": "armed", "timeout_ms": 25000})
                control.call("dump", experiment="e")
                port = control.call("status")["run"]["port"]
                end = time.monotonic() + 0.6
                while time.monotonic() < end:
                    self.world.send(port)
                control.call("pause")
                control.call("stop")
                control.call("wait", **{"for": "ended", "timeout_ms": 20000})
            self.finished = True
        except Exception as failure:  # pylint: disable=broad-except
            self.failed = failure

    def connect(self):
        """To the guard itself; None: it is not there yet."""
        try:
            return Control(self.world.runs / self.name / "control", 30)
        except OSError:
            return None

    def record(self):
        try:
            return json.loads((self.world.runs / self.name / "record.json").read_text())["run"]
        except (OSError, ValueError, KeyError):
            return {}

    def living(self):
        """The server, all that it has started, and strays; not guard and keeper."""
        found, mark = [], os.fsencode(self.world.inside(self.home)) + b"/"
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes() and is_alive(entry) and \
                        Path(os.readlink(f"/proc/{entry}/exe")).name not in ("kldump-run", "kldump-keeper", "kldumpctl", "kldumpd"):
                    found.append(int(entry))
            except OSError:
                pass
        return found


class World:
    """A daemon, and runs that are started in one way."""

    def __init__(self, setup):
        self.setup, self.wrapper = setup, setup.startswith("wrapper")
        self.place = Place()
        self.home = self.place.folder / "h"
        self.home.mkdir()
        self.runtime, self.runs = self.place.runtime, self.place.runtime / "runs"
        self.environment = {**LOAD, **({"KLDUMP_NO_CGROUP": "1"} if setup == "wrapper-alone" else {})}

    def inside(self, path):
        return str(path)

    def start_daemon(self):
        return self.place.start_daemon()

    def kill_daemon(self):
        self.place.kill_daemon()

    def daemon_is_back(self):
        self.start_daemon()

    def plan(self, life):
        life.home.mkdir(exist_ok=True)
        command = [self.inside(self.python()), "-m", "sglang.launch_server", "--model-path", "/nonexistent", "--port", str(free_port())]
        environment = {**(self.place.environment if self.place else FAST), **self.environment, "KLDUMP_TEST_HOME": self.inside(life.home) + "/"}
        return ["--name", life.name, "--dir", self.inside(life.home / "d"), "--floor", "1M", "--stop-timeout", "5s", "--",
                *command], environment

    def python(self):
        return self.place.folder / "bin/python3"

    def launch(self, life):
        arguments, environment = self.plan(life)
        if self.wrapper:
            with open(life.home / "out", "wb") as out:
                life.process = subprocess.Popen([BUILD / "kldumpctl", "run", *arguments], env=environment, cwd=life.home,
                                                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        else:
            with self.control() as control:
                control.call("start", arguments=arguments, directory=str(life.home),
                             environment=[f"{key}={value}" for key, value in environment.items()])

    def send(self, port):
        subprocess.run(["/usr/bin/python3", "-B", Path(__file__).parent / "send.py", f"http://127.0.0.1:{port}", "--new", "3"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=30)

    def control(self):
        return Control(self.runtime / "control")

    def guard(self, life):
        if self.wrapper:
            return life.process.pid if life.process is not None else None
        try:
            return self.host_pid(json.loads((self.runtime / f"owned/{life.name}.json").read_text())["pid"])
        except (OSError, ValueError):
            return None

    def host_pid(self, pid):
        return pid

    def listed(self):
        with self.control() as control:
            return {run["name"]: run for run in control.call("list")["runs"]}

    def close(self, lives):
        for life in lives:
            if life.process is not None and life.process.poll() is None:
                life.process.kill()
                life.process.wait()
            for pid in life.living():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        self.place.__exit__()


class GuestWorld(World):
    """The daemon is a service of a booted systemd, or of a user's; runs are transient units, asked for by that user."""

    def __init__(self, setup, guest, user):  # pylint: disable=super-init-not-called
        self.setup, self.wrapper, self.guest, self.user, self.place = setup, False, guest, user, None
        self.home = guest.shared / f"h-{setup}"
        self.home.mkdir(exist_ok=True)
        self.home.chmod(0o1777)
        self.uid = guest.run("id", "-u", user).stdout.strip()
        self.for_all = setup == "system"
        self.inside_runtime = "/run/kldump" if self.for_all else f"/run/user/{self.uid}/kldump"
        self.runtime = Path(f"/proc/{guest.pid}/root{self.inside_runtime}")
        self.runs = self.runtime / "runs"
        self.environment = LOAD
        self.namespace = os.readlink(f"/proc/{guest.pid}/ns/pid")

    def inside(self, path):
        return str(path).replace(str(self.guest.shared), "/t")

    def python(self):
        return "/t/python3"

    def as_user(self, *command, directory="/", environment=None, check=True):
        variables = [f"{key}={value}" for key, value in {"XDG_RUNTIME_DIR": f"/run/user/{self.uid}", "HOME": f"/home/{self.user}",
                                                         **(environment or {})}.items()]
        return self.guest.run("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--init-groups", "env", "-C", directory,
                              *variables, *command, check=check)

    def systemctl(self, *arguments, check=True):
        if self.for_all:
            return self.guest.run("systemctl", *arguments, check=check)
        return self.as_user("systemctl", "--user", *arguments, check=check)

    def start_daemon(self):
        if not self.for_all:
            self.guest.run("systemctl", "start", f"user@{self.uid}.service")
        self.systemctl("reset-failed", "kldumpd.service", check=False)
        if not self.for_all and self.systemctl("cat", "kldumpd.service", check=False).returncode != 0:
            self.as_user("systemd-run", "--user", "-q", "--unit=kldumpd.service", "-p", "Type=notify", "-p", "Restart=on-failure",
                         "-p", "KillMode=process", "kldumpd")
            return
        self.systemctl("start", "kldumpd.service")

    def kill_daemon(self):
        self.systemctl("kill", "-s", "KILL", "--kill-whom=main", "kldumpd.service")

    def daemon_is_back(self):
        wait_for(self.connect, 20, "the daemon that systemd has started again").close()

    def connect(self):
        try:
            return self.control()
        except (OSError, EOFError):
            return None

    def launch(self, life):
        arguments, environment = self.plan(life)
        life.home.chmod(0o777)
        own = {key: value for key, value in environment.items() if key.startswith("KLDUMP_")}
        self.as_user("kldumpctl", "start", "--no-wait", *arguments, directory=self.inside(life.home), environment=own)

    def host_pid(self, pid):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") == self.namespace and \
                        f"\t{pid}\n" in Path(f"/proc/{entry}/status").read_text().partition("NSpid:")[2].partition("\n")[0] + "\n":
                    return int(entry)
            except OSError:
                pass
        return None

    def close(self, lives):
        for life in lives:
            self.as_user("kldumpctl", "stop", life.name, "--now", check=False)
        self.systemctl("stop", "kldumpd.service", check=False)


def keeper_of(guard):
    return next((pid for pid in children_of(guard) if "kldump-keeper" in title_of(pid)), None)


def victims_of(world, life, limit=10):
    """Its guard and keeper as far as they are to be killed; a run that is too young is waited for; None: it is over."""
    end = time.monotonic() + limit
    while time.monotonic() < end and not life.finished and life.failed is None:
        guard = world.guard(life)
        keeper = keeper_of(guard) if guard else None
        if keeper:
            return [pid for kind, pid in (("g", guard), ("k", keeper)) if kind in life.kinds]
        if life.record().get("state") == "ended":
            return None
        time.sleep(0.01)
    return None


def hit(world, lives, with_daemon):
    """Kills them all at once; what each was at goes into it."""
    for life in lives:
        life.victims = victims_of(world, life)
    for life in lives:
        life.state = life.record().get("state", "none")
        life.over = life.victims is None or life.state == "ended"
    moment = time.monotonic()
    for life in lives:  # stopped first, so that neither does the other's work
        for pid in life.victims or () if "gk" in life.kinds else ():
            send(pid, signal.SIGSTOP)
    if with_daemon:
        world.kill_daemon()
    for life in lives:
        for pid in life.victims or ():
            send(pid, signal.SIGKILL)
    return moment


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def watch_deaths(lives, moment):
    """Seconds from the hit until the last process of each was gone; None: some live on."""
    waiting = [life for life in lives if not life.over]
    for life in lives:
        life.gone_s = 0.0 if life.over else None
    while waiting and time.monotonic() < moment + GONE_S:
        for life in list(waiting):
            if not life.living():
                life.gone_s = time.monotonic() - moment
                waiting.remove(life)
        time.sleep(0.02)


def settled(world, lives):
    """[the list] in which all have ended, as far as the list can know of them; else None. Who was led to its end is in it: a
    guard that has told its end may not have called in at a new daemon yet."""
    listed = world.listed()
    states = [(life, listed.get(life.name, {}).get("state")) for life in lives]
    return [listed] if all(state == "ended" or not life.finished and state in ("unknown", None) for life, state in states) else None


def run_cells(world, rows, numbers, points=POINTS):
    """All cells of these rows, which either all have the daemon among the victims or none: row -> lives at the points NUMBERS, each
    with what became of it."""
    with_daemon, chance = "d" in ROWS[rows[0]], random.Random(f"{SEED}/{world.setup}/{rows}/{numbers}")
    cells = {row: [Life(world, f"{row.replace('+', '-')}-{number}") for number in numbers] for row in rows}
    lives = [life for row in rows for life in cells[row]]
    for row in rows:
        for number, life in zip(numbers, cells[row]):
            life.kinds, life.age = ROWS[row], (number + chance.random()) / points * LIFE_S
    try:
        world.start_daemon()
        begin = time.monotonic()
        for life in sorted(lives, key=lambda life: -life.age):
            time.sleep(max(0, begin + LIFE_S - life.age - time.monotonic()))
            life.thread.start()
        time.sleep(max(0, begin + LIFE_S - time.monotonic()))
        moment = hit(world, lives, with_daemon)
        for life in lives:
            guard = world.guard(life)
            life.lives_on = life.over or guard is None or is_alive(guard) or life.record().get("outcome") == "stopped"  # in this moment
        if with_daemon:
            world.daemon_is_back()
            back = time.monotonic()
            listed = world.listed()
            for life in lives:
                life.listed_s, life.row = time.monotonic() - back, listed.get(life.name, {})
        killed = [life for life in lives if life.kinds != "d"]
        watch_deaths(killed, moment)
        for life in lives:
            life.thread.join(60)
        try:
            [listed] = wait_for(lambda: settled(world, lives), 20, "the end of all in the list")
        except AssertionError as late:
            raise AssertionError(f"{late}: {[(run['name'], run['state'], run['outcome']) for run in world.listed().values()]} "
                                 f"{[(life.name, life.state, life.over, life.failed, life.victims) for life in lives]}") from late
        for life in lives:
            life.after = listed.get(life.name, {})
            life.left = [title_of(pid) for pid in life.living()]
        return cells
    finally:
        world.close(lives)


def tell(lives):
    return "\n".join(f"{life.name}: hit at {life.age:.2f} s ({life.state}{', over' if life.over else ''}), gone after {getattr(life, 'gone_s', None)}, "
                     f"left {life.left}, list {life.after.get('state')} {life.after.get('outcome')} {life.after.get('exit_status')} "
                     f"{life.after.get('message', '')!r}, {life.failed!r}" for life in lives) + f"\nKLDUMP_TEST_SEED={SEED}"
