"""Single operators for tensorflow_models.py: each case is a graph of one operator, with its arguments as constants."""
import dataclasses

import numpy
import tensorflow as tf

from tensorflow_graphs import V, W, X, Spec, plain_name, random_of, without_defaults, write_frozen

INFINITY, NAN = float("inf"), float("nan")
CASES = []


@dataclasses.dataclass
class Case:
    operator: str
    label: str
    arguments: dict
    build: object  # None: the raw operator
    outputs: int  # how many of the outputs have a defined value; 0: all
    open: bool  # also with open extents


def case(operator, label="", /, *, _build=None, _outputs=0, _open=None, **arguments):
    """Adds a case. The first of each operator is also made with open extents, unless _open is False."""
    if _open is None:
        _open = all(c.operator != operator for c in CASES)
    CASES.append(Case(operator, label, arguments, _build, _outputs, _open))


SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32", "int64": "i64", "bool": "bool",
         "int8": "i8", "uint8": "u8", "int16": "i16"}
NAMES = {v: k for k, v in SHORT.items()}

# Operators of one input: a range of its elements, and dtypes besides 32-bit floats.
UNARY = {
    "Abs": (-2, 2, "i32 f64"), "Acos": (-1, 1, ""), "Acosh": (1, 4, ""), "Asin": (-1, 1, ""), "Asinh": (-3, 3, ""),
    "Atan": (-3, 3, ""), "Atanh": (-0.9, 0.9, ""), "Ceil": (-3, 3, "f64"), "Cos": (-4, 4, ""), "Cosh": (-2, 2, ""),
    "Digamma": (0.5, 5, ""), "Elu": (-2, 2, ""), "Erf": (-2, 2, ""), "Erfc": (-2, 2, ""), "Exp": (-2, 2, "f64 f16"),
    "Expm1": (-1, 1, ""), "Floor": (-3, 3, ""), "Identity": (-2, 2, "i64 bool"), "Inv": (0.5, 3, ""),
    "Lgamma": (0.5, 5, ""), "Log": (0.1, 5, "f64"), "Log1p": (-0.5, 3, ""), "LogSoftmax": (-3, 3, ""),
    "Neg": (-2, 2, "i32"), "OnesLike": (-2, 2, "i32"), "PreventGradient": (-2, 2, ""), "Reciprocal": (0.5, 3, ""),
    "Relu": (-2, 2, "i32 f16"), "Relu6": (-3, 9, ""), "Rsqrt": (0.2, 5, ""), "Selu": (-2, 2, ""),
    "Sigmoid": (-4, 4, "f64"), "Sign": (-2, 2, "i32"), "Sin": (-4, 4, ""), "Sinh": (-2, 2, ""), "Snapshot": (-2, 2, ""),
    "Softmax": (-3, 3, "f64"), "Softplus": (-4, 4, ""), "Softsign": (-4, 4, ""), "Sqrt": (0, 5, ""),
    "Square": (-2, 2, "i32"), "StopGradient": (-2, 2, ""), "Tan": (-1, 1, ""), "Tanh": (-3, 3, "f16"),
    "ZerosLike": (-2, 2, "bool"), "L2Loss": (-2, 2, ""), "Rank": (-2, 2, ""), "BesselI0e": (-2, 2, ""),
    "BesselI1e": (-2, 2, ""), "Ndtri": (0.1, 0.9, ""), "Erfinv": (-0.9, 0.9, ""),
}
ARGUMENT = {"Elu": "features", "LogSoftmax": "logits", "Relu": "features", "Relu6": "features", "Selu": "features",
            "Softmax": "logits", "Softplus": "features", "Softsign": "features", "L2Loss": "t",
            **{n: "input" for n in ("Identity", "PreventGradient", "Snapshot", "StopGradient", "Rank")}}
for name, (low, high, dtypes) in UNARY.items():
    for dtype in ("f32", *dtypes.split()):
        case(name, "" if dtype == "f32" else dtype,
             **{ARGUMENT.get(name, "x"): X(2, 3, 4, dtype=NAMES[dtype], low=low, high=high)})

