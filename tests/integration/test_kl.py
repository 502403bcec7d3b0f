"""kldumpctl kl on the stand-in's transformer: each fault gets its reading, alone, with the noise of condition 1 on top, and two at
once. All numbers are taken again here from the logprobs in --json."""
import itertools
import json
import math
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standin"))
import guarded  # noqa: E402
import standin as player  # noqa: E402
from test_numbers import EXPERTS, LLAMA, RECURRENT, WINDOW, serving  # noqa: E402

player.PROGRAM = guarded.STANDIN
SOURCE = Path(__file__).resolve().parents[2]
CLEAN, DIRTY, USAGE, LOST = 0, 1, 2, 85
SMALL = ["--synthetic", "8:10-30:1", "--min-samples", "8", "--new", "12"]
PATHS = ["match", "match_alone", "prefill_cache_hit", "decode_cache_hit", "restore"]
THRESHOLDS = [1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1]
ROWS = "batch-variant=1:down_proj:40"  # also in a batch of the 8 prompts, not in a prefill of them
DENSE_ROWS = "batch-variant=0:down_proj:40"  # the same in the layer that has no experts
BOTH = {**EXPERTS, "layer_types": RECURRENT["layer_types"]}


def ctl(server, *arguments, status=None, json_wanted=True):
    more = ["--json"] if json_wanted else []
    done = subprocess.run([guarded.CTL, "kl", f"http://127.0.0.1:{server.port}", *arguments, *more], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    assert status is None or done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr)
    return json.loads(done.stdout) if json_wanted and done.returncode in (CLEAN, DIRTY) else done


def measure(faults="", model=None, flags=(), status=None, more=SMALL):
    with serving(faults, model, ("--dtype", "float32", *flags)) as server:
        return ctl(server, *more, status=status)


