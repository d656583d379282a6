#!/usr/bin/env python3
"""The Python side of tests/interop/torch.sh.

    check_torch.py make FOLDER     model.safetensors (a state_dict), io.safetensors (an input and the model's output), and
                                   tied.safetensors (by safetensors.torch.save_model)
    check_torch.py check FOLDER    what the C++ side wrote: ours.safetensors and tied-ours.safetensors
"""

import sys

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Linear(4 * 6 * 6, 8), nn.ReLU(), nn.Linear(8, 3))
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.flatten(1)) * self.scale


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.out = nn.Linear(5, 7, bias=False)
        self.out.weight = self.embed.weight


def trained() -> Net:
    torch.manual_seed(7)
    net = Net()
    for _ in range(3):  # so that the running statistics are not the defaults
        net(torch.randn(5, 2, 8, 8))
    return net.eval()


def make(folder: str) -> None:
    net = trained()
    save_file(net.state_dict(), f"{folder}/model.safetensors")
    x = torch.randn(4, 2, 8, 8)
    with torch.no_grad():
        save_file({"x": x, "y": net(x)}, f"{folder}/io.safetensors")
    torch.manual_seed(8)
    save_model(Tied(), f"{folder}/tied.safetensors")


def same(expected, found, what: str) -> None:
    expected, found = dict(expected), dict(found)
    if expected.keys() != found.keys():
        sys.exit(f"{what}: other names: {sorted(expected.keys() ^ found.keys())}")
    for name, tensor in expected.items():
        if tensor.dtype != found[name].dtype or not torch.equal(tensor, found[name]):
            sys.exit(f"{what}: {name} is not the same")


def check(folder: str) -> None:
    net = Net().eval()
    net.load_state_dict(load_file(f"{folder}/ours.safetensors"), strict=True)
    same(load_file(f"{folder}/model.safetensors"), net.state_dict(), "ours.safetensors")
    io = load_file(f"{folder}/io.safetensors")
    with torch.no_grad():
        if not torch.allclose(net(io["x"]), io["y"]):
            sys.exit("ours.safetensors: another output")
    with open(f"{folder}/model.safetensors", "rb") as a, open(f"{folder}/ours.safetensors", "rb") as b:
        if a.read() != b.read():
            sys.exit("ours.safetensors: not the bytes that the reference wrote")

    torch.manual_seed(8)
    expected, tied = Tied(), Tied()
    load_model(tied, f"{folder}/tied-ours.safetensors", strict=True)
    same(expected.state_dict(), tied.state_dict(), "tied-ours.safetensors")
    print(f"torch {torch.__version__}: a state_dict from C++ loads with strict=True, byte for byte the same")


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
