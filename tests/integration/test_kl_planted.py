"""Faults planted in a real SGLang that is batch-invariant otherwise (tests/real/planted): it must be bit-equal in all paths first, then
each fault is read rightly, and a dump names the operator where one can. Two boots, of a model with experts in float32 and of one with
a sliding window in bfloat16; the fault is changed while the server runs."""
import contextlib
import json
from pathlib import Path

import pytest

import guarded
from guarded import sglang_cpu

pytestmark = pytest.mark.real
PLANTED = Path(__file__).resolve().parent.parent / "real/planted"
PATHS = ["match", "match_alone", "prefill_cache_hit", "decode_cache_hit", "restore"]
PROMPTS = ["--synthetic", "8:12-40:1", "--new", "24"]
LAYER = "model.layers."

# What is planted -> looks (C clean, D dirty), signature, condition, where, requests.
READINGS = {
    "nothing": ("CCCCC", "clean", "none", "none", "all"),
    "unedited": ("DDDDC", "not-batch-invariant", "1", "operator", "all"),
    "rows 1": ("CDCCC", "one-row-alone", "1", "operator", "all"),
    "rows 8": ("DDDDC", "one-row", "1", "operator", "all"),
    "flip 8": ("DDDDC", "router-flip", "1", "operator", "all"),
    "forget 40": ("DDDDC", "decode-forgets", "2", "decode", "all"),
    "restore 1": ("CCDDD", "restored-prefix", "2", "restore", "all"),
    "restore 4": ("CCDDD", "restored-prefix", "2", "restore", "few"),
    "almost": ("CCDCC", "restore-almost-all-cached", "2", "restore", "all"),
    "shift": ("DDDDC", "shifted-logprobs", "refused", "none", "all"),
}

FEW = ["--synthetic", "2:12-20:1", "--new", "4"]

# What is planted -> how it is captured; kind of the verdict, layer, module of the layer and position, or None: not the same everywhere.
NAMED = {
    "nothing": (FEW, None),
    "rows 1": (["--alone", *FEW], ("op", 0, "self_attn.qkv_proj", None)),
    "rows 8": (FEW, ("op", 0, "self_attn.qkv_proj", None)),
    "flip 8": (PROMPTS, ("op", None, "block_sparse_moe.topk", None)),
    "forget 40": (["--synthetic", "2:36-38:1", "--new", "8"], ("op+cache", 0, "self_attn.attn", 40)),
    "restore 1": (["--restore", *FEW], ("op+cache", 0, "self_attn.attn", None)),
    "almost": (["--restore", *FEW[:2], "--new", "0"], ("op+cache", 0, "self_attn.attn", None)),  # the last of a prompt is left to compute
}


@contextlib.contextmanager
def serving(servers, kind, *flags):
    """A run that is armed, and the file that says what is planted."""
    real, place = servers("real"), guarded.Place()  # one thread: others would wait for each other at every row
    plant, model = place.folder / "plant", place.folder / "model"
    plant.write_text("nothing\n")
    sglang_cpu.write_model(model, kind)
    run = place.run(real, command=place.command(real, "--sleep-on-idle", *flags, model=model),
                    environment={"PYTHONPATH": str(PLANTED), "KLDUMP_PLANT": str(plant), "OMP_NUM_THREADS": "1"})
    left = []
    try:
        yield run.armed(), plant
    finally:
        place.ctl("stop", run.name, "--now", status=None)
        run.exit(60)
        left = place.end()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module")
def experts(servers):
    with serving(servers, "mixtral") as server:
        yield server


@pytest.fixture(scope="module")
def window(servers):
    with serving(servers, "gemma2", "--dtype", "bfloat16") as server:
        yield server


def measure(server, planted, status):
    run, plant = server
    plant.write_text(planted + "\n")
    return json.loads(run.place.ctl("kl", run.name, *PROMPTS, "--min-samples", "8", "--comma", "44", "--json", status=status).stdout)


def looks(found):
    grades = [found["helpers"][name]["grade"] for name in PATHS]
    return "".join("C" if grade in ("bit-equal", "stray") else "D" for grade in grades), set(grades)


def reading(found):
    return tuple(found["reading"][key] for key in ("signature", "condition", "where", "requests"))


