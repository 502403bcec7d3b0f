"""DUMPER_FILTER: what a checked filter keeps, what the probe proves under it, and what it cannot."""
import json

import pytest
from guarded import wait_for


def test_a_filter_that_keeps_nothing_is_named(place, standin):
    output = place.run(standin, environment={"DUMPER_FILTER": "False"}).exits_with(82)
    end = output[output.rindex("verify-failed"):]
    assert "DUMPER_FILTER" in end and "keeps nothing" in end and "leave it out" in end, end


def proofs_of(run):
    wait_for(lambda: run.record["run"]["proofs"]["text"], 20, "the proofs in the record")
    return run.record["run"]["proofs"]


def test_layers_alone_are_limited(place, standin):
    """Neither inputs nor ids of requests are kept: what that leaves open is said; the files are complete."""
    run = place.run(standin, environment={"DUMPER_FILTER": "layer_id in [0]"}).armed()
    proofs = proofs_of(run)
    assert proofs["verdict"] == "limited" and "DUMPER_FILTER=layer_id in [0]" in proofs["text"], proofs
    assert "rids" in proofs["text"], proofs
    run.dump("dec", "--requests", "2")
    names = [path.name for path in (run.directory / "dec").glob("*.pt")]
    assert names and all("layer_id=0" in name for name in names)
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]


@pytest.mark.parametrize("form", ["environment", "env"])
def test_a_filter_with_all_that_proofs_need(place, standin, form):
    kept = "layer_id is None or layer_id < 1"
    options = {"environment": {"DUMPER_FILTER": kept}}
    if form == "env":
        options = {"command": ["env", f"DUMPER_FILTER={kept}", *place.command(standin)]}
    run = place.run(standin, **options).armed()
    proofs = proofs_of(run)
    assert proofs["verdict"] == "proven" and f"under DUMPER_FILTER={kept}" in proofs["text"], proofs
    run.dump("dec", "--requests", "2")
    names = [path.name for path in (run.directory / "dec").glob("*.pt")]
    assert any("layer_id=0" in name for name in names) and not any("layer_id=1" in name for name in names)
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
