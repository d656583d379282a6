"""What the products of quantization schemes share: checkpoints of random codes, and where their configuration is.

The bits of all codes are random, so that each occurs; scales are floats of both signs, with 0, denormals and the extremes.
A scheme's own program lays the parts out and decodes them, in f32 as stele does.
"""

import json
import shutil

import comparison
import numpy as np
import torch
from safetensors.torch import load_file, save_file


torch.set_num_threads(1)

PLACES = ["config.json", "text_config", "quantize_config.json", "both"]
LAYERS = ["model.layers.0.mlp.up_proj", "fc", "層.0.a/b", "model..x"]
FILES = ["one", "shards"]
OF = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.float8_e4m3fn: "f8_e4m3fn",
    torch.float8_e5m2: "f8_e5m2",
    torch.float8_e8m0fnu: "f8_e8m0",
    torch.bool: "bool",
    torch.int16: "i16",
    torch.uint32: "u32",
}
CASES = {}  # the names of checkpoints -> their cases


def generator(case):
    """Return random numbers that depend on the case alone."""
    seed = int.from_bytes(json.dumps(case, sort_keys=True).encode(), "little") % (2**63 - 25)
    return torch.Generator().manual_seed(seed)


def bits(shape, dtype, random):
    """Return elements of random bits."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = int(np.prod(shape))
    return torch.randint(0, 256, (count * size,), generator=random, dtype=torch.uint8).view(dtype).reshape(shape)


def scales(shape, dtype, random, positive=False):
    """Return scales: most near 0.05, and among the first 0, the least denormal, and (unless positive) negative numbers."""
    numbers = torch.randn(shape, generator=random) * 0.05
    if positive:
        numbers = numbers.abs()
    flat = numbers.to(dtype).reshape(-1)
    if flat.numel() > 4:
        flat[1] = 0
        flat[2] = torch.finfo(dtype).smallest_normal
        flat[3] = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # the least denormal
    return flat.reshape(shape)


def content(tensor):
    """Return (dtype of stele, shape, bytes)."""
    tensor = tensor.detach().contiguous()
    return OF[tensor.dtype], list(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def plain(tensor, signs=None):
    """Return a decoded weight in f32; the NaN of float8_e4m3fn, 7FF00000 in torch, with stele's bits.

    Packages differ among themselves in the sign of a zero. With `signs`, a zero has the sign of its code, as in stele.
    """
    if signs is not None:
        tensor = torch.where(tensor == 0, torch.copysign(tensor, signs), tensor)
    assert tensor.dtype == torch.float32, tensor.dtype
    words = tensor.detach().contiguous().view(torch.int32)
    return content(torch.where(words & 0x7FFFFFFF == 0x7FF00000, words & ~0x300000, words).view(torch.float32))


def write(
    path, case, tensors, config, place="config.json", metadata=None, key="quantization_config", shards=False, model="llama"
):
    """Write a folder of the hub, of one file or of two shards, to which the parts of a weight are dealt in turn."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    CASES[path.name] = case
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    metadata = metadata or {"format": "pt"}
    if shards:
        names = sorted(tensors)
        where = {name: f"model-{i % 2 + 1:05}-of-00002.safetensors" for i, name in enumerate(names)}
        for file in sorted(set(where.values())):
            save_file({name: tensors[name] for name in names if where[name] == file}, path / file, metadata)
        index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(tensors, path / "model.safetensors", metadata)
    whole = {"model_type": model}
    if place in ("config.json", "both"):
        whole[key] = config
    if place == "text_config":
        whole = {"model_type": "llava", "text_config": {"model_type": model, key: config}}
    if place in ("quantize_config.json", "both"):
        (path / "quantize_config.json").write_text(json.dumps(config))
    if place != "absent":
        (path / "config.json").write_text(json.dumps(whole))
    return path


def tensors_of(path):
    """Return the tensors of all files of a folder."""
    tensors = {}
    path = path.parent if path.is_file() else path
    for file in sorted(path.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def case_of(path):
    return CASES[path.parent.name if path.is_file() else path.name]


def target(path):
    """The folder to which stele copies a checkpoint; a file in it, if there is no configuration that makes it a model."""
    folder = path.parent / "back" / path.name
    folder.mkdir(parents=True, exist_ok=True)
    if (path / "config.json").exists():
        folder.rmdir()
        return folder
    return folder / "model.safetensors"


def main(product):
    """Run the product of a scheme. Its content(case, tensors) also decodes what stele writes, unless it has a read()."""
    product.PAGES = ["guide/quantized-checkpoints"]
    product.DECODED = True
    product.COMPARED = []
    product.FILES = 16
    if hasattr(product, "content") and not hasattr(product, "read"):
        product.read = lambda path: product.content(case_of(path), tensors_of(path))
    product.target = target
    comparison.main(product)
