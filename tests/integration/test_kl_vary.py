"""kldumpctl kl --vary: the same measurement on servers that differ in one setting which should not matter; what moves, what does not, and
that the setting arrived. Places and counts are taken again here from the results that it keeps."""
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

import guarded

CLEAN, DIRTY, USAGE, INCOMPLETE, SETTINGS, NOT_ARMED, FORBIDDEN, INTERRUPTED = 0, 1, 2, 4, 80, 81, 88, 130
SMALL = ["--min-samples", "8"]
PATHS = ["match", "match_alone", "prefill_cache_hit", "decode_cache_hit", "restore"]
SOURCE = Path(__file__).resolve().parents[2]


def arguments(place, server, *settings, faults="", flags=(), more=(), knobs=(), prompts="8:20:1", new="12"):
    """The faults stand in CMD, so that env in front of the server is tried as well."""
    variables = {**server.environment(), "KLDUMP_STANDIN_FAULTS": faults, **dict(knobs)}
    varied = [word for setting in settings for word in ("--vary", setting)]
    return ["kl", *varied, "--synthetic", prompts, *SMALL, "--new", new, "--floor", "64M", "--name", "v", "--dir", place.folder / "v", *more, "--", "env",
            *(f"{name}={value}" for name, value in variables.items()), *place.command(server, "--dtype", "float32", *flags)]


def vary(place, server, *settings, status=DIRTY, **more):
    return json.loads(place.ctl(*arguments(place, server, *settings, more=["--json"], **more), status=status).stdout)


def variant(found, label):
    return next(one for one in found["variants"] if one["label"] == label)


# Faults -> flags of CMD, what is varied, the reading, a part of its text.
READINGS = {
    "clean": ("", (), ["page-size=1,4", "chunked-prefill-size=64"], "clean", "No effect, as the server resolved nothing else: page-size=1."),
    "deterministic": ("window-eviction=24", (), ["attention-backend=triton", "disable-overlap-schedule=on"], "deterministic", "bit for bit"),
    "restored": ("window-eviction=24", (), ["page-size=4"], "restored-otherwise", "page-size=4, first in decode_cache_hit, request 0"),
    "moved": ("page-gap=24", (), ["page-size=4", "attention-backend=triton"], "moved", "page-size=4, first in match, request 0 at position 25."),
    "turns dirty": ("stale-page=16", (), ["page-size=4"], "turns-dirty", "Dirty with page-size=4."),
    "turns clean": ("stale-page=16", ["--page-size", "4"], ["page-size=1,8"], "turns-clean", "Clean with page-size=1."),
    "shifted": ("shifted-logprobs", (), ["attention-backend=triton"], "shifted-logprobs", "are not read"),
    "race": ("race", (), ["attention-backend=triton"], "not-repeatable", "It differs from itself first in match, request 0 at"),
    "no effect": ("stale-prefix=3", (), ["attention-backend=fa3"], "nothing-arrived", "attention-backend=fa3"),
    "blind": ("stale-prefix=3", (), ["disable-radix-cache=on"], "nothing-arrived", "could not be measured with disable-radix-cache=on."),
}


@pytest.mark.parametrize("case", READINGS)
def test_reading(place, standin, case):
    faults, flags, settings, name, part = READINGS[case]
    new = "36" if faults == "race" else "12"  # of 12 tokens two starts draw the same passes once in 200 times
    found = vary(place, standin, *settings, faults=faults, flags=flags, new=new, status=CLEAN if name == "clean" else DIRTY)
    assert (found["reading"]["name"], found["clean"]) == (name, name == "clean")
    assert part in found["reading"]["text"]
    assert bool(found["reading"]["next"]) == (name != "clean")


def test_a_dirty_request_that_does_not_count_is_not_clean(place, standin):
    """The first prompt alone is dirty, and shorter than a page of the variant, which restores nothing of it."""
    prompts = place.folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"input_ids": [20 + i, *((37 * i + 11 * k) % 80 + 20 for k in range(length - 1))]}) + "\n"
                               for i, length in enumerate([14, 31, 32, 34, 35, 36, 37, 38])))
    words = arguments(place, standin, "page-size=16", faults="stale-page=13", more=["--json", "--paths", "match,match_alone,prefill_cache_hit,restore"])
    at = words.index("--synthetic")
    words[at:at + 2] = ["--prompts", prompts]
    found = json.loads(place.ctl(*words, status=DIRTY).stdout)
    assert json.loads(Path(found["variants"][0]["result"]).read_text())["helpers"]["restore"]["requests"][0]["beyond"] > 0
    paths = {path["path"]: path for path in variant(found, "page-size=16")["paths"]}
    assert {path["grade"] for path in paths.values() if path["path"] != "decode_cache_hit"} == {"bit-equal"}
    assert paths["restore"]["why_not"] == "1 requests that are dirty as given do not count here"
    assert found["reading"]["name"] == "nothing-arrived" and "could not be measured with page-size=16" in found["reading"]["text"]


