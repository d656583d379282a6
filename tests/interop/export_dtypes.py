#!/usr/bin/env python3
"""Check that onnxruntime runs what `stele import` exports: each operator, on each dtype that ONNX allows.

    export_dtypes.py STELE [OPERATOR...]    STELE: the command

A model of one node is imported and exported again, with two versions of ONNX's operators. onnxruntime must run the
result. If it runs the original, too, their results must be equal.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper
from onnxruntime_kernels import CODES, OF_ONNX

VERSION = 20  # of the originals
EXPORTED = (17, 22)
SHAPE = (2, 3, 4, 4)
UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Celu Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish
Hardmax Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization Mish Neg NonZero Not Reciprocal ReduceL1 ReduceL2
ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Round Selu Shape
Shrink Sigmoid Sign Sin Sinh Size Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Transpose Trilu ArgMax ArgMin
Flatten GlobalAveragePool GlobalMaxPool InstanceNormalization LRN MaxPool AveragePool DepthToSpace SpaceToDepth""".split()
BINARY = """Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul
Or PRelu Pow Sub Sum Xor Concat MatMul""".split()
INTS = {name: numpy_helper.from_array(np.array(value, np.int64), "n") for name, value in
        dict(CumSum=1, Tile=[1, 2, 1, 1], Expand=[2, 3, 4, 4], Gather=[1, 0], Reshape=[4, 24], Unsqueeze=[0], TopK=[2],
             Pad=[0, 1, 0, 0, 0, 1, 0, 0], GatherND=[[1, 0]], Squeeze=[]).items() if name != "Squeeze"}
ATTRIBUTES = {"kernel_shape": [2, 2], "axis": 0, "blocksize": 2, "size": 3}
EXTRA = {"Mod": {"fmod": 1}, "Concat": {"axis": 1}, "DepthToSpace": {"blocksize": 1}, "LRN": {"size": 3}}

onnxruntime.set_default_logger_severity(4)


def elements(op, dtype, random):
    """Return an input that is in the domain of the operator."""
    x = np.abs(random.standard_normal(SHAPE)) + (1.1 if op == "Acosh" else 0.05)
    x = np.minimum(x, 0.9) if op in ("Acos", "Asin", "Atanh") else x
    if dtype == "bool":
        return x > 0.6
    if dtype[0] in "iu":
        return (x * 3 + 1).astype(OF_NUMPY[dtype])
    return x.astype(OF_NUMPY[dtype])


OF_NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "bool": np.bool_,
            **{f"{k}{n}": getattr(np, f"{word}{n}") for k, word in (("i", "int"), ("u", "uint")) for n in (8, 16, 32, 64)}}


def model_of(op, dtype, x):
    """Return a model of one node and its inputs, or None if ONNX refuses it."""
    schema = defs.get_schema(op, VERSION, "")
    attributes = {n: ATTRIBUTES[n] for n, a in schema.attributes.items() if a.required and n in ATTRIBUTES}
    attributes.update(EXTRA.get(op, {}))
    inputs, initializers = {"x": x}, []
    names = ["x"]
    if op in BINARY:
        names.append("y")
        inputs["y"] = np.minimum(x[::-1].copy(), np.array(3, x.dtype)) if op == "Pow" else x[::-1].copy()
    elif op in INTS:
        names.append("n")
        initializers.append(INTS[op])
    elif op == "InstanceNormalization":
        names += ["s", "b"]
        initializers += [helper.make_tensor(n, CODES[dtype], [3], [1, 1, 1]) for n in "sb"]
    elif op == "Where":
        names = ["c", "x", "x"]
        inputs["c"] = np.indices(SHAPE).sum(0) % 2 == 0
    elif op == "Clip":
        names += ["low"]
        initializers.append(helper.make_tensor("low", CODES[dtype], [], [1]))
    given = [helper.make_tensor_value_info(n, CODES["bool" if n == "c" else dtype], SHAPE) for n in inputs]
    graph = helper.make_graph([helper.make_node(op, names, ["z"], **attributes)], "g", given,
                              [helper.make_empty_tensor_value_info("z")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", VERSION)], ir_version=9)
    try:
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception:  # its classes have no common base
        return None
    if any(o.type.tensor_type.elem_type == TensorProto.UNDEFINED for o in model.graph.output):
        return None
    return model, inputs


def run(model, inputs):
    """Return the first result; of bfloat16, which onnxruntime's Python cannot return, only None."""
    session = onnxruntime.InferenceSession(model)
    if any("bfloat16" in t.type for t in session.get_inputs() + session.get_outputs()):
        return None
    return session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})[0]


def equal(a, b, dtype):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return np.allclose(a.astype(float), b.astype(float), rtol=1e-2 if dtype in ("f16", "bf16") else 1e-4, atol=1e-5,
                       equal_nan=True)


def check(command, folder, op, dtype):
    """Return (kinds of results, faults)."""
    made = model_of(op, dtype, elements(op, dtype, np.random.default_rng(1)))
    if made is None:
        return ["not ONNX"], []
    model, inputs = made
    path = Path(folder) / f"{op}_{dtype}.onnx"
    onnx.save(model, path)
    try:
        expected = run(str(path), inputs)
    except Exception:  # onnxruntime does not run the original
        expected = None
    kinds, faults = [], []
    for version in EXPORTED:
        back = Path(folder) / f"{op}_{dtype}_{version}.onnx"
        done = subprocess.run([command, "import", path, back, "--opset", str(version)], capture_output=True, text=True)
        if done.returncode != 0:
            kinds.append("refused")
            continue
        try:
            found = run(str(back), inputs)
        except Exception as error:
            faults.append(f"{op} {dtype} {version}: {str(error)[:160]}")
            continue
        kinds.append("runs" if expected is None or found is None else "equal")
        if expected is not None and found is not None and not equal(expected, found, dtype):
            faults.append(f"{op} {dtype} {version}: other results: {expected.dtype}{expected.shape}, {found.dtype}{found.shape}")
    return kinds, faults


def main():
    command, only = sys.argv[1], sys.argv[2:]
    counts, failed = {}, 0
    cases = [(op, dtype) for op in only or UNARY + BINARY + [*INTS, "Where", "Clip"] for dtype in CODES]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for kinds, faults in pool.map(lambda case: check(command, folder, *case), cases):
            for kind in kinds:
                counts[kind] = counts.get(kind, 0) + 1
            failed += len(faults)
            for fault in faults:
                print(fault)
    print(counts)
    return 1 if failed or not counts.get("equal") else 0


if __name__ == "__main__":
    sys.exit(main())
