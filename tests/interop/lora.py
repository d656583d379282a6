"""Compares `stele lora merge` and `unmerge` with PEFT's merge_and_unload().

    lora.py STELE        a Python with torch, transformers, peft, safetensors (tried: 2.15, 5.24, 0.21.2, 0.8)

Adapters of a small llama in f32 and bf16: of two ranks, with a pattern of alpha, of the embedding, with a new head
(modules_to_save), and with rslora. PEFT calculates in another order: a weight may differ by two roundings of its dtype.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

STELE = sys.argv[1]
CASES = {
    "plain": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "patterns": dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], rank_pattern={"down_proj": 2},
                     alpha_pattern={"down_proj": 3}),
    "rslora": dict(r=8, lora_alpha=16, target_modules="all-linear", use_rslora=True),
    "embedding": dict(r=4, lora_alpha=4, target_modules=["embed_tokens", "o_proj"]),
    "saved": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["lm_head"]),
}


def lora(*words):
    subprocess.run([STELE, "lora", *map(str, words), "--quiet"], check=True)


def check(name, dtype, work):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, tie_word_embeddings=False, dtype=dtype)
    base = LlamaForCausalLM(config).to(dtype)
    base.save_pretrained(work / "base")
    model = get_peft_model(base, LoraConfig(**CASES[name], init_lora_weights=False))
    if name == "saved":
        torch.nn.init.normal_(model.base_model.model.lm_head.modules_to_save["default"].weight)
    model.save_pretrained(work / "adapter")
    before = load_file(work / "base" / "model.safetensors")
    theirs = model.merge_and_unload().state_dict()
    lora("merge", work / "base", work / "adapter", "-o", work / "merged.safetensors")
    ours = load_file(work / "merged.safetensors")
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    step = torch.finfo(dtype).eps
    worst = 0.0
    for key, expected in theirs.items():
        assert ours[key].dtype == expected.dtype, key
        size = expected.abs().max().item()
        worst = max(worst, (ours[key].double() - expected.double()).abs().max().item() / (size * step))
    assert worst <= 2, (name, dtype, worst)
    changed = sum(not torch.equal(before[key], ours[key]) for key in before)
    lora("unmerge", work / "merged.safetensors", work / "adapter", "-o", work / "back.safetensors")
    back = load_file(work / "back.safetensors")
    for key, expected in before.items():
        if name == "saved" and key == "lm_head.weight":
            continue
        assert (back[key].double() - expected.double()).abs().max() <= 4 * step * max(1, ours[key].abs().max()), key
    print(f"{name}, {dtype}: {changed} weights changed, at most {worst:.2f} roundings from PEFT")


for name in CASES:
    for dtype in torch.float32, torch.bfloat16:
        with tempfile.TemporaryDirectory() as work:
            check(name, dtype, Path(work))
