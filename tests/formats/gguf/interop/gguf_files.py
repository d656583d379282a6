#!/usr/bin/env python3
"""GGUF files of gguf-py, each with a safetensors file of the values they decode to.

    gguf_files.py OUT

    v2.gguf v3.gguf      every plain type and every block type that gguf-py encodes; metadata of every type
    random.gguf          every block type that gguf-py decodes: random blocks with finite values; alignment 64
    split-0000N-of-00003.gguf    one set of tensors over three files
    big.gguf             big-endian, plain types only
    NAME.safetensors     the tensors: blocks, f16 and bf16 as float32, others as they are
    metadata.json        what v2.gguf and v3.gguf carry: key -> [type, value], or [type, element type, values]
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind
from gguf import gguf_writer, quants
from safetensors.numpy import save_file

ENCODED = [Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.TQ1_0, Type.TQ2_0, Type.MXFP4]
DECODED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K,
           Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS, Type.IQ3_S, Type.IQ1_S, Type.IQ1_M, Type.IQ4_NL, Type.IQ4_XS,
           Type.TQ1_0, Type.TQ2_0, Type.MXFP4, Type.NVFP4]

LIMITS = {Kind.UINT8: (0, 2**8 - 1), Kind.INT8: (-2**7, 2**7 - 1), Kind.UINT16: (0, 2**16 - 1), Kind.INT16: (-2**15, 2**15 - 1),
          Kind.UINT32: (0, 2**32 - 1), Kind.INT32: (-2**31, 2**31 - 1), Kind.UINT64: (0, 2**64 - 1),
          Kind.INT64: (-2**63, 2**63 - 1)}
SCALARS = {kind: high if kind.name[0] == "U" else low for kind, (low, high) in LIMITS.items()}
SCALARS |= {Kind.FLOAT32: 0.15625, Kind.FLOAT64: 1e-300, Kind.BOOL: True, Kind.STRING: "grüße, 世界"}
ARRAYS = {kind: [low, 0, 1, high] for kind, (low, high) in LIMITS.items()}
ARRAYS |= {Kind.FLOAT32: [0.0, -1.5, 2.0**-149, 3.4028234663852886e38], Kind.FLOAT64: [-0.0, 0.1, 5e-324],
           Kind.BOOL: [True, False, True], Kind.STRING: ["one", "", "two\nlines", "три"]}


def metadata():
    """key, type, element type of an array or None, value"""
    for kind, value in SCALARS.items():
        yield f"test.{kind.name.lower()}", kind, None, value
    for kind, value in ARRAYS.items():
        yield f"test.array.{kind.name.lower()}", Kind.ARRAY, kind, value
    yield "test.empty", Kind.STRING, None, ""
    yield "test.words", Kind.ARRAY, Kind.STRING, [f"word {i}" for i in range(1000)]


def plain(draw):
    yield "f32", draw.standard_normal((2, 3, 4, 5)).astype(np.float32)
    yield "f32.special", np.array([0.0, -0.0, np.inf, -np.inf, 2.0**-149, -3.4028235e38], np.float32)
    yield "f16", draw.standard_normal((3, 7)).astype(np.float16)
    yield "f64", draw.standard_normal((5, 1))
    for bits in (8, 16, 32, 64):
        limits = np.iinfo(f"i{bits // 8}")
        yield f"i{bits}", np.array([[limits.min, -1], [0, limits.max]], f"i{bits // 8}")


def decode(data, kind):
    return quants.dequantize(data, kind)


def random_blocks(draw, kind, rows, blocks):
    """Blocks of random bytes, drawn again until their values are finite."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    out = np.empty((rows, blocks, size), np.uint8)
    for row in range(rows):
        for block in range(blocks):
            while True:
                out[row, block] = draw.integers(0, 256, size, np.uint8)
                with np.errstate(all="ignore"):
                    if np.isfinite(decode(out[row, block][None, :], kind)).all():
                        break
    return out.reshape(rows, blocks * size)


class File:
    def __init__(self, path, **options):
        self.path = path
        self.writer = gguf.GGUFWriter(path, "test", **options)
        self.values = {}

    def add(self, name, data, kind=None):
        """Tensors of blocks come as rows of bytes, with their kind."""
        self.writer.add_tensor(name, data.copy(), raw_dtype=kind)  # the writer swaps the bytes in place for big-endian
        if kind is not None:
            self.values[name] = decode(data, kind)
        else:
            self.values[name] = data.astype(np.float32) if data.dtype == np.float16 else data

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        save_file(self.values, self.path.with_suffix(".safetensors"))


def make_types(out, version):
    gguf_writer.GGUF_VERSION = version
    file = File(out / f"v{version}.gguf")
    for key, kind, sub, value in metadata():
        file.writer.add_key_value(key, value, kind, sub_type=sub)
    draw = np.random.default_rng(1)
    for name, data in plain(draw):
        file.add(name, data)
    for kind in ENCODED:
        values = (draw.standard_normal((3, 512)) * draw.choice([0.01, 1, 30], (3, 1))).astype(np.float32)
        file.add(kind.name.lower(), quants.quantize(values, kind), kind)
    file.close()
    gguf_writer.GGUF_VERSION = gguf.GGUF_VERSION


def make_random(out):
    file = File(out / "random.gguf")
    file.writer.add_custom_alignment(64)
    draw = np.random.default_rng(2)
    for kind in DECODED:
        file.add(kind.name.lower(), random_blocks(draw, kind, 3, 2), kind)
    file.close()


def make_split(out):
    file = File(out / "split.gguf", split_max_tensors=3)
    file.writer.add_name("split")
    draw = np.random.default_rng(3)
    for i in range(8):
        file.add(f"layer.{i}.weight", draw.standard_normal((4, 5 + i)).astype(np.float32))
    file.add("blocks", quants.quantize(draw.standard_normal((2, 64)).astype(np.float32), Type.Q8_0), Type.Q8_0)
    file.close()


def make_big(out):
    file = File(out / "big.gguf", endianess=gguf.GGUFEndian.BIG)
    for name, data in plain(np.random.default_rng(4)):
        file.add(name, data)
    file.close()


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    make_types(out, 2)
    make_types(out, 3)
    make_random(out)
    make_split(out)
    make_big(out)
    kinds = {key: [*(k.name.lower() for k in (kind, sub) if k is not None), value] for key, kind, sub, value in metadata()}
    kinds["general.architecture"] = ["string", "test"]
    (out / "metadata.json").write_text(json.dumps(kinds, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


main()
