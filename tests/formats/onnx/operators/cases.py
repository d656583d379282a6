"""The operators of products.py: the dimensions of each, and its node.

An operator is (dimensions, make): `make(case, random)` returns (inputs, attributes, number of outputs). An input is an array,
or None if it is omitted. None as the value of an attribute leaves it out.
"""

import numpy as np

FLOATS = ["float32", "float64", "float16"]
INTEGERS = ["int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64"]
SIGNED = ["int32", "int64", "int8", "int16"]
NUMBERS = FLOATS + INTEGERS
ALL = NUMBERS + ["bool"]
SHAPES = [[3, 5], [], [1], [7], [0], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5]]
FULL = [[3, 5], [1], [7], [1, 4, 1], [2, 3, 4, 5]]
PAIRS = [[[3, 5], [3, 5]], [[], []], [[7], []], [[3, 1], [5]], [[2, 1, 4], [3, 1]], [[0], [1]], [[2, 3, 4, 5], [5]]]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, 3e38, -700.0, 90.0, 0.5, 2.5, -0.5, -1.5]
OPERATORS = {}
# onnx.reference computes other extents of windows with SAME_LOWER, other dtypes of sums of 8-bit integers.
WITHOUT_REFERENCE = ("GlobalMaxPool", "LpPool", "MaxPool", "ReduceMean", "ReduceProd", "ReduceSumSquare")


def operator(*names, **dimensions):
    def add(make):
        for name in names:
            OPERATORS[name] = (dimensions, make)
        return make
    return add


def ints(*values):
    return np.array(values, np.int64)


