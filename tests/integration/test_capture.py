"""kldumpctl capture: decode and scoring prefill of the same tokens, ready for diff, on the stand-in's transformer and on the real
server; what must not be taken for a measurement is incomplete, with its reason."""
import json
import os
import re
import signal
import threading
import time
import urllib.request

import guarded
import pytest
from guarded import wait_for

SLOW = {"KLDUMP_STANDIN_STEP_MS": "40"}
DONE, INCOMPLETE, LOST, FORBIDDEN, NO = 0, 4, 85, 88, 1


def guard(place, server, faults="", options=(), flags=(), environment=None):
    return place.run(server, faults=faults, options=options, flags=flags, environment=environment).armed()


def capture(run, *options, status=DONE):
    return run.place.ctl("capture", run.name, *options, status=status)


def kept(run, name="capture"):
    return json.loads((run.directory / f"{name}.capture.json").read_text())


def diff(run, status, name="capture"):
    done = run.place.ctl("diff", run.directory / f"{name}-dec", run.directory / f"{name}-pre", "--json", status=status)
    return json.loads(done.stdout)


def test_a_batch_and_one_at_a_time(place, standin):
    run = guard(place, standin)
    done = capture(run, "--synthetic", "3:9-14:5", "--new", "6")
    assert done.stderr == ""
    dec, pre = run.directory / "capture-dec", run.directory / "capture-pre"
    assert f"Compare them: kldumpctl diff {dec} {pre}\n" in done.stdout
    assert "logprobs: 18 of 18 tokens are bit-equal, the largest difference is 0\n" in done.stdout
    report = kept(run)
    assert (report["schema"], report["complete"], report["reasons"]) == ("kldump.capture/1", True, [])
    assert [report[phase]["seal"]["complete"] for phase in ("decode", "score")] == [True, True]
    for number, request in enumerate(report["requests"]):
        assert 9 <= request["prompt_tokens"] == len(request["input_ids"]) <= 14
        assert len(request["output_ids"]) == 6
        assert request["scored_logprobs"][0] is None
        assert request["scored_logprobs"][request["prompt_tokens"]:] == request["decoded_logprobs"]
        assert request["decode"] == {"rid": f"kldump-capture-dec-{number}", "cached_tokens": 0}
        assert request["score"] == {"rid": f"kldump-capture-pre-{number}", "cached_tokens": 0}
    assert len({request["input_ids"][0] for request in report["requests"]}) == 3
    assert diff(run, DONE)["verdict"]["kind"] == "none"

    alone = json.loads(capture(run, "--synthetic", "3:9-14:5", "--new", "6", "--alone", "--name", "one", "--json").stdout)
    assert alone == kept(run, "one")
    assert alone["alone"] and not report["alone"]
    assert (alone["prompts"], alone["server"]["settings_hash"]) == (report["prompts"], report["server"]["settings_hash"])
    assert alone["decode"]["seal"]["steps"] > report["decode"]["seal"]["steps"]
    assert diff(run, DONE, "one")["verdict"]["kind"] == "none"
    again = capture(run, status=FORBIDDEN)
    assert "capture-dec is there already; choose another" in again.stderr
    assert kept(run) == report


def diff_restored(run, status, name="capture"):
    done = run.place.ctl("diff", run.directory / f"{name}-restored", run.directory / f"{name}-pre", "--json", status=status)
    return json.loads(done.stdout)


def proof(found, name):
    return next(one for one in found["alignment"]["certificate"] if one["id"] == name)


@pytest.mark.parametrize("more", [(), ("--alone",)])
def test_a_prefix_that_is_restored_as_it_was(place, standin, more):
    """Rows behind the restored prefix are those of a whole prefill, and each is known to have the same tokens before it."""
    run = guard(place, standin)
    done = capture(run, "--synthetic", "3:9-14:5", "--new", "6", "--restore", *more)
    restored, pre = run.directory / "capture-restored", run.directory / "capture-pre"
    assert f"Compare them: kldumpctl diff {restored} {pre}\n" in done.stdout
    assert "logprobs behind the restored prefix: 18 of 18 tokens are bit-equal" in done.stdout
    report = kept(run)
    assert (report["complete"], report["restore"], report["decode"]) == (True, True, None)
    assert [report[phase]["experiment"] for phase in ("score", "restored")] == ["capture-pre", "capture-restored"]
    assert not (run.directory / "capture-dec").exists()
    for number, request in enumerate(report["requests"]):
        length = request["prompt_tokens"]
        assert request["restored"] == {"rid": f"kldump-capture-restored-{number}", "cached_tokens": length - 1}
        assert request["score"]["cached_tokens"] == 0
        assert request["restored_logprobs"][:length] == [None] * length
        assert request["restored_logprobs"][length:] == request["scored_logprobs"][length:] == request["decoded_logprobs"]
    found = diff_restored(run, DONE)
    assert (found["verdict"]["kind"], found["verdict"]["confidence"], found["pairing"]) == ("none", "proven", "restored")
    assert "21 of them behind a restored prefix" in proof(found, "A2")["evidence"]  # three prompts: six rows each, and the last one of the prompt
    text = place.ctl("diff", restored, pre).stdout
    assert "rows behind a restored prefix with the same rows of a whole prefill" in text
    assert diff_restored(run, DONE)["status"] == 0


