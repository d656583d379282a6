"""Products of OpenVINO's IR, by OpenVINO."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import Shape, Tensor, Type, opset13 as op

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["openvino", "numpy"]
PAGES = ["formats/openvino"]
READ = {"f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "f8e4m3": "f8_e4m3fn", "f8e5m2": "f8_e5m2", "f8e8m0": "f8_e8m0",
        "f4e2m1": "f4_e2m1", "boolean": "bool"} | {f"{sign}{bits}": f"{sign}{bits}" for sign in "iu" for bits in (4, 8, 16, 32, 64)}
UNREAD = ["u1", "u2", "u3", "u6", "nf4", "string"]
DIMENSIONS = {
    "type": list(READ) + UNREAD,
    "shape": [[3, 5], [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 31, [257]],
    "writer": ["save_model", "save_model to f16", "serialize", "serialize version 10"],
    "opened": [".xml", ".bin"],
    "place": ["model", "If", "If in If", "Loop", "TensorIterator"],
    "shared": ["no", "one constant", "equal bytes", "equal bytes of another type", "equal begin"],
    "name": ["weight", "a.b", "a/b", "日本語", "twice", " x\n\t<&\"'>", "..", "a#1", "weight#3", "x" * 300],
    "members": [1, 0, 9, 101],
    "user": ["Result", "Convert", "Reshape"],
    "rt_info": ["none", "of constants", "of the model"],
}
CORE = ov.Core()
DECODED = True
FILES = 20
SPECIAL = [0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF]
BODIES = {"If": [("then_body", "get_then_body"), ("else_body", "get_else_body")], "Loop": [("body", "get_function")],
          "TensorIterator": [("body", "get_body")]}


def possible(case):
    if case["type"] == "string" and (case["user"] != "Result" or len(case["shape"]) != 1):
        return False  # Constant.data has one axis
    if case["name"] == "twice" and case["user"] != "Result":
        return False  # which one it is, the user's name says
    return not (case["type"] == "string" and case["shared"] == "equal bytes of another type")


def hides(case):
    return case["type"] in UNREAD or case["members"] == 0


def elements(case, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    kind, shape = getattr(Type, case["type"]), case["shape"]
    count = int(np.prod(shape))
    if case["type"] == "string":
        return Tensor([["", "é", "x" * 40][(i + seed) % 3] for i in range(count)])
    random = np.random.default_rng(seed)
    made = Tensor(kind, Shape(shape))
    data = made.data.reshape(-1).view(np.uint8)
    data[:] = random.integers(0, 2 if case["type"] == "boolean" else 256, data.size)
    if kind.bitwidth == 64 and count > 6:
        data[:48] = np.frombuffer(np.array(SPECIAL, "<u8").tobytes(), np.uint8)
    return made


def constant(values, name, case):
    made = op.constant(values)
    made.set_friendly_name(name)
    if case["rt_info"] == "of constants":
        made.get_rt_info()["note"] = "a <note>"
    return made


def other_type(values):
    """The same bytes as another type of the same width: OpenVINO stores them once."""
    made = Tensor(Type.i8, Shape([values.byte_size]))
    made.data[:] = values.data.reshape(-1).view(np.uint8).view(np.int8)
    return made


def constants(case, prefix=""):
    """Return [(constant, name of its user)]."""
    made = []
    for i in range(case["members"]):
        name = case["name"] + (str(i) if i and case["name"] != "twice" else "")
        values = elements(case, i + len(prefix))
        made.append(constant(values, name, case))
        match case["shared"]:
            case "one constant":
                made.append(made[-1])
            case "equal bytes":
                made.append(constant(values, name + " again", case))
            case "equal bytes of another type":
                made.append(constant(other_type(values), name + " again", case))
            case "equal begin" if case["shape"] == [7]:
                one = elements(case | {"shape": [3]}, i + len(prefix))
                made.append(constant(one, name + " again", case))
    return made


def used(constant, case, number):
    """Return a result of a constant, computed as the case says."""
    value = constant
    match case["user"]:
        case "Reshape":
            target = op.constant(np.array([-1], np.int64), name=f"target {number}")
            value = op.reshape(value, target, False) if 0 not in case["shape"] else value
        case "Convert":
            value = op.convert(value, np.float32, name=f"converted {number}")
    made = op.result(value)
    made.set_friendly_name(f"user {number}")
    return made


def graph(case, prefix=""):
    return [used(c, case, f"{prefix}{i}") for i, c in enumerate(constants(case, prefix))]


def loop(case, kind):
    """A body of one iteration, with the constants as its results."""
    made = op.loop(op.constant(np.int32(1), name="trips"), op.constant(True, name="start")) if kind == "Loop" \
        else op.tensor_iterator()
    inner = op.parameter([1, 3], np.float32, name="inner")
    outer = op.parameter([1, 3], np.float32, name="outer")
    results = graph(case)
    if kind == "Loop":
        going_on = op.result(op.constant(True, name="going on"))
        own = ov.Model([going_on, op.result(inner), *results], [inner], "body")
        made.set_function(own)
        made.set_special_body_ports([-1, 0])
        made.set_invariant_input(inner, outer.output(0))
    else:
        own = ov.Model([op.result(inner), *results], [inner], "body")
        made.set_body(own)
        made.set_sliced_input(inner, outer.output(0), 0, 1, 1, -1, 0)
    made.set_friendly_name("outer layer")
    return [op.result(made.get_iter_value(result.output(0), -1)) for result in results or own.results[-1:]], [outer]


def branch(case, deep):
    condition = op.parameter([], np.bool_, name="condition")
    made = op.if_op(condition.output(0))
    made.set_friendly_name("outer layer")
    parameters = []
    if deep:
        inner = op.parameter([], np.bool_, name="inner condition")
        made.set_then_body(ov.Model([op.result(out) for out in nested(case, inner)], [inner], "then"))
        parameters = [inner]
    else:
        made.set_then_body(ov.Model(graph(case) or [some()], [], "then"))
    made.set_else_body(ov.Model(graph(case, "e") or [some()], [], "else"))
    if deep:
        made.set_input(condition.output(0), parameters[0], None)
    pairs = zip(made.get_then_body().results, made.get_else_body().results, strict=True)
    return [op.result(made.set_output(a, b)) for a, b in pairs], [condition]


def nested(case, condition):
    made = op.if_op(condition.output(0))
    made.set_friendly_name("inner layer")
    made.set_then_body(ov.Model(graph(case, "i") or [some()], [], "then"))
    made.set_else_body(ov.Model(graph(case, "ie") or [some()], [], "else"))
    pairs = zip(made.get_then_body().results, made.get_else_body().results, strict=True)
    return [made.set_output(a, b) for a, b in pairs]


def some():
    return op.result(op.constant(np.float32(1), name="some"))


def model(case):
    match case["place"]:
        case "model":
            parameter = op.parameter([1], np.float32, name="parameter")
            results, parameters = [op.result(parameter), *graph(case)], [parameter]
        case "If" | "If in If":
            results, parameters = branch(case, case["place"] == "If in If")
        case kind:
            results, parameters = loop(case, kind)
    made = ov.Model(results, parameters, "net")
    if case["rt_info"] == "of the model":
        made.set_rt_info("a <value>", ["section", "key"])
    return made


def stored(found, layers, prefix=""):
    """Return {stele's name: constant} of a model that OpenVINO has read. Ids of layers are in the file alone."""
    names = {layer.get("name"): layer.get("id") for layer in layers.find("layers")}
    users = {edge.get("to-layer"): edge.get("from-layer") for edge in layers.find("edges")}
    nodes, seen = found.get_ops(), {}
    for node in nodes:
        name, kind = node.get_friendly_name(), node.get_type_name()
        if kind == "Constant":
            user = next(iter(node.output(0).get_target_inputs())).get_node().get_friendly_name()
            seen.setdefault(name, []).append((int(users.get(names.get(user), -1)), node))
        for body, getter in BODIES.get(kind, []):
            layer = next(one for one in layers.find("layers") if one.get("name") == name and one.get("type") == kind)
            yield from stored(getattr(node, getter)(), layer.find(body), f"{prefix}{name}.{body}.")
    for name, same in seen.items():
        for i, (number, node) in enumerate(sorted(same, key=lambda one: one[0])):
            yield prefix + name + (f"#{number}" if i else ""), node


def write(case, path):
    path = path.with_suffix(".xml")
    made = model(case)
    match case["writer"].split():
        case ["save_model", *half]:
            ov.save_model(made, path, compress_to_fp16=bool(half))
        case ["serialize", *version]:
            ov.serialize(made, path, path.with_suffix(".bin"), "IR_V10" if version else "UNSPECIFIED")
    tensors, unread = {}, []
    # OpenVINO converts the inputs and results of version 10, and then gives the names to these converters.
    text = path.read_text(encoding="utf-8").replace('version="10">', 'version="11">', 1)
    read = CORE.read_model(text, Tensor(np.fromfile(path.with_suffix(".bin"), np.uint8)))
    for name, node in stored(read, ElementTree.fromstring(text)):
        kind = node.get_element_type().get_type_name()
        if kind in READ:
            tensors[name] = READ[kind], list(node.get_output_shape(0)), node.data.tobytes()
        else:
            unread.append(name)
    return path.with_suffix(case["opened"]), comparison.Expected(tensors, unread)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
