"""Three axes of one server, on the stand-in's transformer: a result that depends on the size of a batch is found at the first size,
an operator that treats one row otherwise too, and nothing is claimed that was not measured."""
import contextlib
import json
import signal
import struct
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standin"))
import guarded  # noqa: E402
from recorder import recording  # noqa: E402
from test_kl import class_of  # noqa: E402

PROMPTS = [[16 + (7 * i + 31 * k) % 96 for i in range(length)] for k, length in enumerate((20, 33, 27, 40, 21, 25, 30, 22))]
AXES = ("prefill", "extend", "decode")
UNCHANGED, CHANGED, USAGE = 0, 1, 2


def serve(place, server, faults="", flags=()):
    return place.run(server, flags=flags, faults=faults).armed()


def invariance(place, target, *more, prompts=4, status=0):
    path = place.folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in PROMPTS[:prompts]))
    return place.ctl("invariance", target, "--prompts", path, "--new", "8", *more, status=status)


def measure(run, status, *more, **options):
    return json.loads(invariance(run.place, run.name, "--json", *more, status=status, **options).stdout)


@pytest.fixture(scope="module")
def armed_standin(servers):
    made = guarded.Place()
    yield serve(made, servers("standin"))
    made.end()


def states(found):
    return [found["axes"][axis]["state"] for axis in AXES]


def kl_result(place, found, together, alone, **more):
    """As `kldumpctl kl --json` writes it, over the prompts and settings of FOUND."""
    path = place.folder / "kl.json"
    path.write_text(json.dumps({
        "schema": "kldump.kl/1", "prompts": {"hash": found["prompts"]["hash"]},
        "server": {"settings_hash": found["server"]["settings_hash"]},
        "helpers": {"match": {"grade": together}, "match_alone": {"grade": alone}}, **more}))
    return path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_depends_on_the_size(place, standin, dtype):
    """All is bit-equal; and that is no proof of condition 1 until match has been measured."""
    run = serve(place, standin, flags=["--dtype", dtype])
    found = measure(run, UNCHANGED)
    assert states(found) == ["unchanged"] * 3
    assert found["schema"] == "kldump.invariance/1" and found["reading"]["condition_1"] == "not shown"
    assert "kldumpctl kl" in found["reading"]["next"]
    assert [case["size"] for case in found["axes"]["decode"]["cases"]] == [2, 4]
    assert [(case["size"], case["cached"]) for case in found["axes"]["extend"]["cases"]] == [
        (1, True), (2, False), (4, False), (8, False), (16, False), (32, False)]
    assert all(case["compared"] == case["bit_equal"] > 0 for axis in AXES for case in found["axes"][axis]["cases"])
    assert [case["compared"] for case in found["axes"]["decode"]["cases"]] == [14, 28]  # requests x new tokens, without the first of each
    assert found["axes"]["prefill"]["cases"][1]["compared"] == sum(map(len, PROMPTS[:4]))  # the first has no score; one new token


def test_a_plain_run(place, standin):
    """Nothing is dumped for it, so graphs may stay on."""
    run = place.run(standin, options=["--kind", "plain"]).wait_state("ready")
    assert states(measure(run, UNCHANGED)) == ["unchanged"] * 3


def test_condition_1_holds_only_with_a_clean_match(place, standin):
    run = serve(place, standin)
    found = measure(run, UNCHANGED)
    for together, alone, condition in (("bit-equal", "stray", "holds"), ("stray", "bit-equal", "holds"), ("bit-equal", "noise", "not shown"),
                                       ("nonzero", "bit-equal", "not shown"), ("not measured", "bit-equal", "not shown")):
        path = kl_result(place, found, together, alone)
        assert measure(run, UNCHANGED, "--kl", path)["reading"]["condition_1"] == condition, (together, alone)


def test_with_what_kl_has_measured(place, standin):
    run = serve(place, standin)
    measure(run, UNCHANGED)
    path = place.folder / "measured.json"
    place.ctl("kl", run.name, "--prompts", place.folder / "prompts.jsonl", "--new", "8", "--min-samples", "4", "--out", path)
    found = measure(run, UNCHANGED, "--kl", path)
    assert found["reading"]["condition_1"] == "holds" and found["match"]["together"] == "bit-equal"
    assert "other prompts" in invariance(place, run.name, "--kl", path, prompts=3, status=USAGE).stderr


