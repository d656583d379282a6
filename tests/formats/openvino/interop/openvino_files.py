"""OpenVINO IR, both ways.

    openvino_files.py make FOLDER            writes the golden files of tests/formats/openvino/data (OpenVINO 2026.4.1)
    openvino_files.py check STELE INTO       compares the constants that stele and OpenVINO read, and reads what INTO
                                             (interop_openvino) writes into models
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino import Shape, Tensor, Type

NUMPY = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
         "uint8", "bool")
PACKED = ("u1", "u2", "u3", "u4", "u6", "i4", "nf4", "f4e2m1")
FLOATS = ("bf16", "f8e4m3", "f8e5m2", "f8e8m0")


keep = []


def packed(value, shape, type):
    """Return a tensor of elements narrower than a byte; it refers to the array."""
    keep.append(value)
    return Tensor(value, Shape(shape), type)


def constant(value, name, type=None, shape=None):
    if type is None:
        made = op.constant(value)
    elif shape is None:
        made = op.constant(value, dtype=type)
    else:
        made = op.constant(packed(value, shape, type))
    made.set_friendly_name(name)
    return made


def types():
    """Constants of every type, and of special shapes and names."""
    all = [constant(np.arange(6).reshape(2, 3).astype(t), t) for t in NUMPY]
    for t in PACKED:
        bits = getattr(Type, t).bitwidth
        all.append(constant((np.arange(2 * bits) * 7 + 1).astype(np.uint8), t, getattr(Type, t), [4, 4]))
    all += [constant([1.0, 2.0, 0.5, 4.0], t, getattr(Type, t)) for t in FLOATS]
    all += [constant(Tensor(["a", "", "hello"]), "strings"), constant(np.float32(3.5), "scalar"),
            constant(np.zeros((0, 3), np.float32), "empty")]
    all += [constant(np.ones(2, np.float32), name) for name in ("twice", "twice", "odd <&\"'> é\n\tname")]
    return ov.Model([op.result(c) for c in all], [], "types")


def net(scale=1.0):
    """A layer, and a branch whose bodies have constants of the same name."""
    x = op.parameter([1, 4], np.float32, name="x")
    condition = op.parameter([], np.bool_, name="condition")
    weight = constant(np.arange(12, dtype=np.float32).reshape(3, 4) * np.float32(scale) / 8, "fc.weight")
    bias = constant(np.arange(3, dtype=np.float32) * np.float32(scale), "fc.bias")
    y = op.add(op.matmul(x, weight, False, True), bias)
    bodies, inputs = [], []
    for name, operation, values in (("then", op.add, [1, 2, 3]), ("else", op.multiply, [3, 4, 5])):
        inner = op.parameter([1, 3], np.float32, name="inner")
        w = constant(np.array(values, np.float32) * np.float32(scale), "w")
        bodies.append(ov.Model([operation(inner, w)], [inner], name))
        inputs.append(inner)
    branch = op.if_op(condition.output(0))
    branch.set_then_body(bodies[0])
    branch.set_else_body(bodies[1])
    branch.set_input(y.output(0), *inputs)
    out = branch.set_output(bodies[0].results[0], bodies[1].results[0])
    branch.set_friendly_name("branch")
    norms = [constant(np.full(3, 5, np.float32), f"norm{i}") for i in range(2)]  # stored once
    return ov.Model([op.result(op.add(op.multiply(out, norms[0]), norms[1]))], [x, condition], "net")


def weight(codes, scale, zero, name, shape=None):
    """Decompress a weight as NNCF's models do."""
    w = op.convert(codes, np.float16)
    codes.set_friendly_name(name)
    if zero is not None:
        zero.set_friendly_name(name + "/zero_point")
        w = op.subtract(w, op.convert(zero, np.float16))
    s = constant(scale, name + "/scale")
    w = op.multiply(w, s, name=name + "/fq_weights_1")
    if shape is not None:
        w = op.reshape(w, np.array(shape, np.int64), False)
    return op.convert(w, np.float32)


