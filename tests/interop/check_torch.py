#!/usr/bin/env python3
"""The Python side of tests/interop/torch.sh.

    check_torch.py make FOLDER     model.safetensors (a state_dict), io.safetensors (an input and the model's output), and
                                   tied.safetensors (by safetensors.torch.save_model)
                                   model.pth (the same state_dict); for each optimizer a checkpoint after three steps
                                   of training, with the inputs of all steps: adam.pth, …
    check_torch.py check FOLDER    what the C++ side wrote: ours.safetensors, tied-ours.safetensors, ours.pth, and the
                                   checkpoints after two more steps: adam-ours.pth, …
"""

import sys

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

# Version 1.13 takes no float in a file that it loads with weights_only, not even in its own.
SAFE_FLOATS = int(torch.__version__.split(".")[0]) >= 2

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


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.2, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.5),
}


def two_groups(parameters):
    """Groups in another order than the module's: the numbers of a file are those of the groups."""
    conv, *others = parameters
    return torch.optim.SGD([{"params": others}, {"params": [conv], "lr": 0.05}], lr=0.02, momentum=0.9)


def train(net, optimizer, data, steps) -> None:
    net.train()
    for i in steps:
        optimizer.zero_grad()
        (net(data["inputs"][i]) - data["targets"][i]).pow(2).mean().backward()
        optimizer.step()


def make_checkpoint(path: str, optimizer) -> None:
    torch.manual_seed(9)
    net = Net()
    optimizer = optimizer(net.parameters())
    data = {"inputs": torch.randn(7, 5, 2, 8, 8), "targets": torch.randn(7, 5, 3)}
    train(net, optimizer, data, range(3))
    parts = {"epoch": 3, "model_state_dict": net.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
    torch.save({**parts, **data}, path)


def loaded(checkpoint, optimizer):
    net = Net()
    optimizer = optimizer(net.parameters())
    net.load_state_dict(checkpoint["model_state_dict"], strict=True)
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    return net, optimizer


def compare_states(expected, found, what: str) -> None:
    if expected.keys() != found.keys():
        sys.exit(f"{what}: other names: {sorted(expected.keys() ^ found.keys())}")
    for name, tensor in expected.items():
        if not torch.allclose(tensor, found[name], atol=1e-5):
            sys.exit(f"{what}: {name} differs by {(tensor - found[name]).abs().max()}")


def compare_training(expected, found, what: str) -> None:
    """Compares two pairs of a net and its optimizer."""
    (net, optimizer), (our_net, our_optimizer) = expected, found
    compare_states(net.state_dict(), our_net.state_dict(), what)
    groups, our_groups = optimizer.state_dict()["param_groups"], our_optimizer.state_dict()["param_groups"]
    for group, our_group in zip(groups, our_groups, strict=True):
        for key in group:
            if key == "fused" and not group[key] and not our_group[key]:
                continue  # False in 1.13, None since
            if group[key] != our_group[key]:
                sys.exit(f"{what}: {key} is {our_group[key]} instead of {group[key]}")
    state, our_state = optimizer.state_dict()["state"], our_optimizer.state_dict()["state"]
    if state.keys() != our_state.keys():
        sys.exit(f"{what}: the state is of the parameters {our_state.keys()} instead of {state.keys()}")
    for number, kinds in state.items():
        if kinds.keys() != our_state[number].keys():
            sys.exit(f"{what}: the state is {our_state[number].keys()} instead of {kinds.keys()}")
        for kind, tensor in kinds.items():
            ours = our_state[number][kind]
            if not torch.allclose(torch.as_tensor(tensor).double(), torch.as_tensor(ours).double(), atol=1e-5):
                sys.exit(f"{what}: {kind} of parameter {number} differs")


def check_checkpoint(folder: str, name: str) -> None:
    file = torch.load(f"{folder}/{name}.pth")
    expected = loaded(file, OPTIMIZERS[name])
    train(*expected, file, range(3, 5))
    # Other settings, which the file's replace.
    found = loaded(torch.load(f"{folder}/{name}-ours.pth", weights_only=SAFE_FLOATS), lambda p: type(expected[1])(p, lr=1))
    compare_training(expected, found, f"{name}-ours.pth")
    train(*expected, file, range(5, 7))
    train(*found, file, range(5, 7))
    compare_training(expected, found, f"{name}-ours.pth, after two steps")


def make(folder: str) -> None:
    net = trained()
    torch.save(net.state_dict(), f"{folder}/model.pth")
    for name, optimizer in OPTIMIZERS.items():
        make_checkpoint(f"{folder}/{name}.pth", optimizer)
    make_checkpoint(f"{folder}/groups.pth", two_groups)
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
    state = torch.load(f"{folder}/tied-ours.pth", weights_only=True)
    if state["embed.weight"].data_ptr() != state["out.weight"].data_ptr():
        sys.exit("tied-ours.pth: the tensors are not tied")
    tied = Tied()
    tied.load_state_dict(state, strict=True)
    same(expected.state_dict(), tied.state_dict(), "tied-ours.pth")

    net = Net().eval()
    net.load_state_dict(torch.load(f"{folder}/ours.pth", weights_only=True), strict=True)
    same(torch.load(f"{folder}/model.pth"), net.state_dict(), "ours.pth")
    for name in OPTIMIZERS:
        check_checkpoint(folder, name)
    file = torch.load(f"{folder}/groups.pth")
    net, optimizer = loaded(file, two_groups)
    train(net, optimizer, file, range(3, 5))
    ours = torch.load(f"{folder}/groups-ours.pth", weights_only=True)
    compare_states(net.state_dict(), ours, "groups-ours.pth")
    print(f"torch {torch.__version__}: training continues from {len(OPTIMIZERS)} checkpoints of C++")
    print(f"torch {torch.__version__}: a state_dict from C++ loads with strict=True, byte for byte the same")


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
