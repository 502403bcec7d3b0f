#!/usr/bin/env python3
"""What guard and keeper cost while an armed server idles: processor time, memory of their own, wake-ups. Run by `make bench`.

  bench_idle.py [SECONDS]
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path.cwd()
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60


def figures(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    anonymous = int(re.search(r"^Anonymous:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M).group(1))
    switches = sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", task.read_text(), re.M).group(1))
                   for task in Path(f"/proc/{pid}/task").glob("*/status"))
    return ticks / os.sysconf("SC_CLK_TCK"), anonymous, switches


def keeper_of(pid):
    return next(int(p.name) for p in Path("/proc").glob("[0-9]*")
                if (p / "stat").exists() and (p / "stat").read_text().rpartition(")")[2].split()[1] == str(pid)
                and (p / "comm").read_text().startswith("kldump-keeper"))


def main():
    work = Path(tempfile.mkdtemp(prefix="kldump-bench-"))
    (work / "r").mkdir(mode=0o700)
    (work / "python3").symlink_to(BUILD / "kldump-standin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = dict(os.environ, KLDUMP_RUNTIME_DIR=str(work / "r"))
    run = subprocess.Popen([BUILD / "kldumpctl", "run", "--name", "idle", "--dir", work / "dumps", "--floor", "1M", "--", work / "python3",
                            "-m", "sglang.launch_server", "--model-path", "M", "--port", str(port)],
                           env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while run.poll() is None and not (work / "r/runs/idle/control").exists():
            time.sleep(0.05)
        subprocess.run([BUILD / "kldumpctl", "wait", "idle", "--for", "armed", "--timeout", "60s"], env=environment, check=True,
                       stdout=subprocess.DEVNULL)
        pids = {"guard": run.pid, "keeper": keeper_of(run.pid)}
        before = {name: figures(pid) for name, pid in pids.items()}
        time.sleep(SECONDS)
        print(f"idle for {SECONDS:.0f} s      CPU ms  anonymous kB  wake-ups/s")
        for name, pid in pids.items():
            cpu, anonymous, switches = figures(pid)
            print(f"{name:<18} {1000 * (cpu - before[name][0]):10.0f} {anonymous:13} {(switches - before[name][2]) / SECONDS:11.1f}")
    finally:
        run.terminate()  # an orderly stop
        run.wait()
        shutil.rmtree(work)


main()
