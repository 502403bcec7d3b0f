#!/usr/bin/python3
"""The numbers of the stand-in: the same bits for a token in whatever pass it is computed, and what each fault changes first."""
import array
import collections
import contextlib
import json
import math
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import contract  # noqa: E402
import standin  # noqa: E402
from standin import StandIn, integers, member  # noqa: E402

PROMPT = list(range(20, 32))
PASS_FILES = 123
EAGER = ("--disable-cuda-graph", "--disable-prefill-cuda-graph")
CORE = {"input_ids", "positions", "seq_lens", "req_pool_indices", "rids"}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0]}
RECURRENT = {**LLAMA, "model_type": "qwen3_next", "layer_types": ["full_attention", "linear_attention", "full_attention"]}
WINDOW = {**LLAMA, "sliding_window": 5}

# Fault -> the model that it needs, and the tensor and the position where decode and prefill differ first. In all of these
# twelve tokens are prefilled and the others decoded one by one.
Fault = collections.namedtuple("Fault", "model tensor position", defaults=[None, "", 12])
FAULTS = {
    "batch-variant": Fault(tensor="model.layers.1.mlp.down_proj.output"),
    "batch-variant=0:qkv_proj": Fault(tensor="model.layers.0.self_attn.qkv_proj.output"),
    "batch-variant=2:o_proj": Fault(tensor="model.layers.2.self_attn.o_proj.output"),
    "batch-variant=2:gate_up_proj": Fault(tensor="model.layers.2.mlp.gate_up_proj.output"),
    "batch-variant=1:down_proj:2": Fault(tensor="model.layers.1.mlp.down_proj.output"),
    "wrong-norm=2": Fault(tensor="model.layers.2.post_attention_layernorm.output.0"),
    "kv-off-by-one=1": Fault(tensor="model.layers.1.self_attn.attn.output"),
    "window-eviction=14": Fault(tensor="model.layers.0.self_attn.attn.output", position=14),
    "page-gap=14": Fault(tensor="model.layers.0.self_attn.attn.output", position=14),
    "checkpoint-rotation=14": Fault(RECURRENT, "model.layers.1.linear_attn.attn.output", position=14),
    "state-update=1": Fault(RECURRENT, "model.layers.1.linear_attn.attn.output"),
    "moe-flip=2": Fault(EXPERTS, "model.layers.2.mlp.gate.output"),
    # These have tests of their own below.
    "race": None, "stale-prefix": None, "stale-page": None, "stale-last": None, "foreign-prefix": None, "stale-checkpoint": None,
    "misaligned-rows": None, "extra-token": None, "shifted-logprobs": None, "graph-only": None, "length-split": None,
    "logprob-formula": None,
}


@contextlib.contextmanager
def serving(faults="", model=None, flags=(), **more):
    """A stand-in that is ready; `model` is its config.json."""
    with tempfile.TemporaryDirectory() as folder:
        if model:
            (Path(folder) / "config.json").write_text(json.dumps(model))
        with StandIn(faults, arguments=(*EAGER, *flags), model=folder, **more) as server:
            if not server.ready():
                raise AssertionError(server.log())
            yield server


def rids_of(path):
    with zipfile.ZipFile(path) as archive:
        return contract.Reader(archive.open(f"{path.name[:-3]}/data.pkl")).load()["value"]


def rows_of_pass(files):
    """(rid, position) -> tensor -> bytes, tensors in the order of the program; what has a row for each request counts for its last."""
    core = {file.name: file.path for file in files if file.layer is None and file.name in CORE}
    positions, lengths, rids = integers(core["positions"]), integers(core["seq_lens"]), rids_of(core["rids"])
    owners, row = [], 0
    for rid, length in zip(rids, lengths):
        count = length - positions[row]
        owners += [(rid, position) for position in positions[row:row + count]]
        row += count
    last = [(rid, length - 1) for rid, length in zip(rids, lengths)]
    found = {owner: {} for owner in owners}
    for file in files:
        if not file.name.startswith("non_intrusive__") or file.name.endswith("__msg_type__"):
            continue
        raw = member(file.path, "data/0")
        keys = last if file.name.endswith("next_token_logits") else owners
        size = len(raw) // len(keys)
        for i, key in enumerate(keys):
            found[key][file.name[len("non_intrusive__"):], file.layer] = raw[i * size:(i + 1) * size]
    return found


