"""Products of Paddle's files of records: combined files, folders and single tensors, by PaddlePaddle."""

import math
import os
import sys
from pathlib import Path

os.environ |= {"GLOG_minloglevel": "2", "FLAGS_enable_pir_api": "1"}
import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle.base import core, framework  # noqa: E402
from paddle.pir_utils import OldIrGuard  # noqa: E402

HERE = Path(__file__).parent
sys.path += [str(HERE / "interop"), str(HERE.parents[1] / "products")]
import comparison  # noqa: E402
from paddle_files import CPU, DTYPES, described, empty, fill  # noqa: E402

paddle.enable_static()
framework.traceback.extract_stack = lambda *_: []  # operators of old programs keep the stack of their making
PACKAGES = ["paddlepaddle", "numpy"]
PAGES = ["formats/paddle"]
COMPARED = ["annotations"]
FILES = 24
DIMENSIONS = {
    "file": ["combined", "folder", "combined without program", "tensor"],
    "program": ["ProgramDesc", "PIR", "none"],
    "dtype": ["f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "bool", "c64", "c128", "f8_e4m3fn", "f8_e5m2"],
    "shape": [[3, 5], [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [130, 1], [1] * 9, [300, 2]],
    "LoD": ["none", "one level", "two levels", "three levels", "long"],
    "name": ["weight", "a.b", "a/b", "日本語", "😀", "a b", "%", "x@GRAD", "a\\b", "w" * 200, "10", "linear_0.w_0", " "],
    "variables": [1, 9, 101],
}
NAMES = {}  # of the variables of each file that was written, in Paddle's order


def possible(case):
    alone = case["file"] == "tensor"
    return all([
        (case["program"] == "none") <= (case["file"] != "combined"),
        (case["program"] != "none") <= (case["file"] in ("combined", "folder")),
        case["file"] != "folder" or case["name"] not in ("a\\b", " "),  # not the names of files everywhere
        not alone or case["variables"] == 1 and case["name"] == "weight",
        case["LoD"] == "none" or case["shape"] and (case["LoD"] == "one level" or case["shape"][0] > 2),
        case["LoD"] != "long" or case["shape"][:1] == [300],
        case["program"] != "PIR" or case["dtype"][:2] not in ("c6", "c1", "f8"),  # create_parameter refuses them
    ])


def hides(case):
    return case["file"] in ("combined without program", "tensor") or 0 in case["shape"]


def names_of(case):
    return [case["name"] + (str(i) if i else "") for i in range(case["variables"])]


def values(case, seed):
    """Random bits, with NaN payloads and denormals among them."""
    dtype = np.dtype(DTYPES[case["dtype"]][1])
    bits = np.random.default_rng(seed).integers(0, 256, math.prod(case["shape"]) * dtype.itemsize, np.uint8)
    return (bits & 1 if case["dtype"] == "bool" else bits).view(dtype).reshape(case["shape"])


def levels(case):
    rows = case["shape"][0] if case["shape"] else 0
    return {"none": [], "one level": [[0, rows]], "two levels": [[0, 2, 3], [0, 1, 2, rows]],
            "three levels": [[0, 1], [0, 2], [0, 1, rows]], "long": [list(range(rows + 1))]}[case["LoD"]]


def set_tensor(tensor, case, seed):
    fill(tensor, case["dtype"], values(case, seed))
    tensor.set_lod(levels(case))


def save(case, folder, filename):
    """Save the variables by Paddle, in one file or one file each; return the bytes of their program."""
    names = names_of(case)
    scope = core.Scope()
    for seed, name in enumerate(names):
        set_tensor(scope.var(name).get_tensor(), case, seed)
    main, dtype = paddle.static.Program(), DTYPES[case["dtype"]][0]
    folder.mkdir(exist_ok=True)
    with paddle.static.scope_guard(scope):
        if case["program"] == "PIR":
            with paddle.static.program_guard(main, paddle.static.Program()):
                for name in names:
                    paddle.static.create_parameter(case["shape"], dtype, name=name,
                                                   default_initializer=paddle.nn.initializer.Constant(0))
            parameters, others = paddle.static.pir_io.get_pir_parameters(main)
            paddle.static.save_vars(None, str(folder), main, parameters + others, filename=filename)
            file = folder / "program"
            core.serialize_pir_program(main, str(file))
            data = file.read_bytes()
            file.unlink()
            return data
    # What save_vars runs in this mode, without an executor.
    if filename:
        tensors = [scope.find_var(name).get_tensor() for name in sorted(names, key=str.encode)]
        core.save_combine_func(tensors, sorted(names, key=str.encode), str(folder / filename), True, False, False)
    for name in [] if filename else names:
        core.save_func(scope.find_var(name).get_tensor(), name, str(folder / name), True, False)
    with OldIrGuard():
        main = paddle.static.Program()
        for name in names:
            main.global_block().create_var(name=name, dtype=dtype, shape=case["shape"], persistable=True)
        return main.desc.serialize_to_string()


def write(case, path):
    pir = case["program"] == "PIR"
    if case["file"] == "tensor":
        path = path.with_suffix(".pdtensor")
        tensor = core.DenseTensor()
        set_tensor(tensor, case, 0)
        paddle.save(tensor, str(path), use_binary_format=True)
        return path, comparison.Expected(refused="needs_layout")
    names = NAMES[path.name] = sorted(names_of(case), key=str.encode)
    if case["file"] == "folder":
        program = save(case, path, None)
        if case["program"] != "none":
            (path / ("__model__.json" if pir else "__model__")).write_bytes(program)
    else:
        path = path.with_suffix(".pdiparams")
        program = save(case, path.parent, path.name)
        if case["file"] == "combined":
            path.with_suffix(".json" if pir else ".pdmodel").write_bytes(program)
        else:
            return path, comparison.Expected(refused="needs_layout")
    tensors, lods = load(path, names)
    notes = {name: {"paddle.lod": lod} for name, lod in lods.items() if lod}
    return path, comparison.Expected(tensors, annotations=notes)


def load(path, names):
    """Return ({name: array}, {name: LoD}), by Paddle's loaders."""
    tensors = [empty() for _ in names]
    if path.is_dir():
        for name, tensor in zip(names, tensors, strict=True):
            core.load_func(str(path / name), -1, [], False, tensor, CPU)
    else:
        core.load_combine_func(str(path), names, tensors, False, CPU)
    arrays, lods = {}, {}
    for name, tensor in zip(names, tensors, strict=True):
        text = described(tensor).split(" ")
        shape = [] if text[1] == "scalar" else [int(n) for n in text[1].split("x")]
        arrays[name] = (text[0], shape, b"" if text[2] == "-" else bytes.fromhex(text[2]))
        lods[name] = tensor.lod()
    return arrays, lods


def options(path):
    return ["--to", "paddle-folder"] if path.is_dir() else []


def read(path):
    names = NAMES[path.name.split(".")[0]]
    tensors, lods = load(path, names)
    source = path.parent.parent / path.name
    assert lods == load(source, names)[1], f"another LoD: {lods}"
    return tensors


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
