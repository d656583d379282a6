#!/usr/bin/env python3
"""Parameter files of PaddlePaddle: written by it, and given back to it.

    pip install -r tests/formats/paddle/interop/requirements.txt
    python3 tests/formats/paddle/interop/paddle_files.py make FOLDER         what tests/formats/paddle/data/ holds
    python3 tests/formats/paddle/interop/paddle_files.py check THEIRS OURS   what stele wrote of these, by Paddle

`check` loads every file of OURS with Paddle's own loaders, compares what they
give with the texts in THEIRS, bit for bit, and runs Paddle's predictor with the
programs of THEIRS on both: the outputs must have the same bits.

README.md in tests/formats/paddle/data says what is in each file. X.txt beside X lists
its records in the order of the file, one a line, blanks between the tokens:

    NAME DTYPE SHAPE HEX [LOD...]

NAME has bytes of UTF-8 that are no printing ASCII, and %, as %XX. DTYPE is
stele's name of it. SHAPE is 2x3, or scalar. HEX is the data, little-endian, or
- for none. LOD is a level of offsets: 0,2,5. What stands there comes from the
arrays that were given to Paddle, not out of its files.

Element k of tensor NAME, counted in C order, is of n = k + crc32(NAME) % 97:

    bool            n % 2
    u8              n % 7
    i8 i16 i32 i64  n % 7 - 2
    f16 ... f64     (n * 7 % 11 - 5) / 8, which every one of them holds
    c64 c128        real part as f32, imaginary part that of k + 1
    f8_*            raw: byte n % 256
"""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import zlib

OLD = len(sys.argv) > 1 and sys.argv[1].endswith("-old")
os.environ["FLAGS_enable_pir_api"] = "0" if OLD else "1"
os.environ["GLOG_minloglevel"] = "2"

import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.nn.functional as F  # noqa: E402
from paddle.base import core, framework, unique_name  # noqa: E402

DTYPES = {  # stele's name -> Paddle's, and what NumPy holds it in
    "bool": ("bool", "?"), "u8": ("uint8", "u1"), "i8": ("int8", "i1"),
    "i16": ("int16", "<i2"), "i32": ("int32", "<i4"), "i64": ("int64", "<i8"),
    "f16": ("float16", "<f2"), "bf16": ("bfloat16", "<u2"),
    "f32": ("float32", "<f4"), "f64": ("float64", "<f8"),
    "c64": ("complex64", "<c8"), "c128": ("complex128", "<c16"),
    "f8_e4m3fn": ("float8_e4m3fn", "u1"), "f8_e5m2": ("float8_e5m2", "u1"),
}
NUMPY = {paddle_name: (name, numpy) for name, (paddle_name, numpy) in DTYPES.items()}
CPU = core.CPUPlace()


def values(name, dtype, shape):
    """The stored elements, by the rule above."""
    k = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64) + zlib.crc32(name.encode()) % 97
    real = lambda n: (n * 7 % 11 - 5) / 8  # noqa: E731
    if dtype == "bool":
        data = k % 2
    elif dtype.startswith("f8"):
        data = k % 256
    elif dtype == "u8":
        data = k % 7
    elif dtype[0] == "i":
        data = k % 7 - 2
    elif dtype[0] == "c":
        data = real(k) + 1j * real(k + 1)
    elif dtype == "bf16":  # the upper half of an f32
        data = real(k).astype("<f4").view("<u4") >> 16
    else:
        data = real(k)
    return data.astype(DTYPES[dtype][1]).reshape(shape)


def fill(tensor, dtype, array):
    """Bits of the array into a DenseTensor: NumPy has no f8, so these go in by a view of u8."""
    if dtype.startswith("f8"):
        with paddle.base.dygraph.guard(CPU):
            bits = paddle.to_tensor(array.reshape(-1)).view(DTYPES[dtype][0]).reshape(array.shape)
            tensor._share_data_with(bits.value().get_tensor())
    else:
        tensor.set(array, CPU)


def coded(name):
    return "".join(chr(b) if 0x21 <= b <= 0x7e and b != 0x25 else f"%{b:02X}" for b in name.encode()) or "%"


