#!/usr/bin/python3
"""One list of requests for the stand-in and for the real SGLang; what both answer, write and print must be equal.

  contract.py URL --dumps DIR --log FILE [--log FILE]     prints a transcript as JSON
  contract.py --compare ONE.json OTHER.json               prints the differences; exit status 1 when there are any

The server was started with the same model, flags and environment both times (STANDARD_FLAGS, STANDARD_ENVIRONMENT), is
ready, and nobody else talks to it. DIR is its DUMPER_DIR. Afterwards dumping is off and the server still runs.
What differs from run to run (times, random ids, generated tokens, numbers of the model) is replaced by a word.
"""
import argparse
import collections
import http.client
import json
import pickle
import re
import struct
import sys
import urllib.parse
import zipfile
from pathlib import Path

STANDARD_FLAGS = ["--skip-tokenizer-init", "--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32",
                  "--mem-fraction-static", "0.2", "--max-total-tokens", "4096", "--disable-cuda-graph",
                  "--disable-prefill-cuda-graph"]
STANDARD_ENVIRONMENT = {"DUMPER_ENABLE": "0", "DUMPER_SERVER_PORT": "reuse", "DUMPER_NON_INTRUSIVE_MODE": "all",
                        "DUMPER_EXP_NAME": "idle", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0",
                        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0", "PYTHONUNBUFFERED": "1"}

PROMPT = list(range(20, 32))


def sampling(tokens, **more):
    return {"max_new_tokens": tokens, "temperature": 1.0, "ignore_eos": True, **more}


def ask(ids, rid, tokens, **more):
    return ("POST", "/generate", {"input_ids": ids, "rid": rid, "sampling_params": sampling(tokens), **more})


def configure(**keys):
    return ("POST", "/dumper/configure", keys)


STATE = ("POST", "/dumper/get_state", None)
FLUSH = ("POST", "/flush_cache", None)

REQUESTS = [
    # routes that run no pass
    ("GET", "/ping", None), ("GET", "/ready", None), ("GET", "/health", None), ("GET", "/", None),
    ("GET", "/model_info", None), ("GET", "/get_model_info", None), ("GET", "/v1/models", None),
    ("GET", "/server_info", None), ("GET", "/get_server_info", None), ("GET", "/v1/loads?include=core", None),
    FLUSH, ("GET", "/flush_cache", None), ("POST", "/flush_cache?timeout=5", None),
    ("GET", "/nope", None), ("POST", "/ping", None), ("GET", "/generate", None),
    # the control channel and what it refuses
    STATE, ("GET", "/dumper/get_state", None), ("POST", "/dumper", None), ("POST", "/dumper/get_state/", None),
    ("POST", "/dumper/nope", None), ("POST", "/dumper/get_state", "[1]"), ("POST", "/dumper/get_state", '"text"'),
    ("POST", "/dumper/get_state", "null"), ("POST", "/dumper/get_state", "{bad"), ("POST", "/dumper/configure", "{bad"),
    configure(x=1), configure(enable=1), configure(enable="true"), configure(filter=5), configure(exp_name=7),
    configure(collective_timeout="a"), configure(enable_value=[]), configure(dir={}), configure(enable=True, x=1), STATE,
    ("POST", "/dumper/configure", None), configure(), configure(collective_timeout=True), STATE,
    configure(collective_timeout=60), configure(enable=None), configure(enable=False),
    # nothing is written while off, one request is N passes of N tokens when on
    ask(PROMPT, "off", 2), FLUSH, STATE, configure(enable=True, exp_name="plain"), STATE,
    ask(PROMPT, "plain", 3, return_logprob=True, logprob_start_len=0), STATE,
    # the radix cache shortens the prefill, input logprobs switch it off
    configure(exp_name="cache"), ask(PROMPT, "cached", 2, return_logprob=True), ask(PROMPT[:6], "beginning", 1),
    configure(exp_name="whole"), ask(PROMPT, "whole", 1, return_logprob=True, logprob_start_len=0), FLUSH,
    # batches
    configure(exp_name="batch"), ask([[30, 31, 32], [40, 41, 42, 43]], ["b-0", "b-1"], 3),
    ask([[60, 61, 62]], "one", 2), ask([70, 71], None, 1), STATE,
    # scoring
    configure(exp_name="score"), ask(list(range(50, 60)), "score", 0, return_logprob=True, logprob_start_len=0),
    ask(list(range(80, 90)), "part", 1, return_logprob=True, logprob_start_len=4), STATE,
    # a health probe that generates is one pass of its own
    configure(exp_name="probe"), ("GET", "/health_generate", None), ("GET", "/health", None), STATE,
    # filters
    configure(exp_name="filtered", filter="'mlp' in name"), ask([90, 91, 92], "mlp", 1),
    configure(filter="layer_id in [0]"), ask([93, 94, 95], "layer", 1),
    configure(filter="layer_id is None or layer_id < 2"), ask([96, 97, 98], "upto", 1),
    configure(filter="name == 'rids'"), ask([99, 100, 101], "rids", 1),
    configure(filter="False"), ask([102, 103, 104], "none", 1), STATE, configure(filter=None),
    # without a content type: the dumper does not care, /generate does
    ("POST, no type", "/dumper/get_state", "{}"), ("POST, no type", "/generate", '{"input_ids": [5]}'),
    # refused requests: before the scheduler no pass, by the scheduler one pass
    configure(exp_name="refused"), ask([], "empty", 1), ("POST", "/generate", {"sampling_params": sampling(1)}),
    ("POST", "/generate", {"input_ids": [5], "sampling_params": sampling(1, temperature=-1)}),
    ask([[5], [6]], ["same", "same"], 1), ("POST", "/generate", {"text": "hello", "sampling_params": sampling(1)}),
    ask([5], "much", 9999), ask(list(range(100)) * 30, "long", 1), STATE,
    ask(list(range(9)) * 227, "limit", 1), ask([5, 6, 7], "start", 1, return_logprob=True, logprob_start_len=9), STATE,
    ("POST", "/generate", {"input_ids": "abc", "sampling_params": sampling(1)}), ("POST", "/generate", "{bad"),
    ask([110, 111], "unknown-key", 1, nonsense=1), ask([110, 111, 112], "after", 1), STATE,
    configure(enable=False), FLUSH, STATE,
]

# Of the 556 keys of /server_info: those that say something about a dump run.
SERVER_INFO = ["model_path", "tokenizer_path", "skip_tokenizer_init", "device", "dtype", "attention_backend", "tp_size",
               "pp_size", "dp_size", "nnodes", "node_rank", "enable_dp_attention", "disable_radix_cache",
               "disable_overlap_schedule", "chunked_prefill_size", "max_total_tokens", "max_total_num_tokens",
               "max_req_input_len", "speculative_algorithm", "disaggregation_mode", "enable_torch_compile",
               "enable_two_batch_overlap", "enable_mixed_chunk", "enable_pdmux", "enable_deterministic_inference",
               "disable_cuda_graph", "disable_decode_cuda_graph", "disable_prefill_cuda_graph",
               "cuda_graph_backend_decode", "cuda_graph_backend_prefill", "debug_tensor_dump_output_folder", "api_key",
               "admin_api_key", "host", "status", "version", "watchdog_timeout"]
MODEL_INFO = ["model_path", "served_model_name", "tokenizer_path", "is_generation", "weight_version", "load_format",
              "disaggregation_mode", "model_type", "architectures"]
LOADS = ["dp_rank", "num_running_reqs", "num_waiting_reqs", "max_total_num_tokens", "max_running_requests"]

# Lines of the start and of these requests, in the order of their stream.
# The order between two processes is not fixed.
MAIN_LINES = [r"Cuda graph is disabled because of using torch native attention backend", r"server_args=",
              r"Engine startup timings \(s\):", r"INFO:     Started server process",
              r"INFO:     Waiting for application startup\.", r"INFO:     Application startup complete\.",
              r"INFO:     Uvicorn running on", r"The server is fired up and ready to roll!",
              r"Endpoint '/get_\w+' is deprecated", r"ERROR:    Exception in ASGI application",
              r"\[http_server\] Error: .*"]
SCHEDULER_LINES = [r"Load weight begin\.", r"Load weight end\.", r"KV Cache is allocated\.",
                   r"Disable prefill CUDA graph because cuda_graph_config resolved prefill\.backend='disabled'",
                   r"max_total_num_tokens=\d+, chunked_prefill_size=\d+",
                   r"Prefill batch, #new-seq: \d+, #new-token: \d+, #cached-token: \d+", r"Cache flushed successfully!"]
PRINTED_LINES = [r"\[ZmqRpc\] server started at tcp://", r"\[ZmqRpc\] all_addresses=\[",
                 r"Standalone HTTP server disabled, reusing existing ports", r"step=\d+$",
                 r"\[ZmqRpc\] error inside handler: .*", r"\[Scheduler\] handle_dumper_control error: .*",
                 r"\"(?:GET|POST|PUT|HEAD) \S+ HTTP/1\.1\" \d+ .*"]
DUMP_NAME = re.compile(r"step=(\d+)___rank=(\d+)___dump_index=(\d+)___name=(.+)___recompute_status=disabled"
                       r"(?:___layer_id=(\d+))?\.pt$")
INTEGERS = {"input_ids", "positions", "seq_lens", "req_pool_indices"}


# ---------------------------------------------------------------- answers

def plain_meta(meta):
    meta = dict(meta)
    if re.fullmatch("[0-9a-f]{32}", meta.get("id", "")):
        meta["id"] = "random"
    for key in ("e2e_latency", "response_sent_to_client_ts"):
        if key in meta:
            meta[key] = "time"
    for key in ("input_token_logprobs", "output_token_logprobs"):
        if key in meta:
            prompt = key.startswith("input")
            meta[key] = [[one[0] if one[0] is None else "logprob", one[1] if prompt else "generated", one[2]]
                         for one in meta[key]]
    return meta


def plain_generated(answer):
    if isinstance(answer, list):
        return [plain_generated(one) for one in answer]
    return {"keys": sorted(answer), "tokens": len(answer["output_ids"]), "meta_info": plain_meta(answer["meta_info"])}


def pick(answer, keys):
    return {key: answer.get(key, "absent") for key in keys}


def plain_server_info(answer):
    info = pick(answer, SERVER_INFO)
    info["backends"] = {phase: answer["cuda_graph_config"][phase]["backend"] for phase in ("decode", "prefill")}
    states = answer["internal_states"]
    info["states"] = [{"memory_graph": sorted(one["memory_usage"]["graph"]), "world_size": one.get("world_size"),
                       "decode_cuda_graph_bs": one.get("decode_cuda_graph_bs")} for one in states]
    return info


def plain_state(answer, dumps):
    for one in answer:
        if one["config"]["dir"] == str(dumps):
            one["config"]["dir"] = "DIR"
    return answer


def plain_body(path, status, content_type, raw, dumps):
    if "json" not in content_type:
        return raw
    answer = json.loads(raw)
    if status == 400 and isinstance(answer, dict) and answer.get("object") == "error":
        return {"keys": sorted(answer), "type": answer["type"], "code": answer["code"]}  # the text holds source paths
    if status != 200:
        return answer
    if path == "/generate":
        return plain_generated(answer)
    if path.endswith("server_info"):
        return plain_server_info(answer)
    if path.endswith("model_info"):
        return pick(answer, MODEL_INFO)
    if path == "/v1/loads":
        return {"keys": sorted(answer), "loads": [pick(one, LOADS) for one in answer["loads"]]}
    if path == "/v1/models":
        return [{key: value for key, value in one.items() if key != "created"} for one in answer["data"]]
    if path == "/dumper/get_state":
        return plain_state(answer, dumps)
    return answer


def send(url, method, target, body):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    typed = text is not None and not method.endswith("no type")
    connection.request(method.split(",")[0], target, text, {"Content-Type": "application/json"} if typed else {})
    answer = connection.getresponse()
    raw = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("content-type") or "", answer.getheader("allow") or "", raw


def answers(url, dumps):
    found = []
    for method, target, body in REQUESTS:
        status, content_type, allow, raw = send(url, method, target, body)
        text = json.dumps(body) if isinstance(body, dict) else str(body)
        found.append({"request": f"{method} {target} {text[:120]}", "status": status, "type": content_type.split(";")[0],
                      "allow": sorted(allow.split(", ")),
                      "body": plain_body(target.split("?")[0], status, content_type, raw, dumps)})
    return found


# ---------------------------------------------------------------- files

class Reader(pickle.Unpickler):
    """Shapes without torch: no class is ever made."""

    def persistent_load(self, pid):
        return pid

    def find_class(self, module, name):
        known = {"_rebuild_tensor_v2": lambda storage, offset, size, stride, *rest:
                 {"storage": storage[1], "device": storage[3], "count": storage[4], "size": size, "stride": stride},
                 "OrderedDict": dict}
        return known.get(name, f"{module}.{name}")


def plain_rid(rid):
    return re.sub("[0-9a-f]{32}", "random", rid)


def describe(path):
    step, rank, index, name, layer = DUMP_NAME.match(path.name).groups()
    with zipfile.ZipFile(path) as archive:
        folder = path.name[:-3]
        content = Reader(archive.open(f"{folder}/data.pkl")).load()
        raw = archive.read(f"{folder}/data/0") if f"{folder}/data/0" in archive.namelist() else b""
        members = [member.split("/", 1)[1] for member in archive.namelist()]
    value, meta = content["value"], content["meta"]
    tags = {"step": int(step), "rank": int(rank), "dump_index": int(index), "name": name}
    tags.update({"layer_id": int(layer)} if layer else {})
    row = {"index": int(index), "name": name, "layer": layer, "bytes": path.stat().st_size,
           "same": {"members": members, "tags in meta": all(meta.pop(key) == tags[key] for key in tags), "meta": meta}}
    meta.pop("tokenizer_path")
    if isinstance(value, str):
        row["value"] = {"word": value}  # what pipeline stages hand on is marked with one
    elif isinstance(value, list):
        row["rids"] = value
    else:
        row["value"] = value
        if name in INTEGERS and layer is None:
            row["integers"] = list(struct.unpack(f"<{len(raw) // 8}q", raw))
    return (int(rank), int(step)), row


def compact(rows):
    """The files of a pass, a text each, and what is the same in (nearly) all of them, each once."""
    same = []
    texts = []
    for row in sorted(rows, key=lambda row: row["index"]):
        if row["same"] not in same:
            same.append(row["same"])
        content = row.get("rids") or " ".join(str(item) for item in row["value"].values())
        texts.append(f"{row['index']} {row['name']} {row['layer'] or '-'} {row['bytes']} {content} {row.get('integers', '')}")
    return {"files": [text.rstrip() for text in texts], "same": same}


def hide_generated(passes):
    """A pass with a request that had one before is a decode pass: its tokens were generated."""
    seen = set()
    for _key, rows in sorted(passes.items()):
        by_name = {row["name"]: row for row in rows if row["layer"] is None}
        rids = by_name.get("rids", {}).get("rids", [])
        if "input_ids" in by_name and set(rids) & seen:
            by_name["input_ids"]["integers"] = ["generated"] * len(by_name["input_ids"]["integers"])
        seen.update(rids)
        if rids:
            by_name["rids"]["rids"] = [plain_rid(rid) for rid in rids]


def files(dumps):
    """experiment -> "rank R step S" -> the files of that pass in the order of dump_index."""
    found = {}
    for folder in sorted(Path(dumps).iterdir()):
        passes = collections.defaultdict(list)
        for path in folder.iterdir():
            (rank, step), row = describe(path)
            passes[rank, step].append(row)
        hide_generated(passes)
        found[folder.name] = {f"rank {rank} step {step}": compact(rows)
                              for (rank, step), rows in sorted(passes.items())}
    return found


# ---------------------------------------------------------------- lines

def lines(log_text, patterns):
    every = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return [match.group(0) for line in log_text.splitlines() for match in [every.search(line)] if match]


def transcript(url, dump_dir, log_text):
    """`log_text` is the server's output, or a function that reads it when the requests are done."""
    replies = answers(url.rstrip("/"), dump_dir)
    output = log_text() if callable(log_text) else log_text
    printed = lines(output, PRINTED_LINES)
    # What was polled before the contract began is not part of it, and the warm-up comes in between.
    start = max((i for i, line in enumerate(printed) if "/freeze_gc" in line), default=-1) + 1
    first = next((i for i, line in enumerate(printed[start:], start) if line.startswith('"GET / HTTP')), start) - 3
    return {"answers": replies, "files": files(dump_dir), "main": lines(output, MAIN_LINES),
            "scheduler": lines(output, SCHEDULER_LINES),
            "printed": [line for line in printed[:start] if '"' not in line] + printed[max(first, start):]}


def unordered(made):
    """For servers of several ranks: the lines of their start come in any order."""
    start = [line for line in made["printed"] if '"' not in line and not line.startswith("step=")]
    rest = [line for line in made["printed"] if line not in start]
    return {**made, "scheduler": sorted(made["scheduler"]), "printed": sorted(start) + rest}


# ---------------------------------------------------------------- comparing

def differences(one, other, where=""):
    """Texts, one for each place where the two transcripts differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [text for key in sorted(set(one) | set(other))
                for text in differences(one.get(key, "absent"), other.get(key, "absent"), f"{where}.{key}")]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return [text for i, pair in enumerate(zip(one, other)) for text in differences(*pair, f"{where}[{i}]")]
    return [] if one == other else [f"{where}: {str(one)[:300]} != {str(other)[:300]}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--dumps", type=Path)
    parser.add_argument("--log", type=Path, action="append", default=[])
    parser.add_argument("--compare", nargs=2, type=Path)
    options = parser.parse_args()
    if options.compare:
        found = differences(*(json.loads(path.read_text()) for path in options.compare))
        print("\n".join(found) if found else "equal")
        return 1 if found else 0
    if not options.url or not options.dumps or not options.log:
        parser.error("URL, --dumps and --log are needed")
    result = transcript(options.url, options.dumps,
                        lambda: "\n".join(path.read_text(errors="replace") for path in options.log))
    json.dump(result, sys.stdout, indent=0)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