def test_every_reading_is_in_the_manual_and_shown():
    source = (SOURCE / "src/analysis/kl_vary.c").read_text()
    names = re.findall(r'^    \{"([a-z-]+)",', source, re.M)
    page = (SOURCE / "man/kldumpctl.1").read_text()
    listed = re.findall(r"^\.It ([a-z-]+) Ta", page[page.index("Sy Reading of a variation"):], re.M)
    assert len(names) == 9 and listed[:len(names)] == names
    assert {row[3] for row in READINGS.values()} == set(names)


# ---- the numbers, taken again

def differences(given, here):
    """(requests that count in both: request, cached alike, positions that differ) of one path."""
    found = []
    for number, (x, y) in enumerate(zip(given["requests"], here["requests"])):
        if x["dropped"] is not None or y["dropped"] is not None:
            continue
        same = next((k for k, ids in enumerate(zip(x["ids"], y["ids"])) if ids[0] != ids[1]), len(x["ids"]))
        places = [k for k in range(len(x["ids"])) if k >= same or (x["a"][k], x["b"][k]) != (y["a"][k], y["b"][k])]
        found.append((number, x["cached_tokens"] == y["cached_tokens"], [x["first"] + k for k in places]))
    return found


@pytest.mark.parametrize("faults", ["page-gap=24", "window-eviction=24"])
def test_places_are_those_of_the_results(place, standin, faults):
    found = vary(place, standin, "page-size=4", "attention-backend=triton", faults=faults, prompts="8:18-25:2")
    results = [json.loads(Path(one["result"]).read_text()) for one in found["variants"]]
    assert [Path(one["result"]).name for one in found["variants"]] == [
        "1-as-given.json", "2-as-given-again.json", "3-page-size=4.json", "4-attention-backend=triton.json"]
    seen, mixed = set(), False
    for one, result in zip(found["variants"][1:], results[1:]):
        for path in one["paths"]:
            places = differences(results[0]["helpers"][path["path"]], result["helpers"][path["path"]])
            assert path["differing"] == sum(len(positions) for _number, _alike, positions in places)
            assert path["compared_tokens"] == 12 * len(places)
            mixed = mixed or next((not alike for _number, alike, positions in places if positions), False) and any(
                alike for _number, alike, positions in places if positions)
            wanted = min(((not alike, number, positions[0]) for number, alike, positions in places if positions), default=None)
            if wanted is None:
                assert path["first"] is None
                continue
            assert path["first"] == {"request": wanted[1], "position": wanted[2], "restored_otherwise": wanted[0]}
            seen.add((one["label"], path["path"]))
            assert path["grade"] == result["helpers"][path["path"]]["grade"] and path["mean"] == result["helpers"][path["path"]]["mean"]
    assert mixed == (faults == "page-gap=24"), "a request that is restored otherwise differs before one that is not"
    assert ("page-size=4", "decode_cache_hit") in seen and all(label == "page-size=4" for label, _path in seen)
    a, b = found["variants"][0]["result"], variant(found, "page-size=4")["result"]
    assert json.loads(place.ctl("ab", a, b, "--json", status=1).stdout)["settings"][0]["name"] == "page_size"


def test_a_value_longer_than_a_name_of_a_file(place, standin):
    """Files are named by a part of it, so that its server starts all the same."""
    label = "served-model-name=" + "x" * 300
    one = vary(place, standin, label, status=CLEAN)["variants"][2]
    assert (one["label"], one["state"]) == (label, "no effect"), one["why"]
    assert (place.folder / f"v/3-{label[:100]}.log").exists()


# ---- whether it arrived

def test_proven_from_what_the_server_resolved(place, standin):
    found = vary(place, standin, "page-size=1,4", "attention-backend=triton", "disable-overlap-schedule=on,off", "log-level=debug", status=CLEAN)
    looks = {one["label"]: (one["state"], one["resolved"], one["as_asked"]) for one in found["variants"][2:]}
    assert looks == {
        "page-size=1": ("no effect", "1", True), "page-size=4": ("measured", "4", True), "attention-backend=triton": ("measured", "triton", True),
        "disable-overlap-schedule=on": ("measured", "true", True), "disable-overlap-schedule=off": ("no effect", "false", True),
        "log-level=debug": ("no effect", "-", False)}
    assert [(s["name"], s["as_given"], s["here"]) for s in variant(found, "page-size=4")["settings"]] == [("page_size", "1", "4")]
    assert not variant(found, "page-size=1")["settings"] and variant(found, "page-size=1")["result"] is None


# ---- what it prints

