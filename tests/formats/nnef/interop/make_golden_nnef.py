#!/usr/bin/env python3
"""Write the golden files of tests/formats/nnef/data with the real package, and by hand what no program writes any more.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/nnef/interop/make_golden_nnef.py [FOLDER]
    python3 tests/formats/nnef/interop/make_golden_nnef.py --check FOLDER   compares with what would be written

expected.txt in the folder says what each file has; README.md explains its columns.
"""

import gzip
import importlib.metadata
import io
import math
import os
import pathlib
import shutil
import struct
import sys
import tarfile
import tempfile

import nnef
import nnef.binary
import numpy as np

INTEGERS = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "iu"]
TYPES = ["f16", "f32", "f64", *INTEGERS, "bool"]


def dtype(name):
    return np.dtype("?") if name == "bool" else np.dtype(f"<{name[0]}{int(name[1:]) // 8}")


def values(name, shape):
    """Edges of the type first, then what counts up."""
    count = int(np.prod(shape, dtype=np.int64))
    k = np.arange(count)
    if name == "bool":
        return (k % 3 == 1).reshape(shape)
    kind = dtype(name)
    if kind.kind == "f":
        info = np.finfo(kind)
        edges = np.array([-0.0, np.inf, -np.inf, info.max, info.smallest_subnormal, np.nan], kind)
        edges[5:].view(f"<u{kind.itemsize}")[0] |= 1  # a NaN with a payload
    else:
        info = np.iinfo(kind)
        edges = np.array([info.min, info.max, info.max - 1], kind)
    data = (k % 7 - (2 if kind.kind != "u" else 0)).astype(kind)
    data[:len(edges)] = edges[:count]
    return data.reshape(shape)


class Files:
    """A folder, and the lines of its expected.txt."""

    def __init__(self, folder):
        self.folder = folder
        self.lines = []

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def expect(self, name, kind, shape, stored, real=None):
        """`stored` as an array of whole bytes an element; `real` what a quantized tensor means, in f64."""
        fields = [name, kind, "x".join(map(str, shape)) or "-",
                  np.asarray(stored).tobytes().hex() or "-"]
        if real is not None:
            fields.append(np.asarray(real, "<f8").tobytes().hex() or "-")
        self.lines.append("\t".join(fields) + "\n")

    def tensor(self, name, kind, data, quantized=False):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            nnef.write_tensor(file, data, quantized=quantized)
        self.expect(name, kind, data.shape, data)

    def close(self):
        (self.folder / "expected.txt").write_text("".join(self.lines))


# What a quantized tensor means, by section 4.9.5 of the specification, from the stored integers.


def left(parameter, rank):
    """Parameters of quantization broadcast from the left: dimension 0 is dimension 0."""
    parameter = np.asarray(parameter, np.float32).astype("f8")
    return parameter.reshape(parameter.shape + (1,) * (rank - parameter.ndim)) if parameter.ndim else parameter


def min_max(q, low, high, bits, signed=False, symmetric=False):
    low, high = left(low, q.ndim), left(high, q.ndim)
    r = 2.0**bits - 1 - (signed and symmetric)
    p = 2.0**(bits - 1) - symmetric if signed else 0.0
    return (q.astype("f8") + p) / r * (high - low) + low


def zero_point(q, zero, scale):
    return (q.astype("f8") - left(zero, q.ndim)) * left(scale, q.ndim)


def logarithmic(q, high, bits):
    """As in the deprecated part of section 5.2, codes counting from the least exponent; `q` is the magnitude."""
    return 2.0**(q.astype("f8") + math.ceil(math.log2(high)) - (2.0**bits - 1))


def tensors(files):
    for name in TYPES:
        files.tensor(f"types/{name}.dat", name, values(name, (3, 5)))
    for name in INTEGERS:
        files.tensor(f"types/q{name}.dat", f"q{name}", values(name, (3, 5)), quantized=True)
    for rank in range(9):
        shape = (2, 3, 1, 2, 1, 2, 1, 2)[:rank]
        files.tensor(f"ranks/{rank}.dat", "f32", np.asarray(values("f32", shape)))
    for name, shape in (("f32", (0,)), ("f64", (3, 0, 2)), ("i64", (0, 4)), ("bool", (0,)), ("u8", (2, 0))):
        files.tensor(f"empty/{name}.dat", name, values(name, shape))
    for name, shape in (("f16", ()), ("i8", ()), ("u64", ()), ("bool", ())):
        files.tensor(f"scalars/{name}.dat", name, np.asarray(values(name, shape)))
    for count in (1, 7, 8, 9, 16):
        files.tensor(f"bools/{count}.dat", "bool", np.ones(count, "?"))
    for name, shape in (("f32", ()), ("f32", (4,)), ("f16", (2, 3)), ("f64", (2, 1, 2)), ("f32", (0, 2))):
        path = f"provisional/{name}-{'x'.join(map(str, shape)) or 'scalar'}.dat"
        (files.folder / "provisional").mkdir(exist_ok=True)
        data = np.asarray(values(name, shape))
        with open(files.folder / path, "wb") as file:
            nnef.binary._write_tensor_provisional(file, data)
        files.expect(path, name, shape, data)


