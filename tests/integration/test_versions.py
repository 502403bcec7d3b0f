"""Releases of the real SGLang under guard: each in the spelling that it takes, and with a python3 that says that another
release is installed. KLDUMP_TEST_VERSIONS names more of them than the one of all other tests (scripts/test --all-versions)."""
import json
import os

import guarded
import pytest

GRAPHS = "--disable-cuda-graph --disable-piecewise-cuda-graph"
PHASES = "--disable-decode-cuda-graph --disable-prefill-cuda-graph"
# Release: its flags, a release that its python3 wrongly reports, and with which flags it then starts all the same. From
# 0.5.14 to 0.5.18 both spellings are known, so that there a wrong one is no fault.
RELEASES = {
    "0.5.12.post1": (GRAPHS, "0.5.23", GRAPHS),
    "0.5.16": (PHASES, "0.5.12", GRAPHS),
    "0.5.20": (PHASES, "0.5.12", PHASES),
    "0.5.23": (PHASES, "0.5.12", PHASES),
}


def cases():
    """The usual release runs as it is in most other tests."""
    named = os.environ.get("KLDUMP_TEST_VERSIONS", "").split()
    for version in [guarded.VERSION, *(name for name in named if name != guarded.VERSION)]:
        if version != guarded.VERSION:
            yield pytest.param(version, False, id=version)
        yield pytest.param(version, True, id=f"{version}-misreported")


@pytest.mark.real
@pytest.mark.parametrize("version, misreported", cases())
def test_a_guarded_run(place, servers, version, misreported):
    flags, reported, other_flags = RELEASES[version]
    server = servers(version)
    if misreported:
        server, flags = guarded.Misreported(server, reported), other_flags
    run = place.run(server).armed()
    status = run.status()
    assert flags in " ".join(status["command"])
    assert status["proofs"]["verdict"] == "proven", status["proofs"]
    assert (status["proofs"]["decode_graphs"], status["proofs"]["prefill_graphs"]) == ("disabled", "disabled")
    tried_again = [event["text"] for event in run.events() if "unrecognized" in event["text"] or "does not know" in event["text"]]
    first_flags = GRAPHS if reported == "0.5.12" else PHASES
    assert bool(tried_again) == (misreported and first_flags != flags), tried_again
    if tried_again:
        assert [word for word in first_flags.split() if word in tried_again[0]]

    run.dump("dec", "--rid", "mine", "--prompt", "20", "--new", "4")
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    coverage = seal["check"]["coverage"]
    assert (coverage["layers"], coverage["extend_passes"], coverage["extend_tokens"]) == (3, 1, 20)
    assert coverage["decode_passes"] in (3, 4)  # up to 0.5.20 one more than tokens need
    assert seal["check"]["request_ids"] == ["mine-0"]
    place.ctl("stop", "t")
    run.exits_with(0)
    assert run.record["run"]["outcome"] == "stopped"
