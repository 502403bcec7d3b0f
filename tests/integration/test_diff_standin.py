"""From a guarded run to the verdict, on the stand-in's transformer: a decode and its scoring prefill are dumped and compared. Without
a fault nothing differs; each fault is named as what it is, and a fault of the alignment never gets a verdict."""
import json
import sys
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standin"))
import guarded  # noqa: E402
from test_numbers import EXPERTS, FAULTS, LLAMA, PROMPT, RECURRENT  # noqa: E402

TOKENS = 8
EQUAL, DIFFERENT, NOT_PROVEN = 0, 1, 3


def guard(place, server, faults="", model=None, flags=()):
    """An armed run; `model` is the config.json of what it serves."""
    folder = place.folder / "model"
    folder.mkdir(exist_ok=True)
    if model:
        (folder / "config.json").write_text(json.dumps(model))
    return place.run(server, command=place.command(server, *flags, model=folder), faults=faults).armed()


def generate(run, rid, ids, tokens, **more):
    body = {"input_ids": ids, "rid": rid, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}, **more}
    return guarded.post(f"http://127.0.0.1:{run.status()['port']}/generate", body)


def flush(run):
    """The next prompt is computed, not found in the cache."""
    request = urllib.request.Request(f"http://127.0.0.1:{run.status()['port']}/flush_cache", method="POST")
    urllib.request.urlopen(request, timeout=30).close()


def dump(run, experiment, send):
    """What SEND returns; its requests are the experiment."""
    run.dump(experiment)
    found = send()
    run.place.ctl("pause", run.name)
    return found


def decode(run, prompts, experiment="dec"):
    """The prompts with what was generated, all in one batch."""
    rids = [f"dec-{i}" for i in range(len(prompts))]
    answers = dump(run, experiment, lambda: generate(run, rids, prompts, TOKENS))
    return [[*prompt, *answer["output_ids"]] for prompt, answer in zip(prompts, answers)]


def score(run, sequences, experiment="pre"):
    """One request after the other, none from the cache."""
    dump(run, experiment, lambda: [generate(run, f"pre-{i}", ids, 0, return_logprob=True, logprob_start_len=0)
                                   for i, ids in enumerate(sequences)])


def diff(run, status, dec="dec", pre="pre"):
    done = run.place.ctl("diff", run.directory / dec, run.directory / pre, "--json", status=status)
    return json.loads(done.stdout)


def place_of(found):
    return tuple(found["verdict"][key] for key in ("kind", "module", "layer", "position"))


def module_of(tensor):
    """model.layers.1.mlp.down_proj.output -> model.layers.1.mlp.down_proj"""
    return tensor.split(".output")[0]


@pytest.mark.parametrize("model", [LLAMA, EXPERTS, RECURRENT], ids=["llama", "experts", "recurrent"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_difference(place, standin, model, dtype):
    run = guard(place, standin, model=model, flags=["--dtype", dtype, "--chunked-prefill-size", "16"])
    score(run, decode(run, [PROMPT, PROMPT[3:8], [77]]))
    found = diff(run, EQUAL)
    assert found["alignment"]["proven"] and found["verdict"]["kind"] == "none"
    # What a recurrent layer starts from is in no dump.
    assert found["verdict"]["confidence"] == ("likely" if model is RECURRENT else "proven")


KINDS = {"kv-off-by-one": "op+cache", "window-eviction": "op+cache", "state-update": "state"}


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault])
def test_a_fault_is_named(place, standin, name):
    """Whichever side is given first."""
    fault = FAULTS[name]
    run = guard(place, standin, name, fault.model, ["--dtype", "bfloat16"])
    score(run, decode(run, [PROMPT]))
    kind = KINDS.get(name.split("=")[0], "op")
    layer = int(fault.tensor.split(".")[2])
    assert place_of(diff(run, DIFFERENT)) == (kind, module_of(fault.tensor), layer, fault.position)
    assert place_of(diff(run, DIFFERENT, "pre", "dec")) == (kind, module_of(fault.tensor), layer, fault.position)


