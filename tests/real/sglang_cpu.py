#!/usr/bin/python3
"""A real SGLang server for tests on a machine without a GPU.

  sglang_cpu.py install VERSION [DIR]        make a Python environment with SGLang in DIR; again: nothing to do
  sglang_cpu.py model DIR [--kind llama]     write a tiny model with seeded weights
  sglang_cpu.py path VERSION                 print the default DIR of VERSION, in the tests' cache folder

SGLang itself is the unmodified release.  Its GPU packages are left out (kldump_cpu_stubs.py answers for them), which
leaves 1.4 GB instead of 11.  Exit status 3: this machine lacks something, and one line says what.

  KLDUMP_TEST_CACHE    the cache folder (default: kldump below XDG_CACHE_HOME or ~/.cache)
  KLDUMP_TEST_TORCH    the torch to ask pip for (default: torch==2.13.0; a +cpu build is taken where pip finds one)
  KLDUMP_TEST_PYTHON   the only Python to try
"""
import argparse
import functools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import cache_folder
from cache_folder import Failed, Missing

TORCH = os.environ.get("KLDUMP_TEST_TORCH") or "torch==2.13.0"
PYTHONS = ("/usr/bin/python3", "python3", "python3.13", "python3.12", "python3.11")
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
CPU_BYTES, CUDA_BYTES = 3 * 2**30, 9 * 2**30

# What a server imports on a CPU, apart from torch: each in the version that the release's own metadata asks for.
SERVER_PACKAGES = """aiohttp apache-tvm-ffi dill distro einops fastapi interegular jsonschema llguidance msgspec numpy
    openai orjson packaging partial-json-parser pillow prometheus-client psutil pybase64 pydantic python-multipart pyzmq
    regex requests scipy setproctitle tokenizers tqdm transformers uvicorn uvloop watchfiles xxhash zstandard""".split()
SERVER_MODULES = "launch_server srt.entrypoints.http_server srt.managers.scheduler srt.models.registry".split()
UNREACHABLE = re.compile(r"NewConnectionError|NameResolutionError|Max retries|ConnectTimeout|ReadTimeout|ProxyError|SSLError"
                         r"|from versions: none")


# ---- what other programs use

def default_directory(version):
    return cache_folder.cache_root() / f"sglang-{version}"


def server_environment():
    """What the server needs beside the caller's environment.  Dynamo would compile helpers with the absent triton."""
    return {"SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1"}


def server_command(directory, model, port):
    return [f"{directory}/bin/python", "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port),
            "--skip-tokenizer-init", "--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32",
            "--mem-fraction-static", "0.2", "--max-total-tokens", "4096"]


def install(version, directory=None):
    """Make or find the environment of VERSION; returns its folder.  Missing or Failed otherwise."""
    directory = (directory or default_directory(version)).resolve()
    with cache_folder.locked(directory):
        found = cache_folder.finished(directory)
        if found is None or not os.access(directory / "bin/python", os.X_OK):  # its Python may have gone
            Installation(version, directory).make()
        elif (found["version"], found["asked"]) != (version, TORCH):
            raise Failed(f"{directory} holds SGLang {found['version']} with {found['asked']}, asked is {version} with {TORCH}:"
                         " remove it or give another folder")
        else:
            put_stubs(directory)
    return directory


# ---- install

def put_stubs(directory):
    """Also into a finished environment: the stubs may be newer than it is."""
    site = site_packages(directory)
    shutil.copyfile(Path(__file__).with_name("kldump_cpu_stubs.py"), site / "kldump_cpu_stubs.py")
    (site / "kldump_cpu_stubs.pth").write_text("import kldump_cpu_stubs\n", encoding="utf-8")


def site_packages(directory):
    return next((directory / "lib").glob("python3*/site-packages"))


