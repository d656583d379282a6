"""Pickles of Paddle and of NumPy.

    pickle_files.py make FOLDER    writes the golden files of tests/formats/pickle/data
    pickle_files.py check STELE    compares what the command reads with what Paddle and Python load
"""

import collections
import decimal
import inspect
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import paddle
from paddle.framework import io, io_utils
from safetensors.numpy import load_file


def numbers(state):
    """Return the tensors with values that do not depend on a generator."""
    for i, tensor in enumerate(state.values()):
        count = int(np.prod(tensor.shape))
        tensor.set_value((paddle.arange(count, dtype="float32").reshape(tensor.shape) / 8 + i).astype(tensor.dtype))
    return state


def network(dtype):
    paddle.utils.unique_name.switch()
    net = paddle.nn.Sequential(paddle.nn.Conv2D(1, 2, 3), paddle.nn.BatchNorm2D(2), paddle.nn.Linear(4, 3))
    net.to(dtype=dtype)
    numbers(net.state_dict())
    return net


def optimizer(net):
    rate = paddle.optimizer.lr.StepDecay(0.125, 3)
    adam = paddle.optimizer.Adam(learning_rate=rate, parameters=net.parameters())
    for parameter in net.parameters():
        parameter.grad = paddle.ones_like(parameter)
    adam.step()
    rate.step()
    return adam.state_dict()


def tensors():
    """Return what paddle.save stores as pairs of a name and an array."""
    return {"bf": paddle.to_tensor([1.5, -2], "bfloat16"), "nested": {"a": paddle.arange(6).reshape([2, 3])},
            "list": [paddle.ones([2]), 3, "x"], "scalar": paddle.to_tensor(2.5),
            "complex": paddle.to_tensor([1 + 2j]), "bool": paddle.to_tensor([True, False]),
            "numpy": np.asarray([1, 2], np.uint16), "epoch": 7, "name": "é"}


class Dense:
    """What paddle.save makes of a DenseTensor; PaddlePaddle 3.3.1 itself crashes."""

    def __reduce__(self):
        return eval, ("data", {"data": np.asarray([1, 2], np.float32)})


def sliced(folder, protocol):
    """Save by paddle.save with slices of at most 63 bytes instead of 2^30 - 1."""
    source = inspect.getsource(io_utils._unpack_saved_dict)
    assert "2**30 - 1" in source
    names = dict(vars(io_utils))
    exec(source.replace("2**30 - 1", "2**6 - 1"), names)
    whole, io._unpack_saved_dict = io._unpack_saved_dict, names["_unpack_saved_dict"]
    net = network("float32")
    paddle.save(net.state_dict(), str(folder / f"sliced{protocol}.pdparams"), protocol=protocol)
    io._unpack_saved_dict = whole


def arrays(protocol):
    types = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16"]
    made = {np.dtype(t).name: np.arange(3).astype(t) for t in types}
    made |= {t: np.arange(3).astype(t) for t in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")}
    tied = np.arange(200, dtype=np.uint8)
    made |= {"big": np.arange(6, dtype=">f4").reshape(2, 3), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
             "both": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)), "rank0": np.asarray(2.5, np.float16),
             "scalar": np.float32(1.5), "none": np.zeros((0, 3), np.float32), "tied": tied, "again": tied}
    return made


def values():
    return collections.OrderedDict(w=np.ones(2, np.float32), step=7, rate=0.5, name="é", flag=True, none=None,
                                   bytes=b"\x00\xff", empty={}, tuple=(1, 2), list=[1, [2, {"a": "b"}]],
                                   layers=[{"w": np.zeros(1, np.int8)}, {}], large=1 << 63, long="x" * 5000,
                                   **{"a.b": {10: 1}})


def others():
    return {"w": np.ones(2, np.float32), "objects": np.asarray([{}, None]), "strings": np.asarray(["a", "bc"]),
            "dates": np.asarray(["2020-01-01"], "M8[D]"), "fields": np.zeros(2, [("a", "f4"), ("b", "i4")]),
            "int4": np.ones(3, ml_dtypes.int4)}


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    net = network("float32")
    paddle.save(net.state_dict(), str(folder / "net.pdparams"))
    paddle.save(optimizer(net), str(folder / "net.pdopt"))
    paddle.save(network("bfloat16").state_dict(), str(folder / "bf16.pdparams"))
    for protocol in (2, 4):
        paddle.save(tensors(), str(folder / f"tensors{protocol}.pdparams"), protocol=protocol)
    paddle.save(paddle.ones([2, 2]), str(folder / "one.pdtensor"))
    (folder / "dense.pdparams").write_bytes(pickle.dumps({"w": Dense()}, 4))
    for protocol in (2, 3):
        sliced(folder, protocol)
    for protocol in (2, 3, 4, 5):
        (folder / f"arrays{protocol}.pkl").write_bytes(pickle.dumps(arrays(protocol), protocol))
    (folder / "values.pkl").write_bytes(pickle.dumps(values(), 4))
    (folder / "others.pkl").write_bytes(pickle.dumps(others(), 4))
    (folder / "array.pkl").write_bytes(pickle.dumps(np.arange(6, dtype=np.float32).reshape(2, 3), 5))
    foreign = {"w": np.ones(2, np.float32), "price": decimal.Decimal("1.5")}
    (folder / "foreign.pkl").write_bytes(pickle.dumps(foreign, 4))


def flat(prefix, content):
    """Return the arrays of nested containers by their names."""
    if hasattr(content, "numpy"):
        content = content.astype("float32").numpy() if content.dtype == paddle.bfloat16 else content.numpy()
    if isinstance(content, (np.ndarray, np.generic)):
        return {prefix: np.asarray(content)}
    items = enumerate(content) if isinstance(content, (list, tuple)) else ()
    items = content.items() if isinstance(content, dict) else items
    found = {}
    for key, value in items:
        found |= flat(f"{prefix}.{key}" if prefix else str(key), value)
    return found


def compare(stele, path, expected, work):
    out = work / "out.safetensors"
    subprocess.run([stele, "convert", path, out, "--allow-loss", "--quiet"], check=True)
    read = load_file(out)
    assert sorted(read) == sorted(expected), (path, sorted(read), sorted(expected))
    for name, value in expected.items():
        found = read[name]
        if found.dtype == ml_dtypes.bfloat16:
            value = value.astype(ml_dtypes.bfloat16)
        value = value.astype(value.dtype.newbyteorder("="))
        assert found.dtype == value.dtype and found.shape == value.shape, (path, name, found.dtype, value.dtype)
        assert found.tobytes() == np.ascontiguousarray(value).tobytes(), (path, name)


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for path in sorted(folder.glob("*.pdparams")) + sorted(folder.glob("*.pdopt")):
            compare(stele, path, flat("", paddle.load(str(path))), folder)
            print("read", path.name)
        for protocol in (2, 3, 4, 5):
            path = folder / f"arrays{protocol}.pkl"
            content = pickle.loads(path.read_bytes())
            # safetensors, or its reader for NumPy, lacks these.
            content = {k: v for k, v in content.items() if k != "complex128" and not k.startswith("float8")}
            path.write_bytes(pickle.dumps(content, protocol))
            expected = flat("", content)
            del expected["again"]  # a tie, which safetensors does not have
            compare(stele, path, expected, folder)
            print("read", path.name)
        compare(stele, folder / "values.pkl", flat("", values()), folder)
        print("read values.pkl")


if __name__ == "__main__":
    check(Path(sys.argv[2])) if sys.argv[1] == "check" else make(Path(sys.argv[2]))