def numbers(random, dtype, shape, kind="plain"):
    """Random numbers: of floats, also small ones; of integers none that is 0."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        array = (random.standard_normal(shape) * 2).astype(dtype)
        if kind == "special" and array.size:
            with np.errstate(over="ignore"):
                array = np.resize(np.array(SPECIAL).astype(dtype), array.shape).reshape(shape)
        return np.asarray(array)
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, shape)).astype(dtype)
    if kind == "special":
        info = np.iinfo(dtype)
        return np.resize(np.array([info.min, info.max, 0, 1], dtype), shape)
    found = np.asarray(random.integers(1 if dtype.kind == "u" else -9, 10, shape))
    return np.where(found == 0, 7, found).astype(dtype)


def attributes_of(case, *names):
    return {name: case[name] for name in names if case[name] is not None}


VALUES = {"values": ["plain", "special"]}


def unary(names, dtypes, **attributes):
    @operator(*names, dtype=dtypes, shape=SHAPES, **VALUES, **attributes)
    def make(case, random):
        dtype, values = case["dtype"], case["values"]
        if values == "special" and (case["operator"], dtype) in UNDEFINED:
            return None
        return [numbers(random, dtype, case["shape"], values)], attributes_of(case, *attributes), 1


# The signs of NaN in half precision; the highest integers as floats; sines of large numbers, which 32 bits round.
UNDEFINED = [("Sign", "float16"), ("Shrink", "uint64"), ("Shrink", "int64"), ("Tan", "float64"), ("Sinh", "float64"), ("Cosh", "float64")]
unary(["Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Sin", "Cos", "Softplus", "Softsign", "Reciprocal", "Tan", "Atan", "Asin",
       "Acos", "Sinh", "Cosh", "Acosh", "Asinh", "Atanh", "HardSwish", "Mish", "Floor", "Ceil", "Round", "IsNaN"], FLOATS)
unary(["Relu"], FLOATS + SIGNED)
unary(["Abs", "Sign"], NUMBERS)
unary(["Neg"], FLOATS + SIGNED)
unary(["Identity"], ALL)
unary(["Not"], ["bool"])
unary(["BitwiseNot"], INTEGERS)
unary(["LeakyRelu"], FLOATS, alpha=[None, 0.3, -0.5, 0.0])
unary(["Elu"], FLOATS, alpha=[None, 0.3, 2.0])
unary(["Celu"], ["float32"], alpha=[None, 0.3, 2.0])
unary(["Swish"], FLOATS, alpha=[None, 0.3, 2.0])
unary(["ThresholdedRelu"], FLOATS, alpha=[None, 0.0, 2.0, -1.0])
unary(["Selu"], FLOATS, alpha=[None, 0.3], gamma=[None, 2.0])
unary(["HardSigmoid"], FLOATS, alpha=[None, 0.5, -0.1], beta=[None, 0.0, 0.75])
unary(["Shrink"], NUMBERS, bias=[None, 0.25], lambd=[None, 0.0, 1.5])
unary(["Gelu"], FLOATS, approximate=[None, "none", "tanh"])
unary(["IsInf"], ["float32", "float64"], detect_negative=[None, 0, 1], detect_positive=[None, 0, 1])


def binary(names, dtypes, **attributes):
    @operator(*names, dtype=dtypes, shapes=PAIRS, swapped=[False, True], **VALUES, **attributes)
    def make(case, random):
        a, b = case["shapes"][::-1] if case["swapped"] else case["shapes"]
        first = numbers(random, case["dtype"], a, case["values"])
        second = numbers(random, case["dtype"], b)
        if case["operator"] == "Div" and second.dtype.kind == "i":
            second = np.abs(second)  # the lowest integer divided by -1 ends the process of onnxruntime
        return [first, second], attributes_of(case, *attributes), 1


binary(["Add", "Sub", "Mul", "Div"], NUMBERS)
binary(["Less", "LessOrEqual", "Greater", "GreaterOrEqual"], NUMBERS)
binary(["Equal"], ALL)
binary(["And", "Or", "Xor"], ["bool"])
binary(["BitwiseAnd", "BitwiseOr", "BitwiseXor"], INTEGERS)


@operator("Pow", dtype=["float32", "float64", "float16", "int32", "int64"], exponent=["float32", "float64", "int32", "int64"],
          shapes=PAIRS)
def power(case, random):
    a, b = case["shapes"]
    base = numbers(random, case["dtype"], a)
    exponent = np.abs(numbers(random, case["exponent"], b)).clip(0, 3)
    return [np.abs(base) if exponent.dtype.kind == "f" else base, exponent], {}, 1


@operator("Mod", dtype=NUMBERS, fmod=[None, 0, 1], shapes=PAIRS)
def modulo(case, random):
    if np.dtype(case["dtype"]).kind == "f" and not case["fmod"]:
        return None
    return [numbers(random, case["dtype"], shape) for shape in case["shapes"]], attributes_of(case, "fmod"), 1


@operator("BitShift", dtype=["uint8", "uint16", "uint32", "uint64"], direction=["LEFT", "RIGHT"], shapes=PAIRS)
def shift(case, random):
    a, b = case["shapes"]
    return [numbers(random, case["dtype"], a), numbers(random, case["dtype"], b) % 7], attributes_of(case, "direction"), 1


@operator("Max", "Min", dtype=NUMBERS, shapes=PAIRS, members=[1, 2, 3], **VALUES)
def several(case, random):
    shapes = [*case["shapes"], case["shapes"][1]][:case["members"]]
    return [numbers(random, case["dtype"], s, case["values"] if i == 0 else "plain") for i, s in enumerate(shapes)], {}, 1


@operator("Sum", "Mean", dtype=FLOATS, shapes=PAIRS, members=[1, 2, 3])
def sums(case, random):
    return [numbers(random, case["dtype"], s) for s in [*case["shapes"], case["shapes"][1]][:case["members"]]], {}, 1


@operator("PRelu", dtype=FLOATS, shapes=[[[3, 5], [3, 5]], [[2, 3, 4], [3, 1]], [[7], [1]], [[3, 5], [5]]])
def prelu(case, random):
    return [numbers(random, case["dtype"], shape) for shape in case["shapes"]], {}, 1


@operator("Clip", dtype=FLOATS + ["int32", "int64", "int8", "uint8"], shape=SHAPES, least=[None, -1, 1], most=[None, 1, 0], **VALUES)
def clip(case, random):
    dtype = np.dtype(case["dtype"])
    ends = [None if case[k] is None or dtype.kind == "u" and case[k] < 0 else np.array(case[k], dtype) for k in ("least", "most")]
    x = numbers(random, dtype, case["shape"], case["values"])
    if case["opset"] >= 11:
        return [x, *ends], {}, 1
    if dtype.kind != "f":
        return None
    return [x], {k: float(v) for k, v in zip(("min", "max"), ends) if v is not None}, 1


CODES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
         "float64": 11, "uint32": 12, "uint64": 13}


@operator("Cast", dtype=ALL, to=list(CODES), shape=[[3, 5], [], [0]])
def cast(case, random):
    x = numbers(random, case["dtype"], case["shape"])
    if np.dtype(case["to"]).kind == "u" and x.dtype.kind == "f":
        x = np.abs(x)  # a negative float as an unsigned integer depends on the machine
    return [x], {"to": CODES[case["to"]]}, 1


@operator("CastLike", dtype=ALL, to=list(CODES), shape=[[3, 5], [], [0]])
def cast_like(case, random):
    found = cast(case, random)
    return [found[0][0], np.zeros([2], case["to"])], {}, 1


@operator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
          "ReduceLogSumExp", "ReduceSumSquare", dtype=["float32", "float64", "float16", "int32", "int64", "int8", "uint8"],
          shape=[[3, 5], [], [7], [1, 4, 1], [2, 3, 4, 5]], axes=[None, [], [0], [-1], "all", "outer"], keepdims=[None, 0, 1],
          noop_with_empty_axes=[None, 0, 1])
def reduction(case, random):
    rank, axes = len(case["shape"]), case["axes"]
    axes = {"all": list(range(rank)), "outer": [0, -1] if rank > 1 else [0]}.get(axes, axes) if isinstance(axes, str) else axes
    if axes and rank == 0:
        return None
    x = numbers(random, case["dtype"], case["shape"])
    if x.dtype.kind != "f" and case["operator"].startswith("ReduceLog"):
        return None  # onnxruntime rounds between the steps
    if x.dtype.kind != "f" and case["operator"] == "ReduceProd":
        x = np.sign(x)  # products of integers that exceed the dtype are not defined
    if case["operator"] == "ReduceLogSum":
        x = np.abs(x)
    as_input = case["opset"] >= (13 if case["operator"] == "ReduceSum" else 18)
    attributes = attributes_of(case, "keepdims", *(["noop_with_empty_axes"] if as_input else []))
    if not as_input:
        return ([x], attributes | ({} if not axes else {"axes": axes}), 1) if case["noop_with_empty_axes"] is None else None
    return [x, None if axes is None else ints(*axes)], attributes, 1


@operator("ArgMax", "ArgMin", dtype=["float32", "float64", "float16", "int32", "int8", "uint8"], shape=FULL, axis=[None, 0, -1],
          keepdims=[None, 0, 1], select_last_index=[None, 0, 1])
def extreme_index(case, random):
    if case["select_last_index"] is not None and case["opset"] < 12 or case["axis"] == -1 and case["opset"] < 11:
        return None
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "axis", "keepdims", "select_last_index"), 1


@operator("CumSum", "CumProd", dtype=["float32", "float64", "int32", "int64"], shape=FULL, axis=[0, -1], exclusive=[None, 0, 1],
          reverse=[None, 0, 1])
def cumulative(case, random):
    return [numbers(random, case["dtype"], case["shape"]), ints(case["axis"])[0]], attributes_of(case, "exclusive", "reverse"), 1


@operator("Softmax", "LogSoftmax", "Hardmax", dtype=FLOATS, shape=[[3, 5], [7], [1, 4, 1], [2, 3, 4, 5]], axis=[None, 0, 1, -1, -2],
          scale=[1, 100])
def softmax(case, random):
    axis, rank = case["axis"], len(case["shape"])
    if axis is not None and not -rank <= axis < rank or axis is None and case["opset"] < 13 and rank < 2:
        return None
    return [numbers(random, case["dtype"], case["shape"]) * np.dtype(case["dtype"]).type(case["scale"])], attributes_of(case, "axis"), 1


@operator("LpNormalization", dtype=["float32", "float64"], shape=FULL, axis=[None, 0, -1], p=[None, 1, 2])
def lp_normalization(case, random):
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "axis", "p"), 1


IMAGES = [[2, 3, 4, 5], [1, 4, 7], [2, 2, 3, 4, 5], [1, 1, 1, 1]]


@operator("BatchNormalization", dtype=FLOATS, shape=IMAGES + [[3, 5]], epsilon=[None, 0.1], momentum=[None, 0.5])
def batch_normalization(case, random):
    x = numbers(random, case["dtype"], case["shape"])
    a, b, mean, var = (numbers(random, case["dtype"], [x.shape[1]]) for _ in range(4))
    return [x, a, b, mean, np.abs(var)], attributes_of(case, "epsilon", "momentum"), 1


@operator("InstanceNormalization", dtype=["float32"], shape=IMAGES, epsilon=[None, 0.1])
def instance_normalization(case, random):
    x = numbers(random, case["dtype"], case["shape"])
    return [x, *(numbers(random, case["dtype"], [x.shape[1]]) for _ in range(2))], attributes_of(case, "epsilon"), 1


@operator("LayerNormalization", "RMSNormalization", dtype=FLOATS, shape=FULL, axis=[None, 0, -1], bias=[True, False],
          epsilon=[None, 0.1])
def layer_normalization(case, random):
    x = numbers(random, case["dtype"], case["shape"])
    of = x.shape[case["axis"] if case["axis"] is not None else -1:]
    bias = [numbers(random, case["dtype"], of)] if case["bias"] and case["operator"][0] == "L" else []
    return [x, numbers(random, case["dtype"], of), *bias], attributes_of(case, "axis", "epsilon"), 1


@operator("GroupNormalization", dtype=FLOATS, shape=[[2, 6, 4, 5], [1, 6, 7], [2, 6, 3, 4, 5]], num_groups=[1, 2, 6], epsilon=[None, 0.1])
def group_normalization(case, random):
    of = [case["num_groups"] if case["opset"] < 21 else 6]
    return [numbers(random, case["dtype"], case["shape"]), *(numbers(random, case["dtype"], of) for _ in range(2))], attributes_of(
        case, "num_groups", "epsilon"), 1


@operator("LRN", dtype=["float32"], shape=[[2, 6, 4, 5], [1, 3, 1, 7]], size=[1, 3, 5, 2], alpha=[None, 0.1], beta=[None, 0.5], bias=[None, 2.0])
def lrn(case, random):
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "size", "alpha", "beta", "bias"), 1


@operator("MeanVarianceNormalization", dtype=["float32"], shape=[[2, 3, 4, 5]], axes=[None, [0, 2, 3], [1], [0, 1, 2, 3]])
def mean_variance(case, random):
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "axes"), 1


@operator("Dropout", dtype=FLOATS, shape=FULL, ratio=[None, 0.25], training=[None, False])
def dropout(case, random):
    x = numbers(random, case["dtype"], case["shape"])
    if case["opset"] < 12:
        return [x], attributes_of(case, "ratio"), 1
    ratio = None if case["ratio"] is None else np.array(case["ratio"], np.float32)
    return [x, ratio, None if case["training"] is None else np.array(False)], {}, 1


@operator("Reshape", dtype=ALL, shape=[[2, 3, 4], [24], [0, 3]], to=[[-1], [4, -1], [0, -1], [2, 12, 1], [0, 0, -1]], allowzero=[None, 0, 1])
def reshape(case, random):
    if case["allowzero"] is not None and case["opset"] < 14:
        return None
    return [numbers(random, case["dtype"], case["shape"]), ints(*case["to"])], attributes_of(case, "allowzero"), 1


@operator("Flatten", dtype=["float32", "float64", "int32", "bool"], shape=[[3, 5], [7], [2, 3, 4, 5], [2, 0, 3]], axis=[None, 0, 1, 2, -1])
def flatten(case, random):
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "axis"), 1


@operator("Squeeze", dtype=["float32", "int64", "bool"], shape=[[1, 4, 1], [1], [1, 1, 3]], axes=[None, [0], [-3], [0, 2]])
def squeeze(case, random):
    return with_axes(case, numbers(random, case["dtype"], case["shape"]))


@operator("Unsqueeze", dtype=["float32", "int64", "bool"], shape=[[3, 5], [7], [2, 0]], axes=[[0], [-1], [0, 2], [2, 0], [-1, 1]])
def unsqueeze(case, random):
    return with_axes(case, numbers(random, case["dtype"], case["shape"]))


def with_axes(case, x):
    if case["opset"] < 13:
        return [x], attributes_of(case, "axes"), 1
    return [x, None if case["axes"] is None else ints(*case["axes"])], {}, 1


@operator("Transpose", dtype=ALL, shape=[[2, 3, 4], [2, 0, 3], [1, 4, 1]], perm=[None, [2, 0, 1], [0, 2, 1], [0, 1, 2]])
def transpose(case, random):
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "perm"), 1


@operator("Expand", dtype=ALL, shape=[[3, 1], [], [1], [5]], to=[[3, 5], [2, 3, 5], [5], [0, 1], [1]])
def expand(case, random):
    return [numbers(random, case["dtype"], case["shape"]), ints(*case["to"])], {}, 1


@operator("Concat", dtype=ALL, axis=[0, 1, -1], members=[1, 2, 5], shape=[[3, 5], [2, 0], [1, 4]])
def concat(case, random):
    return [numbers(random, case["dtype"], case["shape"]) for _ in range(case["members"])], {"axis": case["axis"]}, 1


@operator("Split", dtype=["float32", "float64", "int32", "int64", "bool"], axis=[None, 0, 1, -1], sizes=[None, [1, 3, 2], [0, 6]],
          shape=[[6, 6], [6, 6, 2]])
def split(case, random):
    if case["axis"] == -1 and len(case["shape"]) == 3:
        return None
    x, sizes = numbers(random, case["dtype"], case["shape"]), case["sizes"]
    count = len(sizes) if sizes else 3
    attributes = attributes_of(case, "axis")
    if case["opset"] < 13:
        return [x], attributes | ({"split": sizes} if sizes else {}), count
    if case["opset"] >= 18 and sizes is None:
        attributes["num_outputs"] = count
    return [x, ints(*sizes)] if sizes else [x], attributes, count


@operator("Tile", dtype=["float32", "float64", "int32", "int64", "bool", "uint8"], shape=[[2, 3], [1, 1], [2, 0]], repeats=[[1, 1], [2, 3], [0, 1]])
def tile(case, random):
    return [numbers(random, case["dtype"], case["shape"]), ints(*case["repeats"])], {}, 1


@operator("Pad", dtype=["float32", "float64", "int32", "int64", "bool", "uint8"], mode=[None, "constant", "reflect", "edge", "wrap"],
          pads=[[0, 0, 0, 0], [1, 2, 2, 1], [0, 2, 0, 0], [-1, 0, 0, 1]], value=[None, 3])
def pad(case, random):
    dtype, mode = np.dtype(case["dtype"]), case["mode"]
    if mode == "wrap" and case["opset"] < 19 or case["value"] and mode not in (None, "constant"):
        return None
    x = numbers(random, dtype, [3, 5])
    if case["opset"] < 11:
        if dtype.kind != "f":
            return None
        value = {} if case["value"] is None else {"value": float(case["value"])}
        return [x], attributes_of(case, "mode") | {"pads": case["pads"]} | value, 1
    value = None if case["value"] is None else np.array(case["value"]).astype(dtype)
    return [x, ints(*case["pads"]), value], attributes_of(case, "mode"), 1


FAR = 2**62


@operator("Slice", dtype=ALL, starts=[[1, 0], [-3, 2], [FAR, 0], [-FAR, 0]], ends=[[3, 4], [FAR, -1], [0, 1], [-FAR, 5]], axes=[None, [0, 1], [1, 0], [-1, 0]],
          steps=[None, [1, 2], [-1, 1], [2, -2]])
def slicing(case, random):
    x = numbers(random, case["dtype"], [4, 6])
    if case["opset"] >= 10:
        return [x, *(None if case[k] is None else ints(*case[k]) for k in ("starts", "ends", "axes", "steps"))], {}, 1
    if case["steps"] is not None or case["axes"] == [-1, 0]:
        return None
    return [x], attributes_of(case, "starts", "ends", "axes"), 1


@operator("Gather", dtype=ALL, axis=[None, 0, 1, -1], indices=[[1, 0], 2, [[0], [1]], [-1, -2], []], of=["int64", "int32"], shape=[[3, 4], [3, 4, 2]])
def gather(case, random):
    indices = np.array(case["indices"], case["of"])
    if len(case["shape"]) == 3 and case["axis"] == -1:
        indices = np.clip(indices, -2, 1)
    if case["opset"] < 11 and (indices < 0).any():
        return None
    return [numbers(random, case["dtype"], case["shape"]), indices], attributes_of(case, "axis"), 1


@operator("GatherND", dtype=["float32", "float64", "int32", "int64", "bool"], batch_dims=[None, 0, 1], indices=[[[0], [1]], [[0, 1], [1, -1]], [[1, 0, 1], [0, 1, 0]]])
def gather_nd(case, random):
    indices = ints(*case["indices"])
    return [numbers(random, case["dtype"], [2, 3, 2] if case["batch_dims"] != 1 or indices.shape[1] < 3 else [2, 3, 2, 2]),
            indices], attributes_of(case, "batch_dims"), 1


@operator("GatherElements", dtype=["float32", "float64", "int32", "int64", "bool"], axis=[None, 0, 1, -1], of=["int64", "int32"], low=[0, -2])
def gather_elements(case, random):
    return [numbers(random, case["dtype"], [3, 4]), random.integers(case["low"], 2, [2, 4] if case["axis"] in (None, 0) else [3, 2]).astype(case["of"])], attributes_of(case, "axis"), 1


@operator("Scatter", "ScatterElements", dtype=["float32", "float64", "int32", "int64"], axis=[None, 0, 1, -1], of=["int64", "int32"], low=[0, -2],
          reduction=[None, "none", "add", "mul", "max", "min"])
def scatter_elements(case, random):
    reduction = case["reduction"]
    if reduction and (case["operator"] == "Scatter" or case["opset"] < 16 or reduction in ("max", "min") and case["opset"] < 18):
        return None
    along = 1 if case["axis"] in (1, -1) else 0
    chosen = np.array([0, case["low"] or 1], case["of"])
    indices = np.tile(chosen[:, None], [1, 4]) if along == 0 else np.tile(chosen, [3, 1])
    return [numbers(random, case["dtype"], [3, 4]), indices, numbers(random, case["dtype"], indices.shape)], attributes_of(
        case, "axis", "reduction"), 1


@operator("ScatterND", dtype=["float32", "float64", "int32", "int64"], indices=[[[0], [2]], [[0, 1], [1, -1]], [[1], [1]]],
          reduction=[None, "none", "add", "mul", "max", "min"])
def scatter_nd(case, random):
    reduction, indices = case["reduction"], ints(*case["indices"])
    if reduction and (case["opset"] < 16 or reduction in ("max", "min") and case["opset"] < 18):
        return None
    if reduction in (None, "none") and case["indices"] == [[1], [1]]:
        return None  # not defined
    updates = numbers(random, case["dtype"], [2, 4][:3 - indices.shape[1]])
    return [numbers(random, case["dtype"], [3, 4]), indices, updates], attributes_of(case, "reduction"), 1


@operator("Where", dtype=ALL, condition=[[3, 5], [], [5], [3, 1]], shapes=[[[3, 5], [3, 5]], [[], [5]], [[3, 1], []]])
def where(case, random):
    a, b = case["shapes"]
    return [numbers(random, "bool", case["condition"]), numbers(random, case["dtype"], a), numbers(random, case["dtype"], b)], {}, 1


@operator("Trilu", dtype=["float32", "float64", "int32", "int64", "bool"], upper=[None, 0, 1], k=[None, 0, 1, -2, 9], shape=[[3, 5], [4, 4], [2, 3, 4]])
def trilu(case, random):
    return [numbers(random, case["dtype"], case["shape"]), None if case["k"] is None else ints(case["k"])[0]], attributes_of(case, "upper"), 1


@operator("OneHot", indices=[[1, 0, 2], [[0, 1], [2, -1]], [3, 9]], depth=["int64", "int32", "float32"], dtype=["float32", "int64", "int32"], axis=[None, 0, 1, -1])
def one_hot(case, random):
    return [np.array(case["indices"], np.int64), np.array([4], case["depth"]), np.array([2, 5], case["dtype"])], attributes_of(case, "axis"), 1


@operator("Range", dtype=["float32", "float64", "int32", "int64", "int16"], ends=[[0, 5, 2], [5, -4, -3], [3, 3, 1], [2, 0, 1], [-7, -1, 2]])
def a_range(case, random):
    return [np.array(v, case["dtype"]) for v in case["ends"]], {}, 1


@operator("ConstantOfShape", dtype=[None, *ALL], shape=[[2, 3], [], [0]])
def constant_of_shape(case, random):
    return [ints(*case["shape"])], {} if case["dtype"] is None else {"value": numbers(random, case["dtype"], [1])}, 1


@operator("EyeLike", of=["float32", "int64"], dtype=[None, *["float32", "float64", "int32", "int64"]], k=[None, 0, 1, -2], shape=[[3, 5], [4, 4], [1, 1]])
def eye_like(case, random):
    return [numbers(random, case["of"], case["shape"])], attributes_of(case, "k") | ({} if case["dtype"] is None else {"dtype": CODES[case["dtype"]]}), 1


@operator("Shape", dtype=["float32", "bool", "int64"], shape=SHAPES, start=[None, 0, 1, -1, 9], end=[None, 1, -1, -9])
def shape(case, random):
    if case["opset"] < 15 and (case["start"] is not None or case["end"] is not None):
        return None
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "start", "end"), 1


@operator("Size", dtype=["float32", "bool", "int64"], shape=SHAPES)
def size(case, random):
    return [numbers(random, case["dtype"], case["shape"])], {}, 1


@operator("DepthToSpace", dtype=FLOATS, blocksize=[1, 2, 3], mode=[None, "DCR", "CRD"], shape=[[2, 36, 2, 3]])
def depth_to_space(case, random):
    if case["mode"] is not None and case["opset"] < 11:
        return None
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "blocksize", "mode"), 1


@operator("SpaceToDepth", dtype=FLOATS, blocksize=[1, 2, 3], shape=[[2, 3, 6, 12], [1, 1, 6, 6]])
def space_to_depth(case, random):
    return [numbers(random, case["dtype"], case["shape"])], attributes_of(case, "blocksize"), 1


@operator("NonZero", dtype=["float32", "int64", "int32", "bool", "uint8"], shape=[[3, 5], [7], [2, 3, 4]])
def non_zero(case, random):
    return [numbers(random, case["dtype"], case["shape"]) * numbers(random, "bool", case["shape"]).astype(case["dtype"])], {}, 1


@operator("Compress", dtype=["float32", "float64", "int64", "bool"], axis=[None, 0, 1, -1], condition=[[True, False, True], [False, False], [True]])
def compress(case, random):
    return [numbers(random, case["dtype"], [3, 5]), np.array(case["condition"])], attributes_of(case, "axis"), 1


@operator("ReverseSequence", dtype=["float32", "float64", "int64", "bool"], axes=[[None, None], [0, 1], [1, 0]], lengths=[[1, 2, 3, 4], [4, 1, 1, 4]])
def reverse_sequence(case, random):
    batch, time = case["axes"]
    return [numbers(random, case["dtype"], [4, 4, 2]), ints(*case["lengths"])], {
        k: v for k, v in (("batch_axis", batch), ("time_axis", time)) if v is not None}, 1


@operator("TopK", dtype=["float32", "float64", "int32", "int64"], k=[1, 2, 3], axis=[None, 0, -1], largest=[None, 0, 1], sorted=[None, 1])
def top_k(case, random):
    if case["opset"] < 11 and (case["largest"] is not None or case["sorted"] is not None):
        return None
    x = random.permutation(np.arange(12)).reshape([3, 4]).astype(case["dtype"])
    if case["opset"] < 10:
        return [x], attributes_of(case, "axis", "k"), 2
    return [x, ints(case["k"])], attributes_of(case, "axis", "largest", "sorted"), 2


@operator("Gemm", dtype=["float32", "float64", "float16"], transA=[None, 0, 1], transB=[None, 0, 1], alpha=[None, 0.5], beta=[None, 0.25, 0.0],
          c=[None, [4], [3, 4], [1], [], [3, 1]])
def gemm(case, random):
    if case["c"] is None and case["opset"] < 11:
        return None
    a, b = numbers(random, case["dtype"], [3, 5]), numbers(random, case["dtype"], [5, 4])
    c = [] if case["c"] is None else [numbers(random, case["dtype"], case["c"])]
    return [a.T.copy() if case["transA"] else a, b.T.copy() if case["transB"] else b, *c], attributes_of(case, "transA", "transB", "alpha", "beta"), 1


@operator("MatMul", dtype=["float32", "float64", "float16", "int32", "int64"],
          shapes=[[[3, 5], [5, 4]], [[5], [5]], [[5], [5, 4]], [[3, 5], [5]], [[2, 3, 5], [5, 4]], [[2, 3, 5], [2, 5, 4]], [[2, 1, 3, 5], [4, 5, 2]],
                  [[3, 5], [2, 5, 4]], [[2, 3, 5], [5]], [[5], [2, 5, 4]], [[3, 0], [0, 4]]])
def mat_mul(case, random):
    return [numbers(random, case["dtype"], s) for s in case["shapes"]], {}, 1


EQUATIONS = {"ij,jk->ik": [[3, 5], [5, 4]], "ij->ji": [[3, 5]], "ij->": [[3, 5]], "ii->i": [[4, 4]], "ii": [[4, 4]], "bij,bjk->bik": [[2, 3, 5], [2, 5, 4]],
             "bhid,bhjd->bhij": [[2, 3, 4, 5], [2, 3, 6, 5]], "i,j->ij": [[3], [4]], "...ij,...jk->...ik": [[2, 3, 5], [2, 5, 4]], "ij,jk": [[3, 5], [5, 4]],
             "ij,jk,kl->il": [[2, 3], [3, 4], [4, 5]], "ijk->ik": [[2, 3, 4]], "i,i->": [[5], [5]], "bi,ij,bj->b": [[2, 3], [3, 4], [2, 4]], " i j , j k -> i k ": [[3, 5], [5, 4]]}


@operator("Einsum", dtype=["float32", "float64", "int32"], equation=list(EQUATIONS))
def einsum(case, random):
    return [numbers(random, case["dtype"], s) for s in EQUATIONS[case["equation"]]], {"equation": case["equation"]}, 1


@operator("Det", dtype=["float32"], shape=[[3, 3], [1, 1], [2, 4, 4]])
def det(case, random):
    return [numbers(random, case["dtype"], case["shape"])], {}, 1


PADDING = [[None, None], ["NOTSET", "uneven"], ["SAME_UPPER", None], ["SAME_LOWER", None], ["VALID", None]]


def window(case, n):
    """kernel_shape, strides, dilations, pads and auto_pad of n axes."""
    kind, pads = case["padding"]
    found = {"kernel_shape": ([2, 3, 2] if case["kernel"] == "uneven" else [1] * 3)[:n]}
    if case["strides"]:
        found["strides"] = [2, 1, 3][:n]
    if case["dilations"]:
        found["dilations"] = [1, 2, 2][:n]
    if kind:
        found["auto_pad"] = kind
    if pads and case["kernel"] == "uneven":
        found["pads"] = [1, 0, 0][:n] + [0, 1, 1][:n]
    return found


WINDOW = {"rank": [2, 1, 3], "kernel": ["uneven", "ones"], "strides": [False, True], "dilations": [False, True], "padding": PADDING}


@operator("Conv", dtype=FLOATS, group=[None, 1, 2, 4], bias=[True, False], **WINDOW)
def conv(case, random):
    n, group = case["rank"], case["group"] or 1
    found = window(case, n)
    x = numbers(random, case["dtype"], [2, 4, 7, 9, 6][:n + 2])
    w = numbers(random, case["dtype"], [8, 4 // group, *found["kernel_shape"]])
    return [x, w, *([numbers(random, case["dtype"], [8])] if case["bias"] else [])], attributes_of(case, "group") | found, 1


@operator("ConvTranspose", dtype=["float32"], group=[None, 2], bias=[True, False], output_padding=[False, True], **WINDOW)
def conv_transpose(case, random):
    n, group = case["rank"], case["group"] or 1
    found = window(case, n)
    if case["output_padding"]:
        if not case["strides"]:
            return None
        found["output_padding"] = [1, 0, 2][:n]
    x = numbers(random, case["dtype"], [2, 4, 4, 5, 3][:n + 2])
    w = numbers(random, case["dtype"], [4, 6 // group, *found["kernel_shape"]])
    return [x, w, *([numbers(random, case["dtype"], [6])] if case["bias"] else [])], attributes_of(case, "group") | found, 1


def pool(case, random):
    name, opset = case["operator"], case["opset"]
    since = {"MaxPool": (10, 10), "AveragePool": (10, 19), "LpPool": (18, 18)}[name]
    if case["ceil_mode"] is not None and opset < since[0] or case["dilations"] and opset < since[1]:
        return None
    found = window(case, case["rank"])
    if not case["dilations"]:
        found.pop("dilations", None)
    x = numbers(random, case["dtype"], [2, 3, 7, 9, 6][:case["rank"] + 2])
    return [x], found | attributes_of(case, "ceil_mode", *POOLS[name]), 1


POOLS = {"AveragePool": {"count_include_pad": [None, 0, 1]}, "LpPool": {"p": [None, 1, 2, 3]}, "MaxPool": {"storage_order": [None, 0, 1]}}
for name_of_pool, own in POOLS.items():
    operator(name_of_pool, dtype=FLOATS, ceil_mode=[None, 0, 1], **own, **WINDOW)(pool)


@operator("GlobalAveragePool", "GlobalMaxPool", dtype=FLOATS, shape=IMAGES)
def global_pool(case, random):
    return [numbers(random, case["dtype"], case["shape"])], {}, 1


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@operator("LSTM", "GRU", "RNN", dtype=["float32", "float64"], direction=[None, "forward", "reverse", "bidirectional"], layout=[None, 0, 1], bias=[True, False],
          initial=[True, False], lengths=[None, "full", "shorter"], linear_before_reset=[None, 0, 1], activations=[False, True], clip=[None, 0.5])
def recurrent(case, random):
    name, dtype = case["operator"], case["dtype"]
    if case["linear_before_reset"] is not None and name != "GRU" or case["layout"] is not None and case["opset"] < 14:
        return None
    steps, batch, width, hidden = 3, 2, 4, 5
    both, first = 2 if case["direction"] == "bidirectional" else 1, case["layout"] == 1
    x = numbers(random, dtype, [batch, steps, width] if first else [steps, batch, width]) / 2
    w, r = numbers(random, dtype, [both, GATES[name] * hidden, width]) / 2, numbers(random, dtype, [both, GATES[name] * hidden, hidden]) / 2
    b = numbers(random, dtype, [both, 2 * GATES[name] * hidden]) if case["bias"] else None
    lengths = None if case["lengths"] is None else np.array([steps, steps if case["lengths"] == "full" else 1], np.int32)
    state = [batch, both, hidden] if first else [both, batch, hidden]
    initial = [numbers(random, dtype, state) for _ in range(2 if name == "LSTM" else 1)] if case["initial"] else []
    attributes = attributes_of(case, "direction", "layout", "clip", "linear_before_reset") | {"hidden_size": hidden}
    if case["activations"]:
        attributes["activations"] = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Relu"]}[name] * both
    return [x, w, r, b, lengths, *initial], attributes, 3 if name == "LSTM" else 2


@operator("QuantizeLinear", dtype=["float32"], to=["uint8", "int8", "uint16", "int16"], axis=[None, 0, 1, -1], per=["tensor", "axis"], zero=[True, False])
def quantize(case, random):
    x = numbers(random, case["dtype"], [3, 4])
    if case["per"] == "axis" and case["opset"] < 13 or case["to"][-2:] == "16" and case["opset"] < 21:
        return None
    extent = x.shape[1 if case["axis"] is None else case["axis"]]
    scale = np.abs(numbers(random, "float32", [extent] if case["per"] == "axis" else [])) / 50 + np.float32(0.01)
    zero = np.full(scale.shape, 3, case["to"]) if case["zero"] else None
    if zero is None and case["to"] != "uint8":
        return None
    return [x, scale.astype(np.float32), zero], attributes_of(case, "axis") if case["opset"] >= 13 else {}, 1


@operator("DequantizeLinear", dtype=["uint8", "int8", "int32", "uint16", "int16"], axis=[None, 0, 1, -1], per=["tensor", "axis"], zero=[True, False])
def dequantize(case, random):
    if case["per"] == "axis" and case["opset"] < 13 or case["dtype"][-2:] == "16" and case["opset"] < 21:
        return None
    x = numbers(random, case["dtype"], [3, 4], "plain")
    extent = x.shape[1 if case["axis"] is None else case["axis"]]
    scale = np.asarray(np.abs(numbers(random, "float32", [extent] if case["per"] == "axis" else [])) / 50, np.float32)
    zero = np.full(scale.shape, 0 if case["dtype"] == "int32" else 3, case["dtype"]) if case["zero"] else None
    return [x, scale, zero], attributes_of(case, "axis") if case["opset"] >= 13 else {}, 1


@operator("DynamicQuantizeLinear", dtype=["float32"], shape=[[3, 5], [7], [1]])
def dynamic_quantize(case, random):
    return [numbers(random, case["dtype"], case["shape"])], {}, 3


@operator("NonMaxSuppression", most=[None, 0, 2, 9], iou=[None, 0.0, 0.5], score=[None, 0.3], center_point_box=[None, 0, 1])
def non_max_suppression(case, random):
    corner = random.random([1, 6, 2]).astype(np.float32)
    boxes = np.concatenate([corner, corner + random.random([1, 6, 2]).astype(np.float32) + np.float32(0.1)], axis=2)
    most = None if case["most"] is None else ints(case["most"])
    ends = [None if case[k] is None else np.array([case[k]], np.float32) for k in ("iou", "score")]
    return [boxes, random.random([1, 1, 6]).astype(np.float32), most, *ends], attributes_of(case, "center_point_box"), 1


@operator("Unique", dtype=["float32", "int64", "int8"], sorted=[None, 0, 1], axis=[None, 0])
def unique(case, random):
    return [numbers(random, case["dtype"], [9]) // np.dtype(case["dtype"]).type(3)], attributes_of(case, "sorted", "axis"), 1


@operator("Resize", dtype=["float32"], mode=[None, "nearest", "linear", "cubic"], coordinate_transformation_mode=[None, "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"],
          nearest_mode=[None, "floor", "ceil", "round_prefer_ceil"], by=["scales", "sizes"], change=["up", "down", "mixed"], cubic_coeff_a=[None, -0.5], exclude_outside=[None, 1],
          antialias=[None, 1])
def resize(case, random):
    mode = case["mode"] or "nearest"
    if case["nearest_mode"] and mode != "nearest" or (case["cubic_coeff_a"] or case["exclude_outside"]) and mode != "cubic" or case["opset"] < 11:
        return None
    if case["antialias"] and (mode == "nearest" or case["opset"] < 18) or case["coordinate_transformation_mode"] == "half_pixel_symmetric" and case["opset"] < 19:
        return None
    x = numbers(random, case["dtype"], [1, 2, 4, 6])
    scales = np.array({"up": [1, 1, 2, 1.5], "down": [1, 1, 0.5, 0.5], "mixed": [1, 1, 2, 0.5]}[case["change"]], np.float32)
    sizes = ints(*np.floor(x.shape * scales).astype(int))
    empty = np.array([], np.float32)
    attributes = attributes_of(case, "mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "antialias")
    late = case["opset"] >= 13
    if case["by"] == "scales":
        return [x, None if late else empty, scales], attributes, 1
    return [x, None if late else empty, None if late else empty, sizes], attributes, 1


@operator("Upsample", dtype=["float32"], mode=[None, "nearest", "linear"], scales=[[1, 1, 2, 3], [1, 1, 1, 1], [1, 1, 1.5, 2]])
def upsample(case, random):
    x, scales = numbers(random, case["dtype"], [1, 2, 3, 4]), case["scales"]
    if case["opset"] < 9:
        return [x], attributes_of(case, "mode") | {"scales": [float(s) for s in scales]}, 1
    return [x, np.array(scales, np.float32)], attributes_of(case, "mode"), 1


@operator("GridSample", dtype=["float32"], mode=["linear", "nearest", "cubic"], padding_mode=[None, "zeros", "border", "reflection"], align_corners=[None, 0, 1])
def grid_sample(case, random):
    old = {"linear": "bilinear", "cubic": "bicubic"} if case["opset"] < 20 else {}
    mode = {"mode": old.get(case["mode"], case["mode"])}
    return [numbers(random, case["dtype"], [2, 3, 4, 5]), random.uniform(-1.3, 1.3, [2, 3, 6, 2]).astype(np.float32)], mode | attributes_of(
        case, "padding_mode", "align_corners"), 1
