"""Products of ONNX's quantized weights: what stele decodes is what the model computes of them."""

import sys
from pathlib import Path

import ml_dtypes  # noqa: F401: registers its dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.append(str(Path(__file__).parents[3] / "products"))
import comparison  # noqa: E402

PACKAGES = ["onnx", "onnxruntime", "numpy"]
PAGES = ["formats/onnx"]
DECODED = True
FILES = 16
DIMENSIONS = {
    "codes": ["INT8", "UINT8", "INT4", "UINT4", "INT16", "UINT16", "INT32", "FLOAT8E4M3FN", "FLOAT8E5M2"],
    "scale": ["float32", "float16"],
    "for each": ["tensor", "tensor in a list", "axis", "block"],
    "axis": [None, 0, 1, -1],
    "zero point": ["none", "zeros", "odd"],
    "weight": [[4, 6], [3, 5], [1, 7], [6], [2, 4, 3], [4, 2, 3, 2], [8, 0]],
    "name": ["layer.weight_quantized", "layer.w"],
    "stored": ["initializers", "Constants"],
}
HALVES = ("INT4", "UINT4")


def axis_of(case):
    return 1 if case["axis"] is None else case["axis"]


def possible(case):
    rank = len(case["weight"])
    if case["for each"] in ("axis", "block") and not -rank <= axis_of(case) < rank:
        return False
    if case["for each"] in ("tensor", "tensor in a list") and case["axis"] not in (None, 0):
        return False
    if case["codes"] == "INT32" and (case["zero point"] == "odd" or case["for each"] == "block"):
        return False
    if case["for each"] == "block" and 0 in case["weight"]:
        return False
    return not (case["codes"].startswith("FLOAT8") and case["zero point"] == "odd")


def decodes(case):
    """Whether stele decodes it: docs/formats/onnx.md."""
    shape = case["weight"]
    rows = int(np.prod(shape[:-1]))
    if case["codes"] not in ("INT8", "UINT8", *HALVES) or case["for each"] == "block" or 0 in shape:
        return False
    if case["for each"] == "axis" and axis_of(case) % len(shape) not in (0, len(shape) - 1):
        return False
    if case["codes"] in HALVES and case["zero point"] == "odd" and np.prod(extents_of_scale(case)) > 1 and (
            case["codes"] == "INT4" or len(shape) == 1 or axis_of(case) % len(shape) != 0):
        return False  # zero points of 4 bits that are several numbers with signs, or of columns
    return not (case["codes"] in HALVES and shape[-1] % 2 != 0 and rows > 1)  # rows that are no whole bytes


def hides(case):
    return 0 in case["weight"] or not decodes(case)


def extents_of_scale(case):
    shape = list(case["weight"])
    match case["for each"]:
        case "tensor":
            return []
        case "tensor in a list":
            return [1]
        case "axis":
            return [shape[axis_of(case)]]
    shape[axis_of(case)] = -(-shape[axis_of(case)] // 2)
    return shape


def tensor_of(name, code, bits):
    """Returns a TensorProto of random bits, which no NaN of 8-bit floats has."""
    dtype = helper.tensor_dtype_to_np_dtype(code)
    if code in (TensorProto.INT4, TensorProto.UINT4):
        bits = bits & 15 if code == TensorProto.UINT4 else ((bits.astype(np.int8) << 4) >> 4).view(np.uint8)
    tensor = numpy_helper.from_array(bits.view(dtype), name)
    tensor.data_type = code
    return tensor


def write(case, path):
    path = path.with_suffix(".onnx")
    code = getattr(TensorProto, case["codes"])
    size = helper.tensor_dtype_to_np_dtype(code).itemsize
    random = np.random.default_rng(len(str(case)))
    name, shape, scales = case["name"], case["weight"], extents_of_scale(case)

    def bits(extents, most=0x70):
        return random.integers(0, most, [*extents[:-1], (extents or [1])[-1] * size], np.uint8)

    def coded(name, array, extents):
        tensor = tensor_of(name, code, array)
        del tensor.dims[:]
        tensor.dims.extend(extents)
        return tensor

    codes = coded(name, bits(shape), shape)
    scale = numpy_helper.from_array(np.asarray(random.random(scales) / 7 + 0.01).astype(case["scale"]), "s")
    tensors = [codes, scale]
    if case["zero point"] != "none":
        zero = bits(scales) if case["zero point"] == "odd" else bits(scales) * 0
        tensors.append(coded("z", zero, scales))
    attributes = {} if case["axis"] is None else {"axis": case["axis"]}
    if case["for each"] == "block":
        attributes["block_size"] = 2
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(case["scale"]))
    node = helper.make_node("DequantizeLinear", [t.name for t in tensors], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", kind, None)
    if case["stored"] == "Constants":
        constants = [helper.make_node("Constant", [], [t.name], value=t) for t in tensors]
        graph = helper.make_graph([*constants, node], "g", [], [output])
    else:
        graph = helper.make_graph([node], "g", [], [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path, expected(case, model, tensors)


def in_floats(model):
    """Returns the model with scales of 32 bits: stele decodes weights as f32."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    tensors = [*other.graph.initializer, *(a.t for node in other.graph.node for a in node.attribute if a.HasField("t"))]
    for tensor in tensors:
        if tensor.name == "s":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), "s"))
    other.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return other


def computed(model):
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {})[0]
    except Exception:  # it has several kinds; an operator or shape that it lacks
        return ReferenceEvaluator(model).run(None, {})[0]


def expected(case, model, tensors):
    if decodes(case):
        return comparison.Expected({case["name"].removesuffix("_quantized"): computed(in_floats(model))})
    return comparison.Expected({t.name: content(t) for t in tensors})


def content(tensor):
    """The package's array of a part."""
    array = numpy_helper.to_array(tensor)
    if tensor.data_type not in (TensorProto.INT4, TensorProto.UINT4):
        return array
    bits = np.unpackbits(array.view(np.uint8).reshape(-1, 1), axis=1, bitorder="little")[:, :4]
    dtype = "i4" if tensor.data_type == TensorProto.INT4 else "u4"
    return dtype, list(array.shape), np.packbits(bits, bitorder="little").tobytes()


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    comparison.main(sys.modules[__name__])
