"""Products of TensorFlow Lite's models, by the classes of its schema; its interpreter reads the constants that it can."""

import math
import os
import sys
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
import flatbuffers  # noqa: E402
import ml_dtypes  # noqa: E402, F401: registers its dtypes
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.lite.python import schema_py_generated as schema  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["tensorflow_cpu", "flatbuffers", "numpy"]
PAGES = ["formats/tflite"]
COMPARED = ["metadata", "ties", "annotations"]
NUMBERS = {"FLOAT32": "float32", "FLOAT16": "float16", "BFLOAT16": "bfloat16", "FLOAT64": "float64", "INT8": "int8", "INT16": "int16",
           "INT32": "int32", "INT64": "int64", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
           "BOOL": "bool", "COMPLEX64": "complex64", "COMPLEX128": "complex128"}
PACKED = {"INT4": 4, "UINT4": 4, "INT2": 2}
OTHERS = {"STRING", "RESOURCE", "VARIANT"}
INTERPRETED = {"FLOAT32", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL", "COMPLEX64",
               "COMPLEX128", "FLOAT64"}
DIMENSIONS = {
    "type": [*NUMBERS, *PACKED, *sorted(OTHERS)],
    "shape": [[3, 5], [], None, [1], [7], [0], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 8, [1] * 5 + [3], [2, 4]],
    "buffer": ["own", "shared", "shared, other shape", "shared, other type", "shared, other scale", "outside", "outside, shared",
               "external", "short", "long", "number 0"],
    "quantization": ["none", "scale", "zero point", "axis 0", "last axis", "one zero point", "range", "blocks", "custom", "no scale"],
    "sparsity": ["none", "rows", "blocks"],
    "name": ["weight", "a.b", "a/b;c/d", "日本語", "", " \\x\n", "x" * 300, "same"],
    "members": [1, 9, 1001],
    "subgraphs": ["one", "named", "unnamed", "equal names"],
    "metadata": ["none", "description", "text", "Unicode", "bytes", "zeros", "64 KiB", "more than 64 KiB"],
    "model": ["constants", "input and signature", "variable"],
}


def possible(case):
    shape = case["shape"]
    count, rank = math.prod(shape or []), len(shape or [])
    if case["members"] == 1001 and (count > 3 or case["buffer"] in ("own", "external", "number 0") and count > 1):
        return False
    if "axis" in case["quantization"] and (rank == 0 or count == 0) or case["quantization"] == "blocks" and case["type"] != "INT4":
        return False
    if case["sparsity"] != "none" and (rank != 2 or case["type"] not in ("FLOAT32", "INT8", "FLOAT16")):
        return False
    if count == 0 and case["buffer"] not in ("own", "external", "number 0"):
        return False
    if case["type"] in OTHERS and case["buffer"] in ("short", "long", "shared, other type"):
        return False
    return case["buffer"] != "shared, other type" or case["type"] in ("FLOAT32", "INT8", "UINT16")


def hides(case):
    return (case["type"] in OTHERS or case["sparsity"] != "none" or case["buffer"] in ("external", "short", "long", "number 0")
            or 0 in (case["shape"] or []))


def data(case, seed):
    """Return the bytes of a constant: random bits."""
    count = math.prod(case["shape"] or [])
    random = np.random.default_rng(seed)
    if case["type"] in OTHERS:
        return bytes([1, 0, 0, 0, 12, 0, 0, 0, 13, 0, 0, 0, 120])
    if case["type"] in PACKED:
        size = (count * PACKED[case["type"]] + 7) // 8
    else:
        size = count * np.dtype(NUMBERS[case["type"]]).itemsize
    bits = random.integers(0, 2 if case["type"] == "BOOL" else 256, size, np.uint8).tobytes()
    return {"short": bits[:-1], "long": bits + b"\0"}.get(case["buffer"], bits)


