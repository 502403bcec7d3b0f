"""kldumpctl kl --explain on the stand-in: what a wrong output is the right answer to. Where a prefill of other ids computes what the
fault computes, it is named, bit for bit; where it cannot, the nearest is, or none."""
import re
from pathlib import Path

import pytest

from recorder import recording
from test_kl import CLEAN, DIRTY, LOST, SMALL, SOURCE, USAGE, class_of, ctl
from test_numbers import LLAMA, WINDOW, serving

ONE_LAYER = {**LLAMA, "num_hidden_layers": 1}
STATES = {**LLAMA, "model_type": "qwen3_next", "num_hidden_layers": 2, "layer_types": ["linear_attention"] * 2}
TRACK = ("--mamba-track-interval", "8")


def explain(faults, model=None, wish="worst", flags=(), status=DIRTY):
    with serving(faults, model, ("--dtype", "float32", *flags)) as server:
        return ctl(server, *SMALL, "--explain", wish, status=status)["explanation"]


def row_of(explanation, name):
    return next(row for row in explanation["contexts"] if row["name"] == name)


# Fault -> model, flags, which request, the path that is explained, what it is the right answer to, whether bit for bit
NAMED = {
    "foreign-prefix": (None, (), "worst", "restore", "foreign-prefix", True),
    "foreign-prefix in a second turn": (None, (), "decode_cache_hit:2", "decode_cache_hit", "foreign-prefix", True),
    "stale-last": (ONE_LAYER, (), "worst", "prefill_cache_hit", "foreign-last", True),
    "stale-page=4": (ONE_LAYER, (), "worst", "restore", "foreign-last", True),
    "stale-checkpoint=8": (STATES, TRACK, "worst", "restore", "prefix-checkpoint-short", True),
    "stale-checkpoint=1000": (STATES, TRACK, "worst", "restore", "prefix-missing", True),
    "stale-checkpoint=1": (STATES, TRACK, "worst", "restore", "prefix-without-last", True),
    "checkpoint-rotation=24": (STATES, TRACK, "worst", "match", "nothing-before", True),
    # what is left of the context stands at other positions, whose rotations have other last bits
    "window-eviction=24": (ONE_LAYER, (), "worst", "match", "first-four-missing", False),
}


@pytest.mark.parametrize("case", NAMED)
def test_the_right_answer_is_named(case):
    model, flags, wish, path, name, by_bits = NAMED[case]
    found = explain(case.split(" ")[0], model, wish, flags)
    assert (found["path"], found["answer"], found["nothing"]) == (path, name, None), found["text"]
    row, right = row_of(found, name), row_of(found, "unaltered")
    assert row["reproduces"] and row["beyond"] == 0 and row["tokens"] > 3
    assert (row["bit_equal"] == row["tokens"]) == by_bits
    assert right["beyond"] > 0 and not right["reproduces"]
    assert row["text"] in found["text"]
    assert [other["name"] for other in found["contexts"] if other["reproduces"]] == [name]


# Faults that no prefill of other ids computes: deeper layers saw what was lost later, a key of somebody else in the middle, a query
# without its own key. The nearest is no answer.
UNNAMED = {"window-eviction=24": None, "stale-prefix=3": None, "kv-off-by-one=1": None, "stale-last": "foreign-last",
           "batch-variant=1:down_proj:40": None}


@pytest.mark.parametrize("faults", UNNAMED)
def test_none_reproduces_it(faults):
    found = explain(faults)
    assert (found["answer"], found["nearest"]) == (None, UNNAMED[faults]), found["text"]
    assert found["text"].startswith("None of them reproduces the wrong output")
    assert not any(row["reproduces"] for row in found["contexts"])
    nearest = row_of(found, found["nearest"] or "unaltered")
    assert nearest["mean_abs"] == min(row["mean_abs"] for row in found["contexts"] if row["why_not"] is None)
    assert ("Condition 1 is broken" in found["text"]) == faults.startswith(("kv-off", "batch-variant"))


def test_numbers_are_those_of_the_scores():
    """Of each altered context: the ids that were sent, the scores that came back, against the wrong logprobs."""
    with serving("stale-page=4", LLAMA, ("--dtype", "float32")) as server, recording(server.port) as recorder:
        url = type("Server", (), {"port": recorder.server_address[1]})
        whole = ctl(url, *SMALL, "--explain", "restore:5", status=DIRTY)
        found, sent = whole["explanation"], [body for path, body in recorder.kept if path == "/generate"]
        request = whole["helpers"]["restore"]["requests"][5]
        assert found["wrong"] == "a" and found["dirty"] == request["first_beyond"] and found["rid"] == request["rid"]
        wrong = request["a"][found["dirty"] - request["first"]:]
        for name in ("unaltered", "prefix-without-last", "first-four-missing"):
            body = next(body for body in sent if name in body["rid"][0])
            again = server.generate(rid="again", tokens=0, ids=body["input_ids"][0], return_logprob=True, logprob_start_len=0)[1]
            scores = [entry[0] for entry in again["meta_info"]["input_token_logprobs"]][-len(wrong):]
            row = row_of(found, name)
            classes = [class_of(a, b) for a, b in zip(scores, wrong)]
            assert [row[key] for key in ("bit_equal", "stray", "beyond")] == [classes.count(key) for key in ("bit_equal", "stray", "beyond")]
            assert row["tokens"] == len(wrong)
            assert row["max_abs"] == pytest.approx(max(abs(a - b) for a, b in zip(scores, wrong)), rel=1e-12)
            assert row["mean_abs"] == pytest.approx(sum(abs(a - b) for a, b in zip(scores, wrong)) / len(wrong), rel=1e-12)