for name, values in {"Rint": (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4, -0.6), "Round": (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5),
                     "IsFinite": (0, 1, INFINITY, -INFINITY, NAN), "IsInf": (0, 1, INFINITY, -INFINITY, NAN),
                     "IsNan": (0, 1, INFINITY, -INFINITY, NAN)}.items():
    case(name, x=V(values))
    case(name, "f64", x=V([values], "float64"))
case("Round", "i32", x=X(5, dtype="int32"))
SPECIAL = (NAN, INFINITY, -INFINITY, 0, 1, -1, 0.5, -3, 8)
for name in ("Sign", "Selu"):
    case(name, "nan", **{ARGUMENT.get(name, "x"): V(SPECIAL)}, _open=True)
for name in ("Maximum", "Minimum"):
    case(name, "nan", x=V(SPECIAL), y=V([[value] for value in SPECIAL]), _open=True)

# Operators of two inputs: a range of the elements of each, and dtypes besides 32-bit floats.
ANY, ABOVE = (-2, 2), (0.5, 3)
BINARY = {
    "Add": (ANY, ANY, "i32"), "AddV2": (ANY, ANY, "i32 f64 f16"), "Atan2": (ANY, ABOVE, ""),
    "Div": (ANY, ABOVE, ""), "DivNoNan": (ANY, ABOVE, ""), "FloorDiv": (ANY, ABOVE, ""), "FloorMod": (ANY, ABOVE, ""),
    "Maximum": (ANY, ANY, "i32"), "Minimum": (ANY, ANY, "i64"), "Mod": (ANY, ABOVE, ""), "Mul": (ANY, ANY, "i32"),
    "MulNoNan": (ANY, ANY, ""), "Pow": (ABOVE, ANY, ""), "RealDiv": (ANY, ABOVE, "f64"),
    "SquaredDifference": (ANY, ANY, "i32"), "Sub": (ANY, ANY, "i32"), "Xdivy": (ANY, ABOVE, ""),
    "Xlogy": (ANY, ABOVE, ""), "Xlog1py": (ANY, ABOVE, ""), "Greater": (ANY, ANY, "i32"),
    "GreaterEqual": (ANY, ANY, "i32"), "Less": (ANY, ANY, "i64"), "LessEqual": (ANY, ANY, "i32"),
    "TruncateMod": (ANY, ABOVE, ""),
}
for name, (first, second, dtypes) in BINARY.items():
    a, b = ({"low": low, "high": high} for low, high in (first, second))
    case(name, x=X(2, 3, 4, **a), y=X(2, 3, 4, **b))
    case(name, "broadcast", x=X(2, 3, 4, **a), y=X(3, 1, **b))
    case(name, "constant", x=X(2, 3, **a), y=W(**b))
    for dtype in dtypes.split():
        integers = {"dtype": NAMES[dtype], "low": -5, "high": 5}
        case(name, dtype, x=X(2, 6, **integers), y=X(6, **integers))
for name in ("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Div", "Mod"):
    case(name, "i32", x=X(3, 8, dtype="int32", low=-9, high=9), y=V([-4, -3, -2, -1, 1, 2, 3, 4], "int32"))
case("FloorDiv", "negative", x=X(3, 4, low=-9, high=9), y=V([-2, 1.5, -0.7, 3]))
case("FloorMod", "negative", x=X(3, 4, low=-9, high=9), y=V([-2, 1.5, -0.7, 3]))
case("DivNoNan", "zeros", x=V([1, 0, -2, 3]), y=V([0, 0, 4, 2]))
case("MulNoNan", "zeros", x=V([INFINITY, NAN, 2]), y=V([0, 0, 3]))
case("Xdivy", "zeros", x=V([0, 0, 2]), y=V([0, 1, 4]))
case("Xlogy", "zeros", x=V([0, 0, 2]), y=V([0, 1, 4]))
case("Pow", "i32", x=X(2, 3, dtype="int32", low=-3, high=3), y=V([0, 1, 3], "int32"))
case("Pow", "square", x=X(2, 3), y=W(value=2.0))
for name in ("Equal", "NotEqual"):
    integers = {"dtype": "int32", "low": 0, "high": 2}
    case(name, x=X(2, 8, **integers), y=X(8, **integers))
    case(name, "f32", x=V([1, 2, 3]), y=V([[1, 0, 3], [0, 2, 0]]))
    case(name, "bool", x=X(8, dtype="bool"), y=X(8, dtype="bool"))
    case(name, "constant", x=X(2, 8, dtype="int64", low=0, high=2), y=W(dtype="int64", value=1))
