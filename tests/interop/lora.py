"""Compares `stele lora merge` and `unmerge` with PEFT: PeftModel.from_pretrained() and merge_and_unload().

    lora.py STELE [CASE...]    a Python with torch, transformers, peft, safetensors (tried: 2.15, 5.24, 0.21.2, 0.8)

Every case is a kind of adapter and a small model; the model is read as a folder of the hub, and where no config.json is
needed also as one file of safetensors and as a state dict of PyTorch. PEFT calculates in another order: a weight may
differ by two roundings of its dtype. Cases of REFUSED must be an error that names the key. Every key of PEFT's
LoraConfig must be known.
"""

import dataclasses
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.config import MontecloraConfig, VeloraConfig
from safetensors.torch import load_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, Qwen2Config,
                          Qwen2ForCausalLM)
from transformers.utils import logging as transformers_logging

STELE = sys.argv[1]
F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
SIZES = dict(vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=32, pad_token_id=0)


class Square(torch.nn.Module):
    """A model of square layers with biases, an embedding that is the head, a convolution and a norm."""

    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(24, 16)
        self.q, self.v = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.up = torch.nn.Linear(16, 20)
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 24, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.norm(self.v(self.q(self.emb(x)))))


def llama(**more):
    return lambda: LlamaForCausalLM(LlamaConfig(**SIZES, **more))