def line(name, dtype, array, lod=()):
    shape = "x".join(map(str, array.shape)) or "scalar"
    levels = [",".join(map(str, level)) for level in lod]
    return " ".join([coded(name), dtype, shape, array.tobytes().hex() or "-", *levels]) + "\n"


def expect(path, records):
    """records: (name, dtype, array) or (name, dtype, array, lod), in the order of the file"""
    path.write_text("".join(line(*r) for r in records))


class Model:
    """The variables of a program: declared in it, and set in the scope that it is saved from."""

    def __init__(self):
        self.main, self.startup = paddle.static.Program(), paddle.static.Program()
        self.records = {}
        self.scope = core.Scope()

    def parameter(self, name, shape, dtype="f32"):
        self.set(name, dtype, shape)
        return paddle.static.create_parameter(
            shape, DTYPES[dtype][0], name=name, default_initializer=paddle.nn.initializer.Constant(0))

    def set(self, name, dtype, shape):
        array = values(name, dtype, shape)
        self.records[name] = (name, dtype, array)
        fill(self.scope.var(name).get_tensor(), dtype, array)

    def building(self):
        return paddle.static.program_guard(self.main, self.startup)

    def sorted(self):
        return [self.records[name] for name in sorted(self.records)]

    def save(self, prefix, inputs, outputs, **options):
        executor = paddle.static.Executor(CPU)
        with paddle.static.scope_guard(self.scope):
            paddle.static.save_inference_model(str(prefix), inputs, outputs, executor, program=self.main, **options)
        expect(prefix.with_name(prefix.name + ".txt"), self.sorted())

    def save_vars(self, folder, names, filename=None):
        """One file a variable, or all in one. In the old form a program of save operators does it."""
        with paddle.static.scope_guard(self.scope):
            if OLD:
                variables = [self.main.global_block().var(n) for n in names]
                paddle.static.save_vars(paddle.static.Executor(CPU), str(folder), self.main, variables,
                                        filename=filename)
            else:
                p, o = paddle.static.pir_io.get_pir_parameters(self.main)
                paddle.static.save_vars(None, str(folder), self.main, [v for v in p + o if v.name in names],
                                        filename=filename)


def lenet(parameter):
    """conv, conv, linear; on 8 x 8 images."""
    x = paddle.static.data("image", [None, 1, 8, 8], "float32")
    y = F.relu(F.conv2d(x, parameter("conv1.weight", [3, 1, 3, 3]), parameter("conv1.bias", [3]), padding=1))
    y = F.max_pool2d(y, 2)
    y = F.relu(F.conv2d(y, parameter("conv2.weight", [4, 3, 3, 3]), parameter("conv2.bias", [4])))
    y = F.linear(paddle.flatten(y, 1), parameter("fc.weight", [16, 5]), parameter("fc.bias", [5]))
    return x, y