def quantization(case, other=False):
    made = schema.QuantizationParametersT()
    shape = case["shape"] or []
    axis = 0 if case["quantization"] == "axis 0" else len(shape) - 1
    match case["quantization"]:
        case "none":
            return None
        case "scale":
            made.scale = [0.1]
        case "zero point":
            made.scale, made.zeroPoint = [0.25], [-3]
        case "axis 0" | "last axis":
            made.scale = [0.1 * (i + 1) for i in range(shape[axis])]
            made.zeroPoint, made.quantizedDimension = list(range(shape[axis])), axis
        case "one zero point":
            made.scale, made.zeroPoint = [0.5, 1e-40], [7]
        case "range":
            made.min, made.max = [-1.0], [1.0]
        case "no scale":
            made.zeroPoint = [5]
        case "blocks":
            made.detailsType, made.details = schema.QuantizationDetails.BlockwiseQuantization, schema.BlockwiseQuantizationT()
            made.details.scales, made.details.zeroPoints, made.details.blockSize = 1, 0, 4
        case "custom":
            made.detailsType, made.details = schema.QuantizationDetails.CustomQuantization, schema.CustomQuantizationT()
            made.details.custom = np.array([1, 2, 3], np.uint8)
    if other:
        made.scale = [99.0]
    return made


def sparsity(case):
    """Return a description in which all rows are stored, dense in dense."""
    if case["sparsity"] == "none":
        return None
    made = schema.SparsityParametersT()
    made.traversalOrder, made.dimMetadata = [0, 1], []
    for extent in case["shape"]:
        axis = schema.DimensionMetadataT()
        axis.format, axis.denseSize = schema.DimensionType.DENSE, extent
        made.dimMetadata.append(axis)
    if case["sparsity"] == "blocks":
        made.traversalOrder, made.blockMap = [0, 1, 2, 3], [0, 1]
        made.dimMetadata *= 2
    return made


