"""From a guarded run to the verdict, on the stand-in's transformer: a decode and its scoring prefill are dumped and compared. Without
a fault nothing differs; each fault is named as what it is, and a fault of the alignment never gets a verdict."""
import itertools
import json
import sys
import urllib.request
from pathlib import Path

import pytest

from conftest import end_armed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standin"))
import guarded  # noqa: E402
from test_numbers import EXPERTS, FAULTS, LLAMA, PROMPT, RECURRENT  # noqa: E402

TOKENS = 8
EQUAL, DIFFERENT, NOT_PROVEN = 0, 1, 3
KINDS = {"kv-off-by-one": "op+cache", "window-eviction": "op+cache", "page-gap": "op+cache", "state-update": "state", "checkpoint-rotation": "state"}
# One of each kind: what else the stand-in can do to a matrix product is in its own tests.
NAMED = [name for name, fault in FAULTS.items() if fault and not name.startswith("batch-variant=")]


@pytest.fixture(scope="module")
def runs(servers):
    """(faults, model, flags) -> a run that is armed, started when it is first asked for and shared by all tests of the module."""
    made = {}

    def get(faults="", model=None, *flags):
        key = (faults, json.dumps(model), flags)
        if key not in made:
            place = guarded.Place()
            folder = place.folder / "model"
            folder.mkdir()
            if model:
                (folder / "config.json").write_text(json.dumps(model))
            server = servers("standin")
            made[key] = place.run(server, command=place.command(server, *flags, model=folder), faults=faults).armed()
        return made[key]
    yield get
    left = [line for run in made.values() for line in end_armed(run.place, run)]
    assert not left, "left behind:\n" + "\n".join(left)


def generate(run, rid, ids, tokens, **more):
    body = {"input_ids": ids, "rid": rid, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}, **more}
    return guarded.post(f"http://127.0.0.1:{run.status()['port']}/generate", body)


def flush(run):
    """The next prompt is computed, not found in the cache."""
    request = urllib.request.Request(f"http://127.0.0.1:{run.status()['port']}/flush_cache", method="POST")
    urllib.request.urlopen(request, timeout=30).close()


NUMBERS = itertools.count()


def dump(run, send):
    """The folder of an experiment of its own, and what SEND returns; its requests are the experiment."""
    experiment = f"e{next(NUMBERS)}"
    run.dump(experiment)
    found = send()
    run.place.ctl("pause", run.name)
    return run.directory / experiment, found


def decode(run, *prompts):
    """Its folder, and the prompts with what was generated, all in one batch."""
    flush(run)
    folder, answers = dump(run, lambda: generate(run, [f"dec-{i}" for i in range(len(prompts))], list(prompts), TOKENS))
    return folder, [[*prompt, *answer["output_ids"]] for prompt, answer in zip(prompts, answers)]


def score(run, sequences):
    """Its folder: one request after the other; logprobs of the prompt are not taken from the cache."""
    return dump(run, lambda: [generate(run, f"pre-{i}", ids, 0, return_logprob=True, logprob_start_len=0)
                              for i, ids in enumerate(sequences)])[0]


def pair(run, *prompts):
    dec, sequences = decode(run, *prompts)
    return dec, score(run, sequences)


def diff(run, status, *folders):
    """The answer as text, and what --json has."""
    text = run.place.ctl("diff", *folders, status=status).stdout
    return text, json.loads(run.place.ctl("diff", *folders, "--json", status=status).stdout)


def place_of(found):
    return tuple(found["verdict"][key] for key in ("kind", "module", "layer", "position"))


@pytest.mark.parametrize("model, dtype, faults", [(LLAMA, "float32", ""), (EXPERTS, "bfloat16", "shifted-logprobs"), (RECURRENT, "bfloat16", "")],
                         ids=["llama", "experts, wrong logprobs alone", "recurrent"])
def test_no_difference(runs, model, dtype, faults):
    """Also in a batch, and with chunks; what is computed behind the last tensor is in no dump."""
    run = runs(faults, model, "--dtype", dtype, "--chunked-prefill-size", "16")
    text, found = diff(run, EQUAL, *pair(run, PROMPT, PROMPT[3:8], [77]))
    assert found["alignment"]["proven"] and found["verdict"]["kind"] == "none" and found["pairing"] == "phases"
    # What a recurrent layer starts from is in no dump.
    confidence = "likely" if model is RECURRENT else "proven"
    assert found["verdict"]["confidence"] == confidence and text.startswith(f"verdict      EQUAL ({confidence})")


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_is_named(runs, name):
    """Whichever side is given first."""
    fault = FAULTS[name]
    run = runs(name, fault.model, "--dtype", "bfloat16")
    kind, module = KINDS.get(name.split("=")[0], "op"), fault.tensor.split(".output")[0]
    folders = pair(run, PROMPT)
    for order in (folders, folders[::-1]):
        text, found = diff(run, DIFFERENT, *order)
        assert place_of(found) == (kind, module, int(fault.tensor.split(".")[2]), fault.position)
        assert found["verdict"]["first_unequal"] == fault.tensor and text.startswith(f"verdict      {module} ({kind}, ")