class LeNet(paddle.nn.Layer):
    """The same as a Layer: Paddle names its parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = paddle.nn.Conv2D(1, 3, 3, padding=1)
        self.conv2 = paddle.nn.Conv2D(3, 4, 3)
        self.norm = paddle.nn.BatchNorm2D(4)
        self.fc = paddle.nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.norm(self.conv2(x)))
        return self.fc(paddle.flatten(x, 1))


def ernie(parameter, dtype):
    """Embeddings and a layer of attention, named as ERNIE's are. Of other dtypes than f32 only the embeddings and a
    linear layer, computed in f32; i8 weights have a scale beside them."""
    width, heads = 8, 2
    tokens = paddle.static.data("src_ids", [None, 6], "int64")

    def weight(name, shape, dtype=dtype):
        value = parameter(name, shape, dtype)
        if dtype != "f32":
            value = value.cast("float32")
        return value * parameter(name + "@scale", [], "f32") if dtype == "i8" else value

    def vector(name, length):
        return weight(name, [length], "f32" if dtype == "i8" else dtype)

    def linear(x, name, inputs, outputs):
        return F.linear(x, weight(name + ".w_0", [inputs, outputs]), vector(name + ".b_0", outputs))

    def norm(x, name):
        return F.layer_norm(x, width, vector(name + "_scale", width), vector(name + "_bias", width))

    position = F.embedding(paddle.arange(6), weight("pos_embedding", [12, width]))
    x = norm(F.embedding(tokens, weight("word_embedding", [16, width])) + position, "pre_encoder_layer_norm")
    if dtype != "f32":
        return tokens, linear(x, "pooled_fc", width, 12)
    split = lambda t: t.reshape([-1, 6, heads, width // heads]).transpose([0, 2, 1, 3])  # noqa: E731
    q, k, v = (split(linear(x, f"encoder_layer_0_multi_head_att_{n}_fc", width, width))
               for n in ("query", "key", "value"))
    attention = F.softmax(paddle.matmul(q, k, transpose_y=True))
    mixed = paddle.matmul(attention, v).transpose([0, 2, 1, 3]).reshape([-1, 6, width])
    x = norm(x + linear(mixed, "encoder_layer_0_multi_head_att_output_fc", width, width),
             "encoder_layer_0_post_att_layer_norm")
    y = linear(F.gelu(linear(x, "encoder_layer_0_ffn_fc_0", width, 12)), "encoder_layer_0_ffn_fc_1", 12, width)
    return tokens, norm(x + y, "encoder_layer_0_post_ffn_layer_norm")


class Buffers(paddle.nn.Layer):
    """A buffer that is saved, and one that is not, by its name, although Paddle 3 has it among the parameters of the
    program: as LSTM has its dropout_state__non_persistable."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", paddle.zeros([3]))
        dropped = paddle.zeros([2, 3])
        dropped.name = "dropped__non_persistable"
        self.register_buffer("dropped", dropped, persistable=False)
        self.weight = self.create_parameter([2, 3])

    def forward(self, x):
        return x * self.weight + self.dropped + self.kept


NAMES = ["\U0001f600", "\uff5e", "\u65e5\u672c\u8a9e", "caf\u00e9", "cafe\u0301", "with space", "a.b", "a/b", "a/c/d",
         "a", "Z", "10", "9", "%", "x@GRAD"]
NAMES.remove("a")  # as a file it would be where the folder of a/b is


def make_jit(folder, prefix, layer, shape):
    paddle.disable_static()
    records = {}
    with unique_name.guard():
        model = layer()
        for tensor in model.state_dict().values():
            dtype = NUMPY[str(tensor.dtype).rpartition(".")[2]][0]
            array = values(tensor.name, dtype, tensor.shape)
            if tensor.name.endswith(".w_2"):  # a variance
                array = np.abs(array) + np.float32(0.5)
            tensor.set_value(array)
            records[tensor.name] = (tensor.name, dtype, array)
        model.eval()
        paddle.jit.save(model, str(folder / prefix), [paddle.static.InputSpec(shape, "float32", "image")])
    paddle.enable_static()
    if OLD:
        (folder / f"{prefix}.pdiparams.info").unlink()  # a pickle that says which are trainable
    expect(folder / f"{prefix}.txt", [records[n] for n in sorted(records)])


def adam(model):
    """A program for training: beside the parameter what Adam keeps, which is persistable and no parameter."""
    with model.building(), unique_name.guard():
        x = paddle.static.data("x", [None, 4], "float32")
        y = F.linear(x, model.parameter("weight", [4, 3]))
        paddle.optimizer.Adam(0.125).minimize(y.mean())
    if OLD:
        found = [v for v in model.main.list_vars() if v.persistable]
    else:
        parameters, others = paddle.static.pir_io.get_pir_parameters(model.main)
        found = parameters + others
    for v in found:
        model.set(v.name, "f32", list(v.shape))


