"""examples/state_probe.py in a small world with SGLang's names: a pool with three recurrent layers, a runner that restores. Needs torch
alone; where there is a GPU, the probe is captured into a CUDA graph as well, its thread printing meanwhile."""
import os
import sys
import types
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import state_probe  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SCALE = {"conv0": 2.0, "temporal": 1.1}


class Mode:
    def __init__(self, extend):
        self.extend = extend

    def is_extend(self):
        return self.extend

    def is_target_verify(self):
        return False


def batch(requests, lengths, extend=True):
    return types.SimpleNamespace(forward_mode=Mode(extend), req_pool_indices=torch.tensor(requests, dtype=torch.int32, device=DEVICE),
                                 extend_prefix_lens=torch.tensor(lengths, dtype=torch.int32, device=DEVICE))


def runner_class():
    cache = types.SimpleNamespace(conv=[torch.zeros(3, 8, 6, dtype=torch.bfloat16, device=DEVICE)],
                                  temporal=torch.zeros(3, 8, 4, 5, device=DEVICE))
    pool = types.SimpleNamespace(mamba_pool=types.SimpleNamespace(mamba_cache=cache), mamba_map={0: 0, 2: 1, 4: 2},
                                 get_mamba_indices=lambda requests: requests + 1, translate_mamba_indices=lambda slots: slots)

    class Runner:
        is_draft_worker = False
        req_to_token_pool = pool

        def _maybe_execute_deferred_mamba_cow_and_clear(self, forward_batch):
            slots, lengths = forward_batch.req_pool_indices.long() + 1, forward_batch.extend_prefix_lens
            for state, scale in ((cache.conv[0], SCALE["conv0"]), (cache.temporal, SCALE["temporal"])):
                shape = [1, -1] + [1] * (state.dim() - 2)
                state.index_copy_(1, slots, (-scale * lengths.to(state.dtype)).view(shape).expand(3, -1, *state.shape[2:]).contiguous())

    state_probe.install(Runner)
    return Runner


def expected(requests, lengths):
    for request, length in zip(requests, lengths):
        for layer in (0, 2, 4):
            for name, dtype in (("conv0", torch.bfloat16), ("temporal", torch.float32)):
                value = float((-SCALE[name] * torch.tensor([length]).to(dtype)).abs()[0])
                yield f"kldump-state rank=0 slot={request + 1} length={length} layer={layer} name={name} absmax={value!r} ;\n"


def main():
    said = os.dup(1)
    out, own = os.pipe()
    os.dup2(own, 1)  # the probe's lines
    printed = os.fdopen(out)

    def check(requests, lengths, what):
        for line in expected(requests, lengths):
            found = printed.readline()
            assert found == line, f"{what}: {found!r}, expected {line!r}"
        os.write(said, f"{what}: as expected\n".encode())

    runner = runner_class()()
    restore = runner._maybe_execute_deferred_mamba_cow_and_clear
    restore(batch([2, 5], [64, 96]))
    check([2, 5], [64, 96], "two requests")
    restore(batch([2], [64], extend=False))  # a decode: no line
    restore(batch([2], [0]))
    check([2], [0], "a cleared slot, and nothing for a decode before it")

    ring = state_probe.Ring(torch, DEVICE, rows=8)
    for count, lost, kept in ((3, 0, 3), (4, 0, 4), (2, 0, 2), (11, 7, 4)):
        ring.add(torch.arange(count, dtype=torch.float64, device=DEVICE)[:, None].expand(count, 4))
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        found_lost, rows = ring.take()
        assert (found_lost, [row[0] for row in rows]) == (lost, [float(i) for i in range(count - kept, count)]), (found_lost, rows)
    os.write(said, b"a ring that is too small: what is lost is counted\n")
    if DEVICE == "cuda":
        capture(restore, check)


def capture(restore, check):
    fresh = runner_class()()
    one = batch([3, 1], [32, 48])
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        restore(one)
    warm.synchronize()
    check([3, 1], [32, 48], "before the capture")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        restore(one)
        fresh._maybe_execute_deferred_mamba_cow_and_clear(one)
    assert getattr(fresh, state_probe.PLUGIN, None) is None
    for requests, lengths in (([3, 1], [32, 48]), ([0, 6], [7, 9]), ([6, 0], [5, 0])):
        again = batch(requests, lengths)
        one.req_pool_indices.copy_(again.req_pool_indices)
        one.extend_prefix_lens.copy_(again.extend_prefix_lens)
        graph.replay()
        check(requests, lengths, "a replay")


if __name__ == "__main__":
    main()