@pytest.mark.parametrize("planted", READINGS)
def test_a_planted_fault_is_read(experts, planted):
    expected, *read = READINGS[planted]
    found = measure(experts, planted, 1 if "D" in expected else 0)
    seen, grades = looks(found)
    assert (seen, reading(found)) == (expected, tuple(read)), found["reading"]
    assert planted != "nothing" or grades == {"bit-equal"}
    if planted == "unedited":
        assert max(found["helpers"][name]["mean"] for name in PATHS) < 1e-9  # harmless in size, and no condition holds


@pytest.mark.parametrize("planted, answer", [("foreign", "foreign-prefix"), ("forget 40", None), ("restore 1", None)])
def test_what_the_wrong_output_is_the_right_answer_to(experts, planted, answer):
    """Another request's keys and values are those of its ids, bit for bit; a lost key, or tokens lost under three layers, are no ids'."""
    run, plant = experts
    plant.write_text(planted + "\n")
    done = run.place.ctl("kl", run.name, *PROMPTS, "--min-samples", "8", "--comma", "44", "--paths", "match,restore",
                         "--explain", "worst", "--json", status=1)
    found = json.loads(done.stdout)["explanation"]
    rows = {row["name"]: row for row in found["contexts"]}
    assert found["answer"] == answer and rows["unaltered"]["beyond"] > 0, found["text"]
    if answer:
        assert rows[answer]["bit_equal"] == rows[answer]["tokens"] == 24


def diff(run, dec, pre, status):
    found = json.loads(run.place.ctl("diff", dec, pre, "--json", status=status).stdout)
    assert found["alignment"]["proven"]
    return found["verdict"]


@pytest.mark.parametrize("planted", NAMED)
def test_a_dump_names_the_operator(experts, planted):
    run, plant = experts
    options, expected = NAMED[planted]
    plant.write_text(planted + "\n")
    name = planted.replace(" ", "-")
    run.place.ctl("capture", run.name, "--name", name, *options)
    half = "restored" if "--restore" in options else "dec"
    verdict = diff(run, run.directory / f"{name}-{half}", run.directory / f"{name}-pre", 1 if expected else 0)
    if expected is None:
        assert verdict["kind"] == "none"
        return
    kind, layer, module, position = expected
    assert verdict["kind"] == kind and verdict["module"] == f"{LAYER}{verdict['layer']}.{module}", verdict
    assert layer in (None, verdict["layer"]) and position in (None, verdict["position"]), verdict


def test_a_capture_with_shifted_logprobs_is_refused(experts):
    """What the model computes is right: no dump shows how logprobs are cut."""
    run, plant = experts
    plant.write_text("shift\n")
    done = run.place.ctl("capture", run.name, "--name", "shift", *FEW, status=85)
    assert "shifted by one, and nothing can be read from them" in done.stderr
    assert diff(run, run.directory / "shift-dec", run.directory / "shift-pre", 0)["kind"] == "none"


def test_bfloat16_past_the_window(window):
    """Unedited, attention depends on the length of what is computed at once, not on what else is in a pass."""
    found = measure(window, "nothing", 0)
    assert looks(found) == ("CCCCC", {"bit-equal"})
    assert found["past_window"] is True and found["server"]["sliding_window"] == 16
    found = measure(window, "unedited", 1)
    assert (looks(found)[0], reading(found)) == ("DDDDC", ("length-dependent", "1", "operator", "all")), found["reading"]
    assert found["helpers"]["match"]["mean"] > 1e-5 and found["past_window"] is True


def test_bfloat16_where_a_dump_and_the_lengths_say_so(window):
    """The same operator by a dump: attention, and its prompt rows differ between two prefills; by sizes: the extend axis alone."""
    run, plant = window
    plant.write_text("unedited\n")
    run.place.ctl("capture", run.name, "--synthetic", "4:12-40:1", "--new", "12", "--name", "bf16")
    found = json.loads(run.place.ctl("diff", run.directory / "bf16-dec", run.directory / "bf16-pre", "--json", status=1).stdout)
    assert (found["verdict"]["kind"], found["verdict"]["module"].split(".")[-1]) == ("op+cache", "attn"), found["verdict"]
    assert [proof["state"] for proof in found["alignment"]["certificate"] if proof["id"] == "A8"] == ["fails"]
    found = json.loads(run.place.ctl("invariance", run.name, "--synthetic", "4:24-40:1", "--new", "8", "--json", status=1).stdout)
    assert {name: axis["state"] for name, axis in found["axes"].items()} == {"prefill": "unchanged", "extend": "changed", "decode": "unchanged"}