case("NextAfter", x1=X(2, 4), x2=X(4))
case("ApproximateEqual", x=V([1, 2, 3]), y=V([1.05, 2.5, 3]), tolerance=0.1)
for name in ("LogicalAnd", "LogicalOr"):
    case(name, x=X(2, 6, dtype="bool"), y=X(6, dtype="bool"))
case("LogicalNot", x=X(2, 6, dtype="bool"))
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    case(name, x=X(2, 6, dtype="int32", low=0, high=99), y=X(6, dtype="int32", low=0, high=99))
    case(name, "i64", x=X(6, dtype="int64", low=-99, high=99), y=W(dtype="int64", value=15))
case("Invert", x=X(2, 6, dtype="int32", low=-99, high=99))
for name in ("LeftShift", "RightShift"):
    case(name, x=X(2, 6, dtype="int32", low=0, high=99), y=X(6, dtype="int32", low=0, high=4))
case("Igamma", a=X(2, 4, low=0.5, high=4), x=X(2, 4, low=0.5, high=4))
case("Igammac", a=X(2, 4, low=0.5, high=4), x=X(2, 4, low=0.5, high=4))
case("Zeta", x=X(2, 4, low=1.5, high=4), q=X(4, low=0.5, high=3))
case("Polygamma", a=V([1, 2, 3, 1]), x=X(2, 4, low=0.5, high=4))
case("Betainc", a=X(2, 4, low=0.5, high=4), b=X(2, 4, low=0.5, high=4), x=X(2, 4, low=0.1, high=0.9))
case("AddN", inputs=[X(2, 3), X(2, 3), X(2, 3)])
case("AddN", "one", inputs=[X(2, 3)])
case("Cross", a=X(2, 4, 3), b=X(2, 4, 3))

# Reductions.
for name in ("Sum", "Mean", "Prod", "Max", "Min"):
    case(name, "last", input=X(2, 3, 4), axis=-1)
    case(name, "axes_keep", input=X(2, 3, 4), axis=[0, 2], keep_dims=True)
    case(name, "negative", input=X(2, 3, 4), axis=[-3, -2])
    case(name, "all", input=X(2, 3, 4), axis=[0, 1, 2])
    case(name, "none", input=X(2, 3, 4), axis=numpy.zeros(0, "int32"))
    case(name, "i32", input=X(2, 3, dtype="int32"), axis=W(dtype="int64", value=[1]), keep_dims=True)
for name in ("All", "Any"):
    case(name, input=X(4, 3, dtype="bool"), axis=-1)
    case(name, "axes_keep", input=X(4, 2, 2, dtype="bool"), axis=[1, 2], keep_dims=True)
    case(name, "none", input=X(4, 2, dtype="bool"), axis=numpy.zeros(0, "int32"))
for name in ("ArgMax", "ArgMin"):
    case(name, input=X(2, 5, 4), dimension=-1)
    case(name, "axis1_i32", input=X(2, 5, 4), dimension=1, output_type=tf.int32)
for name in ("Cumsum", "Cumprod"):
    case(name, x=X(2, 4), axis=1)
    case(name, "exclusive", x=X(2, 4), axis=-1, exclusive=True)
    case(name, "reverse", x=X(3, 4), axis=0, reverse=True)
    case(name, "both_i32", x=X(2, 4, dtype="int32", low=1, high=3), axis=1, exclusive=True, reverse=True)
case("CumulativeLogsumexp", x=X(2, 4), axis=1)

