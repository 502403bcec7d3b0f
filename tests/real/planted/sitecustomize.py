"""Makes a real SGLang 0.5.23 on a CPU batch-invariant, and plants one fault in it, chosen while it runs.

With this folder in PYTHONPATH (and SGLANG_ENABLE_FAST_INPUT_LOGPROBS=0) every row is computed by itself: linear layers and lm_head row
by row, prefill attention one query at a time over the keys that it sees, so that decode, prefill and a restored prefix give the same
bits. The package's files stay as they are; functions are replaced as it loads. The first line of the file KLDUMP_PLANT says what is
wrong from now on:

    rows N          linear layers are wrong by 0.1 % in a pass of at most N rows
    forget N        a decode whose context has at least N tokens no longer sees the first four
    restore N       where a restored prefix is longer than three and a multiple of N, its fourth key is lost
    foreign         a restored prefix has the keys and values of another request of its batch that has as many
    nothing         (or an empty file) batch-invariant, no fault
"""
import os
import sys

BACKEND = "sglang.srt.layers.attention.torch_native_backend"


class Plant:
    def __init__(self):
        self.path, self.seen, self.kind, self.number = os.environ.get("KLDUMP_PLANT", ""), None, "nothing", 0

    def look(self):
        try:
            now = os.stat(self.path).st_mtime_ns
        except OSError:
            return
        if now != self.seen:
            with open(self.path, encoding="ascii") as file:
                words = file.readline().split() or ["nothing"]
            self.seen, self.kind, self.number = now, words[0], int(words[1]) if len(words) > 1 else 0

    def is_on(self, kind):
        return self.kind == kind


plant = Plant()


def by_row(compute, rows):
    import torch
    return torch.cat([compute(rows[i:i + 1]) for i in range(rows.shape[0])]) if rows.shape[0] > 1 else compute(rows)


def replace_products():
    import torch
    linear, matmul = torch.nn.functional.linear, torch.matmul

    def one_row_linear(x, weight, bias=None):
        plant.look()
        replace_backend()
        if x.dim() != 2:
            return linear(x, weight, bias)
        out = by_row(lambda row: linear(row, weight, bias), x)
        return out * 1.001 if plant.is_on("rows") and x.shape[0] <= plant.number else out

    def one_row_matmul(a, b, **more):
        return by_row(lambda row: matmul(row, b, **more), a) if a.dim() == 2 and b.dim() == 2 else matmul(a, b, **more)
    torch.nn.functional.linear, torch.matmul = one_row_linear, one_row_matmul


def replace_attention():
    import torch
    attend = torch.nn.functional.scaled_dot_product_attention

    def one_query(query, key, value, attn_mask=None, is_causal=False, **more):
        queries, keys = query.shape[-2], key.shape[-2]
        if queries == 1 and keys > 1 and attn_mask is None and plant.is_on("forget") and keys > plant.number:
            return attend(query, key[..., 4:, :], value[..., 4:, :], **more)
        if not is_causal or attn_mask is not None:
            return attend(query, key, value, attn_mask=attn_mask, is_causal=is_causal, **more)
        return torch.cat([attend(query[..., i:i + 1, :], key[..., :i + 1 + keys - queries, :], value[..., :i + 1 + keys - queries, :], **more)
                          for i in range(queries)], dim=-2)
    torch.nn.functional.scaled_dot_product_attention = one_query


def exchange(prefixes, k_cache, v_cache):
    """Each gets the keys and values of the next one that is as long; [keys, values, slots] of each, as they were before."""
    for i, (_keys, _values, slots) in enumerate(prefixes):
        other = next((j for j in [*range(i + 1, len(prefixes)), *range(i)] if len(prefixes[j][2]) >= len(slots)), None)
        if other is not None:
            k_cache[slots], v_cache[slots] = prefixes[other][0][:len(slots)], prefixes[other][1][:len(slots)]


def replace_backend():
    """Once it is loaded: what a prefill behind a cached prefix finds there."""
    backend = getattr(sys.modules.get(BACKEND), "TorchNativeAttnBackend", None)
    if backend is None or hasattr(backend, "kldump_planted"):
        return
    extend = backend._run_sdpa_forward_extend

    def spoilt(self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, prefixes, *rest, **more):
        for pool, prefix in zip(req_pool_indices.tolist(), prefixes.tolist()):
            if plant.is_on("restore") and prefix > 3 and prefix % plant.number == 0:
                k_cache[req_to_token[pool, 3]] = 0
        if plant.is_on("foreign"):
            exchange([[cache[req_to_token[pool, :prefix]].clone() for cache in (k_cache, v_cache)] + [req_to_token[pool, :prefix]]
                      for pool, prefix in zip(req_pool_indices.tolist(), prefixes.tolist())], k_cache, v_cache)
        return extend(self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, prefixes, *rest, **more)
    backend._run_sdpa_forward_extend, backend.kldump_planted = spoilt, True


class Finder:
    """Finds nothing: it is asked when the attention backend is about to be loaded, and torch has been by then."""

    @staticmethod
    def find_spec(name, _path=None, _target=None):
        if name == BACKEND and "torch" in sys.modules:
            sys.meta_path.remove(Finder)
            replace_products()
            replace_attention()
        return None


if os.environ.get("KLDUMP_PLANT"):
    sys.meta_path.insert(0, Finder)
