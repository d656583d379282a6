"""Folders of the Hugging Face hub, and weights in the schemes of quantized checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stele

SCHEMES = ["fp8", "int4", "int4:32", "int8", "nvfp4", "mxfp4", "mxfp8", "gptq", "awq", "nf4"]


def folder(path: Path) -> Path:
    path.mkdir()
    numbers = np.random.default_rng(1).standard_normal((128, 256)).astype(np.float16)
    stele.save({"fc": {"weight": numbers, "bias": np.zeros(128, np.float16)}}, path / "model.safetensors")
    (path / "config.json").write_text('{"dtype": "float16"}')
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantized_and_back(scheme: str, tmp_path: Path) -> None:
    model = folder(tmp_path / "model")
    report = stele.convert(model, tmp_path / "small", quantize=scheme)
    assert [row.path for row in report if row.what == "quantized"] == ["fc.weight"]
    assert (tmp_path / "small" / "tokenizer.json").read_text() == "{}"
    with stele.open(model) as before, stele.open(tmp_path / "small") as after:
        assert after.format == "hub"
        weight = after["fc.weight"]
        assert weight.composite is not None
        error = np.abs(weight.numpy() - before["fc.weight"].numpy().astype(np.float32)).max()
        assert 0 < error < 0.7
        # From the opened file, to a file and to bytes.
        stele.save(before, tmp_path / "again.safetensors", quantize=scheme)
        with stele.open(tmp_path / "again.safetensors") as again:
            assert np.array_equal(again["fc.weight"].numpy(), weight.numpy())
        report = stele.save(after, tmp_path / "plain", format="hub", precision="f16")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert config == {"dtype": "float16"}


def test_wrong_schemes(tmp_path: Path) -> None:
    for wrong in ("int5", "int4:7", "nvfp4:32", "9"):
        with pytest.raises(stele.Error):
            stele.save({"a": {"weight": np.zeros((8, 128), np.float32)}}, tmp_path / "m.safetensors", quantize=wrong)
    with pytest.raises(stele.Error):
        stele.save({"a": {"weight": np.zeros((8, 128), np.float32)}}, tmp_path / "m.gguf", quantize="int4")
    assert not list(tmp_path.iterdir())