def test_the_text_has_everything(place, standin):
    text = place.ctl(*arguments(place, standin, "page-size=4,16", faults="window-eviction=24"), status=DIRTY).stdout
    for part in ("as given again", "match, one at a time", "page-size=16, decode cache hit: ", "page-size=4: page_size 4, as given 1", "reading",
                 "next", "3-page-size=4.json", "request 0 at 33, 96 of 96 tokens *", "* only where another number of tokens was restored"):
        assert part in text, text


def test_every_member_is_described(place, standin):
    page = (SOURCE / "doc/kl.md").read_text()
    described = set(re.findall(r"`([a-z_0-9]+)`", page[page.index("# What `kldumpctl kl --vary --json` prints"):]))

    def members(value, skip=("prompts",)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            if isinstance(key, str):
                yield key
            if key not in skip:
                yield from members(child)
    found = vary(place, standin, "page-size=4", faults="window-eviction=24")
    assert set(members(found)) <= described, set(members(found)) - described
    assert next(iter(found)) == "schema" and found["schema"] == "kldump.kl-vary/1"


def test_keys_are_covered(place, standin):
    done = place.start([guarded.CTL, *arguments(place, standin, "page-size=4", flags=["--api-key", "secret-7"], more=["--json", "--paths", "match"])],
                       {"KLDUMP_API_KEY": "secret-7"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    text, error = done.communicate(timeout=120)
    assert done.returncode == CLEAN, error
    assert "secret-7" not in text + error and [one["state"] for one in json.loads(text)["variants"]] == ["measured"] * 3


def test_out_and_options_of_the_run(place, standin):
    out = place.folder / "vary.json"
    place.ctl(*arguments(place, standin, "attention-backend=triton", more=["--out", out, "--paths", "match", "--budget", "3G"]))
    found = json.loads(out.read_text())
    assert [path["path"] for path in found["variants"][0]["paths"]] == ["match"] and found["dir"] == str(place.folder / "v")
    run = json.loads((place.runtime / "runs/v-3/record.json").read_text())["run"]
    assert (run["kind"], run["space"]["budget_bytes"]) == ("plain", 3 << 30)


# ---- what goes wrong

def test_a_variant_that_does_not_start(place, standin):
    """The others go on; its status is that of the whole where nothing else is wrong."""
    found = vary(place, standin, "nonsense=1", "page-size=4", status=NOT_ARMED)
    one = variant(found, "nonsense=1")
    assert one["state"] == "not measured" and one["why"].startswith("did not start: run v-3 has ended (exit status 81): "), one["why"]
    assert "nonsense" in one["why"] and str(place.folder / "v/3-nonsense=1.log") in one["why"]
    assert variant(found, "page-size=4")["state"] == "measured" and "Not measured: nonsense=1." in found["reading"]["text"]
    text = place.ctl(*arguments(place, standin, "page-size=x", faults="window-eviction=24"), status=DIRTY).stdout
    assert "page-size=x: did not start" in text and "not measured" in text


def test_as_given_it_does_not_start(place, standin):
    done = place.ctl(*arguments(place, standin, "page-size=4", flags=["--nonsense"]), status=NOT_ARMED)
    assert "as given: run v-1 has ended" in done.stderr and done.stdout == ""
    done = place.ctl(*arguments(place, standin, "page-size=4", faults="bad-answer=text:/generate:logprobs"), status=None)
    assert done.returncode not in (CLEAN, DIRTY, NOT_ARMED) and "as given: " in done.stderr


def test_somebody_else_uses_the_server(place, standin):
    """Other numbers would be his: nothing is compared."""
    done = place.ctl(*arguments(place, standin, "page-size=4", faults="stranger", more=["--json"]), status=INCOMPLETE)
    assert "as given: " in done.stderr and "somebody else" in done.stderr and done.stdout == "", done


def test_a_server_that_ends_while_it_is_measured(place, standin):
    found = arguments(place, standin, "page-size=4", knobs=[("KLDUMP_STANDIN_STEP_MS", "20")])
    process = place.start([guarded.CTL, *found], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    guarded.wait_for(lambda: (place.runtime / "runs/v-1/record.json").exists() and state(place, "v-1") == "ready", 30, "the first server")
    guarded.os.kill(json.loads(place.ctl("status", "v-1", "--json").stdout)["runs"][0]["pid"], signal.SIGKILL)
    _text, error = process.communicate(timeout=60)
    assert process.returncode not in (CLEAN, DIRTY) and "as given" in error, error


def state(place, name):
    done = place.ctl("status", name, "--json", status=None)
    return json.loads(done.stdout)["runs"][0]["state"] if done.returncode == 0 else ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(place, standin, number):
    """The server is stopped in order, and what was measured stays."""
    words = arguments(place, standin, "page-size=4", knobs=[("KLDUMP_STANDIN_STEP_MS", "20")])
    process = place.start([guarded.CTL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    guarded.wait_for(lambda: (place.folder / "v/1-as-given.json").exists() and state(place, "v-2") == "ready", 60, "the second server")
    process.send_signal(number)
    _text, error = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and "what was measured so far lies in" in error, error
    run = json.loads(place.ctl("status", "v-2", "--json").stdout)["runs"][0]
    assert run["state"] == "ended" and not place.survivors()


def test_tokens_that_are_drawn_need_a_seed(place, standin):
    """Up to 0.5.12 the helpers draw at temperature 1: under another seed at each start nothing can be compared."""
    python = place.folder / "drawing/python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {standin.python(place)} "$@"\n[ -z "$DRAWN" ] || set -- "$@" --random-seed $$\nexec {standin.python(place)} "$@"\n')
    python.chmod(0o755)
    old = [("KLDUMP_STANDIN_VERSION", "0.5.12.post1")]
    words = [str(python) if word == str(standin.python(place)) else word
             for word in arguments(place, standin, "page-size=4", knobs=[*old, ("DRAWN", "1")], more=["--paths", "match"])]
    done = place.ctl(*words, status=SETTINGS)
    assert "as given again: tokens are drawn at temperature 1" in done.stderr and "give CMD a --random-seed" in done.stderr
    place.ctl(*arguments(place, standin, "page-size=4", knobs=old, more=["--paths", "match"]), status=CLEAN)


def test_a_wrapper_is_refused(place, standin):
    script = place.folder / "serve.sh"
    script.write_text("#!/bin/sh\n")
    done = place.ctl("kl", "--vary", "page-size=4", "--", script, status=SETTINGS)
    assert "CMD is not SGLang itself" in done.stderr


@pytest.mark.parametrize("words, said", [
    (["--vary", "page-size"], "expected NAME=VALUE"), (["--vary", "--page-size=1"], "expected NAME=VALUE"), (["--vary", "port=1"], "where the server"),
    (["--vary", "page-size=4", "t"], "leave 't' out"), (["--vary", "page-size=4", "--all"], "--all"), ([], "for --vary"),
    (["--vary", "page-size=4", "--kind", "dump"], "kind plain"), (["--vary", "page-size=4", "--floor", "20"], "--floor"),
    (["--vary", "page-size=4", "--synthetic", "8:9"], "not of the form"), (["--vary", "page-size=4", "--synthetic", "8:9:1"], "at least 32"),
    (["--vary", "page-size=4", "--prompts", "/dev/null/p"], "/dev/null/p"), (["--vary", "page-size=4", "--thresholds", "t.json"], "t.json"),
    (["--vary", "page-size=4", "--out", "no/kl.json"], "--out: 'no/kl.json' cannot be written"), (["--vary", "page-size=4", "--out", "."], "--out"),
    (["--vary", "page-size=4", "--new", "1"], "at least 2"), (["--vary", "page-size=4", "--name", "n" * 64], "too long"),
])
def test_wrong_usage(place, standin, words, said):
    done = place.ctl("kl", *words, "--", *place.command(standin), status=USAGE)
    assert said in done.stderr
    assert not list(place.folder.glob("kldump-*")), "something was made"


def test_a_folder_that_is_none(place, standin):
    (place.folder / "file").touch()
    done = place.ctl("kl", "--vary", "page-size=4", "--dir", "file", "--", *place.command(standin), status=FORBIDDEN)
    assert "dump folder file: Not a directory; give another one with --dir" in done.stderr


def test_options_of_a_run_without_a_variation(place):
    assert "--floor is of the runs" in place.ctl("kl", "--floor", "20G", "t", status=USAGE).stderr
    assert "needs the server's command" in place.ctl("kl", "--vary", "page-size=4", status=USAGE).stderr


# ---- the real server

@pytest.mark.real
def test_the_unedited_server_repeats(place, servers):
    """Bit for bit on a fresh server, and under pages of 16; only what another number of restored tokens reaches moves."""
    real = servers("real")
    done = place.start([guarded.CTL, "kl", "--vary", "page-size=16", "--synthetic", "4:20-60:1", "--min-samples", "4", "--new", "12", "--comma", "44",
                        "--floor", "64M", "--name", "v", "--dir", place.folder / "v", "--json", "--", *place.command(real, "--sleep-on-idle")],
                       real.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    text, error = done.communicate(timeout=500)
    assert done.returncode == DIRTY, error
    given, again, paged = json.loads(text)["variants"]
    assert {path["grade"] for path in given["paths"]} >= {"noise"} and all(path["first"] is None and path["differing"] == 0 for path in again["paths"])
    assert (paged["state"], paged["resolved"], paged["as_asked"]) == ("measured", "16", True)
    assert [path["path"] for path in paged["paths"] if path["first"] is not None] == ["decode_cache_hit"]
    assert json.loads(text)["reading"]["name"] == "restored-otherwise"
