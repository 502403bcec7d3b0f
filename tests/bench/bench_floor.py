#!/usr/bin/env python3
"""What is left of a small disk when a run fills it, and how long the kill takes: kldump beside what people use instead. Root
(mounts a tmpfs). Run by `make bench` in the build folder; figures as a table, and as JSON in bench_floor.json.

  bench_floor.py [RUNS [OTHER_RUNS]]     runs of each load under kldump (5; 50 for figures that are kept), and under each other (3)
"""
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BUILD = Path.cwd()
RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
OTHER_RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
GIB, MIB = 1 << 30, 1 << 20
DISK, FLOOR, PROCESSES, INODES = 6 * GIB, 1 * GIB, 4, 5000
LOADS = {  # name: processes, bytes/s (0: as fast as it goes), files/s, inodes of the disk (0: plenty)
    f"{PROCESSES} writers at memory speed": (PROCESSES, 0, 0, 0),
    "1 GB/s": (PROCESSES, 1e9, 0, 0),
    "1,000 small files/s": (1, 0, 1000, INODES),
}
SHELL = """
while :; do
    free=$(df --output=avail -B1 "$1" | tail -n 1)
    if [ "$free" -lt "$2" ]; then kill -s KILL -- "-$3"; exit; fi
    sleep "$4"
done
"""
POLLER = """
import os, signal, sys, time
disk, floor, group, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
while (s := os.statvfs(disk)).f_bavail * s.f_frsize >= floor:
    time.sleep(pause)
os.killpg(group, signal.SIGKILL)
"""
OTHERS = {
    "shell: df each second, kill -9": (["sh", "-c", SHELL, "sh"], "1"),
    "poller, every 10 s": ([sys.executable, "-c", POLLER], "10"),
    "poller, every 100 ms": ([sys.executable, "-c", POLLER], "0.1"),
}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Disk:
    """A tmpfs of its own; everything that is on it goes with it."""

    def __init__(self, work, inodes):
        self.path, self.inodes = work / "disk", inodes

    def __enter__(self):
        self.path.mkdir()
        options = f"size={DISK}" + (f",nr_inodes={self.inodes}" if self.inodes else "")
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "kldump-bench", self.path], check=True)
        return self.path

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=True)
        self.path.rmdir()


class Deaths(threading.Thread):
    """When the last of the writers was dead, as seen by somebody who waits for just that."""

    def __init__(self, clock):
        super().__init__(daemon=True)
        self.clock, self.last_ns, self.wanted = clock, 0, True

    def run(self):
        held = {}
        poll = select.poll()
        while self.wanted and (len(held) == 0 or held.keys() != {row[3] for row in rows(self.clock) if row[3]} or len(held) < self.expected):
            for row in rows(self.clock):
                if row[3] and row[3] not in held:
                    held[row[3]] = os.pidfd_open(row[3])
                    poll.register(held[row[3]], select.POLLIN)
            time.sleep(0.002)
        left = set(held.values())
        while left and self.wanted:
            for descriptor, _ in poll.poll(1000):
                self.last_ns = time.monotonic_ns()
                poll.unregister(descriptor)
                left.discard(descriptor)
        for descriptor in held.values():
            os.close(descriptor)


