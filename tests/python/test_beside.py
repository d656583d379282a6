"""One process with other libraries that have protobuf, abseil, re2, zstd or flatbuffers of their own.

Every order of imports runs in a process of its own, with the libraries that are installed: torch in the environment of
`make python TORCH=1`; all of them in one with `pip install tensorflow-cpu onnx onnxruntime torch` and the packages of
requirements.txt.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ASAN, TEST_DATA, run_python

import stele

OTHERS = ("tensorflow", "onnx", "onnxruntime", "torch")
INSTALLED = [name for name in OTHERS if importlib.util.find_spec(name) is not None]


def orders() -> list[tuple[str, ...]]:
    """Returns orders of imports: stele first, last and between, with all other libraries and with each."""
    found = [("stele", name) for name in INSTALLED] + [(name, "stele") for name in INSTALLED]
    if len(INSTALLED) > 1:
        for others in (INSTALLED, INSTALLED[::-1]):
            found += [(*others[:at], "stele", *others[at:]) for at in range(len(others) + 1)]
    return found


PROGRAM = """
import concurrent.futures, faulthandler, functools, importlib, os, sys
faulthandler.enable()
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
order, data, work = sys.argv[1].split(), sys.argv[2], sys.argv[3]
for name in order:
    importlib.import_module(name)
import numpy as np
import stele
os.chdir(work)
has = {name: sys.modules.get(name) for name in ("tensorflow", "onnx", "onnxruntime", "torch")}
tensorflow, onnx, onnxruntime, torch = has.values()


def raises(kinds, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kinds as error:
        return error
    raise AssertionError(f"no error: {function} {arguments}")


def onnx_model():
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [4, 2])],
        [helper.make_tensor_value_info("y", kind, [4, 3])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def use_others():
    '''Each other library works, and its exceptions arrive.'''
    if torch:
        assert (torch.ones(2, 3) @ torch.ones(3, 2)).sum() == 12
        raises(RuntimeError, lambda: torch.ones(2, 3) @ torch.ones(2, 3))
        torch.save({"w": torch.arange(6.0).reshape(2, 3)}, "a.pt")
    if tensorflow:
        assert float(tensorflow.reduce_sum(tensorflow.matmul(tensorflow.ones((2, 3)), tensorflow.ones((3, 2))))) == 12
        wide = tensorflow.ones((2, 3))
        raises(tensorflow.errors.InvalidArgumentError, tensorflow.matmul, wide, wide)
        raises(tensorflow.errors.NotFoundError, tensorflow.train.load_checkpoint, "none")
        assert bool(tensorflow.strings.regex_full_match("abc", "a.c"))  # re2
        graph = tensorflow.Graph()
        with graph.as_default():
            x = tensorflow.compat.v1.placeholder(tensorflow.float32, (4, 2), name="x")
            w = tensorflow.constant(np.arange(6, dtype=np.float32).reshape(2, 3), name="w")
            tensorflow.linalg.matmul(x, w, name="y")
        with open("a.pb", "wb") as file:
            file.write(graph.as_graph_def().SerializeToString())
    if onnx:
        model = onnx_model()
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, "a.onnx")
        model.graph.node[0].op_type = "None"
        raises(onnx.checker.ValidationError, onnx.checker.check_model, model)
    if onnxruntime:
        raises(Exception, onnxruntime.InferenceSession, b"no model", providers=["CPUExecutionProvider"])
        if onnx:
            run(onnx_model().SerializeToString())


def run(model):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.ones((4, 2), np.float32)
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    assert (y == x @ np.arange(6, dtype=np.float32).reshape(2, 3)).all(), y


