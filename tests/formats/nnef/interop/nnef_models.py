#!/usr/bin/env python3
"""NNEF files that we wrote, read by the package `nnef` and by the C++ library in it.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/nnef/interop/nnef_models.py own FOLDER             what `interop_nnef write` made
    python3 tests/formats/nnef/interop/nnef_models.py copies COPIES THEIRS   what `interop_nnef copy` made of theirs

A .dat file passes when the package reads the values expected from it, and writes the same bytes for them.
"""

import pathlib
import re
import sys
import tarfile
import tempfile

import nnef
import numpy as np
from make_golden_nnef import TYPES, VARIABLES, dtype, header, logarithmic, min_max, stored, values


def counted(kind, shape):
    """As counted() in nnef.cpp."""
    if not kind.startswith("f"):
        return np.asarray(values(kind, shape))
    return (np.arange(int(np.prod(shape, dtype=np.int64))) % 7 - 2).astype(dtype(kind)).reshape(shape)


def same(path, expected, quantized=False):
    with open(path, "rb") as file:
        found, was_quantized = nnef.read_tensor(file, return_quantization=True)
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (path, found.dtype, found.shape)
    assert found.tobytes() == expected.tobytes() and was_quantized == quantized, path
    with tempfile.NamedTemporaryFile() as file:
        nnef.write_tensor(file, expected, quantized=quantized)
        file.flush()
        assert pathlib.Path(file.name).read_bytes() == path.read_bytes(), f"{path}: otherwise than the package's"


def in_graph(kind):
    return "scalar" if kind[0] in "fq" else "logical" if kind == "bool" else "integer"


def folder_same(folder, expected, quantization=None):
    """`expected`: label -> (kind, data). Returns the graph."""
    graph = nnef.load_graph(str(folder))
    labels = {}
    for operation in graph.operations:
        if operation.name == "variable":
            tensor = graph.tensors[operation.outputs["output"]]
            assert operation.attribs["label"] not in labels, operation
            labels[operation.attribs["label"]] = tensor
    assert labels.keys() == expected.keys(), sorted(labels.keys() ^ expected.keys())
    for label, (kind, data) in expected.items():
        tensor = labels[label]
        assert tensor.dtype == in_graph(kind), (label, tensor.dtype)
        assert tensor.data.dtype == data.dtype and tensor.shape == list(data.shape), label
        assert np.asarray(tensor.data).tobytes() == data.tobytes(), label
        same(folder / f"{label}.dat", data, quantized=kind[0] == "q")
        if quantization is not None:
            found = {key: np.asarray(value).tolist() for key, value in tensor.quantization.items()}
            assert current(found) == current(quantization.get(label, {})), (label, found)
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there - {"graph.nnef", "graph.quant"} == {f"{label}.dat" for label in expected}, there
    return graph


def unpacked(path, inside):
    """As nnef_tools does it, and no more than files and folders, in names that stay within."""
    with tarfile.open(path, "r:gz") as tar:
        for member in tar.getmembers():
            assert member.isreg() or member.isdir(), member
            assert not member.name.startswith("/") and ".." not in member.name.split("/"), member
        tar.extractall(inside, filter="data")
    return pathlib.Path(inside)


def quantization_of(folder):
    graph = nnef.load_graph(str(folder), load_variables=False)
    return {operation.attribs["label"]: {key: np.asarray(value).tolist() for key, value in quantization.items()}
            for operation in graph.operations if operation.name == "variable"
            for quantization in [graph.tensors[operation.outputs["output"]].quantization] if quantization}


def current(quantization):
    """Without the deprecated name of an operation."""
    if quantization.get("op-name") != "linear_quantize":
        return quantization
    return {**quantization, "op-name": "min_max_linear_quantize", "signed": False, "symmetric": False}


def in_cpp(folder, expected):
    """The values that the C++ reader has: outputs of the graph, as f32, i32 and bool."""
    graph = nnef.load_graph(str(folder))
    inputs = [np.zeros(operation.attribs["shape"], "f4") for operation in graph.operations
              if operation.name == "external"]
    with nnef.Session(str(folder), lowered=[]) as session:
        outputs = dict(zip(graph.outputs, session(*inputs)))
    labels = {operation.outputs["output"]: operation.attribs["label"] for operation in graph.operations
              if operation.name == "variable"}
    for identifier, found in outputs.items():
        kind, data = expected[labels[identifier]]
        wanted = data.astype({"scalar": "f4", "integer": "i4", "logical": "?"}[in_graph(kind)])
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted), identifier
    return len(outputs)


def quantized(folder):
    """A folder with a tensor that we quantized: what it means is near to what it was."""
    weight = np.sin((np.arange(256, dtype="f4") ** 2).astype("f4"), dtype="f4").reshape(8, 32)
    graph = nnef.load_graph(str(folder))
    found = {operation.attribs["label"]: graph.tensors[operation.outputs["output"]]
             for operation in graph.operations if operation.name == "variable"}
    assert found.keys() == {"weight", "bias"} and not found["bias"].quantization, found
    same(folder / "weight.dat", found["weight"].data, quantized=True)
    same(folder / "bias.dat", counted("f32", (7,)))
    how = dict(found["weight"].quantization)
    assert how["bits"] == 8 and found["weight"].data.dtype == np.uint8 and found["weight"].dtype == "scalar", how
    assert how.pop("op-name") in ("linear_quantize", "min_max_linear_quantize"), how
    assert not how.pop("signed", False) and not how.pop("symmetric", False), how
    step = (how["max"] - how["min"]) / 255
    assert np.isclose(how["min"], weight.min(), atol=1e-6) and np.isclose(how["max"], weight.max(), atol=1e-6), how
    error = np.abs(min_max(found["weight"].data, how["min"], how["max"], how["bits"]) - weight).max()
    assert error <= step * 0.501, (error, step)
    # As NNEF's own operation rounds them.
    rounded = np.round((weight - how["min"]) / (how["max"] - how["min"]) * 255)
    assert np.abs(rounded - found["weight"].data).max() <= 1


