"""Files of MXNet, both ways.

    mxnet_files.py make FOLDER    writes the golden files of tests/formats/mxnet/data (mxnet 1.9.1)
    mxnet_files.py check STELE    MXNet and stele read the same arrays from files of each other
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import gluon

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")


def numbers(array):
    """Return values that do not depend on a generator."""
    return mx.nd.arange(array.size).reshape(array.shape) / 8


def net():
    """Return a Gluon model: a dense layer, a normalization with running statistics."""
    model = gluon.nn.HybridSequential()
    model.add(gluon.nn.Dense(3, in_units=2), gluon.nn.BatchNorm(in_channels=3))
    model.initialize()
    for parameter in model.collect_params().values():
        parameter.set_data(numbers(parameter.data()))
    return model


def checkpoint(folder):
    """Write the file of the Module API: `arg:` and `aux:` before the names."""
    data = mx.sym.Variable("data")
    fc = mx.sym.BatchNorm(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), name="bn", fix_gamma=False)
    shapes, _, aux = fc.infer_shape(data=(1, 2))
    args = {n: numbers(mx.nd.zeros(s)) for n, s in zip(fc.list_arguments(), shapes) if n != "data"}
    mx.model.save_checkpoint(str(folder / "module"), 0, fc, args,
                             {n: numbers(mx.nd.zeros(s)) for n, s in zip(fc.list_auxiliary_states(), aux)})
    (folder / "module-symbol.json").unlink()
    (folder / "module-0000.params").rename(folder / "module.params")


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    net().save_parameters(str(folder / "gluon.params"))
    checkpoint(folder)
    save = lambda name, content: mx.nd.save(str(folder / f"{name}.params"), content)
    save("dtypes", {t: mx.nd.array([[0, 1, 2], [3, 4, 5]], dtype=t) for t in DTYPES})
    save("list", [mx.nd.array([1, 2]), mx.nd.array([[3]], dtype="int8")])
    dense = mx.nd.array([[0, 1], [0, 0], [2, 3]])
    save("sparse", {"before": dense, "rows": dense.tostype("row_sparse"), "csr": dense.tostype("csr"), "after": dense})
    save("empty", {})
    mx.npx.set_np()
    flags = mx.np.array([True, False], dtype="bool")
    mx.npx.save(str(folder / "np.params"), {"scalar": mx.np.array(2.5), "none": mx.np.zeros((0, 3)), "flag": flags,
                                            "w": mx.np.array([[1, 2]])})
    mx.npx.reset_np()


def old_files():
    """Return files of the layouts that MXNet 1.9 only reads: without a magic number, and version 1."""
    data = struct.pack("<6f", *range(6))
    tail = struct.pack("<3i", 1, 0, 0) + data + struct.pack("<QQ", 1, 1) + b"w"
    head = struct.pack("<QQQ", 0x112, 0, 1)
    return {"v0": head + struct.pack("<3I", 2, 2, 3) + tail,
            "v1": head + struct.pack("<IIqq", 0xF993FAC8, 2, 2, 3) + tail}


def same(a, b):
    a, b = (a.asnumpy(), b.asnumpy()) if hasattr(a, "asnumpy") else (a, b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check(stele):
    def convert(*arguments):
        subprocess.run([stele, "convert", *arguments, "--quiet", "--allow-loss"], check=True)

    def through_numpy(path):
        """Return the arrays of a file as stele reads them."""
        convert(path, path.with_suffix(".npz"))
        with np.load(path.with_suffix(".npz")) as file:
            return {name: file[name] for name in file.files}

    def bare(name):
        return name.split(":", 1)[1] if name[:4] in ("arg:", "aux:") else name

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for name in ("gluon", "module", "dtypes"):
            source, copy, other = folder / f"{name}.params", folder / "copy.params", folder / "other.safetensors"
            expected = mx.nd.load(str(source))
            read = through_numpy(source)
            assert {bare(k) for k in expected} == set(read), name
            assert all(same(v.asnumpy(), read[bare(k)]) for k, v in expected.items()), name
            convert(source, copy)
            assert copy.read_bytes() == source.read_bytes(), f"{name}: the copy has other bytes"
            convert(source, other)
            convert(other, folder / "back.params")
            back = mx.nd.load(str(folder / "back.params"))
            assert all(same(v, back[bare(k)]) for k, v in expected.items()), name
            print(f"{name}: equal arrays, both ways")
        for name, content in old_files().items():
            path = folder / f"{name}.params"
            path.write_bytes(content)
            assert same(mx.nd.load(str(path))["w"].asnumpy(), through_numpy(path)["w"]), name
            print(f"{name}: equal arrays")
        convert(folder / "np.params", folder / "copy.params")
        assert (folder / "copy.params").read_bytes() == (folder / "np.params").read_bytes()
        convert(folder / "np.params", folder / "other.safetensors")
        convert(folder / "other.safetensors", folder / "back.params")
        mx.npx.set_np()
        expected, back = (mx.npx.load(str(folder / f"{n}.params")) for n in ("np", "back"))
        assert set(expected) == set(back) and all(same(v, back[k]) for k, v in expected.items())
        mx.npx.reset_np()
        print("np: equal arrays, both ways")
        # Into MXNet's own objects, after a format that has no prefixes.
        model = net()
        convert(folder / "gluon.params", folder / "other.safetensors")
        convert(folder / "other.safetensors", folder / "back.params")
        for parameter in model.collect_params().values():
            parameter.set_data(parameter.data() * 0 - 1)
        model.load_parameters(str(folder / "back.params"))
        for a, b in zip(model.collect_params().values(), net().collect_params().values()):
            assert same(a.data(), b.data()), a.name
        print("load_parameters: equal parameters")
        convert(folder / "module.params", folder / "m-0000.params")
        arguments, states = mx.model.load_params(str(folder / "m"), 0)
        assert set(arguments) == {"fc_weight", "fc_bias", "bn_gamma", "bn_beta"}
        assert set(states) == {"bn_moving_mean", "bn_moving_var"}
        print("load_params: equal names")


if __name__ == "__main__":
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