def test_every_context_is_scored_fresh():
    """A flush before each, and no answer from the cache; rids of this measurement."""
    with serving("foreign-prefix", flags=("--dtype", "float32")) as server, recording(server.port) as recorder:
        url = type("Server", (), {"port": recorder.server_address[1]})
        found = ctl(url, *SMALL, "--explain", "worst", status=DIRTY)["explanation"]
    tried = [row["name"] for row in found["contexts"] if row["why_not"] is None]
    last = recorder.kept[-2 * len(tried):]
    assert all(path.startswith("/flush_cache") for path, _body in last[::2])
    for name, (_path, body) in zip(tried, last[1::2]):
        assert all(re.fullmatch(rf"kl-[0-9a-f]{{16}}-{name}-\d+", rid) for rid in body["rid"])
        assert body["logprob_start_len"] == 0 or set(body["logprob_start_len"]) == {0}


@pytest.mark.parametrize("faults, wish, said", [
    ("", "worst", "no request is dirty"), ("", "match:3", "match:3 is clean"), ("shifted-logprobs", "worst", "the reading refuses"),
    ("stale-page=4", "restore:8", "restore:0 to restore:7"), ("stale-page=4", "match:0", "match:0 is clean"),
])
def test_nothing_to_explain(faults, wish, said):
    with serving(faults, flags=("--dtype", "float32")) as server:
        plain = ctl(server, *SMALL, json_wanted=False)
        done = ctl(server, *SMALL, "--explain", wish, json_wanted=False)
        found = ctl(server, *SMALL, "--explain", wish)["explanation"]
    assert done.returncode == plain.returncode and f"nothing to explain: " in done.stdout and said in done.stdout
    assert list(found) == ["nothing"] and said in found["nothing"]
    assert "nothing to explain" not in plain.stdout
    assert ("kl --explain worst" in plain.stdout) == (faults == "stale-page=4") and "kl --explain worst" not in done.stdout


def test_without_a_cache():
    found = explain("batch-variant", flags=("--disable-radix-cache",), wish="restore:0")
    assert found["nothing"] == "restore was not measured: the radix cache is off"


@pytest.mark.parametrize("arguments, said", [
    (["--explain", "best"], "'best' is neither worst nor a path and a number as restore:3"), (["--explain", "mach:1"], "'mach:1'"),
    (["--explain", "match:x"], "--explain"), (["--explain", "restore:1", "--paths", "match"], "--paths leaves restore out"),
])
def test_wrong_usage(arguments, said):
    with serving() as server:
        assert said in ctl(server, *SMALL, *arguments, status=USAGE).stderr


def test_what_a_server_has_not_is_said():
    found = explain("window-eviction=24")
    for name, said in (("window", "no sliding window"), ("prefix-page-short", "pages have one token"),
                       ("prefix-checkpoint-short", "no checkpoints")):
        assert said in row_of(found, name)["why_not"]
    found = explain("window-eviction=24", {**WINDOW, "sliding_window": 8})
    for name in ("window", "window-less-one", "window-plus-one"):
        row = row_of(found, name)
        assert row["why_not"] is None and row["tokens"] == 8 and "one attention layer" in row["exact"]


def test_the_text_has_the_table():
    with serving("foreign-prefix", flags=("--dtype", "float32")) as server:
        text = ctl(server, *SMALL, "--explain", "worst", status=DIRTY, json_wanted=False).stdout
    lines = text.splitlines()
    assert re.search(r"^explain +restore:\d \(kl-.*against fresh scores", text, re.M)
    assert re.search(r"^another request's prefix \(\d; \d tried\) +12 +12 +0 +0 +0 +0$", text, re.M)
    assert re.search(r"^not tried +the prefix down to the page", text, re.M)
    assert lines.index(next(line for line in lines if line.startswith("answer"))) > lines.index(next(line for line in lines if line.startswith("reading")))


def test_another_server_before_it_is_explained():
    with serving("foreign-prefix") as first, serving("foreign-prefix") as second, recording(first.port) as recorder:
        def swap(_path, body):
            if body and "first-missing" in str(body["rid"]):
                recorder.target = second.port
        recorder.look = swap
        done = ctl(type("Server", (), {"port": recorder.server_address[1]}), *SMALL, "--explain", "worst")
    assert done.returncode == LOST and "--explain: " in done.stderr and "restarted" in done.stderr, done


def test_every_member_is_described():
    page = (SOURCE / "doc/kl.md").read_text()
    described = set(re.findall(r"`([a-z_0-9]+)`", page[page.index("## `explanation`"):]))
    found = explain("foreign-prefix")
    assert set(found) | {key for row in found["contexts"] for key in row} <= described
    with serving() as server:
        assert ctl(server, *SMALL, status=CLEAN)["explanation"] is None


def test_every_alteration_is_in_the_manual():
    """In the order in which they are tried."""
    source = Path(SOURCE / "src/analysis/kl_explain.c").read_text()
    names = re.findall(r'^ +\{"([a-z-]+)", ?"', source[source.index("} table[] = {"):], re.M)
    page = (SOURCE / "man/kldumpctl.1").read_text()
    listed = re.findall(r"^\.It ([a-z-]+) Ta", page[page.index("Sy Altered context"):], re.M)
    assert len(names) == 16 and listed[:len(names)] == names