def test_a_match_over_something_else_is_not_taken(place, standin):
    run = serve(place, standin)
    found = measure(run, UNCHANGED)
    for more in ({"prompts": {"hash": "0123456789abcdef"}}, {"server": {"settings_hash": "0123456789abcdef"}}):
        path = kl_result(place, found, "bit-equal", "bit-equal", **more)
        text = invariance(place, run.name, "--kl", path, status=USAGE).stderr
        ours = found["prompts"]["hash"] if "prompts" in more else found["server"]["settings_hash"]
        assert "0123456789abcdef" in text and ours in text
    path = kl_result(place, found, "bit-equal", "bit-equal", schema="kldump.diff/1")
    assert "begins with 'kldump.kl/'" in invariance(place, run.name, "--kl", path, status=USAGE).stderr


def test_shifted_logprobs_are_no_operator(place, standin):
    """Each logprob is that of the token behind: the end of a short extend differs, and condition 1 is not said to be broken."""
    found = measure(serve(place, standin, "shifted-logprobs"), CHANGED)
    assert states(found) == ["unchanged", "changed", "unchanged"]
    assert found["reading"]["condition_1"] == "not shown" and "shifted" in found["reading"]["text"]
    assert "kldumpctl kl" in found["reading"]["next"]


@pytest.mark.parametrize("fault", ["batch-variant", "batch-variant=0:qkv_proj", "wrong-norm=1"])
def test_a_decode_of_one_row_is_another(place, standin, fault):
    """The reference of the decode is alone: the first batch is of two, and that changes a result. Prefill rows have company always."""
    run = serve(place, standin, fault)
    found = measure(run, CHANGED)
    assert states(found) == ["unchanged", "changed", "changed"]
    decode = found["axes"]["decode"]
    assert decode["changed_at"]["size"] == 2 and decode["unchanged_at"] is None
    first, length = decode["changed_at"]["first"], len(PROMPTS[0])
    assert first["request"] == 0 and length < first["position"] < length + 8  # behind the first token, which the prefill gives
    assert first["ulp"] > 0 and first["reference"] != first["found"]
    extend = found["axes"]["extend"]
    assert extend["changed_at"]["cached"] and extend["changed_at"]["size"] == 1
    assert [case["cached"] for case in extend["cases"] if case["first"]] == [True]
    assert found["reading"]["condition_1"] == "broken" and found["module"] is None
    text = invariance(place, run.name, status=CHANGED).stdout
    assert "the first that changes a result is a batch of 2" in text and "one row on a cached prefix" in text
    assert f"request 0, position {first['position']}" in text and f"{first['ulp']} ULP" in text
    assert "module       unknown" in text


def answers(run, count, scored, alone):
    """Of the first prompts: logprobs of each, scored or of its new tokens, alone or in one batch."""
    more = {"max_new_tokens": 0 if scored else 8, "temperature": 0, "ignore_eos": True}
    groups = [[ids] for ids in PROMPTS[:count]] if alone else [PROMPTS[:count]]
    found = []
    for ids in groups:
        url = f"http://127.0.0.1:{run.status()['port']}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/flush_cache", method="POST"), timeout=30).close()
        found += guarded.post(f"{url}/generate", {"input_ids": ids, "sampling_params": more, "return_logprob": True,
                                                  "logprob_start_len": 0 if scored else -1})
    return [[entry[0] for entry in answer["meta_info"]["input_token_logprobs" if scored else "output_token_logprobs"]] for answer in found]


def ulps(a, b):
    """Between two float32, which are as many apart as their bits where both have one sign."""
    bits = [struct.unpack("<i", struct.pack("<f", value))[0] for value in (a, b)]
    return abs(bits[0] - bits[1])