def make_new(folder):
    """What Paddle 3 writes: a program in JSON ("PIR")."""
    make_jit(folder, "lenet", LeNet, [None, 1, 8, 8])
    make_jit(folder, "buffers", Buffers, [2, 3])

    model = Model()
    with model.building():
        x, y = lenet(model.parameter)
    (folder / "lenet_separate").mkdir()
    model.save(folder / "lenet_separate" / "unused", [x], [y], separate_parameters=True)
    (folder / "lenet_separate" / "unused.txt").rename(folder / "lenet_separate.txt")

    for dtype in ("f32", "f16", "bf16", "i8"):
        model = Model()
        with model.building():
            x, y = ernie(model.parameter, dtype)
        model.save(folder / f"ernie_{dtype}", [x], [y], trainable=dtype == "f32")

    model = Model()
    adam(model)
    core.serialize_pir_program(model.main, str(folder / "adam.json"))
    model.save_vars(folder, set(model.records), "adam.pdiparams")
    expect(folder / "adam.txt", model.sorted())

    # Paddle leaves parameters of inner blocks out of the parameters, although the program has them.
    model = Model()
    with model.building():
        x = paddle.static.data("x", [2, 3], "float32")
        outer, scale = model.parameter("outer", [3, 2]), model.parameter("scale", [])
        y = paddle.static.nn.cond(paddle.mean(x) > 0, lambda: paddle.matmul(x, outer) * scale,
                                  lambda: paddle.matmul(x, model.parameter("inner", [3, 2])))
    del model.records["inner"]
    model.save(folder / "blocks", [x], [y])

    # The same text with blanks and newlines.
    model = Model()
    with model.building():
        x = paddle.static.data("x", [2, 3], "float32")
        y = x + model.parameter("w", [2, 3])
    model.save(folder / "readable", [x], [y], readable=True, trainable=False)

    # No program, no names: what the functions below Paddle's Python save.
    def combined(name, records):
        tensors = []
        for _, dtype, array, *lod in records:
            tensors.append(core.DenseTensor())
            fill(tensors[-1], dtype, array)
            if lod:
                tensors[-1].set_lod(lod[0])
        core.save_combine_func(tensors, [r[0] for r in records], str(folder / f"{name}.pdiparams"), True, False, False)
        expect(folder / f"{name}.txt", records)

    def record(name, dtype, shape, *lod):
        return (name, dtype, values(name, dtype, shape), *lod)

    combined("dtypes", [record(d, d, [11, 12] if d.startswith("f8") else [3, 5]) for d in sorted(DTYPES)])
    combined("shapes", [record("x".join(map(str, s)) or "scalar", "f32", s)
                        for s in ([], [0], [1], [2, 0, 3], [1, 1, 2, 1, 1, 1, 2, 1, 2], [130, 1])])
    combined("lod", [record("one", "f32", [5, 2], [[0, 2, 5]]), record("plain", "i64", [3]),
                     record("two", "f32", [6, 1], [[0, 2, 3], [0, 1, 4, 6]])])
    combined("one", [record("w", "f32", [2, 3])])

    # One tensor: paddle.save in the binary form.
    for name, dtype, shape, *lod in (("f32", "f32", [3, 4]), ("bf16", "bf16", [5]), ("scalar", "f64", []),
                                     ("f8", "f8_e4m3fn", [4, 4]), ("lod", "i64", [5, 1], [[0, 2, 5]])):
        tensor, array = core.DenseTensor(), values(name, dtype, shape)
        fill(tensor, dtype, array)
        if lod:
            tensor.set_lod(lod[0])
        paddle.save(tensor, str(folder / f"single_{name}.pdtensor"), use_binary_format=True)
        expect(folder / f"single_{name}.txt", [(name, dtype, array, *lod)])

    # Rows of a table, another kind of record: refused.
    rows = core.SelectedRows([1, 4], 6)
    rows.get_tensor().set(values("rows", "f32", [2, 3]), CPU)
    paddle.save(rows, str(folder / "selected_rows.bin"), use_binary_format=True)


