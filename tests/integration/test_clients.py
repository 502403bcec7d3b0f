"""Clients that get into each other's way, and guards that start and end in poor conditions: on the stand-in."""
import json
import os
import signal
import subprocess

import pytest
from guarded import wait_for
from kldump_programs import Control, ControlError


def connect(run):
    return Control(run.folder / "control")


def test_a_refused_dump_does_not_take_the_dump_from_its_holder(place, standin):
    """The first client holds the dump; a second one is refused and goes: the dump stays on. The first goes: off."""
    run = place.run(standin).armed()
    holder = connect(run)
    holder.call("dump", experiment="first", hold=True, own_request_ids=["mine-0"])
    with connect(run) as second, pytest.raises(ControlError) as refused:
        second.call("dump", experiment="second", hold=True, own_request_ids=["other"])
    assert refused.value.name == "busy"
    run.send("--rid", "mine")
    with connect(run) as third, pytest.raises(ControlError):
        third.call("dump", experiment="third")
    assert run.status()["exp"] == "first"
    holder.close()
    run.wait_state("armed", 20)
    wait_for((run.directory / "first.kldump.json").exists)
    seal = json.loads((run.directory / "first.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    assert seal["expected"]["own_request_ids"] == ["mine-0"]
    place.ctl("stop", "t")
    run.exits_with(0)
