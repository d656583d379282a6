"""Memory of devices, on the fake drivers of tests/device/fake: device memory there is an address that the processor cannot
read. The environment variable STELE_FAKE_DRIVERS names the folder of their libraries, if it is not beside the module."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DTYPES, equal_bits, sample

import stele

FOLDER = Path(os.environ.get("STELE_FAKE_DRIVERS") or Path(stele.__file__).parents[1] / "fake")
TYPES = {"cuda": 2, "hip": 10}
u64, p = ctypes.c_uint64, ctypes.c_void_p


class Counters(ctypes.Structure):
    """The structure of this name in control.hpp."""

    _fields_ = [
        (name, u64)
        for name in (
            "device_allocations device_bytes max_device_bytes host_allocations host_bytes max_host_bytes streams events "
            "contexts calls copies_to_device copies_from_device bytes_to_device bytes_from_device largest_copy "
            "queued_copies misuses"
        ).split()
    ]


Function = ctypes.CFUNCTYPE(None, p)


class Control(ctypes.Structure):
    """The structure of this name in control.hpp."""

    _fields_ = [
        ("reset", ctypes.CFUNCTYPE(None)),
        ("set_devices", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("set_version", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("set_delay", ctypes.CFUNCTYPE(None, u64, ctypes.c_uint)),
        ("set_device_limit", ctypes.CFUNCTYPE(None, ctypes.c_int, u64)),
        ("set_host_limit", ctypes.CFUNCTYPE(None, u64)),
        ("set_patience", ctypes.CFUNCTYPE(None, ctypes.c_uint)),
        ("fail", ctypes.CFUNCTYPE(None, ctypes.c_char_p, u64, ctypes.c_int, u64)),
        ("fail_copy", ctypes.CFUNCTYPE(None, u64, ctypes.c_int)),
        ("lose", ctypes.CFUNCTYPE(None)),
        ("pending_faults", ctypes.CFUNCTYPE(u64)),
        ("counters", ctypes.CFUNCTYPE(None, ctypes.POINTER(Counters))),
        ("calls", ctypes.CFUNCTYPE(u64, ctypes.c_char_p)),
        ("misuses", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)),
        ("clear_misuses", ctypes.CFUNCTYPE(None)),
        ("read", ctypes.CFUNCTYPE(ctypes.c_int, u64, p, ctypes.c_size_t)),
        ("write", ctypes.CFUNCTYPE(ctypes.c_int, u64, p, ctypes.c_size_t)),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int, p, ctypes.c_int, Function, p)),
        ("kernel", ctypes.CFUNCTYPE(ctypes.c_int, p, ctypes.c_int, u64, ctypes.c_size_t, ctypes.c_bool, Function, p)),
        ("hold", ctypes.CFUNCTYPE(ctypes.c_int, p, ctypes.c_int)),
        ("release", ctypes.CFUNCTYPE(ctypes.c_int, p, ctypes.c_int)),
        ("hold_copies", ctypes.CFUNCTYPE(None, ctypes.c_bool)),
        ("idle", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("stack_depth", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("current_device", ctypes.CFUNCTYPE(ctypes.c_int)),
    ]


class Fake:
    """A fake driver, which the module has bound."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.path = FOLDER / f"libstele_fake_{kind}.so"
        if not self.path.exists():
            pytest.skip(f"{self.path} is not built: make python builds it, and STELE_FAKE_DRIVERS can name its folder")
        function = ctypes.CDLL(str(self.path)).stele_fake_control
        function.restype = ctypes.POINTER(Control)
        self.control = function().contents
        self.control.reset()
        self.control.set_delay(1, 50)
        stele.devices.use_library(kind, self.path)

    @property
    def device(self) -> str:
        return f"{self.kind}:0"

    @property
    def now(self) -> Counters:
        counters = Counters()
        self.control.counters(ctypes.byref(counters))
        return counters

    def misuses(self) -> str:
        text = ctypes.create_string_buffer(self.control.misuses(None, 0) + 1)
        self.control.misuses(text, len(text))
        return text.value.decode()

    def function(self, name: str) -> bytes:
        """Returns the driver's name of a function, such as MemcpyHtoDAsync."""
        return ({"cuda": "cu", "hip": "hip"}[self.kind] + name).encode()

    def end(self) -> None:
        gc.collect()
        stele.devices.use_library(self.kind, None)
        now = self.now
        live = [now.device_allocations, now.host_allocations, now.streams, now.events, now.contexts]
        misuses = self.misuses()
        self.control.reset()
        assert misuses == ""
        assert live == [0, 0, 0, 0, 0], "device allocations, host allocations, streams, events, contexts"


