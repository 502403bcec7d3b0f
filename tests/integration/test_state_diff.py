"""kldumpctl state-diff: the states that two runs restored, from the lines of a probe in their servers."""
import json
import re
import sys
from pathlib import Path

import guarded

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standin"))
from test_numbers import RECURRENT  # noqa: E402

EQUAL, DIFFERENT, USAGE, INCOMPLETE = 0, 1, 2, 4
LAYERS = [i for i, kind in enumerate(RECURRENT["layer_types"]) if kind == "linear_attention"]


def line(slot, length, absmax, layer=1):
    return f"kldump-state rank=0 slot={slot} length={length} layer={layer} name=temporal absmax={absmax} ;\n"


def log(place, name, *lines):
    path = place.folder / name
    path.write_text("loading\n" + "".join(lines) + "The server is fired up and ready to roll!\n")
    return path


def state_diff(place, *arguments, status):
    return json.loads(place.ctl("state-diff", *arguments, "--json", status=status).stdout)


# ---- files

def test_no_hit_is_an_error(place):
    none, one = log(place, "none"), log(place, "one", line(1, 64, 1.5))
    for pair in ((none, one), (one, none), (none, none)):
        done = place.ctl("state-diff", *pair, status=INCOMPLETE)
        assert "never fired in " + str(none) in done.stderr and "no difference" not in done.stdout + done.stderr
    done = place.ctl("state-diff", one, one, "--min-hits", 2, status=INCOMPLETE)
    assert "1 hits of the probe" in done.stderr and "at least 2" in done.stderr
    assert "no difference" in place.ctl("state-diff", one, one, status=EQUAL).stdout


def test_what_could_not_be_read_is_not_equal(place):
    whole, cut = log(place, "whole", line(1, 64, 1.5)), log(place, "cut", line(1, 64, 1.5), "kldump-state slot=2 len\n")
    done = place.ctl("state-diff", whole, cut, status=INCOMPLETE)
    assert "1 damaged lines" in done.stdout and "kldump-state slot=2 len" in done.stdout and "no difference" not in done.stdout
    lost = log(place, "lost", line(1, 64, 1.5), "kldump-state rank=0 lost=7 ;\n")
    assert state_diff(place, whole, lost, status=INCOMPLETE)["b"]["lost"] == 7
    assert state_diff(place, cut, log(place, "other", line(1, 64, 2)), status=DIFFERENT)["differ"] == 1


def test_nothing_was_restored_is_said(place):
    cleared = log(place, "cleared", line(1, 0, 0.0))
    assert "neither run has restored a prefix" in place.ctl("state-diff", cleared, cleared, status=EQUAL).stdout


def test_not_a_number_is_said(place):
    one = log(place, "one", line(1, 64, "nan"))
    assert "1 hits are NaN or infinite" in place.ctl("state-diff", one, log(place, "two", line(1, 64, 1)), status=DIFFERENT).stdout
    assert "2 hits are NaN or infinite" in place.ctl("state-diff", one, one, status=EQUAL).stdout


def kl_result(place, **paths):
    """A result of `kl`, cut down to what is read of it."""
    helpers = {path: {"requests": [{"rid": rid, "cached_tokens": cached, "beyond": beyond, "dropped": dropped}
                                   for rid, cached, beyond, dropped in requests]} for path, requests in paths.items()}
    path = place.folder / "kl.json"
    path.write_text(json.dumps({"schema": "kldump.kl/1", "helpers": helpers}))
    return path


