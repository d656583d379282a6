"""Cuts the checkpoints of make.py to one layer each, as the golden files of tests/core/composites_test.cpp.

    cut.py IN_DIR OUT_DIR

Keeps the parts of the smallest weight of each checkpoint, and the configuration: SCHEME/model.safetensors,
SCHEME/config.json. expected.txt has a line for each: scheme, weight, shape, and the FNV-1a hash of the numbers that the
package decodes, as little-endian f32, with every zero as +0 and every NaN as 7FC00000 (packages differ in both).
"""

import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

SOURCE, TARGET = Path(sys.argv[1]), Path(sys.argv[2])


def tensors_of(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}


def module_of(weight):
    return weight.removesuffix(".weight")


def fnv1a(numbers):
    numbers = torch.where(numbers.isnan(), torch.tensor(float("nan")), numbers + 0.0)
    hash = 0xCBF29CE484222325
    for byte in numbers.contiguous().numpy().tobytes():
        hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{hash:016x}"


# The same layouts with other sizes or flags.
LEFT_OUT = {"awq_group128_untied", "bnb_int8_untied_f16", "bnb_nf4_f32_bias", "ct_fp8_channel_sharded", "ct_mxfp4_f32",
            "fp8_block_untied_2layers", "fp8_block_32x64", "gptq4_channel", "hqq_1_axis1", "hqq_2_axis0", "hqq_8_axis0",
            "mlx_4_group32_untied", "mlx_4_f16", "mlx_5", "mlx_6", "torchao_int8_dynamic", "torchao_float8_dynamic",
            "ct_pack4_actorder_weight", "ct_mixed", "ct_nvfp4a16"}
# Weights other than the smallest.
WEIGHTS = {"ct_mixed_block": "model.layers.0.mlp.up_proj.weight", "auto_round_mixed": "model.layers.0.mlp.down_proj.weight"}
lines = []
for folder in sorted(p for p in SOURCE.iterdir() if p.is_dir()):
    exact = SOURCE / f"{folder.name}.expected_f32.safetensors"
    if not exact.exists() or folder.name in LEFT_OUT:
        continue
    numbers, _ = tensors_of(exact)
    weight = WEIGHTS.get(folder.name) or min(numbers, key=lambda name: (numbers[name].numel(), name))
    parts, metadata = {}, {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors, found = tensors_of(file)
        module = module_of(weight)
        parts |= {n: t for n, t in tensors.items() if n == module or n.startswith((module + ".", module + "_"))}
        metadata |= {k: v for k, v in found.items() if k == weight or not v.startswith('{"_type"')}
    metadata.pop("tensor_names", None)
    out = TARGET / folder.name
    out.mkdir(parents=True, exist_ok=True)
    save_file({n: t.contiguous() for n, t in parts.items()}, out / "model.safetensors", metadata or None)
    if (folder / "config.json").exists():
        config = json.loads((folder / "config.json").read_text())
        kept = {key: config[key] for key in ("quantization_config", "quantization") if key in config}
        kept.get("quantization_config", {}).pop("meta", None)
        if config.get("model_type") == "gpt2":
            kept["model_type"] = "gpt2"  # its weights are transposed
        (out / "config.json").write_text(json.dumps(kept) + "\n")
    if folder.name == "gpt_oss_mxfp4":  # transformers exchanges the last two axes
        numbers[weight] = numbers[weight].transpose(1, 2)
    shape = "x".join(map(str, numbers[weight].shape))
    lines.append(f"{folder.name} {weight} {shape} {fnv1a(numbers[weight])}\n")
(TARGET / "expected.txt").write_text("".join(lines))
