"""Products of weights that an OpenVINO model decompresses, by OpenVINO: its CPU plugin computes the numbers."""

import sys
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import Shape, Tensor, Type, opset13 as op

sys.path.append(str(Path(__file__).parents[3] / "products"))
import comparison  # noqa: E402

PACKAGES = ["openvino", "numpy"]
PAGES = ["formats/openvino"]
DECODED = True
FILES = 8
CORE = ov.Core()
DIMENSIONS = {
    "weight": ["u8", "i8", "u4", "i4"],
    "weight's shape": [[3, 8], [3, 5], [4, 4], [1, 6], [6, 1], [1], [4], [3, 2, 4], [3, 2, 5], [2, 2, 2], [4, 3, 2, 2], [4, 1, 3, 3]],
    "scale": ["f16", "f32", "f16 converted", "bf16 converted"],
    "scale's shape": ["rows", "one", "scalar", "groups", "columns", "last axis", "elements"],
    "zero point": ["none", "same type", "u8", "i8", "f16", "scalar of the same type"],
    "inputs": ["in order", "scale first"],
    "weight's users": ["one", "two scales", "a Result"],
    "scale's users": ["one", "two weights"],
    "body": ["model", "If"],
}
READ = {"f32": "f32", "f16": "f16", "bf16": "bf16"} | {f"{sign}{bits}": f"{sign}{bits}" for sign in "iu" for bits in (4, 8, 64)}


def scale_shape(case):
    shape, ones = case["weight's shape"], [1] * len(case["weight's shape"])
    return {"rows": [shape[0]] + ones[1:], "one": ones, "scalar": [], "groups": shape[:-1] + [1], "columns": ones[:-1] + shape[-1:],
            "last axis": shape[-1:], "elements": shape}[case["scale's shape"]]


def possible(case):
    return case["zero point"] != "scalar of the same type" or scale_shape(case) != []


def constant(kind, shape, name, random):
    made = Tensor(getattr(Type, kind), Shape(shape))
    data = made.data.reshape(-1)
    if data.dtype.kind == "f":
        values = np.exp2(random.integers(-6, 3, data.size), dtype=np.float32) * random.choice(np.float32([1, 1.125, -1.75]), data.size)
        data[:] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.float16) if kind == "bf16" else values
    else:
        data[:] = random.integers(0, 256, data.size).astype(np.uint8).view(data.dtype)
    made = op.constant(made)
    made.set_friendly_name(name)
    return made


def decompressed(case, codes, zero, scale):
    of_type, _, converted = case["scale"].partition(" ")
    computed = np.float16 if of_type == "f16" and not converted else np.float32
    value = op.convert(codes, computed)
    if zero is not None:
        as_is = zero.get_element_type() == value.get_element_type()
        value = op.subtract(value, zero if as_is else op.convert(zero, computed))
    factor = op.convert(scale, np.float32) if converted else scale
    return op.multiply(factor, value) if case["inputs"] == "scale first" else op.multiply(value, factor)


def parts(case, prefix=""):
    """Return [(codes, zero point, scale)] of the weights of a graph."""
    random = np.random.default_rng(len(prefix) + 1)

    def some(name, codes=None, scale=None):
        codes = codes or constant(case["weight"], case["weight's shape"], name, random)
        scale = scale or constant(case["scale"].split()[0], scale_shape(case), name + "/scale", random)
        if (zero := case["zero point"]) == "none":
            return codes, None, scale
        kind = case["weight"] if "same type" in zero else zero
        return codes, constant(kind, [] if "scalar" in zero else scale_shape(case), name + "/zero_point", random), scale

    found = [some(prefix + "weight")]
    if case["weight's users"] == "two scales":
        found.append(some(prefix + "again", codes=found[0][0]))
    if case["scale's users"] == "two weights":
        found.append(some(prefix + "other", scale=found[0][2]))
    return found


def is_weight(case, codes, zero, scale):
    """Whether stele has one tensor for the parts: docs/formats/openvino.md."""
    if case["weight's users"] == "two scales" and codes.get_friendly_name().endswith("weight"):
        return False  # two tensors of the graph
    shape, of_scale = list(codes.get_output_shape(0)), list(scale.get_output_shape(0))
    rows = int(np.prod(shape[:-1]))
    if case["weight"].endswith("4") and shape[-1] % 2 and rows > 1:
        return False  # rows that are no whole bytes
    if zero is None or np.prod(zero.get_output_shape(0)) == 1:
        return True
    kind = zero.get_element_type().get_type_name()
    by_rows = rows > 1 and (of_scale[-1] == 1 and len(of_scale) == len(shape))
    return kind not in ("u4", "i4") or kind == case["weight"] == "u4" and by_rows


def stored(node):
    return READ[node.get_element_type().get_type_name()], list(node.get_output_shape(0)), node.data.tobytes()


def write(case, path):
    path = path.with_suffix(".xml")
    found = parts(case)
    values = [op.convert(decompressed(case, *one), np.float32) for one in found]
    if case["weight's users"] == "a Result":
        values.append(op.convert(found[0][0], np.float32))
    results, inputs, prefix = [op.result(value) for value in values], [], ""
    condition = op.parameter([], np.bool_, name="condition")
    if case["body"] == "If":
        prefix = "branch.then_body."
        branch = op.if_op(condition.output(0))
        branch.set_friendly_name("branch")
        branch.set_then_body(ov.Model(results, [], "then"))
        others = [op.result(op.parameter(list(value.get_output_shape(0)), np.float32)) for value in values]
        parameters = [result.input_value(0).get_node() for result in others]
        branch.set_else_body(ov.Model(others, parameters, "else"))
        for parameter in parameters:
            outer = op.parameter(list(parameter.get_output_shape(0)), np.float32)
            branch.set_input(outer.output(0), None, parameter)
            inputs.append(outer)
        results = [op.result(branch.set_output(a, b)) for a, b in zip(results, others)]
    model = ov.Model(results, [condition, *inputs], "net")
    ov.save_model(model, path, compress_to_fp16=False)

    run = CORE.compile_model(CORE.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    outputs = run([np.bool_(True), *(np.zeros(list(one.get_output_shape(0)), np.float32) for one in inputs)])
    expected, members = {}, set()
    order = path.read_text(encoding="utf-8")
    for i in sorted(range(len(found)), key=lambda i: order.index(f'name="{found[i][0].get_friendly_name()}"')):
        codes, zero, scale = found[i]
        # A scale belongs to one weight.
        if is_weight(case, codes, zero, scale) and scale.get_friendly_name() not in members:
            shape = list(codes.get_output_shape(0))
            expected[prefix + codes.get_friendly_name()] = outputs[i].reshape(shape)
            members |= {one.get_friendly_name() for one in (zero, scale) if one is not None}
    for node in {id(one): one for group in found for one in group if one is not None}.values():
        name = node.get_friendly_name()
        if name not in members and prefix + name not in expected:
            expected[prefix + name] = stored(node)
    return path, comparison.Expected(expected)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