def test_failing_requests_and_their_slots(place):
    a = log(place, "a", line(1, 64, 1), line(2, 64, 2), line(3, 96, 5), line(4, 32, 1))
    b = log(place, "b", line(4, 32, 1), line(3, 96, 6), line(1, 64, 1), line(2, 64, 9))
    result = kl_result(place, match=[("m", 0, 3, None)],
                       restore=[("r64", 64, 2, None), ("c64", 64, 0, None), ("r96", 96, 1, None), ("r97", 97, 1, None), ("r32", 32, 4, None),
                                ("x", 96, 9, "no cached token")])
    found = state_diff(place, a, b, "--kl", result, status=DIFFERENT)
    rows = found["rows"]
    assert [(r["result"], r["length"], r["slot_a"], r["slot_b"], r["several"]) for r in rows] == [
        ("equal", 32, 4, 4, False), ("equal", 64, 1, 1, True), ("differs", 64, 2, 2, True), ("differs", 96, 3, 3, False)]
    assert (rows[3]["layer"], rows[3]["absmax_a"], rows[3]["absmax_b"]) == (1, 5, 6)
    assert found["kl"]["failing"] == 5 and found["kl"]["without_prefix"] == 1
    joined = {r["rid"]: (r["slots"], r["slots_not_equal"], r["same_prefix_failing"], r["same_prefix_clean"], r["row"])
              for r in found["kl"]["requests"]}
    assert joined == {"m": (0, 0, 0, 0, None), "r64": (2, 1, 0, 1, 2), "r96": (1, 1, 0, 0, 3), "r97": (0, 0, 0, 0, None),
                      "r32": (1, 0, 0, 0, 0)} | {"m": (0, 0, 0, 0, None)}
    text = place.ctl("state-diff", a, b, "--kl", result, status=DIFFERENT).stdout
    assert "2 of 4 failing requests that restored a prefix claim the length of a slot that is not equal; 1 failing" in " ".join(text.split())
    assert "none claims this length" in text and "slot 3: differs" in text and "2 slots, 1 not equal" in text
    assert "* several slots claim this length" in text


def test_wrong_usage(place):
    one = log(place, "one", line(1, 64, 1))
    assert "name two runs" in place.ctl("state-diff", one, status=USAGE).stderr
    assert "at least 1" in place.ctl("state-diff", one, one, "--min-hits", 0, status=USAGE).stderr
    assert "is no result of kldump" in place.ctl("state-diff", one, one, "--kl", one, status=USAGE).stderr
    other = place.folder / "other.json"
    other.write_text('{"schema": "kldump.check/1"}')
    assert "expected one that begins with 'kldump.kl/'" in place.ctl("state-diff", one, one, "--kl", other, status=USAGE).stderr
    place.ctl("state-diff", one, "no-such-run", status=87)


# ---- runs

def run_with_probe(place, standin, name, faults="", probe="1"):
    """Prompts that begin alike, one after the other: the later ones restore 11 tokens. The run has ended then."""
    folder = place.folder / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(RECURRENT))
    run = place.run(standin, name=name, command=place.command(standin, model=folder), faults=faults,
                    environment={"KLDUMP_STANDIN_STATE_PROBE": probe}).armed()
    url = f"http://127.0.0.1:{run.status()['port']}/generate"
    for last in (7, 8, 9):
        ids = [*range(20, 31), last]
        guarded.post(url, {"input_ids": ids, "rid": f"r{last}", "sampling_params": {"max_new_tokens": 2, "temperature": 0}})
    place.ctl("stop", name)
    run.exits_with(0)  # its log is written then
    return run


PROBE = re.compile(r"kldump-state rank=(\d+) slot=(\d+) length=(\d+) layer=(\d+) name=(\S+) absmax=(\S+) ;")


def visits_of(run):
    """[(slot, length)] and {layer: absmax} of each restore, from the log's lines."""
    found = []
    for _rank, slot, length, layer, name, absmax in PROBE.findall(run.log):
        place, what = (int(slot), int(length)), (int(layer), name)
        if not found or found[-1][0] != place or what in found[-1][1]:
            found.append((place, {}))
        found[-1][1][what] = float(absmax)
    return found