# Products.
case("MatMul", a=X(3, 4), b=W(4, 5))
case("MatMul", "both", a=X(3, 4), b=X(4, 5))
case("MatMul", "transposed", a=X(4, 3), b=W(5, 4), transpose_a=True, transpose_b=True)
case("MatMul", "transposed_b_f64", a=X(3, 4, dtype="float64"), b=W(5, 4, dtype="float64"), transpose_b=True)
case("MatMul", "i32", a=X(3, 4, dtype="int32"), b=X(4, 2, dtype="int32"))
case("BatchMatMul", x=X(2, 3, 4), y=X(2, 4, 5))
case("BatchMatMul", "adjoint", x=X(2, 4, 3), y=X(2, 5, 4), adj_x=True, adj_y=True)
case("BatchMatMulV2", x=X(2, 3, 4), y=X(2, 4, 5))
case("BatchMatMulV2", "broadcast", x=X(2, 1, 3, 4), y=W(5, 4, 2))
case("BatchMatMulV2", "adjoint", x=X(2, 2, 4, 3), y=X(2, 2, 5, 4), adj_x=True, adj_y=True)
case("BatchMatMulV3", x=X(2, 3, 4), y=X(2, 4, 5), Tout=tf.float32)
for label, equation, *inputs in (
        ("matmul", "ij,jk->ik", X(3, 4), W(4, 5)), ("heads", "bld,dhk->blhk", X(2, 3, 8), W(8, 2, 4)),
        ("scores", "blhk,bmhk->bhlm", X(2, 3, 2, 4), X(2, 5, 2, 4)),
        ("join", "blhk,hkd->bld", X(2, 3, 2, 4), W(2, 4, 8)),
        ("ellipsis", "...ij,...jk->...ik", X(2, 1, 3, 4), X(5, 4, 2)), ("transpose", "abc->cab", X(2, 3, 4)),
        ("sum", "abc->b", X(2, 3, 4)), ("diagonal", "ii->i", X(4, 4)), ("outer", "i,j->ij", X(3), X(4))):
    case("Einsum", label, inputs=inputs, equation=equation, _open=label in ("matmul", "heads", "scores", "ellipsis"))
case("BiasAdd", value=X(2, 3, 4), bias=W(4))
case("BiasAdd", "nchw", value=X(2, 3, 4, 4), bias=W(3), data_format="NCHW")
case("BiasAddV1", value=X(2, 4), bias=W(4))
for name, arguments in {"MatrixDeterminant": {}, "MatrixInverse": {"adjoint": True}}.items():
    matrix = numpy.array([[[4, 1, 0], [1, 3, -1], [0.5, 0, 2]], [[2, 0, 1], [0, 1, 0], [-1, 0, 3]]])
    case(name, input=V(matrix))
    if arguments:
        case(name, "adjoint", input=V(matrix), **arguments)
case("Cholesky", input=V([[4, 1, 0], [1, 3, 0.5], [0, 0.5, 2]]))
case("MatrixSolve", matrix=V([[4, 1, 0], [1, 3, 0.5], [0, 0.5, 2]]), rhs=X(3, 2))

# Convolutions and pools.
case("Conv2D", "same", input=X(2, 7, 8, 3), filter=W(3, 3, 3, 4), strides=[1, 1, 1, 1], padding="SAME")
case("Conv2D", "same_stride2", input=X(2, 7, 8, 3), filter=W(3, 3, 3, 4), strides=[1, 2, 2, 1], padding="SAME",
     _open=True)
