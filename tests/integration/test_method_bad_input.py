"""What must not be taken for a measurement, for each command of the method, on a guarded run and on a URL: what is said, the exit
status, and that no half result is printed as a whole one."""
import contextlib
import json
import os
import re
import signal
import subprocess
import threading

import guarded
import pytest
from guarded import wait_for
from recorder import recording

USAGE, INCOMPLETE, LOST = 2, 4, 85
SLOW = {"KLDUMP_STANDIN_STEP_MS": "40"}
NEW = 8
OPTIONS = {"capture": [], "kl": ["--min-samples", "4"], "invariance": []}
CELLS = [("capture", "run"), ("kl", "run"), ("kl", "url"), ("invariance", "run"), ("invariance", "url")]
cells = pytest.mark.parametrize("command, kind", CELLS, ids=["-".join(cell) for cell in CELLS])
measures = pytest.mark.parametrize("command, kind", CELLS[1:], ids=["-".join(cell) for cell in CELLS[1:]])


def target_of(run, kind):
    return run.name if kind == "run" else f"http://127.0.0.1:{run.status()['port']}"


def arguments_of(command, target, *more, synthetic="4:20-30:1"):
    return [command, target, *OPTIONS[command], "--synthetic", synthetic, "--new", NEW, *more]


def refused(run, command, done, status, said):
    """Ended with that, and what is there is not shown as a result."""
    assert (done.returncode, command) == (status, command), (done.stdout, done.stderr)
    assert re.search(said, done.stderr), (command, done.stderr)
    if command != "capture":
        assert done.stdout == ""
        return
    assert "Compare them" not in done.stdout
    kept = run.directory / "capture.capture.json"
    assert not kept.exists() or not json.loads(kept.read_text())["complete"]


# ---- answers

ANSWERS = {
    "no-logprobs": r"request 0, [a-z0-9-]+: no meta_info\.(in|out)put_token_logprobs, although return_logprob was sent; nothing can be measured",
    "aborted-answer": r"request 0, [a-z0-9-]+: the server has aborted it: Abort in waiting queue",
    "cut-answer": r"output_ids has \d+ ids; expected \d+: the answer was cut",
    "null-logprob": r"has no logprob \(null\): the server has computed a NaN",
    "extra-token": r"prompt_tokens is \d+; expected \d+: the server has added to the prompt",
    "bad-answer=error:/generate:logprobs": r"generate: HTTP 200: Out of memory",
    "bad-answer=status:/generate:logprobs": r"generate: HTTP 500: Internal Server Error",
    "bad-answer=text:/generate:logprobs": r"generate: HTTP 200, but the body cannot be read",
    "bad-answer=empty:/generate:logprobs": r"generate: HTTP 200, but the body cannot be read",
    "bad-answer=cut:/generate:logprobs": r"POST /generate",
    "bad-answer=close:/generate:logprobs": r"POST /generate",
    "bad-answer=status:/flush_cache": r"flush_cache: HTTP 500: Internal Server Error; expected 200",
}


@pytest.mark.parametrize("fault", [name for name in ANSWERS if "flush" not in name])
def test_answers_that_must_not_be_read(place, standin, fault):
    run = place.run(standin, faults=fault).armed()
    for command, kind in CELLS:
        done = place.ctl(*arguments_of(command, target_of(run, kind)), status=None)
        refused(run, command, done, LOST, ANSWERS[fault])
    assert run.status()["state"] == "armed"


def test_prompts_longer_than_the_context(place, standin):
    """Before the first request: a refusal by the server would come in the middle."""
    folder = place.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 512, "max_position_embeddings": 2048}))
    run = place.run(standin, command=place.command(standin, model=folder)).armed()
    before = run.log.count("POST /generate")
    for command, kind in CELLS:
        done = place.ctl(*arguments_of(command, target_of(run, kind), synthetic="4:2041:1"), status=None)
        refused(run, command, done, USAGE, rf"prompt \d.*: 2041 ids and {NEW} new tokens do not fit the context of 2048 tokens")
    # the first turn fits, the second does not
    done = place.ctl(*arguments_of("kl", run.name, synthetic="4:2025:1"), status=None)
    refused(run, "kl", done, USAGE, rf"prompt 0 of 2025 ids, .*: {2025 + 2 * NEW + 1} ids; the server takes less than 2042")
    assert run.log.count("POST /generate") == before and not list(run.directory.glob("capture*"))