def make_old(folder):
    """What Paddle wrote before, and still does when asked: a ProgramDesc."""
    make_jit(folder, "lenet_old", LeNet, [None, 1, 8, 8])
    make_jit(folder, "buffers_old", Buffers, [2, 3])

    model = Model()
    with model.building():
        x, y = lenet(model.parameter)
    (folder / "lenet_folder").mkdir()
    model.save(folder / "lenet_folder" / "unused", [x], [y], separate_parameters=True)
    (folder / "lenet_folder" / "unused.txt").rename(folder / "lenet_folder.txt")
    (folder / "lenet_params").mkdir()
    program = paddle.static.normalize_program(model.main, [x], [y])
    (folder / "lenet_params" / "__model__").write_bytes(paddle.static.serialize_program([x], [y], program=program))
    model.save_vars(folder / "lenet_params", list(model.records), "__params__")
    expect(folder / "lenet_params.txt", model.sorted())

    model = Model()
    adam(model)
    (folder / "adam_old.pdmodel").write_bytes(model.main.desc.serialize_to_string())
    model.save_vars(folder, sorted(model.records), "adam_old.pdiparams")
    expect(folder / "adam_old.txt", model.sorted())

    def declared(variables):
        model = Model()
        for name, dtype, shape, stored in variables:
            model.main.global_block().create_var(name=name, dtype=DTYPES[dtype][0], shape=shape, persistable=True)
            model.set(name, dtype, stored)
        return model

    every = [(d, d, [-1, 3] if d == "f8_e5m2" else [2, 3], [2, 3]) for d in DTYPES]
    model = declared(every)
    (folder / "dtypes_old.pdmodel").write_bytes(model.main.desc.serialize_to_string())
    model.save_vars(folder, list(model.records), "dtypes_old.pdiparams")
    expect(folder / "dtypes_old.txt", model.sorted())

    model = declared([(name, "i16", [k + 1], [k + 1]) for k, name in enumerate(NAMES)])
    (folder / "names.pdmodel").write_bytes(model.main.desc.serialize_to_string())
    model.save_vars(folder, list(model.records), "names.pdiparams")
    expect(folder / "names.txt", model.sorted())

    nested = declared([("top", "f32", [2], [2]), ("layer/0/weight", "f32", [2, 3], [2, 3]),
                       ("layer/0/bias", "i64", [-1], [3])])
    for name, model in (("names_folder", model), ("nested_folder", nested)):
        (folder / name).mkdir()
        (folder / name / "__model__").write_bytes(model.main.desc.serialize_to_string())
        model.save_vars(folder / name, list(model.records))
        expect(folder / f"{name}.txt", model.sorted())