class Maker:
    """Makes a model; a buffer outside of the FlatBuffer has its offset when the size of the FlatBuffer is known."""

    def __init__(self, case):
        self.case, self.buffers, self.outside, self.tail = case, [schema.BufferT()], [], b""
        self.model = schema.ModelT()
        self.model.version = 3
        graphs = [("main", 0)] + {"one": [], "named": [("second", 1)], "unnamed": [("", 1), (None, 2)],
                                  "equal names": [("g", 1), ("g", 2)]}[case["subgraphs"]]
        self.model.subgraphs = [self.graph(name, number) for name, number in graphs]
        self.metadata()
        self.model.buffers = self.buffers

    def buffer(self, content, outside=False):
        made = schema.BufferT()
        if outside:
            made.offset, made.size = 1 << 40, len(content)
            self.outside.append((made, len(self.tail)))
            self.tail += content
        elif content:
            made.data = np.frombuffer(content, np.uint8)
        self.buffers.append(made)
        return len(self.buffers) - 1

    def tensor(self, name, buffer, **changes):
        made, case = schema.TensorT(), self.case
        made.name, made.shape, made.buffer = name, case["shape"], buffer
        made.hasRank = case["shape"] is not None
        made.type = getattr(schema.TensorType, case["type"])
        made.quantization, made.sparsity = quantization(case), sparsity(case)
        for key, value in changes.items():
            setattr(made, key, value)
        return made

    def graph(self, name, number):
        case, graph = self.case, schema.SubGraphT()
        graph.name, graph.tensors, graph.operators, graph.inputs, graph.outputs = name, [], [], [], []
        for i in range(case["members"] if number == 0 else 1):
            own = case["name"] if case["name"] in ("", "same") else case["name"] + (str(i) if i else "")
            kind = case["buffer"]
            if kind == "external":
                group, external = schema.ExternalBufferGroupT(), schema.ExternalBufferT()
                group.name, external.id, external.length = "weights.bin", 1 + i, len(data(case, i))
                self.model.externalBufferGroups = [group]
                self.model.externalBuffers = (self.model.externalBuffers or []) + [external]
                graph.tensors.append(self.tensor(own, 0, externalBuffer=1 + i))
                continue
            at = 0 if kind == "number 0" else self.buffer(data(case, 100 * number + i), kind.startswith("outside"))
            graph.tensors.append(self.tensor(own, at))
            if "shared" not in kind:
                continue
            changes = {}
            if "other shape" in kind:
                changes["shape"] = [1, *(case["shape"] or [])]
            elif "other type" in kind:
                other = {"FLOAT32": "INT32", "INT8": "UINT8", "UINT16": "INT16"}[case["type"]]
                changes["type"] = getattr(schema.TensorType, other)
            elif "other scale" in kind:
                changes["quantization"] = quantization(case, other=True)
            graph.tensors.append(self.tensor(own + "shared", at, **changes))
        if case["model"] != "constants" and number == 0:
            x = schema.TensorT()
            x.name, x.shape, x.type, x.buffer, x.shapeSignature = "x", [1, 3], 0, self.buffer(b""), [-1, 3]
            x.isVariable = case["model"] == "variable"
            graph.tensors.append(x)
            if case["model"] == "input and signature":
                graph.inputs = graph.outputs = [len(graph.tensors) - 1]
                one, place = schema.SignatureDefT(), schema.TensorMapT()
                place.name, place.tensorIndex = "x", graph.inputs[0]
                one.inputs, one.outputs, one.signatureKey = [place], [place], "serving_default"
                self.model.signatureDefs = [one]
        return graph

    def metadata(self):
        entries = {"text": {"note": b"a text"}, "Unicode": {"名": "値".encode()}, "bytes": {"BLOB": b"\xff\0\1"},
                   "zeros": {"min_runtime_version": b"1.5.0" + bytes(11)}, "64 KiB": {"t": b"x" * (64 << 10)},
                   "more than 64 KiB": {"t": b"x" * ((64 << 10) + 1), "u": b"y"}}.get(self.case["metadata"], {})
        if self.case["metadata"] == "description":
            self.model.description = "ein Modell, größer"
        self.model.metadata = []
        for name, content in entries.items():
            made = schema.MetadataT()
            made.name, made.buffer = name, self.buffer(content)
            self.model.metadata.append(made)

    def packed(self):
        def once():
            builder = flatbuffers.Builder(1024)
            builder.Finish(self.model.Pack(builder), b"TFL3")
            return bytes(builder.Output())

        size = len(once())
        for buffer, offset in self.outside:
            buffer.offset = size + offset
        return once() + self.tail


def write(case, path):
    path = path.with_suffix(".tflite")
    path.write_bytes(Maker(case).packed())
    return path, expected(path)


def text(name):
    return (name or b"").decode()


def annotation(tensor, names):
    """Return the annotation of a quantized tensor; None for others."""
    q = tensor.quantization
    kind = next(k for k, v in vars(schema.TensorType).items() if v == tensor.type)
    if q is None or not kind.lstrip("U").startswith("INT"):
        return None
    note = {"bits": int(kind.lstrip("UINT"))} | ({"signed": True} if kind[0] == "I" else {})
    if q.detailsType == schema.QuantizationDetails.BlockwiseQuantization:
        scales = {"scales": names[q.details.scales]} if q.details.scales in names else {}
        return note | {"scheme": "blockwise", "block_size": q.details.blockSize} | scales
    if q.detailsType:
        return note | {"scheme": "custom"}
    if q.scale is None or len(q.scale) == 0:
        return None
    scale = [float(x) for x in q.scale]
    zero = [0] * len(scale) if q.zeroPoint is None else [int(x) for x in q.zeroPoint]
    zero = zero * len(scale) if len(zero) == 1 else zero
    if len(scale) == 1:
        return note | {"scheme": "zero_point", "scale": scale[0], "zero_point": zero[0]}
    return note | {"scheme": "zero_point", "axis": q.quantizedDimension, "scale": scale, "zero_point": zero}


