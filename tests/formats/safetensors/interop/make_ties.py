"""Writes the golden files with ties that the metadata name: data/ties. Needs torch, safetensors and huggingface_hub."""
import shutil
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import save_model
from torch import nn

FOLDER = Path(__file__).parents[1] / "data" / "ties"


def numbers(*shape, first=0.0):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) + first).reshape(shape)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(3, 2)
        self.body = nn.Linear(2, 2)
        self.head = nn.Linear(2, 3, bias=False)
        self.embed.weight = nn.Parameter(numbers(3, 2))
        self.body.weight = nn.Parameter(numbers(2, 2, first=10))
        self.body.bias = nn.Parameter(numbers(2, first=20))
        self.head.weight = self.embed.weight


shutil.rmtree(FOLDER, ignore_errors=True)
(FOLDER / "sharded").mkdir(parents=True)
save_model(Model(), FOLDER / "model.safetensors", {"format": "pt", "note": "embed", "best": "5"})
save_torch_state_dict(Model().state_dict(), FOLDER / "sharded", max_shard_size=30)