def qwen():  # with biases, and a head that is the embedding
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=2, vocab_size=50, n_positions=16, n_inner=24, bos_token_id=0,
                                      eos_token_id=0))


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
Q = dict(r=4, lora_alpha=8, target_modules=["q_proj"])
SQUARE = dict(r=4, lora_alpha=8, target_modules=["q", "v"])
# name: the model, the adapter, the dtypes
CASES = {
    "plain": (llama(tie_word_embeddings=False), dict(r=4, lora_alpha=8, target_modules=ALL), (F64, F32, F16, BF16)),
    "patterns": (llama(), dict(r=4, lora_alpha=8, target_modules=ALL, rank_pattern={"q_proj": 2, r".*layers\.1\.mlp\.up_proj": 7},
                               alpha_pattern={"q_proj": 5, r"layers\.\d+\.mlp\.down_proj": 3, "proj": 9, r"^model\.layers\.1\.mlp\.up_proj": 11}), (F32,)),
    "rslora": (llama(), dict(r=9, lora_alpha=16, target_modules="all-linear", use_rslora=True), (F32, BF16)),
    "layers": (llama(), dict(**Q, layers_to_transform=[1], layers_pattern="layers"), (F32,)),
    "velora": (llama(), dict(**Q, velora_config=VeloraConfig(num_groups=4, init_type="random")), (F32,)),
    "monteclora": (llama(), dict(**Q, monteclora_config=MontecloraConfig()), (F32,)),
    "excluded": (llama(), dict(r=4, lora_alpha=8, target_modules=r".*(q|down)_proj", exclude_modules=["layers.0.self_attn.q_proj"]), (F32,)),
    "initialized": (llama(), dict(**Q, init_lora_weights="orthogonal"), (F32,)),
    "mica": (llama(), dict(**Q, init_lora_weights="mica"), (F32,)),
    "embedding": (llama(), dict(r=4, lora_alpha=4, target_modules=["embed_tokens", "o_proj"]), (F32, BF16)),
    "embedding_tied": (qwen, dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "q_proj"]), (F32,)),
    "head_tied": (qwen, dict(r=4, lora_alpha=8, target_modules=["lm_head", "q_proj"]), (F32,)),
    "both_tied": (qwen, dict(r=4, lora_alpha=8, target_modules=["lm_head", "embed_tokens"]), (F32,)),
    "both_kept_tied": (qwen, dict(r=4, lora_alpha=8, target_modules=["lm_head", "embed_tokens"], ensure_weight_tying=True), (F32,)),
    "saved": (llama(tie_word_embeddings=False), dict(**Q, modules_to_save=["lm_head"]), (F32, BF16)),
    "saved_norms": (llama(), dict(**Q, modules_to_save=["norm", "input_layernorm"]), (F32,)),
    "saved_head_tied": (qwen, dict(**Q, modules_to_save=["lm_head"]), (F32, BF16)),
    "saved_embedding_tied": (qwen, dict(**Q, modules_to_save=["embed_tokens"]), (F32, BF16)),
    "saved_both_tied": (qwen, dict(**Q, modules_to_save=["embed_tokens", "lm_head"]), (F32,)),
    "saved_kept_tied": (qwen, dict(**Q, modules_to_save=["embed_tokens"], ensure_weight_tying=True), (F32,)),
    "saved_head_and_matrices": (qwen, dict(r=4, lora_alpha=8, target_modules=["embed_tokens"], modules_to_save=["lm_head"]), (F32,)),
    "classifier": (lambda: LlamaForSequenceClassification(LlamaConfig(**SIZES)), dict(**Q, task_type="SEQ_CLS"), (F32,)),
    "bias_all": (qwen, dict(**Q, bias="all"), (F32, BF16)),
    "bias_of_lora": (qwen, dict(**Q, bias="lora_only"), (F32,)),
    "lora_bias": (qwen, dict(**Q, lora_bias=True), (F32, BF16)),
    "tokens": (llama(tie_word_embeddings=False), dict(**Q, trainable_token_indices=[5, 3, 47]), (F32, BF16)),
    "tokens_tied": (qwen, dict(**Q, trainable_token_indices={"embed_tokens": [7, 0]}), (F32,)),
    "conv1d": (gpt2, dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True), (F32, BF16)),
    "conv1d_and_linear": (gpt2, dict(r=4, lora_alpha=8, target_modules=["c_proj", "lm_head"]), (F32,)),
    "square": (Square, SQUARE, (F32,)),
    "square_biases": (Square, dict(**SQUARE, bias="all"), (F32, BF16)),
    "square_head": (Square, dict(**SQUARE, modules_to_save=["head"]), (F32,)),
    "square_embedding": (Square, dict(**SQUARE, modules_to_save=["emb"]), (F32,)),
}
# name: the model, the adapter, the key of the error
REFUSED = {
    "dora": (llama(), dict(**Q, use_dora=True), "use_dora"),
    "pissa": (llama(), dict(**Q, init_lora_weights="pissa"), "init_lora_weights"),
    "pissa_niter": (llama(), dict(**Q, init_lora_weights="pissa_niter_4"), "init_lora_weights"),
    "olora": (llama(), dict(**Q, init_lora_weights="olora"), "init_lora_weights"),
    "parameters": (llama(), dict(**Q, target_parameters=["mlp.gate_proj.weight"]), "target_parameters"),
    "replicated": (llama(), dict(**Q, layer_replication=[[0, 2], [0, 2]]), "layer_replication"),
}
# Cases of models whose safetensors file leaves out the head: config.json has the tie.
NEEDS_CONFIG = {"head_tied", "both_tied", "both_kept_tied", "saved_embedding_tied", "saved_kept_tied", "conv1d_and_linear"}


