#!/usr/bin/python3
"""The real SGLang with and without kldump, in turn: the time until it is ready, and how fast it dumps. Run by `make bench`.

  bench_real.py [--rounds N] [--requests N]

Figures as a table, and as JSON in bench_real.json.

Both kinds have the same flags and the same dumper settings. Ready is the server's own line, seen in its output; armed is
what kldump adds: the probe, its audit, and the certainty. Dumping is the time of the requests alone, one after the other.
Where the real SGLang is not installed it says what is missing, and ends with 0.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

os.environ.setdefault("KLDUMP_BUILD", os.getcwd())
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import guarded  # noqa: E402

READY = "The server is fired up and ready to roll!"
FLAGS = ["--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", "--sleep-on-idle"]
PROMPT, NEW = 256, 8


class Plain:
    """The server as somebody starts it who has read the dumper's documentation."""

    def __init__(self, place, server):
        self.place, self.port, self.folder = place, place.port(), place.folder / "dumps"
        self.log = place.folder / "plain.log"
        variables = {**server.environment(), "DUMPER_SERVER_PORT": "reuse", "DUMPER_NON_INTRUSIVE_MODE": "all",
                     "DUMPER_DIR": str(self.folder), "DUMPER_EXP_NAME": "idle", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0",
                     "PYTHONUNBUFFERED": "1", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
        self.begin = time.monotonic()
        with open(self.log, "wb") as output:
            self.process = place.start(place.command(server, *FLAGS, port=self.port), stdout=output, stderr=output, start_new_session=True,
                                       more=variables)

    def ready(self):
        guarded.wait_for(lambda: READY in self.log.read_text(errors="replace"), 300, "the server")
        return time.monotonic() - self.begin

    def switch(self, experiment):
        body = {"enable": experiment is not None, **({"exp_name": experiment} if experiment else {})}
        guarded.post(f"http://127.0.0.1:{self.port}/dumper/configure", body)

    def end(self):
        for pid in self.place.survivors() + [self.process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass


class Guarded:
    def __init__(self, place, server):
        self.begin = time.monotonic()
        self.run = place.run(server, flags=FLAGS)
        self.folder = self.run.directory

    def ready(self):
        guarded.wait_for(lambda: READY in self.run.output, 300, "the server")
        ready = time.monotonic() - self.begin
        self.run.armed()
        self.armed = time.monotonic() - self.begin
        self.port = self.run.status()["port"]
        return ready

    def switch(self, experiment):
        if experiment:
            self.run.dump(experiment)
        else:
            self.run.place.ctl("pause", self.run.name)

    def end(self):
        self.run.place.ctl("stop", self.run.name)
        self.run.exit(60)


def request(port, number):
    body = {"input_ids": [3 + (7 * number + i) % 500 for i in range(PROMPT)], "rid": f"r-{number}",
            "sampling_params": {"max_new_tokens": NEW, "temperature": 0, "ignore_eos": True}}
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(ask, timeout=300) as answer:
        json.load(answer)


def measure(kind, server, requests):
    place = guarded.Place(tempfile.mkdtemp(prefix="kldump-bench-", dir="/tmp"))
    try:
        one = kind(place, server)
        found = {"ready_s": one.ready()}
        if kind is Guarded:
            found["armed_s"] = one.armed
        request(one.port, 1000)  # the first one imports
        one.switch("bench")
        begin = time.monotonic()
        for number in range(requests):
            request(one.port, number)
        seconds = time.monotonic() - begin
        one.switch(None)
        sizes = [path.stat().st_size for path in (one.folder / "bench").iterdir()]
        one.end()
        return {**found, "files_per_s": len(sizes) / seconds, "mib_per_s": sum(sizes) / seconds / 2**20, "request_s": seconds / requests,
                "files": len(sizes)}
    finally:
        place.end()


ROWS = [("ready_s", "ready, s"), ("armed_s", "armed, s"), ("request_s", "a dumped request, s"), ("files_per_s", "files/s while dumping"),
        ("mib_per_s", "MiB/s while dumping")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kldump-bench-", dir="/tmp") as model:
        try:
            server = guarded.real_server(Path(model))
        except guarded.cache_folder.Missing as missing:
            print(f"missing: {missing}")
            return
        found = {"plain": [], "guarded": []}
        for _ in range(options.rounds):  # in turn, so that what else the machine does meets both
            for name, kind in (("plain", Plain), ("guarded", Guarded)):
                found[name].append(measure(kind, server, options.requests))
    print(f"real SGLang {guarded.VERSION}, {options.rounds} rounds of {options.requests} requests of {PROMPT} + {NEW} tokens, medians"
          f"\n{'':<24}{'without':>10}{'with kldump':>14}")
    for key, text in ROWS:
        medians = [statistics.median(one[key] for one in found[name]) if key in found[name][0] else None for name in found]
        print(f"{text:<24}" + "".join(f"{'-' if value is None else format(value, '.2f'):>{width}}" for value, width in zip(medians, (10, 14))))
    result = {"schema": "kldump.bench.real/1", "sglang": guarded.VERSION, "cores": os.cpu_count(), "rounds": options.rounds,
              "requests": options.requests, "load": os.getloadavg()[0], **found}
    Path("bench_real.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
