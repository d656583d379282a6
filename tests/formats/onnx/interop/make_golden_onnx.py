#!/usr/bin/env python3
"""Write the golden files of tests/formats/onnx/data with the onnx package.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/onnx/interop/make_golden_onnx.py [--check] [FOLDER]

--check compares FOLDER with what is written now. Element k of a tensor is (k % 7) - 2, or k % 7 if its dtype is unsigned,
or k % 2 if it is bool.
"""

import filecmp
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

UNSIGNED = ("UINT", "FLOAT8E8M0")
TYPES = ("FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16 "
         "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ UINT4 INT4 FLOAT4E2M1").split()
SHAPE = (3, 5)  # an odd number of elements


def values(dtype, count):
    k = np.arange(count)
    if dtype == "BOOL":
        return k % 2
    return k % 7 - (0 if dtype.startswith(UNSIGNED) else 2)


def model(initializers, nodes=(), inputs=(), outputs=(), **more):
    graph = helper.make_graph(list(nodes), "golden", list(inputs), list(outputs), list(initializers))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="golden", **more)
    return made


def types():
    """Every dtype twice: in raw_data, and in the field of its type."""
    tensors = []
    for dtype in TYPES:
        number = getattr(TensorProto, dtype)
        typed = helper.make_tensor(f"{dtype}.typed", number, SHAPE, values(dtype, 15).tolist())
        raw = numpy_helper.from_array(numpy_helper.to_array(typed), f"{dtype}.raw")
        assert raw.HasField("raw_data") and not typed.HasField("raw_data"), dtype
        assert raw.data_type == number, dtype
        tensors += [typed, raw]
    tensors.append(helper.make_tensor("scalar", TensorProto.FLOAT, (), [4.0]))
    tensors.append(helper.make_tensor("empty", TensorProto.INT64, (0, 3), []))
    return model(tensors)


def mlp():
    """x @ w0 + b0, Relu, @ w1, with a documented tensor, properties and a node's constant that is no initializer."""
    def tensor(name, *shape):
        return numpy_helper.from_array(values("FLOAT", int(np.prod(shape))).reshape(shape).astype(np.float32), name)

    w0, b0, w1 = tensor("net.0.weight", 4, 8), tensor("net.0.bias", 8), tensor("net.2.weight", 8, 2)
    w0.doc_string = "the first layer"
    two = numpy_helper.from_array(np.array([2, 2], np.int64), "shape")
    nodes = [helper.make_node("Gemm", ["x", "net.0.weight", "net.0.bias"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "net.2.weight"], ["m"]),
             helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(2, np.float32), "inside")),
             helper.make_node("Add", ["m", "c"], ["a"]), helper.make_node("Reshape", ["a", "shape"], ["y"])]
    made = model([w0, b0, w1, two], nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
                 [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])], doc_string="a small network")
    helper.set_model_props(made, {"author": "golden", "note": "ü"})
    onnx.checker.check_model(made)
    return made


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(types(), folder / "types.onnx")
    onnx.save(mlp(), folder / "mlp.onnx")
    (folder / "external.bin").unlink(missing_ok=True)  # onnx appends to an existing file
    onnx.save(mlp(), folder / "external.onnx", save_as_external_data=True, location="external.bin", size_threshold=16)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    folder = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent / "data")
    if "--check" not in sys.argv[1:]:
        write(folder)
        return 0
    with tempfile.TemporaryDirectory() as fresh:
        write(pathlib.Path(fresh))
        names = [p.name for p in pathlib.Path(fresh).iterdir()]
        _, different, absent = filecmp.cmpfiles(fresh, folder, names, shallow=False)
    for name in different + absent:
        print(f"{folder / name} differs from what onnx {onnx.__version__} writes")
    return 1 if different or absent else 0


if __name__ == "__main__":
    sys.exit(main())