def stele(*words, status=0):
    done = subprocess.run([STELE, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stderr


def save_base(make, dtype, work):
    torch.manual_seed(1)
    model = make().to(dtype)
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(work / "base")
        return lambda: type(model).from_pretrained(work / "base", dtype=dtype)
    torch.save(model.state_dict(), work / "base.pt")

    def load():
        again = make().to(dtype)
        again.load_state_dict(torch.load(work / "base.pt"))
        return again
    return load


def train(load, settings, work):
    """Write an adapter whose tensors are no longer those of its initialization."""
    model = get_peft_model(load(), LoraConfig(**settings))
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(work / "adapter")


def bases(name, load, work):
    """Return the model in the forms that it is read in. The state dict has a tie as such."""
    if (work / "base").exists():
        torch.save(load().state_dict(), work / "base.pt")
    forms = [work / "base", work / "base.pt"] + ([] if name in NEEDS_CONFIG else [work / "base" / "model.safetensors"])
    return [form for form in forms if form.exists()]


def ties(state):
    """Return {name: the first name of the same tensor}."""
    first, tied = {}, {}
    for key, tensor in state.items():
        other = first.setdefault((tensor.data_ptr(), tensor.shape), key)
        if other != key:
            tied[key] = other
    return tied


def distance(ours, theirs):
    """Return the largest distance of a weight, in roundings of the largest number."""
    worst = 0.0
    tied = ties(theirs)
    for key, expected in theirs.items():
        if key not in ours and key in tied:
            key = tied[key]
        found = ours[key]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
        scale = expected.abs().max().item() * torch.finfo(expected.dtype).eps
        worst = max(worst, (found.double() - expected.double()).abs().max().item() / max(scale, 1e-30))
    assert ours.keys() <= theirs.keys(), ours.keys() - theirs.keys()
    return worst


def check(name, dtype, work):
    make, settings, _ = CASES[name]
    load = save_base(make, dtype, work)
    train(load, settings, work)
    theirs = PeftModel.from_pretrained(load(), work / "adapter").merge_and_unload().state_dict()
    for base in bases(name, load, work):
        folder = base.is_dir()
        out = work / ("merged" if folder else "merged.safetensors")
        notes = stele("lora", "merge", base, work / "adapter", "-o", out)
        file = out / "model.safetensors" if folder else out
        worst = distance(load_file(file), theirs)
        assert worst <= 2, (name, dtype, base.name, worst)
        if folder and "no longer tied" in notes:
            assert not json.loads((out / "config.json").read_text())["tie_word_embeddings"]
        back = work / "back.safetensors"
        kept = stele("lora", "unmerge", out, work / "adapter", "-o", back)
        before = torch.load(base) if base.suffix == ".pt" else load_file(base / "model.safetensors" if folder else base)
        after = load_file(back)
        for key, expected in before.items():
            if f"{key}: the adapter replaced" not in kept and key in after:
                limit = 4 * torch.finfo(dtype).eps * max(1, expected.abs().max(), after[key].abs().max())
                assert (after[key].double() - expected.double()).abs().max() <= limit, (name, key)
        print(f"{name}, {dtype}, {base.name}: at most {worst:.2f} roundings from PEFT")
        for path in (out, back):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def check_refused(name, work):
    make, settings, key = REFUSED[name]
    train(save_base(make, F32, work), settings, work)
    error = stele("lora", "merge", work / "base", work / "adapter", "-o", work / "merged", status=2)
    assert f" {key}: " in error, error
    print(f"{name}: {error.strip()}")


def check_keys(work):
    """Each key that PEFT writes is known; one that it does not know is not."""
    from safetensors.torch import save_file
    adapter = work / "adapter"
    adapter.mkdir()
    save_file({"q.weight": torch.ones(2, 2)}, work / "base.safetensors")
    save_file({"base_model.model.q.lora_A.weight": torch.ones(1, 2), "base_model.model.q.lora_B.weight": torch.ones(2, 1)},
              adapter / "adapter_model.safetensors")
    LoraConfig().save_pretrained(adapter)
    words = ("lora", "merge", work / "base.safetensors", adapter, "-o", work / "x.safetensors")
    stele(*words)
    plain = json.loads((adapter / "adapter_config.json").read_text())
    for key in [field.name for field in dataclasses.fields(LoraConfig)] + ["unheard_of"]:
        (adapter / "adapter_config.json").write_text(json.dumps(plain | {key: {"odd": 1}}))
        done = subprocess.run([STELE, *map(str, words)], capture_output=True, text=True)
        assert ("unknown key" in done.stderr) == (key == "unheard_of"), (key, done.stderr)
    print(f"{len(dataclasses.fields(LoraConfig))} keys of LoraConfig are known")


def run(what, *arguments):
    with tempfile.TemporaryDirectory() as work:
        what(*arguments, Path(work))


warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()
wanted = sys.argv[2:] or ["keys", *CASES, *REFUSED]
for case in wanted:
    if case == "keys":
        run(check_keys)
    elif case in REFUSED:
        run(check_refused, case)
    else:
        for kind in CASES[case][2]:
            run(check, case, kind)
