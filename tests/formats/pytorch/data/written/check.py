"""Loads the files of this folder with torch: python3 check.py, after tools/test_data.py unpack"""
import os

import torch

here = os.path.dirname(os.path.abspath(__file__))
new = int(torch.__version__.split(".")[0]) >= 2

tensors = {
    "encoder.weight": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    "encoder.bias": torch.tensor([1.0, 1.0]),
    "steps": torch.tensor(1 << 40),
    "mask": torch.tensor([True, False, True]),
    "decoder.bias": torch.tensor([1.0, 1.0]),
    "decoder.weight": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
}
for how in [{}, {"mmap": True}] if new else [{}]:
    loaded = torch.load(here + "/state_dict.pt", weights_only=True, **how)
    assert list(loaded) == list(tensors), list(loaded)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name
    assert loaded["encoder.weight"].data_ptr() == loaded["decoder.weight"].data_ptr()
    assert loaded.stele_metadata["author"] == "someone"


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = self.decoder = torch.nn.Linear(3, 2)
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("mask", torch.zeros(3, dtype=torch.bool))


Tiny().load_state_dict(loaded, strict=True)

for how in [{"weights_only": True}, {"weights_only": True, "mmap": True}] if new else [{"weights_only": False}]:
    loaded = torch.load(here + "/checkpoint.pt", **how)
    w, b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([w, b])
    optimizer.load_state_dict(loaded["optimizer_state_dict"])
    assert optimizer.param_groups[0]["lr"] == 0.25 and optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    assert optimizer.state[b]["exp_avg"].tolist() == [9.0, 10.0] and optimizer.state[w]["step"].item() == 1
    (w + b).sum().backward()
    optimizer.step()
    assert optimizer.state[w]["step"].item() == 2
    if new:
        fresh = torch.optim.Adam([torch.nn.Parameter(torch.zeros(2))]).state_dict()["param_groups"][0]
        assert list(loaded["optimizer_state_dict"]["param_groups"][0]) == [*fresh, "param_names"]
    assert optimizer.param_groups[0]["param_names"] == ["w", "b"]
    assert (loaded["epoch"], loaded["iteration"]) == (0, 0)
print("torch", torch.__version__, "loads both files")