def fitting_pythons():
    """The interpreters that can make an environment for SGLang, best first."""
    candidates = [os.environ["KLDUMP_TEST_PYTHON"]] if os.environ.get("KLDUMP_TEST_PYTHON") else PYTHONS
    fitting, seen, refused = [], set(), []
    for name in candidates:
        path = shutil.which(name)
        if path is None:
            continue
        asked = subprocess.run([path, "-c", "import sys; print(sys.executable, *sys.version_info[:2]); import venv, ensurepip"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if not asked.stdout:
            continue
        executable, major, minor = asked.stdout.rsplit(maxsplit=2)
        if os.path.realpath(executable) in seen:
            continue
        seen.add(os.path.realpath(executable))
        if not OLDEST_PYTHON <= (int(major), int(minor)) <= NEWEST_PYTHON:
            refused.append(f"{executable} is {major}.{minor}")
        elif asked.returncode != 0:
            refused.append(f"{executable} {major}.{minor} has no ensurepip (Debian: package python3-venv)")
        else:
            fitting.append(executable)
    if not fitting:
        raise Missing(f"a Python from 3.11 to 3.13 that can make environments ({'; '.join(refused) or 'no python3 found'})")
    return fitting


def requirements(metadata, names):
    """The lines of a package's metadata for NAMES, markers kept; a name that it does not ask for stands alone."""
    def plain(name):
        return re.sub(r"[-_.]+", "-", name).lower()

    asked = {}
    for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.M):
        if not re.search(r";.*\bextra\b", line):
            asked.setdefault(plain(re.match(r"[\w.-]+", line).group()), []).append(line)
    return [line for name in names for line in asked.get(plain(name), [name])]


class Installation:
    def __init__(self, version, directory):
        self.version, self.directory, self.start = version, directory, time.monotonic()

    def say(self, message):
        print(f"[{time.monotonic() - self.start:5.0f} s] {message}", flush=True)

    def pip(self, *arguments):
        """Run pip in the environment; its output, or Missing where no index answers, or Failed."""
        done = subprocess.run([self.directory / "bin/python", "-m", "pip", "--disable-pip-version-check", "--retries", "2",
                               "--no-input", "install", *arguments],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
        what = " ".join(argument for argument in arguments if not argument.startswith("--"))
        if cause := UNREACHABLE.search(done.stdout):
            raise Missing(f"a package index that has {what[:60]} (pip: {cause.group()})")
        raise Failed(f"pip could not install {what}\n{done.stdout[-3000:]}")

    def metadata(self, package):
        return next(site_packages(self.directory).glob(f"{package}-*.dist-info/METADATA")).read_text(encoding="utf-8")

    def make_environment(self, python):
        cache_folder.begin(self.directory)
        made = subprocess.run([python, "-m", "venv", self.directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if made.returncode != 0:
            raise Failed(f"{python} -m venv {self.directory}: {made.stdout[-1000:]}")

    def choose_python(self):
        """An environment of the first Python for which pip finds a CPU build of torch, else of the first."""
        pythons = fitting_pythons()
        for python in pythons:
            self.make_environment(python)
            self.say(f"environment in {self.directory}, from {python}")
            if "+cpu" in self.pip("--dry-run", "--no-deps", TORCH):
                return
        if python != pythons[0]:
            self.make_environment(pythons[0])
        if os.uname().machine == "x86_64":
            self.say(f"pip has no CPU build of {TORCH} here: its CUDA build is taken, which is some gigabytes more")
            cache_folder.require_free_space(self.directory, CUDA_BYTES)

    def install_torch(self):
        self.say(TORCH)
        self.pip("--no-deps", TORCH)
        # The real triton looks for a GPU driver when it is used; its stub is the same on every machine.
        metadata = self.metadata("torch")
        wanted = re.findall(r"^Requires-Dist: ([\w.-]+)", metadata, re.M)
        self.pip(*requirements(metadata, [name for name in dict.fromkeys(wanted) if name not in ("triton", "optree", "opt-einsum", "pyyaml")]))

    def import_once(self):
        """Compiles what a server loads, and shows that it loads."""
        environment = {**os.environ, **server_environment()}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        program = "".join(f"import sglang.{module}\n" for module in SERVER_MODULES) + "import torch\nprint('torch', torch.__version__)\n"
        done = subprocess.run([self.directory / "bin/python", "-c", program], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"SGLang {self.version} does not import here\n{done.stdout[-3000:]}")
        return done.stdout.split()[-1]

    def make(self):
        cache_folder.require_free_space(self.directory.parent, CPU_BYTES)
        self.choose_python()
        self.say(f"sglang {self.version}, without its dependencies")
        self.pip("--no-deps", f"sglang=={self.version}")
        self.install_torch()
        self.say("the packages that a server needs")
        self.pip(*requirements(self.metadata("sglang"), SERVER_PACKAGES))
        put_stubs(self.directory)
        self.say("first import")
        torch = self.import_once()
        seconds = round(time.monotonic() - self.start)
        cache_folder.finish(self.directory, {"version": self.version, "asked": TORCH, "torch": torch, "seconds": seconds})
        self.say(f"finished: SGLang {self.version} with torch {torch}")


# ---- model

VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 512, 64, 128, 3, 4, 2
HEAD = HIDDEN // HEADS
COMMON = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 2048,
          "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "attention_bias": False, "tie_word_embeddings": False, "bos_token_id": 1,
          "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "float32"}
LLAMA = {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
EXPERTS = 6
MIXTRAL = {**COMMON, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "sliding_window": None,
           "num_local_experts": EXPERTS, "num_experts_per_tok": 2}
GEMMA = {**COMMON, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh",
         "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 16, "query_pre_attn_scalar": HEAD, "attn_logit_softcapping": 50.0,
         "final_logit_softcapping": 30.0, "tie_word_embeddings": True, "attention_dropout": 0.0}


def attention_weights(layer):
    for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD), ("o", HIDDEN)):
        yield f"{layer}self_attn.{name}_proj", (rows, HIDDEN), 0.0, HIDDEN**-0.5


def gated_weights(prefix, names=("gate_proj", "up_proj", "down_proj")):
    for name, rows, columns in zip(names, (INNER, INNER, HIDDEN), (HIDDEN, HIDDEN, INNER)):
        yield prefix + name, (rows, columns), 0.0, columns**-0.5


def expert_weights(layer):
    yield layer + "block_sparse_moe.gate", (EXPERTS, HIDDEN), 0.0, HIDDEN**-0.5
    for number in range(EXPERTS):
        yield from gated_weights(f"{layer}block_sparse_moe.experts.{number}.", ("w1", "w3", "w2"))


def llama_weights(feed_forward=lambda layer: gated_weights(layer + "mlp.")):
    """Yields name, shape, mean, standard deviation.  They keep activations near 1; the wide head makes peaked logits."""
    yield "model.embed_tokens", (VOCABULARY, HIDDEN), 0.0, 1.0
    for layer in (f"model.layers.{number}." for number in range(LAYERS)):
        yield layer + "input_layernorm", (HIDDEN,), 1.0, 0.1
        yield from attention_weights(layer)
        yield layer + "post_attention_layernorm", (HIDDEN,), 1.0, 0.1
        yield from feed_forward(layer)
    yield "model.norm", (HIDDEN,), 1.0, 0.1
    yield "lm_head", (VOCABULARY, HIDDEN), 0.0, 3.0 * HIDDEN**-0.5


def gemma_weights():
    """Norms add one to their weight, and the embedding is the head: small, so that a token does not predict itself."""
    yield "model.embed_tokens", (VOCABULARY, HIDDEN), 0.0, 0.05
    for layer in (f"model.layers.{number}." for number in range(LAYERS)):
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            yield f"{layer}{norm}_layernorm", (HIDDEN,), 0.0, 0.1
        yield from attention_weights(layer)
        yield from gated_weights(layer + "mlp.")
    yield "model.norm", (HIDDEN,), 5.0, 0.1


KINDS = {"llama": (LLAMA, llama_weights),
         "mixtral": (MIXTRAL, lambda: llama_weights(expert_weights)),  # with experts and a router
         "gemma2": (GEMMA, gemma_weights)}                             # every other layer sees a sliding window of 16 tokens


def write_model(directory, kind="llama", seed=1):
    """A model folder that SGLang loads: config.json and one safetensors file.  Same kind and seed, same bytes."""
    config, weights = KINDS[kind]
    header, data, generator = {}, bytearray(), random.Random(seed)
    for name, shape, mean, deviation in weights():
        count = functools.reduce(int.__mul__, shape)
        begin = len(data)
        data += struct.pack(f"<{count}f", *(generator.gauss(mean, deviation) for _ in range(count)))
        header[f"{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    head += b" " * (-len(head) % 8)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


# ---- program

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("install")
    command.add_argument("version")
    command.add_argument("directory", type=Path, nargs="?")
    command = commands.add_parser("model")
    command.add_argument("directory", type=Path)
    command.add_argument("--kind", choices=KINDS, default="llama")
    command = commands.add_parser("path")
    command.add_argument("version")
    options = parser.parse_args()
    if options.command == "install":
        print(install(options.version, options.directory))
    elif options.command == "model":
        write_model(options.directory, options.kind)
    else:
        print(default_directory(options.version))


if __name__ == "__main__":
    cache_folder.run_as_program(main)