def rows(clock):
    try:
        raw = clock.read_bytes()
    except OSError:
        return []
    return [struct.unpack_from("<QQQQ", raw, 32 * i) for i in range(len(raw) // 32)]


def marks(clock):
    written = [row for row in rows(clock) if row[2]]
    last, first = max(row[0] for row in written), min(row[1] for row in written)
    return last, sum(row[2] for row in written) / ((last - first) / 1e9)


def free_of(disk):
    s = os.statvfs(disk)
    return s.f_bavail * s.f_frsize, s.f_favail


def writer(disk, clock, load):
    return [BUILD / "tests/bench/floor_writer", disk, clock, str(load[0]), str(load[1]), str(load[2])]


def guarded(work, runtime, load):
    with Disk(work, load[3]) as disk:
        clock = work / "clock"
        clock.unlink(missing_ok=True)
        deaths = Deaths(clock)
        deaths.expected = load[0]
        deaths.start()
        command = [BUILD / "kldumpctl", "run", "--name", "bench", "--dir", disk / "dumps", "--floor", f"{FLOOR}B", "--", *writer(disk, clock, load)]
        done = subprocess.run(command, env=dict(os.environ, KLDUMP_RUNTIME_DIR=str(runtime)), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        deaths.join(5)
        deaths.wanted = False
        if done.returncode != 83:
            sys.exit(f"bench_floor: kldumpctl run ended with {done.returncode}, expected 83 (floor)\n{done.stderr}")
        record = json.loads((runtime / "runs/bench/record.json").read_text())
        kill, space = record["floor_kill"], record["run"]["space"]
        lowest, inodes = free_of(disk)
        last, rate = marks(clock)
        crossed = inodes < space["floor_inodes"] if load[3] else lowest < FLOOR
        above = inodes - space["floor_inodes"] if load[3] else lowest - FLOOR
        return {"lowest_bytes": lowest, "lowest_inodes": inodes, "above_floor": above, "crossed": crossed, "act_bytes": space["act_bytes"],
                "bytes_per_s": rate, "last_byte_ms": max(0, last - kill["decided_ns"]) / 1e6,
                "dead_ms": (deaths.last_ns - kill["decided_ns"]) / 1e6, "looks": kill["looks_in_last_4_gib"]}


def by_other(work, command, pause, load):
    with Disk(work, load[3]) as disk:
        clock = work / "clock"
        clock.unlink(missing_ok=True)
        filler = subprocess.Popen(writer(disk, clock, load), start_new_session=True)
        watchdog = subprocess.Popen([*command, disk, str(FLOOR), str(filler.pid), pause])
        try:
            filler.wait(timeout=60)
            time.sleep(0.1)
            lowest, inodes = free_of(disk)
            return {"lowest_bytes": lowest, "lowest_inodes": inodes, "above_floor": lowest - FLOOR, "crossed": lowest < FLOOR,
                    "bytes_per_s": marks(clock)[1]}
        finally:
            for process in (filler, watchdog):
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                process.wait()


def show(title, results, unit):
    rate = percentile([r["bytes_per_s"] for r in results], 0.5)
    scale = 1 if unit == "inodes" else MIB
    line = f"{title:<32} {rate / 1e9:6.3f} {min(r['above_floor'] for r in results) / scale:+9.0f} {unit:<6} {sum(r['crossed'] for r in results):3}/{len(results):<3}"
    if "dead_ms" in results[0]:
        for key in ("last_byte_ms", "dead_ms"):
            values = [r[key] for r in results]
            line += "  " + " ".join(f"{percentile(values, share):6.2f}" for share in (0.5, 0.9, 0.99))
        line += f"  {max(r['looks'] for r in results):5}"
    print(line, flush=True)


def main():
    if os.geteuid() != 0:
        sys.exit("bench_floor: needs root to mount a tmpfs")
    work = Path(tempfile.mkdtemp(prefix="kldump-bench-"))
    runtime = work / "r"
    runtime.mkdir(mode=0o700)
    figures = {"schema": "kldump.bench-floor/1", "disk_bytes": DISK, "floor_bytes": FLOOR, "processors": os.cpu_count(),
               "load_average": os.getloadavg(), "kldump": {}, "others": {}}
    try:
        print(f"tmpfs of {DISK // GIB} GiB, floor {FLOOR // GIB} GiB; in the last load {INODES} inodes, of which 10 % are the floor; "
              f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}")
        print(f"{'':<32} {'':>6} {'lowest':>9} {'':<6} {'':>7}  {'decision to last byte':>20}  {'decision to all dead':>20}  {'looks':>5}")
        print(f"{'':<32} {'GB/s':>6} {'- floor':>9} {'':<6} {'crossed':>7}  {'p50':>6} {'p90':>6} {'p99':>6}  {'p50':>6} {'p90':>6} {'p99':>6}  {'4 GiB':>5}")
        for name, load in LOADS.items():
            results = figures["kldump"][name] = [guarded(work, runtime, load) for _ in range(RUNS)]
            show(f"kldump: {name}", results, "inodes" if load[3] else "MiB")
        load = next(iter(LOADS.values()))
        for name, (command, pause) in OTHERS.items():
            results = figures["others"][name] = [by_other(work, command, pause, load) for _ in range(OTHER_RUNS)]
            show(name, results, "MiB")
        Path("bench_floor.json").write_text(json.dumps(figures, indent=1) + "\n")
        if any(result["crossed"] for results in figures["kldump"].values() for result in results):
            sys.exit("bench_floor: the floor was crossed")
    finally:
        shutil.rmtree(work)


main()
