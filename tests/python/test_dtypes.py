"""Elements of dtypes that NumPy lacks: with ml_dtypes, without it, packed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import DTYPES, KINDS, array_of_kind, equal_bits, numpy_dtype, protobuf, run_python, sample

import stele
from stele import _dtypes

# safetensors' names of dtypes, by the library's.
SAFETENSORS = {
    "bf16": "BF16",
    "f8_e4m3fn": "F8_E4M3",
    "f8_e5m2": "F8_E5M2",
    "f8_e8m0": "F8_E8M0",
    "f8_e4m3fnuz": "F8_E4M3FNUZ",
    "f8_e5m2fnuz": "F8_E5M2FNUZ",
    "f4_e2m1": "F4",
    "f6_e2m3": "F6_E2M3",
    "f6_e3m2": "F6_E3M2",
}


def safetensors_file(dtype: str, shape: list[int], data: bytes) -> bytes:
    """Returns a file with the tensor `a`, written without the library."""
    header = json.dumps({"a": {"dtype": SAFETENSORS[dtype], "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def number(dtype: str, bits: int) -> float:
    """Returns the number of an element by the definition of its format: sign, exponent, mantissa, bias, specials."""
    if dtype == "f8_e8m0":
        return float("nan") if bits == 255 else 2.0 ** (bits - 127)
    exponent_bits, mantissa_bits, bias = {
        "f4_e2m1": (2, 1, 1),
        "f6_e2m3": (2, 3, 1),
        "f6_e3m2": (3, 2, 3),
        "f8_e4m3fn": (4, 3, 7),
        "f8_e5m2": (5, 2, 15),
        "f8_e4m3fnuz": (4, 3, 8),
        "f8_e5m2fnuz": (5, 2, 16),
        "bf16": (8, 7, 127),
    }[dtype]
    mantissa = bits & (1 << mantissa_bits) - 1
    exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
    sign = -1 if bits >> exponent_bits + mantissa_bits else 1
    top = (1 << exponent_bits) - 1
    if dtype.endswith("fnuz") and sign == -1 and exponent == mantissa == 0:
        return float("nan")
    if dtype == "f8_e4m3fn" and exponent == top and mantissa == 7:
        return float("nan")
    if dtype in ("f8_e5m2", "bf16") and exponent == top:
        return float("nan") if mantissa else sign * float("inf")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


@pytest.mark.parametrize("dtype", ["bf16", *(name for name in SAFETENSORS if name.startswith("f8"))])
def test_every_element_of_8_and_16_bits_is_its_number(dtype: str) -> None:
    size = 2 if dtype == "bf16" else 1
    raw = np.arange(256**size).astype(f"<u{size}")
    tensor = stele.open(safetensors_file(dtype, [256, raw.size // 256], raw.tobytes()))["a"]
    assert tensor.dtype_name == dtype and tensor.dtype == numpy_dtype(dtype)
    found = tensor.numpy()
    assert found.dtype == numpy_dtype(dtype) and found.shape == (256, raw.size // 256)
    expected = np.array([number(dtype, int(bits)) for bits in raw]).reshape(found.shape)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found.astype(np.float64), expected)
    assert equal_bits(found, raw.view(numpy_dtype(dtype)).reshape(found.shape))


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name[0] in "fiu" and name[1:3] in ("8_", "4", "4_")])
def test_the_library_decodes_every_element_like_ml_dtypes(dtype: str) -> None:
    width = 4 if dtype in _dtypes.PACKED else 8
    elements = np.arange(1 << width, dtype=np.uint8).view(numpy_dtype(dtype))
    file = stele.open(stele.save({str(i): elements[i : i + 1] for i in range(elements.size)}, format="stele"))
    for i, element in enumerate(elements.astype(np.float64)):
        stats = file[str(i)].stats()
        assert stats is not None
        assert (stats["nan"], stats["inf"]) == (int(np.isnan(element)), int(np.isinf(element)))
        assert stats["max"] == (element if np.isfinite(element) else None)
        assert float(file[str(i)].numpy()[0]) == element or np.isnan(element)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_is_that_of_numpy_wherever_numpy_takes_one(dtype: str) -> None:
    expected = numpy_dtype(dtype)
    tensor = stele.open(stele.save({"a": sample(dtype)}, format="stele"))["a"]
    assert (tensor.dtype_name, tensor.dtype) == (dtype, expected)
    assert np.result_type(tensor) == np.asarray(tensor).dtype == np.empty(2, tensor.dtype).dtype == expected
    assert (tensor.ndim, tensor.size) == (2, 24)


def test_jax_takes_tensors() -> None:
    jax = pytest.importorskip("jax.numpy")
    for dtype in ("f32", "bf16", "f8_e4m3fn", "i4", "bool"):
        tensor = stele.open(stele.save({"a": sample(dtype)}, format="stele"))["a"]
        assert jax.result_type(tensor) == tensor.dtype == jax.asarray(tensor).dtype


@pytest.mark.parametrize("dtype", _dtypes.PACKED_6)
def test_the_library_has_no_statistics_of_6_bits(dtype: str) -> None:
    assert stele.open(stele.save({"a": sample(dtype)}, format="stele"))["a"].stats() is None


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_library_rounds_like_ml_dtypes_and_numpy(dtype: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32).view(np.float32)
    numbers = numbers[np.isfinite(numbers) & (np.abs(numbers) < 60000)]
    data = stele.save({"a": numbers}, format="stele", precision=dtype)
    assert equal_bits(stele.open(data)["a"].numpy(), numbers.astype(numpy_dtype(dtype)))


@pytest.mark.parametrize("dtype", ["f4_e2m1", "f6_e2m3", "f6_e3m2"])
def test_packed_floats_are_unpacked_from_the_lowest_bit_on(dtype: str) -> None:
    """docs/formats/stele.md: element i with b bits is bits i * b to i * b + b - 1 of a stream, lowest bit first."""
    width = 4 if dtype == "f4_e2m1" else 6
    count = 1 << width
    stream = sum(i << (i * width) for i in range(count))
    tensor = stele.open(safetensors_file(dtype, [4, count // 4], stream.to_bytes(count * width // 8, "little")))["a"]
    assert (tensor.dtype_name, tensor.shape, tensor.nbytes) == (dtype, (4, count // 4), count * width // 8)
    found = tensor.numpy()
    assert found.dtype == numpy_dtype(dtype)
    expected = np.array([number(dtype, bits) for bits in range(count)]).reshape(4, count // 4)
    np.testing.assert_array_equal(found.astype(np.float64), expected)
    np.testing.assert_array_equal(tensor[1:3, ::-2].astype(np.float64), expected[1:3, ::-2])


@pytest.mark.parametrize(("dtype", "values"), [("i4", range(-8, 8)), ("u4", range(16))])
def test_packed_integers_have_the_lower_half_of_a_byte_first(dtype: str, values: range) -> None:
    array = np.array(values).astype(numpy_dtype(dtype))
    data = stele.save({"a": array}, format="json")
    stored = json.loads(data)
    text = json.dumps(stored)
    assert dtype.upper() in text
    memory = bytearray(8)
    tensor = stele.open(data)["a"]
    tensor.read_into(memory)
    assert bytes(memory) == bytes((values[i] & 15) | (values[i + 1] & 15) << 4 for i in range(0, 16, 2))
    assert tensor.numpy().tolist() == list(values) and tensor.numpy().astype(int).tolist() == list(values)


def onnx_file(code: int, dims: list[int], raw: bytes) -> bytes:
    """Returns an ONNX model with one initializer `a`, written without the library."""
    tensor = b"".join(protobuf(1, dim) for dim in dims) + protobuf(2, code) + protobuf(8, b"a") + protobuf(9, raw)
    graph, opset = protobuf(2, b"g") + protobuf(5, tensor), protobuf(1, b"") + protobuf(2, 21)
    return protobuf(1, 10) + protobuf(7, graph) + protobuf(8, opset)


@pytest.mark.parametrize(("code", "dtype"), [(21, "u4"), (22, "i4"), (23, "f4_e2m1")])
def test_packed_elements_of_onnx_have_the_lower_half_first(code: int, dtype: str) -> None:
    """onnx.proto: "the first element is stored in the 4 least significant bits"; an odd count leaves the rest zero."""
    tensor = stele.open(onnx_file(code, [3, 3], bytes.fromhex("1032547608")))["a"]
    assert (tensor.dtype_name, tensor.shape) == (dtype, (3, 3))
    bits = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    expected = {
        "u4": bits,
        "i4": [*bits[:8], -8],
        "f4_e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0],
    }[dtype]
    assert tensor.numpy().astype(np.float64).ravel().tolist() == expected


@pytest.mark.parametrize("dtype", [*_dtypes.PACKED, *_dtypes.PACKED_6])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (0, 4), (2, 3, 5)], ids=str)
def test_packed_elements_of_any_count_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = sample(dtype, shape)
    tensor = stele.open(stele.save({"a": array}, format="stele"))["a"]
    assert equal_bits(tensor.numpy(), array) and tensor.shape == shape
    width = 4 if dtype in _dtypes.PACKED else 6
    assert tensor.nbytes == (array.size * width + 7) // 8
    if shape and array.size:
        assert equal_bits(tensor[-1], array[-1]) and equal_bits(tensor[..., ::-1], array[..., ::-1])


def test_negative_int4_of_ml_dtypes_are_saved_whatever_their_upper_bits() -> None:
    for raw in (np.array([0x0F, 0xFF, 0x08, 0xF8], np.uint8), np.array([15, -1, 8, -8], np.int8)):
        array = raw.view(ml_dtypes.int4)
        tensor = stele.open(stele.save({"a": array}, format="stele"))["a"]
        assert tensor.numpy().astype(int).tolist() == [-1, -1, -8, -8] == array.astype(int).tolist()


def test_blocks_are_bytes_until_they_are_dequantized(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    stele.save({"a": array}, tmp_path / "a.gguf", precision="q8_0")
    file = stele.open(tmp_path / "a.gguf")
    tensor = file["a"]
    assert (tensor.dtype_name, tensor.shape, tensor.nbytes) == ("q8_0", (4, 64), 4 * 2 * 34)
    raw = tensor.numpy()
    assert raw.dtype == tensor.dtype and raw.dtype.names == ("q8_0",) and raw.nbytes == tensor.nbytes and raw.ndim == 1
    for index in (0, slice(1), (0, 1), ...):
        with pytest.raises(TypeError, match="q8_0"):
            tensor[index]
    with pytest.raises(TypeError, match="q8_0"):
        tensor.read_into(np.empty((4, 64), np.float32))
    memory = bytearray(tensor.nbytes)
    tensor.read_into(memory)
    assert bytes(memory) == raw.tobytes()
    scales = np.frombuffer(raw.tobytes(), [("scale", "<f2"), ("q", "i1", 32)])
    expected = (scales["scale"].astype(np.float32)[:, None] * scales["q"]).reshape(4, 64)
    np.testing.assert_array_equal(stele.transforms.dequantize(file)["a"].numpy(), expected)
    again = stele.open(stele.save(file, format="gguf"))
    assert again["a"].dtype_name == "q8_0" and equal_bits(again["a"].numpy().view("u1"), raw.view("u1"))


WITHOUT = """
import os, sys
sys.modules["ml_dtypes"] = None
import numpy as np, stele