# Of a net: (identifier, type in the graph, label, kind, shape, quantization in graph.quant, its meaning)
VARIABLES = [
    ("filter1", "scalar", "conv1/filter", "f32", (3, 2, 3, 3), None, None),
    ("bias1", "scalar", "conv1/bias", "f32", (1, 3), None, None),
    ("filter2", "scalar", "conv2/filter", "qu8", (4, 3, 1, 1), "linear_quantize(min = -1.0, max = 1.0, bits = 8)",
     lambda q: min_max(q, -1, 1, 8)),
    ("bias2", "scalar", "conv2/bias", "qi32", (1, 4),
     "zero_point_linear_quantize(zero_point = 0, scale = 0.001, bits = 32, signed = true, symmetric = false)",
     lambda q: zero_point(q, 0, 0.001)),
    ("weight", "scalar", "head/linear/weight", "qi8", (5, 4),
     "min_max_linear_quantize(min = -2.0, max = 2.5, bits = 8, signed = true, symmetric = true)",
     lambda q: min_max(q, -2, 2.5, 8, True, True)),
    ("weight_signed", "scalar", "head/linear/weight_signed", "qi8", (2, 4),
     "min_max_linear_quantize(min = -2.0, max = 2.5, bits = 8, signed = true, symmetric = false)",
     lambda q: min_max(q, -2, 2.5, 8, True)),
    ("weight_channels", "scalar", "head/linear/weight_channels", "qi8", (2, 4),
     "zero_point_linear_quantize(zero_point = [[0], [3]], scale = [[0.5], [0.125]], bits = 8, signed = true, "
     "symmetric = false)", lambda q: zero_point(q, [[0], [3]], [[0.5], [0.125]])),
    ("weight_zero", "scalar", "head/linear/weight_zero", "qu8", (2, 4),
     "zero_point_linear_quantize(zero_point = 128, scale = 0.0078125, bits = 8, signed = false, symmetric = false)",
     lambda q: zero_point(q, 128, 0.0078125)),
    ("wide", "scalar", "head/wide", "qu16", (3,),
     "min_max_linear_quantize(min = 0.0, max = 1.0, bits = 16, signed = false, symmetric = false)",
     lambda q: min_max(q, 0, 1, 16)),
    ("exponents", "scalar", "head/exponents", "qu8", (2, 2), "logarithmic_quantize(max = 4.0, bits = 8)",
     lambda q: logarithmic(q, 4, 8)),
    ("left_alone", "scalar", "head/left.alone", "qi8", (3,), None, None),  # quantized, and nothing says how
    ("half", "scalar", "head/half", "f16", (6,), None, None),
    ("double", "scalar", "head/double", "f64", (6,), None, None),
    ("steps", "integer", "steps", "i64", (1,), None, None),
    ("table", "integer", "head/table", "u16", (2, 3), None, None),
    ("mask", "logical", "head/mask", "bool", (11,), None, None),
]

NET = """
    input = external(shape = [1, 2, 6, 6]);
    {variables}
    conv1 = conv(input, filter1, bias1, padding = [(0, 0), (0, 0)]);
    relu1 = relu(conv1);
    conv2 = conv(relu1, filter2, bias2);
    pool = mean_reduce(conv2, axes = [2, 3]);
    flat = squeeze(pool, axes = [2, 3]);
    output = linear(flat, weight);
"""


def stored(kind, shape):
    # No edges for floats here: a model is to be computed with.
    count = int(np.prod(shape, dtype=np.int64))
    if kind.startswith("f"):
        return ((np.arange(count) % 11 - 5) / 4).astype(dtype(kind)).reshape(shape)
    return values(kind.removeprefix("q"), shape)


