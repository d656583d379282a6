#!/usr/bin/env python3
"""Decode weights of quantized checkpoints with stele and with the packages that wrote them, in one run, on one thread.

    PYTHONPATH=build/python/python PYTHON benchmarks/quantized.py [ROWS COLUMNS]

PYTHON has the packages of tests/interop/quantized/make.py. Prints GB/s of f32 for each, and the ratio. The weights are in
memory; both decode to f32. Best of five.
"""
import sys
import time

import numpy as np
import torch

import stele

N, K = (int(x) for x in sys.argv[1:3]) if len(sys.argv) > 2 else (4096, 4096)
torch.set_num_threads(1)


def best(function):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return 4 * N * K / min(times) / 1e9, result


def fp8(parts):
    blocks = parts["fc.weight_scale_inv"].repeat_interleave(128, 0).repeat_interleave(128, 1)
    return lambda: parts["fc.weight"].float() * blocks[:N, :K]


def compressed(parts, scheme):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    kinds = {
        "int4": ("pack-quantized", dict(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True)),
        "nvfp4": ("nvfp4-pack-quantized", dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)),
        "mxfp4": ("mxfp4-pack-quantized", dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True)),
    }
    name, arguments = kinds[scheme]
    compressor = BaseCompressor.get_value_from_registry(name)
    args = QuantizationArgs(**arguments)
    state = {key.removeprefix("fc."): value for key, value in parts.items()}
    return lambda: compressor.decompress(dict(state), QuantizationScheme(targets=["Linear"], weights=args))


def gptq(parts):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    layer = TorchLinear(bits=4, group_size=128, sym=True, desc_act=False, in_features=K, out_features=N, bias=False, register_buffers=True)
    for key in ("qweight", "qzeros", "scales", "g_idx"):
        getattr(layer, key).copy_(parts[f"fc.{key}"])
    layer.post_init()
    return lambda: layer.dequantize_weight().float()


def nf4(parts):
    from bitsandbytes.functional import QuantState, dequantize_4bit
    state = QuantState(absmax=parts["fc.weight.absmax"], shape=torch.Size((N, K)), code=parts["fc.weight.quant_map"], blocksize=64,
                       quant_type="nf4", dtype=torch.float32)
    return lambda: dequantize_4bit(parts["fc.weight"], state)


weights = {"fc.weight": np.random.default_rng(1).standard_normal((N, K)).astype(np.float32)}
print(f"{'scheme':8} {'stele':>8} {'package':>8}  ratio   (GB/s of f32, [{N}, {K}])")
for scheme, package in (("fp8", fp8), ("int4", lambda p: compressed(p, "int4")), ("nvfp4", lambda p: compressed(p, "nvfp4")),
                        ("mxfp4", lambda p: compressed(p, "mxfp4")), ("gptq", gptq), ("nf4", nf4)):
    data = stele.save(weights, None, format="safetensors", quantize=scheme)
    file = stele.open(data)
    parts = {name: tensor.torch().clone() for name, tensor in stele.open(data, parts=True).items()}
    out = np.empty((N, K), np.float32)
    ours, _ = best(lambda: file["fc.weight"].read_into(out))
    try:
        with torch.inference_mode():
            theirs, _ = best(package(parts))
        print(f"{scheme:8} {ours:8.2f} {theirs:8.2f}  {ours / theirs:.2f}")
    except Exception as error:  # a package that is missing, or has changed
        print(f"{scheme:8} {ours:8.2f}  not run: {type(error).__name__}: {str(error)[:100]}")