def use_stele(folder):
    os.mkdir(folder)
    into = functools.partial(os.path.join, folder)
    opened = failed = 0
    for format in sorted(os.listdir(data)):
        below = os.path.join(data, format, "data")
        if not os.path.isdir(below):
            continue
        for name in sorted(os.listdir(below)):
            path = os.path.join(below, name)
            if os.path.isdir(path) or os.path.getsize(path) > 1 << 18:
                continue
            try:
                with stele.open(path) as file:
                    file.numpy(), file.tree, file.checkpoint
                    opened += 1
                    if opened % 8 == 0:
                        stele.convert(path, into("b.stele"), allow_loss=True)
            except stele.Error as error:
                assert error.code
                failed += 1
    assert opened > 100 and failed > 10, (opened, failed)
    arrays = {"a.w": np.arange(6, dtype=np.float32).reshape(2, 3), "a.b": np.ones(4, np.float16)}
    for format, extension in stele.formats().items():
        if format.startswith("burn-bin"):
            continue
        name, entries = into("model-" + format + extension), arrays
        if format in ("npy", "nnef-tensor"):
            entries = {"a": arrays["a.w"]}
        stele.save(entries, name, format=format, allow_loss=True, durability="process")
        if format != "paddle":  # without names
            assert len(stele.open(name).numpy()) == len(entries), name
    stele.save(arrays, into("z.stele"), compress=True)
    assert stele.verify(into("z.stele"))
    assert stele.diff(into("z.stele"), into("model-safetensors.safetensors")).equal_tensors == 2
    stele.convert(into("z.stele"), into("z.json.zst"))
    stele.convert(into("z.json.zst"), into("z.gguf"), rename={r"^a\\\\.": "b."})
    raises(FileNotFoundError, stele.open, "none.onnx")
    raises(stele.FormatError, stele.open, b"\\x08\\x0a\\x3a\\xff\\xff\\xff\\xff\\x0f")
    raises(KeyError, lambda: stele.open(into("z.stele"))["none"])
    raises(stele.FormatError, stele.convert, into("z.stele"), into("z.npz"), rename={"(": "b"})
    raises(ZeroDivisionError, stele.save, arrays, into("c.stele"), progress=lambda done, total: 1 // 0)
    onnx_file = os.path.join(data, "onnx", "data", "mlp.onnx")
    stele.import_onnx(onnx_file, into("c.fb"))
    raises(stele.Error, stele.import_onnx, onnx_file, into("d.fb"), outputs=["none"])
    stele.export_onnx(into("c.fb"), into("c.onnx"), opset=18)
    graph = os.path.join(data, "tensorflow", "data", "run_cnn_open.pb")
    stele.import_tensorflow(graph, into("e.fb"))
    raises(stele.Error, stele.import_tensorflow, graph, into("f.fb"), outputs=["none"])


def use_both(folder):
    '''Files go from one library to the other.'''
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    if torch:
        assert (stele.open("a.pt")["w"].numpy() == expected).all()
        weight = stele.open(os.path.join(folder, "z.stele"))["a.w"].torch()
        assert torch.equal(weight, torch.arange(6.0).reshape(2, 3))
        raises(RuntimeError, stele.save, {"a": weight}, "t.stele", progress=lambda done, total: weight @ weight)
        assert torch.equal(torch.load(os.path.join(folder, "model-pytorch.pt"), weights_only=True)["a.w"], weight)
    if onnx:
        assert (stele.open("a.onnx")["w"].numpy() == expected).all()
        stele.import_onnx("a.onnx", "g.fb")
        stele.export_onnx("g.fb", "g.onnx", opset=18)
        onnx.checker.check_model(onnx.load("g.onnx"))
        onnx.load(os.path.join(folder, "model-onnx.onnx"))
        if onnxruntime:
            run("g.onnx")
    if tensorflow:
        stele.import_tensorflow("a.pb", "h.onnx", to="onnx", outputs=["y"])
        if onnx:
            onnx.checker.check_model(onnx.load("h.onnx"))
        if onnxruntime:
            run("h.onnx")
        variable = tensorflow.Variable(expected)
        path = tensorflow.train.Checkpoint(w=variable).save("checkpoint-of-tensorflow")
        file = stele.open(path + ".index")
        found = [tensor.numpy() for tensor in file.values() if tensor.shape == (2, 3)]
        assert any((array == expected).all() for array in found), list(file)


use_others()
use_stele("first")
use_both("first")
with concurrent.futures.ThreadPoolExecutor() as pool:
    result = pool.submit(use_stele, "second")
    use_others()
    result.result()
use_both("second")
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(ASAN, reason="the other libraries are built without the sanitizer")
@pytest.mark.skipif(not INSTALLED, reason=f"none of {', '.join(OTHERS)} is installed")
@pytest.mark.parametrize("order", orders(), ids="-".join)
def test_libraries_imported_in_any_order_work_in_one_process(order: tuple[str, ...], tmp_path: Path) -> None:
    result = run_python(PROGRAM, " ".join(order), str(TEST_DATA / "formats"), str(tmp_path), timeout=300)
    assert result.stdout.split()[-1:] == ["done"], result.stdout


def test_libraries_that_are_not_installed_are_named() -> None:
    missing = [name for name in OTHERS if name not in INSTALLED]
    if missing:
        pytest.skip(f"not tested beside {', '.join(missing)}: not installed")


def test_the_module_exports_only_its_init_function() -> None:
    """Whatever libraries are linked into it cannot be found by other modules of the process."""
    nm = shutil.which("nm")
    if nm is None or ASAN:
        pytest.skip("nm is missing, or the module has the symbols of the sanitizer")
    command = [nm, "--dynamic", "--defined-only", "--format=posix", stele._stele.__file__]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line.split()[0] for line in output.splitlines()] == ["PyInit__stele"]
