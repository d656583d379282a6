#!/usr/bin/env python3
"""Write tests/data/onnx/fold_OPSET.onnx: nodes of constants, and what onnxruntime computes from them.

    pip install onnx==1.23.2 onnxruntime==1.32.0
    python3 tests/interop/make_golden_fold.py [FOLDER]

Each operator that the import computes, with each of its attributes, on random constants. The outputs are OPERATOR.NUMBER;
the initializer "want OPERATOR.NUMBER" is the expected result.
"""
import itertools
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

random = np.random.default_rng(1)
FLOATS, INTEGERS = (np.float32, np.float64, np.float16), (np.int64, np.int32, np.int8, np.uint8)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]


def ints(*values):
    return np.array(values, np.int64)


def numbers(dtype, shape, least=-9):
    """Random numbers; no integer is 0, so that all divide."""
    if np.issubdtype(dtype, np.floating):
        return (random.standard_normal(shape) * 4).astype(dtype)
    if dtype is np.bool_:
        return random.integers(0, 2, shape).astype(dtype)
    found = random.integers(1 if np.issubdtype(dtype, np.unsignedinteger) else least, 10, shape)
    return np.where(found == 0, 7, found).astype(dtype)


def pairs(dtype):
    """Operands of one shape, and of shapes that are broadcast."""
    for a, b in (((4,), (4,)), ((2, 1), (3,)), ((), (2, 2))):
        yield [numbers(dtype, a), numbers(dtype, b)]


def elementwise():
    for op in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow"):
        for dtype in FLOATS + (() if op == "Pow" else INTEGERS):
            for a, b in pairs(dtype):
                if op == "Sub" and dtype is np.uint8:
                    a = a + np.uint8(10)
                if op == "Pow":
                    a = abs(a)
                yield op, {}, [a, b]
    for op in ("Min", "Max"):
        for dtype in (np.float32, np.float64):
            yield op, {}, [np.array(SPECIAL, dtype), np.array([1], dtype)]
            yield op, {}, [np.array([np.nan, 1], dtype), np.array(SPECIAL, dtype)[:, None]]
        yield op, {}, [numbers(np.float32, (3,)) for _ in range(3)]
        yield op, {}, [numbers(np.int64, (2,))]
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        for dtype in (np.float32, np.float64, np.int64, np.int32):
            a, b = next(pairs(dtype))
            yield op, {}, [np.append(a, b[:1]), np.append(b, b[:1])]
        yield op, {}, [np.array(SPECIAL, np.float32), np.array(SPECIAL, np.float32)[:, None]]
    for op in ("And", "Or", "Xor"):
        yield op, {}, [ints(0, 1).astype(bool), ints(0, 1).astype(bool)[:, None]]
    for fmod, dtype in itertools.product((None, 0, 1), FLOATS + INTEGERS):
        if fmod or np.issubdtype(dtype, np.integer):
            for inputs in pairs(dtype):
                yield "Mod", {} if fmod is None else {"fmod": fmod}, inputs
    for op, dtypes in (("Neg", FLOATS + INTEGERS[:3]), ("Abs", FLOATS + INTEGERS), ("Floor", FLOATS), ("Ceil", FLOATS),
                       ("Sqrt", FLOATS), ("Not", (np.bool_,)), ("Identity", FLOATS + INTEGERS + (np.bool_,))):
        for dtype in dtypes:
            yield op, {}, [abs(numbers(dtype, (2, 2))) if op == "Sqrt" else numbers(dtype, (2, 2))]


def shapes(opset):
    for extents, data in (((), 7), ((2, 3), 0), ((0, 3), 0)):
        x = np.full(extents, data, np.float32)
        yield "Size", {}, [x]
        for start, end in itertools.product((None, 0, 1, -1, 5), (None, 1, -1, -9)) if opset >= 15 else [(None, None)]:
            yield "Shape", {k: v for k, v in (("start", start), ("end", end)) if v is not None}, [x]
    x = numbers(np.int64, (2, 1, 3))
    yield "Reshape", {}, [x, ints(3, -1)]
    yield "Reshape", {}, [x, ints(0, 3)]
    if opset >= 14:
        for zero in (0, 1):
            yield "Reshape", {"allowzero": zero}, [x, ints(6)]
        yield "Reshape", {"allowzero": 0}, [x, ints(0, 0, -1)]
        yield "Reshape", {"allowzero": 1}, [x[:0], ints(0, 5)]
    for axis in (None, 0, 1, 2, 3, *((-1, -3) if opset >= 11 else ())):
        yield "Flatten", {} if axis is None else {"axis": axis}, [numbers(np.float32, (2, 1, 3))]
    axes_of = {"Unsqueeze": ([0], [1, 3], [4, 0]) + (([-1], [-2, 0]) if opset >= 11 else ()),
               "Squeeze": ([1],) + (([-2],) if opset >= 11 else ())}
    for op, all_axes in axes_of.items():
        for axes in all_axes:
            yield (op, {}, [x, ints(*axes)]) if opset >= 13 else (op, {"axes": axes}, [x])
    yield "Squeeze", {}, [numbers(np.float32, (1, 2, 1))]
    for perm in (None, [2, 0, 1], [0, 2, 1]):
        yield "Transpose", {} if perm is None else {"perm": perm}, [numbers(np.float32, (2, 1, 3))]
    yield "Expand", {}, [numbers(np.int64, (2, 1)), ints(3, 1, 2)]
    yield "Expand", {}, [numbers(np.float32, (3,)), ints(1)]
    yield "Where", {}, [ints(0, 1)[:, None] != 0, numbers(np.float32, (2,)), numbers(np.float32, ())]
    yield "Where", {}, [ints(0, 1) != 0, numbers(np.int64, (2, 1)), numbers(np.int64, (2,))]
    for axis in (0,) + ((-1,) if opset >= 11 else ()):
        yield "Concat", {"axis": axis}, [numbers(np.int64, (2,)), ints(), numbers(np.int64, (1,))]
        yield "Concat", {"axis": axis}, [numbers(np.float32, (2,))]
    for axis, indices in ((None, ints(1, 0)), (0, ints(0)[0]), (1, ints(2, 1, 2)), (2, ints(0)[:, None]),
                          *(((-1, ints(-1)), (1, ints(-3)[0])) if opset >= 11 else ())):
        yield "Gather", {} if axis is None else {"axis": axis}, [numbers(np.float32, (2, 3, 1)), indices]
    for value in (None, 3.5, -2, True):
        dtype = {float: np.float32, int: np.int64, bool: np.bool_}.get(type(value))
        value = {} if value is None else {"value": numpy_helper.from_array(np.array([value], dtype))}
        for extents in (ints(2, 2), ints(), ints(0)):
            yield "ConstantOfShape", value, [extents]
    if opset >= 11:
        for start, limit, step in ((0, 5, 2), (5, -4, -3), (-7, -7, 1), (3, 0, 1)):
            for dtype in (np.int64, np.int32):
                yield "Range", {}, [np.array(v, dtype) for v in (start, limit, step)]