def rows(server, experiment, rank=0):
    passes = collections.defaultdict(list)
    for file in server.files(experiment):
        if file.rank == rank:
            passes[file.step].append(file)
    found = {}
    for _step, files in sorted(passes.items()):
        found.update(rows_of_pass(files))
    return found


def of_request(found, rid):
    return {position: tensors for (owner, position), tensors in found.items() if owner == rid}


def differences(one, other):
    """(position, tensor) of each pair of rows that differ, in order; fails where nothing was compared."""
    common = sorted(set(one) & set(other))
    assert common, (sorted(one), sorted(other))
    return [(position, name) for position in common for name in one[position]
            if name in other[position] and one[position][name] != other[position][name]]


def decode_and_score(server, tokens=8, prompt=PROMPT, dec="dec", pre="pre", **more):
    """The rows of a generation, those of its scoring prefill, and both answers. Each experiment has the request of its name."""
    server.configure(enable=True, exp_name=dec)
    answer = server.generate(rid=dec, tokens=tokens, ids=prompt, return_logprob=True, **more)[1]
    server.request("POST", "/flush_cache")
    server.configure(exp_name=pre)
    # Without the last token, which no pass has read: so the last row of both has logits.
    whole = [*prompt, *answer["output_ids"]][:-1]
    score = server.generate(rid=pre, tokens=0, ids=whole, return_logprob=True, logprob_start_len=0)[1]
    server.configure(enable=False)
    return of_request(rows(server, dec), dec), of_request(rows(server, pre), pre), answer, score


def logprobs(answer, key):
    return [entry[0] for entry in answer["meta_info"][f"{key}_token_logprobs"]]


def single(raw):
    return array.array("f", raw).tolist()


