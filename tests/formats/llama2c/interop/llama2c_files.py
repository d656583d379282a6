"""Models of llama2.c, written by its export.py: the golden files, and a comparison with what the command reads.

    LLAMA2C=CHECKOUT llama2c_files.py golden FOLDER
    LLAMA2C=CHECKOUT llama2c_files.py check STELE
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

CHECKOUT = Path(os.environ["LLAMA2C"])
sys.path.insert(0, str(CHECKOUT))
import export
import model

# name: (version, shared classifier, dim, key-value heads, group size)
FILES = {"v0": (0, False, 8, 2, 0), "v0-shared": (0, True, 8, 1, 0), "v1": (1, False, 8, 2, 0), "v1-shared": (1, True, 8, 1, 0),
         "v2": (2, False, 32, 2, 16), "v2-shared": (2, True, 32, 1, 32), "v2-rows": (2, False, 32, 2, 32)}


def make(path, version, shared, dim, kv_heads, group):
    """Write a model of two layers, and return its tensors as floats."""
    torch.manual_seed(7)
    # Groups of 32 cross the rows of w2 if the hidden layers have 48 elements.
    arguments = model.ModelArgs(dim=dim, n_layers=2, n_heads=2, n_kv_heads=kv_heads, vocab_size=12,
                                hidden_dim=48 if path.stem == "v2-rows" else 2 * dim, max_seq_len=6)
    net = model.Transformer(arguments)
    if not shared:
        net.output.weight = torch.nn.Parameter(torch.randn_like(net.output.weight))
    tensors = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()
               if not name.endswith("mask")}  # a buffer, with older releases of PyTorch
    if version == 0:
        export.legacy_export(net, path)
        tensors |= {"freqs_cos": net.freqs_cos[:6], "freqs_sin": net.freqs_sin[:6]}
    elif version == 1:
        export.version1_export(net, path)
    else:
        export.version2_export(net, path, group)
        for name, tensor in tensors.items():
            if tensor.dim() == 2:
                codes, scales, _ = export.quantize_q80(tensor, group)
                tensors[name] = (codes.float() * scales[:, None]).view(tensor.shape)
    return tensors


def main() -> int:
    if sys.argv[1] == "golden":
        folder = Path(sys.argv[2])
        with open(folder / "expected.txt", "w", encoding="utf-8") as expected:  # of each tensor: its shape, and the sum
            for name, how in FILES.items():
                for key, tensor in make(folder / f"{name}.bin", *how).items():
                    total = sum(map(float, tensor.flatten()))
                    print(name, key, "x".join(map(str, tensor.shape)), repr(total), file=expected)
        return 0
    stele = sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        for name, how in FILES.items():
            path = Path(folder) / f"{name}.bin"
            expected = make(path, *how)
            subprocess.run([stele, "convert", path, f"{path}.pt", "--quiet"], check=True)
            found = torch.load(f"{path}.pt")
            if name == "v2-rows":  # runq.c does not read such groups: their weights stay codes and scales
                rows = [key for key in expected if key.endswith("w2.weight")]
                for key in rows:
                    codes, scales = found.pop(key), found.pop(key + "_scale")
                    found[key] = (codes.view(-1, how[4]).float() * scales[:, None]).view(codes.shape)
            assert set(found) == set(expected), set(found) ^ set(expected)
            for key, tensor in expected.items():
                assert torch.equal(found[key], tensor), f"{name}: {key}"
            print(f"{name}: {len(found)} tensors are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
