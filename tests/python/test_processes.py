"""Threads, processes, references."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ASAN, equal_bits, run_python, sample

import stele

TENSORS = {str(i): sample("f32", (64, 33), seed=i) for i in range(20)}
FORMATS = ["safetensors", "stele", "npz", "json.zst", "pytorch"]


def check(file: stele.File) -> None:
    arrays = file.numpy()
    assert all(equal_bits(arrays[name], array) for name, array in TENSORS.items())


@pytest.fixture(params=["safetensors", "stele", "json.zst"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / f"a.{request.param}"
    stele.save(TENSORS, path, compress=request.param == "stele", durability="process")
    return path


def work(folder: Path, number: int, seconds: float) -> int:
    """Opens, slices and saves until the time is over. Returns the number of rounds."""
    import time

    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        format = FORMATS[(number + rounds) % len(FORMATS)]
        path = folder / f"{number}{stele.formats()[format]}"
        stele.save(TENSORS, path, durability="process")
        with stele.open(path) as file:
            for i, tensor in enumerate(file.values()):
                assert equal_bits(tensor[i : i + 5, ::3], TENSORS[tensor.name][i : i + 5, ::3])
            check(file)
            stele.transforms.filter(file, "1*").numpy()
        rounds += 1
    return rounds


@pytest.mark.parametrize("seconds", [0.5, pytest.param(60.0, marks=pytest.mark.slow)])
def test_eight_threads_open_slice_and_save(seconds: float, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: work(tmp_path, number, seconds), range(8)))


@pytest.mark.parametrize("kind", ["path", "bytes", "file object", "compressed"])
def test_threads_share_a_file(kind: str, tmp_path: Path) -> None:
    if kind == "path":
        stele.save(TENSORS, tmp_path / "a.safetensors")
        file = stele.open(tmp_path / "a.safetensors")
    elif kind == "file object":
        stele.save(TENSORS, tmp_path / "a.safetensors")
        file = stele.open(open(tmp_path / "a.safetensors", "rb"))  # noqa: SIM115
    else:
        file = stele.open(stele.save(TENSORS, format="stele", compress=kind == "compressed"))
    barrier = threading.Barrier(8)

    def use(number: int) -> None:
        barrier.wait()
        for name in list(TENSORS)[number:] + list(TENSORS)[:number]:
            assert equal_bits(file[name][number::2], TENSORS[name][number::2])
            assert equal_bits(file[name].numpy(), TENSORS[name])
            out = np.empty_like(TENSORS[name])
            file[name].read_into(out)
            assert equal_bits(out, TENSORS[name])
            file[name].stats()
        check(file)
        assert len(file.tree) == len(TENSORS)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))


def test_a_file_may_be_closed_while_threads_read_it() -> None:
    for _ in range(20):
        file = stele.open(stele.save(TENSORS, format="stele", compress=True))

        def use(file: stele.File = file) -> None:
            try:
                while True:
                    check(file)
            except (ValueError, KeyError) as error:
                assert "closed" in str(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        file.close()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def child(file: stele.File, folder: str) -> None:
    check(file)
    tensor = next(iter(file.values()))
    assert equal_bits(tensor[3:, 1], TENSORS[tensor.name][3:, 1])
    path = Path(folder) / f"{os.getpid()}.stele"
    stele.save(TENSORS, path, durability="process")
    stele.convert(path, path.with_suffix(".npz"))
    check(stele.open(path.with_suffix(".npz")))


def test_a_forked_process_uses_the_files_of_its_parent(path: Path, tmp_path: Path) -> None:
    file = stele.open(path)
    check(file)  # the parent has used its threads
    process = os.fork()
    if process == 0:
        status = 1
        try:
            child(file, str(tmp_path))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    check(file)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_receive_files(method: str, path: Path, tmp_path: Path) -> None:
    if method == "spawn" and path.suffix != ".stele":
        pytest.skip("a process with spawn takes half a second")
    context = multiprocessing.get_context(method)
    file = stele.open(path)
    check(file)
    processes = [context.Process(target=child, args=(file, str(tmp_path))) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def fail(path: str) -> None:
    stele.open(path)


def test_errors_reach_another_process(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(stele.NotFoundError) as error:
        pool.apply(fail, (str(tmp_path / "none.pt"),))
    assert error.value.file == str(tmp_path / "none.pt")


def test_a_fork_during_a_save_of_another_thread(tmp_path: Path) -> None:
    run_python(
        """
