"""What a person does with a run that is armed, on both servers: one run for all tests here, which leave it armed."""
import contextlib
import json
import os
import signal
import subprocess
import time

import pytest
from conftest import KEY
from guarded import CTL, PYTHON, SEND, dump_files, environment_of, integers_of, title_of, value_of, wait_for

FORCED = {"DUMPER_ENABLE": "0", "DUMPER_SERVER_PORT": "reuse", "DUMPER_NON_INTRUSIVE_MODE": "all",
          "DUMPER_ENABLE_OUTPUT_CONSOLE": "0", "PYTHONUNBUFFERED": "1", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}


@pytest.fixture(autouse=True)
def stays_armed(armed):
    yield
    state = armed.status()["state"]
    if state != "armed":  # for the next tests
        armed.place.ctl("pause", armed.name, status=None)
        armed.wait_state("armed", 30)
    assert state == "armed"


def dump(armed, experiment, *arguments):
    armed.dump(experiment, "--key", KEY, *arguments)
    return json.loads((armed.directory / f"{experiment}.kldump.json").read_text())


def test_settings_are_forced_on_the_server(armed):
    run = armed.status()
    found = environment_of(run["pid"])
    assert {key: found[key] for key in FORCED} == FORCED
    assert found["DUMPER_DIR"] == run["dir"] == str(armed.directory.resolve())
    assert found["DUMPER_EXP_NAME"]
    assert found["TMPDIR"].startswith(str(armed.folder)) and len(found["TMPDIR"]) < 70
    title = title_of(run["pid"])
    assert "--disable-decode-cuda-graph --disable-prefill-cuda-graph" in title
    assert "--watchdog-timeout" in title


def test_stages_are_shown_with_seconds(armed):
    events = armed.events()
    states = [event["text"].split(":")[0] for event in events if event["kind"] == "state"][:4]
    assert states == ["loading", "warming", "verifying", "armed"]
    stages = [event["text"] for event in events if event["kind"] == "stage"]
    assert {"loading weights", "port open, warm-up request runs"} <= set(stages)
    times = [event["uptime_ms"] for event in events]
    assert times == sorted(times)
    wait_for(lambda: any(line.startswith("kldump: [") and "s] loading weights" in line for line in armed.output.splitlines()), 10, "its line")


def test_armed_means_proven(armed):
    run = armed.status()
    proofs = run["proofs"]
    assert (run["state"], proofs["verdict"], proofs["ranks"]) == ("armed", "proven", 1)
    assert (proofs["decode_graphs"], proofs["prefill_graphs"]) == ("disabled", "disabled")
    assert "1 prefill and 2 decode passes" in proofs["text"]
    assert run["sglang_version"] == "0.5.23"
    wait_for(lambda: not list(armed.directory.glob("kldump-probe-*")), 20, "the end of the probe's files, which a thread of its own removes")


def test_costs_that_the_probe_bought(armed):
    run = armed.status()
    costs, space = run["costs"], run["space"]
    seal = dump(armed, "costs", "--prompt", "40", "--new", "2")
    passes = {one["phase"]: one for one in seal["check"]["passes"]}
    assert costs["bytes_per_decode_pass"] == pytest.approx(passes["decode"]["bytes"], rel=0.02)
    predicted = costs["bytes_per_decode_pass"] + 39 * costs["bytes_per_prefill_token"]
    assert predicted == pytest.approx(passes["extend"]["bytes"], rel=0.05)
    assert costs["files_per_pass"] == passes["decode"]["files"]
    assert space["tokens_to_floor"] == pytest.approx((space["free_bytes"] - space["act_bytes"]) / costs["bytes_per_prefill_token"], rel=0.01)
    assert space["floor_bytes"] == 64 << 20 and space["act_bytes"] > space["floor_bytes"]