# Faults -> the model, whether each path is clean (C) or dirty (D), signature, condition, where, requests.
READINGS = {
    "": (None, "CCCCC", "clean", "none", "none", "all"),
    "experts": (EXPERTS, "CCCCC", "clean", "none", "none", "all"),
    "recurrent": (RECURRENT, "CCCCC", "clean", "none", "none", "all"),
    # one row alone: vanishes in a batch
    "batch-variant": (None, "CDCCC", "one-row-alone", "1", "operator", "all"),
    "batch-variant=0:qkv_proj": (None, "CDCCC", "one-row-alone", "1", "operator", "all"),
    "wrong-norm=1": (None, "CDCCC", "one-row-alone", "1", "operator", "all"),
    "moe-flip=1": (EXPERTS, "CDCCC", "one-row-alone", "1", "operator", "all"),
    # in every decode pass
    ROWS: (None, "DDDDC", "one-row", "1", "operator", "all"),
    "kv-off-by-one=1": (None, "DDDDC", "one-row", "1", "operator", "all"),
    "state-update=1": (RECURRENT, "DDDDC", "one-row", "1", "operator", "all"),
    # attention that depends on the length, not on what else is in the pass
    "length-split=1": (None, "DDDDC", "length-dependent", "1", "operator", "all"),
    # condition 2 in the restore
    "stale-prefix=3": (None, "CCDDD", "restored-prefix", "2", "restore", "all"),
    "stale-page=4": (None, "CCDDD", "restored-prefix", "2", "restore", "few"),
    # past what match reaches: a position, and numbers of rows
    "window-eviction=45": (None, "CCCDC", "decode-forgets", "2", "decode", "all"),
    "batch-variant=1:down_proj:300": (None, "CCCDC", "second-turn", "refused", "none", "all"),
    "stale-last": (None, "CCDCC", "restore-almost-all-cached", "2", "restore", "all"),
    # condition 2 during decode
    "window-eviction=24": (None, "DDDDC", "decode-forgets", "2", "decode", "all"),
    "checkpoint-rotation=24": (RECURRENT, "DDDDC", "decode-forgets", "2", "decode", "few"),
    "window-eviction=24,stale-prefix=3": (None, "DDDDD", "decode-forgets-and-restore", "2", "decode", "all"),
    # the numbers are worth nothing
    "shifted-logprobs": (None, "DDDDC", "shifted-logprobs", "refused", "none", "all"),
    # the noise of condition 1 on top, and two at once: settle 1 first, 2 by restore only
    f"{ROWS},stale-prefix=3": (None, "DDDDD", "not-batch-invariant", "1", "operator", "all"),
    f"{ROWS},stale-page=4": (None, "DDDDD", "not-batch-invariant", "1", "operator", "all"),
    f"{ROWS},stale-last": (None, "DDDDC", "one-row", "1", "operator", "all"),
    f"{ROWS},window-eviction=24": (None, "DDDDC", "one-row", "1", "operator", "all"),
    "batch-variant,stale-prefix=3": (None, "CDDDD", "one-row-alone", "1", "operator", "all"),
    "batch-variant,window-eviction=24": (None, "DDDDC", "one-row", "1", "operator", "all"),
    "moe-flip=1,stale-prefix=3": (EXPERTS, "CDDDD", "one-row-alone", "1", "operator", "all"),
    f"{ROWS},checkpoint-rotation=24": (RECURRENT, "DDDDC", "one-row", "1", "operator", "all"),
    f"{DENSE_ROWS},moe-flip=1": (EXPERTS, "DDDDC", "one-row", "1", "operator", "all"),
    f"{ROWS},length-split=1": (None, "DDDDC", "not-batch-invariant", "1", "operator", "all"),
    "window-eviction=24,moe-flip=1": (EXPERTS, "DDDDC", "one-row", "1", "operator", "all"),
    "checkpoint-rotation=24,moe-flip=1": (BOTH, "DDDDC", "one-row", "1", "operator", "all"),
    "length-split=1,stale-prefix=3": (None, "DDDDD", "not-batch-invariant", "1", "operator", "all"),
    # two of condition 2
    "stale-prefix=3,checkpoint-rotation=24": (RECURRENT, "DDDDD", "decode-forgets-and-restore", "2", "decode", "few"),
    "window-eviction=24,checkpoint-rotation=24": (RECURRENT, "DDDDC", "decode-forgets", "2", "decode", "all"),
    # shifted logprobs hide what else is wrong, not the other way round
    f"{ROWS},shifted-logprobs": (None, "DDDDC", "shifted-logprobs", "refused", "none", "all"),
    "stale-prefix=3,shifted-logprobs": (None, "DDDDD", "shifted-logprobs", "refused", "none", "all"),
    "window-eviction=24,shifted-logprobs": (None, "DDDDC", "shifted-logprobs", "refused", "none", "all"),
    "checkpoint-rotation=24,shifted-logprobs": (RECURRENT, "DDDDC", "shifted-logprobs", "refused", "none", "all"),
    "moe-flip=1,shifted-logprobs": (EXPERTS, "DDDDC", "shifted-logprobs", "refused", "none", "all"),
}
# Each alone and each two together are in the table: with batch-variant, the noise of condition 1 on top.
KINDS = ["batch-variant", "stale-prefix", "window-eviction", "checkpoint-rotation", "moe-flip", "shifted-logprobs"]


@pytest.mark.parametrize("faults", READINGS)
def test_reading(faults):
    model, looks, signature, condition, where, requests = READINGS[faults]
    found = measure("" if faults in ("experts", "recurrent") else faults, model, status=DIRTY if "D" in looks else CLEAN)
    reading, helpers = found["reading"], found["helpers"]
    assert "".join("C" if helpers[name]["grade"] in ("bit-equal", "stray") else "D" for name in PATHS) == looks
    assert (reading["signature"], reading["condition"], reading["where"], reading["requests"]) == (signature, condition, where, requests)
    assert reading["condition_2_open"] == (condition == "1")
    assert reading["condition_2_in_restore"] == (condition == "1" and looks[4] == "D")
    assert reading["evidence"] and (condition == "none") == (not reading["next"])
    if condition == "1":
        assert any("settle condition 1 first" in line for line in reading["next"])
        assert "condition 1 cannot be expected to hold" in reading["text"]
        assert ("num_experts" in (model or {})) == ("mixture of experts" in reading["text"])


def test_all_faults_and_all_pairs_are_in_the_table():
    shown = {frozenset(part.split("=")[0] for part in faults.split(",")) for faults in READINGS}
    assert {frozenset(kinds) for number in (1, 2) for kinds in itertools.combinations(KINDS, number)} <= shown


