"""From a guarded server to the verdict: two dumps of a run, and kldumpctl diff names the fault that the stand-in has."""
import json
from pathlib import Path

import pytest

import guarded

CLIENT = Path(__file__).resolve().parent / "pair_client.py"
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0]}
RECURRENT = {**LLAMA, "model_type": "qwen3_next", "layer_types": ["full_attention", "linear_attention", "full_attention"]}

# fault, model, kind, first unequal tensor, its position
FAULTS = [
    ("batch-variant", LLAMA, "op", "model.layers.1.mlp.down_proj.output", 12),
    ("batch-variant=0:qkv_proj", LLAMA, "op", "model.layers.0.self_attn.qkv_proj.output", 12),
    ("wrong-norm=2", LLAMA, "op", "model.layers.2.post_attention_layernorm.output.0", 12),
    ("kv-off-by-one=1", LLAMA, "op+cache", "model.layers.1.self_attn.attn.output", 12),
    ("window-eviction=14", LLAMA, "op+cache", "model.layers.0.self_attn.attn.output", 14),
    ("state-update=1", RECURRENT, "state", "model.layers.1.linear_attn.attn.output", 12),
    ("moe-flip=2", EXPERTS, "op", "model.layers.2.mlp.gate.output", 12),
]


def pair(place, standin, faults="", model=None, score=()):
    """The folder of a run with both dumps."""
    command = None
    if model is not None:
        folder = place.folder / "model"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(model))
        command = place.command(standin, model=folder)
    run = place.run(standin, faults=faults, **({} if command is None else {"command": command})).armed()
    ids = place.folder / "ids.json"
    for experiment, arguments in (("dec", ["generate", ids]), ("pre", ["score", ids, *score])):
        place.ctl("dump", run.name, experiment, "--", guarded.PYTHON, "-B", CLIENT, *arguments)
    place.ctl("stop", run.name)
    run.exit()
    return run.directory


def verdict_of(place, folder, status):
    text = place.ctl("diff", folder / "dec", folder / "pre", status=status).stdout
    found = json.loads(place.ctl("diff", folder / "dec", folder / "pre", "--json", status=status).stdout)
    return found, text


@pytest.mark.parametrize("model", [LLAMA, EXPERTS, RECURRENT], ids=["llama", "experts", "recurrent"])
def test_without_a_fault_nothing_differs(place, standin, model):
    found, text = verdict_of(place, pair(place, standin, model=model), 0)
    assert found["verdict"]["kind"] == "none" and found["targets"] == 5
    assert text.startswith("verdict      EQUAL (")


@pytest.mark.parametrize("fault, model, kind, tensor, position", FAULTS, ids=[row[0] for row in FAULTS])
def test_the_fault_is_named(place, standin, fault, model, kind, tensor, position):
    found, text = verdict_of(place, pair(place, standin, fault, model), 1)
    verdict = found["verdict"]
    assert (verdict["kind"], verdict["first_unequal"], verdict["position"]) == (kind, tensor, position), text
    module = tensor.rsplit(".output", 1)[0]
    assert text.startswith(f"verdict      {module} ({kind}, ")


def test_rows_from_the_prefix_cache_are_no_evidence(place, standin):
    found, text = verdict_of(place, pair(place, standin, score=["--keep"]), 3)
    assert found["verdict"] is None and "M3" in [m["id"] for m in found["alignment"]["messages"]], text
    assert "--disable-radix-cache" in text


@pytest.mark.parametrize("fault", ["extra-token", "misaligned-rows"])
def test_rows_that_are_not_the_same_token_have_no_verdict(place, standin, fault):
    found, text = verdict_of(place, pair(place, standin, fault), 3)
    assert found["verdict"] is None and found["alignment"]["failed"], text
    assert "layernorm" not in text and "_proj" not in text