FIRST_ATTENTION = "model.layers.0.self_attn.attn"


@pytest.mark.parametrize("fault,options,position", [
    ("stale-prefix=2", ("--new", "4"), 11), ("stale-page=4", ("--new", "4", "--alone"), 12), ("stale-last", ("--new", "0"), 11)])
def test_a_prefix_that_is_restored_wrong(place, standin, fault, options, position):
    """Inputs are equal, and so is what filled the cache; the first attention that reads it is not."""
    run = guard(place, standin, faults=fault, flags=["--dtype", "float32"])
    (place.folder / "p.jsonl").write_text("".join(json.dumps({"input_ids": [20 + k * 7 + i for i in range(12 + k)]}) + "\n" for k in range(2)))
    capture(run, "--prompts", place.folder / "p.jsonl", "--restore", *options)
    report, found = kept(run), diff_restored(run, NO)
    assert report["complete"] and found["alignment"]["proven"]
    verdict = found["verdict"]
    assert (verdict["kind"], verdict["module"], verdict["layer"], verdict["confidence"]) == ("op+cache", FIRST_ATTENTION, 0, "proven")
    assert verdict["position"] == position
    assert "the restored keys and values are not those of the prefill" in verdict["what"]
    assert proof(found, "A7")["state"] == proof(found, "A8")["state"] == "holds"
    if "4" in options:
        assert report["logprobs"]["bit_equal"] < report["logprobs"]["tokens"] == 8


def test_the_last_token_that_is_left_over(place, standin):
    """A fault of prefixes that leave one token shows with --new 0 alone."""
    run = guard(place, standin, faults="stale-last")
    capture(run, "--synthetic", "2:12:3", "--new", "3", "--restore")
    assert diff_restored(run, DONE)["verdict"]["kind"] == "none"
    capture(run, "--synthetic", "2:12:3", "--new", "0", "--restore", "--name", "last")
    report = kept(run, "last")
    assert [request["decode"] for request in report["requests"]] == [None, None] and report["logprobs"]["tokens"] == 0
    assert diff_restored(run, NO, "last")["verdict"]["module"] == FIRST_ATTENTION
    for name, paths in (("capture", ["prompt", "output", "restored"]), ("last", ["prompt"])):
        path = run.directory / f"{name}.capture.json"
        assert [one["path"] for one in json.loads(place.ctl("ab", path, path, "--json").stdout)["paths"]] == paths


def test_a_prefix_that_was_not_restored(place, standin):
    """Not proven by the answer: incomplete, and nothing is compared."""
    run = guard(place, standin, faults="evicted-prefix")
    done = capture(run, "--synthetic", "2:12:3", "--restore", status=INCOMPLETE)
    assert "kldump-capture-restored-0 found nothing in the prefix cache" in done.stderr and "expected 11" in done.stderr
    assert not kept(run)["complete"] and "Compare them" not in done.stdout


def test_what_cannot_be_restored_is_refused(place, standin):
    run = guard(place, standin, flags=["--disable-radix-cache"])
    assert "the prefix cache of t is off" in capture(run, "--restore", status=NO).stderr
    other = place.run(standin, name="u").armed()
    (place.folder / "p.jsonl").write_text('{"input_ids": [20]}')
    refused = capture(other, "--restore", "--prompts", place.folder / "p.jsonl", status=2)
    assert "prompt 0 has 1 tokens; expected more than a page of the cache, 1" in refused.stderr
    assert not list(run.directory.glob("capture*")) and not list(other.directory.glob("capture*"))


