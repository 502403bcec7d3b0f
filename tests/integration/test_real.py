"""What only the real SGLang shows: two ranks of both kinds, a server that dies in a dump, children without a parent that
live on, and what others do to its dumper. Few boots, for each takes half a minute of two cores."""
import json
import os
import signal
import subprocess

import pytest
from guarded import Place, TwoRanks, dump_files, is_alive, post, title_of, wait_for
from kldump_programs import Control

pytestmark = pytest.mark.real
SLEEP = ["--sleep-on-idle"]  # else the scheduler of an idle server takes a core
KEY, ADMIN_KEY = "correct-horse-battery", "staple-for-admins-only"
QUIT_AFTER_S = 200  # children without a parent load on; when they are done they send SIGQUIT: 54 s on a quiet machine


def seal_of(run, experiment):
    return json.loads((run.directory / f"{experiment}.kldump.json").read_text())


# ---- children without a parent

@pytest.fixture(scope="module")
def orphans(servers):
    """A start whose main process is killed by hand, below a shell that stays: its children go to the keeper and load on.
    They do so while the other tests of this file run; the last one looks at what came of it."""
    real, place = servers("real"), Place()
    port, script = place.port(), place.folder / "serve.sh"
    command = " ".join(place.command(real, port=port))
    script.write_text(f"#!/bin/sh\n{command} $KLDUMP_SGLANG_ARGS\necho main is gone\nexec sleep 1000\n")
    script.chmod(0o755)
    run = place.run(real, name="orphans", command=[str(script), "--port", str(port)])
    left = []
    try:
        run.wait_state("loading", 60)
        main = wait_for(lambda: [pid for pid in place.survivors() if "launch_server" in title_of(pid) and is_python(pid)], 60,
                        "the main process")[0]
        children = wait_for(lambda: spawned(place), 120, "the scheduler and the detokenizer")
        os.kill(main, signal.SIGKILL)
        yield place, run, children
    finally:
        left = place.end()
    assert not left, "left behind:\n" + "\n".join(left)


def is_python(pid):
    return os.path.basename(os.path.realpath(f"/proc/{pid}/exe")).startswith("python")


def spawned(place):
    """Both children, as soon as they are there: while they import they do not ask for a signal at their parent's death."""
    found = [pid for pid in place.survivors() if "multiprocessing.spawn" in title_of(pid)]
    return found if len(found) >= 2 else None


def test_stop_at_once_while_loading(place, servers):
    """Through the guard: nothing is left, at any moment of the start."""
    run = place.run(servers("real")).wait_state("loading", 60)
    wait_for(lambda: spawned(place), 120, "the scheduler and the detokenizer")
    place.ctl("stop", "t", "--now", status=None)
    run.exits_with(81)


# ---- two ranks

def two_ranks(servers):
    real = servers("real")
    return TwoRanks(real.directory, real.model_folder)


def test_tensor_ranks_what_others_do_and_a_death(place, servers, orphans):
    """Two tensor-parallel ranks, proven and dumped on both. A second server on our port sends its warm-up into our dump;
    somebody switches dumping on by curl; at last the server is killed inside a dumped prefill."""
    run = place.run(two_ranks(servers), flags=["--tp-size", "2", *SLEEP]).armed()
    status = run.status()
    assert (status["proofs"]["verdict"], status["proofs"]["ranks"]) == ("proven", 2), status["proofs"]
    second_server(place, servers, run)
    external_enable(place, run)
    death_in_a_prefill(run)


