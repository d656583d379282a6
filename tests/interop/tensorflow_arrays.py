"""Cases of operators on shapes, indices and places of elements: more rows for tensorflow_operators.py."""
import numpy
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from tensorflow_graphs import V, W, X
from tensorflow_operators import case

raw = tf.raw_ops

# Shapes.
for name in ("Shape", "Size"):
    case(name, input=X(2, 3, 4))
    case(name, "i64", input=X(2, 3, 4), out_type=tf.int64)
    case(name, "scalar", input=X())
case("ShapeN", input=[X(2, 3), X(4)])
case("ShapeN", "i64", input=[X(2, 3), X(4)], out_type=tf.int64)
case("Reshape", tensor=X(2, 3, 4), shape=[4, 6])
case("Reshape", "unknown", tensor=X(2, 3, 4), shape=[3, -1], _open=True)
case("Reshape", "i64_to_scalar", tensor=X(1, 1), shape=W(0, dtype="int64"))
case("Reshape", "argument", tensor=X(2, 6), shape=V([3, -1], "int32"))
case("Reshape", "of_shape", _open=True, x=X(2, 3, 4), _build=lambda x: tf.reshape(
    x, tf.stack([tf.shape(x)[0], tf.shape(x)[1] * tf.shape(x)[2]]), "result"))
case("Squeeze", input=X(2, 1, 3, 1), axis=[1, -1])
case("Squeeze", "all", input=X(2, 1, 3, 1), _open=False)
case("ExpandDims", input=X(2, 3), axis=1)
case("ExpandDims", "last", input=X(2, 3, dtype="int32"), axis=-1)
case("EnsureShape", input=X(2, 3), shape=[None, 3])
case("BroadcastArgs", s0=V([2, 1, 4], "int32"), s1=V([3, 1], "int32"))
case("BroadcastArgs", "constant", s0=V([2, 1, 4], "int64"), s1=W(dtype="int64", value=[3, 1]))
case("BroadcastTo", input=X(3, 1), shape=[2, 3, 4])
case("BroadcastTo", "scalar_i64", input=X(dtype="int32"), shape=W(dtype="int64", value=[2, 2]))
case("Fill", dims=[2, 3], value=X())
case("Fill", "argument", dims=V([2, 3], "int32"), value=W(value=1.5))
case("Fill", "i64", dims=W(dtype="int64", value=[2]), value=X(dtype="int32"))
case("Range", start=V(1, "int32"), limit=9, delta=3)
case("Range", "f32", start=V(1.0), limit=W(value=2.0), delta=W(value=0.25))
case("Range", "of_shape", _open=True, x=X(5, 2), _build=lambda x: tf.range(tf.shape(x)[0], name="result"))
case("Range", "down_i64", start=V(9, "int64"), limit=W(dtype="int64", value=0), delta=W(dtype="int64", value=-2))
case("LinSpace", start=V(1.0), stop=W(value=2.0), num=5)
case("LinSpace", "one", start=V(1.0), stop=V(2.0), num=1)
case("Tile", input=X(2, 3), multiples=[2, 1])
case("Tile", "i64", input=X(2, dtype="int32"), multiples=W(dtype="int64", value=[3]))
case("Transpose", x=X(2, 3, 4), perm=[2, 0, 1])
case("Transpose", "i32", x=X(2, 3, dtype="int32"), perm=W(dtype="int64", value=[1, 0]))
case("Diag", diagonal=X(3))
case("Diag", "matrix", diagonal=X(2, 3))
case("DiagPart", input=X(3, 3))
case("DiagPart", "matrix", input=X(2, 3, 2, 3))
case("MatrixDiag", diagonal=X(2, 3))
case("MatrixDiagPart", input=X(2, 3, 4))
for name in ("MatrixDiagV2", "MatrixDiagV3"):
    case(name, diagonal=X(2, 3), k=0, num_rows=-1, num_cols=-1, padding_value=W(value=0.0))
    case(name, "above", diagonal=X(2, 3), k=1, num_rows=3, num_cols=5, padding_value=W(value=9.0))
