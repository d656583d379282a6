"""What the schemes share: their registry, the models with seeded weights, and folders of the hub."""
import json
import os

os.environ.setdefault("GPTQMODEL_DISABLE_PACK_EXT", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("LOGURU_LEVEL", "ERROR")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
from safetensors.torch import load_file, save_file

SCHEMES = {}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
FP8 = torch.float8_e4m3fn
OLD = "OLD_COMPRESSED_TENSORS"


def scheme(name, **arguments):
    """Registers a function(folder, **arguments) -> (expected, expected in f32 or None) under a name."""
    def add(function):
        SCHEMES[name] = (function, arguments)
        return function
    return add


def llama_config(hidden=64, inter=192, heads=2, kv=1, layers=1, tied=True, bias=False, dtype=BF16):
    from transformers import LlamaConfig
    return LlamaConfig(vocab_size=48, hidden_size=hidden, intermediate_size=inter, num_hidden_layers=layers,
                       num_attention_heads=heads, num_key_value_heads=kv, head_dim=hidden // heads,
                       max_position_embeddings=128, tie_word_embeddings=tied, attention_bias=bias, dtype=dtype,
                       architectures=["LlamaForCausalLM"])


def fill(name, shape, generator):
    """Weights with what decoders get wrong: a row of zeros, rows of one sign (zero points at both ends), outliers."""
    weight = torch.randn(shape, generator=generator) * 0.05
    if len(shape) >= 2:
        if "q_proj" in name:
            weight[..., 3, :] = 0
        if "k_proj" in name:
            weight[..., 5, :] = weight[..., 5, :].abs() + 0.01
            weight[..., 6, :] = -weight[..., 6, :].abs() - 0.01
        if "up_proj" in name:
            weight[..., ::7, ::11] *= 8
        if "down_proj" in name:
            weight[..., 1, :] *= 2.0 ** -12
            weight[..., 2, :] *= 2.0 ** 8
    elif "norm" in name:
        weight = weight + 1
    return weight


def llama(seed=7, **sizes):
    """A LlamaForCausalLM with seeded weights."""
    from transformers import LlamaForCausalLM
    config = llama_config(**sizes)
    model = LlamaForCausalLM(config).to(config.dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(fill(name, tuple(parameter.shape), generator))
    return model.eval()


def linears(model):
    return [(name, module) for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and not name.endswith("lm_head")]


def state_of(model):
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def write_config(folder, config, quantization=None, key="quantization_config"):
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    path = folder / "config.json"
    content = json.loads(path.read_text())
    if quantization is not None:
        content[key] = quantization
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def save(folder, tensors, metadata=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()},
              folder / "model.safetensors", metadata=metadata or {"format": "pt"})


def read(folder):
    """All tensors of a folder, of all its shards."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def grouped(tensors, suffixes):
    """{module: {suffix: tensor}} of the tensors named MODULE.SUFFIX, and the tensors that remain."""
    modules, rest = {}, {}
    for name, tensor in tensors.items():
        module, _, suffix = name.rpartition(".")
        if suffix in suffixes:
            modules.setdefault(module, {})[suffix] = tensor
        else:
            rest[name] = tensor
    return modules, rest
