#!/usr/bin/env python3
"""What only a GPU can show: runs kldump around a real SGLang whose graphs are on unless it is told otherwise.

  gpu_check.py [--build FOLDER] [--port PORT] [--report FILE] -- CMD...

CMD starts the server, listens on PORT, and takes further flags at its end. FOLDER holds kldumpctl (default: the PATH).
Four runs, each a start of the server:

  graphs        no flag of kldump's reaches the server: verification must fail and name the decode graphs
  prefill       decode graphs off alone: verification must fail and name the prefill graphs
  dump          all flags: armed, one dump around a client, sealed complete, stopped in order
  floor         a prompt of thousands of tokens on a small tmpfs: killed at the floor, which is never crossed

Prints a line for each expectation and writes what was measured as JSON. Exit status 1 when one was not met, 3 when this
machine has no GPU. Standard library only; mounting the tmpfs needs root.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SEND = Path(__file__).resolve().parents[1] / "integration" / "send.py"
START_LIMIT_S = 400
PROBLEMS = []


def expect(fine, what):
    print(f"{'ok  ' if fine else 'FAIL'} {what}", flush=True)
    if not fine:
        PROBLEMS.append(what)


def gpu_memory_mib():
    line = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    return sum(int(part) for part in line.split())


class Run:
    """One guarded run in a folder of its own."""

    def __init__(self, options, name, arguments, flags):
        self.name, self.options = name, options
        self.folder = Path(tempfile.mkdtemp(prefix=f"kldump-gpu-{name}-"))
        script = self.folder / "serve"
        words = " ".join(f"'{word}'" for word in options.command)
        script.write_text(f"#!/bin/bash\nexec {words} \"$@\" {flags}\n")
        script.chmod(0o755)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.folder))
        self.log = open(self.folder / "output", "w+")
        self.started = time.monotonic()
        self.process = subprocess.Popen([options.ctl, "run", "--name", name, *arguments, "--", str(script), "--port",
                                         str(options.port)], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, env=self.environment, cwd=self.folder)

    def ctl(self, *words, **more):
        return subprocess.run([self.options.ctl, *words], env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd=self.folder, **more)

    def status(self):
        return json.loads(self.ctl("status", self.name, "--json").stdout)["runs"][0]

    def armed(self):
        while self.process.poll() is None and time.monotonic() - self.started < START_LIMIT_S:
            if self.ctl("wait", self.name, "--for", "armed", "--timeout", "5s").returncode == 0:
                return True
        return False

    def end(self, limit_s=START_LIMIT_S):
        """Exit status and kldump's own lines."""
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            status = self.process.wait(120)
        self.seconds = time.monotonic() - self.started
        self.log.seek(0)
        text = self.log.read()
        lines = [line for line in text.splitlines() if line.startswith("kldump: ")]
        for line in lines:
            print("     " + line)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status, "\n".join(lines), text


def caught(options, name, flags, named, figures):
    run = Run(options, name, ["--dir", "dumps", "--floor", "1G"], flags)
    if run.armed():
        run.ctl("stop", name, "--now")
    status, lines, text = run.end()
    expect(status == 82, f"{name}: exit status {status}, 82 expected")
    expect(named in lines, f"{name}: the reason names {named}")
    if status != 82:
        print(text[-4000:])
    figures[name] = {"exit_status": status, "seconds": round(run.seconds, 1)}


def dumped(options, figures):
    before = gpu_memory_mib()
    run = Run(options, "dump", ["--dir", "dumps", "--floor", "1G"], "$KLDUMP_SGLANG_ARGS")
    ready = run.armed()
    expect(ready, "dump: armed")
    if ready:
        ready_s, held = time.monotonic() - run.started, gpu_memory_mib()
        costs = run.status()["costs"]
        result = run.ctl("dump", "dump", "decode", "--", sys.executable, str(SEND), "--rid", "own", "--new", "8")
        expect(result.returncode == 0, f"dump: kldumpctl dump ended with {result.returncode}, 0 expected: {result.stdout}")
        check = run.ctl("check", "dumps/decode", "--json")
        audit = json.loads(check.stdout)
        expect(audit["complete"], f"dump: complete, {audit['files']} files in {audit['steps']} steps")
        run.ctl("stop", "dump")
    status, _, text = run.end(120)
    freed = time.monotonic()
    while gpu_memory_mib() > before + 200 and time.monotonic() - freed < 10:
        time.sleep(0.05)
    freed = time.monotonic() - freed
    if ready:
        expect(status == 0, f"dump: exit status {status}, 0 expected")
        expect(freed < 10, f"dump: GPU memory is back {freed:.1f} s after the end")
        figures["dump"] = {"seconds_to_armed": round(ready_s, 1), "gpu_mib_held": held - before, "costs": costs,
                           "files": audit["files"], "steps": audit["steps"], "bytes": audit["bytes"]}
    else:
        print(text[-4000:])


def floor(options, figures):
    mount = Path(tempfile.mkdtemp(prefix="kldump-gpu-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6G", "kldump-gpu", str(mount)], check=True)
    lowest, looking = [1 << 62], True

    def look():
        while looking:
            figure = os.statvfs(mount)
            lowest[0] = min(lowest[0], figure.f_bavail * figure.f_frsize)
            time.sleep(0.0005)

    watcher = threading.Thread(target=look)
    try:
        run = Run(options, "floor", ["--dir", str(mount / "dumps"), "--floor", "2G", "--soft", "2100M"], "$KLDUMP_SGLANG_ARGS")
        watcher.start()
        if run.armed():
            run.ctl("dump", "floor", "big", "--", sys.executable, str(SEND), "--rid", "own", "--prompt", "7000", "--new",
                    "1", "--requests", "6")
        status, lines, text = run.end(180)
        record = json.loads((mount / "dumps" / "floor.kldump-run.json").read_text())
        looking = False
        watcher.join()
        expect(status == 83, f"floor: exit status {status}, 83 expected")
        expect(lowest[0] >= 2 << 30, f"floor: {(lowest[0] - (2 << 30)) >> 20} MiB above the floor at the lowest")
        kill = record["floor_kill"] or {}
        if kill:
            figures["floor"] = {"lowest_above_floor_mib": (lowest[0] - (2 << 30)) >> 20,
                                "decided_to_gone_ms": (kill["gone_ns"] - kill["decided_ns"]) / 1e6}
        elif status != 83:
            print(text[-4000:])
    finally:
        looking = False
        subprocess.run(["umount", "-l", str(mount)], check=False)
        mount.rmdir()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument("--report", type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if shutil.which("nvidia-smi") is None:
        print("no nvidia-smi here: this check needs an NVIDIA GPU", file=sys.stderr)
        return 3
    options.ctl = str((options.build / "kldumpctl").resolve()) if options.build else shutil.which("kldumpctl")
    figures = {}
    caught(options, "graphs", "", "decode", figures)
    caught(options, "prefill", "--disable-decode-cuda-graph", "prefill", figures)
    dumped(options, figures)
    floor(options, figures)
    print(json.dumps(figures, indent=2))
    if options.report:
        options.report.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"{len(PROBLEMS)} expectations were not met" if PROBLEMS else "all as expected")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