def table_of_the_manual():
    """Rows of signature, looks, condition, where."""
    page = (SOURCE / "man/kldumpctl.1").read_text()
    table = page[page.index("Sy Signature"):]
    rows = re.findall(r"^\.It (\S+) Ta (.*?) Ta (\w+)(?:, (\w+))? Ta", table[:table.index("\n.El")], re.M)
    return [(name, looks.replace("\\&", "").replace(" ", ""), condition, where or "none") for name, looks, condition, where in rows]


def test_the_manual_has_the_table_of_the_program():
    """Row by row, in the order in which they are looked for."""
    source = (SOURCE / "src/analysis/kl_reading.c").read_text()
    table = source[source.index("signatures[] = {"):source.index("};", source.index("signatures[] = {"))]
    rows = re.findall(r'\{"([a-z0-9-]+)",\s+((?:[A-Z_]+,\s+){5})\w+,\s+KL_CONDITION_(\w+),\s+KL_WHERE_(\w+),', table)
    marks = {"ANY": ".", "CLEAN": "C", "NOT_DIRTY": "c", "DIRTY": "D", "UNMEASURED": "-"}
    assert len(rows) == len(re.findall(r'^    \{"', table, re.M)) > 8
    assert table_of_the_manual() == [(name, "".join(marks[look] for look in re.findall(r"[A-Z_]+", looks)), condition.lower(), where.lower())
                                     for name, looks, condition, where in rows]


def test_what_is_read_is_what_the_manual_says():
    manual = {name: row for name, *row in table_of_the_manual()}
    for _model, seen, signature, condition, where, _requests in READINGS.values():
        looks, *said = manual[signature]
        assert said == [condition, where]
        assert all(look in {".": "CD", "C": "C", "c": "C", "D": "D"}[mark] for mark, look in zip(looks, seen)), (signature, looks, seen)
    # The router's flip of one token, no path, no match, somebody else: tests/unit/test_kl.c; the first also in test_kl_planted.py
    assert set(manual) - {row[2] for row in READINGS.values()} == {"router-flip", "nothing-measured", "match-missing",
                                                                     "foreign-requests"}


def test_evidence_names_what_decided():
    found = measure("stale-page=4")
    assert any("cached tokens % 4 = 0, in no clean one" in line for line in found["reading"]["evidence"])
    found = measure("window-eviction=24")
    assert any("dirt begins at position 25" in line for line in found["reading"]["evidence"])
    found = measure("shifted-logprobs")
    assert any("position p-1 equals the logprob decoded at p in 88 of 88 tokens" in line for line in found["reading"]["evidence"])


# ---- the numbers, taken again

def single_ulp(value):
    bits = struct.unpack("<I", struct.pack("<f", abs(value)))[0]
    return struct.unpack("<f", struct.pack("<I", bits + 1))[0] - struct.unpack("<f", struct.pack("<I", bits))[0]


def class_of(a, b):
    if a == b:
        return "bit_equal"
    return "stray" if abs(a - b) <= max(1e-6, 4 * single_ulp(max(abs(a), abs(b)))) else "beyond"


def k3_of(a, b):
    d = a - b
    return (math.exp(d) - 1) - d


@pytest.mark.parametrize("faults", ["", ROWS, "stale-page=4", "shifted-logprobs", "window-eviction=24"])
def test_numbers_are_those_of_the_logprobs(faults):
    found = measure(faults)
    for name in PATHS:
        path = found["helpers"][name]
        kept = [request for request in path["requests"] if request["dropped"] is None]
        tokens = [(a, b) for request in kept for a, b in zip(request["a"], request["b"])]
        assert path["kept"] == len(kept) == 8 and path["tokens"] == len(tokens) == 8 * 12
        means = [sum(map(k3_of, request["a"], request["b"])) / len(request["a"]) for request in kept]
        assert abs(path["mean"] - sum(means) / len(means)) < 1e-15 * max(1, path["mean"])
        assert abs(path["max"] - max(k3_of(a, b) for a, b in tokens)) < 1e-15 * max(1, path["max"])
        classes = [class_of(a, b) for a, b in tokens]
        assert [path[key] for key in ("bit_equal", "stray", "beyond")] == [classes.count(key) for key in ("bit_equal", "stray", "beyond")]
        for threshold in THRESHOLDS:
            share = sum(k3_of(a, b) > threshold for a, b in tokens) / len(tokens)
            assert path["share_above"][f"{threshold:g}"] == pytest.approx(share, abs=1e-12)
        grade = "nonzero" if path["mean"] >= 1e-9 else "noise"
        if path["beyond"] == 0:
            grade = "stray" if path["stray"] else "bit-equal"
        assert path["grade"] == grade
        for request, mean in zip(kept, means):
            assert abs(request["mean"] - mean) < 1e-15 * max(1, mean)
            own = [class_of(a, b) for a, b in zip(request["a"], request["b"])]
            first = request["first"] + own.index("beyond") if "beyond" in own else None
            assert request["first_beyond"] == first and request["beyond"] == own.count("beyond")
            assert request["first"] == request["prompt_length"] and len(request["ids"]) == len(request["a"])