case("MatrixDiagV3", "band", diagonal=X(3, 3), k=[-1, 1], num_rows=3, num_cols=3, padding_value=W(value=0.0))
for name in ("MatrixDiagPartV2", "MatrixDiagPartV3"):
    case(name, input=X(2, 3, 4), k=0, padding_value=W(value=0.0))
    case(name, "below", input=X(2, 4, 3), k=-1, padding_value=W(value=0.0))
case("MatrixDiagPartV3", "band", input=X(2, 3, 3), k=[-1, 1], padding_value=W(value=7.0))
case("MatrixSetDiag", input=X(2, 3, 4), diagonal=X(2, 3))
case("MatrixSetDiagV3", input=X(2, 3, 4), diagonal=X(2, 3), k=0)
case("MatrixBandPart", input=X(2, 4, 4), num_lower=-1, num_upper=0)
case("MatrixBandPart", "band", input=X(4, 5), num_lower=W(dtype="int64", value=1), num_upper=W(dtype="int64", value=2))

# Parts and joins.
case("Pack", values=[X(2, 3), X(2, 3)])
case("Pack", "axis", values=[X(2, 3), X(2, 3), X(2, 3)], axis=-1)
case("Pack", "scalars", values=[X(dtype="int32"), W(dtype="int32", value=7)])
case("Pack", "one_i64", values=[X(2, dtype="int64")], axis=1)
case("Unpack", value=X(3, 2), num=3)
case("Unpack", "axis", value=X(2, 3, 4), num=4, axis=-1)
case("ParallelConcat", values=[X(1, 3), X(1, 3)], shape=[2, 3], _open=False)
case("Concat", concat_dim=1, values=[X(2, 3), X(2, 2)])
case("ConcatV2", values=[X(2, 3), X(2, 2)], axis=1)
case("ConcatV2", "negative_i32", values=[X(2, 3, dtype="int32"), W(1, 3, dtype="int32")], axis=-2)
case("ConcatV2", "i64_axis", values=[X(2, 3), W(2, 3)], axis=W(dtype="int64", value=0))
case("ConcatOffset", concat_dim=1, shape=[V([2, 3], "int32"), V([2, 4], "int32"), V([2, 1], "int32")])
case("Split", axis=1, value=X(2, 6), num_split=3)
case("Split", "negative", axis=-2, value=X(2, 6, 2), num_split=2)
case("SplitV", value=X(2, 6), size_splits=[1, 3, 2], axis=1, num_split=3)
case("SplitV", "rest", value=X(2, 6), size_splits=W(dtype="int64", value=[1, -1]), axis=-1, num_split=2)
case("Slice", input=X(3, 4, 5), begin=[1, 0, 2], size=[2, 3, 3])
case("Slice", "rest", input=X(3, 4, 5), begin=[1, 0, 2], size=[-1, 2, -1], _open=True)
case("Slice", "i64", input=X(6, dtype="int32"), begin=W(dtype="int64", value=[1]), size=W(dtype="int64", value=[3]))
case("Slice", "argument", input=X(4, 5), begin=V([1, 2], "int32"), size=V([2, -1], "int32"))
for label, get in {
        "": lambda x: x[0:2, 1:4, 0:5], "begin_end_masks": lambda x: x[1:, :3, ::2], "shrink": lambda x: x[1],
        "shrink_last": lambda x: x[..., -1], "ellipsis": lambda x: x[1:3, ..., 0:4:3],
        "new_axis": lambda x: x[:, None, 2],
        "new_ellipsis_shrink": lambda x: x[None, ..., 1, tf.newaxis], "negative": lambda x: x[-2:, :-1, -4:-1],
        "backwards": lambda x: x[::-1, 3:0:-2, ::-1], "backwards_from": lambda x: x[:, -2::-1],
        "backwards_beside_open": lambda x: x[:2, ::-1, ::-2], "backwards_shrink": lambda x: x[::-1, -3, :4],
        "backwards_beyond": lambda x: x[9:-9:-1, :, 2:-9:-3], "backwards_before": lambda x: x[:, -9:-20:-1],
        "before": lambda x: x[-9:2, -9:-3, -9::2], "long_steps": lambda x: x[::2 ** 30, 1::9, :-9:-(2 ** 30)],
        "empty": lambda x: x[2:2], "beyond": lambda x: x[1:99, -99:2]}.items():
    case("StridedSlice", label, _build=lambda input, get=get: get(input), input=X(3, 4, 5), _open=True)
