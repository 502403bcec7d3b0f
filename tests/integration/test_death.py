"""What is left of a dump whose server died: how much of it can be used, and why the rest cannot. On both servers."""
import json
import os
import signal
import subprocess

import guarded
import pytest
from guarded import dump_files, title_of, wait_for

PASS_FILES = 123  # of the three-layer model, prefill or decode
LENGTH = 80
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to put a limit on another process")


def seal_of(run, experiment):
    return json.loads((run.directory / f"{experiment}.kldump.json").read_text())


def steps(check):
    return [(one["first"], one["last"]) for one in check["usable_steps"]]


def count(folder):
    return len(os.listdir(folder)) if folder.exists() else 0


def scheduler(place):
    return next(pid for pid in place.survivors() if title_of(pid).startswith("sglang::scheduler"))


def begin_request(run, experiment):
    run.dump(experiment)
    run.send("--prompt", LENGTH, "--new", 400, "--rid", "dies", background=True)


def die(run, experiment):
    """The server is killed. Returns the seal."""
    os.kill(run.status()["pid"], signal.SIGKILL)
    run.exits_with(137)
    return seal_of(run, experiment)


def die_after(run, experiment, files):
    """A dump is on, a request runs; the server is killed once this many files are there and the guard knows of a step. Returns the seal."""
    begin_request(run, experiment)
    wait_for(lambda: count(run.directory / experiment) >= files, 60, f"{files} dump files")
    run.wait_counters()
    return die(run, experiment)


def check_again(place, run, experiment, seal, status=4):
    """The audit once more, of a folder that was changed, with what the server had counted."""
    expected = place.folder / "expected.json"
    expected.write_text(json.dumps(seal["expected"]))
    done = place.ctl("check", "--json", "--expect", expected, run.directory / experiment, status=status)
    return json.loads(done.stdout)


def test_killed_inside_a_prefill(place, standin):
    """Nothing was counted, and a cut prefill has no earlier one to be like: no step can be used."""
    run = place.run(standin, environment=place.hold_environment()).armed()
    with run.held("pre", 30):
        begin_request(run, "pre")
        wait_for(lambda: count(run.directory / "pre") >= 30, 60, "30 dump files")
        seal = die(run, "pre")
    [rank] = seal["expected"]["ranks"]
    files = dump_files(run.directory / "pre")
    assert (seal["sealed_by"], seal["complete"], seal["expected"]["exact"]) == ("death", False, False)
    assert rank["step_to"] == rank["step_from"] and rank["index_to"] == rank["index_from"]
    assert {file.step for file in files} == {rank["step_from"]} and len(files) < PASS_FILES
    assert steps(seal["check"]) == []
    [reason] = seal["reasons"]
    assert reason.startswith(f"ranks whose last step is not whole: rank 0 step {rank['step_from']} has ")
    assert "earlier extend step; no step is usable; the server ended inside a pass" in reason
    assert any(reason[:60] in event["text"] for event in run.record["events"] if event["kind"] == "seal")


def test_killed_inside_a_decode(place, standin):
    """The steps before it can be used, and the last one where it happens to be whole; not when its last file is cut."""
    run = place.run(standin, faults="slow-dump=2").armed()
    seal = die_after(run, "dec", 5 * PASS_FILES + 40)
    check, files = seal["check"], dump_files(run.directory / "dec")
    [rank] = seal["expected"]["ranks"]
    first, last = rank["step_from"], files[-1].step
    assert seal["sealed_by"] == "death" and not seal["expected"]["exact"]
    assert first < rank["step_to"] <= last
    whole = len([file for file in files if file.step == last]) == PASS_FILES
    assert seal["complete"] == whole
    assert steps(check) == [(first, last if whole else last - 1)]
    assert whole or f"rank 0 step {last} has" in seal["reasons"][0] and f"usable: steps {first}-{last - 1};" in seal["reasons"][0]

    for file in [file for file in files if file.step == last]:
        file.path.unlink()
    assert steps(check_again(place, run, "dec", seal, status=0)) == [(first, last - 1)]
    torn = [file for file in files if file.step == last - 1][-1].path
    torn.write_bytes(torn.read_bytes()[:-50])
    cut = check_again(place, run, "dec", seal)
    assert steps(cut) == [(first, last - 2)]
    counted = last - 1 < rank["step_to"]  # then it had ended, and the file itself is to blame
    assert [reason.split(":")[0] for reason in cut["reasons"]] == \
        ["files that are cut short" if counted else "ranks whose last step is not whole"]
    people = place.ctl("check", run.directory / "dec", status=4).stdout
    assert f"usable       steps {first}-{last - 2}\n" in people