def elements(kind, shape, content):
    """Return the elements of a constant; None if its bytes do not match."""
    count = math.prod(shape)
    if kind in PACKED:
        bits = PACKED[kind]
        if len(content) != (count * bits + 7) // 8:
            return None
        each = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little").reshape(-1, bits)[:count]
        codes = (each << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
        if kind[0] == "I":
            codes = ((codes ^ (1 << bits - 1)).astype(np.int8) - (1 << bits - 1)).astype(np.int8)
        return codes.reshape(shape)
    dtype = np.dtype(NUMBERS[kind])
    return np.frombuffer(content, dtype).reshape(shape) if len(content) == count * dtype.itemsize else None


def interpreted(content):
    """Return TensorFlow's interpreter of a model, or None if it refuses the model."""
    try:
        interpreter = tf.lite.Interpreter(model_path=str(content))
        interpreter.allocate_tensors()
        return interpreter
    except (ValueError, RuntimeError):
        return None


def bytes_of(model, content, number):
    buffer = model.buffers[number]
    if buffer.offset > 1:
        return content[buffer.offset:buffer.offset + buffer.size]
    return b"" if buffer.data is None else bytes(buffer.data)


def expected(path):
    """Read a model by the classes of the schema, and its constants by the interpreter, too, where it has them."""
    content = path.read_bytes()
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    interpreter = interpreted(path)
    out, used, first, unread = comparison.Expected(), set(), {}, []
    for number, graph in enumerate(model.subgraphs):
        prefix = (text(graph.name) or f"subgraph.{number}") + "/" if number else ""
        names = {}  # of constants
        for i, tensor in enumerate(graph.tensors):
            if not bytes_of(model, content, tensor.buffer) and not tensor.externalBuffer:
                continue
            names[i] = unique(prefix + (text(tensor.name) or f"tensor.{i}"), used)
        for i, name in names.items():
            tensor = graph.tensors[i]
            stored = bytes_of(model, content, tensor.buffer)
            kind = next(k for k, v in vars(schema.TensorType).items() if v == tensor.type)
            shape = [] if tensor.shape is None else [int(n) for n in tensor.shape]
            sparse = tensor.sparsity is not None
            array = None if kind in OTHERS or sparse or tensor.externalBuffer else elements(kind, shape, stored)
            if array is None:
                unread.append(name)
                continue
            if interpreter is not None and number == 0 and kind in INTERPRETED:
                try:
                    theirs = interpreter.get_tensor(i)
                except ValueError:
                    theirs = array
                if theirs.tobytes() != array.tobytes() or list(theirs.shape) != shape:
                    raise AssertionError(f"{path}: {name}: TensorFlow's interpreter reads other elements")
            out.tensors[name] = array
            note = annotation(tensor, names)
            notes = ({"tflite.dtype": kind.lower()} if kind in PACKED else {}) | ({"quantization": note} if note else {})
            same = (tensor.buffer, kind, tuple(shape), repr(note))
            if tensor.buffer in first and first[tensor.buffer][0] == same:
                out.ties[name] = first[tensor.buffer][1]
                notes = out.annotations.get(out.ties[name], {})
            first.setdefault(tensor.buffer, (same, name))
            if notes:
                out.annotations[name] = notes
    out.unread = tuple(unread)
    if model.description:
        out.metadata["description"] = text(model.description)
    for entry in model.metadata or []:
        stored = bytes(model.buffers[entry.buffer].data)
        try:
            note = stored.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            continue
        if len(stored) <= 64 << 10 and "\0" not in note:
            out.metadata[text(entry.name)] = note
    return out


def unique(name, used):
    """Return a name that no other tensor has."""
    number, first = 0, name
    while name in used:
        number += 1
        name = f"{first}#{number}"
    used.add(name)
    return name


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
