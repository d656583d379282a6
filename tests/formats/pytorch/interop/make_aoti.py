"""Writes data/aoti.pt2: a package of AOTInductor with its weights beside the library, which is left out, as are sources.

Needs PyTorch 2.15 and g++. The numbers of each tensor are 0, 1, 2, ... plus ten times its place in the state dict.
"""
import tempfile
import zipfile
from pathlib import Path

import torch
import torch.export
from torch import nn
from torch._inductor import aoti_compile_and_package

DATA = Path(__file__).parents[1] / "data"


def numbers(*shape, first):
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) + first).reshape(shape)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(numbers(4, 3, first=0))
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed  # a tie
        self.register_buffer("turned", self.embed.detach().t())  # strides [1, 3]
        self.register_buffer("whole", numbers(6, 3, first=20))
        self.register_buffer("part", self.whole[2:5])
        self.bias = nn.Parameter(numbers(4, first=30))

    def forward(self, x):
        y = self.head(x) + self.bias + x @ self.embed.t()
        return y.sum() + (x @ self.turned).sum() + (x @ self.part).sum() + self.whole.sum()


program = torch.export.export(Model().eval(), (torch.ones(2, 3),))
with tempfile.TemporaryDirectory() as folder:
    made = aoti_compile_and_package(program, package_path=folder + "/aoti.pt2", inductor_configs={
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "pickle_weights"})
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(DATA / "aoti.pt2", "w") as out:
        for entry in source.infolist():
            if not entry.filename.endswith((".so", ".cpp")):
                out.writestr(zipfile.ZipInfo(entry.filename), source.read(entry))
for name, tensor in Model().state_dict().items():
    print(name, tuple(tensor.shape), tensor.stride(), tensor.flatten().tolist())
