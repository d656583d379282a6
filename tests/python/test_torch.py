"""Torch tensors and modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import FORMATS, run_python, sample

import stele

torch = pytest.importorskip("torch")

import stele.torch  # noqa: E402

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u64": torch.uint64,
    "u32": torch.uint32,
    "u16": torch.uint16,
    "u8": torch.uint8,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "f8_e4m3fn": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
    "f8_e4m3fnuz": torch.float8_e4m3fnuz,
    "f8_e5m2fnuz": torch.float8_e5m2fnuz,
    "f8_e8m0": torch.float8_e8m0fnu,
}
KINDS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t(),
    "strided": lambda t: t[::2, 1::2],
    "expanded": lambda t: t[:1].expand(5, -1),
    "offset": lambda t: t[1:, 2:],
    "empty": lambda t: t[:0],
    "scalar": lambda t: t[0, 0],
    "permuted": lambda t: t.view(4, 2, 3).permute(2, 0, 1),
    "diagonal": lambda t: t.as_strided((4,), (7,)),
}


def bits(tensor: Any) -> Any:
    """Returns shape, dtype and bytes of a tensor."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return tuple(tensor.shape), tensor.dtype, bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def make(dtype: str) -> Any:
    raw = sample(dtype, (4, 6)).view(np.uint8)
    return torch.from_numpy(raw.copy()).view(DTYPES[dtype]).reshape(4, 6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_in_every_memory_order_come_back(dtype: str) -> None:
    tensors = {name: kind(make(dtype)) for name, kind in KINDS.items()}
    file = stele.open(stele.save(tensors, format="stele"))
    assert all(tensor.dtype_name == dtype for tensor in file.values())
    for found in (file.torch(), {name: tensor.torch() for name, tensor in file.items()}, file.torch(copy=True)):
        assert {name: bits(tensor) for name, tensor in found.items()} == {name: bits(t) for name, t in tensors.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_read_from_a_mapped_file(dtype: str, tmp_path: Path) -> None:
    tensor = make(dtype)
    stele.torch.save_file({"a": tensor, "e": tensor[:0], "s": tensor[0, 0]}, tmp_path / "a.stele")
    file = stele.open(tmp_path / "a.stele")
    loaded = stele.torch.load_file(tmp_path / "a.stele")
    assert (
        bits(loaded["a"]) == bits(tensor)
        and bits(loaded["e"]) == bits(tensor[:0])
        and bits(loaded["s"]) == bits(tensor[0, 0])
    )
    view = file["a"].torch()
    view.view(torch.uint8).fill_(1)  # private
    assert bits(file["a"].torch()) == bits(tensor) and bits(stele.open(tmp_path / "a.stele")["a"].torch()) == bits(
        tensor
    )
    out = torch.zeros_like(tensor)
    file["a"].read_into(out)
    assert bits(out) == bits(tensor)
    turned = torch.zeros(6, 4, dtype=tensor.dtype).t()
    file["a"].read_into(turned)
    assert bits(turned) == bits(tensor)


def test_the_numbers_of_bf16_and_f8_are_those_of_torch() -> None:
    for dtype in ("bf16", "f8_e4m3fn", "f8_e5m2", "f8_e8m0"):
        tensor = make(dtype)
        file = stele.open(stele.save({"a": tensor}, format="safetensors"))
        np.testing.assert_array_equal(file["a"].numpy().astype(np.float32), tensor.float().numpy())
        assert bits(stele.open(stele.save({"a": file["a"].numpy()}, format="safetensors"))["a"].torch()) == bits(tensor)


FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)


@pytest.mark.skipif(FLOAT4 is None, reason="torch 2.8 added float4")
@pytest.mark.parametrize("format", ["stele", "safetensors", "pytorch"])
def test_pairs_of_float4_come_back(format: str, tmp_path: Path) -> None:
    whole = torch.arange(48, dtype=torch.uint8).reshape(4, 12).view(FLOAT4)
    raws = {"a": whole, "t": whole.view(torch.uint8)[:, ::2].t().view(FLOAT4), "e": whole[:0], "tie": whole}
    if format != "stele":
        raws["t"] = raws["t"].view(torch.uint8).contiguous().view(FLOAT4)
    stele.save(raws, tmp_path / "a", format=format)
    path = next(tmp_path.glob("a*"))
    file = stele.open(path)
    assert {name: (t.dtype_name, t.shape) for name, t in file.items()} == {
        name: ("f4_e2m1", (*t.shape[:-1], 2 * t.shape[-1])) for name, t in raws.items()
    }
    low = file["a"].numpy().view(np.uint8)[:, 0::2] & 15  # the first number of a pair is in the lower half
    assert np.array_equal(low, whole.view(torch.uint8).numpy() & 15)
    loads = [file.torch(), {name: t.torch() for name, t in file.items()}, stele.torch.load_file(path)]
    if format == "pytorch":
        loads.append(torch.load(path))
    for found in loads:
        for name, raw in raws.items():
            assert found[name].dtype == FLOAT4 and found[name].shape == raw.shape
            assert torch.equal(found[name].view(torch.uint8), raw.view(torch.uint8))
    out = torch.zeros(4, 12, dtype=torch.uint8).view(FLOAT4)
    file["a"].read_into(out)
    assert torch.equal(out.view(torch.uint8), whole.view(torch.uint8))
    with pytest.raises(ValueError, match="shape"):
        file["a"].read_into(out.view(torch.uint8).reshape(2, 24).view(FLOAT4))
    with pytest.raises(TypeError, match="f4_e2m1"):
        stele.open(stele.save({"u": np.zeros((4, 24), np.uint8)}, format="npz"))["u"].read_into(out)


@pytest.mark.skipif(FLOAT4 is None, reason="torch 2.8 added float4")
def test_modules_may_have_pairs_of_float4(tmp_path: Path) -> None:
    def made(start: int) -> torch.nn.Module:
        net = torch.nn.Linear(2, 2)
        net.register_buffer("codes", torch.arange(start, start + 8, dtype=torch.uint8).reshape(2, 4).view(FLOAT4))
        return net

    net, other = made(0), made(9)
    stele.torch.save_model(net, tmp_path / "a.safetensors")
    assert stele.torch.load_model(other, tmp_path / "a.safetensors") == ([], [])
    assert torch.equal(other.codes.view(torch.uint8), net.codes.view(torch.uint8))
    assert stele.torch.load_model(made(9), tmp_path / "a.safetensors", assign=True) == ([], [])
    with pytest.raises(TypeError, match="odd"):
        stele.open(stele.save({"a": sample("f4_e2m1", (2, 3))}, format="stele"))["a"].torch()
    with pytest.raises(TypeError, match="without axes"):
        stele.save({"a": net.codes[0, 0]}, format="stele")


def test_a_dtype_that_torch_lacks_is_a_type_error_with_the_name() -> None:
    file = stele.open(stele.save({"i": sample("i4"), "f": sample("f6_e2m3")}, format="stele"))
    for name in file:
        with pytest.raises(TypeError, match=file[name].dtype_name):
            file[name].torch()
    with pytest.raises(TypeError, match=r"\bi\b"):
        file.torch()


def test_dlpack_of_tensors() -> None:
    file = stele.open(stele.save({"a": make("f32"), "b": make("bf16"), "c": make("i64")}, format="safetensors"))
    for name, dtype in (("a", "f32"), ("b", "bf16"), ("c", "i64")):
        assert bits(torch.from_dlpack(file[name])) == bits(make(dtype))
    assert torch.as_tensor(file["a"].numpy(copy=True)).dtype == torch.float32


def test_read_into_converts_and_refuses(tmp_path: Path) -> None:
    stele.save({"a": np.arange(6, dtype=np.float32).reshape(2, 3)}, tmp_path / "a.stele")
    tensor = stele.open(tmp_path / "a.stele")["a"]
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        out = torch.zeros(2, 3, dtype=dtype)
        tensor.read_into(out)
        assert torch.equal(out.float(), torch.arange(6.0).view(2, 3))
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    tensor.read_into(parameter)
    assert torch.equal(parameter.data, torch.arange(6.0).view(2, 3))

    class Own(torch.Tensor):
        pass

    own = torch.zeros(2, 3).as_subclass(Own)
    tensor.read_into(own)
    assert float(own.sum()) == 15
    for wrong, error in (
        (torch.zeros(3, 2), ValueError),
        (torch.zeros(2, 3, dtype=torch.int32), TypeError),
        (torch.zeros(2, 3, device="meta"), ValueError),
    ):
        with pytest.raises(error):
            tensor.read_into(wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.zeros(2, device="meta"),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.eye(4).to_sparse_csr(),
    ],
    ids=["sparse", "meta", "nested", "csr"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:Sparse CSR")
def test_a_tensor_without_plain_memory_is_a_type_error_with_its_name(make: Any) -> None:
    with pytest.raises(TypeError, match=r"layer\.w"):
        stele.save({"layer": {"w": make()}}, format="stele")


class Wrapper(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor whose elements are in another one."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))
        return cls(result) if function is torch.ops.aten.detach.default else result


def resized(size: int, dtype: Any = torch.float32) -> Any:
    tensor = torch.ones(8, dtype=torch.float32).view(torch.uint8).view(dtype)[2:6]
    tensor.untyped_storage().resize_(size)
    return tensor


def fake() -> Any:
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(3))


def transformed(transform: Any) -> Any:
    kept: list[Any] = []
    transform(lambda tensor: (kept.append(tensor), tensor.sum())[1])(torch.ones(2, 3))
    return kept[0]


def masked() -> Any:
    from torch.masked import masked_tensor

    return masked_tensor(torch.ones(3), torch.tensor([True, False, True]))


WITHOUT_MEMORY = {
    "fake": fake,
    "storage of 0 bytes": lambda: resized(0),
    "storage that is too small": lambda: resized(23),
    "parameter": lambda: torch.nn.Parameter(resized(0)),
    "float4": lambda: resized(0, torch.float4_e2m1fn_x2),
    "wrapper": lambda: Wrapper(torch.ones(3)),
    "functional": lambda: transformed(torch.func.functionalize),
    "vmap": lambda: transformed(torch.vmap),
    "masked": masked,
    "without a shape": lambda: torch.nn.LazyLinear(3).weight,
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "mkldnn": lambda: torch.ones(3, 3).to_mkldnn(),
}


@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_without_memory_is_an_error_with_its_name(kind: str) -> None:
    import stele.safetensors.torch as drop_in

    tensor = WITHOUT_MEMORY[kind]()
    with pytest.raises(TypeError, match=r"layer\.w"):
        stele.save({"layer": {"w": tensor}}, format="stele")
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        drop_in.save({"layer.w": tensor})
    source = stele.open(stele.save({"w": torch.ones(4)}, format="stele"))["w"]
    if kind not in ("without a shape", "mkldnn"):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            source.read_into(tensor)


@pytest.mark.filterwarnings("ignore")
def test_views_of_a_part_of_a_storage_have_memory() -> None:
    base = torch.arange(24.0)
    tensors = {"tail": base[20:], "columns": base.view(4, 6)[:, 4:], "empty": resized(0)[:0]}
    tensors["grad"] = torch.ones(2, requires_grad=True) * 2
    found = stele.open(stele.save(tensors, format="stele"))
    assert all(bits(found[name].torch()) == bits(tensor) for name, tensor in tensors.items())


def test_a_distributed_tensor_is_an_error_with_its_name() -> None:
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch has no gloo")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        tensor = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])
        with pytest.raises(TypeError, match=r"layer\.w: a DTensor.*full_tensor"):
            stele.save({"layer": {"w": tensor}}, format="stele")
        stele.save({"w": tensor.full_tensor()}, format="stele")
    finally:
        dist.destroy_process_group()


def test_conjugates_and_negatives_are_their_values() -> None:
    z = torch.complex(torch.arange(6.0), torch.arange(6.0) + 1).view(2, 3)
    tensors = {"z": z, "conj": z.conj(), "imag": z.conj().imag, "t": z.mT.conj(), "real": z.real}
    assert tensors["conj"].is_conj() and tensors["imag"].is_neg()
    file = stele.open(stele.save(tensors, format="stele"))
    assert all(bits(file[name].torch()) == bits(tensor) for name, tensor in tensors.items())


class Lazy(Mapping[str, Any]):
    """A mapping that makes a new tensor at each access."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __getitem__(self, name: str) -> Any:
        return self._make(int(name))

    def __iter__(self) -> Iterator[str]:
        return map(str, range(20))

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize(
    "make",
    [
        lambda i: torch.full((1000,), float(i)),
        lambda i: torch.full((1000,), complex(i, i)).conj(),
        lambda i: torch.full((1000, 2), float(i)).t(),
        lambda i: torch.full((1000,), complex(i, i)).conj().imag,
    ],
)
def test_tensors_that_a_mapping_makes_on_access_are_not_confused(make: Any) -> None:
    """The allocator reuses the address of a tensor that was freed."""
    found = stele.open(stele.save(Lazy(make), format="stele")).torch()
    assert [i for i in range(20) if bits(found[str(i)]) != bits(make(i))] == []


def test_shared_tensors_are_ties_and_views_are_not() -> None:
    base = torch.arange(1000.0)
    tensors = {"a": base, "b": base, "head": base[:500], "turned": base.view(10, 100).t(), "same": base.view(1000)}
    data = stele.save(tensors, format="stele")
    file = stele.open(data)
    assert all(bits(file[name].torch()) == bits(tensor) for name, tensor in tensors.items())
    assert len(set(file._model.leaves().values())) == 3
    for format in ("safetensors", "pytorch", "gguf", "npz"):
        copied = stele.open(stele.save(tensors, format=format))
        assert all(bits(copied[name].torch()) == bits(tensor) for name, tensor in tensors.items())


def module() -> Any:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        OrderedDict(
            embed=torch.nn.Embedding(5, 4), norm=torch.nn.BatchNorm1d(4), head=torch.nn.Linear(4, 5, bias=False)
        )
    )
    net.head.weight = net.embed.weight
    return net


def same(a: Any, b: Any) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return list(left) == list(right) and all(bits(left[name]) == bits(right[name]) for name in left)


@pytest.mark.parametrize("format", ["safetensors", "stele", "pytorch", "npz", "gguf", "flax", "onnx", "burnpack"])
@pytest.mark.parametrize("assign", [False, True])
def test_a_module_is_saved_and_loaded(format: str, assign: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a" + FORMATS[format])
    net = module()
    stele.torch.save_model(net, path)
    torch.manual_seed(5)
    with torch.device("meta" if assign else "cpu"):
        other = torch.nn.Sequential(
            OrderedDict(
                embed=torch.nn.Embedding(5, 4), norm=torch.nn.BatchNorm1d(4), head=torch.nn.Linear(4, 5, bias=False)
            )
        )
    assert stele.torch.load_model(other, path, assign=assign) == ([], [])
    assert same(other, net)
    assert not any(parameter.is_meta for parameter in other.parameters())


def test_torch_loads_what_stele_saves_and_the_other_way(tmp_path: Path) -> None:
    net = module()
    stele.torch.save_model(net, tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt", weights_only=True)
    assert all(bits(loaded[name]) == bits(tensor) for name, tensor in net.state_dict().items())
    assert loaded["head.weight"].data_ptr() == loaded["embed.weight"].data_ptr()
    torch.save(net.state_dict(), tmp_path / "b.pt")
    other = module()
    torch.nn.init.zeros_(other.embed.weight)
    stele.torch.load_model(other, tmp_path / "b.pt")
    assert same(other, net)


def test_load_model_is_strict_before_it_changes_anything(tmp_path: Path) -> None:
    net = module()
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    stele.save({**state, "more": torch.ones(1)}, tmp_path / "more.stele")
    stele.save({name: tensor for name, tensor in state.items() if name != "norm.bias"}, tmp_path / "less.stele")
    stele.save({**state, "norm.bias": torch.ones(7)}, tmp_path / "shape.stele")
    other = module()
    torch.nn.init.zeros_(other.embed.weight)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    for name, message in (
        ("more", "unexpected: more"),
        ("less", r"missing: norm\.bias"),
        ("shape", r"norm\.bias.*\[7\]"),
    ):
        with pytest.raises(RuntimeError, match=message):
            stele.torch.load_model(other, tmp_path / f"{name}.stele")
        assert all(torch.equal(tensor, before[n]) for n, tensor in other.state_dict().items())
    with pytest.raises(RuntimeError, match="norm"):
        stele.torch.load_model(other, tmp_path / "shape.stele", strict=False)
    assert stele.torch.load_model(other, tmp_path / "more.stele", strict=False) == ([], ["more"])
    assert stele.torch.load_model(other, tmp_path / "less.stele", False) == (["norm.bias"], [])
    assert same(other, net)


def test_load_model_converts_dtypes_and_reports_progress(tmp_path: Path) -> None:
    net = module()
    stele.torch.save_model(net.half(), tmp_path / "half.safetensors")
    other = module()
    stele.torch.load_model(other, tmp_path / "half.safetensors")
    assert other.embed.weight.dtype == torch.float32 and torch.equal(other.embed.weight, net.embed.weight.float())
    with stele.open(tmp_path / "half.safetensors") as file:
        stele.torch.load_model(other, file)
        file["norm.bias"].torch()  # the file of the caller stays open
    model = torch.nn.Linear(1000, 1000)
    stele.torch.save_model(model, tmp_path / "big.stele")
    calls: list[tuple[int, int]] = []
    stele.torch.load_model(model, tmp_path / "big.stele", progress=lambda done, total: calls.append((done, total)))
    assert [call[0] for call in calls] == sorted(call[0] for call in calls) and calls[-1][0] == calls[-1][
        1
    ] == 4_004_000


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_loaded_module_holds_no_file(tmp_path: Path) -> None:
    net = module()
    stele.torch.save_model(net, tmp_path / "a.stele")
    stele.torch.load_model(net, tmp_path / "a.stele", assign=True)
    assert "a.stele" not in Path("/proc/self/maps").read_text()


def test_values_beside_tensors_and_scalars_of_torch() -> None:
    file = stele.open(
        stele.save({"a": torch.tensor(3), "b": torch.tensor(1.5), "n": 4, "l": [torch.ones(1), 2]}, format="stele")
    )
    assert dict(file.values) == {"n": 4, "l.1": 2}
    assert file["a"].dtype_name == "i64" and file["a"].shape == () and file["a"].torch().item() == 3


def test_ml_dtypes_arrays_become_torch_tensors() -> None:
    array = np.arange(6).astype(ml_dtypes.bfloat16)
    assert torch.equal(
        stele.open(stele.save({"a": array}, format="stele"))["a"].torch(), torch.arange(6).to(torch.bfloat16)
    )


# --- load_state_dict ---


class Extra(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, state: Any = None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.state = state

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


def same_state(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return bool(bits(a) == bits(b))
    if type(a) is type(b) and isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    if type(a) is type(b) and isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same_state, a, b))
    return type(a) is type(b) and a == b


STATES = [
    torch.tensor([42]),
    torch.arange(6, dtype=torch.bfloat16).view(2, 3),
    7,
    None,
    "text",
    b"\0\xff",
    [1, 2.5, None, [True, "x"]],
    {"a": 1, "b.c": {"0": 2, "1": [3]}, "empty": {}, "list": []},
    {"scale": torch.ones(2), "steps": 5, "below": {"a": [torch.zeros(1), "x"], "n": None}},
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: str(state)[:20])
@pytest.mark.parametrize("format", ["stele", "pytorch", "json"])
@pytest.mark.parametrize("assign", [False, True])
def test_extra_state_comes_back(state: Any, format: str, assign: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a" + FORMATS[format])
    stele.torch.save_model(torch.nn.Sequential(Extra(state), Extra(3)), path)
    other = torch.nn.Sequential(Extra("other"), Extra("other"))
    assert stele.torch.load_model(other, path, assign=assign) == ([], [])
    assert same_state(other[0].state, state) and other[1].state == 3
    manager = stele.CheckpointManager(tmp_path / "run", format=format)
    manager.save(1, torch.nn.Sequential(Extra(state), Extra(3)))
    other = torch.nn.Sequential(Extra("other"), Extra("other"))
    manager.resume(other)
    assert same_state(other[0].state, state) and other[1].state == 3


OTHER_STATES = [
    (1, (2, [3]), {"a": (4,)}),
    {1: 2, 3: {5: torch.ones(1)}},
    {"t": torch.ones(1), "a.b": 1, "0": (torch.ones(2), ()), "empty": [{}, []]},
    OrderedDict(a=OrderedDict(), b={}),
    {"0": 1, "1": 2},
    {},
]


@pytest.mark.parametrize("state", [*STATES, *OTHER_STATES], ids=lambda state: str(state)[:20])
def test_extra_state_that_torch_has_saved_comes_back(state: Any, tmp_path: Path) -> None:
    torch.save(Extra(state).state_dict(), tmp_path / "a.pt")
    expected, other = Extra("other"), Extra("other")
    expected.load_state_dict(torch.load(tmp_path / "a.pt", weights_only=False))
    stele.torch.load_model(other, tmp_path / "a.pt")
    assert same_state(other.state, expected.state)


def test_extra_state_that_is_not_made_is_an_error(tmp_path: Path) -> None:
    for state in ({1, 2}, {"x": 3 + 4j}, {"x": [{"y": {1}}]}):
        torch.save(torch.nn.Sequential(Extra(state)).state_dict(), tmp_path / "a.pt")
        with pytest.raises(TypeError, match=r"0\._extra_state.*class"):
            stele.torch.load_model(torch.nn.Sequential(Extra("other")), tmp_path / "a.pt")


@pytest.mark.parametrize(
    "state", [(1, 2), {1: 2}, {"t": torch.ones(1), "a.b": 1}, {"t": torch.ones(1), "0": 1}, {"t": [torch.ones(1), []]}, {1}, object()],
    ids=lambda state: str(state)[:20],
)  # fmt: skip
def test_extra_state_that_would_come_back_otherwise_is_not_saved(state: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="0._extra_state"):
        stele.torch.save_model(torch.nn.Sequential(Extra(state)), tmp_path / "a.stele")
    with pytest.raises(TypeError, match="0._extra_state"):
        stele.CheckpointManager(tmp_path).save(1, torch.nn.Sequential(Extra(state)))


def test_extra_state_is_a_part_of_a_strict_load(tmp_path: Path) -> None:
    stele.torch.save_model(Extra(5), tmp_path / "with.stele")
    stele.save({"linear." + k: v for k, v in Extra().linear.state_dict().items()}, tmp_path / "without.stele")
    other = Extra("other")
    with pytest.raises(RuntimeError, match="missing: _extra_state"):
        stele.torch.load_model(other, tmp_path / "without.stele")
    assert stele.torch.load_model(other, tmp_path / "without.stele", strict=False) == (["_extra_state"], [])

    class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

    with pytest.raises(RuntimeError, match="unexpected: _extra_state"):
        stele.torch.load_model(Plain(), tmp_path / "with.stele")
    assert stele.torch.load_model(Plain(), tmp_path / "with.stele", strict=False) == ([], ["_extra_state"])


class Old(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Renames, changes in place, joins and replaces what it loads, as old versions of files need it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, 3))
        self.joined = torch.nn.Parameter(torch.zeros(4))
        self.scaled = torch.nn.Parameter(torch.zeros(3))
        self.register_buffer("made", torch.zeros(2))
        self.after: list[str] = []
        self.register_load_state_dict_pre_hook(self.rename)
        self.register_load_state_dict_post_hook(lambda module, keys: self.after.append(str(keys)))

    @staticmethod
    def rename(module: Any, state: Any, prefix: str, *rest: Any) -> None:
        state[prefix + "weight"] = state.pop(prefix + "old")
        state[prefix + "joined"] = torch.cat([state.pop(prefix + "a"), state.pop(prefix + "b")])
        state[prefix + "scaled"].mul_(2)

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        state[prefix + "made"] = torch.stack([state[prefix + "scaled"].sum(), torch.tensor(1.0)])
        super()._load_from_state_dict(state, prefix, *rest)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", ["a.safetensors", "a.json.zst", "a.pt"])
@pytest.mark.parametrize("swap", [False, True])
def test_hooks_do_what_they_do_in_torch(assign: bool, name: str, swap: bool, tmp_path: Path) -> None:
    file = {"old": torch.rand(2, 3), "a": torch.rand(1), "b": torch.rand(3), "scaled": torch.rand(3)}
    stele.save({"m." + key: tensor for key, tensor in file.items()}, tmp_path / name)
    state = {"m." + key: tensor.clone() for key, tensor in file.items()}
    expected, found = (torch.nn.ModuleDict({"m": Old()}) for _ in range(2))
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        expected.load_state_dict(state, assign=assign)
        stele.torch.load_model(found, tmp_path / name, assign=assign)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert same(found, expected) and found["m"].after == expected["m"].after != []
    assert bits(stele.open(tmp_path / name)["m.scaled"].torch()) == bits(file["scaled"])


def test_a_graph_sees_that_a_load_changed_its_parameters(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    stele.torch.save_model(model, tmp_path / "a.stele")
    loss = model(torch.ones(2, 3)).sum()
    stele.torch.load_model(model, tmp_path / "a.stele")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        model = torch.nn.Linear(3, 1)
        stele.torch.save_model(model, tmp_path / "b.stele")
        assert stele.torch.load_model(model, tmp_path / "b.stele") == ([], [])


def test_versions_of_batch_norm(tmp_path: Path) -> None:
    state = {name: tensor for name, tensor in module().state_dict().items() if name != "norm.num_batches_tracked"}
    stele.save(state, tmp_path / "a.safetensors")
    other, expected = module(), module()
    assert stele.torch.load_model(other, tmp_path / "a.safetensors") == ([], [])
    expected.load_state_dict(dict(state))
    assert same(other, expected)
    # The file of torch has versions.
    state = module().state_dict()
    del state["norm.num_batches_tracked"]
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        other.load_state_dict(torch.load(tmp_path / "a.pt"))
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        stele.torch.load_model(other, tmp_path / "a.pt")


def test_a_module_without_memory_needs_assign(tmp_path: Path) -> None:
    stele.torch.save_model(module(), tmp_path / "a.stele")
    meta = module().to("meta")
    with pytest.raises(RuntimeError, match=r"embed\.weight.*assign=True"):
        stele.torch.load_model(meta, tmp_path / "a.stele")
    assert stele.torch.load_model(meta, tmp_path / "a.stele", assign=True) == ([], [])
    assert same(meta, module())
    manager = stele.CheckpointManager(tmp_path / "run")
    manager.save(1, module())
    with pytest.raises(RuntimeError, match="assign=True"):
        manager.resume(module().to("meta"))


@pytest.mark.parametrize("format", ["safetensors", "stele", "pytorch", "gguf"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_ties_stay_with_assign(format: str, device: str, tmp_path: Path) -> None:
    path = tmp_path / ("a" + FORMATS[format])
    stele.torch.save_model(module(), path)
    other = module().to(device)
    other.head.weight = other.embed.weight
    stele.torch.load_model(other, path, assign=True)
    assert other.head.weight is other.embed.weight and same(other, module())
    with torch.no_grad():
        other.head.weight.add_(1)
    assert torch.equal(other.embed.weight, other.head.weight)
    # Other tensors under the names of one parameter are two, as in torch.
    state = dict(module().state_dict())
    state["head.weight"] = state["head.weight"] + 1
    stele.save(state, path)
    stele.torch.load_model(other, path, assign=True)
    assert bits(other.head.weight) == bits(state["head.weight"]) and bits(other.embed.weight) == bits(state["embed.weight"])


def test_an_error_of_the_file_is_that_of_a_load(tmp_path: Path) -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4)))
    stele.torch.save_model(net, tmp_path / "a.stele")
    data = bytearray((tmp_path / "a.stele").read_bytes())
    at = data.index(net[2].weight.detach().numpy().tobytes())
    data[at] ^= 1
    (tmp_path / "a.stele").write_bytes(data)
    with pytest.raises(stele.FormatError) as error:
        stele.torch.load_model(net, tmp_path / "a.stele")
    assert error.value.code == "checksum" and error.value.path == "2.weight"
    with pytest.raises(stele.Error) as error:
        stele.torch.load_model(net, tmp_path / "a.stele", progress=lambda done, total: False)
    assert error.value.code == "cancelled"


def test_blocks_are_no_parameters(tmp_path: Path) -> None:
    linear = torch.nn.Linear(256, 64, bias=False)
    stele.save({"weight": linear.weight}, tmp_path / "q.gguf", precision="q8_0")
    file = stele.open(tmp_path / "q.gguf")
    for assign in (False, True):
        with pytest.raises(RuntimeError, match=r"weight.*q8_0.*dequantize"):
            stele.torch.load_model(torch.nn.Linear(256, 64, bias=False), file, assign=assign)
    assert stele.torch.load_model(torch.nn.Linear(256, 64, bias=False), stele.transforms.dequantize(file)) == ([], [])
    net = torch.nn.Linear(256, 64, bias=False)
    assert stele.torch.load_model(net, file, dequantize=True) == ([], [])
    numbers = stele.transforms.dequantize(file)["weight"].torch()
    assert torch.equal(net.weight.detach(), numbers) and float(numbers.abs().max()) > 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["a.safetensors", "a.json.zst"])
def test_a_load_has_no_second_copy_of_the_model(name: str, tmp_path: Path) -> None:
    code = """
import resource, sys, torch, stele, stele.torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(32)))  # 128 MiB
stele.torch.save_model(model[:1], sys.argv[1] + ".first" + sys.argv[2])
stele.torch.load_model(model[:1], sys.argv[1] + ".first" + sys.argv[2])
if sys.argv[3] == "save":
    stele.torch.save_model(model, sys.argv[1])
    sys.exit()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert stele.torch.load_model(model, sys.argv[1]) == ([], [])
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
assert grown < 48, grown
"""
    for what in ("save", "load"):
        run_python(code, str(tmp_path / name), name[1:], what)