def make(folder):
    paddle.enable_static()
    # Operators of old programs keep the stack of their making, with the paths of the machine.
    framework.traceback.extract_stack = lambda *_: []
    if OLD:
        make_old(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    make_new(folder)
    subprocess.run([sys.executable, __file__, "make-old", str(folder)], check=True)
    print(f"Paddle {paddle.__version__}: {sum(f.is_file() for f in folder.rglob('*'))} files, "
          f"{sum(f.stat().st_size for f in folder.rglob('*') if f.is_file())} bytes")


class Failure(Exception):
    pass


def records_of(text):
    """The lines of X.txt: name -> the line, but the name; in the order of the file."""
    lines = (entry.split(" ", 1) for entry in text.read_text().splitlines())
    return {bytes_of(name).decode(): rest for name, rest in lines}


def bytes_of(name):
    parts = name.split("%")
    return parts[0].encode() + b"".join(bytes.fromhex(p[:2]) + p[2:].encode() for p in parts[1:])


def described(tensor):
    """A DenseTensor as a line of X.txt without the name, from its memory."""
    name, numpy = NUMPY[str(tensor._dtype()).rpartition(".")[2]]
    shape = tensor.shape()
    count = int(np.prod(shape, dtype=np.int64))
    bits = ctypes.string_at(tensor._ptr(), count * np.dtype(numpy).itemsize) if count else b""
    return line("", name, np.frombuffer(bits, numpy).reshape(shape), tensor.lod()).split(" ", 1)[1].rstrip("\n")


def same(what, tensor, expected):
    found = described(tensor)
    if found != expected:
        raise Failure(f"{what}: Paddle has {found[:200]}, expected {expected[:200]}")


def empty():
    tensor = core.DenseTensor()
    tensor.set(np.zeros(1, "f4"), CPU)  # the loaders want one that has a place
    return tensor


def check_combined(file, records):
    tensors = [empty() for _ in records]
    core.load_combine_func(str(file), list(records), tensors, False, CPU)
    for tensor, (name, expected) in zip(tensors, records.items()):
        same(f"{file}: {name}", tensor, expected)


def check_folder(folder, records):
    for name, expected in records.items():
        tensor = empty()
        core.load_func(str(folder / name), -1, [], False, tensor, CPU)
        same(f"{folder}: {name}", tensor, expected)
    found = sum(f.is_file() and not f.name.startswith("__model__") for f in folder.rglob("*"))
    if found != len(records):
        raise Failure(f"{folder}: {found} files, expected {len(records)}")


def check_single(file, records):
    (expected,) = records.values()
    same(str(file), paddle.load(str(file)), expected)


def run(*files):
    """What Paddle's predictor computes."""
    config = paddle.inference.Config(*map(str, files))
    config.disable_gpu()
    config.disable_glog_info()
    predictor = paddle.inference.create_predictor(config)
    for name in predictor.get_input_names():
        data = np.arange(64, dtype="f4").reshape(1, 1, 8, 8) / 8 if name == "image" else np.arange(6).reshape(1, 6)
        predictor.get_input_handle(name).copy_from_cpu(data)
    predictor.run()
    return [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]


def check_outputs(what, one, other):
    if len(one) != len(other) or not one:
        raise Failure(f"{what}: {len(one)} outputs and {len(other)}")
    for a, b in zip(one, other):
        if a.shape != b.shape or a.tobytes() != b.tobytes():
            raise Failure(f"{what}: computes {b}, expected {a}")


def check_predictors(theirs, ours):
    for program in ("lenet.json", "lenet_old.pdmodel", "ernie_f32.json"):  # it crashes on those that are not trainable
        name = program.partition(".")[0] + ".pdiparams"
        check_outputs(name, run(theirs / program, theirs / name), run(theirs / program, ours / name))
        yield name
    params = theirs / "lenet_params"
    expected = run(params / "__model__", params / "__params__")
    for file in ("lenet_params/__params__", "from_folder.pdiparams", "module.pdiparams", "layout.pdiparams"):
        check_outputs(file, expected, run(params / "__model__", ours / file))
        yield file
    for folder, program in (("lenet_folder", "lenet_folder/__model__"), ("lenet_separate", "lenet_separate/__model__.json"),
                            ("from_combined", "lenet_folder/__model__")):
        shutil.copy(theirs / program, ours / folder)
        check_outputs(folder, expected, run(ours / folder))
        yield folder


def check_programs(theirs, ours):
    """The loaders of Paddle's old form, which take a ProgramDesc beside the file."""
    executor = paddle.static.Executor(CPU)
    for text in sorted(theirs.glob("*.txt")):
        file = theirs / f"{text.stem}.pdmodel"
        if not file.exists():
            continue
        scope = core.Scope()
        with paddle.static.scope_guard(scope):
            program = paddle.static.deserialize_program(file.read_bytes())
            bytes_ = (ours / f"{text.stem}.pdiparams").read_bytes()
            paddle.static.deserialize_persistables(program, bytes_, executor)
            for name, expected in records_of(text).items():
                same(f"{text.stem}: {name}", scope.find_var(name).get_tensor(), expected)
        yield text.stem


def check(theirs, ours):
    paddle.enable_static()
    if OLD:
        done = list(check_programs(theirs, ours))
        print(f"deserialize_persistables: {' '.join(done)}")
        return bool(done)
    for text in sorted(theirs.glob("*.txt")):
        name, records = text.stem, records_of(text)
        if (theirs / name).is_dir() and name != "lenet_params":
            check_folder(ours / name, records)
        elif name.startswith("single_"):
            check_single(ours / f"{name}.pdtensor", records)
        else:
            check_combined(ours / ("lenet_params/__params__" if name == "lenet_params" else f"{name}.pdiparams"), records)
        print(f"ok    {name}: {len(records)} tensors")
    lenet_records = records_of(theirs / "lenet_params.txt")
    for name in ("from_folder", "module", "layout"):
        check_combined(ours / f"{name}.pdiparams", lenet_records)
    check_folder(ours / "from_combined", lenet_records)
    print(f"predictor: {' '.join(check_predictors(theirs, ours))}", flush=True)
    subprocess.run([sys.executable, __file__, "check-old", str(theirs), str(ours)], check=True)
    return True


def main():
    arguments = [pathlib.Path(a) for a in sys.argv[2:]]
    if len(arguments) == 1 and sys.argv[1] in ("make", "make-old"):
        make(*arguments)
        return 0
    if len(arguments) == 2 and sys.argv[1] in ("check", "check-old"):
        return 0 if check(*arguments) else 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
