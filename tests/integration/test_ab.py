"""kldumpctl ab: two results of the same requests, on the stand-in: a flag without effect, one that changes nothing, faults that change
one thing each, and results that may not be compared."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standin"))
import guarded  # noqa: E402
import standin as player  # noqa: E402
from test_kl import class_of  # noqa: E402
from test_numbers import EAGER  # noqa: E402

player.PROGRAM = guarded.STANDIN
SAME, CHANGED, USAGE, INCOMPLETE, NO_RUN = 0, 1, 2, 4, 87
PROMPTS = "3:10-20:1"
MODEL = Path(__file__).resolve().parent  # without a config.json; one for all, as its path is a setting


def kl(out, faults="", flags=(), prompts=PROMPTS, new="6", paths="match,restore"):
    with player.StandIn(faults, arguments=(*EAGER, "--dtype", "float32", *flags), model=MODEL) as server:
        assert server.ready(), server.log()
        done = subprocess.run([guarded.CTL, "kl", f"http://127.0.0.1:{server.port}", "--synthetic", prompts, "--min-samples", "1", "--new", new,
                               "--paths", paths, "--out", out], capture_output=True, text=True, timeout=120, check=False)
    assert out.exists(), done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return kl(tmp_path_factory.mktemp("ab") / "base.json")


def ab(a, b, *more, status):
    done = subprocess.run([guarded.CTL, "ab", a, b, *more], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def found(a, b, *more, status):
    return json.loads(ab(a, b, "--json", *more, status=status).stdout)


def edited(place_of, original, name, change):
    """A copy of a result in which CHANGE has edited the object."""
    result = json.loads(original.read_text())
    change(result)
    path = place_of / name
    path.write_text(json.dumps(result))
    return path


def test_a_flag_without_effect(base, tmp_path):
    """Two servers started alike: what a flag that is not read looks like."""
    again = kl(tmp_path / "again.json")
    result = found(base, again, status=SAME)
    assert (result["result"], result["settings"], result["kind"]) == ("no effect", [], "kl")
    assert [(p["path"], p["changed"]) for p in result["paths"]] == [("match", 0), ("restore", 0)]
    assert sum(p["tokens"] for p in result["paths"]) > 0
    assert "the switch took no effect" in ab(base, again, status=SAME).stdout


def test_a_switch_that_arrived(base, tmp_path):
    other = kl(tmp_path / "other.json", flags=("--enable-mixed-chunk", "--random-seed", "7"))
    result = found(base, other, status=SAME)
    assert result["result"] == "no change"
    assert {s["name"]: (s["a"], s["b"], s["by_chance"]) for s in result["settings"]} == {
        "enable_mixed_chunk": ("false", "true", False), "random_seed": ("42", "7", True)}
    text = ab(base, other, status=SAME).stdout
    assert "arrived, changed no result here" in text and "took no effect" not in text and "random_seed *" in text
    seed = kl(tmp_path / "seed.json", flags=("--random-seed", "7"))
    assert found(base, seed, status=SAME)["result"] == "no effect"


def test_without_settings_nothing_is_said_of_the_switch(base, tmp_path):
    blind = edited(tmp_path, base, "blind.json", lambda r: r["server"].pop("settings"))
    assert found(base, blind, status=SAME)["result"] == "not known"


def test_where_it_changed(base, tmp_path):
    """The logprobs of one path, as the files themselves have them."""
    other = kl(tmp_path / "other.json", faults="kv-off-by-one=1")
    result = found(base, other, status=CHANGED)
    assert result["result"] == "changed" and result["settings"] == []
    a, b = json.loads(base.read_text()), json.loads(other.read_text())
    match = result["paths"][0]
    wanted = []
    for number, (x, y) in enumerate(zip(*(r["helpers"]["match"]["requests"] for r in (a, b)))):
        same = next((k for k, ids in enumerate(zip(x["ids"], y["ids"])) if ids[0] != ids[1]), len(x["ids"]))
        differ = [k for k in range(same) if (x["a"][k], x["b"][k]) != (y["a"][k], y["b"][k])]
        classes = sum(class_of(x["a"][k], x["b"][k]) != class_of(y["a"][k], y["b"][k]) for k in range(same))
        largest = max([abs(x[series][k] - y[series][k]) for k in range(same) for series in "ab"], default=0)
        if differ or same < len(x["ids"]):
            wanted.append((number, x["rid"], same, len(x["ids"]) - same, len(differ), x["first"] + (differ[0] if differ else same), classes, largest))
    keys = ("request", "rid_a", "tokens", "other_tokens", "logprobs", "position", "classes", "largest")
    assert [tuple(r[key] for key in keys) for r in match["changed_requests"]] == wanted
    assert wanted and match["changed"] == len(wanted)
    text = ab(base, other, status=CHANGED).stdout
    assert f"{wanted[0][1]} at {wanted[0][5]}" in text and "no setting that the server shows differs" in text


def test_one_number(base, tmp_path):
    def change(result):
        request = result["helpers"]["restore"]["requests"][1]
        request["a"][2] -= 0.5
        request["cached_tokens"] += 1

    result = found(base, edited(tmp_path, base, "one.json", change), status=CHANGED)
    match, restore = result["paths"]
    assert match["changed"] == 0 and restore["changed"] == 1
    request, = restore["changed_requests"]
    assert (request["request"], request["logprobs"], request["classes"], request["cached_tokens"]) == (1, 1, 1, True)
    assert abs(request["largest"] - 0.5) < 1e-12


def test_what_is_never_compared(base, tmp_path):
    pairs = {"the prompts differ": kl(tmp_path / "p.json", prompts="3:10-20:2"),
             "the numbers of samples differ: 3": edited(tmp_path, base, "n.json", lambda r: r["prompts"].update(count=4)),
             "the new tokens differ: 6": kl(tmp_path / "t.json", new="7", paths="match"),
             "the temperatures differ: 0": edited(tmp_path, base, "c.json", lambda r: r.update(temperature=1)),
             "the samples of match differ: 3": edited(tmp_path, base, "s.json", lambda r: r["helpers"]["match"]["requests"].pop()),
             "the lengths of request 0 of match differ": edited(
                 tmp_path, base, "l.json", lambda r: r["helpers"]["match"]["requests"][0].update(first=9)),
             "no path was measured in both": edited(
                 tmp_path, base, "x.json", lambda r: [p.update(requests=[]) for p in r["helpers"].values()])}
    for said, other in pairs.items():
        for a, b in ((base, other), (other, base)):
            error = ab(a, b, status=USAGE).stderr
            assert said.split(":")[0] in error and str(base) in error and str(other) in error, (said, error)
    kind = tmp_path / "kind.json"
    kind.write_text('{"schema": "kldump.check/1"}')
    assert "expected kldump.kl/1 or kldump.capture/1" in ab(base, kind, status=USAGE).stderr


def test_a_damaged_result_is_refused(base, tmp_path):
    """Each with the member, never a crash: what a file says is not trusted."""
    match = lambda r: r["helpers"]["match"]["requests"][0]  # noqa: E731
    damages = {"helpers": lambda r: r.update(helpers=None), "ids, element 1": lambda r: match(r)["ids"].__setitem__(1, None),
               "ids, element 0": lambda r: match(r)["ids"].__setitem__(0, 1e300), "a has 5 elements": lambda r: match(r)["a"].pop(),
               "rid": lambda r: match(r).pop("rid"), "first": lambda r: match(r).update(first=-1)}
    for number, (said, change) in enumerate(damages.items()):
        error = ab(base, edited(tmp_path, base, f"{number}.json", change), status=125).stderr
        assert said in error, (said, error)
    capture = {"schema": "kldump.capture/1", "complete": True, "requests": [{
        "score": {"rid": "s", "cached_tokens": 0}, "decode": {"rid": "d", "cached_tokens": 0}, "prompt_tokens": 2 ** 53 - 1,
        "input_ids": [1], "output_ids": [2], "scored_logprobs": [None, -1], "decoded_logprobs": [-1]}]}
    huge = tmp_path / "huge.json"
    huge.write_text(json.dumps(capture))
    assert "expected 1 from 9007199254740991 on" in ab(huge, huge, status=125).stderr


def test_a_path_that_one_alone_has(base, tmp_path):
    one = kl(tmp_path / "one.json", paths="match")
    result = ab(base, one, status=SAME)
    assert "measured in A alone: restore" in result.stdout


def test_captures_of_runs(place, standin):
    """Runs stand for their captures; one of kl is no capture, and one that is not complete says nothing."""
    runs = {name: place.run(standin, name=name, faults=faults).armed() for name, faults in
            (("a", ""), ("b", ""), ("c", "kv-off-by-one=1"))}
    for name in runs:
        place.ctl("capture", name, "--synthetic", "2:9-12:5", "--new", "4")
        place.ctl("stop", name)
    assert json.loads(place.ctl("ab", "a", "b", "--json").stdout)["result"] == "no effect"
    result = json.loads(place.ctl("ab", "a", "c", "--json", status=CHANGED).stdout)
    prompt, output = result["paths"]
    assert (prompt["path"], prompt["changed"]) == ("prompt", 0)
    assert output["path"] == "output" and output["changed"] == 2
    first = output["changed_requests"][0]["position"]
    assert first > json.loads((runs["a"].directory / "capture.capture.json").read_text())["requests"][0]["prompt_tokens"]
    assert "has no capture 'long'" in place.ctl("ab", "a", "b", "--name", "long", status=NO_RUN).stderr
    cut = edited(place.folder, runs["a"].directory / "capture.capture.json", "cut.json", lambda r: r.update(complete=False, reasons=["interrupted"]))
    assert "not complete: interrupted" in place.ctl("ab", "a", cut, status=INCOMPLETE).stderr