import os, sys, threading, numpy as np, stele
big = {str(i): np.random.default_rng(i).random(1 << 18) for i in range(16)}
stop = threading.Event()
def save():
    while not stop.is_set():
        stele.save(big, sys.argv[1] + "/a.json.zst", durability="process")
thread = threading.Thread(target=save)
thread.start()
for i in range(5):
    child = os.fork()
    if child == 0:
        file = stele.open(stele.save({"a": np.ones(3)}, format="json.zst"))
        os._exit(0 if file["a"].numpy().sum() == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
""",
        str(tmp_path),
        timeout=60,
    )


def test_a_manager_of_checkpoints_after_a_fork(tmp_path: Path) -> None:
    run_python(
        """
import os, sys, numpy as np, stele
manager = stele.CheckpointManager(sys.argv[1])
manager.save(1, {"w": np.ones(1 << 20)}, background=True)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
manager.wait()
assert [info.step for info in manager.steps()] == [1]
""",
        str(tmp_path),
        timeout=60,
    )


@pytest.mark.parametrize("end", ["sys.exit(0)", "del manager; sys.exit(0)", "os._exit(0)", "fails()"])
def test_a_process_that_is_forked_after_a_background_save_ends(end: str, tmp_path: Path) -> None:
    run_python(
        f"""
import os, sys, time, numpy as np, stele
manager = stele.CheckpointManager(sys.argv[1])
manager.save(1, {{"w": np.ones(10)}}, background=True)
manager.wait()
def fails():
    try:
        manager.save(2, {{"w": np.ones(10)}}, background=True)
    except ValueError as error:
        assert "open a manager" in str(error)
        assert [info.step for info in manager.steps()] == [1] and manager.open() is not None
        sys.exit(0)
child = os.fork()
if child == 0:
    {end}
    os._exit(3)
for _ in range(300):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
assert ended and status == 0, (ended, status)
manager.save(2, {{"w": np.ones(10)}}, background=True)
manager.wait()
""",
        str(tmp_path),
        timeout=60,
    )


def test_a_process_that_is_forked_during_a_run_of_the_command_runs_others(tmp_path: Path) -> None:
    run_python(
        """
import os, sys, threading, time, numpy as np, stele
path = sys.argv[1] + "/a.safetensors"
stele.save({"a": np.zeros(1 << 24)}, path, durability="process")
stop = False
def work():
    while not stop:
        stele.hash(path, algorithm="sha256")
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.2)
child = os.fork()
if child == 0:
    stele.save({"a": np.ones(3)}, sys.argv[1] + "/b.stele")
    os._exit(0 if stele.verify(sys.argv[1] + "/b.stele") else 1)
for _ in range(300):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
stop = True
thread.join()
assert ended and status == 0, (ended, status)
""",
        str(tmp_path),
        timeout=90,
    )


# --- references ---

EVERYTHING = """
import copy, gc, io, os, pickle, sys
import numpy as np
import stele
os.chdir(sys.argv[1])

