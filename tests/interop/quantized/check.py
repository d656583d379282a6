"""Compares stele's numbers of quantized checkpoints with those of the packages that wrote them.

    check.py FOLDER_OF_MAKE STELE [SCHEME...]

Converts each checkpoint of make.py to f32 with the command, and compares every weight bit for bit. Two differences are
allowed, because packages differ in them among themselves: the sign of a zero, and the bits of a NaN. Also converts each
to .stele and back to safetensors with its parts, whose bytes must not change.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open

SOURCE, STELE, NAMES = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]


def tensors_of(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def convert(*arguments):
    subprocess.run([STELE, "convert", "--quiet", *map(str, arguments)], check=True)


def equal(ours, theirs):
    nans = ours.isnan() & theirs.isnan()
    return ours.shape == theirs.shape and bool((nans | (ours == theirs)).all())


def parts_of(folder):
    files = sorted(folder.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in tensors_of(file).items()}


def check(folder, work):
    """Returns the number of weights that are equal, and the names of the others."""
    scheme = folder.name
    source = folder if (folder / "config.json").exists() else folder / "model.safetensors"
    convert(source, work / "f32.safetensors", "--precision", "f32")
    ours = tensors_of(work / "f32.safetensors")
    exact = SOURCE / f"{scheme}.expected_f32.safetensors"
    native = not exact.exists()  # the package cannot calculate in f32
    theirs = tensors_of(SOURCE / f"{scheme}.expected.safetensors" if native else exact)
    different = []
    for name, expected in theirs.items():
        if name not in ours:
            different.append(name)
            continue
        found = ours[name]
        if scheme == "gpt_oss_mxfp4":  # transformers exchanges the last two axes
            expected = expected.transpose(-1, -2)
        if scheme.startswith("comfy"):  # the file has rows of padding
            found = found[: expected.shape[0]]
        if native:
            found = found.to(expected.dtype)
        if not equal(found.float(), expected.float()):
            different.append(name)
    convert(source, work / "parts.stele")
    convert(work / "parts.stele", work / "parts.safetensors")
    before, after = parts_of(folder), tensors_of(work / "parts.safetensors")
    for name in before.keys() | after.keys():
        same = name in before and name in after and before[name].dtype == after[name].dtype
        if not same or not torch.equal(before[name].reshape(-1).view(torch.uint8), after[name].reshape(-1).view(torch.uint8)):
            different.append(f"part {name}")
    return len(theirs), different


failed = weights = 0
for folder in sorted(p for p in SOURCE.iterdir() if p.is_dir() and (not NAMES or p.name in NAMES)):
    with tempfile.TemporaryDirectory() as work:
        count, different = check(folder, Path(work))
    weights += count
    failed += bool(different)
    print(f"{'DIFFERENT' if different else 'equal':9}  {folder.name}  {count} weights  {', '.join(different[:3])}")
print(f"{weights} weights, {failed} checkpoints differ")
sys.exit(1 if failed else 0)
