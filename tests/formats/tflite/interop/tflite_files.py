"""Models of TensorFlow Lite.

    tflite_files.py make FOLDER    writes the golden files of tests/formats/tflite/data (tensorflow 2.21.0)
    tflite_files.py check STELE    the command reads the constants that TensorFlow's interpreter reads
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import flatbuffers
import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema


def weights(shape, scale=1.0):
    """Return numbers that do not depend on a generator."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 37 % 101) - 50) / 64 * scale).astype(np.float32).reshape(shape)


def net():
    """Return a model with a convolution, a depthwise one, and dense layers, one with more than 1024 weights."""
    model = tf.keras.Sequential([
        tf.keras.Input((6, 6, 2), batch_size=1),
        tf.keras.layers.Conv2D(3, 3, activation="relu", name="conv"),
        tf.keras.layers.DepthwiseConv2D(2, name="depthwise"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(40, activation="relu", name="wide"),
        tf.keras.layers.Dense(3, name="last"),
    ])
    model.set_weights([weights(w.shape, 0.5 + i / 8) for i, w in enumerate(model.get_weights())])
    return model


def converted(model, optimize=None, samples=False):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if optimize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if optimize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if samples:
        converter.representative_dataset = lambda: ([weights((1, 6, 6, 2), s)] for s in (0.5, 1, 2))
    if optimize == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if optimize == "int16":
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]
    return converter.convert()


class Loops(tf.Module):
    """A model with two signatures and a loop, thus several subgraphs."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(weights((4, 4)), name="w")

    @tf.function(input_signature=[tf.TensorSpec((1, 4))])
    def forward(self, x):
        return {"y": tf.matmul(x, self.w) + weights((4,), 2)}

    @tf.function(input_signature=[tf.TensorSpec((1, 4))])
    def repeat(self, x):
        step = lambda i, v: (i + 1, tf.tanh(v * weights((1, 4), 3)) + weights((1, 4)))
        return {"y": tf.while_loop(lambda i, v: i < 5, step, (tf.constant(0), x))[1]}


def subgraphs():
    module = Loops()
    functions = [module.forward.get_concrete_function(), module.repeat.get_concrete_function()]
    return tf.lite.TFLiteConverter.from_concrete_functions(functions, module).convert()


TYPES = {
    "FLOAT32": np.float32, "FLOAT16": np.float16, "INT32": np.int32, "UINT8": np.uint8, "INT64": np.int64,
    "BOOL": np.bool_, "INT16": np.int16, "COMPLEX64": np.complex64, "INT8": np.int8, "FLOAT64": np.float64,
    "COMPLEX128": np.complex128, "UINT64": np.uint64, "UINT32": np.uint32, "UINT16": np.uint16,
}


def tensor(name, kind, shape, buffer, **quantization):
    made = schema.TensorT()
    made.name, made.type, made.shape, made.buffer = name, getattr(schema.TensorType, kind), shape, buffer
    if quantization:
        made.quantization = schema.QuantizationParametersT()
        for key, value in quantization.items():
            setattr(made.quantization, key, value)
    return made


def model_of(tensors, buffers, description):
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.description, model.subgraphs = 3, description, [graph]
    graph.name, graph.tensors, graph.inputs, graph.outputs, graph.operators = "main", tensors, [], [], []
    model.buffers = []
    for data in [b"", *buffers]:
        buffer = data if isinstance(data, schema.BufferT) else schema.BufferT()
        if isinstance(data, bytes) and data:
            buffer.data = np.frombuffer(data, np.uint8)
        model.buffers.append(buffer)
    metadata = schema.MetadataT()
    metadata.name, metadata.buffer = "note", len(model.buffers)
    model.metadata = [metadata]
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(b"a text", np.uint8)
    model.buffers.append(buffer)
    return model


def packed(model):
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def types():
    """Return a constant of each type, packed integers, ties and odd names, through the schema's own classes."""
    tensors, buffers = [], []

    def add(name, kind, shape, data, **quantization):
        buffers.append(data)
        tensors.append(tensor(name, kind, shape, len(buffers), **quantization))

    for kind, dtype in TYPES.items():
        add(kind.lower(), kind, [3], np.arange(3).astype(dtype).tobytes())
    add("bfloat16", "BFLOAT16", [2], b"\x80\x3f\x00\x40")
    add("int4", "INT4", [3, 3], bytes([0x10, 0x32, 0xfe, 0x87, 0x05]), scale=[0.5], zeroPoint=[0])
    add("int4_rows", "INT4", [2, 3], bytes([0x10, 0x32, 0xfe]), scale=[0.5, 2.0], zeroPoint=[0, 0])
    add("uint4", "UINT4", [3], bytes([0x1f, 0x02]))
    add("int2", "INT2", [5], bytes([0b11100100, 0b10]))
    add("string", "STRING", [1], b"\1\0\0\0\x0c\0\0\0\x0d\0\0\0x")
    add("scalar", "FLOAT32", [], np.float32(2.5).tobytes())
    add("uint8_zero", "UINT8", [4], bytes([0, 128, 130, 255]), scale=[0.25], zeroPoint=[128])
    add("middle", "INT8", [2, 3, 2], bytes(range(12)), scale=[1.0, 2.0, 4.0], zeroPoint=[0, 1, 2], quantizedDimension=1)
    add("int16", "INT16", [2], np.array([-4, 300], np.int16).tobytes(), scale=[0.125], zeroPoint=[0])
    tensors.append(tensor("tied", "FLOAT32", [3], 1))
    tensors.append(tensor("same_bytes", "INT32", [3], 1))
    add("sparse", "FLOAT32", [4], np.ones(1, np.float32).tobytes())
    tensors[-1].sparsity = schema.SparsityParametersT()
    tensors[-1].sparsity.traversalOrder = [0]
    add("short", "FLOAT32", [4], bytes(4))
    tensors.append(tensor("input", "FLOAT32", [1, 3], 0))
    add("", "FLOAT32", [1], np.float32(7).tobytes())
    add("bool", "INT8", [1], b"\x07")  # the name occurs twice
    tensors.append(tensor("blocks", "INT4", [1, 4], len(buffers) + 1))
    buffers.append(bytes([0x21, 0x43]))
    details = schema.BlockwiseQuantizationT()
    details.scales, details.blockSize = 1, 4
    tensors[-1].quantization = schema.QuantizationParametersT()
    tensors[-1].quantization.detailsType, tensors[-1].quantization.details = 2, details
    return packed(model_of(tensors, buffers, "a model of every type"))