@pytest.mark.parametrize("fault, more", [("batch-variant=1:down_proj:20", []), ("stale-prefix=3", ["--restore"])])
def test_numbers_are_those_of_the_logprobs(place, standin, fault, more):
    run = guard(place, standin, fault)
    done = capture(run, "--synthetic", "3:9-14:5", "--new", "6", *more)
    report = kept(run)
    pairs = []
    for request in report["requests"]:
        behind = request["restored_logprobs"][request["prompt_tokens"]:] if more else request["decoded_logprobs"]
        pairs += zip(request["scored_logprobs"][request["prompt_tokens"]:], behind)
    equal, largest = sum(a == b for a, b in pairs), max(abs(a - b) for a, b in pairs)
    found = report["logprobs"]
    assert len(pairs) == 18 and equal < 18
    assert (found["tokens"], found["bit_equal"], found["largest_difference"], found["shifted"]) == (18, equal, largest, False)
    assert f"{equal} of 18 tokens are bit-equal, the largest difference is {largest:.2g}" in done.stdout


def test_prompts_from_a_file(place, standin):
    run = guard(place, standin)
    (place.folder / "p.jsonl").write_text('{"input_ids": [20, 30, 40]}\n\n{"input_ids": [21, 31]}\n')
    capture(run, "--prompts", place.folder / "p.jsonl", "--new", "3")
    assert [request["input_ids"] for request in kept(run)["requests"]] == [[20, 30, 40], [21, 31]]
    assert kept(run)["prompts"]["source"] == "p.jsonl"
    (place.folder / "p.jsonl").write_text('{"input_ids": [20, 30]}\n{"input_ids": [20, "x"]}\n')
    refused = capture(run, "--prompts", place.folder / "p.jsonl", "--name", "b", status=2)
    assert "p.jsonl: line 2: input_ids.1 is no token id" in refused.stderr
    (place.folder / "p.jsonl").write_text('{"text": "a text"}\n')
    refused = capture(run, "--prompts", place.folder / "p.jsonl", "--name", "b", status=LOST)
    assert "/tokenize" in refused.stderr or "tokenize: HTTP 404" in refused.stderr
    assert "give the prompts as input_ids" in refused.stderr
    assert not list(run.directory.glob("b*"))


@pytest.mark.parametrize("options,said,status", [
    (("--prompts", "ids.jsonl"), "prompt 0: id 600 at position 1; expected one below 512", 2),
    (("--synthetic", "1:2040:1"), "do not fit the context of 2048 tokens", 2),
    (("--synthetic", "1:2030:1", "--new", "14"), "the server takes less than 2042", 2),
    (("--synthetic", "500:4:1"), "cannot all begin differently", 2),
    (("--synthetic", "4x:9:1"), "not of the form N:LEN:SEED", 2),
])
def test_what_a_server_would_die_of_or_cut_is_refused(place, standin, options, said, status):
    folder = place.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 512, "max_position_embeddings": 2048}))
    (place.folder / "ids.jsonl").write_text('{"input_ids": [20, 600]}\n')
    run = place.run(standin, command=place.command(standin, model=folder)).armed()
    assert said in capture(run, *options, status=status).stderr
    assert run.status()["state"] == "armed"
    assert not list(run.directory.glob("capture*"))


def test_refused_where_the_tokens_do_not_fit(place, standin):
    disk = place.small_disk("200M")
    run = place.run(standin, directory=disk / "d", floor="20M").armed()
    refused = capture(run, "--synthetic", "40:1500:1", status=FORBIDDEN)
    assert "tokens need about" in refused.stderr and re.search(r"; \d+\.\d MiB are left until ", refused.stderr)
    assert not list(run.directory.glob("capture*"))
    budget = place.run(standin, name="u", options=["--budget", "1M"]).armed()
    refused = capture(budget, "--synthetic", "9:150:1", status=FORBIDDEN)
    assert "of the byte budget are left (--budget)" in refused.stderr


@pytest.mark.parametrize("fault,status,said", [
    ("shifted-logprobs", LOST, "that of the token behind it: the server's input_token_logprobs are shifted by one"),
    ("crash-on-dump=9", LOST, "run t is ended: server-exited"),
])
def test_answers_that_must_not_be_read(place, standin, fault, status, said):
    run = guard(place, standin, faults=fault)
    done = capture(run, status=status)
    assert "the capture is incomplete: " in done.stderr and said in done.stderr
    assert "Compare them" not in done.stdout
    report = kept(run)
    assert not report["complete"] and len(report["reasons"]) == 1
    assert report["decode"]["seal"] is not None
    if fault != "shifted-logprobs":
        assert report["score"]["seal"] is None and not (run.directory / "capture-pre").exists()


def test_the_death_of_a_server_that_is_known_late(place, standin):
    """The client notices it first and ends the dump; why the run ended is told all the same."""
    run = guard(place, standin, faults="crash-on-dump=6", environment=place.hold_environment())
    keeper = run.keeper()
    with run.held("capture-dec"):
        client = begin(run, "--alone")
        os.kill(keeper, signal.SIGSTOP)  # it is what tells the guard
    wait_for(lambda: any(event["text"].startswith("sealing: ") for event in run.events()), 30, "the end of the dump")
    os.kill(keeper, signal.SIGCONT)
    _out, err = client.communicate(timeout=60)
    assert client.returncode == LOST and "run t is ended: server-exited: " in err and "POST /generate" in err, err