def test_numbers_are_those_of_the_answers(place, standin):
    """Taken again, by requests of one's own: the scores of a prompt and its first new token; the new tokens behind it."""
    run = serve(place, standin, "batch-variant=1:down_proj:40", ["--dtype", "float32"])
    axes = measure(run, CHANGED)["axes"]
    for size in (2, 4):
        scores = [answers(run, size, True, alone) for alone in (True, False)]
        tokens = [answers(run, size, False, alone) for alone in (True, False)]
        prefill = [[[*score[1:], new[0]] for score, new in zip(*side)] for side in zip(scores, tokens)]
        decode = [[new[1:] for new in side] for side in tokens]
        for axis, skipped, (alone, batch) in (("prefill", 1, prefill), ("decode", None, decode)):
            case = next(case for case in axes[axis]["cases"] if case["size"] == size)
            pairs = [(i, k, a, b) for i, (one, other) in enumerate(zip(alone, batch)) for k, (a, b) in enumerate(zip(one, other))]
            classes = [class_of(a, b) for _i, _k, a, b in pairs]
            assert (case["compared"], case["max_abs"]) == (len(pairs), max(abs(a - b) for _i, _k, a, b in pairs))
            assert [case[key] for key in ("bit_equal", "stray", "beyond")] == [classes.count(key) for key in ("bit_equal", "stray", "beyond")]
            i, k, a, b = next(pair for pair in pairs if pair[2] != pair[3])
            position = k + (skipped or len(PROMPTS[i]) + 1)
            first = case["first"]
            assert (first["request"], first["position"], first["reference"], first["found"]) == (i, position, a, b)
            assert (first["ulp"], first["class"]) == (ulps(a, b), class_of(a, b))


def test_without_a_prefix_cache(place, standin):
    run = serve(place, standin, flags=["--disable-radix-cache"])
    extend = measure(run, UNCHANGED)["axes"]["extend"]
    assert extend["state"] == "unchanged" and "prefix cache is off" in extend["why_not"]
    assert not any(case["cached"] for case in extend["cases"])