case("StridedSlice", "i64", input=X(6, dtype="int32"), begin=W(dtype="int64", value=[1]),
     end=W(dtype="int64", value=[5]), strides=W(dtype="int64", value=[2]))
case("StridedSlice", "end_input", input=X(6), end=V([4], "int32"), begin=[1], strides=[1])
case("StridedSlice", "before_inputs", input=X(3, 5), begin=V([-9, -9], "int32"), end=V([9, -3], "int32"),
     strides=[1, 2], _open=True)
case("StridedSlice", "far_i64", input=X(5), begin=W(dtype="int64", value=[2 ** 40]), _open=True,
     end=W(dtype="int64", value=[-2 ** 63]), strides=W(dtype="int64", value=[-1]))
case("StridedSlice", "of_shape", _open=True, x=X(3, 4), _build=lambda x: x[:tf.shape(x)[0] - 1, tf.shape(x)[1] - 2])
case("TensorStridedSliceUpdate", input=X(4, 5), begin=[1, 0], end=[3, 4], strides=[1, 2], value=X(2, 2))
case("Reverse", tensor=X(2, 3), dims=[False, True])
case("ReverseV2", tensor=X(2, 3, 4), axis=[0, -1])
case("ReverseV2", "i32", tensor=X(2, 3, dtype="int32"), axis=W(dtype="int64", value=[1]))
case("ReverseSequence", input=X(3, 4, 2), seq_lengths=V([2, 4, 1], "int32"), seq_dim=1)
case("ReverseSequence", "dims_i64", input=X(4, 3), seq_lengths=V([2, 4, 1], "int64"), seq_dim=0, batch_dim=1)
case("Roll", input=X(3, 4), shift=1, axis=0)
case("Roll", "two", input=X(3, 4), shift=[1, -2], axis=[0, 1])
case("Pad", input=X(2, 3), paddings=[[1, 0], [2, 1]])
case("Pad", "i64", input=X(2, 3, dtype="int32"), paddings=W(dtype="int64", value=[[0, 1], [1, 1]]))
case("PadV2", input=X(2, 3), paddings=[[1, 0], [2, 1]], constant_values=W(value=-1.5))
for mode in ("REFLECT", "SYMMETRIC"):
    case("MirrorPad", mode.lower(), input=X(3, 4), paddings=[[1, 2], [2, 1]], mode=mode)
case("SpaceToDepth", input=X(1, 4, 6, 3), block_size=2)
case("DepthToSpace", input=X(1, 2, 3, 12), block_size=2)
case("SpaceToBatchND", input=X(1, 4, 6, 2), block_shape=[2, 3], paddings=[[0, 0], [0, 0]])
case("SpaceToBatchND", "paddings", input=X(2, 5, 3, 2), block_shape=[2, 2], paddings=[[1, 0], [0, 1]])
case("SpaceToBatchND", "one", input=X(2, 5, 3), block_shape=[2], paddings=[[1, 2]])
case("BatchToSpaceND", input=X(4, 2, 3, 2), block_shape=[2, 2], crops=[[0, 0], [0, 0]])
case("BatchToSpaceND", "crops", input=X(4, 3, 2, 2), block_shape=[2, 2], crops=[[1, 0], [0, 1]])
case("SpaceToBatch", input=X(1, 4, 6, 2), paddings=[[0, 0], [0, 0]], block_size=2)
case("BatchToSpace", input=X(4, 2, 3, 2), crops=[[0, 0], [0, 0]], block_size=2)

