"""Runs the KL helpers of an installed SGLang, unedited, against a server: only what loads prompts and the tokenizer is replaced.

    PYTHON kl_helpers.py URL PROMPTS.json NEW_TOKENS COMMA_ID

PYTHON is that of the installation. Prints one line of JSON: helper -> the k3 of each request that it kept, and their mean.
"""
import contextlib
import importlib.util
import io
import json
import re
import sys
import sysconfig
import types
from pathlib import Path

HELPERS = ["test_input_output_logprobs_match_helper", "test_input_output_logprobs_match_prefill_cache_hit_helper",
           "test_input_output_logprobs_match_decode_cache_hit_helper"]
NUMBER = re.compile(r"[-+0-9.e]+(?=[),\]])|nan")


def load():
    """The module alone: the package around it would import torch for a tokenizer that is replaced anyway."""
    for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.utils.hf_transformers_utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["sglang.srt.utils.hf_transformers_utils"].get_tokenizer = None
    path = Path(sysconfig.get_paths()["purelib"]) / "sglang/test/kl_test_utils.py"
    spec = importlib.util.spec_from_file_location("kl_test_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(url, prompts, new_tokens, comma):
    module = load()
    ids = json.loads(Path(prompts).read_text())
    module.get_input_ids = lambda **_ignored: [list(one) for one in ids]
    module.get_tokenizer = lambda **_ignored: types.SimpleNamespace(encode=lambda _text: [comma])
    found = {}
    for name in HELPERS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            getattr(module, name)(base_url=url, ACC_THRESHOLDS={"m": {"kl_div": 1e9}}, model_name="m", max_samples=len(ids),
                                  max_new_tokens=new_tokens)
        each = re.search(r"^kl_divs=(.*)$", said.getvalue(), re.M).group(1)
        mean = re.search(r"^avg_kl_div=(.*)$", said.getvalue(), re.M).group(1)
        found[name] = {"each": [float(one) for one in NUMBER.findall(each)], "mean": float(NUMBER.search(mean + ",").group(0))}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