def test_each_path_has_taken_its_way():
    found = measure()
    cached = {name: [(r["cached_tokens"], r["prompt_length"]) for r in found["helpers"][name]["requests"]] for name in PATHS}
    for name in ("match", "match_alone"):
        assert all(hit == 0 for hit, _length in cached[name])
    for name in ("prefill_cache_hit", "restore"):
        assert all(hit == length - 1 for hit, length in cached[name])
    # prompt + 12 new tokens + comma: the last of the answer was never computed
    assert all(hit == length - 2 for hit, length in cached["decode_cache_hit"])
    assert [length for _hit, length in cached["decode_cache_hit"]] == [length + 13 for _hit, length in cached["match"]]


# ---- what it is measured on, and compared under

def test_hashes():
    """Of the prompts, not of the server; of the settings that matter, not of the port."""
    first, again = measure(), measure("batch-variant")
    assert first["prompts"] == again["prompts"]
    assert first["prompts"]["hash"] != measure(more=["--synthetic", "8:10-30:2", "--min-samples", "8", "--new", "12"])["prompts"]["hash"]
    with serving(flags=("--dtype", "float32")) as server:
        one, other = ctl(server, *SMALL), ctl(server, *SMALL)
        assert one["server"]["settings_hash"] == other["server"]["settings_hash"]
        for name in PATHS:
            for left, right in zip(one["helpers"][name]["requests"], other["helpers"][name]["requests"]):
                assert (left["ids"], left["a"], left["b"]) == (right["ids"], right["a"], right["b"])
                assert left["rid"] != right["rid"]


def test_every_member_is_described():
    described = set(re.findall(r"`([a-z_0-9]+)`", (SOURCE / "doc/kl.md").read_text()))

    def members(value, skip=("settings", "share_above")):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            if isinstance(key, str):
                yield key
            if key not in skip:
                yield from members(child)
    with serving(f"{ROWS},stale-page=4", WINDOW) as server:
        found = ctl(server, *SMALL, status=DIRTY)
    assert set(members(found)) | {"hash", "count", "source"} <= described | {"hash", "count", "source"}
    assert next(iter(found)) == "schema"


def test_without_a_cache():
    found = measure("batch-variant", flags=["--disable-radix-cache"], status=DIRTY)
    for name in ("prefill_cache_hit", "decode_cache_hit", "restore"):
        path = found["helpers"][name]
        assert (path["grade"], path["why_not"], path["mean"]) == ("not measured", "the radix cache is off", None)
    assert found["reading"]["condition"] == "1"
    assert any("restore" in line and "not yet condition 1" in line for line in found["reading"]["next"])


def test_past_the_window():
    assert measure(model=WINDOW)["past_window"] is True
    assert measure()["past_window"] is None
    with serving(model={**WINDOW, "sliding_window": 500}) as server:
        text = ctl(server, *SMALL, status=CLEAN, json_wanted=False).stdout
    assert "nothing is said about what lies past" in text


def test_deterministic_inference_is_said():
    with serving("batch-variant", flags=("--dtype", "float32", "--enable-deterministic-inference")) as server:
        found = ctl(server, *SMALL, status=DIRTY)
        assert found["server"]["deterministic"] and "cannot be expected" not in found["reading"]["text"]
        assert "deterministic inference on" in ctl(server, *SMALL, json_wanted=False).stdout


def test_some_paths_only():
    found = measure("stale-prefix=3", more=[*SMALL, "--paths", "restore"], status=DIRTY)
    assert found["reading"]["signature"] == "match-missing"
    assert found["helpers"]["match"]["why_not"] == "not asked for"
    found = measure("stale-prefix=3", more=[*SMALL, "--paths", "match,restore"], status=DIRTY)
    assert (found["reading"]["condition"], found["reading"]["where"]) == ("2", "restore")