# Indices.
INDICES = V([[2, 0], [1, 1]], "int32")
case("Gather", params=X(3, 4), indices=INDICES)
case("GatherV2", params=W(3, 4), indices=INDICES, axis=0)
case("GatherV2", "axis1", params=X(2, 3, 4), indices=INDICES, axis=1)
case("GatherV2", "negative_i64", params=X(2, 3), indices=V([2, 0], "int64"), axis=W(dtype="int64", value=-1))
case("GatherV2", "batch", params=X(2, 3, 4), indices=V([[2, 0], [1, 1]], "int32"), axis=1, batch_dims=1, _open=True)
case("GatherV2", "batch_axis2", params=X(2, 3, 4), indices=V([[3, 0, 1], [1, 1, 2]], "int32"), axis=2, batch_dims=1)
case("GatherV2", "scalar", params=X(3, 4), indices=V(1, "int32"), axis=0)
case("GatherNd", params=X(3, 4), indices=V([[2, 0], [1, 1]], "int32"))
case("GatherNd", "rows_i64", params=X(3, 4, 2), indices=V([[[2], [0]]], "int64"))
case("ScatterNd", indices=V([[4], [1]], "int32"), updates=X(2, 3), shape=[6, 3])
case("ScatterNd", "twice_i64", indices=V([[4, 0], [1, 1], [4, 0]], "int64"), updates=X(3),
     shape=W(dtype="int64", value=[6, 3]))
for name in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"):
    case(name, tensor=X(5, 3), indices=V([[4], [1]], "int32"), updates=X(2, 3))
    case(name, "elements_i64", tensor=X(5, 3), indices=V([[4, 0], [1, 1]], "int64"), updates=X(2))
case("TensorScatterAdd", "twice", tensor=X(5, 3), indices=V([[4], [1], [4]], "int32"), updates=X(3, 3))
for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"):
    case(name, data=X(5, 3), segment_ids=V([0, 0, 1, 2, 2], "int32"))
    case(name, "constant_i64", data=X(5), segment_ids=W(dtype="int64", value=[0, 1, 1, 1, 2]))
for name in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"):
    case(name, data=X(5, 3), segment_ids=V([2, 0, 1, 2, 0], "int32"), num_segments=3)
case("UnsortedSegmentSum", "gaps", data=X(5, 3), segment_ids=W(dtype="int64", value=[3, 0, -1, 3, 0]), num_segments=5)
case("InvertPermutation", x=V([3, 0, 2, 1], "int32"))
case("OneHot", indices=V([1, 0, 3], "int32"), depth=4, on_value=W(value=1.0), off_value=W(value=0.0))
case("OneHot", "axis_values", indices=V([[1, -1], [2, 5]], "int64"), depth=3, on_value=W(value=5.0),
     off_value=W(value=-1.0), axis=1)