def test_tokens_from_the_cache(place, standin):
    run = guard(place, standin, faults="cached-probe=logprobs")
    done = capture(run, "--synthetic", "1:20:3", status=INCOMPLETE)
    assert "kldump-capture-dec-0 found 10 tokens in the prefix cache, which had just been flushed" in done.stderr
    assert kept(run)["requests"][0]["decode"]["cached_tokens"] == 10


def test_prompts_that_begin_alike(place, standin):
    """One at a time, each after a flush: none finds what the one before it has left."""
    run = guard(place, standin)
    lines = [{"input_ids": [*range(20, 50)]}, {"input_ids": [*range(20, 49), 99]}]
    (place.folder / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    capture(run, "--prompts", place.folder / "p.jsonl", "--alone")
    assert [request["decode"]["cached_tokens"] for request in kept(run)["requests"]] == [0, 0]
    assert diff(run, DONE)["verdict"]["kind"] == "none"


def begin(run, *options):
    """A capture in the background whose first file is there."""
    client = run.place.start([guarded.CTL, "capture", run.name, *options], stdout=guarded.subprocess.PIPE, stderr=guarded.subprocess.PIPE,
                             text=True)
    wait_for(lambda: any(run.directory.glob("capture-dec/*.pt")), 30, "the first file")
    return client


def requests_at(url):
    with urllib.request.urlopen(f"{url}/v1/loads", timeout=30) as answer:
        return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in json.load(answer)["loads"])


def test_requests_of_somebody_else(place, standin):
    """Incomplete, with the foreign id; a scoring that would be as spoilt is not begun."""
    run = guard(place, standin, environment=place.hold_environment())
    url = f"http://127.0.0.1:{run.status()['port']}"
    body = {"input_ids": [5, 6, 7], "rid": "stranger", "sampling_params": {"max_new_tokens": 2}}
    stranger = threading.Thread(target=guarded.post, args=(f"{url}/generate", body))
    with run.held("capture-dec"):
        client = begin(run)
        ours = requests_at(url)
        stranger.start()
        wait_for(lambda: requests_at(url) > ours, 30, "the stranger's request")
    stranger.join()
    out, err = client.communicate(timeout=60)
    assert client.returncode == INCOMPLETE
    assert "request ids of somebody else: stranger" in out and "capture-dec is incomplete: request ids of somebody else: stranger" in err
    assert not kept(run)["complete"] and not (run.directory / "capture-pre").exists()


def test_interrupted(place, standin):
    """Ctrl-C: what is there is sealed, the file says so, and the server goes on."""
    run = guard(place, standin, environment=SLOW)
    client = begin(run, "--new", "200")
    begun = time.monotonic()
    client.send_signal(signal.SIGINT)
    _out, err = client.communicate(timeout=60)
    assert client.returncode == 130, err
    assert time.monotonic() - begun < 20
    assert "the capture is incomplete: " in err and "interrupted" in err
    report = kept(run)
    assert not report["complete"] and report["decode"]["seal"]["files"] > 0 and report["score"]["seal"] is None
    wait_for(lambda: run.status()["state"] == "armed", 20, "armed again")
    capture(run, "--name", "next", "--new", "2")


@pytest.mark.parametrize("admin", [False, True])
def test_keys(place, standin, admin, monkeypatch):
    """From the environment alone, and in no file, message or environment of a server."""
    keys = {"KLDUMP_API_KEY": "key-of-users", **({"KLDUMP_ADMIN_API_KEY": "key-of-admins"} if admin else {})}
    flags = ["--api-key", "key-of-users", *(["--admin-api-key", "key-of-admins"] if admin else [])]
    run = guard(place, standin, flags=flags, environment=keys)
    refused = capture(run, "--new", "2", status=FORBIDDEN)
    assert "HTTP 401: the server wants a key; set KLDUMP_API_KEY to its --api-key" in refused.stderr
    own = place.environment
    monkeypatch.setattr(place, "environment", lambda **more: own(**more, KLDUMP_API_KEY="key-of-users"))
    if admin:
        refused = capture(run, "--new", "2", status=FORBIDDEN)
        assert "POST /flush_cache: HTTP 401" in refused.stderr and "to that KLDUMP_ADMIN_API_KEY" in refused.stderr
    monkeypatch.setattr(place, "environment", lambda **more: own(**more, **keys))
    done = capture(run, "--new", "2", "--synthetic", "1:9:1")
    text = refused.stderr + done.stdout + done.stderr + (run.directory / "capture.capture.json").read_text()
    assert "key-of" not in text
    assert not [name for name in guarded.environment_of(run.status()["pid"]) if "API_KEY" in name]