def second_server(place, servers, run):
    port = run.status()["port"]
    with Control(run.folder / "control") as control:
        control.call("dump", experiment="second", own_request_ids=["mine-0"])
        run.send("--rid", "mine", "--new", "2")
        other = place.start(place.command(servers("standin"), port=port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert other.wait(60) == 3, "a second server on the port ends after its warm-up"
        control.call("pause")
    seal = seal_of(run, "second")
    [foreign] = seal["check"]["foreign_request_ids"]
    assert len(foreign) == 32 and set(foreign) <= set("0123456789abcdef"), foreign
    assert not seal["complete"] and any(foreign in reason for reason in seal["reasons"])
    assert seal["check"]["coverage"]["foreign_requests"] == 1
    assert seal["check"]["ranks"] == 2 and len({(rank["index_to"], rank["step_to"]) for rank in seal["expected"]["ranks"]}) == 1


def external_enable(place, run):
    post(f"http://127.0.0.1:{run.status()['port']}/dumper/configure", {"enable": True, "exp_name": "theirs"})
    run.wait_state("dumping", 20)
    run.send("--rid", "theirs", "--new", "2")
    assert run.status()["exp"] == "theirs"
    place.ctl("pause", "t")
    seal = seal_of(run, "theirs")
    assert seal["complete"], seal["reasons"]
    assert any("switched on by somebody else" in event["text"] for event in run.events())


def death_in_a_prefill(run):
    """Of that step nothing is usable, of the ones before everything."""
    run.dump("dies")
    run.send("--rid", "whole", "--prompt", "40", "--new", "2")
    folder = run.directory / "dies"
    post(f"http://127.0.0.1:{run.status()['port']}/dumper/get_state", {})  # each rank answers behind its pass: the first alone has answered the request
    whole = len(os.listdir(folder))
    run.send("--rid", "cut", "--prompt", "1500", "--new", "2", background=True)
    wait_for(lambda: len(os.listdir(folder)) > whole + 20, 60, "the second prefill")
    os.kill(run.status()["pid"], signal.SIGKILL)
    output = run.exits_with(137)
    seal, files = seal_of(run, "dies"), dump_files(folder)
    steps = sorted({file.step for file in files})
    ranks = [[file.step for file in files if file.rank == rank] for rank in (0, 1)]
    assert seal["sealed_by"] == "death" and not seal["expected"]["exact"]
    assert all(rank["step_from"] == steps[0] and rank["step_to"] <= steps[-1] + 1 for rank in seal["expected"]["ranks"])
    per_pass = whole // 2 // 2  # two ranks, a prefill and a decode
    ended = [step for step in steps if all(found.count(step) == per_pass for found in ranks)]
    assert seal["check"]["usable_steps"] == [{"first": steps[0], "last": ended[-1]}] and ended[-1] >= steps[0] + 1
    if steps[-1] != ended[-1]:
        assert not seal["complete"] and f"usable: steps {steps[0]}-{ended[-1]}" in seal["reasons"][-1], seal["reasons"]
        assert "dies is incomplete: " in output


def without_log(folder):
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("server.log")]


def test_pipeline_stages_keys_and_a_reset(place, servers, orphans):
    """Each stage has its own layers, its own dump_index and the same steps; both keys are used and stand nowhere but in
    the server's own log. A reset takes the hooks: the dump is told, and no other can be had."""
    flags = ["--pp-size", "2", "--api-key", KEY, "--admin-api-key", ADMIN_KEY, *SLEEP]
    run = place.run(two_ranks(servers), flags=flags).armed()
    proofs = run.status()["proofs"]
    assert (proofs["verdict"], proofs["ranks"]) == ("proven", 2), proofs
    run.dump("dec", "--key", KEY, "--rid", "mine", "--prompt", "30", "--new", "3")
    each_stage_its_own(seal_of(run, "dec"), dump_files(run.directory / "dec"))
    assert run.dump("refused", "--prompt", "5", status=None).returncode == 1  # without the key
    reset(run)
    place.ctl("stop", "t")
    output = run.exits_with(0)

    for path in [*without_log(place.runtime), *without_log(run.directory)]:
        content = path.read_bytes()
        assert KEY.encode() not in content and ADMIN_KEY.encode() not in content, path
    shown = place.ctl("status", "t", "--json").stdout + place.ctl("events", "t", "--json").stdout
    shown += "".join(line for line in output.splitlines() if line.startswith("kldump"))
    assert KEY not in shown and ADMIN_KEY not in shown and "***" in shown


def each_stage_its_own(seal, files):
    assert seal["complete"], seal["reasons"]
    layers = [{int(file.name.split("layers.")[1].split(".")[0]) for file in files if file.rank == rank and "layers." in file.name}
              for rank in (0, 1)]
    assert layers[0] and layers[1] and not layers[0] & layers[1] and layers[0] | layers[1] == {0, 1, 2}, layers
    first, second = seal["expected"]["ranks"]
    assert first["step_to"] - first["step_from"] == second["step_to"] - second["step_from"] == seal["check"]["steps"]
    assert first["index_to"] - first["index_from"] != second["index_to"] - second["index_from"]
    assert seal["check"]["coverage"]["layers"] == 3


def reset(run):
    run.dump("reset")
    run.send("--key", KEY, "--rid", "before", "--new", "2")
    run.wait_counters()  # those before the reset
    post(f"http://127.0.0.1:{run.status()['port']}/dumper/reset", {}, key=ADMIN_KEY)
    run.wait_state("armed", 30)
    seal = wait_for(lambda: (run.directory / "reset.kldump.json").exists() and seal_of(run, "reset"), 10, "the seal")
    assert not seal["complete"] and any("reset" in reason for reason in seal["reasons"]), seal["reasons"]
    assert seal["sealed_by"] == "other"
    refused = run.dump("more", status=None)
    assert refused.returncode != 0 and "reset" in refused.stderr
    assert run.status()["proofs"]["verdict"] == "failed"


# ---- the children without a parent, once more

def signals(pid, which):
    """The set of signals behind one line of /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        mask = int(next(line for line in status if line.startswith(which)).split()[1], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def test_the_keeper_survives_the_quit_of_children_without_a_parent(orphans):
    """They belong to the run, whatever they are called; when their pipe breaks they send SIGQUIT to whom they take for
    their parent, which is the keeper. It lives, the guard lives, and a stop leaves nothing."""
    place, run, children = orphans
    assert run.process.poll() is None, run.output[-4000:]
    keeper = run.keeper()
    assert signal.SIGQUIT in signals(keeper, "SigBlk")
    wait_for(lambda: "main is gone" in run.log, 10)
    wait_for(lambda: "BrokenPipeError" in run.log or not any(is_alive(pid) for pid in children), QUIT_AFTER_S,
             "the end of a child that has lost its parent")
    wait_for(lambda: not all(is_alive(pid) for pid in children), 60, "the end of the scheduler")
    assert signal.SIGQUIT in signals(keeper, "ShdPnd"), "it was to be sent, and is blocked"
    assert is_alive(keeper) and is_alive(run.pid)
    assert run.status()["state"] == "loading"
    place.ctl("stop", "orphans", "--now", status=None)
    run.exits_with(81)