def model(folder):
    """What nnef.save_graph makes of a net, and graph.quant, which it leaves out, as nnef_tools prints it."""
    variables = "".join(f"{i} = variable<{t}>(shape = {list(shape)}, label = '{label}');\n"
                        for i, t, label, _, shape, _, _ in VARIABLES)
    graph = nnef.parse_string("version 1.0; graph net(input) -> (output) {" + NET.format(variables=variables) + "}")
    for name, _, _, kind, shape, _, _ in VARIABLES:
        tensor = graph.tensors[name]
        quantization = {"op-name": "any"} if kind.startswith("q") else {}
        graph.tensors[name] = nnef.Tensor(name, tensor.dtype, list(shape), stored(kind, shape), quantization)
    shutil.rmtree(folder, ignore_errors=True)  # save_graph wants it new
    nnef.save_graph(graph, str(folder))
    (folder / "graph.quant").write_text("".join(f'"{name}": {quantization};\n'
                                                for name, *_, quantization, _ in VARIABLES if quantization))


def expect_model(files, name):
    for _, _, label, kind, shape, _, meaning in VARIABLES:
        data = stored(kind, shape)
        files.expect(f"{name}:{label}", kind, shape, data, meaning(data) if meaning else None)


def pack(folder, path, dot, compressed, form):
    """The folder as a tar archive: members with or without `./` before them. The same bytes on each run."""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=form) as tar:
        if dot:
            tar.add(folder, ".", filter=plain)
        else:
            for name in sorted(os.listdir(folder)):
                tar.add(folder / name, name, filter=plain)
    data = memory.getvalue()
    path.write_bytes(gzip.compress(data, mtime=0) if compressed else data)


def models(files):
    model(files.folder / "model.nnef")
    expect_model(files, "model.nnef")
    for name, dot, compressed, form in (("model.nnef.tgz", False, True, tarfile.PAX_FORMAT),
                                        ("model.dot.nnef.tgz", True, True, tarfile.GNU_FORMAT),
                                        ("model.nnef.tar", False, False, tarfile.USTAR_FORMAT)):
        pack(files.folder / "model.nnef", files.folder / name, dot, compressed, form)
        expect_model(files, name)


# By hand.


def header(bits, code, shape, length, vendor=0, parameters=b"", version=(1, 0)):
    content = struct.pack("<4B2I8I", 0x4E, 0xEF, *version, length, len(shape), *shape, *[0] * (8 - len(shape)))
    content += struct.pack("<IHH", bits, code, vendor) + parameters
    return content.ljust(128, b"\0")


def packed(numbers, bits):
    """One stream of bits, the most significant bit of a byte first."""
    text = "".join(format(n & (1 << bits) - 1, f"0{bits}b") for n in numbers)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))


