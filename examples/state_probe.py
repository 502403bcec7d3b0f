#!/usr/bin/env python3
"""A probe for SGLang servers of models with recurrent layers: prints what state each slot got before a prefill.

  state_probe.py FOLDER                      makes FOLDER a plugin of SGLang; then start the server with it:
  PYTHONPATH=FOLDER python3 -m sglang.launch_server ...

Each state is a line on standard output, for `kldumpctl state-diff`:

  kldump-state rank=0 slot=3 length=128 layer=2 name=temporal absmax=1.25 ;

slot is the place in the pool, length the tokens that the state is said to stand for (the cached prefix; 0: a cleared
slot), absmax the largest magnitude in it, with all its digits.

The place: behind ModelRunner._maybe_execute_deferred_mamba_cow_and_clear (SGLang 0.5.23), which every prefill passes,
eager or as a graph, whatever gave it its prefix: slots have been copied or cleared there, and no layer has read them.

It is safe under CUDA graph capture. Nothing waits for the device: what is measured goes into a buffer that was made
before, by operations of the device alone (the place in the buffer too is counted on the device), so that they can be
captured, and write again with each replay. From there it is copied to pinned memory in the order of the stream, the
counter last; a thread reads that memory and prints. The thread never calls CUDA, so it cannot break a capture.
"""
import os
import shutil
import sys
import threading

ROWS = 16384  # of the buffer; a pass of more than half of it loses its first rows, and says so
POLL_S = 0.05  # a device writes pinned memory without an event that could be waited for without calling CUDA
METHOD = "_maybe_execute_deferred_mamba_cow_and_clear"
PLUGIN = "kldump_state_probe"


class Ring:
    """Rows (slot, length, part, absmax) that a device writes and `take` reads without calling it."""

    def __init__(self, torch, device, rows=ROWS):
        pin = torch.device(device).type == "cuda"
        self.rows = rows
        self.steps = torch.arange(rows // 2, device=device)
        self.values = torch.zeros(rows, 4, dtype=torch.float64, device=device)
        self.next = torch.zeros(1, dtype=torch.int64, device=device)
        self.host_values = torch.zeros(rows, 4, dtype=torch.float64, pin_memory=pin)
        self.host_next = torch.zeros(1, dtype=torch.int64, pin_memory=pin)
        self.seen_values, self.seen_next, self.taken = self.host_values.numpy(), self.host_next.numpy(), 0

    def add(self, new):
        kept = new[-(self.rows // 2):]
        at = (self.next + (new.shape[0] - kept.shape[0]) + self.steps[:kept.shape[0]]) % self.rows
        self.values.index_copy_(0, at, kept)
        self.next.add_(new.shape[0])
        self.host_values.copy_(self.values, non_blocking=True)
        self.host_next.copy_(self.next, non_blocking=True)

    def take(self):
        """(rows lost, new rows)"""
        last = int(self.seen_next[0])
        first = max(self.taken, last - self.rows // 2)
        lost, self.taken = first - self.taken, last
        return lost, [self.seen_values[i % self.rows].tolist() for i in range(first, last)]


class Probe:
    def __init__(self, torch, pool, rank):
        cache = pool.mamba_pool.mamba_cache
        states = [(f"conv{i}", conv) for i, conv in enumerate(cache.conv)] + [("temporal", cache.temporal)]
        self.torch, self.rank = torch, rank
        self.parts = [(layer, name, state[index]) for layer, index in pool.mamba_map.items()
                      for name, state in states if state.numel() > 0]
        self.numbers = torch.arange(len(self.parts), dtype=torch.float64, device=cache.temporal.device)
        self.ring = Ring(torch, cache.temporal.device)
        threading.Thread(target=self.print_for_ever, name=PLUGIN, daemon=True).start()

    def measure(self, slots, lengths):
        """Slot by slot, each with all its parts."""
        largest = [part.index_select(0, slots).flatten(1).abs().amax(1) for _, _, part in self.parts]
        values = self.torch.stack([one.to(self.torch.float64) for one in largest], 1)
        columns = (slots[:, None], lengths[:, None], self.numbers[None, :], values)
        self.ring.add(self.torch.stack([c.to(self.torch.float64).expand(values.shape) for c in columns], 2).reshape(-1, 4))

    def print_new(self):
        lost, rows = self.ring.take()
        lines = [f"kldump-state rank={self.rank} lost={lost} ;\n"] if lost else []
        for slot, length, part, absmax in rows:
            layer, name, _ = self.parts[int(part)]
            lines.append(f"kldump-state rank={self.rank} slot={int(slot)} length={int(length)} layer={layer} name={name} "
                         f"absmax={absmax!r} ;\n")
        for line in lines:  # a write of its own for each: whole in a pipe, whoever else writes there
            os.write(1, line.encode())

    def print_for_ever(self):
        never = threading.Event()
        while not never.wait(POLL_S):
            self.print_new()


def behind_restore(runner, batch):
    import torch
    pool, mode = runner.req_to_token_pool, batch.forward_mode
    if runner.is_draft_worker or not hasattr(pool, "mamba_pool") or not mode.is_extend() or mode.is_target_verify():
        return
    probe = getattr(runner, PLUGIN, None)
    if probe is None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return  # buffers cannot be made now; the first pass that is not captured makes them
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        probe = Probe(torch, pool, rank)
        setattr(runner, PLUGIN, probe)
    lengths = batch.extend_prefix_lens
    slots = pool.translate_mamba_indices(pool.get_mamba_indices(batch.req_pool_indices))
    count = min(len(lengths), len(slots))
    probe.measure(slots[:count].long(), lengths[:count])


def install(model_runner=None):
    """Called by SGLang's load_plugins in each of its processes."""
    if model_runner is None:
        from sglang.srt.model_executor.model_runner import ModelRunner as model_runner
    restore = getattr(model_runner, METHOD, None)
    if restore is None:
        raise RuntimeError(f"state_probe: this release has no ModelRunner.{METHOD}; look for the place where it copies "
                           "and clears the slots of a prefill")

    def restore_and_measure(runner, forward_batch):
        restore(runner, forward_batch)
        behind_restore(runner, forward_batch)

    setattr(model_runner, METHOD, restore_and_measure)


def make_plugin(folder):
    notes = os.path.join(folder, f"{PLUGIN}-1.dist-info")
    os.makedirs(notes, exist_ok=True)
    shutil.copyfile(os.path.abspath(__file__), os.path.join(folder, f"{PLUGIN}.py"))
    with open(os.path.join(notes, "METADATA"), "w", encoding="utf-8") as file:
        file.write(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1\n")
    with open(os.path.join(notes, "entry_points.txt"), "w", encoding="utf-8") as file:
        file.write(f"[sglang.srt.plugins]\n{PLUGIN} = {PLUGIN}:install\n")
    print(f"start the server with PYTHONPATH={os.path.abspath(folder)}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    make_plugin(sys.argv[1])