@pytest.fixture(params=["cuda", "hip"])
def fake(request: pytest.FixtureRequest) -> Iterator[Fake]:
    driver = Fake(request.param)
    yield driver
    driver.end()


class Foreign:
    """Memory of a device, as another module shows it."""

    def __init__(self, tensor: Any, versioned: bool = True, capsule: Any = None) -> None:
        self.tensor = tensor
        self.versioned = versioned
        self.capsule = capsule
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.tensor.__dlpack_device__()
        return device

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        self.streams.append(stream)
        return self.capsule or self.tensor.__dlpack__(stream=stream, **options)


def damage(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Changes a byte of an array in a file."""
    content = bytearray(path.read_bytes())
    content[content.index(array.tobytes()[:64]) + 5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["all.stele", "all.safetensors"])
def test_tensors_of_every_dtype_are_loaded(fake: Fake, inside: Path, name: str) -> None:
    arrays = {dtype: sample(dtype, (5, 8)) for dtype in DTYPES}
    if name == "all.safetensors":
        for dtype in ("c128", "i4", "u4"):
            del arrays[dtype]
    arrays |= {"scalar": np.array(3.5), "empty": np.zeros((0, 4), np.float32)}
    stele.save(arrays, name)
    with stele.open(name) as file:
        tensors = file.to_device(fake.device)
    assert tensors.keys() == arrays.keys()
    for key, array in arrays.items():
        tensor = tensors[key]
        assert equal_bits(tensor.numpy(), array), key
        assert tensor.shape == array.shape and tensor.ndim == array.ndim and tensor.size == array.size
        assert tensor.device == fake.device and tensor.__dlpack_device__() == (TYPES[fake.kind], 0)
        assert tensor.address % 256 == 0


def test_small_tensors_share_allocations_and_copies(fake: Fake, inside: Path) -> None:
    arrays = {f"layer.{i}": np.full((16, 4), i, np.float32) for i in range(1000)}
    stele.save(arrays, "small.safetensors")
    tensors = stele.open("small.safetensors").to_device(fake.device)
    now = fake.now
    assert now.device_allocations == 1
    assert now.copies_to_device <= 4
    assert all(equal_bits(tensors[name].numpy(), array) for name, array in arrays.items())


@pytest.mark.parametrize("bypass_cache", [True, False])
def test_a_large_tensor_goes_through_the_ring(fake: Fake, inside: Path, bypass_cache: bool) -> None:
    arrays = {"large": sample("f32", (10 << 20,)), "small": sample("bf16", (7,))}
    stele.save(arrays, "large.safetensors")
    seen: list[tuple[int, int]] = []
    if hasattr(os, "posix_fadvise"):
        with open("large.safetensors", "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    tensors = stele.open("large.safetensors").to_device(
        fake.device, bypass_cache=bypass_cache, progress=lambda *at: seen.append(at)
    )
    assert fake.now.max_host_bytes <= 16 * (4 << 20)
    assert fake.now.largest_copy <= 4 << 20
    assert all(equal_bits(tensors[name].numpy(), array) for name, array in arrays.items())
    assert seen[-1][0] == seen[-1][1] == sum(array.nbytes for array in arrays.values())


def test_names_and_the_second_device(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32"), "b": sample("i32"), "c": sample("u8")}, "a.npz")
    file = stele.open("a.npz")
    tensors = file.to_device(f"{fake.kind}:1", ["c", "a"])
    assert list(tensors) == ["c", "a"]
    assert tensors["a"].device == f"{fake.kind}:1"
    assert equal_bits(tensors["a"].numpy(), sample("f32"))
    with pytest.raises(stele.KeyNotFoundError):
        file.to_device(fake.device, ["d"])
    with pytest.raises(ValueError, match="does not have this device"):
        file.to_device(f"{fake.kind}:7")
    for wrong in ("cpu", f"{fake.kind}:x", f"{fake.kind}:-1"):
        with pytest.raises(ValueError, match="not a device"):
            file.to_device(wrong)


def test_ties_have_one_memory(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32")}, "ties.stele", ties={"b": "a"})
    tensors = stele.open("ties.stele").to_device(fake.device)
    assert tensors["a"].address == tensors["b"].address


def test_memory_lives_as_long_as_a_tensor_or_a_capsule(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32")}, "a.stele")
    tensors = stele.open("a.stele").to_device(fake.device)
    capsule = tensors["a"].__dlpack__(stream=None, max_version=(1, 0), dl_device=None, copy=None)
    del tensors
    gc.collect()
    assert fake.now.device_allocations == 1
    owner, *_ = stele._stele.from_dlpack(capsule, True)
    del capsule
    gc.collect()
    assert fake.now.device_allocations == 1
    del owner
    gc.collect()
    assert fake.now.device_allocations == 0


def test_dlpack_refuses_what_it_cannot_do(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32")}, "a.stele")
    tensor = stele.open("a.stele").to_device(fake.device)["a"]
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(1, 0))


def test_the_interface_of_cuda(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32"), "b": sample("bf16"), "empty": np.zeros((0, 3))}, "a.stele")
    tensors = stele.open("a.stele").to_device(fake.device)
    if fake.kind == "hip":
        assert not hasattr(tensors["a"], "__cuda_array_interface__")
        return
    assert tensors["a"].__cuda_array_interface__ == {
        "version": 3,
        "shape": (4, 6),
        "typestr": "<f4",
        "data": (tensors["a"].address, False),
        "strides": None,
        "stream": 1,
    }
    assert tensors["empty"].__cuda_array_interface__["data"] == (0, False)
    assert not hasattr(tensors["b"], "__cuda_array_interface__")  # no typestr


# --- into memory that exists ---


def targets_of(fake: Fake, arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Returns tensors on the device with other elements."""
    data = stele.save({name: np.zeros_like(array) for name, array in arrays.items()}, format="stele")
    return stele.open(data).to_device(fake.device)


@pytest.mark.parametrize("versioned", [True, False])
def test_read_into_memory_of_another_module(fake: Fake, inside: Path, versioned: bool) -> None:
    array = sample("f32", (300, 500))
    stele.save({"a": array}, "a.stele", compress=True)
    memory = targets_of(fake, {"a": array})["a"]
    target = Foreign(memory, versioned)
    stele.open("a.stele")["a"].read_into(target)
    assert equal_bits(memory.numpy(), array)
    assert target.streams == [1 if fake.kind == "cuda" else 0]


def test_read_into_many(fake: Fake, inside: Path) -> None:
    arrays = {f"layer.{i}": sample("f32", (32,), i) for i in range(300)}
    stele.save(arrays, "many.safetensors")
    memory = targets_of(fake, arrays)
    host = np.zeros(32, np.float32)
    before = fake.now.copies_to_device
    seen: list[tuple[int, int]] = []
    file = stele.open("many.safetensors")
    file.read_into({**memory, "layer.7": host}, progress=lambda *at: seen.append(at))
    assert fake.now.copies_to_device - before <= 300
    assert seen[-1][0] == seen[-1][1]
    assert equal_bits(host, arrays["layer.7"])
    assert all(equal_bits(memory[name].numpy(), arrays[name]) for name in arrays if name != "layer.7")
    assert not memory["layer.7"].numpy().any()


def test_read_into_bytes(fake: Fake, inside: Path) -> None:
    array = sample("i4", (6, 4))
    stele.save({"a": array}, "a.stele")
    memory = targets_of(fake, {"a": np.zeros(12, np.uint8)})["a"]
    stele.open("a.stele")["a"].read_into(memory)
    assert bytes(memory.numpy()) == bytes(stele._dtypes.pack_4(array))


def test_read_into_checks_all_before_it_changes_something(fake: Fake, inside: Path) -> None:
    arrays = {"a": sample("f32"), "b": sample("i32")}
    stele.save(arrays, "a.safetensors")
    file = stele.open("a.safetensors")
    memory = targets_of(fake, {"a": arrays["a"], "b": arrays["a"], "c": sample("f32", (3,))})
    with pytest.raises(TypeError, match="b has the dtype i32, the memory of the device f32"):
        file.read_into({"a": memory["a"], "b": memory["b"]})
    with pytest.raises(ValueError, match="shape"):
        file.read_into({"a": memory["a"], "b": memory["c"]})
    with pytest.raises(stele.KeyNotFoundError):
        file.read_into({"a": memory["a"], "z": memory["c"]})
    assert not memory["a"].numpy().any()


def test_a_damaged_file_changes_nothing(fake: Fake, inside: Path) -> None:
    arrays = {f"{i}": sample("f32", (64, 64), i) for i in range(20)}
    stele.save(arrays, "a.stele")
    memory = targets_of(fake, arrays)
    damage(inside / "a.stele", arrays["19"])
    copies = fake.now.copies_to_device
    allocations = fake.now.device_allocations
    file = stele.open("a.stele")
    with pytest.raises(stele.FormatError) as caught:
        file.read_into(memory)
    assert caught.value.code == "checksum" and caught.value.path == "19"
    assert fake.now.copies_to_device == copies
    assert not any(tensor.numpy().any() for tensor in memory.values())
    with pytest.raises(stele.FormatError) as caught:
        file.to_device(fake.device)
    assert caught.value.code == "checksum" and caught.value.path == "19"
    del caught
    gc.collect()
    assert fake.now.device_allocations == allocations


def test_copies_follow_the_work_on_the_default_stream(fake: Fake, inside: Path) -> None:
    array = sample("f32", (64,))
    stele.save({"a": array}, "a.stele")
    memory = targets_of(fake, {"a": array})["a"]
    kernel = Function(lambda _: time.sleep(0.05))
    assert fake.control.kernel(None, 0, memory.address, memory.nbytes, True, kernel, None) == 0
    stele.open("a.stele")["a"].read_into(Foreign(memory))
    assert equal_bits(memory.numpy(), array)
    assert fake.control.kernel(None, 0, memory.address, memory.nbytes, True, kernel, None) == 0
    data = stele.save({"a": Foreign(memory)}, format="stele")
    assert equal_bits(stele.open(data)["a"].numpy(), array)
    # A tensor of this module, too.
    assert fake.control.kernel(None, 0, memory.address, memory.nbytes, True, kernel, None) == 0
    assert equal_bits(memory.numpy(), array)
    assert fake.control.kernel(None, 0, memory.address, memory.nbytes, True, kernel, None) == 0
    assert equal_bits(stele.open(stele.save({"a": memory}, format="stele"))["a"].numpy(), array)


def test_a_stream_of_another_module_follows_the_default_stream(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32"), "blocks": sample("i4")}, "a.stele")
    for tensor in stele.open("a.stele").to_device(fake.device).values():
        for stream in (None, -1, 1 if fake.kind == "cuda" else 0):
            before = fake.control.calls(fake.function("StreamSynchronize"))
            tensor.__dlpack__(stream=stream)
            assert fake.control.calls(fake.function("StreamSynchronize")) == before
        kernel = Function(lambda _: time.sleep(0.05))
        assert fake.control.kernel(None, 0, tensor.address, tensor.nbytes, True, kernel, None) == 0
        capsule = tensor.__dlpack__(stream=77)  # the consumer's, which does not wait for the default stream
        assert fake.control.read(tensor.address, (ctypes.c_char * tensor.nbytes)(), tensor.nbytes) == 0
        del capsule


def test_many_threads_share_the_driver(fake: Fake, inside: Path) -> None:
    arrays = {f"{i}": sample("f32", (1000,), i) for i in range(40)}
    stele.save(arrays, "a.stele")
    file = stele.open("a.stele")
    results: list[Any] = []

    def work() -> None:
        tensors = file.to_device(fake.device)
        file.read_into(tensors)
        results.append(all(equal_bits(tensors[name].numpy(), array) for name, array in arrays.items()))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 6


# --- saves ---


@pytest.mark.parametrize("name", ["a.safetensors", "a.stele", "a.gguf", "a.npz"])
def test_a_save_reads_the_device(fake: Fake, inside: Path, name: str) -> None:
    arrays = {f"w.{i}": sample("f32", (20, 32), i) for i in range(50)}
    arrays |= {"large": sample("f16", (3000, 1024)), "empty": np.zeros((0, 32), np.float32)}
    if name == "a.gguf":
        del arrays["empty"]
    tensors: dict[str, Any] = dict(targets_of(fake, arrays))
    stele.open(stele.save(arrays, format="stele")).read_into(tensors)
    tensors["w.1"], tensors["w.2"] = Foreign(tensors["w.1"]), arrays["w.2"]
    stele.save(tensors, name)
    file = stele.open(name)
    assert sorted(file) == sorted(arrays)
    assert all(equal_bits(file[key].numpy(), array) for key, array in arrays.items())


def test_a_save_converts(fake: Fake, inside: Path) -> None:
    array = np.linspace(-3, 3, 1 << 18, dtype=np.float32).reshape(512, 512)
    memory = targets_of(fake, {"a": array})
    stele.open(stele.save({"a": array}, format="stele")).read_into(memory)
    stele.save({"part": {"a": memory["a"]}}, "half.stele", precision="f16", compress=True)
    assert equal_bits(stele.open("half.stele")["part.a"].numpy(), array.astype(np.float16))


def test_packed_elements_and_blocks_are_saved_as_they_are(fake: Fake, inside: Path) -> None:
    arrays = {"a": sample("i4", (4, 8)), "b": sample("f6_e2m3", (4, 8))}
    stele.save(arrays, "a.stele")
    stele.save(stele.open("a.stele").to_device(fake.device), "b.stele")
    assert all(equal_bits(stele.open("b.stele")[name].numpy(), array) for name, array in arrays.items())
    stele.save({"w": np.linspace(-1, 1, 2048, dtype=np.float32).reshape(8, 256)}, "q.gguf", precision="q4_K")
    tensor = stele.open("q.gguf").to_device(fake.device)["w"]
    assert tensor.dtype_name == "q4_K" and tensor.shape == (8, 256)
    stele.save({"w": tensor}, "r.gguf")
    assert bytes(stele.open("r.gguf")["w"].numpy()) == bytes(stele.open("q.gguf")["w"].numpy()) == bytes(tensor.numpy())


def test_a_step_of_training(fake: Fake, inside: Path) -> None:
    arrays = {f"w.{i}": sample("f32", (20, 32), i) for i in range(50)}
    tensors = stele.open(stele.save(arrays, format="stele")).to_device(fake.device)
    manager = stele.CheckpointManager("run")
    manager.save(1, tensors, background=True)
    del tensors
    gc.collect()
    manager.wait()
    step = manager.open()
    assert step is not None
    assert all(equal_bits(step.model[name].numpy(), array) for name, array in arrays.items())
    del step, manager


# --- what goes wrong ---


def test_a_missing_driver(inside: Path) -> None:
    stele.save({"a": sample("f32")}, "a.stele")
    for kind in ("cuda", "hip"):
        stele.devices.use_library(kind, inside / "missing.so")
        try:
            assert stele.devices.count(kind) == 0
            with pytest.raises(stele.NotFoundError, match="missing.so"):
                stele.open("a.stele").to_device(f"{kind}:0")
        finally:
            stele.devices.use_library(kind, None)
    with pytest.raises(ValueError, match="expected cuda or hip"):
        stele.devices.use_library("metal", None)


def test_no_device(fake: Fake, inside: Path) -> None:
    assert stele.devices.count(fake.kind) == 2
    fake.control.set_devices(0)
    stele.devices.use_library(fake.kind, fake.path)
    stele.save({"a": sample("f32")}, "a.stele")
    with pytest.raises(stele.NotFoundError, match="no device"):
        stele.open("a.stele").to_device(fake.device)


def test_too_little_memory(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32", (1 << 20,)), "b": sample("f32", (5 << 20,))}, "a.safetensors")
    fake.control.set_device_limit(0, 8 << 20)
    with pytest.raises(MemoryError, match="too little memory"):
        stele.open("a.safetensors").to_device(fake.device)
    gc.collect()
    assert fake.now.device_allocations == 0


def test_after_a_failure_of_the_driver_the_next_call_works(fake: Fake, inside: Path) -> None:
    array = sample("f32", (1000,))
    stele.save({"a": array}, "a.stele")
    file = stele.open("a.stele")
    fake.control.fail(fake.function("MemcpyHtoDAsync"), 1, 999, 1)
    with pytest.raises(stele.OperatingSystemError, match="MemcpyHtoDAsync"):
        file.to_device(fake.device)
    tensor = file.to_device(fake.device)["a"]
    assert equal_bits(tensor.numpy(), array)
    fake.control.fail(fake.function("MemcpyDtoHAsync"), 1, 999, 1)
    with pytest.raises(stele.OperatingSystemError, match="MemcpyDtoHAsync"):
        stele.save({"a": tensor}, "b.stele")
    assert not Path("b.stele").exists()
    stele.save({"a": tensor}, "b.stele")
    assert equal_bits(stele.open("b.stele")["a"].numpy(), array)


def test_a_load_can_be_cancelled(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32", (8 << 20,))}, "a.safetensors")
    with pytest.raises(stele.Error) as caught:
        stele.open("a.safetensors").to_device(fake.device, progress=lambda done, total: False)
    assert caught.value.code == "cancelled"
    del caught
    gc.collect()
    assert fake.now.device_allocations == 0


def test_memory_that_cannot_be_filled(fake: Fake, inside: Path) -> None:
    stele.save({"a": sample("f32")}, "a.stele")
    file = stele.open("a.stele")
    tensor = file.to_device(fake.device)["a"]
    columns = np.zeros((6, 4), np.float32)  # refused before its address is used
    with pytest.raises(ValueError, match="a: the elements are not contiguous"):
        file["a"].read_into(Foreign(tensor, capsule=columns.T.__dlpack__()))
    with pytest.raises(ValueError, match="a: the elements are not contiguous"):
        stele.save({"a": Foreign(tensor, capsule=columns.T.__dlpack__())}, "b.stele")
    rows = np.zeros((4, 6), np.float32)
    rows.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        file["a"].read_into(Foreign(tensor, capsule=rows.__dlpack__(max_version=(1, 1))))
    other = stele._stele.to_dlpack(tensor, tensor.address, [4, 6], 7, 8, TYPES[fake.kind], 0)  # float8_e3m4
    with pytest.raises(TypeError, match="dtype of DLPack with the code 7"):
        file["a"].read_into(Foreign(other))
    with pytest.raises(TypeError, match="dtype of DLPack with the code 7"):
        stele.save({"a": Foreign(other)}, "b.stele")