def test_numbers_are_those_of_the_lines(place, standin):
    """Slot by slot; the stand-in gives both runs the same slots in the same order."""
    right, stale = (visits_of(run_with_probe(place, standin, name, faults)) for name, faults in (("right", ""), ("stale", "stale-prefix=10")))
    found = state_diff(place, "right", "stale", status=DIFFERENT)
    for side, visits in ((found["a"], right), (found["b"], stale)):
        assert (side["restores"], side["hits"], side["lost"], side["damaged"]) == (len(visits), sum(len(hits) for _place, hits in visits), 0, 0)
    wanted = []
    for (place_a, hits_a), (place_b, hits_b) in zip(right, stale):
        differ = sorted(what for what in hits_a if hits_a[what] != hits_b[what])
        what = differ[0] if differ else max(hits_a, key=lambda what: hits_a[what])
        wanted.append((place_a[1], place_a[0], place_b[0], len(hits_a), len(differ), what, hits_a[what], hits_b[what]))
    rows = [(r["length"], r["slot_a"], r["slot_b"], r["compared"], r["different"], (r["layer"], r["name"]), r["absmax_a"], r["absmax_b"])
            for r in found["rows"]]
    assert sorted(rows) == sorted(wanted)
    assert (found["equal"], found["differ"]) == (sum(w[4] == 0 for w in wanted), sum(w[4] > 0 for w in wanted)) and found["differ"] > 0
    assert found["only_in_a"] == found["only_in_b"] == found["not_finite"] == 0


def test_runs_of_the_stand_in(place, standin):
    """The state of a restored prefix is that of its last token; a stale one is another's."""
    run_with_probe(place, standin, "right")
    run_with_probe(place, standin, "again")
    run_with_probe(place, standin, "stale", faults="stale-prefix=10")
    run_with_probe(place, standin, "blind", probe="0")
    found = state_diff(place, "right", "again", status=EQUAL)
    assert found["longest"] == 11 and found["a"]["hits"] == found["b"]["hits"] >= 3 * len(LAYERS)
    found = state_diff(place, "right", "stale", status=DIFFERENT)
    assert {r["length"] for r in found["rows"] if r["result"] != "equal"} == {11}
    assert {r["layer"] for r in found["rows"] if r["result"] != "equal"} == set(LAYERS[:1])
    assert "never fired in blind" in place.ctl("state-diff", "right", "blind", status=INCOMPLETE).stderr


def test_failing_requests_of_a_measurement(place, standin):
    """What `kl` wrote of the second run, joined to the slots that both runs restored while it measured."""
    results = {}
    folder = place.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(RECURRENT))
    faults = ""
    for name in ("right", "stale"):
        run = place.run(standin, name=name, command=place.command(standin, model=folder), faults=faults,
                        environment={"KLDUMP_STANDIN_STATE_PROBE": "1"}).armed()
        out = place.folder / f"{name}.json"
        place.ctl("kl", name, "--synthetic", "4:10-30:3", "--min-samples", "4", "--new", "4", "--paths", "match,restore", "--out", out,
                  status=1 if faults else 0)
        place.ctl("stop", name)
        run.exits_with(0)
        results[name] = json.loads(out.read_text())
        prefixes = sorted(r["cached_tokens"] for r in results[name]["helpers"]["restore"]["requests"])
        faults = f"stale-prefix={prefixes[1] - 1}"  # the last token of the second shortest prefix
    assert state_diff(place, "right", "right", "--kl", place.folder / "right.json", status=EQUAL)["kl"]["failing"] == 0
    found = state_diff(place, "right", "stale", "--kl", place.folder / "stale.json", status=DIFFERENT)
    assert {r["length"] for r in found["rows"] if r["result"] != "equal"} == {prefixes[1]}
    failing = [r for r in results["stale"]["helpers"]["restore"]["requests"] if r["beyond"]]
    assert {r["rid"]: r["prefix"] for r in found["kl"]["requests"] if r["path"] == "restore"} == {
        r["rid"]: r["cached_tokens"] for r in failing}
    assert {r["prefix"] for r in found["kl"]["requests"] if r["slots_not_equal"]} == {prefixes[1]}