def test_ranks_that_died_at_different_steps(place, standin):
    run = place.run(standin, faults="slow-dump=2", flags=["--tp-size", "2"]).armed()
    seal = die_after(run, "dec", 8 * PASS_FILES)
    files = dump_files(run.directory / "dec")
    first, last = files[0].step, max(file.step for file in files)
    read = min(rank["step_to"] for rank in seal["expected"]["ranks"])
    for file in files:  # rank 1 has come no further than what was counted, rank 0 by one step
        if file.step > read or (file.rank, file.step) == (1, read):
            file.path.unlink()
    assert last > first
    if any(file.step == read and file.path.exists() for file in files):
        check = check_again(place, run, "dec", seal)
        assert steps(check) == [(first, read - 1)]
        assert f"rank 1 ends with step {read - 1}, rank 0 with step {read}" in check["reasons"][-1]


def test_killed_before_the_first_file(place, standin):
    run = place.run(standin).armed()
    run.dump("none")
    os.kill(run.status()["pid"], signal.SIGKILL)
    run.exits_with(137)
    seal = seal_of(run, "none")
    assert seal["reasons"] == [f"the folder does not exist: {run.directory}/none; the server made none: no pass ran while "
                               "dumping was on, or DUMPER_DIR is another folder"]
    assert steps(seal["check"]) == [] and not seal["complete"]


@needs_root
def test_writes_that_begin_to_fail(place, standin):
    """What a full disk leaves, without the floor's help: files by the hundred that are empty, and no gap in dump_index."""
    run = place.run(standin).armed()
    run.dump("full")
    run.send("--rid", "well", "--new", "2")
    subprocess.run(["prlimit", "--pid", str(scheduler(place)), "--fsize=0:"], check=True)
    run.send("--rid", "ill", "--prompt", "40", "--new", "3")
    place.ctl("pause", "t", status=None)
    seal = seal_of(run, "full")
    check, files = seal["check"], dump_files(run.directory / "full")
    [rank] = seal["expected"]["ranks"]
    empty = [file for file in files if file.path.stat().st_size == 0]
    assert [file.index for file in files] == list(range(rank["index_from"] + 1, rank["index_to"] + 1))
    assert len(empty) == 3 * PASS_FILES == seal["expected"]["failed_saves"]
    assert [reason.split(":")[0] for reason in seal["reasons"]] == \
        [f"empty files ({len(empty)})", f"tensors that the server could not save, by its log ({len(empty)}); see the lines "
         '"skip the tensor" in the server\'s log']
    assert steps(check) == [(rank["step_from"], rank["step_from"] + 1)]
    place.ctl("stop", "t")
    run.exits_with(0)


@needs_root
def test_dumps_on_a_full_disk(place, standin):
    """Without a guard: the folder alone tells, with the counters that the server gives when it is asked."""
    disk = place.small_disk("2M")
    port = place.port()
    variables = {**standin.environment(), "DUMPER_SERVER_PORT": "reuse", "DUMPER_NON_INTRUSIVE_MODE": "all", "DUMPER_DIR": str(disk),
                 "DUMPER_EXP_NAME": "full", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0"}
    log = place.folder / "server.log"
    with open(log, "wb") as output:
        server = subprocess.Popen(place.command(standin, "--disable-cuda-graph", "--disable-prefill-cuda-graph", port=port),
                                  env=place.environment(**variables), cwd=place.folder, stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=output, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: b"fired up and ready" in log.read_bytes(), 30, "the server")
        guarded.post(f"{url}/dumper/configure", {"enable": True})
        subprocess.run([guarded.PYTHON, "-B", guarded.SEND, url, "--prompt", "64", "--new", "6"], check=True, stdout=subprocess.DEVNULL)
        guarded.post(f"{url}/dumper/configure", {"enable": False})
        [state] = guarded.post(f"{url}/dumper/get_state", {})
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    counted = {"exact": True, "ranks": [{"index_from": 0, "index_to": state["dump_index"], "step_from": 0, "step_to": state["step"]}],
               "failed_saves": log.read_text().count("skip the tensor")}
    expected = place.folder / "expected.json"
    expected.write_text(json.dumps(counted))
    check = json.loads(place.ctl("check", "--json", "--expect", expected, disk / "full", status=4).stdout)
    assert check["files"] == state["dump_index"] == 6 * PASS_FILES
    kinds = [reason.split(":")[0].split(" (")[0] for reason in check["reasons"]]
    assert kinds[0] == "empty files" and kinds[-1].startswith("tensors that the server could not save")
    assert "missing dump_index values" not in kinds
    assert len(steps(check)) <= 1


def test_guard_killed_after_a_dump(place, standin):
    """Its own record tells the state at its death; the copy that the seal has left beside the dump is older."""
    run = place.run(standin).armed()
    run.dump("one", "--requests", "1")
    wait_for(lambda: run.record["run"]["state"] == "armed" and (run.directory / "t.kldump-run.json").exists(), 20, "both records")
    run.process.kill()
    run.exit()
    run.dies_within()
    assert "killed while the run was armed" in place.ctl("status", "t", status=None).stdout