def test_owned_by_kldumpd(place, standin):
    """Through the relay; its end is sealed like any other."""
    place.start([guarded.BUILD / "kldumpd"], stdout=guarded.subprocess.DEVNULL, stderr=guarded.subprocess.DEVNULL)
    wait_for(lambda: place.ctl("list", status=None).returncode == 0, 10, "kldumpd")
    place.ctl("start", "--name", "p", "--dir", place.folder / "d", "--floor", "64M", "--", *place.command(standin))
    done = place.ctl("capture", "p", "--synthetic", "2:9:1", "--new", "3")
    assert "capture-dec: complete" in done.stdout and (place.folder / "d/capture.capture.json").exists()
    place.ctl("stop", "p")


def test_the_progress_on_a_terminal(place, standin):
    run = guard(place, standin, environment=place.hold_environment())
    master, slave = os.openpty()
    shown = ""
    with run.held("capture-dec"):
        client = place.start([guarded.CTL, "capture", "t", "--new", "30", "--json"], stdout=guarded.subprocess.PIPE, stderr=slave)
        os.close(slave)
        while not re.search(r"decoding: [1-9]\d* s", shown):  # the first second, where nobody has stopped the client
            shown += os.read(master, 65536).decode()
    out, _ = client.communicate(timeout=60)
    if not shown.endswith("\r\x1b[K"):
        shown += os.read(master, 65536).decode()
    os.close(master)
    assert client.returncode == DONE and json.loads(out) == kept(run)
    assert "decoding: 1 s" in shown and shown.endswith("\r\x1b[K")


def test_usage(place):
    for options, said in ((("--prompts", "a", "--synthetic", "1:1:1"), "exclude each other"), (("--new", "0"), "--new"), (("--name", "../x"), "--name"),
                          (("--name", "x" * 61), "--name"), (("--name", "x" * 56, "--restore"), "1 to 55"), (("http://127.0.0.1:1",), "only a guarded run can be dumped"), (("a", "b"), "")):
        assert said in place.ctl("capture", *options, status=2).stderr
    place.ctl("capture", status=87)


@pytest.mark.real
def test_the_unedited_server(place, servers):
    """float32 on a CPU: the first operator that differs is the one whose matrix product depends on the number of rows."""
    run = guard(place, servers("real"))
    capture(run, "--synthetic", "1:40:3", "--new", "8", "--alone")
    report = kept(run)
    assert report["complete"] and report["server"]["vocabulary"] == 512
    request = report["requests"][0]
    assert request["scored_logprobs"][0] is None and None not in request["scored_logprobs"][1:]
    assert report["logprobs"]["tokens"] == 8 and report["logprobs"]["largest_difference"] < 1e-4
    verdict = diff(run, NO)["verdict"]
    assert (verdict["kind"], verdict["module"], verdict["layer"]) == ("op", "model.layers.0.self_attn.qkv_proj", 0)
    capture(run, "--synthetic", "4:24-40:3", "--new", "8", "--name", "batch")
    assert kept(run, "batch")["complete"]
    assert diff(run, NO, "batch")["alignment"]["proven"]


@pytest.mark.real
def test_the_unedited_server_behind_a_restored_prefix(place, servers):
    """One row behind a prefix that the answer proves: the rows are known to belong together, and it is condition 1 that shows."""
    run = guard(place, servers("real"))
    capture(run, "--synthetic", "2:40:3", "--new", "0", "--restore")
    report = kept(run)
    assert report["complete"] and [request["restored"]["cached_tokens"] for request in report["requests"]] == [39, 39]
    found = diff_restored(run, NO)
    assert (found["pairing"], found["verdict"]["kind"], found["verdict"]["module"]) == ("restored", "op", "model.layers.0.self_attn.qkv_proj")
    assert proof(found, "A8")["state"] == "holds" and "2 of them behind a restored prefix" in proof(found, "A2")["evidence"]
    capture(run, "--synthetic", "2:40:3", "--new", "6", "--restore", "--name", "six")
    assert kept(run, "six")["complete"] and kept(run, "six")["logprobs"]["tokens"] == 12
    verdict = diff_restored(run, DONE, "six")["verdict"]  # with several rows its kernels are the same
    assert (verdict["kind"], verdict["confidence"]) == ("none", "proven")
