#!/usr/bin/env python3
"""What guard and keeper cost while an armed server idles: processor time, memory, wake-ups. Run by `make bench`; figures as JSON
in bench_idle.json.

  bench_idle.py [SECONDS]
"""
import json
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
    """Processor time in ns as the scheduler counts it, memory in kB, and counts that must stay as they are."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {"cpu_ns": sum(int((task / "schedstat").read_text().split()[0]) for task in tasks),
            "anonymous_kb": int(re.search(r"^Anonymous:\s+(\d+)", rollup, re.M).group(1)),
            "rss_kb": int(re.search(r"^Rss:\s+(\d+)", rollup, re.M).group(1)),
            "wakeups": sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M).group(1)) for task in tasks),
            "threads": len(tasks), "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


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
        shown = {}
        print(f"idle for {SECONDS:.0f} s {'':<6} {'CPU ms':>7} {'CPU %':>7} {'anonymous kB':>13} {'RSS kB':>7} {'wake-ups/s':>11} {'threads':>8} {'fds':>8}")
        for name, pid in pids.items():
            was, now = before[name], figures(pid)
            cpu_ms = (now["cpu_ns"] - was["cpu_ns"]) / 1e6
            shown[name] = {**now, "cpu_ms": cpu_ms, "cpu_percent": cpu_ms / SECONDS / 10, "wakeups_per_s": (now["wakeups"] - was["wakeups"]) / SECONDS}
            print(f"{name:<18} {cpu_ms:7.1f} {cpu_ms / SECONDS / 10:7.4f} {now['anonymous_kb']:13} {now['rss_kb']:7} "
                  f"{shown[name]['wakeups_per_s']:11.1f} {was['threads']:>3}->{now['threads']:<3} {was['descriptors']:>3}->{now['descriptors']:<3}")
        Path("bench_idle.json").write_text(json.dumps({"schema": "kldump.bench-idle/1", "seconds": SECONDS, **shown}, indent=1) + "\n")
    finally:
        run.terminate()  # an orderly stop
        run.wait()
        shutil.rmtree(work)


main()