def large():
    """Return a model with its data after the FlatBuffer, as models of more than 2 GiB."""
    data = weights((2, 3)).tobytes()

    def with_offset(offset):
        buffer = schema.BufferT()
        buffer.offset, buffer.size = offset, len(data)
        return packed(model_of([tensor("w", "FLOAT32", [2, 3], 1)], [buffer], "large"))

    size = len(with_offset(1 << 20))
    return with_offset(size) + data


def files():
    model = net()
    return {
        "float": converted(model), "float16": converted(model, "float16"), "dynamic": converted(model, "dynamic"),
        "int8": converted(model, "int8", samples=True), "int16": converted(model, "int16", samples=True),
        "subgraphs": subgraphs(), "types": types(), "large": large(),
    }


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / f"{name}.tflite").write_bytes(content)


def decoded(integers, scales, zeros, axis):
    """Return the floats of a quantized tensor."""
    axes = [1] * integers.ndim if len(scales) > 1 else []
    if axes:
        axes[axis] = len(scales)
    scale, zero = (np.asarray(n, np.float64).reshape(axes) for n in (scales, zeros))
    return ((integers.astype(np.float64) - zero) * scale).astype(np.float32)


def constants(content):
    """Return the constants of a model by name, as stele names them: number of the tensor in the first subgraph, value."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    found = {}
    for number, graph in enumerate(model.subgraphs):
        for index, t in enumerate(graph.tensors):
            data, q = model.buffers[t.buffer].data, t.quantization
            kind = next((k for k in TYPES if getattr(schema.TensorType, k) == t.type), None)
            if data is None or len(data) == 0 or kind is None or t.sparsity:
                continue
            name = (t.name or b"").decode()
            if number != 0:
                name = f"{(graph.name or b'').decode() or f'subgraph.{number}'}/{name}"
            shape = [] if t.shape is None else [int(n) for n in t.shape]
            if name in found or name == "" or len(data) != int(np.prod(shape)) * np.dtype(TYPES[kind]).itemsize:
                continue
            value = np.frombuffer(data.tobytes(), TYPES[kind]).reshape(shape)
            if q is not None and q.scale is not None and len(q.scale):
                value = decoded(value, q.scale, q.zeroPoint, q.quantizedDimension)
            found[name] = (index if number == 0 else None, value)
    return found


def theirs(interpreter, index):
    """Return a tensor of TensorFlow's interpreter, decoded if it is quantized."""
    value = interpreter.get_tensor(index)
    q = next(d for d in interpreter.get_tensor_details() if d["index"] == index)["quantization_parameters"]
    if len(q["scales"]) == 0 or value.dtype.kind not in "iu":
        return value
    return decoded(value, q["scales"], q["zero_points"], q["quantized_dimension"])


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for path in sorted(folder.glob("*.tflite")):
            target, content = folder / "floats.npz", path.read_bytes()
            integers = [] if path.stem == "large" else constants(content)
            wide = ["--precision", "f32"] if path.stem not in ("types", "float16") else []
            if path.stem == "types":  # floats stay as they are, quantized tensors are compared in float
                subprocess.run([stele, "convert", path, folder / "all.stele", "--quiet", "--allow-loss"], check=True)
                wide = ["--precision", "f32", "--only", "*int*", "scalar", "middle", "same_bytes", "tied", "bool"]
            subprocess.run([stele, "convert", path, target, "--allow-loss", "--quiet", *wide], check=True)
            with np.load(target) as file:
                stored = dict(file)
            if path.stem == "large":  # the interpreter reads such models from files only
                np.testing.assert_array_equal(stored["w"], weights((2, 3)))
                integers = {"w": (0, weights((2, 3)))}
            elif path.stem == "types":
                floats = ("float64", "float16", "complex64", "complex128")
                integers = {k: v for k, v in integers.items() if k in stored and k not in floats}
                packed_ints = {"int4": [[0, 0.5, 1], [1.5, -1, -0.5], [3.5, -4, 2.5]],
                               "int4_rows": [[0, 0.5, 1], [6, -4, -2]], "uint4": [15, 1, 2], "int2": [0, 1, -2, -1, -2]}
                for name, numbers in packed_ints.items():
                    np.testing.assert_array_equal(stored[name], numbers)
            interpreter = None
            if path.stem not in ("types", "large"):  # these have no operators
                interpreter = tf.lite.Interpreter(
                    model_content=content, experimental_preserve_all_tensors=True,
                    experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
                interpreter.allocate_tensors()
            compared = 0
            for name, (index, value) in integers.items():
                got = stored[name]
                assert (got.dtype, got.shape, got.tobytes()) == (value.dtype, value.shape, value.tobytes()), name
                if interpreter is not None and index is not None:
                    other = theirs(interpreter, index)
                    assert (got.dtype, got.shape, got.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
                    compared += 1
            print(f"{path.stem}: {len(integers)} constants are equal, {compared} of them in TensorFlow's interpreter")


if __name__ == "__main__":
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
