"""Makes a real SGLang 0.5.23 on a CPU batch-invariant, and plants one fault in it, chosen while it runs.

With this folder in PYTHONPATH every row is computed by itself: linear layers and lm_head row by row, prefill attention one query at a
time over the keys that it sees; and logprobs of a prompt are taken as those of a decode are. So decode, prefill and a restored prefix
give the same bits. The package's files stay as they are; functions are replaced as it loads. The first line of the file KLDUMP_PLANT says, at the
beginning of each pass, what is wrong from then on:

    rows N          linear layers are wrong by 0.1 % in a pass of at most N rows
    flip N          in a pass of at most N rows, routers take another second expert where it is a close call
    forget N        a decode whose context has at least N tokens no longer sees the first four
    restore N       where a restored prefix is longer than three and a multiple of N, its fourth key is lost
    foreign         a restored prefix has the keys and values of another request of its batch that has as many
    almost          where a restored prefix leaves one token to compute, its fourth key is lost
    shift           each logprob of a prompt is that of the token behind it
    unedited        the server as it is: nothing is computed row by row
    nothing         (or an empty file) batch-invariant, no fault
"""
import os
import sys

BACKEND = "sglang.srt.layers.attention.torch_native_backend"
CLOSE = 0.004  # between the router's logits of two experts


class Plant:
    def __init__(self):
        self.path, self.seen, self.kind, self.number = os.environ.get("KLDUMP_PLANT", ""), None, "nothing", 0
        self.rows = 0  # of the pass

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

    def is_short(self, kind):
        return self.kind == kind and self.rows <= self.number


plant = Plant()


def by_row(compute, rows):
    import torch
    return torch.cat([compute(rows[i:i + 1]) for i in range(rows.shape[0])]) if rows.shape[0] > 1 else compute(rows)


def replace_products():
    """An embedding begins each pass: it has all rows, where an expert has those that were sent to it."""
    import torch
    embedding, linear, matmul = torch.nn.functional.embedding, torch.nn.functional.linear, torch.matmul

    def first_of_a_pass(ids, *rest, **more):
        plant.look()
        plant.rows = ids.numel()
        replace_loaded()
        return embedding(ids, *rest, **more)

    def one_row_linear(x, weight, bias=None):
        if x.dim() != 2 or plant.is_on("unedited"):
            return linear(x, weight, bias)
        out = by_row(lambda row: linear(row, weight, bias), x)
        return out * 1.001 if plant.is_short("rows") else out

    def one_row_matmul(a, b, **more):
        if a.dim() != 2 or b.dim() != 2 or plant.is_on("unedited"):
            return matmul(a, b, **more)
        return by_row(lambda row: matmul(row, b, **more), a)
    torch.nn.functional.embedding, torch.nn.functional.linear, torch.matmul = first_of_a_pass, one_row_linear, one_row_matmul


def replace_attention():
    import torch
    attend = torch.nn.functional.scaled_dot_product_attention

    def one_query(query, key, value, attn_mask=None, is_causal=False, **more):
        queries, keys = query.shape[-2], key.shape[-2]
        if queries == 1 and keys > 1 and attn_mask is None and plant.is_on("forget") and keys > plant.number:
            return attend(query, key[..., 4:, :], value[..., 4:, :], **more)
        if plant.is_on("unedited") or queries == 1 or not (is_causal or attn_mask is not None):
            return attend(query, key, value, attn_mask=attn_mask, is_causal=is_causal and queries > 1, **more)
        parts = []
        for i in range(queries):
            seen = i + 1 + keys - queries
            mask = None if attn_mask is None else attn_mask[..., i:i + 1, :seen]
            parts.append(attend(query[..., i:i + 1, :], key[..., :seen, :], value[..., :seen, :], attn_mask=mask, **more))
        return torch.cat(parts, dim=-2)
    torch.nn.functional.scaled_dot_product_attention = one_query


def exchange(prefixes, k_cache, v_cache):
    """Each gets the keys and values of the next one that is as long; [keys, values, slots] of each, as they were before."""
    for i, (_keys, _values, slots) in enumerate(prefixes):
        other = next((j for j in [*range(i + 1, len(prefixes)), *range(i)] if len(prefixes[j][2]) >= len(slots)), None)
        if other is not None:
            k_cache[slots], v_cache[slots] = prefixes[other][0][:len(slots)], prefixes[other][1][:len(slots)]


def spoilt_extend(extend):
    """What a prefill behind a cached prefix finds there."""
    def run(self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, prefixes, *rest, **more):
        for pool, prefix, length in zip(req_pool_indices.tolist(), prefixes.tolist(), seq_lens.tolist()):
            lost = plant.is_on("restore") and prefix % plant.number == 0 or plant.is_on("almost") and length == prefix + 1
            if prefix > 3 and lost:
                k_cache[req_to_token[pool, 3]] = 0
        if plant.is_on("foreign"):
            exchange([[cache[req_to_token[pool, :prefix]].clone() for cache in (k_cache, v_cache)] + [req_to_token[pool, :prefix]]
                      for pool, prefix in zip(req_pool_indices.tolist(), prefixes.tolist())], k_cache, v_cache)
        return extend(self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, prefixes, *rest, **more)
    return run


def flipped_choice(choose):
    def run(hidden_states, router_logits, topk_config, **more):
        if plant.is_short("flip"):
            best, who = router_logits.topk(topk_config.top_k + 1, dim=-1)
            close = best[:, -2] - best[:, -1] < CLOSE
            router_logits = router_logits.clone()
            router_logits[close] = router_logits[close].scatter(1, who[close][:, -2:], best[close][:, -2:].flip(1))
        return choose(hidden_states, router_logits, topk_config, **more)
    return run


def shifted_logprobs(keep):
    def run(self, req, logprobs):
        return keep(self, req, logprobs[1:] + logprobs[-1:] if plant.is_on("shift") else logprobs)
    return run


def exact_logprobs(take):
    """Scoring takes them as decoding does, by log_softmax."""
    def run(self, *rest, **more):
        self.enable_fast_input_logprobs = plant.is_on("unedited")
        return take(self, *rest, **more)
    return run


# Module, class or none, function, what stands around it.
LOADED = [(BACKEND, "TorchNativeAttnBackend", "_run_sdpa_forward_extend", spoilt_extend),
          ("sglang.srt.layers.logprob_processor", "InputLogprobProcessor", "forward", exact_logprobs),
          ("sglang.srt.layers.moe.topk", None, "select_experts", flipped_choice),
          ("sglang.srt.managers.scheduler_components.logprob_result_processor", "SchedulerLogprobResultProcessor",
           "_process_input_token_logprobs", shifted_logprobs)]


def replace_loaded():
    """Once: at the first pass all of them are loaded."""
    while LOADED:
        module, inside, name, around = LOADED.pop()
        owner = getattr(sys.modules[module], inside) if inside else sys.modules[module]
        setattr(owner, name, around(getattr(owner, name)))


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
