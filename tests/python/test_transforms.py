"""stele.transforms: an opened file from opened files, without reading elements."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEST_DATA, equal_bits, sample
from hypothesis import given
from hypothesis import strategies as st

import stele
from stele import transforms

TENSORS = {
    "enc.0.w": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "enc.0.b": sample("bf16", (5,)),
    "dec.w": np.arange(12, dtype=np.int16).reshape(3, 4),
}


@pytest.fixture
def file(tmp_path: Path) -> stele.File:
    stele.save(TENSORS, tmp_path / "a.safetensors", metadata={"k": "v"}, values={"dec.step": 3})
    return stele.open(tmp_path / "a.safetensors")


def equal(file: stele.File, expected: dict[str, Any]) -> bool:
    """Returns True if a file has these tensors: lazily, by parts, and saved."""
    saved = stele.open(stele.save(file, format="stele"))
    return sorted(file) == sorted(expected) == sorted(saved) and all(
        equal_bits(file[name].numpy(), array)
        and equal_bits(file[name][...], array)
        and equal_bits(saved[name].numpy(), array)
        and (array.ndim == 0 or equal_bits(file[name][::-2], array[::-2]))
        for name, array in expected.items()
    )


def test_filter(file: stele.File) -> None:
    assert equal(transforms.filter(file, "enc.*"), {name: TENSORS[name] for name in ("enc.0.w", "enc.0.b")})
    assert equal(transforms.filter(file, ["*.w"], "dec*"), {"enc.0.w": TENSORS["enc.0.w"]})
    assert equal(transforms.filter(file, exclude=["*.w"]), {"enc.0.b": TENSORS["enc.0.b"]})
    assert list(transforms.filter(file)) == list(file)
    with pytest.raises(KeyError, match="word"):
        transforms.filter(file, "word")


def test_rename(file: stele.File) -> None:
    renamed = transforms.rename(file, {r"^enc\.(\d+)": r"layers.\1", "w$": "weight"})
    assert equal(
        renamed,
        {"layers.0.weight": TENSORS["enc.0.w"], "layers.0.b": TENSORS["enc.0.b"], "dec.weight": TENSORS["dec.w"]},
    )
    with pytest.raises(ValueError, match="x"):
        transforms.rename(file, {".*w": "x", ".*b": "x"})
    with pytest.raises(ValueError, match=r"\("):
        transforms.rename(file, {"(": "x"})
    with pytest.raises(ValueError):
        transforms.rename(file, {"enc": r"\7"})


def test_part_and_prefix(file: stele.File) -> None:
    part = transforms.part(file, "enc.0")
    assert equal(part, {"w": TENSORS["enc.0.w"], "b": TENSORS["enc.0.b"]})
    assert equal(transforms.with_prefix(part, "m.enc"), {"m.enc.w": TENSORS["enc.0.w"], "m.enc.b": TENSORS["enc.0.b"]})
    assert transforms.part(file, "dec").values["step"] == 3
    with pytest.raises(KeyError):
        transforms.part(file, "word")


def test_transpose_and_reshape(file: stele.File) -> None:
    turned = transforms.transpose(file, "*.w")
    assert equal(turned, {**TENSORS, "enc.0.w": TENSORS["enc.0.w"].T, "dec.w": TENSORS["dec.w"].T})
    turned = transforms.transpose(file, "enc.0.w", (1, 2, 0))
    assert equal(turned, {**TENSORS, "enc.0.w": TENSORS["enc.0.w"].transpose(1, 2, 0)})
    assert equal(transforms.reshape(file, "dec.w", [2, 6]), {**TENSORS, "dec.w": TENSORS["dec.w"].reshape(2, 6)})
    for work in (
        lambda: transforms.transpose(file, "dec.w", [0, 0]),
        lambda: transforms.transpose(file, "dec.w", [2, 0]),
        lambda: transforms.reshape(file, "dec.w", [5]),
    ):
        with pytest.raises(ValueError, match=r"dec\.w"):
            work()
    with pytest.raises(KeyError):
        transforms.transpose(file, "word")


@given(st.permutations([0, 1, 2]), st.tuples(*[st.integers(1, 4)] * 3), st.sampled_from(["f4", "i2", "c8", "u1"]))
def test_any_transposition_equals_that_of_numpy(axes: list[int], shape: tuple[int, ...], dtype: str) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    file = stele.open(stele.save({"a": array}, format="safetensors"))
    assert equal(transforms.transpose(file, "a", axes), {"a": array.transpose(axes)})


def test_merge_and_overlay(file: stele.File) -> None:
    other = stele.open(stele.save({"dec.w": np.ones(2), "new": np.ones(1)}, format="stele"))
    with pytest.raises(ValueError, match=r"dec\.w"):
        transforms.merge([file, other])
    assert equal(transforms.overlay([file, other]), {**TENSORS, "dec.w": np.ones(2), "new": np.ones(1)})
    third = stele.open(stele.save({"z": np.ones(1)}, format="stele"))
    assert equal(transforms.merge([other, third]), {"dec.w": np.ones(2), "new": np.ones(1), "z": np.ones(1)})
    assert len(transforms.merge([])) == 0


def test_precision(file: stele.File) -> None:
    half = transforms.precision(file, "f16")
    assert {name: tensor.dtype_name for name, tensor in half.items()} == {"enc.0.w": "f16", "enc.0.b": "f16", "dec.w": "i16"}
    assert equal_bits(half["enc.0.w"].numpy(), TENSORS["enc.0.w"].astype(np.float16))
    some = transforms.precision(file, "f64", "enc.0.w")
    assert (some["enc.0.w"].dtype_name, some["enc.0.b"].dtype_name) == ("f64", "bf16")
    big = stele.open(stele.save({"a": np.float32([1e30])}, format="stele"))
    with pytest.raises(ValueError, match="a"):
        transforms.precision(big, "f16")["a"].numpy()
    assert np.isinf(transforms.precision(big, "f16", allow_overflow=True)["a"].numpy()).all()
    with pytest.raises(ValueError):
        transforms.precision(file, "f17")
    matrix = stele.open(stele.save({"m": np.ones((2, 64), np.float32), "v": np.ones(3, np.float32)}, format="stele"))
    blocks = transforms.precision(matrix, "q8_0")
    assert (blocks["m"].dtype_name, blocks["v"].dtype_name) == ("q8_0", "f32")
    np.testing.assert_allclose(transforms.dequantize(blocks)["m"].numpy(), np.ones((2, 64)), atol=1e-3)
    llama = {"blk.0.ffn_up.weight": np.ones((2, 256), np.float32), "blk.0.attn_norm.weight": np.ones(256, np.float32)}
    mixed = transforms.precision(stele.open(stele.save(llama, format="stele")), "Q4_K_M")
    assert [tensor.dtype_name for tensor in mixed.values()] == ["q4_K", "f32"]


def test_tensors_of_another_dtype_have_rows(tmp_path: Path) -> None:
    path = tmp_path / "narrow.stele"
    stele.save({"m": np.ones((2, 96), np.float32)}, path)
    for precision, kept in (("q4_K", ["m"]), ("q8_0", []), ("f16", [])):
        made = transforms.precision(stele.open(path), precision)
        assert stele.save(made, tmp_path / "a.gguf").paths("kept") == kept
        for dry_run in (True, False):
            report = stele.convert(path, tmp_path / "b.gguf", precision=precision, dry_run=dry_run)
            assert report.paths("kept") == kept


def test_quantize_and_dequantize(file: stele.File) -> None:
    quantized, report = transforms.quantize(file, 8, "enc.0.w")
    assert report.paths("quantized") == ["enc.0.w"]
    assert quantized["enc.0.w"].dtype_name in ("u8", "i8") and quantized["enc.0.w"].annotations
    back = transforms.dequantize(quantized)
    assert back["enc.0.w"].dtype_name == "f32"
    assert np.abs(back["enc.0.w"].numpy() - TENSORS["enc.0.w"]).max() <= 23 / 255
    saved = stele.open(stele.save(quantized, format="stele"))
    assert saved["enc.0.w"].annotations == quantized["enc.0.w"].annotations
    copied = stele.open(stele.save({"x": saved["enc.0.w"], "y": np.ones(1)}, format="stele"))
    assert copied["x"].annotations == saved["enc.0.w"].annotations
    for bits in (1, 9, -1):
        with pytest.raises((ValueError, TypeError)):
            transforms.quantize(file, bits)


def test_adapt_needs_class_names_and_knows_pytorch(file: stele.File) -> None:
    with pytest.raises(ValueError, match="types"):
        transforms.adapt(file)
    with pytest.raises(ValueError, match="word"):
        transforms.adapt(file, "word")


@pytest.mark.parametrize("name", ["kinds", "names", "one"])
def test_adapt_is_that_of_convert(name: str, tmp_path: Path) -> None:
    path = TEST_DATA / "evolution" / "data" / f"{name}.stele"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    try:
        stele.convert(path, tmp_path / "a.stele", adapt="pytorch")
    except stele.Error as error:
        with pytest.raises(type(error)) as raised:
            transforms.adapt(stele.open(path))
        assert raised.value.code == error.code
        return
    found = transforms.adapt(stele.open(path))
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: tensor.shape for name, tensor in stele.open(tmp_path / "a.stele").items()
    }


def test_results_keep_what_they_read_from_and_the_rest_of_the_file(file: stele.File) -> None:
    result = transforms.with_prefix(transforms.filter(file, "enc.*"), "m")
    assert result.path is None and result.metadata == {"k": "v"} and "in memory" in repr(result)
    del file
    gc.collect()
    assert equal_bits(result["m.enc.0.w"].numpy(), TENSORS["enc.0.w"])


def test_a_closed_file_or_another_object_is_an_error(file: stele.File) -> None:
    for wrong in (None, {"a": np.ones(1)}, "a.safetensors"):
        with pytest.raises((TypeError, AttributeError)):
            transforms.filter(wrong)  # type: ignore[arg-type]
    file.close()
    with pytest.raises(ValueError, match="closed"):
        transforms.merge([file])


def test_a_lora_adapter_is_merged_and_taken_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weight, a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 4), (2, 4), (6, 2)))
    stele.save({"q.weight": weight}, tmp_path / "m.safetensors")
    (tmp_path / "adapter").mkdir()
    tensors = {"base_model.model.q.lora_A.weight": a, "base_model.model.q.lora_B.weight": b}
    stele.save(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(FileNotFoundError):
        stele.transforms.merge_lora(stele.open(tmp_path / "m.safetensors"),
                                    stele.open(tmp_path / "adapter" / "adapter_model.safetensors"))
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA", "lora_alpha": 6, "r": 2, "bias": "none"}')
    model, adapter = stele.open(tmp_path / "m.safetensors"), stele.open(tmp_path / "adapter")
    merged = stele.transforms.merge_lora(model, adapter)
    assert np.allclose(merged["q.weight"].numpy(), weight + 3 * b @ a, rtol=1e-6, atol=1e-6)
    assert np.array_equal(merged["q.weight"][2:4, 1:], merged["q.weight"].numpy()[2:4, 1:])
    back = stele.transforms.merge_lora(merged, adapter, {"lora_alpha": 6}, subtract=True)
    assert np.allclose(back["q.weight"].numpy(), weight, rtol=1e-5, atol=1e-6)
    with pytest.raises(stele.FormatError):
        stele.transforms.merge_lora(model, adapter, {})


def test_the_class_of_a_layer_with_a_square_weight(tmp_path):
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    a, b = np.float32([[1, 3]]), np.float32([[10], [20]])
    stele.save({"q.weight": weight, "q.bias": np.zeros(2, np.float32), "up.weight": np.zeros((2, 3), np.float32),
                "up.bias": np.zeros(3, np.float32)}, tmp_path / "m.safetensors")
    stele.save({"base_model.model.q.lora_A.weight": a, "base_model.model.q.lora_B.weight": b}, tmp_path / "a.safetensors")
    model, adapter = stele.open(tmp_path / "m.safetensors"), stele.open(tmp_path / "a.safetensors")
    with pytest.raises(stele.FormatError, match="name the layer in conv1d or linear"):
        stele.transforms.merge_lora(model, adapter, {"lora_alpha": 1})
    for options, product in (({"conv1d": "q"}, (b @ a).T), ({"linear": ["*"]}, b @ a)):
        merged = stele.transforms.merge_lora(model, adapter, {"lora_alpha": 1}, **options)
        assert np.array_equal(merged["q.weight"].numpy(), weight + product)