def test_a_dump_around_a_client(armed):
    """The seal is complete, and its numbers are those of the files, which are of the client's request alone."""
    seal = dump(armed, "dec", "--rid", "mine", "--prompt", "17", "--new", "4")
    check, files = seal["check"], dump_files(armed.directory / "dec")
    assert seal["complete"] and check["complete"] and seal["sealed_by"] == "pause" and not seal["reasons"]
    steps = sorted({file.step for file in files})
    assert steps == list(range(steps[0], steps[0] + 4))
    assert [file.index for file in files] == list(range(files[0].index, files[0].index + len(files)))
    expected = seal["expected"]["ranks"][0]
    assert (expected["index_from"] + 1, expected["index_to"]) == (files[0].index, files[-1].index)
    assert (expected["step_from"], expected["step_to"]) == (steps[0], steps[-1] + 1)
    assert (check["files"], check["steps"], check["ranks"]) == (len(files), 4, 1)
    assert check["bytes"] == sum(file.path.stat().st_size for file in files)
    assert [one["phase"] for one in check["passes"]] == ["extend", "decode", "decode", "decode"]
    assert [one["tokens"] for one in check["passes"]] == [17, 1, 1, 1]
    assert [value_of(file.path) for file in files if file.name == "rids"] == [["mine-0"]] * 4
    rows = [len(integers_of(file.path)) for file in files if file.name == "input_ids"]
    assert rows == [17, 1, 1, 1]
    assert check["request_ids"] == ["mine-0"] and check["foreign_request_ids"] == []
    assert check["coverage"]["layers"] == 3
    hidden = [value_of(file.path) for file in files if "layers.2." in file.name and file.name.endswith("mlp.output")]
    assert [shape[0] for shape in hidden] == [17, 1, 1, 1]


def test_dump_until_pause(armed):
    done = armed.place.ctl("dump", armed.name, "long")
    assert str(armed.directory / "long") in done.stdout and "pause" in done.stdout
    run = armed.status()
    assert (run["state"], run["exp"]) == ("dumping", "long")
    refused = armed.dump("other", status=1)
    assert "long" in refused.stderr and "kldumpctl pause" in refused.stderr
    armed.send("--key", KEY, "--prompt", "9", "--new", "2")
    sealed = armed.place.ctl("pause", armed.name)
    assert "long: complete, 2 steps" in sealed.stdout
    assert [one for one in armed.status()["seals"] if one["experiment"] == "long"][0]["complete"]


def test_the_client_status_is_the_status_of_dump(armed):
    done = armed.place.ctl("dump", armed.name, "failing", "--", PYTHON, "-c", "import sys; sys.exit(7)", status=7)
    assert "status 7" in done.stderr
    armed.place.ctl("dump", armed.name, "nobody", "--", "/nonexistent/client", status=127)
    assert not (armed.directory / "nobody").exists()


def test_a_dump_whose_client_is_killed_is_switched_off(armed):
    holder = armed.place.start([CTL, "dump", armed.name, "held", "--", PYTHON, "-B", SEND, "--key", KEY, "--sleep", "100"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    armed.wait_state("dumping", 20)
    holder.kill()
    holder.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(holder.pid, signal.SIGKILL)  # the client too: its request must not fall into the next dump
    armed.wait_state("armed", 30)
    wait_for((armed.directory / "held.kldump.json").exists, 5, "the seal, which a thread of its own writes")
    assert any("is gone: dumping is switched off" in event["text"] for event in armed.events())


def test_an_experiment_that_is_there_is_refused(armed):
    dump(armed, "twice")
    again = armed.dump("twice", "--key", KEY, status=88)
    assert "twice is there already" in again.stderr
    (armed.directory / "foreign").mkdir()
    assert "foreign is there already" in armed.dump("foreign", status=88).stderr
    (armed.directory / "foreign").rmdir()


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "x" * 65, "blank space"])
def test_names_of_experiments_are_checked(armed, name):
    assert armed.dump(name, status=2).stderr


def test_pause_while_not_dumping_is_an_error(armed):
    assert "not dumping" in armed.place.ctl("pause", armed.name, status=1).stderr


def test_status_for_people(armed):
    text = armed.place.ctl("status", armed.name).stdout
    for word in ("armed", "proven", "free", "floor", "prefill tokens still fit", "0.5.23", "Guarantee"):
        assert word in text
    assert "\x1b" not in text
    only = armed.place.ctl("status").stdout
    assert only.splitlines()[0] == text.splitlines()[0]


def test_list_wait_and_names(armed):
    place = armed.place
    assert armed.name in place.ctl("list").stdout
    line = json.loads(place.ctl("list", "--json").stdout.splitlines()[0])
    assert line["name"] == armed.name and line["schema"] == "kldump.list/1"
    place.ctl("wait", armed.name, "--for", "armed")
    place.ctl("wait", armed.name, "--for", "ended", "--timeout", "300ms", status=89)
    assert "no run 'other'" in place.ctl("status", "other", status=87).stderr
    place.ctl("wait", armed.name, "--for", "nonsense", status=2)


