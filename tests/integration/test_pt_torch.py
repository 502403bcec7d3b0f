"""What torch.save writes is what kldump reads, bit for bit: 10,000 random tensors of every element type, shape, stride,
offset, protocol; views, expanded and shared storages, lazy conjugates, Parameters, subclasses; large files."""
import os
import subprocess
from pathlib import Path

import guarded
import pytest
import sglang_cpu

pytestmark = pytest.mark.real
COUNT = 10000
SEED = int(os.environ.get("KLDUMP_TEST_SEED") or 1)
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def torch_python():
    directory = sglang_cpu.default_directory(guarded.VERSION)
    if guarded.cache_folder.finished(directory) is None:
        pytest.skip(f"missing: a python with torch in {directory} (tests/real/sglang_cpu.py install {guarded.VERSION} makes it)")
    return directory / "bin/python"


def test_round_trip(torch_python, tmp_path):
    subprocess.run([torch_python, HERE / "torch_dumps.py", tmp_path, str(COUNT), str(SEED)], check=True, timeout=300)
    read = subprocess.run([guarded.BUILD / "tests/integration/torch_read", tmp_path], capture_output=True, text=True,
                          timeout=120, check=False)
    assert read.returncode == 0, f"seed {SEED}:\n{read.stdout}{read.stderr}"
    assert read.stdout.endswith("files, 0 wrong\n") and int(read.stdout.split()[0]) >= COUNT


def test_npy_is_what_numpy_loads(torch_python, tmp_path):
    """--npy of a bfloat16 and of a transposed float32, looked at by numpy and torch."""
    script = f"""
import subprocess, numpy, torch
for name, tensor in (("a", torch.randn(3, 5).to(torch.bfloat16)), ("b", torch.randn(4, 6).t()), ("c", torch.tensor(2.5)),
                     ("d", torch.zeros(0, 3)), ("e", torch.randn(3, dtype=torch.complex64).conj())):
    torch.save({{"value": tensor, "meta": {{}}}}, name + ".pt")
    subprocess.run([{str(guarded.CTL)!r}, "show", "--npy", name + ".npy", name + ".pt"], check=True)
    array = numpy.load(name + ".npy")
    back = torch.from_numpy(array.view("i2")).view(torch.bfloat16) if name == "a" else torch.from_numpy(array)
    assert back.dtype == tensor.dtype and back.shape == tensor.shape and torch.equal(back, tensor.resolve_conj()), name
"""
    subprocess.run([torch_python, "-W", "ignore", "-c", script], check=True, timeout=120, cwd=tmp_path)