def test_a_context_that_the_server_alone_knows(place, standin):
    """Its refusal comes under a status of its own, with its own words."""
    run = place.run(standin, flags=["--max-total-tokens", "500"]).armed()
    for command, kind in CELLS:
        done = place.ctl(*arguments_of(command, target_of(run, kind), synthetic="4:600:1"), status=None)
        assert done.returncode in (USAGE, LOST) and "600" in done.stderr and not done.stdout.count("bit-equal"), done


# ---- what changes in the middle

def held_run(place, standin, **environment):
    return place.run(standin, environment={**place.hold_environment(), **environment}).armed()


@contextlib.contextmanager
def begun(run, command, target, *more):
    """The command in the background, in its first pass, which does not end before the block does."""
    with run.held() as held:
        client = run.place.start([guarded.CTL, *map(str, arguments_of(command, target, *more))], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        wait_for(held.exists, 30, "a pass of ours")
        yield client
    client.out, client.err = client.communicate(timeout=90)
    client.stdout, client.stderr = client.out, client.err


@cells
def test_other_weights(place, standin, command, kind):
    run = held_run(place, standin)
    with begun(run, command, target_of(run, kind)) as client:
        guarded.post(f"http://127.0.0.1:{run.status()['port']}/update_weight_version", {"new_version": "step-7"})
    refused(run, command, client, LOST, r"other weights were loaded meanwhile \(.*version step-7; before .*\); measure again")


@cells
def test_a_server_that_dies(place, standin, command, kind):
    run = held_run(place, standin)
    with begun(run, command, target_of(run, kind)) as client:
        os.kill(run.status()["pid"], signal.SIGKILL)
    refused(run, command, client, LOST, r"POST /generate|run t is ended")


@pytest.mark.parametrize("command, member", [("kl", "match, one at a time"), ("invariance", "prefill")])
def test_a_server_that_is_restarted(place, standin, command, member):
    """Behind the same address: nothing is read of numbers of two servers."""
    first, second = (place.run(standin, name=name).armed() for name in "ab")
    with recording(first.status()["port"]) as recorder:
        def swap(_path, _body):
            if len(recorder.kept) == 6:
                recorder.target = second.status()["port"]
        recorder.look = swap
        done = place.ctl(*arguments_of(command, recorder.url), status=None)
    refused(first, command, done, LOST, rf"{member}: .*the server was restarted meanwhile")


# ---- two people on one server

def check_foreign(found, command, **members):
    assert {key: found["foreign"][key] for key in members} == members
    assert found["foreign"]["seen"] and re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["foreign"]["first"])
    assert found["foreign"]["first"] <= found["foreign"]["last"]
    reading = found["reading"]
    assert (reading["condition"] if command == "kl" else reading["condition_1"]) == "refused"


@measures
def test_one_short_request_is_counted(place, standin, command, kind):
    """In one pass of ours, too short for any look: 3 tokens, exactly."""
    run = place.run(standin, faults="stranger=2").armed()
    done = place.ctl(*arguments_of(command, target_of(run, kind), "--json"), status=INCOMPLETE)
    found = json.loads(done.stdout)
    check_foreign(found, command, by="count", tokens=3)
    text = place.ctl(*arguments_of(command, target_of(run, kind)), status=None).stdout  # the stranger has come once
    assert "nobody else has used the server: it has computed no token of a prompt but ours" in text
    # What was measured then is not taken for a measurement by others.
    path = place.folder / "spoilt.json"
    path.write_text(json.dumps(found))
    if command == "kl":
        assert "somebody else has used the server" in place.ctl("ab", path, path, status=INCOMPLETE).stderr
        done = place.ctl(*arguments_of("invariance", run.name, "--kl", path), status=INCOMPLETE)
        assert f"--kl: '{path}': somebody else has used the server" in done.stderr and not done.stdout