def compressed():
    """Weights of 8 and 4 bits, with scales for rows and for groups."""
    rng = np.random.default_rng(7)
    f16 = lambda *values: np.array(values, np.float16)
    bytes8 = rng.integers(0, 256, (3, 4)).astype(np.uint8)
    asym = weight(op.constant(bytes8), f16(.5, .25, 2).reshape(3, 1),
                  op.constant(np.array([[120], [128], [130]], np.uint8)), "asym8")
    sym = weight(op.constant(bytes8.view(np.int8)), f16(.5, .25, 3).reshape(3, 1), None, "sym8")
    nibbles = rng.integers(0, 256, 12).astype(np.uint8)
    grouped = weight(op.constant(packed(nibbles, [3, 2, 4], Type.i4)), f16(1, 2, 3, 4, 5, 6).reshape(3, 2, 1), None,
                     "sym4", [3, 8])
    one = weight(op.constant(packed(nibbles, [3, 2, 4], Type.u4)), f16(1, 2, 3, 4, 5, 6).reshape(3, 2, 1),
                 op.constant(packed(np.array([8], np.uint8), [], Type.u4)), "one4", [3, 8])
    zeros = weight(op.constant(packed(nibbles, [3, 2, 4], Type.u4)), f16(1, 2, 3, 4, 5, 6).reshape(3, 2, 1),
                   op.constant(packed(np.array([0x21, 0x43, 0x65], np.uint8), [3, 2, 1], Type.u4)), "asym4",
                   [3, 8])
    results = [op.result(w) for w in (asym, sym, grouped, one, zeros)]
    return ov.Model(results, [], "compressed")


MODELS = {"types": types, "net": net, "compressed": compressed}


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in MODELS.items():
        ov.save_model(model(), folder / f"{name}.xml", compress_to_fp16=False)
    # What OpenVINO computes for the compressed weights.
    model = ov.Core().compile_model(compressed(), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for name, values in zip(("asym8", "sym8", "sym4", "one4", "asym4"), model([]).values()):
        (folder / f"{name}.f32").write_bytes(values.astype(np.float32).tobytes())


def constants(model, prefix=""):
    """Return the constants of a model that OpenVINO has read, by stele's names."""
    found = {}
    for node in model.get_ops():
        name = prefix + node.get_friendly_name()
        if node.get_type_name() == "Constant":
            found[name + "#" if name in found else name] = node
        for body in ("then_body", "else_body"):
            if node.get_type_name() == "If":
                inner = node.get_then_body() if body == "then_body" else node.get_else_body()
                found |= constants(inner, f"{name}.{body}.")
    return found


def safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]])
            for k, v in header.items()}


def check(stele, into):
    core = ov.Core()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for name in MODELS:
            for ending in (".xml", ".bin"):
                subprocess.run([into, "stored", folder / (name + ending), folder / "out"], check=True)
                theirs = constants(core.read_model(folder / f"{name}.xml"))
                lines = (folder / "out").read_text().splitlines()
                ours = {re.sub(r"#\d+$", "#", bytes.fromhex(n).decode()): rest for n, *rest in map(str.split, lines)}
                if set(theirs) != set(ours):
                    sys.exit(f"{name}: other names: {sorted(ours)} and {sorted(theirs)}")
                unreadable = 0
                for key, node in theirs.items():
                    dtype, shape, values = ours[key]
                    if dtype == "opaque":
                        unreadable += 1
                        continue
                    if shape != str(list(node.get_output_shape(0))).replace(" ", ""):
                        sys.exit(f"{name}: {key} has the shape {shape}")
                    if bytes.fromhex(values[1:]) != node.data.tobytes():
                        sys.exit(f"{name}: {key} ({dtype}): {values} and {node.data.tobytes().hex()}")
                print(f"{name}{ending}: {len(theirs)} constants, {unreadable} unreadable")
        # Composite tensors.
        subprocess.run([stele, "convert", folder / "compressed.xml", folder / "w.safetensors",
                        "--quiet", "--allow-loss"], check=True)
        weights = safetensors(folder / "w.safetensors")
        for name in ("asym8", "sym8", "sym4", "one4", "asym4"):
            expected = np.frombuffer((folder / f"{name}.f32").read_bytes(), np.float32)
            assert weights[name][0] == "F32", name
            np.testing.assert_array_equal(np.frombuffer(weights[name][2], np.float32), expected)
            print(f"{name}: OpenVINO's numbers")
        # New weights into the model.
        ov.save_model(net(3.0), folder / "other.xml", compress_to_fp16=False)
        (folder / "new").mkdir()
        subprocess.run([into, "into", folder / "net.xml", folder / "other.xml", folder / "new" / "net.xml"], check=True)
        x = np.array([[1, 2, 3, 4]], np.float32)
        for condition in (True, False):
            results = [list(core.compile_model(core.read_model(path), "CPU")([x, np.bool_(condition)]).values())[0]
                       for path in (folder / "new" / "net.xml", folder / "other.xml", folder / "net.xml")]
            np.testing.assert_array_equal(results[0], results[1])
            assert not np.array_equal(results[0], results[2])
        theirs = constants(core.read_model(folder / "new" / "net.xml"))
        for key, node in constants(core.read_model(folder / "other.xml")).items():
            np.testing.assert_array_equal(theirs[key].data, node.data)
        print("into: OpenVINO computes with the new weights")


if __name__ == "__main__":
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(*sys.argv[2:])