def test_a_fault_of_one_row_vanishes_in_a_batch(runs):
    """The dump of a batch shows nothing; test_a_fault_is_named has that of one request alone."""
    run = runs("wrong-norm=2", None, "--dtype", "bfloat16")
    diff(run, EQUAL, *pair(run, PROMPT, PROMPT[::-1]))


def test_several_requests_that_forget_at_one_position(runs):
    run = runs("window-eviction=14", None, "--dtype", "bfloat16")
    _, found = diff(run, DIFFERENT, *pair(run, PROMPT, PROMPT[2:], PROMPT[4:]))
    assert place_of(found) == ("op+cache", "model.layers.0.self_attn.attn", 0, 14)
    assert found["verdict"]["one_position"] and not found["verdict"]["one_request"]


def test_a_stale_prefix(runs):
    """The prompt was found in the cache, as an earlier request computed it: those rows are equal, so it is what was stored."""
    run = runs("stale-prefix=2")
    generate(run, "other", PROMPT[::-1], 1)
    longer = [*PROMPT, 50, 51]

    def both():
        generate(run, "first", PROMPT, 1)
        return generate(run, "second", longer, TOKENS)
    dec, answer = dump(run, both)
    assert answer["meta_info"]["cached_tokens"] == len(PROMPT)
    _, found = diff(run, DIFFERENT, dec, score(run, [[*longer, *answer["output_ids"]]]))
    assert place_of(found) == ("op+cache", "model.layers.0.self_attn.attn", 0, len(longer))
    assert [proof["state"] for proof in found["alignment"]["certificate"] if proof["id"] == "A8"] == ["fails"]  # the prompt's rows differ already


def test_two_ranks(runs):
    run = runs("batch-variant=1:o_proj", None, "--tp-size", "2", "--dtype", "bfloat16")
    _, found = diff(run, DIFFERENT, *pair(run, PROMPT))
    assert place_of(found) == ("op", "model.layers.1.self_attn.o_proj", 1, len(PROMPT))
    assert found["verdict"]["ranks_agree"] and found["verdict"]["class"] == "reduces"


def test_both_in_one_folder(runs):
    run = runs("kv-off-by-one=1", None, "--dtype", "bfloat16")
    flush(run)

    def both():
        answer = generate(run, "dec", PROMPT, TOKENS)
        generate(run, "pre", [*PROMPT, *answer["output_ids"]], 0, return_logprob=True, logprob_start_len=0)
    _, found = diff(run, DIFFERENT, dump(run, both)[0])
    assert place_of(found) == ("op+cache", "model.layers.1.self_attn.attn", 1, len(PROMPT))


@pytest.mark.parametrize("faults", ["misaligned-rows", "extra-token"])
def test_no_verdict_without_an_alignment(runs, faults):
    run = runs(faults)
    text, found = diff(run, NOT_PROVEN, *pair(run, PROMPT))
    assert not found["alignment"]["proven"] and found["verdict"] is None and found["alignment"]["failed"]
    assert "layernorm" not in text and "_proj" not in text


def test_rows_from_the_prefix_cache_are_no_evidence(runs):
    """The scoring request without logprobs: the server has no reason to compute its rows."""
    run = runs("", LLAMA, "--dtype", "float32", "--chunked-prefill-size", "16")
    dec, [ids] = decode(run, PROMPT)
    text, found = diff(run, NOT_PROVEN, dec, dump(run, lambda: generate(run, "pre", ids, 1))[0])
    assert found["verdict"] is None and "M3" in [m["id"] for m in found["alignment"]["messages"]], text
    assert "--disable-radix-cache" in text


def test_other_weights_are_no_verdict(runs, place, standin):
    run = runs("", LLAMA, "--dtype", "float32", "--chunked-prefill-size", "16")
    dec, sequences = decode(run, PROMPT)
    other = place.run(standin, environment={"KLDUMP_STANDIN_SEED": "2"}).armed()
    _, found = diff(run, NOT_PROVEN, dec, score(other, sequences))
    assert "A4" in found["alignment"]["failed"] and found["verdict"] is None
