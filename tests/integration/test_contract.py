"""The stand-in answers, writes and prints what the real SGLang does: tests/standin/contract.py on both, compared."""
import contextlib
import os
import subprocess
import sys

import pytest
from guarded import HERE, wait_for

sys.path.insert(0, str(HERE.parent / "standin"))
import contract  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract") / "model"
    from guarded import sglang_cpu
    sglang_cpu.write_model(folder)
    return folder


def transcript(place, server, model):
    port, log = place.port(), place.folder / f"{server.name}.log"
    dumps = place.folder / f"dumps-{server.name}"
    command = [server.python(place), "-m", "sglang.launch_server", "--model-path", model, "--port", port, *contract.STANDARD_FLAGS]
    variables = {**server.environment(), **contract.STANDARD_ENVIRONMENT, "DUMPER_DIR": str(dumps)}
    with open(log, "wb") as output:
        process = subprocess.Popen([*map(str, command)], env=place.environment(**variables), cwd=place.folder,
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_for(lambda: "fired up and ready" in log.read_text(errors="replace") or process.poll() is not None, server.boot_s,
                 "the server")
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        return contract.transcript(f"http://127.0.0.1:{port}", dumps, lambda: log.read_text(errors="replace"))
    finally:
        for pid in place.survivors():
            with contextlib.suppress(ProcessLookupError):  # it went with its parent
                os.kill(pid, 9)
        process.wait()


@pytest.mark.real
def test_both_servers_keep_one_contract(place, servers, model):
    real, standin = (transcript(place, servers(name), model) for name in ("real", "standin"))
    different = contract.differences(real, standin)
    assert not different, "\n".join(different[:40])
