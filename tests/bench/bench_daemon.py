#!/usr/bin/python3
"""kldumpd with many runs at once, on the stand-in: how fast it answers, what it costs, whether it grows. Run by `make bench`.

  bench_daemon.py [--runs N] [--rate N] [--seconds S] [--churn-runs N] [--churn-seconds S]

Figures as a table, and as JSON in bench_daemon.json. With --churn-runs 500 --churn-seconds 600 those that are kept. Latencies count
from when a request was due. Beside them what one would otherwise take: `ps` and `df` for each run.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("KLDUMP_BUILD", os.getcwd())
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
from kldump_programs import BUILD, ControlError, Place, wait_for  # noqa: E402

STARTERS = 4
CONNECTIONS = 8
LIMIT_P99_MS, LIMIT_FOUND_S = 5, 1
RETAINED = 80  # what ended runs left, of one user: the newest 64, and some more that are under way


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_ns(pid):
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def memory_kb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def look(pid):
    """What must not grow."""
    children = [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    states = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] for child in children if Path(f"/proc/{child}").exists()]
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "rss_kb": memory_kb(pid), "threads": len(os.listdir(f"/proc/{pid}/task")),
            "zombies": states.count("Z")}


class Runs:
    """The runs of a place; `names` are those that live."""

    def __init__(self, place):
        self.place, self.names = place, []

    def start(self, name):
        with self.place.control() as control:
            control.call("start", **self.place.plan(name))
            run = control.call("wait", run=name, **{"for": "armed", "timeout_ms": 30000})["run"]
        if run["state"] != "armed":
            sys.exit(f"bench_daemon: run {name} is {run['state']}: {run['message']}")

    def start_all(self, count):
        names = [f"b-{number}" for number in range(count)]

        def work(first):
            for name in names[first::STARTERS]:
                self.start(name)
                self.names.append(name)
        in_parallel(work, STARTERS)

    def stop(self, name):
        with self.place.control() as control:
            control.call("stop", run=name)
            control.call("wait", run=name, **{"for": "ended", "timeout_ms": 30000})


def start_daemon(place):
    """With room for those that come and go; everybody here is one user."""
    rules = place.folder / "kldumpd.conf"
    rules.write_text("[limits]\nruns_per_user = 1000\n")
    place.daemon = subprocess.Popen([BUILD / "kldumpd", "--rules", rules], env=place.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)


def in_parallel(work, count):
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as failure:  # also sys.exit: told by the main thread
            failures.append(failure)
    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# ---- the parts

def idle(place, seconds):
    pid = place.daemon.pid
    before = cpu_ns(pid)
    time.sleep(seconds)
    return {"cpu_percent": (cpu_ns(pid) - before) / seconds / 1e7, **look(pid)}


def asks(place, runs, method, connections, rate, seconds):
    command = [BUILD / "tests/bench/request_load", place.runtime / "control", str(connections), str(rate), str(seconds), method,
               *(runs.names if method == "status" else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def load(place, runs, method, connections, rate, seconds, beside=None):
    """BESIDE: a second load, whose answers are not counted."""
    pid = place.daemon.pid
    before = cpu_ns(pid)
    other = asks(place, runs, *beside, seconds) if beside else None
    found = json.loads(asks(place, runs, method, connections, rate, seconds).communicate()[0])
    if other:
        other.communicate()
    return {**found, "daemon_cpu_ms_per_request": (cpu_ns(pid) - before) / 1e6 / found["asked"]}


def programs(place, runs):
    """A person's look, each a process of its own: at one run, and at all of them."""
    folders = {name: place.folder / f"dumps-{name}" for name in runs.names}
    with place.control() as control:
        pids = {run["name"]: run["pid"] for run in control.call("list")["runs"]}
    one = f"ps -o pid,stat,etime,args -p {pids[runs.names[0]]}; df -B1 --output=avail {folders[runs.names[0]]}"
    every = "".join(f"ps -o pid,stat,etime,args -p {pids[name]}; df -B1 --output=avail {folders[name]};" for name in runs.names)
    kinds = {"kldumpctl status RUN": ([BUILD / "kldumpctl", "status", runs.names[0]], 100), "ps, df of one run": (["sh", "-c", one], 100),
             "kldumpctl list": ([BUILD / "kldumpctl", "list"], 30), f"ps, df of {len(runs.names)} runs": (["sh", "-c", every], 10)}
    found = {}
    for name, (command, times) in kinds.items():
        took = []
        for _ in range(times):
            begin = time.monotonic()
            subprocess.run(command, env=place.environment, stdout=subprocess.DEVNULL, check=True)
            took.append((time.monotonic() - begin) * 1e3)
        found[name] = {"p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}
    return found


def is_right(run, before):
    return (run["state"], run["guard_pid"], run["pid"]) == ("armed", before["guard_pid"], before["pid"])


def connect(place):
    while True:
        with contextlib.suppress(OSError):
            return place.control()
        time.sleep(0.001)


def restart(place, runs, number):
    """Seconds from the start of the new daemon to: it takes requests, `list` is right, each run has answered for itself."""
    with place.control() as control:
        before = {run["name"]: run for run in control.call("list")["runs"] if run["name"] in runs.names}
    place.kill_daemon(number)
    begin = time.monotonic()
    start_daemon(place)
    with connect(place) as control:
        serves = time.monotonic() - begin
        while not all(is_right(run, before[run["name"]]) for run in control.call("list")["runs"] if run["name"] in before):
            pass
        listed = time.monotonic() - begin
        asked = [control.send("status", run=name) for name in runs.names]
        for _ in asked:
            run = control.receive()["result"]["run"]
            if not is_right(run, before[run["name"]]):
                sys.exit(f"bench_daemon: after a restart {run['name']} is {run['state']} with guard {run['guard_pid']}")
        return {"serves_s": serves, "list_s": listed, "status_s": time.monotonic() - begin}


def cgroups():
    """Of the runs that came and went."""
    return sum(1 for _, folders, _ in os.walk("/sys/fs/cgroup") for folder in folders if folder.startswith("kldump") and "-c-" in folder)


def churn(place, runs, count, seconds):
    """COUNT runs started and stopped at a steady pace beside those that live; what the daemon holds when as many have ended as it keeps
    in mind, and at the end."""
    pid = place.daemon.pid
    begin, looks = time.monotonic(), []

    def work(first):
        for number in range(first, count, STARTERS):
            time.sleep(max(0, begin + number * seconds / count - time.monotonic()))
            name = f"c-{number}"
            try:
                runs.start(name)
                runs.stop(name)
            except ControlError as problem:
                sys.exit(f"bench_daemon: {name}: {problem}")

    stop = threading.Event()

    def watch():
        while not stop.wait(seconds / 200):
            looks.append(look(pid))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        in_parallel(work, STARTERS)
    finally:
        stop.set()
        watcher.join()
    time.sleep(1)
    end = look(pid)
    early = looks[min(len(looks) - 1, len(looks) * RETAINED // count if count > RETAINED else len(looks) // 2)]
    with place.control() as control:
        shown = len(control.call("list")["runs"])
    return {"runs": count, "seconds": time.monotonic() - begin, "early": early, "end": end,
            "most": {key: max(one[key] for one in looks) for key in end}, "cgroups": cgroups(),
            "run_folders": len(list((place.runtime / "runs").iterdir())), "listed": shown,
            "runtime_kb": int(subprocess.run(["du", "-sk", place.runtime], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0])}


# ---- all of it

def latency(title, one):
    print(f"{title:<40} {one['per_s']:7.0f}/s {one['p50_ms']:8.2f} {one['p99_ms']:8.2f} {one['max_ms']:8.2f} ms   "
          f"errors {one['errors']}, {one['daemon_cpu_ms_per_request']:.2f} ms of kldumpd each", flush=True)


def measure(place, options):
    found = {"schema": "kldump.bench-daemon/1", "processors": os.cpu_count(), "load_average": os.getloadavg(), "runs": options.runs}
    start_daemon(place)
    connect(place).close()
    runs = Runs(place)
    begin = time.monotonic()
    runs.start_all(options.runs)
    found["armed_s"] = time.monotonic() - begin
    time.sleep(2)
    one = found["idle"] = idle(place, options.idle_seconds)
    print(f"{options.runs} runs armed in {found['armed_s']:.1f} s; kldumpd with them at rest: {one['cpu_percent']:.3f} % of a processor, "
          f"{one['rss_kb']} kB, {one['descriptors']} descriptors, {one['threads']} threads", flush=True)
    print(f"{'':<40} {'':>9} {'p50':>8} {'p99':>8} {'max':>8}")
    found["status"] = load(place, runs, "status", CONNECTIONS, options.rate, options.seconds)
    latency("status, 8 connections", found["status"])
    found["status_beside_list"] = load(place, runs, "status", CONNECTIONS, options.rate, options.seconds / 3, beside=("list", 1, 2))
    latency("status, with 2 lists a second beside", found["status_beside_list"])
    found["list"] = load(place, runs, "list", 1, 10, options.seconds / 3)
    latency(f"list of {options.runs} runs", found["list"])
    found["programs"] = programs(place, runs)
    for name, one in found["programs"].items():
        print(f"{name:<40} {'':>9} {one['p50_ms']:8.2f} {one['p99_ms']:8.2f}", flush=True)
    found["restart"] = {}
    for name, number in (("killed", signal.SIGKILL), ("ended by TERM", signal.SIGTERM)):
        rounds = found["restart"][name] = [restart(place, runs, number) for _ in range(5)]
        print(f"{name} and started again, worst of 5: serves after {max(r['serves_s'] for r in rounds):.3f} s, list right "
              f"{max(r['list_s'] for r in rounds):.3f} s, {options.runs} runs have answered {max(r['status_s'] for r in rounds):.3f} s", flush=True)
    one = found["churn"] = churn(place, runs, options.churn_runs, options.churn_seconds)
    print(f"{one['runs']} runs started and stopped in {one['seconds']:.0f} s beside them (early -> end): "
          + ", ".join(f"{key} {one['early'][key]} -> {one['end'][key]}" for key in one["end"])
          + f"; {one['cgroups']} cgroups of them left, {one['run_folders']} folders of runs of {one['runtime_kb']} kB", flush=True)
    found["status_after"] = load(place, runs, "status", CONNECTIONS, options.rate, options.seconds / 3, beside=("list", 1, 2))
    latency("the same, after that", found["status_after"])
    found["list_after"] = load(place, runs, "list", 1, 10, options.seconds / 3)
    latency(f"list of {one['listed']} runs", found["list_after"])
    return found


def judge(found):
    failed = []
    if found["status"]["errors"] or found["status"]["p99_ms"] >= LIMIT_P99_MS:
        failed.append(f"status: p99 must be below {LIMIT_P99_MS} ms, without an error")
    if max(one["status_s"] for rounds in found["restart"].values() for one in rounds) >= LIMIT_FOUND_S:
        failed.append(f"restart: all runs must be found again within {LIMIT_FOUND_S} s")
    early, end = found["churn"]["early"], found["churn"]["end"]
    if end["descriptors"] > early["descriptors"] + 4 or end["rss_kb"] > early["rss_kb"] + 1536 or end["zombies"] or found["churn"]["cgroups"]:
        failed.append("churn: descriptors, memory, zombies or cgroups grew")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1000, help="status requests a second")
    parser.add_argument("--seconds", type=float, default=30, help="of status requests")
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--churn-runs", type=int, default=100)
    parser.add_argument("--churn-seconds", type=float, default=120)
    options = parser.parse_args()
    with Place() as place:
        found = measure(place, options)
    Path("bench_daemon.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    failed = judge(found)
    if failed:
        sys.exit("bench_daemon: " + "; ".join(failed))


main()
