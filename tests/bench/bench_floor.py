#!/usr/bin/env python3
"""What is left of a small disk when everything is written at memory speed, and how long the kill takes: kldump beside a shell
watchdog. Root (mounts a tmpfs). Run by `make bench` in the build folder.

  bench_floor.py [RUNS [SHELL_RUNS]]
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path.cwd()
RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
SHELL_RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
GIB, MIB = 1 << 30, 1 << 20
DISK, FLOOR, THREADS = 4 * GIB, 1 * GIB, os.cpu_count() or 1
WATCHDOG = """
while :; do
    free=$(df --output=avail -B1 "$1" | tail -n 1)
    if [ "$free" -lt "$2" ]; then kill -s KILL -- "-$3"; exit; fi
    sleep 1
done
"""


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Disk:
    """A tmpfs of its own; everything that is on it goes with it."""

    def __init__(self, work):
        self.path = work / "disk"

    def __enter__(self):
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "kldump-bench", self.path], check=True)
        return self.path

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=True)
        self.path.rmdir()


def free_bytes(path):
    s = os.statvfs(path)
    return s.f_bavail * s.f_frsize


def marks(clock):
    raw = clock.read_bytes()
    rows = [struct.unpack_from("<QQQQ", raw, 32 * i) for i in range(THREADS)]
    last, first = max(r[0] for r in rows), min(r[1] for r in rows if r[1])
    return last, sum(r[2] for r in rows) / ((last - first) / 1e9)


def dirty_pages(path):
    """2 GiB that the kernel has not written back yet, on the disk that holds the record."""
    with open(path, "wb", buffering=0) as out:
        block = os.urandom(MIB)
        for _ in range(2048):
            out.write(block)


def guarded(work, runtime, dirty):
    with Disk(work) as disk:
        clock = work / "clock"
        if dirty:
            dirty_pages(runtime / "dirty")
        command = [BUILD / "kldumpctl", "run", "--name", "bench", "--dir", disk / "dumps", "--floor", str(FLOOR) + "B", "--",
                   BUILD / "tests/bench/floor_writer", disk, clock, str(THREADS)]
        done = subprocess.run(command, env=dict(os.environ, KLDUMP_RUNTIME_DIR=str(runtime)), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 83:
            sys.exit(f"bench_floor: kldumpctl run ended with {done.returncode}, expected 83 (floor)\n{done.stderr}")
        record = json.loads((runtime / "runs/bench/record.json").read_text())
        if not record.get("floor_kill"):
            sys.exit(json.dumps(record, indent=1))
        kill, lowest = record["floor_kill"], free_bytes(disk)
        last, rate = marks(clock)
        return {"lowest": lowest, "act": record["run"]["space"]["act_bytes"], "rate": rate,
                "last_byte_ms": max(0, last - kill["decided_ns"]) / 1e6, "dead_ms": (kill["gone_ns"] - kill["decided_ns"]) / 1e6}


def by_shell(work):
    with Disk(work) as disk:
        clock = work / "clock"
        writer = subprocess.Popen([BUILD / "tests/bench/floor_writer", disk, clock, str(THREADS)], start_new_session=True)
        watchdog = subprocess.Popen(["sh", "-c", WATCHDOG, "sh", disk, str(FLOOR), str(writer.pid)])
        try:
            writer.wait(timeout=30)
            lowest = free_bytes(disk)
            return {"lowest": lowest, "rate": marks(clock)[1]}
        finally:
            for process in (writer, watchdog):
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                process.wait()


def show(title, results):
    lowest = min(r["lowest"] for r in results)
    rate = percentile([r["rate"] for r in results], 0.5)
    line = f"{title:<34} {rate / 1e9:5.1f} {lowest / MIB:9.0f} {(lowest - FLOOR) / MIB:+9.0f}"
    if "dead_ms" in results[0]:
        for key in ("last_byte_ms", "dead_ms"):
            values = [r[key] for r in results]
            line += f"  {percentile(values, 0.5):7.2f} {percentile(values, 0.99):7.2f}"
    print(f"{line}  {len(results):4}", flush=True)


def main():
    if os.geteuid() != 0:
        sys.exit("bench_floor: needs root to mount a tmpfs")
    work = Path(tempfile.mkdtemp(prefix="kldump-bench-"))
    runtime = work / "r"
    runtime.mkdir(mode=0o700)
    try:
        print(f"disk {DISK // GIB} GiB tmpfs, floor {FLOOR // MIB} MiB, {THREADS} writers at memory speed")
        print(f"{'':<34} {'GB/s':>5} {'lowest':>9} {'against':>9}  {'decision to':>15}  {'decision to':>15}")
        print(f"{'':<34} {'':>5} {'MiB free':>9} {'floor MiB':>9}  {'last byte ms':>15}  {'all dead ms':>15}")
        print(f"{'':<34} {'':>5} {'':>9} {'':>9}  {'median':>7} {'p99':>7}  {'median':>7} {'p99':>7}  runs")
        show("kldump", [guarded(work, runtime, False) for _ in range(RUNS)])
        show("kldump, 2 GiB dirty at the record", [guarded(work, runtime, True) for _ in range(max(1, RUNS // 3))])
        show("shell: df each second, kill -9", [by_shell(work) for _ in range(SHELL_RUNS)])
    finally:
        shutil.rmtree(work)


main()
