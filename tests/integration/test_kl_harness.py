"""The same harness: the KL helpers of the installed SGLang, unedited, and `kldumpctl kl` measure the same prompts on a server behind a
recorder. Requests are equal but for their ids, and so is what comes of them."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "standin"))
import guarded  # noqa: E402
from recorder import recording  # noqa: E402
import standin as player  # noqa: E402
from test_numbers import serving  # noqa: E402

pytestmark = pytest.mark.real  # needs the installed package, no server of it
player.PROGRAM = guarded.STANDIN
NEW_TOKENS, COMMA = 12, 44
# One of a single id: nothing of it can come from the cache, so both drop it from the second path.
PROMPTS = [[20 + i, *range(30, 38 + 3 * i)] for i in range(8)] + [[77]]
PATHS = ["match", "prefill_cache_hit", "decode_cache_hit"]
LIMIT_S = 300


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    try:
        return guarded.real_server(tmp_path_factory.mktemp("model")).python(None)
    except guarded.cache_folder.Missing as missing:
        pytest.skip(f"missing: {missing}")


def by_helpers(python, port, folder):
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps(PROMPTS))
    with recording(port) as recorder:
        done = subprocess.run([python, "-B", HERE / "kl_helpers.py", recorder.url, prompts, str(NEW_TOKENS), str(COMMA)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        return recorder.kept, list(json.loads(done.stdout).values())


def by_kldump(port, folder):
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in PROMPTS))
    with recording(port) as recorder:
        done = subprocess.run([guarded.CTL, "kl", recorder.url, "--prompts", prompts, "--min-samples", "1", "--new", str(NEW_TOKENS), "--comma",
                               str(COMMA), "--paths", ",".join(PATHS), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT_S)
        assert done.returncode in (0, 1), done.stderr
        return recorder.kept, json.loads(done.stdout)["helpers"]


def without_ids(requests):
    return [(path, {key: value for key, value in (body or {}).items() if key != "rid"}) for path, body in requests]


@pytest.mark.parametrize("faults", ["", "batch-variant=1:down_proj:40", "stale-prefix=3", "window-eviction=24"])
def test_requests_and_numbers_are_those_of_the_helpers(python, tmp_path, faults):
    with serving(faults, flags=("--dtype", "float32")) as server:
        helpers_sent, helpers = by_helpers(python, server.port, tmp_path)
    with serving(faults, flags=("--dtype", "float32")) as server:
        sent, found = by_kldump(server.port, tmp_path)
    assert len(sent) == len(helpers_sent) == 4 + 5 + 5
    for own, theirs in zip(without_ids(sent), without_ids(helpers_sent)):
        assert own == theirs
    rids = [rid for path, body in sent if path == "/generate" for rid in body["rid"]]
    assert len(set(rids)) == len(rids)
    assert not any("rid" in (body or {}) for _path, body in helpers_sent)
    for name, helper in zip(PATHS, helpers):
        kept = [request for request in found[name]["requests"] if request["dropped"] is None]
        assert len(kept) == len(helper["each"]) == len(PROMPTS) - (name == "prefill_cache_hit")
        for request, k3 in zip(kept, helper["each"]):
            assert abs(request["mean"] - k3) <= 1e-15 * max(1, k3)
        assert abs(found[name]["mean"] - helper["mean"]) <= 1e-15 * max(1, helper["mean"])


def test_the_unedited_server_reads_condition_1(place, servers):
    """Its matrix products depend on the number of rows. Small enough to pass the helpers' gate: mean k3 below 1e-9."""
    run = place.run(servers("real"), flags=["--sleep-on-idle"]).armed()
    done = place.ctl("kl", run.name, "--synthetic", "8:12-40:1", "--min-samples", "8", "--new", "24", "--comma", "44", "--json", status=1)
    found = json.loads(done.stdout)
    reading, helpers = found["reading"], found["helpers"]
    assert (reading["condition"], reading["where"], reading["condition_2_open"]) == ("1", "operator", True)
    assert not reading["condition_2_in_restore"] and not found["server"]["deterministic"]
    assert "condition 1 cannot be expected to hold" in reading["text"]
    for name in (*PATHS, "match_alone"):
        assert helpers[name]["grade"] == "noise" and helpers[name]["mean"] < 1e-9, name
    assert helpers["restore"]["grade"] != "not measured"
    assert all(request["cached_tokens"] == request["prompt_length"] - 1 for request in helpers["restore"]["requests"])
