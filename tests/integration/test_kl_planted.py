"""Faults planted in a real SGLang that is batch-invariant otherwise (tests/real/planted): it must be bit-equal in all paths first, then
each fault is read rightly. One boot; the fault is changed while the server runs."""
import json
from pathlib import Path

import pytest

import guarded

pytestmark = pytest.mark.real
PLANTED = Path(__file__).resolve().parent.parent / "real/planted"
PATHS = ["match", "match_alone", "prefill_cache_hit", "decode_cache_hit", "restore"]

# What is planted -> looks (C clean, D dirty), signature, condition, where, requests.
READINGS = {
    "nothing": ("CCCCC", "clean", "none", "none", "all"),
    "rows 1": ("CDCCC", "one-row-alone", "1", "operator", "all"),
    "rows 8": ("DDDDC", "one-row", "1", "operator", "all"),
    "forget 40": ("DDDDC", "decode-forgets", "2", "decode", "all"),
    "restore 1": ("CCDDD", "restored-prefix", "2", "restore", "all"),
    "restore 4": ("CCDDD", "restored-prefix", "2", "restore", "few"),
}


@pytest.fixture(scope="module")
def server(servers):
    real, place = servers("real"), guarded.Place()
    plant = place.folder / "plant"
    plant.write_text("nothing\n")
    run = place.run(real, flags=["--sleep-on-idle"],
                    environment={"PYTHONPATH": str(PLANTED), "KLDUMP_PLANT": str(plant), "SGLANG_ENABLE_FAST_INPUT_LOGPROBS": "0"})
    left = []
    try:
        yield run.armed(), plant
    finally:
        place.ctl("stop", run.name, status=None)
        run.exit(60)
        left = place.end()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.mark.parametrize("planted", READINGS)
def test_a_planted_fault_is_read(server, planted):
    run, plant = server
    looks, signature, condition, where, requests = READINGS[planted]
    plant.write_text(planted + "\n")
    done = run.place.ctl("kl", run.name, "--synthetic", "8:12-40:1", "--min-samples", "8", "--new", "24", "--comma", "44", "--json",
                         status=1 if "D" in looks else 0)
    found = json.loads(done.stdout)
    grades = {name: found["helpers"][name]["grade"] for name in PATHS}
    assert "".join("C" if grades[name] in ("bit-equal", "stray") else "D" for name in PATHS) == looks, grades
    if planted == "nothing":
        assert set(grades.values()) == {"bit-equal"}
    reading = found["reading"]
    assert (reading["signature"], reading["condition"], reading["where"], reading["requests"]) == (signature, condition, where, requests)


@pytest.mark.parametrize("planted, answer", [("foreign", "foreign-prefix"), ("forget 40", None), ("restore 1", None)])
def test_what_the_wrong_output_is_the_right_answer_to(server, planted, answer):
    """Another request's keys and values are those of its ids, bit for bit; a lost key, or tokens lost under three layers, are no ids'."""
    run, plant = server
    plant.write_text(planted + "\n")
    done = run.place.ctl("kl", run.name, "--synthetic", "8:12-40:1", "--min-samples", "8", "--new", "24", "--comma", "44", "--paths",
                         "match,restore", "--explain", "worst", "--json", status=1)
    found = json.loads(done.stdout)["explanation"]
    rows = {row["name"]: row for row in found["contexts"]}
    assert found["answer"] == answer and rows["unaltered"]["beyond"] > 0, found["text"]
    if answer:
        assert rows[answer]["bit_equal"] == rows[answer]["tokens"] == 24