def own(folder):
    for kind in TYPES:
        same(folder / f"types/{kind}.dat", counted(kind, (3, 5)))
    expected = {f"{group}/{'mask' if kind == 'bool' else kind}": (kind, counted(kind, shape))
                for group, shape in (("flat", (3, 5)), ("scalars", ())) for kind in TYPES}
    for i in (1, 2):
        expected[f"layers/{i - 1}/weight"] = "f32", counted("f32", (i, 3))
        expected[f"layers/{i - 1}/bias"] = "f32", counted("f32", (i,))
    expected["rank8"] = "f32", counted("f32", (2, 3, 1, 2, 1, 2, 1, 2))
    folder_same(folder / "own.nnef", expected)
    with tempfile.TemporaryDirectory() as inside:
        folder_same(unpacked(folder / "own.nnef.tgz", inside), expected)
    quantized(folder / "quantized.nnef")
    with tempfile.TemporaryDirectory() as inside:
        quantized(unpacked(folder / "quantized.nnef.tgz", inside))
    plain = {"conv/weight": ("f32", counted("f32", (4, 2, 3, 3))), "conv/bias": ("f32", counted("f32", (1, 4))),
             "i32": ("i32", counted("i32", (7,))), "u8": ("u8", counted("u8", (2, 7))),
             "i16": ("i16", counted("i16", (7, 1))), "mask": ("bool", counted("bool", (11,)))}
    folder_same(folder / "plain.nnef", plain)
    print(f"{len(TYPES)} tensors, {len(expected)} in a folder and an archive, as expected; "
          f"{in_cpp(folder / 'plain.nnef', plain)} of {len(plain)} looked at in C++")


def lines(folder):
    """Of its expected.txt: path -> (kind, data, what they mean or None)."""
    for line in (folder / "expected.txt").read_text().splitlines():
        path, kind, shape, content, *real = line.split("\t")
        content = bytes.fromhex(content.replace("-", ""))
        extents = [] if shape == "-" else [int(n) for n in shape.split("x")]
        item = kind.removeprefix("q")
        if item[0] in "ui":
            item = f"{item[0]}{len(content) // max(int(np.prod(extents)), 1) * 8 or 8}"
        if item == "opaque":
            continue
        real = np.frombuffer(bytes.fromhex(real[0].replace("-", "")), "<f8").reshape(extents) if real else None
        yield path, kind, np.frombuffer(content, dtype(item)).reshape(extents), real


def meaning(data, how):
    if how["op-name"] == "logarithmic_quantize":
        return logarithmic(data, how["max"], how["bits"])
    assert current(how)["op-name"] == "min_max_linear_quantize", how
    return min_max(data, how["min"], how["max"], how["bits"], how.get("signed", False), how.get("symmetric", False))


def copies(folder, theirs):
    types = sorted((theirs / "types").iterdir())
    for path in types:
        kind = path.stem
        same(folder / "types" / path.name, values(kind.removeprefix("q"), (3, 5)), quantized=kind[0] == "q")
    expected = {label: (kind, stored(kind, shape)) for _, _, label, kind, shape, _, _ in VARIABLES}
    quantization = quantization_of(theirs / "model.nnef")
    assert len(quantization) == sum(q is not None for *_, q, _ in VARIABLES)
    for name in ("folder-folder.nnef", "tgz-folder.nnef", "tar-folder.nnef"):
        folder_same(folder / name, expected, quantization)
    for name in ("folder-tgz.nnef.tgz", "dot-tgz.nnef.tgz"):
        with tempfile.TemporaryDirectory() as inside:
            folder_same(unpacked(folder / name, inside), expected, quantization)
    text = "by_hand/text.nnef"
    folder_same(folder / "text.nnef", {path.removeprefix(f"{text}:"): (kind, data)
                                       for path, kind, data, _ in lines(theirs) if path.startswith(f"{text}:")},
                quantization_of(theirs / text))
    rewritten = 0
    for path, kind, data, real in lines(theirs):
        if not path.startswith("by_hand/") or not path.endswith(".dat"):
            continue
        copied = folder / path
        if real is not None:  # in a folder, with the operation of today
            if not copied.with_suffix(".nnef").exists():
                continue
            (how,) = quantization_of(copied.with_suffix(".nnef")).values()
            assert np.allclose(meaning(data, how), real, rtol=1e-12), path
        elif kind == "bool" and path.endswith("_8.dat"):  # of 8 bits still, all of them 0 or 1
            assert copied.read_bytes() == header(8, 5, data.shape, data.nbytes) + data.tobytes(), path
        elif re.search("0x|signed|provisional|four", path):  # older layouts become today's
            same(copied, data)
        else:
            assert copied.read_bytes() == (theirs / path).read_bytes(), path
        rewritten += 1
    for name in ("vendor.dat", "vendor_blocks.dat"):
        assert (folder / "by_hand" / name).read_bytes() == (theirs / "by_hand" / name).read_bytes(), name
    print(f"{len(types)} tensors, {len(expected)} in five copies of a model, {rewritten} files by hand, as expected")


if sys.argv[1] == "own":
    own(pathlib.Path(sys.argv[2]))
else:
    copies(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
