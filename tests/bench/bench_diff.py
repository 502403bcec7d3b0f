#!/usr/bin/python3
"""kldumpctl diff and check beside what one would otherwise take, on the same folders in one run. Run by `make bench-diff`.

  bench_diff.py [--rounds N] [--million] [--scratch DIR]

Prints tables, and writes bench_diff.json:
  - warm pairs, large ([2048, 4096] bfloat16) and small ([1, 4096]): kldumpctl diff with one thread and with two, beside a bare loop in C
    (open, pread both, memcmp, close), `cmp` for each pair, and SGLang's own comparator on one layer of the large ones;
  - which of the known faults of tests/data each of the two finds, where SGLang and its comparator's packages (polars, rich) are there;
  - kldumpctl check of a folder of a million files (--million: 8 GB and two minutes to make), else of 100,000.
Speed is printed, never tested.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

BUILD, SOURCE = Path.cwd(), Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/real"))
import cache_folder  # noqa: E402

PROMPT_TOKENS, HIDDEN = 2048, 4096
VERSION = "0.5.23"
FAULTS = SOURCE / "tests/data/real"


def timed(command, rounds, statuses=(0,), **more):
    """Median seconds and processor seconds of the command, and its last output."""
    seconds, processor, output = [], [], ""
    for _ in range(rounds):
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in statuses:
            sys.exit(f"bench_diff: {' '.join(map(str, command))} ended with {process.returncode}")
        seconds.append(time.monotonic() - begin)
        processor.append(usage.ru_utime + usage.ru_stime)
    return {"seconds": statistics.median(seconds), "cpu_seconds": statistics.median(processor)}, output


def resident_mib(command):
    """The largest resident set, looked at while it runs: what wait4 tells begins with that of this interpreter."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    largest = 0
    while process.poll() is None:
        try:
            found = re.search(r"^Name:\s+(\S+)$.*?^VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text(), re.M | re.S)
        except OSError:
            break
        if found and not found.group(1).startswith("python"):
            largest = max(largest, int(found.group(2)))
        time.sleep(0.001)
    process.wait()
    return round(largest / 1024, 1)


def folder_bytes(folder):
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def cmp_each(a, b):
    """A process for each pair, as a shell loop has it."""
    return ["sh", "-c", 'for f in "$1"/*.pt; do cmp -s "$f" "$2/${f##*/}"; done; true', "sh", a, b]


def comparator():
    """The interpreter and environment of SGLang's comparator; None with the reason where it is not there."""
    python = cache_folder.cache_root() / f"sglang-{VERSION}" / "bin/python"
    if not python.exists():
        return None, f"SGLang {VERSION} is not installed (tests/real/sglang_cpu.py install {VERSION})"
    packages = cache_folder.cache_root() / "comparator-packages"
    if not (packages / "polars").exists():
        made = subprocess.run([python, "-m", "pip", "install", "-q", "--target", packages, "polars", "rich", "pydantic"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if made.returncode != 0:
            return None, "pip cannot install polars and rich"
    environment = dict(os.environ, PYTHONPATH=f"{packages}:{SOURCE / 'tests/real'}", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    return (python, environment), None


def compare_command(python, baseline, target, *more):
    return [python, "-m", "sglang.srt.debug_utils.comparator", "--baseline-path", baseline, "--target-path", target, "--report-path", "",
            "--output-format", "json", *more]


def bench_pairs(scratch, rounds, results):
    shapes = {"large": (1, PROMPT_TOKENS, HIDDEN, 4), "small": (64, 1, HIDDEN, 36), "large, one element off": (1, PROMPT_TOKENS, HIDDEN, 4, "flip")}
    print(f"{'warm pairs':<24} {'pairs':>6} {'MB':>6}  {'who':<24} {'s':>8} {'cpu s':>8} {'GB/s':>7} {'pairs/s':>9} {'of bare':>8} {'RSS MiB':>8}")
    for name, shape in shapes.items():
        folder = scratch / name.split(",")[0].replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        subprocess.run([BUILD / "tests/bench/dump_pairs", folder, *map(str, shape)], check=True)
        a, b = folder / "A", folder / "B"
        pairs, size = len(os.listdir(a)), folder_bytes(a) + folder_bytes(b)
        diff = [BUILD / "kldumpctl", "diff", "--json"]
        contenders = {"bare loop in C": ([BUILD / "tests/bench/bare_compare", a, b], rounds),
                      "kldumpctl diff, 1 thread": ([*diff, "--threads", "1", a, b], rounds),
                      "kldumpctl diff, 2 threads": ([*diff, "--threads", "2", a, b], rounds),
                      "cmp for each pair": (cmp_each(a, b), 1)}
        timed(contenders["bare loop in C"][0], 1)  # warm
        bare = None
        for who, (command, times) in contenders.items():
            figures, _ = timed(command, times, (0, 1))
            figures["rss_mib"] = resident_mib(command) if times > 1 else 0
            bare = bare or figures["seconds"]
            figures.update(gb_per_s=size / figures["seconds"] / 1e9, pairs_per_s=pairs / figures["seconds"], of_bare=bare / figures["seconds"])
            results.append({"case": name, "who": who, "pairs": pairs, "bytes": size, **figures})
            print(f"{name:<24} {pairs:>6} {size / 1e6:>6.0f}  {who:<24} {figures['seconds']:>8.3f} {figures['cpu_seconds']:>8.3f} {figures['gb_per_s']:>7.2f} "
                  f"{figures['pairs_per_s']:>9.0f} {figures['of_bare']:>7.0%} {figures['rss_mib'] or '':>8}", flush=True)


def bench_comparator(scratch, results):
    """One layer: the comparator needs seconds a pair."""
    found, lack = comparator()
    if found is None:
        print(f"SGLang's comparator is left out: {lack}")
        return
    python, environment = found
    folder = scratch / "layer"
    folder.mkdir()
    subprocess.run([BUILD / "tests/bench/dump_pairs", folder, "1", str(PROMPT_TOKENS), str(HIDDEN), "1"], check=True)
    a, b = folder / "A", folder / "B"
    size = folder_bytes(a) + folder_bytes(b)
    ours, _ = timed([BUILD / "kldumpctl", "diff", "--json", a, b], 3, (0, 1))
    theirs, _ = timed(compare_command(python, a, b, "--preset", "raw"), 1, (0, 1), env=environment)
    print(f"\nlarge, one layer ({size / 1e6:.0f} MB): kldumpctl diff {ours['seconds']:.3f} s, SGLang's comparator {theirs['seconds']:.1f} s "
          f"({theirs['cpu_seconds']:.1f} s CPU), ratio {theirs['seconds'] / ours['seconds']:.0f}")
    results.append({"case": "large, one layer", "bytes": size, "kldump": ours, "comparator": theirs})


def bench_faults(scratch, results):
    found, lack = comparator()
    print(f"\n{'known dump':<28} {'kldumpctl diff':<62} {'s':>6}  SGLang's comparator")
    for archive in sorted(FAULTS.glob("*-0.5.*.tar.gz")):
        name = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(scratch)
        decode, prefill = scratch / name / "dec", scratch / name / "pre"
        ours, output = timed([BUILD / "kldumpctl", "diff", "--json", decode, prefill], 1, (0, 1, 3, 4))
        answer = json.loads(output)
        verdict = answer.get("verdict") or {}
        said = (f"{verdict['kind']} {verdict.get('module') or ''}".strip() if answer["alignment"]["proven"]
                else "not proven: " + ", ".join(answer["alignment"]["failed"]))
        theirs = "left out: " + lack if found is None else compare_with_theirs(found, decode, prefill)
        print(f"{name:<28} {said:<62} {ours['seconds']:>6.2f}  {theirs}", flush=True)
        results.append({"case": name, "kldump": said, "seconds": ours["seconds"], "comparator": theirs})


def compare_with_theirs(found, decode, prefill):
    python, environment = found
    figures, output = timed(compare_command(python, prefill, decode), 1, (0, 1), env=environment)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    summary = next((line for line in lines if line.get("type") == "summary"), {})
    failed = [line["name"] for line in lines if line.get("type") == "comparison_tensor" and not line.get("passed", True)]
    counts = ", ".join(f"{summary.get(key, '?')} {key}" for key in ("passed", "failed", "skipped"))
    return f"{counts}; {'names ' + failed[0] if failed else 'names nothing'}; {figures['seconds']:.0f} s, {figures['cpu_seconds']:.0f} s CPU"


def bench_check(scratch, files, rounds, results):
    folder = scratch / "many"
    folder.mkdir()
    layers = 8
    passes = files // (7 + 14 * layers)
    subprocess.run([BUILD / "tests/bench/dump_pairs", folder, str(passes), "1", "16", str(layers)], check=True)
    shutil.rmtree(folder / "B")
    count = len(os.listdir(folder / "A"))
    check = [BUILD / "kldumpctl", "check", "--json", folder / "A"]
    timed(check, 1, (0, 4))
    figures, _ = timed(check, rounds, (0, 4))
    figures["rss_mib"] = resident_mib(check)
    walk, _ = timed(["find", folder / "A", "-type", "f", "-size", "0"], rounds)
    zips, _ = timed(["/usr/bin/python3", "-c", "import os,sys,zipfile\nfor f in os.scandir(sys.argv[1]): zipfile.ZipFile(f.path).close()", folder / "A"], 1)
    print(f"\ncheck of {count} files, end records read, warm: {figures['seconds']:.2f} s ({figures['cpu_seconds']:.2f} s CPU, {figures['rss_mib']} MiB); "
          f"find -size 0: {walk['seconds']:.2f} s; Python's zipfile: {zips['seconds']:.1f} s")
    results.append({"case": "check", "files": count, "kldump": figures, "find": walk, "zipfile": zips})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--scratch", help="folder with 10 GB of space; default: a temporary one")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="kldump-bench-", dir=arguments.scratch) as scratch:
        scratch = Path(scratch)
        bench_pairs(scratch, arguments.rounds, results)
        bench_comparator(scratch, results)
        bench_faults(scratch, results)
        bench_check(scratch, 1_000_000 if arguments.million else 100_000, arguments.rounds, results)
    Path("bench_diff.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