@contextlib.contextmanager
def in_front_of(port, change):
    """The URL of a server that hands all on to the one at PORT; CHANGE sees each request to /generate and its answers."""
    class Front(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = urllib.request.Request(f"http://127.0.0.1:{port}{self.path}", body or None, {"Content-Type": "application/json"}, method=self.command)
            with urllib.request.urlopen(request, timeout=60) as found:
                text = found.read()
            if self.path == "/generate":
                answers = json.loads(text)
                change(json.loads(body), answers)
                text = json.dumps(answers).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = answer

        def log_message(self, *_arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def next_single(value):
    """One ULP of float32 nearer to zero."""
    bits = struct.unpack("I", struct.pack("f", value))[0]
    return struct.unpack("f", struct.pack("I", bits - 1))[0]


@pytest.mark.parametrize("size", [2, 3, 5, 6, 8])
def test_the_first_size_is_found(place, standin, size):
    """Between the last size that changes nothing and the first that does, whatever lies between powers of two; one ULP is enough."""
    def change(request, answers):
        if len(request["input_ids"]) >= size and request["sampling_params"]["max_new_tokens"] == 8:
            entry = answers[1]["meta_info"]["output_token_logprobs"][3]
            entry[0] = next_single(entry[0])
    run = serve(place, standin)
    with in_front_of(run.status()["port"], change) as url:
        found = json.loads(invariance(place, url, "--json", prompts=8, status=CHANGED).stdout)
    assert states(found) == ["unchanged", "unchanged", "changed"]
    decode = found["axes"]["decode"]
    assert (decode["changed_at"]["size"], decode["unchanged_at"]) == (size, size - 1 if size > 2 else None)
    first = decode["changed_at"]["first"]
    assert (first["request"], first["position"], first["ulp"], first["class"]) == (1, len(PROMPTS[1]) + 3, 1, "stray")
    assert first["found"] == next_single(first["reference"])
    sizes = [case["size"] for case in decode["cases"]]
    assert sizes == sorted(sizes) and {2, 4, 8} <= set(sizes)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_first_new_token_is_of_the_prefill(place, standin, size):
    def change(request, answers):
        if len(request["input_ids"]) >= size and request["sampling_params"]["max_new_tokens"] == 8:
            answers[0]["meta_info"]["output_token_logprobs"][0][0] -= 0.5
    run = serve(place, standin)
    with in_front_of(run.status()["port"], change) as url:
        found = json.loads(invariance(place, url, "--json", prompts=8, status=CHANGED).stdout)
    assert states(found) == ["changed", "unchanged", "unchanged"]
    at = found["axes"]["prefill"]["changed_at"]
    assert (at["size"], at["first"]["request"], at["first"]["position"]) == (size, 0, len(PROMPTS[0]))


def test_a_prefill_in_a_batch(place, standin):
    def change(request, answers):
        if len(request["input_ids"]) >= 4 and request["sampling_params"]["max_new_tokens"] == 0:
            entry = answers[2]["meta_info"]["input_token_logprobs"][5]
            entry[0] *= 1.5
    run = serve(place, standin)
    with in_front_of(run.status()["port"], change) as url:
        found = json.loads(invariance(place, url, "--json", status=CHANGED).stdout)
    assert states(found) == ["changed", "unchanged", "unchanged"]
    at = found["axes"]["prefill"]["changed_at"]
    assert (at["size"], at["first"]["request"], at["first"]["position"], at["first"]["class"]) == (4, 2, 5, "beyond")
    assert found["axes"]["prefill"]["unchanged_at"] == 3


def test_somebody_fills_the_cache(place, standin):
    def change(_request, answers):
        answers[-1]["meta_info"]["cached_tokens"] = 6
    run = serve(place, standin)
    with in_front_of(run.status()["port"], change) as url:
        text = invariance(place, url, status=4).stderr
    assert "6 tokens were found in the cache right after it was flushed" in text and "prefill" in text


def test_a_prefix_that_is_not_found(place, standin):
    """Nothing is said about one row behind a cached prefix where it was computed anew."""
    def change(_request, answers):
        answers[0]["meta_info"]["cached_tokens"] = 0
    run = serve(place, standin)
    with in_front_of(run.status()["port"], change) as url:
        found = json.loads(invariance(place, url, "--json", status=UNCHANGED).stdout)
    assert "request 0 found 0 of its 19 tokens" in found["axes"]["extend"]["why_not"]
    assert not any(case["cached"] for case in found["axes"]["extend"]["cases"])
    path = kl_result(place, found, "bit-equal", "bit-equal")
    assert found["reading"]["condition_1"] == "not shown" and "a part of extend" in found["reading"]["text"]
    with in_front_of(run.status()["port"], change) as url:
        assert json.loads(invariance(place, url, "--json", "--kl", path).stdout)["reading"]["condition_1"] == "not shown"


def test_what_does_not_repeat_says_nothing_about_sizes(place, standin):
    seen = []

    def change(request, answers):
        if request["sampling_params"]["max_new_tokens"] == 8:
            seen.append(1)
            answers[0]["meta_info"]["output_token_logprobs"][2][0] -= 0.25 * len(seen)
    run = serve(place, standin)
    with in_front_of(run.status()["port"], change) as url:
        found = json.loads(invariance(place, url, "--json", status=CHANGED).stdout)
    assert states(found) == ["unchanged", "unchanged", "not repeatable"] and found["axes"]["decode"]["changed_at"] is None
    assert found["reading"]["condition_1"] == "not shown" and "one time to the next" in found["reading"]["text"]


@pytest.mark.parametrize("arguments, words", [
    (["--most", "1"], "too few"), (["--most", "5"], "4 prompts; a batch of 5"), (["--new", "1"], "too few"),
    (["--repro", "x.py"], "--diff FILE"), (["--dump", "d", "--repro", "no/x.py"], "cannot be written"), (["--prompts", "x"], "exclude each other"), (["--kl", "missing.json"], "missing.json")])
def test_bad_options(armed_standin, arguments, words):
    done = armed_standin.place.ctl("invariance", armed_standin.name, "--synthetic", "4:20-30:1", *arguments, status=None)
    assert done.returncode and words in done.stderr and not done.stdout


def test_interrupted(place, standin):
    """The server is slow, and nobody waits for it."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_STEP_MS": "300"}).armed()
    waiting = place.start([guarded.CTL, "invariance", run.name, "--new", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    guarded.wait_for(lambda: "Prefill batch, #new-seq: 1, #new-token: 1" in run.log.split("armed")[-1] and run.log.count("/flush_cache") > 3)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 130 and "interrupted" in err and not out


# ---- the script

def dump_and_diff(run):
    """The result of diff on a decode of the first prompt and its scoring prefill."""
    url = f"http://127.0.0.1:{run.status()['port']}/generate"
    run.dump("dec")
    sampling = {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
    answer = guarded.post(url, {"input_ids": PROMPTS[0], "rid": "dec", "sampling_params": sampling})
    run.place.ctl("pause", run.name)
    run.dump("pre")
    guarded.post(url, {"input_ids": [*PROMPTS[0], *answer["output_ids"]], "rid": "pre", "return_logprob": True, "logprob_start_len": 0,
                       "sampling_params": {"max_new_tokens": 0}})
    run.place.ctl("pause", run.name)
    path = run.place.folder / "diff.json"
    path.write_text(run.place.ctl("diff", run.directory / "dec", run.directory / "pre", "--json", status=CHANGED).stdout)
    return path


def test_the_script_of_a_module(place, standin):
    run = serve(place, standin, "batch-variant=1:gate_up_proj", ["--dtype", "float32"])
    path, script = dump_and_diff(run), place.folder / "repro.py"
    found = measure(run, CHANGED, "--diff", path, "--repro", script)
    assert found["module"] == "model.layers.1.mlp.gate_up_proj"
    lines = script.read_text().splitlines()
    assert len(lines) == 10 and "model.layers.1.mlp.gate_up_proj (matrix product)" in lines[0]
    assert lines[2] == "FEW, M, K, N, DTYPE = 1, 2, 64, 256, torch.float32"
    compile(script.read_text(), "repro.py", "exec")
    assert "gate_up_proj (matrix product), as" in invariance(place, run.name, "--diff", path, status=CHANGED).stdout


def test_no_script_of_attention(place, standin):
    run = serve(place, standin, "kv-off-by-one=1")
    path, script = dump_and_diff(run), place.folder / "repro.py"
    text = invariance(place, run.name, "--diff", path, "--repro", script, status=None)
    assert text.returncode and "self_attn.attn (attention)" in text.stderr and not script.exists()


@pytest.mark.real
def test_the_script_runs(place, standin, servers):
    """With torch alone: a status of 0 or 1, and one line that says how many elements differ."""
    run = serve(place, standin, "batch-variant=1:gate_up_proj")
    script = place.folder / "repro.py"
    measure(run, CHANGED, "--diff", dump_and_diff(run), "--repro", script)
    done = subprocess.run([servers("real").python(place), "-W", "ignore", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    counted = int(done.stdout.split(": ")[1].split(" of 512 ")[0])
    assert "between M=1 and M=2" in done.stdout and (counted > 0) == (done.returncode == 1)


@pytest.mark.real
def test_the_real_server(place, servers):
    """Unedited, on a CPU: its operators take another way for one row, the same one each time."""
    run = serve(place, servers("real"))
    found = measure(run, CHANGED)
    assert (found["foreign"]["by"], found["foreign"]["tokens"]) == ("count", 0)  # of every request of ours it has counted each token
    assert states(found) == ["changed"] * 3 and found["reading"]["condition_1"] == "broken"
    assert all(found["axes"][axis]["again"]["first"] is None for axis in AXES)
    cached = found["axes"]["extend"]["cases"][0]
    assert cached["cached"] and cached["compared"] == 4
    assert found["axes"]["decode"]["changed_at"]["size"] == 2

    seen = []

    def join(_path, _body):
        seen.append(1)
        if len(seen) == 9:  # before a flush or beside a request of ours: 7 tokens of a prompt, one pass
            guarded.post(f"http://127.0.0.1:{run.status()['port']}/generate", {"input_ids": [*range(20, 27)], "sampling_params": {"max_new_tokens": 1}})
    with recording(run.status()["port"]) as recorder:
        recorder.look = join
        found = json.loads(invariance(place, recorder.url, "--json", status=4).stdout)
    assert found["foreign"]["tokens"] == 7 and found["reading"]["condition_1"] == "refused"


# ---- the operator, from dumps alone

def named(found, axis):
    one = found["axes"][axis]
    return one["module"], one["layer"], one["kind"], one["confidence"], one["rows"], one["reference_rows"]


@pytest.mark.parametrize("projection,module", [("qkv_proj", "self_attn.qkv_proj"), ("o_proj", "self_attn.o_proj"), ("gate_up_proj", "mlp.gate_up_proj"),
                                               ("down_proj", "mlp.down_proj")])
def test_dumps_name_the_product(place, standin, projection, module):
    """One row alone is computed otherwise: in the reference of decode, and behind a cached prefix."""
    run = serve(place, standin, f"batch-variant=1:{projection}", ["--dtype", "float32"])
    script = place.folder / "repro.py"
    found = measure(run, CHANGED, "--dump", "why", "--repro", script)
    name = f"model.layers.1.{module}"
    assert named(found, "decode") == (name, 1, "op", "proven", 2, 1)
    assert named(found, "extend") == (name, 1, "op", "proven", 1, len(PROMPTS[0]))
    assert found["axes"]["decode"]["class_kind"] == "matrix product" and found["axes"]["decode"]["dump"]["again"] == "changed"
    assert found["axes"]["prefill"]["module"] is None and found["axes"]["prefill"]["dump"] is None
    assert found["module"] == name and found["script"] == str(script)
    assert script.read_text().splitlines()[2].startswith("FEW, M, K, N, DTYPE = 1, 2, ")
    folders = [Path(found["axes"][axis]["dump"][side]).name for axis in ("extend", "decode") for side in ("reference", "changed")]
    assert folders == ["why-extend-ref", "why-extend-new", "why-decode-ref", "why-decode-new"]
    assert all(json.loads((run.directory / f"{folder}.kldump.json").read_text())["complete"] for folder in folders) and run.status()["state"] == "armed"
    assert sorted(path.name for path in run.directory.iterdir() if path.is_dir() and path.name.startswith("why")) == sorted(folders)
    positions = {path.name.split("___")[0] for path in (run.directory / "why-decode-ref").glob("*name=*positions*")}
    assert len(positions) <= 1 + found["axes"]["decode"]["changed_at"]["first"]["position"] - len(PROMPTS[0])  # no pass behind what changed
    again = invariance(place, run.name, "--dump", "why", status=88)
    assert "why-extend-ref is there already" in again.stderr and not again.stdout
    text = invariance(place, run.name, "--dump", "text", status=CHANGED).stdout
    assert f"{name} (matrix product; op, proven): it depends on the number of rows: other bits at M=2 than at M=1" in text
    assert "module       unknown" not in text


def test_dumps_name_a_product_of_the_prefill(place, standin):
    """Up to so many rows its sum is split: a prompt alone is below, two together are not."""
    run = serve(place, standin, "batch-variant=0:down_proj:40", ["--dtype", "float32"])
    found = measure(run, CHANGED, "--dump", "why", prompts=2)
    assert states(found) == ["changed", "unchanged", "changed"]
    assert named(found, "prefill") == ("model.layers.0.mlp.down_proj", 0, "op", "proven", len(PROMPTS[0]) + len(PROMPTS[1]), len(PROMPTS[0]))
    assert found["axes"]["prefill"]["dump"]["again"] == "changed"
    decode = found["axes"]["decode"]  # its own rows are computed alike: what it reads was not
    assert decode["module"] is None and "were prefilled in the batch, too, and differ already" in decode["dump"]["why_not"]
    assert found["module"] == "model.layers.0.mlp.down_proj"


def test_dumps_of_a_short_extend(place, standin):
    """Without a prefix cache a short extend is the smallest example."""
    run = serve(place, standin, "batch-variant=0:qkv_proj:4", ["--dtype", "float32", "--disable-radix-cache"])
    found = measure(run, CHANGED, "--dump", "why")
    at = found["axes"]["extend"]["changed_at"]
    whole = len(PROMPTS[at["first"]["request"]])
    assert at["size"] == 2 and not at["cached"]
    assert named(found, "extend") == ("model.layers.0.self_attn.qkv_proj", 0, "op", "proven", 2, whole)
    assert found["axes"]["extend"]["dump"]["again"] == "changed"


def test_dumps_name_a_norm(place, standin):
    run = serve(place, standin, "wrong-norm=1", ["--dtype", "float32"])
    script = place.folder / "repro.py"
    found = measure(run, CHANGED, "--dump", "why", "--repro", script)
    assert found["axes"]["decode"]["class_kind"] == "normalisation"
    assert named(found, "decode")[:4] == ("model.layers.1.post_attention_layernorm", 1, "op", "proven")
    assert found["script"] == str(script) and "FEW, M, N, DTYPE = 1, 2, 64, torch.float32" in script.read_text()
    assert "norm(x.clone(), x.clone())[0]" in script.read_text()  # it is called with the residual
    compile(script.read_text(), "repro.py", "exec")


@pytest.mark.real
def test_the_script_of_a_norm_runs(place, standin, servers):
    """With the server's own Python: SGLang's class, on a CPU the same for every number of rows."""
    run = serve(place, standin, "wrong-norm=1", ["--dtype", "float32"])
    script = place.folder / "repro.py"
    measure(run, CHANGED, "--dump", "why", "--repro", script)
    done = subprocess.run([servers("real").python(place), "-W", "ignore", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.split(": ")[-1]) == (0, "0 of 128 elements differ between M=1 and M=2\n"), done.stderr


def test_nothing_is_dumped_where_nothing_changes(place, standin):
    run = serve(place, standin)
    found = measure(run, UNCHANGED, "--dump", "why", "--repro", place.folder / "repro.py")
    assert [found["axes"][axis]["dump"] for axis in AXES] == [None] * 3 and found["module"] is None
    assert found["script"] is None and not list(run.directory.glob("why*"))


def test_a_restored_prefix_is_no_operator_of_the_batch(place, standin):
    """Attention behind a cached prefix: op+cache, which says that it may be what was restored."""
    run = serve(place, standin, "stale-prefix=2", ["--dtype", "float32"])
    found = measure(run, CHANGED, "--dump", "why")
    assert states(found) == ["unchanged", "changed", "unchanged"]
    assert named(found, "extend")[:4] == ("model.layers.0.self_attn.attn", 0, "op+cache", "proven")
    assert "restored keys and values" in found["axes"]["extend"]["what"]
    assert found["reading"]["condition_1"] == "not shown" and "or what comes back from the prefix cache" in found["reading"]["text"]
    assert "match clean and restore dirty is condition 2" in found["reading"]["next"]
    text = invariance(place, run.name, status=CHANGED).stdout
    assert "condition 1  not shown\n             Not decided: one row on a cached prefix" in text and "broken" not in text


def test_what_no_dumped_module_shows(place, standin):
    """The way in which a logprob is taken is behind the last tensor: that is said where it changed once more, and nothing is guessed."""
    run = serve(place, standin, "logprob-formula", ["--dtype", "float32"])
    found = measure(run, CHANGED, "--dump", "why", "--repro", place.folder / "repro.py")
    assert states(found) == ["unchanged", "changed", "changed"] and found["module"] is None
    decode, extend = found["axes"]["decode"]["dump"], found["axes"]["extend"]["dump"]
    assert (decode["again"], decode["why_not"]) == ("changed", "no dumped module differs: behind the last one: the head or the logprobs")
    assert extend["again"] == "unknown" and extend["why_not"].startswith("no dumped module differs")
    text = invariance(place, run.name, "--dump", "text", "--repro", place.folder / "repro.py", status=CHANGED).stdout
    assert "module     unknown: no dumped module differs" in text and "script       none: no operator is named" in text


def test_dumps_that_cannot_be(place, standin):
    plain = place.run(standin, name="p", options=["--kind", "plain"]).wait_state("ready")
    assert "of the kind plain" in invariance(place, plain.name, "--dump", "why", status=USAGE).stderr
    url = f"http://127.0.0.1:{plain.status()['port']}"
    assert "only a guarded run can be dumped" in invariance(place, url, "--dump", "why", status=USAGE).stderr
    small = place.run(standin, name="u", options=["--budget", "100K"]).armed()
    refused = invariance(place, small.name, "--dump", "why", status=88)
    assert "of the byte budget are left" in refused.stderr and not refused.stdout
    assert not list(small.directory.glob("why*"))


@pytest.mark.real
def test_dumps_of_the_real_server(place, servers):
    """Unedited, float32 on a CPU: its first matrix product is the one that depends on the number of rows."""
    run = serve(place, servers("real"))
    found = measure(run, CHANGED, "--dump", "why", "--repro", place.folder / "repro.py")
    assert states(found) == ["changed"] * 3
    for axis in ("extend", "decode"):
        assert named(found, axis)[:4] == ("model.layers.0.self_attn.qkv_proj", 0, "op", "proven"), found["axes"][axis]
    assert found["module"] == "model.layers.0.self_attn.qkv_proj"
    assert "qkv_proj (matrix product)" in (place.folder / "repro.py").read_text()
    assert named(found, "prefill") == ("logits_processor", None, "op", "proven", 2, 1)  # the head, which a scoring computes row by row
    assert found["axes"]["prefill"]["changed_at"]["first"]["position"] == len(PROMPTS[0])
    assert [found["axes"][axis]["dump"]["again"] for axis in AXES] == ["changed", "unknown", "changed"]
