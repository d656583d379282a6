"""Products of LoRA adapters: merge_and_unload() of PEFT. All numbers are small multiples of 1/4, so that sums are exact."""

import os
import shutil
import sys
import warnings
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

warnings.simplefilter("ignore")
PACKAGES = ["peft", "torch"]
DIMENSIONS = {
    "init": [True, False, "gaussian", "orthogonal", "pissa", "olora"],
    "bias": ["none", "all", "lora_only"],
    "lora_bias": [False, True],
    "targets": [["q"], ["q", "up"], ["emb"], ["emb", "up"], ".*(q|up)", ["c"], ["conv"], ["blocks.1.q"]],
    "fan_in_fan_out": [False, True],
    "rank": [1, 4, 16],
    "alpha": [4, 8, 1],
    "rank_pattern": [{}, {"q": 4}, {r"blocks\.\d+\.up": 1}, {"^emb": 4}],
    "alpha_pattern": [{}, {"q": 2}, {r".*\.1\.up": 16}],
    "rsLoRA": [False, True],
    "DoRA": [False, True],
    "modules_to_save": [None, ["norm"], ["head"]],
    "layers_to_transform": [None, [1]],
    "adapter's dtype": ["float32", "bfloat16"],
    "dtype": ["float64", "float32", "float16", "bfloat16"],
}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.up, self.c = torch.nn.Linear(8, 9), torch.nn.Linear(8, 5, bias=False), Conv1D(6, 8)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.blocks = torch.nn.Embedding(7, 8), torch.nn.ModuleList([Block(), Block()])
        self.conv, self.norm, self.head = torch.nn.Conv1d(3, 2, 3), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
        self.config = {"model_type": "own"}


def quarters(tensor, random, most):
    return torch.randint(-most, most + 1, tensor.shape, generator=random).to(tensor.dtype) / 4


def model_of(case):
    model = Model().to(getattr(torch, case["dtype"]))
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(quarters(parameter, random, 8))
    return model


def settings(case):
    layers = (
        {"layers_to_transform": case["layers_to_transform"], "layers_pattern": "blocks"} if case["layers_to_transform"] else {}
    )
    return LoraConfig(
        r=case["rank"],
        lora_alpha=case["alpha"],
        target_modules=case["targets"],
        bias=case["bias"],
        lora_bias=case["lora_bias"],
        fan_in_fan_out=case["fan_in_fan_out"],
        rank_pattern=case["rank_pattern"],
        alpha_pattern=case["alpha_pattern"],
        use_rslora=case["rsLoRA"],
        use_dora=case["DoRA"],
        modules_to_save=case["modules_to_save"],
        init_lora_weights=case["init"],
        **layers,
    )


def possible(case):
    if case["fan_in_fan_out"] != (case["targets"] == ["c"]):  # PEFT corrects it otherwise
        return False
    if case["lora_bias"] and ("up" in case["targets"] or case["targets"] == ".*(q|up)"):  # without a bias
        return False
    if case["layers_to_transform"] and case["targets"] not in (["q"], ["q", "up"], ["c"]):
        return False
    if case["init"] in ("pissa", "olora") and case["dtype"] == "float64":
        return False
    try:
        get_peft_model(model_of(case), settings(case))
    except Exception:
        return False
    return True


def write(case, path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    base = model_of(case)
    save_file(
        {name: tensor.contiguous() for name, tensor in base.state_dict().items()}, path / "base.safetensors", {"format": "pt"}
    )
    torch.manual_seed(1)
    model = get_peft_model(model_of(case), settings(case), autocast_adapter_dtype=False)
    random = checkpoint.generator(case)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.data = quarters(parameter, random, 4).to(getattr(torch, case["adapter's dtype"]))
    model.save_pretrained(path / "adapter")
    (path / "adapter" / "README.md").unlink(missing_ok=True)
    if case["DoRA"] or case["init"] in ("pissa", "olora"):
        return path, comparison.Expected(refused="unsupported")
    if case["targets"] == ["conv"]:
        return path, comparison.Expected(refused="shape_mismatch")
    result = PeftModel.from_pretrained(model_of(case), path / "adapter").merge_and_unload()
    state = {
        name.replace(".modules_to_save.default", ""): tensor
        for name, tensor in result.state_dict().items()
        if "original_module" not in name
    }
    return path, comparison.Expected(
        {name: checkpoint.content(tensor.to(getattr(torch, case["dtype"]))) for name, tensor in state.items()}
    )


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
