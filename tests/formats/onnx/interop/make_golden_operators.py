#!/usr/bin/env python3
"""Write fold_OPSET.onnx and operators_OPSET.onnx of ../data: nodes, and what onnxruntime computes from them.

    pip install onnx==1.23.2 onnxruntime==1.32.0
    python3 tests/formats/onnx/interop/make_golden_operators.py [FOLDER]

fold: each operator that the import computes, with each of its attributes, on random constants.
operators: operators whose obvious translation gives a wrong result in DL4J, on inputs that show it. Input NUMBER.I has the
initializer "value NUMBER.I".
The outputs are OPERATOR.NUMBER; the initializer "want OPERATOR.NUMBER" is the expected result.
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


def f32(*values):
    return np.array(values, np.float32)


def rules(opset):
    """Yields the operator, its attributes, its inputs, which of them are constants, and whether extents are open."""
    wide = f32(-np.inf, -3e4, -1000, -90, -20, -1, -0.5, 0, 0.5, 1, 20, 88, 89, 1000, 3e4, np.inf, np.nan)
    if opset >= 18:
        for op in ("Softplus", "Asinh", "ThresholdedRelu", "Shrink"):
            yield op, {}, [wide[5:] if op == "Softplus" else wide], (), False
        yield "Mish", {}, [wide[5:-2]], (), False
        for op in ("Max", "Min"):
            yield op, {}, [wide, wide[:, None]], (), False
            yield op, {}, [wide, f32(1)[0]], (1,), False
            yield op, {}, [wide, wide[::-1].copy(), f32(np.inf)[0]], (), True
            yield op, {}, [ints(1, 5), ints(3, 2)], (), False
        for bounds in ((None, 5), (-5, None), (None, None), (-5, 5), (5, -5)):
            bounds = [None if b is None else np.array(b, np.float64) for b in bounds]
            yield "Clip", {}, [np.array([-1e300, -7, 1, 7, 1e300])] + bounds, (1, 2), False
        for base, exponent in ((np.int64, np.float32), (np.int32, np.float64), (np.float32, np.int64)):
            yield "Pow", {}, [np.array([1, 2, 3, 5], base), np.array([2, 3, 0.5, 1.5]).astype(exponent)], (), False
        for dtype, is_open in itertools.product((np.float32, np.int64), (False, True)):
            yield "Mod", {"fmod": 1}, [np.array([7, -7, 100, 1e6], dtype), np.array([[2.3], [-3]]).astype(dtype)], (), is_open
        data = numbers(np.float32, (2, 3, 2))
        for indices, is_open in itertools.product(([[0, 1], [1, 2]], [[-1, -1], [0, -3]], [[-2], [1]], [[1, -2, -1]]),
                                                  (False, True)):
            for constants in ((), (1,)):
                yield "GatherND", {}, [data, ints(*indices)], constants, is_open
        for start, limit, step in ((5, -4, -3), (10, 0, -3), (-3, 4, 2), (0, 5, 2), (3, 3, -1)):
            for dtype in (np.int64, np.int32, np.float32):
                yield "Range", {}, [np.array(v, dtype) for v in (start, limit, step)], (), False
        yield "Range", {}, [f32(v)[0] for v in (1, -1, -0.75)], (0, 1, 2), False
    for axis in (0, 1, -1):
        for dtype, most in ((np.float32, 50), (np.float32, 3000), (np.float64, -5000)):
            x = numbers(dtype, (2, 3, 4)) * 10 + most
            if opset >= 18:
                yield "LogSoftmax", {"axis": axis}, [x], (), False
                yield "Softmax", {"axis": axis}, [x], (), False
            elif axis >= 0:
                yield "LogSoftmax", {"axis": axis}, [x], (), False
                yield "Softmax", {"axis": axis}, [x], (), False
    for dtype in (np.int8, np.uint8, np.float32, np.float64):
        x = -(np.arange(25).reshape(1, 1, 5, 5) + 1) if dtype is not np.uint8 else np.arange(25).reshape(1, 1, 5, 5)
        x = (x * (1e100 if dtype is np.float64 else 1e37 if dtype is np.float32 else 1)).astype(dtype)
        if opset >= 18:
            yield "MaxPool", {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1]}, [x], (), False
            yield "MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, [x], (), False
            yield "MaxPool", {"kernel_shape": [3], "pads": [0, 1]}, [x[0]], (), False
    for op in ("Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Sum", "Max", "Min", "Prod"):
        for dtype, keepdims in itertools.product((np.float32, np.int32), (0, 1)):
            x = numbers(dtype, (2, 3, 2))
            if op == "LogSum" or dtype is np.int32 and op == "LogSumExp":
                x = abs(x)
            for axes in ([-1], [0, 2]):
                if opset >= 18:
                    yield "Reduce" + op, {"keepdims": keepdims}, [x, ints(*axes)], (1,), False
                else:
                    yield "Reduce" + op, {"keepdims": keepdims, "axes": axes}, [x], (), False
            if opset >= 18:
                yield "Reduce" + op, {"keepdims": keepdims, "noop_with_empty_axes": 1}, [x], (), False
    for dtype, large in ((np.float32, 1000), (np.float64, 1e5), (np.float32, 89)):
        x = np.array([[large, large - 1], [-large, -large], [large, -large]], dtype)
        yield (("ReduceLogSumExp", {}, [x, ints(1)], (1,), False) if opset >= 18 else
               ("ReduceLogSumExp", {"axes": [1], "keepdims": 0}, [x], (), True))
    if opset >= 18:
        x = f32(-np.inf, -np.inf, np.inf, 1, -np.inf, 3, np.nan, 1).reshape(4, 2)
        yield "ReduceLogSumExp", {}, [x, ints(-1)], (1,), False


def model_of(nodes, initializers, inputs, outputs, opset):
    graph = helper.make_graph(nodes, "nodes", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, producer_name="")


def type_of(name, value, is_open=False):
    shape = [f"{name}.{i}" for i in range(value.ndim)] if is_open else value.shape
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)


def computed(node, tensors, opset):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = model_of([node], tensors, [], [onnx.ValueInfoProto(name=node.output[0])], opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {})[0])


def golden(rows, opset):
    nodes, initializers, inputs, outputs = [], [], [], []
    for number, (op, attributes, values, constants, is_open) in enumerate(rows):
        name = f"{op}.{number}"
        values = {f"{number}.{i}": None if x is None else np.asarray(x) for i, x in enumerate(values)}
        node = helper.make_node(op, ["" if x is None else n for n, x in values.items()], [name], **attributes)
        tensors = [numpy_helper.from_array(x, n) for n, x in values.items() if x is not None]
        want = computed(node, tensors, opset)
        for tensor in tensors:
            if constants is None or int(tensor.name.split(".")[1]) in constants:
                initializers.append(tensor)
            else:
                inputs.append(type_of(tensor.name, values[tensor.name], is_open))
                tensor.name = "value " + tensor.name
                initializers.append(tensor)
        nodes.append(node)
        initializers.append(numpy_helper.from_array(want, "want " + name))
        outputs.append(type_of(name, want, is_open))
    print(f"opset {opset}: {len(nodes)} nodes")
    return model_of(nodes, initializers, inputs, outputs, opset)


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "data"
    onnxruntime.set_default_logger_severity(4)
    for opset in (9, 21):
        onnx.save(golden(((*case, None, False) for case in cases(opset)), opset), folder / f"fold_{opset}.onnx")
    for opset in (11, 21):
        onnx.save(golden(rules(opset), opset), folder / f"operators_{opset}.onnx")


if __name__ == "__main__":
    main()