def test_logs_and_events(armed):
    place = armed.place
    log = place.ctl("logs", armed.name).stdout
    assert "The server is fired up and ready to roll!" in log
    assert log == armed.log[:len(log)] or log in armed.log
    events = armed.events()
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    assert all(event["schema"] == "kldump.events/1" for event in events)
    assert "armed" in place.ctl("events", armed.name).stdout


def test_events_follow(armed):
    follower = armed.place.start([CTL, "events", armed.name, "-f"], stdout=subprocess.PIPE, text=True)
    try:
        os.set_blocking(follower.stdout.fileno(), False)
        dump(armed, "followed")
        text, end = "", time.monotonic() + 10
        while "followed is sealed and complete" not in text and time.monotonic() < end:
            text += follower.stdout.read() or ""
            time.sleep(0.02)
        assert "followed is sealed and complete" in text
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()


def test_keys_are_used_and_never_stored(armed):
    """The server was started with --api-key; every question went through, and the key stands nowhere, not even where
    the server itself printed its arguments."""
    assert "server_args=" in armed.log
    shown = [armed.output, armed.log, armed.place.ctl("logs", armed.name).stdout, (armed.folder / "record.json").read_text(), armed.place.ctl("status", armed.name, "--json").stdout,
             armed.place.ctl("status", armed.name).stdout, armed.place.ctl("events", armed.name).stdout]
    shown += [path.read_text() for path in armed.directory.glob("*.json")]
    assert not [text for text in shown if KEY in text]
    assert "***" in json.dumps(armed.status()["command"])


def test_client_that_the_server_refuses(armed):
    """Without the key: the client fails, the dump is empty and is sealed as such."""
    done = armed.dump("refused", "--prompt", "5", status=None)
    assert done.returncode == 1
    assert not list((armed.directory / "refused").glob("*.pt"))


def test_two_dumps_have_steps_that_follow(armed):
    first, second = dump(armed, "one", "--rid", "one"), dump(armed, "two", "--rid", "two", "--prompt", "30")
    assert first["complete"] and second["complete"]
    before, after = first["expected"]["ranks"][0], second["expected"]["ranks"][0]
    assert (before["index_to"], before["step_to"]) == (after["index_from"], after["step_from"])
    assert second["check"]["request_ids"] == ["two-0"]


def test_nothing_is_written_while_armed(armed):
    before = sorted(path.name for path in armed.directory.iterdir())
    armed.send("--key", KEY)
    assert sorted(path.name for path in armed.directory.iterdir()) == before


def test_an_idle_run_writes_no_record(armed):
    """Free space that changes is no reason to write: the record is for what has happened."""
    record = armed.folder / "record.json"
    wait_for(lambda: time.time() - record.stat().st_mtime > 1.2, 10, "what was told last")
    before = record.stat().st_mtime_ns
    time.sleep(2.5)
    assert record.stat().st_mtime_ns == before


def test_a_batch_of_requests(armed):
    seal = dump(armed, "many", "--requests", "3", "--rid", "r", "--new", "2")
    assert seal["complete"]
    assert seal["check"]["request_ids"] == ["r-0", "r-1", "r-2"]
    assert seal["check"]["coverage"]["extend_passes"] == 3


def test_check_again_by_hand(armed):
    dump(armed, "again")
    done = armed.place.ctl("check", armed.directory / "again", "--json")
    assert json.loads(done.stdout)["complete"]
    first = dump_files(armed.directory / "again")[5].path
    content = first.read_bytes()
    first.write_bytes(content[:-30])
    broken = armed.place.ctl("check", armed.directory / "again", "--json", status=4)
    assert not json.loads(broken.stdout)["complete"]
    first.write_bytes(content)


def test_second_run_of_the_same_name_is_refused(armed):
    other = armed.place.run(armed.server, name=armed.name, directory=armed.place.folder / "other")
    assert other.exit(30) == 88
    assert f"a run named {armed.name} is live" in other.output
    armed.place.runs.remove(other)


def test_taken_port_is_refused_before_the_start(armed):
    port = armed.status()["port"]
    other = armed.place.run(armed.server, name="other", command=armed.place.command(armed.server, port=port))
    assert other.exit(30) == 88
    assert f"port {port} is held" in other.output
    armed.place.runs.remove(other)