def by_hand(files):
    def put(name, kind, bits, code, shape, data, expected, real=None, **more):
        name = f"by_hand/{name}.dat"
        files.write(name, header(bits, code, shape, len(data), **more) + data)
        files.expect(name, kind, shape, expected, real)

    # 1.0 to 1.0.2
    codes = np.array([[0, 1, 127], [128, 254, 255]], "u1")
    limits = struct.pack("<2f", -1.5, 2.25)
    put("linear_0x10_8", "qu8", 8, 0x10, (2, 3), codes.tobytes(), codes, min_max(codes, -1.5, 2.25, 8),
        parameters=limits)
    nibbles = np.array([0, 1, 7, 8, 15], "u1")
    put("linear_0x10_4", "qu4", 4, 0x10, (5,), packed(nibbles.tolist(), 4), nibbles,
        min_max(nibbles, -1.5, 2.25, 4), parameters=limits)
    words = np.array([0, 1, 65535], "<u2")
    put("linear_0x10_16", "qu16", 16, 0x10, (3,), words.tobytes(), words, min_max(words, -1.5, 2.25, 16),
        parameters=limits)
    put("logarithmic_0x11_8", "qu8", 8, 0x11, (2, 3), codes.tobytes(), codes, logarithmic(codes, 3, 8),
        parameters=struct.pack("<2f", 0, 3))
    signs = np.where(codes & 128, -1.0, 1.0)
    put("logarithmic_0x11_8_signed", "qu8", 8, 0x11, (2, 3), codes.tobytes(), codes,
        signs * logarithmic(codes & 127, 3, 7), parameters=struct.pack("<2f", -3, 3))
    for name in ("i8", "i16", "i32", "i64"):
        data = values(name, (4,))
        put(f"signed_flag_{name}", name, dtype(name).itemsize * 8, 1, (4,), data.tobytes(), data,
            parameters=struct.pack("<I", 1))
    # Deprecated since 1.0.3: limits with the codes of today
    put("limits_code_2", "qu8", 8, 2, (2, 3), codes.tobytes(), codes, min_max(codes, -1.5, 2.25, 8),
        parameters=limits)
    # The text of 1.0.3, taken by its letters
    data = values("i16", (4,))
    put("signed_0x100", "i16", 16, 0x100, (4,), data.tobytes(), data)
    flags = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1, 1], "?")
    put("bool_0x101_1", "bool", 1, 0x101, (10,), np.packbits(flags).tobytes(), flags)
    put("bool_0x101_8", "bool", 8, 0x101, (10,), flags.tobytes(), flags)
    # Widths that the package lacks
    put("bool_8", "bool", 8, 5, (2, 5), bytes([1, 0, 255, 2, 0, 1, 0, 0, 128, 1]), flags.reshape(2, 5))
    for bits in (2, 3, 4, 12, 24):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        kind = "1" if bits < 8 else "2" if bits <= 16 else "4"
        for sign, code in (("u", 1), ("i", 4), ("qu", 2), ("qi", 3)):
            numbers = [0, 1, high, low, -1] if sign.endswith("i") else [0, 1, high, high + 1, (1 << bits) - 1]
            # Whole bytes are little-endian.
            content = (b"".join((n & (1 << bits) - 1).to_bytes(bits // 8, "little") for n in numbers)
                       if bits % 8 == 0 else packed(numbers, bits))
            put(f"{sign}{bits}", f"{sign}{bits}", bits, code, (5,), content, np.array(numbers, f"<{sign[-1]}{kind}"))
    # Python wrote four bytes too many behind the header, until 2018-10-19
    data = values("f32", (2, 3))
    name = "by_hand/four_bytes_more.dat"
    files.write(name, header(32, 0, (2, 3), data.nbytes) + b"\0\0\0\0" + data.tobytes())
    files.expect(name, "f32", (2, 3), data)
    # Of a vendor; the second as tract writes blocks (of 32 numbers in 18 bytes)
    put("vendor", "opaque", 8, 7, (3,), b"\1\2\3", np.frombuffer(b"\1\2\3", "u1"), vendor=0x1234)
    block = bytes(range(18))
    put("vendor_blocks", "opaque", 0xFFFFFFFF, 0x3040, (32,), block, np.frombuffer(block, "u1"), vendor=0x5452)

    # Provisional: types 1 (quantized, with a text), 2 (signed) and 3 (unsigned)
    def provisional(name, kind, code, bits, data, text=b"", real=None):
        size = 16 + 4 * data.ndim + len(text)
        head = struct.pack(f"<4B2I{data.ndim}I2BH", 0x4E, 0xEF, 1, 0, size, data.ndim, *data.shape, code, bits,
                           len(text))
        name = f"by_hand/provisional_{name}.dat"
        files.write(name, head + text + (packed(data.ravel().tolist(), bits) if bits < 8 else data.tobytes()))
        files.expect(name, kind, data.shape, data, real)

    provisional("quantized_8", "qu8", 1, 8, codes, b"quantize_linear(min = -1.5, max = 2.25, bits = 8)",
                min_max(codes, -1.5, 2.25, 8))
    provisional("quantized_4", "qu4", 1, 4, nibbles, b"quantize_linear(min = -1.5, max = 2.25, bits = 4)",
                min_max(nibbles, -1.5, 2.25, 4))
    provisional("signed_16", "i16", 2, 16, values("i16", (2, 3)))
    provisional("unsigned_32", "u32", 3, 32, values("u32", (4,)))
    by_hand_models(files)


# Everything that a graph may look like and the package's own printer never writes; it reads it.
TEXT = """# A model by hand.
version 1.0;  # of NNEF
extension KHR_enable_fragment_definitions, KHR_enable_operator_expressions;

fragment twice( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = x + x;  # variable(shape = [1], label = 'no/such')
}

graph by_hand(input, other)->(sum,
  _2)
{
  input=external(shape=[2,3]);
  other = external<integer>(shape = [1]);  w = variable ( label = "a/plain.w" , shape = [ 2 , 3 ] ) ;
  v = variable<scalar>(shape = [3],
      label = 'it-is/b_2'); # "not: a label"
  u = add(input, variable(shape = [2, 1], label = "nested"));
  n = variable<integer>(shape = [], label = 'n');
  l = variable<logical>(shape = [9], label = 'l');
  [m, k] = [variable(shape = [2, 1], label = 'k'), variable<scalar>(shape = [3], label = 'it-is/b_2')];
  sum = twice(w) + u;
  _2 = copy(v);
}
"""
QUANT = """# By hand.

'w' : linear_quantize( bits=8 , max = 1.0 ,
   min = -1e0 );  # the last one of w
"sum": linear_quantize(min = 0.0, max = 1.0, bits = 8);
"a/plain.w": linear_quantize(min = 5.0, max = 6.0, bits = 8);
"""


def by_hand_models(files):
    def variable(model_name, label, kind, data, real=None):
        file = f"{model_name}/{label.lstrip('/')}.dat"
        files.write(file, header(dtype(kind.removeprefix("q")).itemsize * 8 if kind != "bool" else 1,
                                 {"f": 0, "u": 1, "q": 2, "i": 4, "b": 5}[kind[0]], data.shape,
                                 len(np.packbits(data).tobytes() if kind == "bool" else data.tobytes()))
                    + (np.packbits(data).tobytes() if kind == "bool" else data.tobytes()))
        files.expect(f"{model_name}:{label}", kind, data.shape, data, real)

    name = "by_hand/text.nnef"
    files.write(f"{name}/graph.nnef", TEXT.replace("\n", "\r\n").encode())
    files.write(f"{name}/graph.quant", QUANT.replace("\n", "\r\n").encode())
    q = np.array([[0, 1, 127], [128, 254, 255]], "u1")
    variable(name, "a/plain.w", "qu8", q, min_max(q, -1, 1, 8))
    variable(name, "it-is/b_2", "f32", stored("f32", (3,)))
    variable(name, "nested", "f64", stored("f64", (2, 1)))
    variable(name, "k", "f16", stored("f16", (2, 1)))
    variable(name, "n", "i32", np.asarray(values("i32", ())))
    variable(name, "l", "bool", values("bool", (9,)))
    # Of no variable: another version of data, a vendor's file.
    files.write(f"{name}/nested.dat.float16", header(16, 0, (2, 1), 4) + b"\0\x3c\0\xbc")
    files.write(f"{name}/vendor/notes.bin", b"not of NNEF\n")

    name = "by_hand/slash.nnef"  # the package takes the slash off
    files.write(f"{name}/graph.nnef", b"version 1.0;\ngraph G(x) -> (w)\n{\n\tx = external(shape = [1]);\n"
                                      b"\tw = variable(shape = [2], label = '/conv/w');\n}\n")
    variable(name, "/conv/w", "f32", stored("f32", (2,)))


def self_check(files):
    """The package reads back what it can of these."""
    for line in files.lines:
        name, kind, shape, content, *_ = line.rstrip("\n").split("\t")
        data = None
        if ":" not in name:
            if name.startswith(("by_hand/", "provisional/")):
                continue
            with open(files.folder / name, "rb") as file:
                data, quantized = nnef.read_tensor(file, return_quantization=True)
            assert quantized == kind.startswith("q"), name
        else:
            path, label = name.split(":")
            if not path.endswith(".nnef"):
                continue
            graph = nnef.load_graph(str(files.folder / path))
            for operation in graph.operations:
                if operation.name == "variable" and operation.attribs["label"] == label:
                    data = graph.tensors[operation.outputs["output"]].data
        extents = [] if shape == "-" else [int(n) for n in shape.split("x")]
        assert list(data.shape) == extents, name
        assert np.asarray(data).tobytes().hex() == content.replace("-", ""), name


def make(folder):
    files = Files(folder)
    tensors(files)
    models(files)
    by_hand(files)
    self_check(files)
    files.close()


def contents(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / "README.md":
            data = path.read_bytes()
            # What is packed, not how well.
            found[path.relative_to(folder)] = gzip.decompress(data) if path.suffix == ".tgz" else data
    return found


def main():
    arguments = sys.argv[1:]
    folder = pathlib.Path(__file__).resolve().parent.parent / "data"
    if arguments and arguments[-1] != "--check":
        folder = pathlib.Path(arguments[-1])
    if arguments[:1] != ["--check"]:
        folder.mkdir(parents=True, exist_ok=True)
        return make(folder)
    with tempfile.TemporaryDirectory() as fresh:
        make(pathlib.Path(fresh))
        here, there = contents(folder), contents(pathlib.Path(fresh))
    different = [str(path) for path in sorted(here.keys() | there.keys()) if here.get(path) != there.get(path)]
    if different or not here:
        sys.exit("not what would be written: " + ", ".join(different))
    version = importlib.metadata.version("nnef")
    print(f"nnef {version}, numpy {np.__version__}: {len(here)} files as they would be written")
    return None


if __name__ == "__main__":
    main()