def slices(opset):
    x = numbers(np.int64, (3, 5))
    far = 2**62
    rows = [([1], [4], [1]), ([-3, 0], [-1, 2], [1, 0]), ([0], [far], [1]), ([-far], [1], [0]), ([4], [1], [1])]
    for starts, ends, axes in rows:
        if opset < 10:
            yield "Slice", {"starts": starts, "ends": ends, "axes": axes}, [x]
        else:
            yield "Slice", {}, [x, ints(*starts), ints(*ends), ints(*axes)]
    if opset < 10:
        yield "Slice", {"starts": [1, 2], "ends": [3, 3]}, [x]
        return
    yield "Slice", {}, [x, ints(1, 2), ints(3, 3)]
    for start, end, step in ((-1, -far, -1), (far, -far, -2), (-far, -far, -1), (3, 0, -1), (0, far, 3), (1, 9, far),
                             (-1, -far, -far), (2, 2, -1)):
        yield "Slice", {}, [x, ints(start), ints(end), ints(-1), ints(step)]
        yield "Slice", {}, [x[:, :0], ints(start), ints(end), ints(1), ints(step)]


def reductions(opset):
    for op, dtype in itertools.product(("ReduceSum", "ReduceProd"), (np.int64, np.int32)):
        as_input = opset >= (13 if op == "ReduceSum" else 18)
        for axes, keepdims, noop in itertools.product((None, [], [0], [-1]), (None, 0, 1), (None, 0, 1)):
            attributes = {} if keepdims is None else {"keepdims": keepdims}
            if noop is not None:
                attributes["noop_with_empty_axes"] = noop
            if axes is not None and not as_input:
                attributes["axes"] = axes
            if (not as_input and (noop is not None or axes == [])) or (opset < 11 and axes == [-1]):
                continue
            if dtype is np.int32 and keepdims == 0 and noop == 0:
                continue
            inputs = [numbers(dtype, (3,), -4)]
            yield op, attributes, inputs + ([ints(*axes)] if axes is not None and as_input else [])


def casts(opset):
    targets = {np.float32: 1, np.int32: 6, np.int64: 7, np.bool_: 9, np.float64: 11}
    for source, (target, code) in itertools.product(FLOATS + (np.int64, np.int32, np.uint8, np.bool_), targets.items()):
        x = numbers(source, (4,))
        if target is np.bool_:
            x[0] = 0
        if source is np.int64 and target in (np.float32, np.float64):
            x[0] = 2**54 + 2**30 + 1  # rounds once
        for saturate in (None, 1) if opset >= 19 and source is np.float32 else (None,):
            yield "Cast", {"to": code} | ({} if saturate is None else {"saturate": saturate}), [x]


def cases(opset):
    if opset >= 13:
        yield from elementwise()
        yield from casts(opset)
    yield from shapes(opset)
    yield from slices(opset)
    yield from reductions(opset)


def model_of(nodes, initializers, outputs, opset):
    graph = helper.make_graph(nodes, "fold", [], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, producer_name="")


def computed(node, tensors, opset):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = model_of([node], tensors, [onnx.ValueInfoProto(name=node.output[0])], opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {})[0]


def golden(opset):
    nodes, initializers, outputs, left_out = [], [], [], []
    for number, (op, attributes, inputs) in enumerate(cases(opset)):
        name = f"{op}.{number}"
        tensors = [numpy_helper.from_array(np.asarray(x), f"{number}.{i}") for i, x in enumerate(inputs)]
        node = helper.make_node(op, [t.name for t in tensors], [name], **attributes)
        try:
            want = np.asarray(computed(node, tensors, opset))
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            left_out.append(f"{op} of {inputs[0].dtype}")
            continue
        nodes.append(node)
        initializers += tensors + [numpy_helper.from_array(want, "want " + name)]
        outputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(want.dtype), want.shape))
    print(f"opset {opset}: {len(nodes)} nodes; onnxruntime has no {', '.join(sorted(set(left_out)))}")
    return model_of(nodes, initializers, outputs, opset)


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "data/onnx"
    onnxruntime.set_default_logger_severity(4)
    for opset in (9, 21):
        onnx.save(golden(opset), folder / f"fold_{opset}.onnx")


if __name__ == "__main__":
    main()
