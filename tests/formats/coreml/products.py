"""Products of Core ML's programs, by coremltools."""

import logging
import os
import sys
from pathlib import Path

logging.disable(logging.CRITICAL)
os.environ["TQDM_DISABLE"] = "1"
import coremltools as ct  # noqa: E402
import numpy as np  # noqa: E402
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import types  # noqa: E402
from coremltools.converters.mil.mil.ops.defs.iOS16 import constexpr_ops  # noqa: E402
from coremltools.converters.mil.mil.ops.defs.iOS18 import compression  # noqa: E402
from coremltools.libmilstoragepython import _BlobStorageReader  # noqa: E402
from coremltools.proto import MIL_pb2  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["coremltools", "numpy"]
PAGES = ["formats/coreml"]
COMPARED = ["values"]
DECODED = True
FILES = 24
NUMBERS = ["float32", "float16", "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "int4", "uint4"]
NARROW = ["uint1", "uint6"]
AFFINE = ["affine int8", "affine uint8"]
BLOCKS = [f"blockwise {kind}" for kind in ("int4", "uint4", "int8", "uint8")]
LUTS = [f"lut uint{bits}" for bits in (1, 3, 4, 8)]
OTHERS = ["cast", "sparse float16", "sparse float32", "lut to sparse uint4", "sparse blockwise int8", "blockwise of lut uint4"]
DIMENSIONS = {
    "weight": [f"const {kind}" for kind in NUMBERS + NARROW] + ["const string"] + AFFINE + BLOCKS + LUTS + OTHERS,
    "shape": [[4, 6], [], [0], [1], [3, 5], [6, 1], [4, 3, 2, 2], [257]],
    "opset": ["iOS18", "iOS15", "iOS16", "iOS17", "iOS26"],
    "scale": ["float16", "float32"],
    "scale's shape": ["rows", "one", "last axis", "groups", "elements", "two axes"],
    "zero point": ["none", "some", "one", "float16"],
    "block": ["function", "cond", "cond in cond"],
    "functions": [1, 2],
    "opened": ["package", "model"],
    "members": [1, 0, 9],
    "name": ["weight", "a.b", "日本語", "1", "fc_quantized", "x" * 300],
}
NAMED = {kind: getattr(types, f"np_{kind}_dtype") for kind in ("uint1", "uint2", "uint3", "uint4", "uint6", "int4")}
STORED = {"BOOL": "bool", "FLOAT16": "f16", "FLOAT32": "f32"} | {f"{a}INT{n}": f"{'u' if a else 'i'}{n}" for a in ("", "U")
                                                                for n in (4, 8, 16, 32)}
LAYOUT = {"f16": "<f2", "f32": "<f4", "bool": "?", "i8": "i1", "u8": "u1", "i16": "<i2", "u16": "<u2", "i32": "<i4", "u32": "<u4"}


def possible(case):
    kind, shape, opset = case["weight"], case["shape"], case["opset"]
    if case["functions"] == 2 and opset not in ("iOS18", "iOS26"):
        return False
    plain = kind.startswith("const")
    scaled = kind in AFFINE + BLOCKS or kind == "sparse blockwise int8"
    if not scaled and (case["scale's shape"] != "rows" or case["zero point"] != "none" or case["scale"] != "float16"):
        return False
    if plain:
        return kind != "const string" or shape == []
    if not shape or 0 in shape:
        return False
    new = opset in ("iOS18", "iOS26")
    if kind in AFFINE or kind == "cast":
        allowed = opset in ("iOS16", "iOS17")
    elif kind.startswith("lut uint") or kind.startswith("sparse float"):
        allowed = opset != "iOS15" and (new or kind != "lut uint3")
    else:
        allowed = new
    if kind in AFFINE:
        return allowed and case["scale's shape"] in ("rows", "one", "last axis") and case["zero point"] in ("some", "one")
    if case["zero point"] == "one":
        return False
    if kind in ("sparse blockwise int8", "lut to sparse uint4", "blockwise of lut uint4") and len(shape) < 2:
        return False
    return allowed and (len(shape) > 1 or case["scale's shape"] in ("rows", "one"))


def hides(case):
    return case["members"] == 0 or case["weight"].split()[1:2] and case["weight"].split()[1] in NARROW


def scale_shape(case):
    shape, ones = case["shape"], [1] * len(case["shape"])
    if case["weight"] in AFFINE:
        return {"rows": shape[:1], "one": [], "last axis": shape[-1:]}[case["scale's shape"]]
    groups = shape[:-1] + [shape[-1] // 2 if shape[-1] % 2 == 0 else 1]
    halves = [n // 2 if n % 2 == 0 else n for n in shape]
    return {"rows": shape[:1] + ones[1:], "one": ones, "last axis": ones[1:] + shape[-1:], "groups": groups, "elements": shape,
            "two axes": halves}[case["scale's shape"]]


def integers(kind, shape, random):
    bits = int(kind.lstrip("uint"))
    made = random.integers(0, 2 ** bits, shape)
    if kind[0] == "i":
        made -= 2 ** bits // 2
    return np.asarray(made).astype(NAMED.get(kind, kind))


def floats(kind, shape, random, scale=False):
    if scale:
        return np.asarray(random.choice([.5, .25, 3, -1.5], shape)).astype(kind)
    bits = random.integers(0, 256, int(np.prod(shape)) * np.dtype(kind).itemsize, np.uint8)
    return bits.view(kind).reshape(shape)


def constant(kind, shape, name, random):
    if kind == "string":
        return mb.const(val="é <text>", name=name)
    if kind == "bool":
        return mb.const(val=np.asarray(random.integers(0, 2, shape)).astype(bool), name=name)
    made = floats(kind, shape, random) if kind.startswith("float") else integers(kind, shape, random)
    return mb.const(val=made if shape else made.reshape(())[()], name=name)


def lut(kind, shape, random, new):
    size = 2 ** int(kind.lstrip("uint"))
    return floats("float16", [1] * len(shape) + [size, 1] if new else [size], random, True)


def weight(case, name, random, wanted):
    """Add a weight to the program; if it is decoded by stele, add its numbers to `wanted`."""
    kind, shape, new = case["weight"], case["shape"], case["opset"] in ("iOS18", "iOS26")
    words = kind.split()
    if words[0] == "const":
        return constant(words[1], shape, name, random)
    codes = integers(words[-1], shape, random) if "int" in words[-1] else None
    scale = floats(case["scale"], scale_shape(case), random, True)
    zero = None
    if case["zero point"] in ("some", "one", "float16"):
        zeros = [] if case["zero point"] == "one" else scale_shape(case)
        zero = floats("float16", zeros, random, True) if case["zero point"] == "float16" else integers(words[-1], zeros, random)
    if kind in AFFINE:
        axis = len(shape) - 1 if case["scale's shape"] == "last axis" else 0
        values = scale.astype(np.float32)
        wanted[name] = constexpr_ops.constexpr_affine_dequantize.decompress(codes, zero, values, axis)
        as_scalar = {key: value if value.shape else value[()] for key, value in (("scale", scale), ("zero_point", zero))}
        return mb.constexpr_affine_dequantize(quantized_data=codes, axis=axis, name=name, **as_scalar)
    if kind in BLOCKS:
        wanted[name] = compression.constexpr_blockwise_shift_scale.decompress(codes, scale.astype(np.float32), zero)
        return mb.constexpr_blockwise_shift_scale(data=codes, scale=scale, offset=zero, name=name)
    if kind == "cast":
        return mb.constexpr_cast(source_val=floats("float16", shape, random), output_dtype="fp32", name=name)
    if kind in LUTS and new:
        return mb.constexpr_lut_to_dense(indices=codes, lut=lut(words[1], shape, random, True), name=name)
    if kind in LUTS:
        bits = int(words[1].lstrip("uint"))
        packed = np.packbits(np.unpackbits(codes.astype(np.uint8).reshape(-1, 1), axis=1, count=bits, bitorder="little"), bitorder="little")
        return mb.constexpr_lut_to_dense(indices=packed, lut=lut(words[1], shape, random, False), shape=np.uint32(shape), name=name)
    mask = random.integers(0, 2, shape).astype(np.uint8)
    mask.reshape(-1)[0] = 1
    some = int(mask.sum())
    bits = mask.astype(types.np_uint1_dtype)
    if kind.startswith("sparse float"):
        numbers = floats(words[1], [some], random)
        if new:
            return mb.constexpr_sparse_to_dense(nonzero_data=numbers, mask=bits, name=name)
        packed = np.packbits(mask, bitorder="little")
        return mb.constexpr_sparse_to_dense(nonzero_data=numbers, mask=packed, shape=np.uint32(shape), name=name)
    if kind == "lut to sparse uint4":
        mask, value = mb.constexpr_lut_to_sparse(indices_mask=bits, indices_nonzero_data=integers("uint4", [some], random),
                                                 lut=lut("uint4", shape, random, True), name=name)
        return mb.constexpr_sparse_to_dense(nonzero_data=value, mask=mask, name=name + "_dense")
    if kind == "sparse blockwise int8":
        mask, value = mb.constexpr_sparse_blockwise_shift_scale(
            data_mask=bits, nonzero_data=integers("int8", [some], random), scale=scale, offset=zero, name=name)
        return mb.constexpr_sparse_to_dense(nonzero_data=value, mask=mask, name=name + "_dense")
    indices = mb.constexpr_lut_to_dense(
        indices=codes, lut=integers("int8", [1] * len(shape) + [16, 1], random), name=name + "_lut")
    return mb.constexpr_blockwise_shift_scale(data=indices, scale=scale, name=name)


def program(case, seed, wanted):
    def weights():
        for i in range(case["members"]):
            weight(case, case["name"] + (str(i) if i else ""), np.random.default_rng(seed + i), wanted)

    def inside(x, depth):
        if depth == 0:
            weights()
            return mb.identity(x=x)
        return mb.cond(pred=mb.const(val=True, name=f"condition{depth}"), _true_fn=lambda: inside(x, depth - 1), _false_fn=lambda: mb.identity(x=x))

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=getattr(ct.target, case["opset"]))
    def made(x):
        return inside(x, {"function": 0, "cond": 1, "cond in cond": 2}[case["block"]])

    return ct.convert(made, convert_to="mlprogram", minimum_deployment_target=getattr(ct.target, case["opset"]),
                      pass_pipeline=ct.PassPipeline.EMPTY, skip_model_load=True, compute_precision=ct.precision.FLOAT32)


class Reader:
    """The values of a program, by coremltools' classes of the protocol and its reader of weights."""

    def __init__(self, package):
        self.model = ct.models.MLModel(str(package), skip_model_load=True)
        self.tensors, self.unread, self.values, self.compressed = {}, [], {}, {}
        functions = self.model.get_spec().mlProgram.functions
        for name in functions:
            for block in functions[name].block_specializations.values():
                self.block(block, f"{name}." if len(functions) > 1 else "")

    def block(self, block, scope):
        for operation in block.operations:
            name = scope + operation.outputs[0].name if operation.outputs else ""
            if operation.type == "const":
                self.add(name, operation.attributes["val"])
            elif operation.type.startswith("constexpr_"):
                self.compress(name, operation)
            for inner in operation.blocks:
                self.block(inner, scope)

    def compress(self, name, operation):
        given = dict(operation.attributes)
        for key, argument in operation.inputs.items():
            if argument.arguments[0].WhichOneof("binding") == "value":
                given[key] = argument.arguments[0].value
        given.pop("name", None)
        kind = operation.type.removeprefix("constexpr_")
        main = {"affine_dequantize": "quantized_data", "blockwise_shift_scale": "data", "cast": "source_val"}.get(kind)
        self.compressed[name] = kind, [name if key == main else f"{name}.{key}" for key in given]
        for key, value in given.items():
            if (kind, key) not in (("affine_dequantize", "axis"), ("cast", "output_dtype")):
                self.add(name if key == main else f"{name}.{key}", value)

    def add(self, name, value):
        kind = MIL_pb2.DataType.Name(value.type.tensorType.dataType)
        shape = [dimension.constant.size for dimension in value.type.tensorType.dimensions]
        if kind == "STRING":
            texts = list(value.immediateValue.tensor.strings.values)
            self.values[name] = texts[0] if not shape else texts
        elif kind not in STORED:
            self.unread.append(name)
        else:
            self.tensors[name] = STORED[kind], shape, self.data(value, kind, STORED[kind], int(np.prod(shape)))

    def data(self, value, kind, dtype, count):
        if value.WhichOneof("value") == "blobFileValue":
            weights = _BlobStorageReader(str(Path(self.model.weights_dir) / "weight.bin"))
            method = {"FLOAT16": "fp16", "FLOAT32": "float"}.get(kind, kind.lower())
            numbers = getattr(weights, f"read_{method}_data")(value.blobFileValue.offset)
            if dtype in ("i4", "u4"):
                nibbles = np.append(np.array(numbers).astype(np.int64).astype(np.uint8) & 15, np.zeros(count % 2, np.uint8))
                return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()
            return np.array(numbers).tobytes() if kind == "FLOAT16" else np.array(numbers, LAYOUT[dtype]).tobytes()
        tensor = value.immediateValue.tensor
        field = tensor.WhichOneof("value")
        if field == "bytes":
            return tensor.bytes.values
        return np.array(getattr(tensor, field).values).astype(LAYOUT[dtype]).tobytes()


def is_weight(case):
    """Whether stele has one tensor for the parts: docs/formats/coreml.md."""
    if case["weight"] not in AFFINE + BLOCKS:
        return False
    shape, scale, narrow = case["shape"], scale_shape(case), case["weight"].endswith("4")
    rows = int(np.prod(shape[:-1]))
    if narrow and shape[-1] % 2 and rows > 1:
        return False  # rows that are no whole bytes
    if case["weight"] in AFFINE or np.prod(scale) == 1:
        return True
    leading = max(i for i, n in enumerate(scale) if n != 1)  # the axis that may be divided
    if scale[:leading] != shape[:leading] and (scale[:-1] != [1] * len(scale[:-1]) or scale[-1] != shape[-1]):
        return False
    if case["zero point"] != "some" or not narrow:
        return True
    return case["weight"] == "blockwise uint4" and scale[-1] == 1


def write(case, path):
    path = path.with_suffix(".mlpackage")
    wanted = [{} for _ in range(case["functions"])]
    models = [program(case, 7 * i, wanted[i]) for i in range(case["functions"])]
    if case["functions"] == 1:
        models[0].save(str(path))
    else:
        described = ct.utils.MultiFunctionDescriptor()
        for i, model in enumerate(models):
            part = path.with_name(f"{path.stem}_part{i}.mlpackage")
            model.save(str(part))
            described.add_function(str(part), "main", f"f{i}")
        described.default_function_name = "f0"
        ct.utils.save_multifunction(described, str(path))
    read = Reader(path)
    if is_weight(case):
        numbers = [values for function in wanted for values in function.values()]
        for (name, (_, parts)), values in zip(sorted(read.compressed.items(), key=lambda item: item[0].partition(".")[0])
                                              if len(wanted) > 1 else read.compressed.items(), numbers, strict=True):
            for part in parts:
                read.tensors.pop(part, None)
            read.tensors[name.removesuffix("_quantized")] = np.asarray(values, np.float32)
    return (path if case["opened"] == "package" else path / "Data/com.apple.CoreML/model.mlmodel"), \
        comparison.Expected(read.tensors, read.unread, values=read.values)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