for name in sorted(os.listdir(sys.argv[1])):
    dtype = name.removesuffix(".stele")
    file = stele.open(os.path.join(sys.argv[1], name))
    tensor, array = file["a"], file["a"].numpy()
    assert array.dtype == tensor.dtype and array.dtype.names == (dtype,) and tensor.shape == (4, 6), dtype
    memory = bytearray(tensor.nbytes)
    tensor.read_into(memory)
    assert array.tobytes() == bytes(memory)
    assert np.asarray(tensor).dtype == array.dtype == file.numpy()["a"].dtype
    if dtype.startswith(("bf16", "f8")):
        assert array.shape == (4, 6) and array.dtype.itemsize == (2 if dtype == "bf16" else 1)
        assert tensor[1:, ::2].tobytes() == array[1:, ::2].tobytes() and tensor[1:, ::2].dtype == array.dtype
        for kind in (array, array.T, array[::-1], array[:, ::2], np.asfortranarray(array)):
            found = stele.open(stele.save({"b": kind}, format="stele"))["b"]
            assert (found.dtype_name, found.shape) == (dtype, kind.shape) and found.numpy().tobytes() == kind.tobytes()
        other = np.zeros_like(array)
        tensor.read_into(other)
        assert other.tobytes() == array.tobytes()
    else:
        assert array.shape == (tensor.nbytes,) and array.dtype.itemsize == 1
        for use in (lambda: tensor[0], lambda: stele.save({"b": array}, format="stele")):
            try:
                use()
            except TypeError as error:
                assert dtype in str(error), error
            else:
                raise AssertionError("packed bytes have no elements")
    copied = stele.open(stele.save({"b": tensor}, format="stele"))["b"]
    assert (copied.dtype_name, copied.shape) == (dtype, (4, 6)) and copied.numpy().tobytes() == array.tobytes()
    print(dtype, bytes(memory).hex())