case("OneHot", "axis0_i32", indices=V([1, 0], "int32"), depth=3, on_value=2, off_value=1, axis=0)
case("OneHot", "bool", indices=V([1, 0], "uint8"), depth=2, on_value=True, off_value=False)
case("Select", condition=X(2, 3, dtype="bool"), x=X(2, 3), y=X(2, 3))
case("Select", "rows", condition=V([True, False], "bool"), x=X(2, 3), y=X(2, 3))
case("Select", "scalar", condition=V(False, "bool"), x=X(2, 3), y=X(2, 3))
case("SelectV2", condition=X(2, 3, dtype="bool"), t=X(2, 3), e=X(2, 3))
case("SelectV2", "broadcast", condition=X(3, dtype="bool"), t=X(2, 1), e=W(value=-9.0))
case("SelectV2", "i32", condition=X(2, 3, dtype="bool"), t=X(2, 3, dtype="int32"), e=X(3, dtype="int32"))
case("TopKV2", input=X(2, 6), k=3)
case("TopKV2", "unsorted_whole", input=X(2, 4), k=4, sorted=True)
case("InTopKV2", predictions=X(3, 5), targets=V([1, 0, 4], "int32"), k=2)
case("Unique", x=V([3, 1, 3, 2, 1, 5], "int32"))
case("Unique", "f32_i64", x=V([2.5, 1, 2.5]), out_idx=tf.int64)
case("UniqueV2", x=V([3, 1, 3, 2], "int32"), axis=[0])
case("UniqueWithCounts", x=V([3, 1, 3, 2, 1, 5], "int32"))
case("ListDiff", x=V([1, 2, 3, 4, 5, 6], "int32"), y=V([1, 3, 5], "int32"))
case("Where", condition=V([[True, False, True], [False, True, True]], "bool"))
case("Where", "f32", condition=V([0, 1, -2, 0]))
case("Bincount", arr=V([1, 3, 1, 0], "int32"), size=5, weights=W(0))
case("Bincount", "weights", arr=V([1, 3, 1, 7], "int32"), size=4, weights=X(4))
case("DenseBincount", input=V([1, 3, 1, 0], "int32"), size=5, weights=W(0))
case("HistogramFixedWidth", values=V([-1, 0, 1.5, 2, 5, 15]), value_range=W(value=[0.0, 5.0]), nbins=5)
case("LowerBound", sorted_inputs=V([[1, 3, 5, 7]]), values=V([[0, 3, 4, 9]]))
case("UpperBound", sorted_inputs=V([[1, 3, 5, 7]]), values=V([[0, 3, 4, 9]]))
case("Bucketize", input=V([-5, 10, 150, 10, 5, 100]), boundaries=[0, 10, 100])
case("SparseToDense", sparse_indices=V([[0, 1], [2, 0]], "int32"), output_shape=[3, 2], sparse_values=V([5, 6]),
     default_value=W(value=-1.0))
case("DynamicStitch", indices=[V([0, 2], "int32"), V([3, 1], "int32")], data=[X(2, 3), X(2, 3)])
case("DynamicStitch", "constant", indices=[W(dtype="int32", value=[0, 2]), W(dtype="int32", value=[1])],
     data=[X(2, dtype="int32"), X(1, dtype="int32")])
case("DynamicPartition", data=X(4, 2), partitions=V([0, 1, 1, 0], "int32"), num_partitions=2)

# Dtypes, copies and checks.
for source, target in (("f32", "int32"), ("f32", "float64"), ("f32", "float16"), ("f32", "bool"), ("i32", "float32"),
                       ("i64", "int32"), ("bool", "float32"), ("f64", "int64")):
    names = {"f32": "float32", "i32": "int32", "i64": "int64", "bool": "bool", "f64": "float64"}
    case("Cast", f"{source}_{target}", x=X(2, 6, dtype=names[source], low=-3, high=3), DstT=getattr(tf, target))
case("Cast", "bfloat16", x=X(6), _build=lambda x: raw.Cast(x=raw.Cast(x=x, DstT=tf.bfloat16), DstT=tf.float32))
case("Bitcast", input=X(2, 3), type=tf.int32)
case("Bitcast", "wider", input=X(2, 2, dtype="int32"), type=tf.int64, _open=False)
case("CheckNumerics", tensor=X(2, 3), message="message")
case("ClipByValue", t=X(2, 6), clip_value_min=W(value=-1.0), clip_value_max=W(value=0.5))
case("ClipByValue", "inputs_nan", t=V([float("nan"), -2, 0, 2]), clip_value_min=V(-1), clip_value_max=V(0.5), _open=True)
case("ClipByValue", "reversed_nan", t=V([float("nan"), -2, 0, 2]), clip_value_min=W(value=1.0),
     clip_value_max=W(value=-0.5))