case("Conv2D", "valid_strides", input=X(2, 9, 8, 3), filter=W(3, 2, 3, 4), strides=[1, 3, 2, 1], padding="VALID")
case("Conv2D", "explicit", input=X(1, 7, 8, 3), filter=W(3, 3, 3, 4), strides=[1, 2, 2, 1], padding="EXPLICIT",
     explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
case("Conv2D", "dilated_same", input=X(1, 9, 9, 2), filter=W(3, 3, 2, 4), strides=[1, 1, 1, 1], padding="SAME",
     dilations=[1, 2, 3, 1], _open=True)
case("Conv2D", "dilated_valid", input=X(1, 9, 9, 2), filter=W(3, 3, 2, 4), strides=[1, 1, 1, 1], padding="VALID",
     dilations=[1, 2, 2, 1])
case("Conv2D", "groups", input=X(1, 6, 6, 4), filter=W(3, 3, 2, 6), strides=[1, 1, 1, 1], padding="SAME")
case("Conv2D", "filter_input", input=X(1, 5, 5, 2), filter=X(3, 3, 2, 3), strides=[1, 1, 1, 1], padding="VALID")
case("Conv2D", "f64", input=X(1, 5, 5, 2, dtype="float64"), filter=W(2, 2, 2, 3, dtype="float64"),
     strides=[1, 1, 1, 1], padding="SAME")
for label, size, strides, padding, more in (
        ("same_stride2", [2, 7, 8, 3], [1, 2, 2, 1], "SAME", {}), ("valid", [2, 9, 9, 3], [1, 2, 2, 1], "VALID", {}),
        ("stride1", [2, 4, 4, 3], [1, 1, 1, 1], "SAME", {}), ("even_stride3", [2, 12, 10, 3], [1, 3, 3, 1], "SAME", {}),
        ("explicit", [2, 7, 7, 3], [1, 2, 2, 1], "EXPLICIT", {"explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]})):
    high, wide = {"valid": (4, 4)}.get(label, [-(-s // strides[1]) for s in size[1:3]])
    case("Conv2DBackpropInput", label, input_sizes=size, filter=W(3, 3, 3, 4), strides=strides, padding=padding,
         out_backprop=X(size[0], high, wide, 4), **more)
for label, padding, stride, more in (("same", "SAME", 1, {}), ("valid_stride2", "VALID", 2, {}),
                                     ("same_stride2", "SAME", 2, {}),
                                     ("explicit", "EXPLICIT", 1, {"explicit_paddings": [0, 0, 1, 0, 2, 1, 0, 0]})):
    case("DepthwiseConv2dNative", label, input=X(2, 7, 8, 3), filter=W(3, 3, 3, 2), strides=[1, stride, stride, 1],
         padding=padding, **more)
case("Conv3D", "same", input=X(1, 4, 5, 6, 2), filter=W(2, 3, 3, 2, 3), strides=[1, 1, 2, 2, 1], padding="SAME")
case("Conv3D", "valid", input=X(1, 4, 5, 6, 2), filter=W(2, 3, 3, 2, 3), strides=[1, 1, 1, 1, 1], padding="VALID")
case("Conv3DBackpropInputV2", input_sizes=[1, 4, 6, 6, 2], filter=W(2, 3, 3, 2, 3), out_backprop=X(1, 2, 3, 3, 3),
     strides=[1, 2, 2, 2, 1], padding="SAME")
for name, argument in (("MaxPool", "input"), ("AvgPool", "value")):
    for label, size, stride, padding in (("valid", 2, 2, "VALID"), ("same", 3, 2, "SAME"),
                                         ("same_stride1", 2, 1, "SAME")):
        case(name, label, **{argument: X(2, 7, 6, 3)}, ksize=[1, size, size, 1], strides=[1, stride, stride, 1],
             padding=padding, _open=label != "same_stride1")
    case(name, "f64", **{argument: X(1, 6, 6, 2, dtype="float64")}, ksize=[1, 3, 2, 1], strides=[1, 1, 2, 1],
         padding="VALID")
case("MaxPool", "explicit", input=X(1, 6, 6, 2), ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="EXPLICIT",
     explicit_paddings=[0, 0, 1, 0, 0, 1, 0, 0])
case("MaxPool", "channels", input=X(1, 3, 3, 8), ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID")
case("MaxPoolV2", input=X(1, 6, 6, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
case("MaxPoolWithArgmax", input=X(1, 6, 6, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
for name in ("MaxPool3D", "AvgPool3D"):
    case(name, "same", input=X(1, 5, 6, 4, 2), ksize=[1, 2, 3, 2, 1], strides=[1, 2, 2, 1, 1], padding="SAME")
    case(name, "valid", input=X(1, 5, 6, 4, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
for name in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
    norm = {"scale": W(3, low=0.5), "offset": W(3), "mean": W(3), "variance": W(3, low=0.5), "is_training": False}
    case(name, x=X(2, 4, 4, 3), **norm, _outputs=1)
    case(name, "epsilon", x=X(2, 4, 4, 3), **norm, epsilon=0.1, _outputs=1)
case("FusedBatchNormV3", "f16", x=X(2, 4, 4, 3, dtype="float16"), **norm, _outputs=1)
case("LRN", input=X(1, 3, 3, 12))
case("LRN", "attributes", input=X(1, 3, 3, 12), depth_radius=2, bias=2.0, alpha=0.3, beta=0.75)
case("LeakyRelu", features=X(2, 6))
case("LeakyRelu", "alpha", features=X(2, 6), alpha=0.01)
case("Dilation2D", input=X(1, 5, 5, 2), filter=W(2, 2, 2), strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="SAME")
case("ExtractImagePatches", images=X(1, 6, 6, 2), ksizes=[1, 3, 3, 1], strides=[1, 2, 2, 1], rates=[1, 1, 1, 1],
     padding="VALID")
case("ExtractImagePatches", "same_rates", images=X(1, 6, 6, 2), ksizes=[1, 2, 2, 1], strides=[1, 2, 2, 1],
     rates=[1, 2, 2, 1], padding="SAME")
for name in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
    for label, size, more in (("", [9, 7], {}), ("half_pixel", [9, 7], {"half_pixel_centers": True}),
                              ("corners", [9, 7], {"align_corners": True}),
                              ("smaller", [2, 3], {"half_pixel_centers": True}), ("twice", [8, 10], {})):
        case(name, label, images=X(2, 4, 5, 3), size=size, **more, _open=label in ("", "half_pixel"))
case("ResizeBilinear", "u8", images=X(1, 4, 4, 1, dtype="uint8", low=0, high=200), size=[6, 6], half_pixel_centers=True)
case("ResizeArea", images=X(1, 4, 6, 2), size=[2, 3])
case("ResizeArea", "corners", images=X(1, 5, 5, 2), size=[3, 2], align_corners=True)
case("CropAndResize", image=X(2, 6, 6, 2), boxes=V([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9]]), box_ind=V([0, 1], "int32"),
     crop_size=[3, 4])
case("NonMaxSuppressionV3", scores=V([0.9, 0.75, 0.6, 0.95, 0.5]),
     boxes=V([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]),
     max_output_size=3, iou_threshold=0.5, score_threshold=0.0)
case("NonMaxSuppressionV3", "score", boxes=V([[0, 0, 1, 1], [0, 5, 1, 6], [0, 10, 1, 11]]), scores=V([0.9, 0.1, 0.95]),
     max_output_size=3, iou_threshold=0.5, score_threshold=0.4)


def built(row, name, open_extents):
    """Returns the graph of a case, its inputs and the names of its outputs."""
    random, feeds = random_of(f"{row.operator} {row.label}"), {}

    def tensor(argument, value):
        if isinstance(value, list) and value and isinstance(value[0], Spec):
            return [tensor(f"{argument}_{i}", v) for i, v in enumerate(value)]
        if not isinstance(value, Spec):
            return value
        array = value.make(random)
        if not value.fed:
            return array
        feeds[argument] = array
        shape = [None] * array.ndim if open_extents else array.shape
        return tf.compat.v1.placeholder(array.dtype, shape, argument)

    with tf.Graph().as_default() as graph:
        arguments = {k: tensor(k, v) for k, v in row.arguments.items()}
        if row.build:
            found = row.build(**arguments)
        else:
            found = getattr(tf.raw_ops, row.operator)(**arguments, name="result")
        found = list(found) if isinstance(found, (list, tuple)) else [found]
    graph_def = graph.as_graph_def()
    if row.operator not in {n.op for n in graph_def.node}:
        raise AssertionError(f"{name}: the graph has no {row.operator}")
    return graph_def, feeds, [plain_name(t) for t in found[:row.outputs or None]]


def write_operators(folder):
    """Writes all cases; graphs with open extents are without attributes that have their default value."""
    counts = {"operators": len({c.operator for c in CASES}), "cases": 0, "open": 0}
    for row in CASES:
        name = "_".join(filter(None, ("op", row.operator, row.label)))
        graph_def, feeds, outputs = built(row, name, False)
        expected = write_frozen(folder / name, graph_def, feeds, outputs)
        counts["cases"] += 1
        if row.open and any(v.ndim for v in feeds.values()):
            graph_def, feeds, outputs = built(row, name, True)
            found = write_frozen(folder / (name + "_open"), without_defaults(graph_def), feeds, outputs)
            for a, b in zip(expected.values(), found.values(), strict=True):
                numpy.testing.assert_array_equal(a, b, name)
            counts["open"] += 1
    return counts