tensors = {"a": np.arange(12.0).reshape(3, 4), "l": [np.ones(2, ">f4"), 3, "x"], "b": np.float32(1)}
stele.save(tensors, "a.stele", metadata={"k": "v"}, values={"v": [1, {"w": None}]}, ties={"t": "a"})
stele.save(tensors, "a.npz", progress=lambda done, total: None)
stele.save(tensors, io.BytesIO(), format="json.zst", allow_loss=True)
file = stele.open("a.stele")
dict(file), file.tree, dict(file.values), file.metadata, file.properties, file.checkpoint, repr(file)
file._repr_html_()
kept = [file.numpy(), file.numpy(copy=True), file.numpy(writable=True), file["a"][1:, ::-1], np.from_dlpack(file["a"])]
file["a"].stats(), file["a"].annotations, np.asarray(file["a"]), file["a"].__buffer__(0)
file["a"].read_into(np.empty((3, 4)))
other = pickle.loads(pickle.dumps(file))
copy.copy(file), pickle.loads(pickle.dumps(file["a"]))
for source in (open("a.stele", "rb").read(), bytearray(open("a.stele", "rb").read()), open("a.stele", "rb")):
    kept.append(stele.open(source)["a"].numpy())
class Broken(io.BytesIO):
    def readinto(self, memory):
        raise RuntimeError("x")
    def write(self, data):
        raise RuntimeError("x")
def stop(done, total):
    raise RuntimeError("x")
for wrong in (lambda: stele.open(Broken(b"1234")), lambda: stele.save(tensors, Broken(), format="stele"),
              lambda: file["z"], lambda: file["a"][9],
              lambda: stele.save(tensors, "c.stele", progress=stop), lambda: stele.open("none"),
              lambda: stele.save({"a": object()}, "c.stele"), lambda: stele.save(tensors, "c.npy"),
              lambda: file.numpy(copy=True, progress=stop), lambda: file["a"].read_into(np.empty(5))):
    try:
        wrong()
    except Exception:
        pass
    else:
        raise AssertionError
quantized, report = stele.transforms.quantize(file, 8, "a")
stele.transforms.dequantize(quantized)["a"].numpy()
stele.transforms.merge([stele.transforms.with_prefix(file, "m"), stele.transforms.filter(file, "a")]).numpy()
stele.transforms.rename(file, {"a": "z"}), stele.transforms.transpose(file, "a")["a"][...]
stele.convert("a.stele", "b.npz", allow_loss=True), stele.verify("a.stele"), stele.diff("a.stele", "b.npz")
stele.hash("a.stele")
manager = stele.CheckpointManager("run", keep={"latest": 2, "best": (1, "loss", "lower")})
for step in range(3):
    optimizer = {"m": {"w": np.ones(3)}}
    manager.save(step, {"w": np.ones(3)}, optimizer, metrics={"loss": step}, state={"s": [1]}, background=step == 2)
manager.wait(), manager.steps(), manager.best("loss"), manager.verify(2)
opened = manager.open()
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "file.close(); other.close(); opened.model.close(); del kept",
        "import threading; t = threading.Thread(target=lambda: file.numpy()); t.start(); t.join()",
        "sys.exit(0)",
        "class C: pass\nc = C(); c.c, c.f = c, file; del c, file; gc.collect()",
    ],
    ids=["globals", "closed", "thread", "exit", "cycle"],
)
def test_no_reference_is_left_at_the_exit(end: str, tmp_path: Path) -> None:
    result = run_python(EVERYTHING + end, str(tmp_path))
    assert "leaked" not in result.stderr and result.stderr == ""