def test_a_fault_of_one_row_in_a_batch(place, standin):
    """It vanishes: the dump of a batch shows nothing, that of one request alone does."""
    run = guard(place, standin, "wrong-norm=0")
    prompts = [PROMPT, PROMPT[::-1]]
    score(run, decode(run, prompts))
    diff(run, EQUAL)
    flush(run)
    score(run, decode(run, prompts[:1], "alone-dec"), "alone-pre")
    assert place_of(diff(run, DIFFERENT, "alone-dec", "alone-pre"))[:2] == ("op", "model.layers.0.post_attention_layernorm")


def test_several_requests_that_forget_at_one_position(place, standin):
    run = guard(place, standin, "window-eviction=15")
    score(run, decode(run, [PROMPT, PROMPT[2:], PROMPT[4:]]))
    found = diff(run, DIFFERENT)
    assert place_of(found) == ("op+cache", "model.layers.0.self_attn.attn", 0, 15)
    assert found["verdict"]["one_position"] and not found["verdict"]["one_request"]


def test_a_stale_prefix(place, standin):
    """The prompt was partly found in the cache. Which keys and values came from there is in no dump, so the history is not proven."""
    run = guard(place, standin, "stale-prefix=2")
    generate(run, "other", PROMPT[::-1], 1)
    longer = [*PROMPT, 50, 51]

    def both():
        generate(run, "first", PROMPT, 1)
        return generate(run, "second", longer, TOKENS)
    answer = dump(run, "dec", both)
    assert answer["meta_info"]["cached_tokens"] == len(PROMPT)
    score(run, [[*longer, *answer["output_ids"]]])
    found = diff(run, DIFFERENT)
    assert place_of(found) == ("state", "model.layers.0.self_attn.attn", 0, len(longer))
    assert [proof["state"] for proof in found["alignment"]["certificate"] if proof["id"] == "A8"] == ["fails"]  # the prompt's rows differ already


def test_two_ranks(place, standin):
    run = guard(place, standin, "batch-variant=1:o_proj", flags=["--tp-size", "2", "--dtype", "bfloat16"])
    score(run, decode(run, [PROMPT]))
    found = diff(run, DIFFERENT)
    assert place_of(found) == ("op", "model.layers.1.self_attn.o_proj", 1, len(PROMPT))
    assert found["verdict"]["ranks_agree"] and found["verdict"]["class"] == "reduces"


def test_both_in_one_folder(place, standin):
    run = guard(place, standin, "kv-off-by-one=2")

    def both():
        answer = generate(run, "dec", PROMPT, TOKENS)
        generate(run, "pre", [*PROMPT, *answer["output_ids"]], 0, return_logprob=True, logprob_start_len=0)
    dump(run, "both", both)
    assert place_of(diff(run, DIFFERENT, "both", "both")) == ("op+cache", "model.layers.2.self_attn.attn", 2, len(PROMPT))


@pytest.mark.parametrize("faults", ["misaligned-rows", "extra-token"])
def test_no_verdict_without_an_alignment(place, standin, faults):
    run = guard(place, standin, faults)
    score(run, decode(run, [PROMPT]))
    found = diff(run, NOT_PROVEN)
    assert not found["alignment"]["proven"] and found["verdict"] is None and found["alignment"]["failed"]


def test_other_weights_are_no_verdict(place, standin):
    run = guard(place, standin)
    sequences = decode(run, [PROMPT])
    other = place.run(standin, name="other", environment={"KLDUMP_STANDIN_SEED": "2"}).armed()
    score(other, sequences)
    found = json.loads(place.ctl("diff", run.directory / "dec", other.directory / "pre", "--json", status=NOT_PROVEN).stdout)
    assert "A4" in found["alignment"]["failed"] and found["verdict"] is None


def test_logprobs_alone_are_wrong(place, standin):
    run = guard(place, standin, "shifted-logprobs")
    score(run, decode(run, [PROMPT]))
    diff(run, EQUAL)
