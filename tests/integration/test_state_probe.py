"""examples/state_probe.py measures what it says, and stands where every prefill of the real SGLang passes."""
import os
import subprocess
from pathlib import Path

import guarded
import pytest
import sglang_cpu

pytestmark = pytest.mark.real
HERE = Path(__file__).resolve().parent
PROBE = HERE.parents[1] / "examples/state_probe.py"


@pytest.fixture(scope="module")
def real_python():
    directory = sglang_cpu.default_directory(guarded.VERSION)
    if guarded.cache_folder.finished(directory) is None:
        pytest.skip(f"missing: the real SGLang in {directory} (tests/real/sglang_cpu.py install {guarded.VERSION} makes it)")
    return directory / "bin/python"


def test_the_sample_probe_measures(real_python):
    """Slots, lengths, layers and magnitudes of a small pool; a ring that is too small says what it lost."""
    done = subprocess.run([real_python, "-B", HERE / "state_probe_world.py"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.count("as expected") == 2, done.stdout + done.stderr


def test_the_sample_probe_stands_where_every_prefill_passes(real_python, tmp_path):
    """SGLang finds the plugin, and the place is called once, before all ways of running a prefill, behind the return of replayed decodes."""
    subprocess.run([real_python, "-B", PROBE, tmp_path], check=True, capture_output=True)
    script = """
import inspect, re
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
place = "_maybe_execute_deferred_mamba_cow_and_clear"
assert getattr(ModelRunner, place).__module__ == "kldump_state_probe", getattr(ModelRunner, place).__module__
text = inspect.getsource(ModelRunner)
raw = inspect.getsource(ModelRunner._forward_raw)
assert len(re.findall(r"self\\." + place, text)) == 1
order = [raw.index(part) for part in ("self.decode_cuda_graph_runner.execute(", "self." + place, "self.forward_split_prefill(",
                                      "self.prefill_cuda_graph_runner.execute(", "self.eager_runner.execute(")]
assert order == sorted(order), order
for name in ("get_mamba_indices", "translate_mamba_indices"):
    assert hasattr(HybridReqToTokenPool, name), name
print("in place")
"""
    environment = {**os.environ, **sglang_cpu.server_environment(), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([real_python, "-B", "-c", script], capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0 and done.stdout.endswith("in place\n"), done.stdout[-2000:] + done.stderr[-3000:]