def test_prompts_of_a_file(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    ids = [[20 + i, *range(30, 40 + i)] for i in range(4)]
    prompts.write_text("".join(json.dumps({"input_ids": one}) + "\n" for one in ids))
    out = tmp_path / "kl.json"
    with serving() as server:
        done = ctl(server, "--prompts", prompts, "--min-samples", "4", "--new", "3", "--out", out, "--comma", "77,78", status=CLEAN, json_wanted=False)
    assert "bit-equal" in done.stdout
    found = json.loads(out.read_text())
    assert [r["first"] for r in found["helpers"]["match"]["requests"]] == [len(one) for one in ids]
    assert found["comma"] == [77, 78]
    assert found["helpers"]["decode_cache_hit"]["requests"][0]["prompt_length"] == len(ids[0]) + 3 + 2


def test_the_text_has_everything(tmp_path):
    with serving(f"{ROWS},stale-page=4", flags=("--dtype", "float32")) as server:
        text = ctl(server, *SMALL, "--all", status=DIRTY, json_wanted=False).stdout
    for part in ("match, one at a time", "reading", "evidence", "settle condition 1 first", "by position", "hash of prompts", "deterministic inference off"):
        assert part in text
    assert len(re.findall(r"^ +kl-[0-9a-f]{16}-", text, re.M)) == 5 * 8


def test_thresholds(tmp_path):
    file = tmp_path / "thresholds.json"

    def write(model="model-x", tp=1, **means):
        file.write_text(json.dumps({"schema": "kldump.kl-thresholds/1", "thresholds": [{"model": model, "tp": tp, "mean": means}]}))
    with serving("stale-prefix=3", flags=("--dtype", "float32")) as server:
        model = server.request("GET", "/model_info")[1]["model_path"]
        loose = {"prefill_cache_hit": 1.0, "decode_cache_hit": 1.0, "restore": 1.0}
        write(model, **loose)
        found = ctl(server, *SMALL, "--thresholds", file, status=CLEAN)
        assert found["clean"] and found["helpers"]["restore"]["fine"] and found["helpers"]["restore"]["threshold"] == 1
        write(Path(model).name, **{**loose, "restore": 1e-6})
        assert not ctl(server, *SMALL, "--thresholds", file, status=DIRTY)["helpers"]["restore"]["fine"]
        for wrong, said in (({"tp": 2}, "at tp 2, but the server runs at tp 1"), ({"model": "another"}, "nothing for model"),
                            ({"no_path": 1}, "no_path"), ({"match": 0}, "more than 0")):
            write(**{"model": model, **wrong})
            done = ctl(server, *SMALL, "--thresholds", file)
            assert done.returncode in (USAGE, 125) and said in done.stderr, done


@pytest.mark.parametrize("arguments, said", [
    (["--synthetic", "8:10-30:1"], "at least 32"), (["--new", "1"], "at least 2"), (["--min-samples", "0"], "at least 1"),
    (["--paths", "mach"], "'mach'"), (["--comma", "x"], "--comma"), (["--prompts", "a", "--synthetic", "b"], "exclude"),
    ([*SMALL, "--new", "400", "--synthetic", "x"], "given twice"),
])
def test_wrong_usage(arguments, said):
    with serving() as server:
        done = ctl(server, *arguments, status=USAGE)
    assert said in done.stderr


def test_nobody_there():
    done = subprocess.run([guarded.CTL, "kl", "http://127.0.0.1:9", *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == LOST and done.stdout == ""


def test_a_guarded_run(place, standin):
    """By its name, and without a name where it is the only one."""
    folder = place.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    run = place.run(standin, command=place.command(standin, "--dtype", "float32", model=folder), faults="stale-prefix=3").armed()
    for target in ([run.name], []):
        found = json.loads(place.ctl("kl", *target, *SMALL, "--json", status=1).stdout)
        assert found["target"] == run.name
        assert (found["reading"]["condition"], found["reading"]["where"]) == ("2", "restore")
    place.ctl("dump", run.name, "open")  # while it dumps it takes no measurement, and that is not the answer "no"
    assert "end the dump first" in place.ctl("kl", run.name, *SMALL, status=LOST).stderr
