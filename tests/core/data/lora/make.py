"""Writes the folders beside this script: a model, an adapter of PEFT, and what merge_and_unload() makes of them.

    make.py    a Python with torch, transformers, peft, safetensors (made with 2.15, 5.24, 0.21.2, 0.8)
"""

import json
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).parent


class Model(torch.nn.Module):
    """Square layers with biases, and an embedding that is the head."""

    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(6, 4)
        self.q, self.v, self.up = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 5)
        self.norm = torch.nn.LayerNorm(4)
        self.head = torch.nn.Linear(4, 6, bias=False)
        self.head.weight = self.emb.weight


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_embd=4, n_layer=1, n_head=1, vocab_size=6, n_positions=2, n_inner=4, bos_token_id=0, eos_token_id=0))


Q = dict(r=2, lora_alpha=4, target_modules=["q", "v"])
CASES = {
    "bias_all": (Model, dict(**Q, bias="all"), torch.float32),
    "lora_bias": (Model, dict(**Q, lora_bias=True), torch.bfloat16),
    "saved_head": (Model, dict(**Q, modules_to_save=["head"]), torch.float32),
    "saved_embedding": (Model, dict(**Q, modules_to_save=["emb", "norm"]), torch.bfloat16),
    "tied_embedding": (Model, dict(r=2, lora_alpha=4, target_modules=["emb"]), torch.float32),
    "tokens": (Model, dict(**Q, trainable_token_indices={"emb": [5, 0]}), torch.float32),
    "patterns": (Model, dict(r=2, lora_alpha=4, target_modules=["q", "v", "up"], alpha_pattern={"u.": 3, "[qu]p?": 5}), torch.float32),
    "conv1d_and_linear": (gpt2, dict(r=2, lora_alpha=4, target_modules=["attn.c_proj", "c_attn", "lm_head"]), torch.float32),
}


def main():
    for name, (make, settings, dtype) in CASES.items():
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        torch.manual_seed(1)
        base = make().to(dtype)
        torch.save(base.state_dict(), folder / "base.pt")
        model = get_peft_model(base, LoraConfig(**settings))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.5)
        model.save_pretrained(folder)
        (folder / "README.md").unlink()
        again = make().to(dtype)
        again.load_state_dict(torch.load(folder / "base.pt"))
        merged = PeftModel.from_pretrained(again, folder).merge_and_unload().state_dict()
        save_file({key: tensor.clone() for key, tensor in merged.items()}, folder / "expect.safetensors")
        config = json.loads((folder / "adapter_config.json").read_text())
        assert config["peft_version"].startswith("0.21.2")


if __name__ == "__main__":
    main()
