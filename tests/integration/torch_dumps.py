#!/usr/bin/env python3
"""Random files of torch.save and what their tensors hold, for torch_read.c to compare. Run by a python that has torch.

    torch_dumps.py FOLDER COUNT SEED

FOLDER/manifest has a line for each file: name, element type, offset and bytes in FOLDER/expected, sizes. What is expected is
taken from the storage's bytes by numpy's strides, not by torch, except for lazily conjugated and negated views.
"""
import random
import sys
import warnings

import numpy
import torch
from numpy.lib.stride_tricks import as_strided

DTYPES = """float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
    float4_e2m1fn_x2 complex128 complex64 complex32 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool bits8 bits16 bits1x8
    bits2x4 bits4x2""".split()
LAZY = {"complex128": torch.complex128, "complex64": torch.complex64}


class Subclass(torch.Tensor):
    pass


def storage_bytes(tensor):
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy() if len(storage) else numpy.zeros(0, numpy.uint8)


def expected(tensor):
    """The elements in row-major order."""
    width, raw = tensor.element_size(), storage_bytes(tensor)
    if tensor.numel() == 0:
        return b""
    items = raw[:len(raw) // width * width].view(f"V{width}")[tensor.storage_offset():]
    return as_strided(items, tuple(tensor.shape), tuple(s * width for s in tensor.stride())).tobytes()


def random_view(rng, name):
    """A tensor over random bytes: any rank, sizes, strides (0 too), offset."""
    dtype = getattr(torch, name)
    width = torch.empty(0, dtype=dtype).element_size()
    rank = rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5])
    sizes = [rng.choice([0, 1, 1, 2, 3, 5, 8, rng.randrange(1, 20)]) if rng.random() < 0.15 else rng.randrange(1, 9)
             for _ in range(rank)]
    kind = rng.choice(["contiguous", "contiguous", "permuted", "any"])
    strides, step = [0] * rank, 1
    order = list(range(rank))
    if kind == "permuted":
        rng.shuffle(order)
    for i in reversed(order):
        strides[i] = step
        step *= max(sizes[i], 1)
    if kind == "any":
        strides = [rng.choice([0, 1, rng.randrange(12)]) for _ in range(rank)]
    offset = rng.choice([0, 0, 0, rng.randrange(7)])
    reach = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides) if size) if 0 not in sizes else offset
    content = bytearray(rng.randbytes((reach + rng.randrange(3)) * width))
    if name == "bool":
        content = bytearray(byte & 1 for byte in content)
    storage = torch.UntypedStorage(len(content))
    if content:
        torch.empty(0, dtype=torch.uint8).set_(storage).copy_(torch.frombuffer(content, dtype=torch.uint8))
    return torch.empty(0, dtype=dtype).set_(storage, offset, tuple(sizes), tuple(strides))


def dress(rng, name, tensor):
    """What else may be around a tensor: (the value to save, the bytes expected)."""
    content = expected(tensor)
    chance = rng.random()
    if name in LAZY and chance < 0.3:
        tensor = tensor.conj()
        content = tensor.resolve_conj().contiguous().numpy().tobytes()
        if chance < 0.15:
            tensor = tensor.imag
            content = tensor.resolve_neg().contiguous().numpy().tobytes()
    elif name in ("float32", "bfloat16", "float64") and chance < 0.2:
        tensor = torch.nn.Parameter(tensor, requires_grad=chance < 0.1)
    elif name in ("float32", "int64") and chance < 0.3:
        tensor = tensor.as_subclass(Subclass)
    return tensor, content


def dump(rng, tensor, step):
    meta = {"step": step, "rank": 0, "dump_index": rng.randrange(1 << 40), "name": "x" * rng.randrange(300),
            "sglang_parallel_info": {"tp_rank": 0, "tp_size": -1, "error": None}, "float": rng.random()}
    if rng.random() < 0.2:
        meta["again"] = tensor.detach()  # two tensors, one storage
    if rng.random() < 0.2:
        meta["other"] = {"set": {1, 2}, "bytes": rng.randbytes(5), "dtype": torch.bfloat16, "size": torch.Size([1, 2]),
                         "device": torch.device("cuda", 1), "big": 1 << 90, "numpy": numpy.float64(3)}
    return tensor if rng.random() < 0.05 else {"value": tensor, "meta": meta}


def main():
    folder, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = random.Random(seed)
    position = 0
    with open(f"{folder}/manifest", "w", encoding="ascii") as manifest, open(f"{folder}/expected", "wb") as contents:
        def add(number, name, tensor, content, protocol=2):
            nonlocal position
            torch.save(dump(rng, tensor, number), f"{folder}/{number}.pt", pickle_protocol=protocol)
            contents.write(content)
            print(f"{number}.pt", name, position, len(content), *tensor.shape, file=manifest)
            position += len(content)

        for number in range(count):
            name = DTYPES[number % len(DTYPES)]
            tensor, content = dress(rng, name, random_view(rng, name))
            torch.serialization.set_crc32_options(number % 10 != 0)
            add(number, str(tensor.dtype).split(".")[1], tensor, content, rng.choice([2, 2, 2, 3, 4, 5]))
        large = [torch.randn(300, 1000), torch.randn(300, 1000).t(), torch.randn(700, 1000)[:, 100:357],
                 torch.randn(1, 1000).expand(400, 1000), torch.randint(0, 9, (1000000,)), torch.randn(2, 1000000, 2)[:, ::7, 1],
                 torch.randn(64, 64, 64).permute(2, 0, 1)]
        for number, tensor in enumerate(large, count):
            add(number, str(tensor.dtype).split(".")[1], tensor, tensor.contiguous().numpy().tobytes())


main()