assert sys.modules["ml_dtypes"] is None
"""


def test_without_ml_dtypes_elements_are_raw_in_a_field_of_their_name(tmp_path: Path) -> None:
    names = sorted(name for name in DTYPES if name not in _dtypes.NUMPY)
    for name in names:
        stele.save({"a": sample(name, (4, 6))}, tmp_path / f"{name}.stele", durability="process")
    found = dict(line.split() for line in run_python(WITHOUT, str(tmp_path)).stdout.splitlines())
    assert sorted(found) == names
    for name in _dtypes.ML_DTYPES:
        assert found[name] == sample(name, (4, 6)).tobytes().hex()


def test_the_module_needs_neither_ml_dtypes_nor_torch() -> None:
    run_python(
        """
import sys
sys.modules["ml_dtypes"] = sys.modules["torch"] = None
import numpy as np, stele
stele.open(stele.save({"a": np.ones(2), "b": [1.5, "x"]}, format="stele"))["a"].numpy()
"""
    )


def test_opening_and_saving_numpy_arrays_does_not_import_torch() -> None:
    run_python(
        """
import sys, numpy as np, stele
file = stele.open(stele.save({"a": np.ones(2)}, format="stele"))
np.asarray(file["a"]); np.from_dlpack(file["a"]); file["a"].read_into(np.ones(2)); file._repr_html_()
assert "torch" not in sys.modules
"""
    )


@pytest.mark.parametrize("dtype", _dtypes.ML_DTYPES)
def test_raw_structured_arrays_in_every_order_are_saved(dtype: str) -> None:
    array = sample(dtype, (4, 6))
    code = f"u{array.itemsize}"
    for kind in KINDS:
        expected = array_of_kind(kind, array)
        order = ">" if kind == "big-endian" else "<"
        raw = array_of_kind(kind, array.view(code)).view([(dtype, order + code)])
        assert equal_bits(stele.open(stele.save({"a": raw}, format="stele"))["a"].numpy(), expected), kind
