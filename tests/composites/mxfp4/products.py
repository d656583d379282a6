"""Products of gpt-oss's MXFP4: transformers decodes."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["transformers", "torch"]
DIMENSIONS = {
    "stack": [1, 3, 9],
    "shape": [[1, 32], [2, 64], [7, 96], [33, 32], [64, 160]],
    "exponents": ["middle", "ends"],
    "bias": [False, True],
    "layer": ["model.layers.0.mlp.experts.gate_up_proj", "experts.down_proj", "x", "層.0.a/b"],
    "place": ["config.json", "text_config", "absent"],
    "files": checkpoint.FILES,
}


def write(case, path):
    random = checkpoint.generator(case)
    rows, columns = case["shape"]
    lead = [case["stack"], rows, columns // 32]
    low, high = {"middle": (100, 150), "ends": (0, 254)}[case["exponents"]]
    tensors = {
        case["layer"] + "_blocks": checkpoint.bits([*lead, 16], torch.uint8, random),
        case["layer"] + "_scales": torch.randint(low, high, lead, generator=random, dtype=torch.uint8),
        "norm.weight": torch.ones(3),
    }
    if case["bias"]:
        tensors[case["layer"] + "_bias"] = torch.ones(lead[:2], dtype=torch.bfloat16)
    config = {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"], "quant_method": "mxfp4"}
    checkpoint.write(path, case, tensors, config, case["place"], shards=case["files"] == "shards", model="gpt_oss")
    return path, comparison.Expected(content(case, tensors))


def content(case, tensors):
    tensors, name = dict(tensors), case["layer"]
    blocks, exponents = tensors.pop(name + "_blocks"), tensors.pop(name + "_scales")
    decoded = convert_moe_packed_tensors(blocks, exponents, dtype=torch.float32).transpose(1, 2)  # as the rows are stored
    return {name: checkpoint.plain(decoded)} | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