case("IdentityN", input=[X(2, 3), X(4, dtype="int32")])
case("FakeQuantWithMinMaxArgs", inputs=X(2, 6, low=-9, high=9))
case("FakeQuantWithMinMaxVars", inputs=X(2, 6), min=W(value=-1.0), max=W(value=1.5))
case("SparseSoftmaxCrossEntropyWithLogits", features=X(3, 5), labels=V([1, 0, 4], "int32"))
case("SparseSoftmaxCrossEntropyWithLogits", "i64", features=X(3, 5), labels=V([1, 0, 4], "int64"), _outputs=1)
case("SoftmaxCrossEntropyWithLogits", features=X(3, 5), labels=V(numpy.eye(5)[[1, 0, 4]]))


def asserted(x):
    check = raw.Assert(condition=tf.reduce_all(x > -9), data=["too small", x])
    with tf.control_dependencies([check]):
        return tf.identity(x, "result")


case("Assert", "control", _build=asserted, _open=True, x=X(4))


def after_nothing(x):
    with tf.control_dependencies([raw.NoOp(), x + 1]):
        return raw.Relu(features=x, name="result")


case("NoOp", "control", _build=after_nothing, x=X(4))
case("Placeholder", "unknown_rank", x=X(2, 3), y=X(3), _build=lambda x, y: tf.nn.relu(
    tf.compat.v1.placeholder_with_default(x, None) + y, "result"))
case("PlaceholderWithDefault", x=X(2, 3), _build=lambda x: x + raw.PlaceholderWithDefault(
    input=numpy.float32([1, 2, 3]), shape=[3]))
case("Placeholder", "twice", x=X(2, 3), y=X(2, 3), _open=True, _build=lambda x, y: [x - y, y - x])
case("Placeholder", "is_output", x=X(2, 3), _build=lambda x: [x, x * 2])


def constant(dtype, shape, content=b"", **fields):
    """Returns a Const with a given form of its elements."""
    proto = tensor_pb2.TensorProto(dtype=getattr(types_pb2, dtype), tensor_content=content, **fields)
    for extent in shape:
        proto.tensor_shape.dim.add(size=extent)
    operation = tf.compat.v1.get_default_graph().create_op("Const", [], [tf.dtypes.DType(proto.dtype)], attrs={
        "value": tf.compat.v1.AttrValue(tensor=proto), "dtype": tf.compat.v1.AttrValue(type=proto.dtype)})
    return operation.outputs[0]


# The last of too few elements is repeated; without an element all are zero.
for label, dtype, fields in (
        ("content", "DT_FLOAT", {"content": numpy.float32([1, 2, 3, 4, 5, 6]).tobytes()}),
        ("values", "DT_FLOAT", {"float_val": [1, 2, 3, 4, 5, 6]}), ("one_value", "DT_FLOAT", {"float_val": [1.5]}),
        ("last_repeated", "DT_FLOAT", {"float_val": [1, 2, 3]}), ("no_value", "DT_FLOAT", {}),
        ("f64", "DT_DOUBLE", {"double_val": [1, 2.5]}), ("f16", "DT_HALF", {"half_val": [0x3C00, 0x4000]}),
        ("bf16", "DT_BFLOAT16", {"half_val": [0x3F80, 0x4000]}), ("i32", "DT_INT32", {"int_val": [1, -2]}),
        ("i16", "DT_INT16", {"int_val": [1, -2]}), ("i8", "DT_INT8", {"int_val": [1, -2]}),
        ("u8", "DT_UINT8", {"int_val": [1, 200]}), ("i64", "DT_INT64", {"int64_val": [1, -2 ** 40]}),
        ("bool", "DT_BOOL", {"bool_val": [True, False]}), ("u32", "DT_UINT32", {"uint32_val": [1, 2]}),
        ("u64", "DT_UINT64", {"uint64_val": [1, 2]})):
    case("Const", label, x=X(2, 3), _open=False, _build=lambda x, dtype=dtype, fields=fields: tf.add(
        x, tf.cast(constant(dtype, (2, 3), **fields), tf.float32), "result"))
