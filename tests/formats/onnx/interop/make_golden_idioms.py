#!/usr/bin/env python3
"""Write the models of data/idioms: one idiom each, under a kilobyte, with onnxruntime's results; and those of
data/package: tests that the onnx package makes of single nodes, as they are.

    pip install numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 safetensors==0.8.0
    python3 tests/formats/onnx/interop/make_golden_idioms.py [FOLDER]    FOLDER: in place of ../data

NAME.onnx is a model; NAME.safetensors has inputs (in.TENSOR) and what onnxruntime computes from them (out.TENSOR). Every
model is also written with open extents of floats and bools, as NAME_open.onnx, except where its case says fixed.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from safetensors.numpy import save_file

RANDOM = np.random.default_rng(38)
CASES = {}  # name: (model, inputs)
PACKAGE = """
add_bcast averagepool_2d_pads averagepool_2d_pads_count_include_pad basic_conv_with_padding
basic_conv_without_padding batchnorm_epsilon batchnorm_example cast_FLOAT_to_BFLOAT16
cast_FLOAT_to_FLOAT16 clip clip_default_min concat_2d_axis_1 concat_3d_axis_negative_1 constant_pad
conv_with_autopad_same conv_with_strides_and_asymmetric_padding edge_pad erf gather_0
gather_negative_indices gelu_default_1 gelu_tanh_1 gemm_all_attributes gemm_default_no_bias
gemm_default_vector_bias gemm_transposeB globalaveragepool layer_normalization_2d_axis1
layer_normalization_3d_axis_negative_1_epsilon matmul_2d matmul_3d maxpool_2d_ceil maxpool_2d_pads
mul_bcast relu reshape_allowzero_reordered reshape_zero_and_negative_dim slice slice_neg_steps
softmax_axis_1 softmax_default_axis split_equal_parts_2d_opset13 split_variable_parts_1d_opset18
squeeze_negative_axes transpose_all_permutations_3 transpose_default unsqueeze_two_axes
where_example
""".split()


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def flags(*shape):
    return RANDOM.random(shape) < 0.5


def node(op, inputs, outputs="y", domain="", name="", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, domain=domain, **attributes)


def case(name, nodes, inputs, weights=None, outputs="y", opset=17, fixed=False):
    nodes = [nodes] if isinstance(nodes, onnx.NodeProto) else nodes
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(d, 1) for d in sorted({n.domain for n in nodes}) if d]
    initializers = [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    for suffix in ("", "_open")[:1 if fixed else 2]:
        ins = []
        for k, v in inputs.items():
            shape = [f"{k}_{i}" for i in range(v.ndim)] if suffix and v.dtype != np.int64 else v.shape
            ins.append(helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), shape))
        graph = helper.make_graph(nodes, "g", ins, [onnx.ValueInfoProto(name=o) for o in outputs.split()], initializers)
        CASES[name + suffix] = (helper.make_model(graph, opset_imports=opsets, ir_version=9), inputs)


def ints(*values):
    return np.array(values, np.int64)


def bools():
    """Operators that only move elements, on bools."""
    x = flags(3, 4)
    data = {"x": x}
    case("bool_gather", node("Gather", "x i", axis=1), data, {"i": ints(1, -1)})
    case("bool_gather_nd", node("GatherND", "x i"), data, {"i": ints(1, 2, 0, 3).reshape(2, 2)})
    case("bool_gather_elements", node("GatherElements", "x i", axis=1), data, {"i": ints(0, 1, 3, 2, 1, 0).reshape(3, 2)},
         fixed=True)
    case("bool_split", node("Split", "x", "y z", axis=1), data, outputs="y z", fixed=True)
    case("bool_split_uneven", node("Split", "x s", "y z", axis=1), data, {"s": ints(1, 3)}, outputs="y z")
    case("bool_scatter_nd", node("ScatterND", "x i u"), data, {"i": ints(1, 2, 0, 3).reshape(2, 2), "u": flags(2)},
         fixed=True)
    case("bool_scatter_elements", node("ScatterElements", "x i u", axis=1), data,
         {"i": ints(0, 1, 3, 2, 1, 0).reshape(3, 2), "u": flags(3, 2)}, fixed=True)
    case("bool_reverse_sequence", node("ReverseSequence", "x n", batch_axis=0, time_axis=1), data, {"n": ints(2, 4, 1)})
    case("bool_concat", node("Concat", "x x", axis=0), data)
    case("bool_slice", node("Slice", "x s e a t"), data, {"s": ints(-1), "e": ints(-9), "a": ints(1), "t": ints(-1)}, fixed=True)
    case("bool_slice_forward", node("Slice", "x s e a"), data, {"s": ints(1), "e": ints(3), "a": ints(1)})
    case("bool_tile", node("Tile", "x r"), data, {"r": ints(2, 1)})
    case("bool_transpose", node("Transpose", "x"), data)
    case("bool_expand", node("Expand", "x s"), data, {"s": ints(2, 3, 4)})
    case("bool_reshape", node("Reshape", "x s"), data, {"s": ints(2, 6)})
    case("bool_unsqueeze", node("Unsqueeze", "x a"), data, {"a": ints(0, 2)})
    case("bool_squeeze", [node("Unsqueeze", "x a", "t"), node("Squeeze", "t a")], data, {"a": ints(0)})
    case("bool_compress", node("Compress", "x c", axis=0), data, {"c": np.array([True, False, True])})
    case("bool_pad", node("Pad", "x p v"), data, {"p": ints(0, 1, 1, 0), "v": np.array(True)})
    case("bool_trilu", node("Trilu", "x"), data)
    case("bool_non_zero", node("NonZero", "x"), data)
    case("bool_identity", [node("Identity", "x", "t"), node("Not", "t")], data)
    case("bool_equal", node("Equal", "x z"), {"x": x, "z": flags(3, 4)})
    case("bool_cast", [node("Cast", "x", "t", to=TensorProto.FLOAT), node("Cast", "t", to=TensorProto.BOOL)], data)
    case("bool_logic", [node("And", "x z", "a"), node("Or", "a x", "o"), node("Xor", "o z", "y")],
         {"x": x, "z": flags(3, 4)})
    case("bool_flatten", node("Flatten", "x", axis=0), data)
    case("bool_attention_mask",  # as transformers' BERT indexes its mask
         [node("Cast", "m", "b", to=TensorProto.BOOL), node("GatherND", "b i", "g"), node("Cast", "g", to=TensorProto.FLOAT)],
         {"m": ints(1, 1, 0, 1, 0, 0).reshape(2, 3), "i": ints(0, 1, 1, 0, 1, 2).reshape(3, 2)}, fixed=True)


def shapes():
    case("colon", [node("Relu", "x", "2:0"), node("Neg", "2:0", "t:1"), node("Add", "t:1 2:0", "y:0")], {"x": real(2)},
         outputs="y:0")
    case("colon_split", [node("Split", "x", "a:0 a:1"), node("Add", "a:0 a:1", "y:0")], {"x": real(4)}, outputs="y:0", fixed=True)
    low = np.iinfo(np.int64).min
    flip = {"s": ints(-1), "e": ints(low), "a": ints(1), "t": ints(-1)}
    case("flip", node("Slice", "x s e a t"), {"x": real(3, 4)}, flip)  # as torch.flip is exported
    case("flip_two", node("Slice", "x s e a t"), {"x": real(3, 4)},
         {"s": ints(-1, -1), "e": ints(low, low), "a": ints(0, 1), "t": ints(-1, -1)})
    case("lowest", node("Max", "x c"), {"x": ints(3, low, 7)}, {"c": ints(low)}, fixed=True)
    case("lowest_where", node("Where", "c a b"), {"c": flags(3)}, {"a": ints(low), "b": ints(low, 2, low + 1)})
    x = {"x": real(2, 4, 5, 7)}
    case("slice_9", node("Slice", "x", axes=[3], starts=[-4], ends=[1000]), x, opset=9)
    case("slice_9_both", node("Slice", "x", axes=[1, 2], starts=[1, -3], ends=[-1, 2147483647]), x, opset=9)
    case("slice_9_far", node("Slice", "x", axes=[2], starts=[-100], ends=[2]), x, opset=9)
    case("reshape_zero", node("Reshape", "x s"), {"x": real(2, 3), "s": ints(0, -1)})
    case("reshape_zero_longer", node("Reshape", "x s"), {"x": real(2, 6), "s": ints(0, 3, -1)})
    case("reshape_zero_shorter", node("Reshape", "x s"), {"x": real(2, 3, 4), "s": ints(0, -1)})
    case("scalar", [node("Add", "x s", "t"), node("Mul", "t t")], {"x": np.array(2.5, np.float32)},
         {"s": np.array(0.5, np.float32)})
    case("unsorted", [node("Neg", "b"), node("Relu", "a", "b"), node("Abs", "x", "a")], {"x": real(3)})


def einsums():
    def einsum(name, equation, *arrays, **more):
        names = "abcd"[:len(arrays)]
        case("einsum_" + name, node("Einsum", " ".join(names), equation=equation), dict(zip(names, arrays)), opset=12,
             fixed=True, **more)

    einsum("three", "ij,jk,kl->il", real(2, 3), real(3, 4), real(4, 2))
    einsum("three_batched", "bhid,bhjd,bj->bhi", real(2, 3, 4, 5), real(2, 3, 6, 5), real(2, 6))
    einsum("four", "ab,bc,cd,de->ae", real(2, 3), real(3, 2), real(2, 4), real(4, 3))
    einsum("three_shared", "i,i,i->i", real(3), real(3), real(3))
    einsum("three_dots", "...ij,...jk,kl->...il", real(2, 3, 4), real(2, 4, 2), real(2, 5))
    einsum("diagonal", "ii->i", real(4, 4))
    einsum("trace", "ii", real(4, 4))
    einsum("batch_diagonal", "bii->bi", real(2, 3, 3))
    einsum("dots_diagonal", "...ii->...i", real(2, 3, 3))
    einsum("triple", "iii->i", real(3, 3, 3))
    einsum("two_diagonals", "iijj->ij", real(3, 3, 2, 2))
    einsum("diagonal_product", "ii,ij->j", real(3, 3), real(3, 2))
    einsum("apart", "iji->j", real(3, 2, 3))
    einsum("implicit", "ij,jk", real(2, 3), real(3, 4))
    einsum("implicit_order", "ba", real(2, 3))
    einsum("implicit_dots", "...ij,...jk", real(2, 3, 4), real(2, 4, 5))
    einsum("blanks", " i j , j k -> i k ", real(2, 3), real(3, 4))


def normal():
    x = real(2, 6, 3, 2)
    weights = {"s": real(3), "b": real(3)}
    case("group_norm_18", node("GroupNormalization", "x s b", num_groups=3, epsilon=1e-3), {"x": x}, weights, opset=18,
         fixed=True)
    case("group_norm_21", node("GroupNormalization", "x s b", num_groups=3, epsilon=1e-3), {"x": x},
         {"s": real(6), "b": real(6)}, opset=21, fixed=True)


def grids():
    x = {"x": real(2, 3, 4, 5), "g": (RANDOM.random((2, 3, 6, 2)) * 3 - 1.5).astype(np.float32)}
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                case(f"grid_{mode}_{padding}_{corners}", node("GridSample", "x g", mode=mode, padding_mode=padding,
                                                              align_corners=corners), x, opset=16)
    case("grid_20", node("GridSample", "x g", mode="linear"), x, opset=20)


def pools():
    x = {"x": real(2, 3, 7, 8)}
    case("lp_pool", node("LpPool", "x", kernel_shape=[3, 2]), x, fixed=True)
    case("lp_pool_1", node("LpPool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], p=1), x, fixed=True)
    case("lp_pool_3", node("LpPool", "x", kernel_shape=[2, 2], strides=[2, 2], p=3), x, fixed=True)
    case("lp_pool_same", node("LpPool", "x", kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]), x, fixed=True)
    case("lp_pool_1d", node("LpPool", "x", kernel_shape=[3], pads=[1, 1]), {"x": real(2, 3, 7)}, fixed=True)
    case("lp_pool_3d", node("LpPool", "x", kernel_shape=[2, 2, 2]), {"x": real(1, 2, 4, 5, 3)}, fixed=True)
    case("lp_pool_18", node("LpPool", "x", kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2], dilations=[2, 1]), x, opset=18,
         fixed=True)
    case("lp_pool_pads", node("LpPool", "x", kernel_shape=[3, 2], pads=[1, 0, 1, 1]), x)


def fused():
    x = {"x": real(1, 2, 5, 4)}
    w = {"w": real(3, 2, 3, 3), "b": real(3)}

    def conv(name, inputs="x w b", more=None, **attributes):
        case("fused_" + name, node("FusedConv", inputs, domain="com.microsoft", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                                   **attributes), x | (more or {}), w)

    conv("relu", activation="Relu")
    conv("leaky", activation="LeakyRelu", activation_params=[0.2])
    conv("clip", activation="Clip", activation_params=[-0.5, 0.5])
    conv("hard_sigmoid", activation="HardSigmoid", activation_params=[0.3, 0.4])
    conv("tanh_no_bias", "x w", activation="Tanh")
    conv("sum", "x w b z", {"z": real(1, 3, 5, 4)}, activation="Relu")


def slices():
    low, far, x = np.iinfo(np.int64).min, 2**62, {"x": real(3, 5)}
    for name, (start, end, step) in {"before": (-9, -20, -1), "before_all": (low, low, -2), "before_end": (-9, -5, -1),
                                     "stride": (1, 4, far), "stride_back": (-2, low, -far)}.items():
        case("slice_" + name, node("Slice", "x s e a t"), x,
             {"s": ints(start), "e": ints(end), "a": ints(1), "t": ints(step)}, fixed=True)


def nans():
    """Operators that libnd4j alone would return a number from."""
    x = {"x": np.array([np.nan, np.inf, -np.inf, 0, 1, -1, 0.5, -3, 8], np.float32)}
    for op in ("Sign", "Selu", "Celu"):
        case("nan_" + op.lower(), node(op, "x"), x)
    case("nan_prelu", node("PRelu", "x s"), x, {"s": np.array([0.25], np.float32)})
    low, high = {"l": np.array(-1, np.float32)}, {"h": np.array(2, np.float32)}
    case("nan_clip", node("Clip", "x l h"), x | low | high)
    case("nan_clip_low", node("Clip", "x l"), x | low)
    case("nan_clip_high", helper.make_node("Clip", ["x", "", "h"], ["y"]), x | high)
    case("nan_clip_reversed", node("Clip", "x h l"), x, low | high)


def volumes():
    x = {"x": real(2, 2, 3, 4, 5), "g": (RANDOM.random((2, 2, 3, 4, 3)) * 3 - 1.5).astype(np.float32)}
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            case(f"grid_volume_{mode}_{padding}", node("GridSample", "x g", mode=mode, padding_mode=padding), x, opset=20)
    case("grid_volume_corners", node("GridSample", "x g", align_corners=1), x, opset=20)


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def quantized():
    x = {"x": real(2, 3, 4)}
    i8, u8 = np.int8, np.uint8
    scale, zero = np.float32(0.03), np.array(117, u8)
    for name, z in (("u8", zero), ("i8", np.array(-5, i8))):
        case(f"quantized_{name}", [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")], x, {"s": scale, "z": z})
    case("quantized_without_zero", [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s")], x, {"s": scale})
    axis = {"s": np.array([0.02, 0.05, 0.2], np.float32), "z": np.array([3, 100, 255], u8)}
    case("quantized_axis", [node("QuantizeLinear", "x s z", "q", axis=-2), node("DequantizeLinear", "q s z", axis=1)], x, axis)
    matrix = {"w": codes(i8, 4, 5), "s": RANDOM.random(5).astype(np.float32) / 50, "z": np.zeros(5, i8)}
    case("quantized_weights_matmul",
         [node("DequantizeLinear", "w s z", "v", axis=1), node("MatMul", "x v")], x, matrix)
    image = {"x": real(1, 3, 5, 5)}
    filters = {"w": codes(i8, 4, 3, 3, 3), "ws": RANDOM.random(4).astype(np.float32) / 50, "wz": np.zeros(4, i8),
               "b": codes(np.int16, 4).astype(np.int32), "bs": RANDOM.random(4).astype(np.float32) / 5000, "bz": np.zeros(4, np.int32)}
    case("quantized_weights_conv",
         [node("DequantizeLinear", "w ws wz", "v", axis=0), node("DequantizeLinear", "b bs bz", "c", axis=0), node("Conv", "x v c")],
         image, filters)
    case("quantized_dynamic", [node("DynamicQuantizeLinear", "x", "q s z"), node("DequantizeLinear", "q s z")], x)
    case("quantized_matmul_integer",
         [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z wz", "i"), node("Cast", "i", "f", to=1),
          node("Mul", "s ws", "both"), node("Mul", "f both")], x, {"w": codes(u8, 4, 5), "wz": zero, "ws": scale})
    case("quantized_conv_integer",
         [node("DynamicQuantizeLinear", "x", "q s z"), node("ConvInteger", "q w z", "i", pads=[1, 1, 1, 1]), node("Cast", "i", "f", to=1),
          node("Mul", "f s")], image, {"w": codes(u8, 2, 3, 3, 3)})
    steps = {"s": np.array(scale), "z": zero, "ys": np.float32(0.4), "yz": np.array(90, u8)}
    case("quantized_qlinear_conv",
         [node("QuantizeLinear", "x s z", "q"), node("QLinearConv", "q s z w ws wz ys yz b", "r", strides=[2, 2]),
          node("DequantizeLinear", "r ys yz")], image, steps | {k: filters[k] for k in ("w", "ws", "wz", "b")})
    case("quantized_qlinear_matmul",
         [node("QuantizeLinear", "x s z", "q"), node("QLinearMatMul", "q s z w ws wz ys yz", "r"), node("DequantizeLinear", "r ys yz")],
         x, steps | {"w": matrix["w"], "ws": matrix["s"], "wz": matrix["z"]})
    ms = "com.microsoft"
    two = steps | {"t": np.float32(0.0217), "tz": np.array(60, u8)}
    both = [node("QuantizeLinear", "x s z", "q"), node("QuantizeLinear", "x t tz", "p")]
    for op in ("QLinearAdd", "QLinearMul"):
        case(f"quantized_{op.lower()}", both + [node(op, "q s z p t tz ys yz", "r", ms), node("DequantizeLinear", "r ys yz")], x, two)
    case("quantized_qlinearconcat", both + [node("QLinearConcat", "ys yz q s z p t tz", "r", ms, axis=1), node("DequantizeLinear", "r ys yz")],
         x, two)
    for op, more in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.125})):
        case(f"quantized_{op.lower()}", [both[0], node(op, "q s z ys yz", "r", ms, **more), node("DequantizeLinear", "r ys yz")], x,
             {k: steps[k] for k in "sz"} | {"ys": np.float32(0.02), "yz": np.array(128, u8)})
    case("quantized_qlinearglobalaveragepool",
         [both[0], node("QLinearGlobalAveragePool", "q s z ys yz", "r", ms), node("DequantizeLinear", "r ys yz")], image,
         {k: steps[k] for k in "sz"} | {"ys": np.float32(0.02), "yz": np.array(128, u8)})
    rows = {"x": real(3, 4)}
    bias = {"c": codes(np.int16, 5).astype(np.int32) // 8}
    case("quantized_qgemm", [both[0], node("QGemm", "q s z w ws wz c ys yz", "r", ms), node("DequantizeLinear", "r ys yz")], rows,
         steps | bias | {"w": matrix["w"], "ws": matrix["s"], "wz": matrix["z"]})
    case("quantized_qgemm_floats", [both[0], node("QGemm", "q s z w ws wz c", "y", ms, transB=1)], rows,
         {k: steps[k] for k in "sz"} | bias | {"w": codes(i8, 5, 4), "ws": np.float32(0.01), "wz": np.array(0, i8)})
    case("quantized_dynamic_matmul", node("DynamicQuantizeMatMul", "x w ws wz b", "y", ms), x,
         {"w": matrix["w"], "ws": matrix["s"], "wz": matrix["z"], "b": real(5)})
    case("quantized_matmul_to_float",
         [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulIntegerToFloat", "q w s ws z wz", "y", ms)], x,
         {"w": matrix["w"], "ws": matrix["s"], "wz": matrix["z"]})


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    onnxruntime.set_default_logger_severity(4)
    for name, (model, inputs) in CASES.items():
        content = model.SerializeToString(deterministic=True)
        options = onnxruntime.SessionOptions()
        if name.startswith("quantized"):  # its fused kernels round activations, too
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        results = dict(zip(names, session.run(names, inputs)))
        tensors = {"in." + k: v for k, v in inputs.items()} | {"out." + k: v for k, v in results.items()}
        (folder / f"{name}.onnx").write_bytes(content)
        if name.endswith("_open") and name.removesuffix("_open") in CASES:
            continue  # NAME.safetensors is for both
        save_file({k: np.ascontiguousarray(v).reshape(np.shape(v)) for k, v in tensors.items()}, folder / f"{name}.safetensors")


def write_package(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for test in collect_testcases(None):
        if test.name.removeprefix("test_") in PACKAGE:
            (folder / f"{test.name}.onnx").write_bytes(test.model.SerializeToString(deterministic=True))


for make in (bools, shapes, einsums, normal, grids, pools, fused, slices, nans, volumes, quantized):
    make()
to = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data")
write(to / "idioms")
write_package(to / "package")