def test_what_is_printed(place, standin):
    run = place.run(standin, faults="stranger=2").armed()
    text = place.ctl(*arguments_of("kl", run.name), status=INCOMPLETE).stdout
    assert re.search(r"reading +Incomplete: somebody else has used the server meanwhile\. ", text)
    assert re.search(r"evidence +somebody else has used the server: 3 tokens of prompts that are not ours, first seen 20.*Z, last 20.*Z\n", text)
    assert re.search(r"next +measure again while nobody else uses the server\n", text)
    run.place.ctl("stop", run.name)
    run = place.run(standin, name="u", faults="stranger=2").armed()
    text = place.ctl(*arguments_of("invariance", run.name), status=INCOMPLETE).stdout
    assert re.search(r"condition 1 +refused\n +Incomplete: somebody else has used the server: 3 tokens", text)


def test_a_capture_knows_whose_it_was(place, standin):
    """In a dump by its id; beside the dumps by the count."""
    run = place.run(standin, faults="stranger=1").armed()
    done = place.ctl(*arguments_of("capture", run.name), status=INCOMPLETE)
    refused(run, "capture", done, INCOMPLETE, "capture-dec is incomplete: request ids of somebody else")
    done = place.ctl(*arguments_of("capture", run.name, "--name", "next", "--json"), status=0)
    foreign = json.loads(done.stdout)["foreign"]
    assert (foreign["seen"], foreign["by"], foreign["tokens"], foreign["first"]) == (False, "count", 0, None)


@measures
def test_a_release_that_does_not_count_is_looked_at(place, standin, command, kind):
    """Once a second: requests that stay are seen, and it is said that shorter ones may be missed."""
    run = held_run(place, standin, **SLOW, KLDUMP_STANDIN_VERSION="0.5.16")
    url = f"http://127.0.0.1:{run.status()['port']}/generate"
    stranger = threading.Thread(target=guarded.post, args=(url, {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 100}}))
    with begun(run, command, target_of(run, kind), "--json") as client:
        stranger.start()
    stranger.join()
    assert client.returncode == INCOMPLETE, (client.out, client.err)
    check_foreign(json.loads(client.out), command, by="sampling", tokens=None, requests_at_once=1)


def test_nobody_where_it_is_looked_at(place, standin):
    run = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": "0.5.16"}).armed()
    for command in ("kl", "invariance"):
        text = place.ctl(*arguments_of(command, run.name), status=0).stdout
        assert re.search("nobody else was seen: .* requests shorter than that\\s+may be missed", text), text


@measures
def test_where_the_server_does_not_say(place, standin, command, kind):
    """That nobody else was there is not claimed then."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": "0.5.16"}).armed()
    with recording(run.status()["port"]) as recorder:
        recorder.missing = {"/v1/loads", "/get_load"}
        found = json.loads(place.ctl(*arguments_of(command, recorder.url, "--json"), status=0).stdout)
    assert found["foreign"] == {"seen": False, "by": None, "tokens": None, "requests_at_once": 0, "first": None, "last": None}


def test_a_request_without_end(place, standin):
    """The cache cannot be flushed: who is in the way is said, after the half minute that a server is given to get idle."""
    run = place.run(standin, environment=SLOW).armed()
    url = f"http://127.0.0.1:{run.status()['port']}/generate"
    body = json.dumps({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1500}})
    stranger = place.start(["curl", "-s", "-H", "Content-Type: application/json", "-d", body, url], stdout=subprocess.DEVNULL)
    wait_for(lambda: "#new-token: 3," in run.log, 10, "the stranger's prefill")
    done = place.ctl(*arguments_of("kl", run.name), status=INCOMPLETE)
    refused(run, "kl", done, INCOMPLETE, "somebody else uses the server: 1 requests run or wait while none of ours does")
    stranger.kill()
    stranger.wait()