class Model(unittest.TestCase):
    """What is computed, beside that it is the same everywhere."""

    def test_what_goes_where(self):
        with serving(flags=("--dtype", "float32")) as server:
            server.dump(rid="own", tokens=3)
            for tensors in of_request(rows(server, "exp"), "own").values():
                def look(name, layer=None):
                    return tensors[name, layer]
                stream, residual = look("model.embed_tokens.output"), None
                for layer in range(3):
                    path = f"model.layers.{layer}"
                    self.assertEqual(look(f"{path}.inputs.1", layer), stream)
                    total = stream
                    if layer:
                        self.assertEqual(look(f"{path}.input_layernorm.inputs.1", layer), residual)
                        total = look(f"{path}.input_layernorm.output.1", layer)
                        self.assertEqual(single(total), self.sums(stream, residual))
                    after = look(f"{path}.self_attn.output", layer)
                    residual = look(f"{path}.post_attention_layernorm.output.1", layer)
                    self.assertEqual(single(residual), self.sums(total, after))
                    self.assertNotEqual(look(f"{path}.self_attn.attn.output", layer), look(f"{path}.self_attn.attn.inputs.0", layer))
                    fused = look(f"{path}.self_attn.qkv_proj.output", layer)
                    parts = [look("model.layers.0.self_attn.rotary_emb.inputs.1", layer), look("model.layers.0.self_attn.rotary_emb.inputs.2", layer),
                             look(f"{path}.self_attn.attn.inputs.2", layer)]
                    self.assertEqual(fused, b"".join(parts))
                    stream = look(f"{path}.output")
                self.assertEqual(single(look("model.norm.output.1")), self.sums(stream, residual))

    def sums(self, one, other):
        return array.array("f", [a + b for a, b in zip(single(one), single(other))]).tolist()

    def test_the_first_position_sees_itself_alone(self):
        """Then attention gives its values, each shared by two heads."""
        with serving() as server:
            server.dump(rid="own", tokens=1)
            tensors = of_request(rows(server, "exp"), "own")[0]
            values = tensors["model.layers.0.self_attn.attn.inputs.2", 0]
            heads = [values[i:i + len(values) // 2] for i in (0, len(values) // 2)]
            self.assertEqual(tensors["model.layers.0.self_attn.attn.output", 0], heads[0] * 2 + heads[1] * 2)

    def test_the_likeliest_token_and_its_logprob(self):
        with serving() as server:
            server.configure(enable=True, exp_name="exp")
            answer = server.generate(rid="own", tokens=3, return_logprob=True)[1]
            for at, (position, token) in enumerate(zip(range(11, 14), answer["output_ids"])):
                logits = single(of_request(rows(server, "exp"), "own")[position]["output.next_token_logits", None])
                self.assertEqual(logits.index(max(logits)), token)
                exact = logits[token] - math.log(sum(math.exp(one) for one in logits))
                self.assertAlmostEqual(logprobs(answer, "output")[at], exact, 5)


class SameBits(unittest.TestCase):
    def equal(self, server, positions=range(19), **more):
        dec, pre, answer, score = decode_and_score(server, **more)
        self.assertEqual(sorted(set(dec) & set(pre)), list(positions))
        self.assertEqual(differences(dec, pre), [])
        self.assertIn(("logits_processor.output.next_token_logits", None), set(dec[18]) & set(pre[18]))
        self.assertEqual(logprobs(answer, "output")[:-1], logprobs(score, "input")[len(PROMPT):])
        return dec

    def test_in_every_type(self):
        sizes = set()
        for dtype in ("float32", "bfloat16", "float16"):
            with self.subTest(dtype=dtype), serving(flags=("--dtype", dtype)) as server:
                dec = self.equal(server)
                sizes.add(len(dec[12]["model.layers.2.output", None]))
                self.assertEqual(len(dec[12]), PASS_FILES - len(CORE) - 3)
        self.assertEqual(sizes, {256, 128})

    def test_of_every_model(self):
        for model in (EXPERTS, RECURRENT, WINDOW, {**EXPERTS, "layer_types": ["linear_attention"] * 3}):
            for dtype in ("float32", "bfloat16"):
                with self.subTest(model=model, dtype=dtype), serving(model=model, flags=("--dtype", dtype)) as server:
                    self.equal(server)

    def test_a_window_forgets(self):
        answers = set()
        for model in (LLAMA, WINDOW):
            with serving(model=model) as server:
                answers.add(tuple(server.generate(tokens=8)[1]["output_ids"]))
        self.assertEqual(len(answers), 2)

    def test_behind_a_cached_prefix(self):
        with serving(flags=("--dtype", "bfloat16")) as server:
            first = server.generate(rid="first", tokens=4, ids=PROMPT[:6])[1]["output_ids"]
            prompt = [*PROMPT[:6], *first[:3], 40, 41, 42]
            dec = self.equal(server, prompt=prompt, positions=range(9, 19))
            self.assertEqual(min(dec), 9)

    def test_in_chunks(self):
        for model in (LLAMA, RECURRENT):
            with self.subTest(model=model), serving(model=model, flags=("--chunked-prefill-size", "5")) as server:
                self.equal(server)

    def test_in_a_batch(self):
        with serving() as server:
            server.configure(enable=True, exp_name="dec")
            prompts = [PROMPT, PROMPT[2:9], [300, 301], [77]]
            batch = {"input_ids": prompts, "rid": ["0", "1", "2", "3"], "return_logprob": True,
                     "sampling_params": {"max_new_tokens": 6, "ignore_eos": True}}
            answers = server.request("POST", "/generate", batch)[1]
            server.request("POST", "/flush_cache")
            server.configure(exp_name="pre")
            wholes = [[*prompt, *answer["output_ids"]] for prompt, answer in zip(prompts, answers)]
            scores = [server.generate(rid=str(i), tokens=0, ids=whole, return_logprob=True, logprob_start_len=0)[1]
                      for i, whole in enumerate(wholes)]
            together = server.request("POST", "/generate", {**batch, "input_ids": wholes, "logprob_start_len": 0,
                                                            "sampling_params": {"max_new_tokens": 0}})[1]
            for prompt, answer, one, other in zip(prompts, answers, scores, together):
                self.assertEqual(logprobs(answer, "output"), logprobs(one, "input")[len(prompt):])
                self.assertEqual(logprobs(one, "input"), logprobs(other, "input"))
            dec, pre = rows(server, "dec"), rows(server, "pre")
            self.assertEqual(len(dec), sum(len(prompt) + 5 for prompt in prompts))
            for rid in "0123":
                self.assertEqual(differences(of_request(dec, rid), of_request(pre, rid)), [])

    def test_after_a_retraction(self):
        answers = []
        for faults in ("", "retract"):
            with serving(faults, flags=("--disable-radix-cache",)) as server:
                answers.append(server.generate(tokens=8)[1]["output_ids"])
                self.equal(server)
        self.assertEqual(*answers)

    def test_whatever_the_hooks_see(self):
        """Graphs, ranks without a share, another half of a pair, a prefix out of nowhere: the answer is that of the model."""
        wanted = None
        for faults, flags in (("", EAGER), ("", ()), ("", ("--pp-size=2",)), ("", ("--dp-size=2", "--tp-size=2", "--enable-dp-attention")),
                              ("", ("--speculative-algorithm", "EAGLE")), ("cached-probe", EAGER), ("no-hooks", EAGER),
                              ("", ("--disaggregation-mode", "decode"))):
            with self.subTest(faults=faults, flags=flags), StandIn(faults, arguments=flags) as server:
                self.assertTrue(server.ready(), server.log())
                body = {"input_ids": PROMPT, "bootstrap_room": 0, "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}
                found = [server.request("POST", "/generate", body)[1]["output_ids"] for _ in range(2)]
                wanted = wanted or found[0]
                if "--tp-size=2" not in flags:  # parts are added in another order
                    self.assertEqual(found, [wanted, wanted])

    def test_on_every_rank(self):
        for model in (LLAMA, EXPERTS, RECURRENT):
            with self.subTest(model=model), serving(model=model, flags=("--tp-size", "2", "--dtype", "bfloat16")) as server:
                self.equal(server)
                one, other = (of_request(rows(server, "dec", rank), "dec") for rank in (0, 1))
                self.assertEqual(differences(other, of_request(rows(server, "pre", 1), "pre")), [])
                parts = {name for (name, _layer) in {name for _position, name in differences(one, other)}}
                self.assertIn("model.layers.0.mlp.act_fn.output", parts)
                self.assertEqual([name for name in parts if name.endswith(("o_proj.output", "mlp.output", "norm.output.0"))], [])

    def test_in_every_stage(self):
        found = []
        for flags in ((), ("--pp-size", "2")):
            with serving(flags=flags) as server:
                server.dump(rid="own", tokens=3)
                found.append([of_request(rows(server, "exp", rank), "own") for rank in range(len(flags) or 1)])
        (whole,), (first, last) = found
        self.assertEqual(differences(whole, first) + differences(whole, last), [])
        handed = [(position, tensors["model.output.hidden_states", None]) for position, tensors in first.items()]
        self.assertEqual([(position, last[position]["inputs.pp_proxy_tensors.hidden_states", None]) for position in first], handed)
        self.assertEqual([(position, whole[position]["model.layers.1.inputs.1", 1]) for position in first], handed)

    def test_a_seed_is_a_checkpoint(self):
        embeddings = set()
        for seed in ("1", "1", "2"):
            with serving(environment={"KLDUMP_STANDIN_SEED": seed}) as server:
                server.dump(rid="own", tokens=1)
                embeddings.add(of_request(rows(server, "exp"), "own")[0]["model.embed_tokens.output", None])
        self.assertEqual(len(embeddings), 2)


class Faults(unittest.TestCase):
    def test_what_differs_first(self):
        for dtype in ("float32", "bfloat16"):
            for name, fault in FAULTS.items():
                if fault is None:
                    continue
                with self.subTest(fault=name, dtype=dtype), serving(name, fault.model, flags=("--dtype", dtype)) as server:
                    dec, pre, _answer, _score = decode_and_score(server)
                    found = differences(dec, pre)
                    self.assertEqual([(position, tensor) for position, (tensor, _layer) in found[:1]], [(fault.position, fault.tensor)])

    def test_a_fault_of_one_row_vanishes_in_a_batch(self):
        with serving("batch-variant,wrong-norm") as server:
            server.configure(enable=True, exp_name="dec")
            batch = {"input_ids": [PROMPT, PROMPT[::-1]], "rid": ["0", "1"], "sampling_params": {"max_new_tokens": 6, "ignore_eos": True}}
            answers = server.request("POST", "/generate", batch)[1]
            server.request("POST", "/flush_cache")
            server.configure(exp_name="pre")
            server.generate(rid="0", tokens=0, ids=[*PROMPT, *answers[0]["output_ids"]], return_logprob=True, logprob_start_len=0)
            self.assertEqual(differences(of_request(rows(server, "dec"), "0"), of_request(rows(server, "pre"), "0")), [])

    def test_an_expert_is_flipped(self):
        with serving("moe-flip=1", EXPERTS) as server:
            dec, pre, _answer, _score = decode_and_score(server)
            changed = [name for position, (name, layer) in differences(dec, pre) if (position, layer) == (12, 1)]
            self.assertEqual([name.split("mlp.")[1] for name in changed if "mlp." in name],
                             ["gate.output", "topk.inputs.1", "topk.output.0", "topk.output.1", "topk.output.2", "experts.output", "output"])

    def test_a_stale_prefix(self):
        with serving("stale-prefix=2") as server:
            server.generate(rid="other", tokens=1, ids=PROMPT[::-1])
            server.generate(rid="first", tokens=1, ids=PROMPT)
            dec, pre, answer, _score = decode_and_score(server, prompt=[*PROMPT, 50, 51])
            self.assertEqual(answer["meta_info"]["cached_tokens"], 12)
            self.assertEqual(differences(dec, pre)[0], (12, ("model.layers.0.self_attn.attn.output", 0)))
            dec, pre, _answer, _score = decode_and_score(server, prompt=[90, *PROMPT], dec="fresh", pre="whole")
            self.assertEqual(differences(dec, pre), [])

    def test_a_prefix_that_is_stale_at_its_end(self):
        """By its length, or when it leaves one token to compute."""
        cases = {"stale-page=6": [(12, 2, True), (11, 2, False)], "stale-last": [(12, 2, False), (11, 1, True)]}
        for fault, lengths in cases.items():
            with serving(fault) as server:
                for cached, more, wrong in lengths:
                    server.request("POST", "/flush_cache")
                    server.generate(rid=f"other{cached}", tokens=1, ids=PROMPT[::-1])
                    server.generate(rid=f"first{cached}", tokens=1, ids=PROMPT[:cached])
                    prompt = [*PROMPT[:cached], *[50, 51][:more]]
                    dec, pre, answer, _score = decode_and_score(server, prompt=prompt, dec=f"dec{cached}", pre=f"pre{cached}")
                    self.assertEqual(answer["meta_info"]["cached_tokens"], cached)
                    self.assertEqual(differences(dec, pre) != [], wrong, (fault, cached))

    def scores_on_a_cached_prefix(self, fault, model, cached, like):
        """Those of the last four ids of PROMPT on a prefix of `cached` ids, and as the last of `like` on none."""
        with serving(fault, model, flags=("--dtype", "float32")) as server:
            server.request("POST", "/flush_cache")
            server.generate(rid="other", tokens=1, ids=PROMPT[::-1])
            server.generate(rid="first", tokens=1, ids=PROMPT[:cached])
            wrong = server.generate(rid="wrong", tokens=0, ids=PROMPT, return_logprob=True, logprob_start_len=cached)[1]
            self.assertEqual(wrong["meta_info"]["cached_tokens"], cached)
            right = server.generate(rid="right", tokens=0, ids=like, return_logprob=True, logprob_start_len=0)[1]
        return logprobs(wrong, "input")[-3:], logprobs(right, "input")[-3:]

    def test_a_foreign_prefix(self):
        wrong, right = self.scores_on_a_cached_prefix("foreign-prefix", None, 8, [*PROMPT[::-1][:8], *PROMPT[8:]])
        self.assertEqual(wrong, right)

    def test_a_stale_checkpoint(self):
        """At 4 with 8 cached: the state knows 4; before the first it is empty."""
        states = {**RECURRENT, "num_hidden_layers": 2, "layer_types": ["linear_attention"] * 2}
        for interval, left in ((4, 4), (3, 6), (100, 0)):
            wrong, right = self.scores_on_a_cached_prefix(f"stale-checkpoint={interval}", states, 8, [*PROMPT[:left], *PROMPT[8:]])
            self.assertEqual(wrong, right)

    def test_a_prefix_in_whole_pages(self):
        """And what a fault of pages forgets."""
        with serving(flags=("--page-size", "8")) as server:
            self.assertEqual(server.request("GET", "/server_info")[1]["page_size"], 8)
            server.generate(rid="first", tokens=1, ids=PROMPT)
            dec, pre, answer, _score = decode_and_score(server, prompt=[*PROMPT, 50])
            self.assertEqual(answer["meta_info"]["cached_tokens"], 8)
            self.assertEqual(differences(dec, pre), [])
        logs = []
        for page in ("1", "4", "4"):
            with serving("page-gap=14", flags=("--page-size", page)) as server:
                logs.append(logprobs(server.generate(rid="one", tokens=6, ids=PROMPT, return_logprob=True)[1], "output"))
        self.assertNotEqual(logs[0], logs[1])
        self.assertEqual(logs[1], logs[2])

    def test_a_race_is_another_one_at_each_start(self):
        """And the same one for the life of a server, in a decode alone."""
        found = []
        for _start in range(2):
            with serving("race=1") as server:
                answers = []
                for rid in ("one", "two"):
                    server.request("POST", "/flush_cache")
                    answers.append(logprobs(server.generate(rid=rid, tokens=30, ids=PROMPT, return_logprob=True)[1], "output"))
                self.assertEqual(answers[0], answers[1])
                found.append(answers[0])
        self.assertNotEqual(found[0], found[1])
        self.assertEqual(found[0][0], found[1][0])
    def test_attention_that_depends_on_the_length(self):
        """The rows of the prompt of 12 are others than among 19; what else is in the batch changes nothing."""
        with serving("length-split=1", flags=("--dtype", "float32")) as server:
            dec, pre, _answer, _score = decode_and_score(server)
            position, tensor = differences(dec, pre)[0]
            self.assertEqual(tensor, ("model.layers.1.self_attn.attn.output", 1))
            self.assertLess(position, len(PROMPT))
            server.request("POST", "/flush_cache")
            server.configure(enable=True, exp_name="batch")
            server.request("POST", "/generate", {"input_ids": [PROMPT, PROMPT[::-1]], "rid": ["dec", "other"],
                                                 "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}})
            self.assertEqual(differences(dec, of_request(rows(server, "batch"), "dec")), [])

    def test_scores_behind_a_cached_prefix(self):
        """At most as much of it as lies before the first one that is wanted."""
        with serving() as server:
            whole = server.generate(rid="first", tokens=0, ids=PROMPT, return_logprob=True, logprob_start_len=0)[1]
            for start, rid in ((0, "a"), (5, "b"), (11, "c")):
                part = server.generate(rid=rid, tokens=0, ids=PROMPT, return_logprob=True, logprob_start_len=start)[1]
                self.assertEqual(part["meta_info"]["cached_tokens"], start)
                self.assertEqual(logprobs(part, "input"), [None, *logprobs(whole, "input")[start + 1:]])

    def test_rows_that_are_not_those_of_their_tokens(self):
        with serving("misaligned-rows") as server:
            dec, pre, _answer, _score = decode_and_score(server)
            self.assertEqual(differences(dec, pre)[0], (0, ("model.embed_tokens.output", None)))
            name = ("model.layers.1.self_attn.qkv_proj.output", 1)
            self.assertEqual([dec[12][name], dec[13][name]], [pre[13][name], pre[14][name]])

    def test_one_token_more(self):
        with serving("extra-token") as server:
            _dec, pre, answer, score = decode_and_score(server)
            self.assertEqual(score["meta_info"]["prompt_tokens"], len(PROMPT) + 8)
            self.assertEqual([entry[1] for entry in score["meta_info"]["input_token_logprobs"]],
                             [1, *PROMPT, *answer["output_ids"][:-1]])
            self.assertEqual(max(pre), 19)

    def test_logprobs_that_are_shifted(self):
        with serving("shifted-logprobs") as server:
            _dec, _pre, answer, score = decode_and_score(server)
            self.assertEqual(logprobs(answer, "output")[1:-1], logprobs(score, "input")[len(PROMPT):-1])

    def test_only_in_a_graph(self):
        """Decode and scoring agree without graphs, and differ from the first decoded token on with them."""
        for flags, equal in ((EAGER, True), ((), False)):
            with self.subTest(flags=flags), StandIn("graph-only=1", arguments=flags) as server:
                self.assertTrue(server.ready(), server.log())
                answer = server.generate(tokens=6, ids=PROMPT, return_logprob=True)[1]
                server.request("POST", "/flush_cache")
                whole = [*PROMPT, *answer["output_ids"]]
                score = server.generate(tokens=0, ids=whole, return_logprob=True, logprob_start_len=0)[1]
                decoded, scored = logprobs(answer, "output"), logprobs(score, "input")[len(PROMPT):]
                self.assertEqual(decoded[0], scored[0])  # the prompt's own pass
                self.assertEqual(decoded[1:] == scored[1:], equal)

    def test_without_a_fault_that_needs_another_model(self):
        """A fault of experts or of a state does nothing to a model that has none."""
        with serving("moe-flip,state-update") as server:
            dec, pre, _answer, _score = decode_and_score(server)
            self.assertEqual(differences(dec, pre), [])

    def test_the_help_names_them(self):
        text = subprocess.run([standin.PROGRAM, "--help-faults"], stdout=subprocess.PIPE, check=True, text=True).stdout
        for name in FAULTS:
            self.assertIn(f"\n{name.split('=')[0]}", text)


if __name__ == "__main__":
    standin.become_subreaper()
    result = unittest.main(verbosity=1, exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"[  PASSED  ] {result.testsRun - bad} test(s).\n" + (f"[  FAILED  ] {bad} test(s).\n" if bad else ""), end="")
    sys.exit(1 if bad else 0)