@pytest.mark.slow
def test_no_reference_of_torch_is_left_at_the_exit(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = """
import sys, os, numpy as np, torch, stele, stele.torch
os.chdir(sys.argv[1])
model = torch.nn.Linear(3, 4)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
stele.torch.save_model(model, "a.safetensors")
stele.torch.load_model(model, "a.safetensors")
kept = stele.torch.load_file("a.safetensors"), torch.from_dlpack(stele.open("a.safetensors")["bias"])
manager = stele.CheckpointManager("run")
manager.save(1, model, optimizer, background=True)
opened = manager.resume(model, optimizer)
stele.torch.load_model(model, "a.safetensors", assign=True)
"""
    result = run_python(code, str(tmp_path))
    assert "leaked" not in result.stderr


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_an_exception_of_a_file_object_leaves_no_reference(kind: str) -> None:
    """what() of nanobind's python_error leaves references to all frames."""
    code = """
import io, sys, numpy as np, stele
class Broken(io.BytesIO):
    broken = False
    def readinto(self, memory):
        if self.broken:
            raise RuntimeError("x")
        return super().readinto(memory)
    def write(self, data):
        raise RuntimeError("x")
source = Broken(stele.save({"a": np.ones(3)}, format="safetensors"))
file = stele.open(source)
source.broken = True
try:
    file["a"].numpy() if sys.argv[1] == "reads" else stele.save({"b": file["a"]}, Broken(), format="stele")
except (stele.Error, RuntimeError):
    print("error")
"""
    result = run_python(code, kind)
    assert result.stdout == "error\n" and "leaked" not in result.stderr


def test_a_reference_that_is_left_is_reported() -> None:
    code = """
import ctypes, numpy as np, stele
file = stele.open(stele.save({"a": np.ones(2)}, format="stele"))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(file._model))
"""
    assert "leaked" in run_python(code).stderr


@pytest.mark.skipif(ASAN, reason="AddressSanitizer keeps freed memory")
def test_an_import_in_another_interpreter_changes_nothing_in_this_one() -> None:
    pytest.importorskip("_xxsubinterpreters")
    code = """
import _xxsubinterpreters as interpreters
import numpy as np, stele
other = interpreters.create()
for _ in range(2):
    try:
        interpreters.run_string(other, "import stele")
    except interpreters.RunFailedError as error:
        print("ImportError" in str(error))
    file = stele.open(stele.save({"a": np.arange(3.0)}, format="stele"))
    assert file["a"].numpy().tolist() == [0, 1, 2] and file["a"].stats()["max"] == 2
    try:
        stele.open("none")
    except stele.NotFoundError:
        pass
"""
    assert run_python(code).stdout == "True\nTrue\n"


def test_repeated_work_takes_no_more_memory(tmp_path: Path) -> None:
    run_python(
        """
import gc, io, os, sys, numpy as np, stele
path = sys.argv[1] + "/a.stele"
big = {"a": np.ones(1 << 17), "b": np.ones(1 << 17)[::-1]}
class Broken(io.BytesIO):
    def write(self, data):
        raise RuntimeError("x")
def round():
    stele.save(big, path, durability="process", compress=True)
    with stele.open(path) as file:
        file.numpy(), file["b"][5:], file["a"].numpy(copy=True), file["a"].read_into(np.empty(1 << 17))
        stele.open(open(path, "rb").read()).numpy()
        stele.save(file, io.BytesIO(), format="npz")
    for wrong in (lambda: stele.save(big, Broken(), format="stele"), lambda: stele.open(b"1234"),
                  lambda: stele.save(big, path, progress=lambda done, total: False)):
        try:
            wrong()
        except stele.Error:
            pass
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
for i in range(10):
    round()
before = resident()
for i in range(40):
    round()
assert resident() - before < 10, (before, resident())
assert len(os.listdir("/proc/self/fd")) < 15
""",
        str(tmp_path),
    )


@pytest.mark.skipif(ASAN, reason="AddressSanitizer keeps freed memory")
def test_a_large_file_is_opened_and_sliced_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    stele.save({str(i): np.broadcast_to(np.float32(i), (4 << 20,)) for i in range(16)}, path, durability="process")
    run_python(
        """
import resource, sys, numpy as np, stele
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
stele.open(stele.save({"a": np.ones(3)}, format="safetensors"))
before = peak()
file = stele.open(sys.argv[1])
assert file["3"][::1 << 20].tolist() == [3.0] * 4 and len(file.numpy()) == 16
stele.save(file, sys.argv[1] + ".stele", durability="process")
assert peak() - before < 32, (before, peak())
""",
        str(path),
    )


def test_a_pickle_of_a_thousand_tensors_is_small(tmp_path: Path) -> None:
    stele.save({str(i): np.ones(10) for i in range(1000)}, tmp_path / "a.stele")
    data: Any = pickle.dumps(list(stele.open(tmp_path / "a.stele").values()))
    assert len(pickle.loads(data)) == 1000 and len(data) < 100_000
