#!/usr/bin/env python3
"""Compare the tensors of a GGUF file, as gguf-py reads them, with those of a safetensors file.

    gguf_check.py FILE.gguf FILE.safetensors [--metadata FILE.json]

Both must have the same names and shapes. A tensor that is float32 in the safetensors file is compared with the decoded
values, others as they are stored. Values must be the same, bit for bit, but that -0 is 0 and any NaN is NaN. Of a split
set name the first file. --metadata: the keys in that file (see gguf_files.py) must have these types and values.
Prints what differs; the exit status is 1 then.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import quants
from safetensors import safe_open


def readers(path):
    match = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path.name)
    if not match:
        return [gguf.GGUFReader(path)]
    return [gguf.GGUFReader(path.with_name(f"{match[1]}-{i + 1:05}-of-{match[2]}.gguf")) for i in range(int(match[2]))]


def decoded(tensor):
    if tensor.data.dtype == np.uint8:
        return quants.dequantize(tensor.data, tensor.tensor_type)
    return tensor.data.astype(np.float32)


def stored(tensor):
    return tensor.data.astype(tensor.data.dtype.newbyteorder("="))


def difference(ours, theirs):
    """None, or what differs, in words."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, wants {theirs.shape}"
    if ours.dtype != theirs.dtype:
        return f"type {ours.dtype}, wants {theirs.dtype}"
    different = ~((ours == theirs) | ((ours != ours) & (theirs != theirs)))
    if not different.any():
        return None
    where = tuple(int(i) for i in np.argwhere(different)[0])
    return f"{int(different.sum())} of {ours.size} values, first at {where}: {ours[where]!r}, wants {theirs[where]!r}"


def check_metadata(reader, wanted):
    for key, (kind, *rest) in wanted.items():
        field = reader.get_field(key)
        if field is None:
            yield f"{key}: missing"
            continue
        kinds = [kind, *rest[:-1]]
        found, value = [kind.name.lower() for kind in field.types], field.contents()
        if found != kinds:
            yield f"{key}: type {found}, wants {kinds}"
        elif value != rest[-1]:
            yield f"{key}: {value!r:.200}, wants {rest[-1]!r:.200}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf", type=Path)
    parser.add_argument("safetensors", type=Path)
    parser.add_argument("--metadata", type=Path)
    options = parser.parse_args()
    files = readers(options.gguf)
    tensors = {}
    faults = []
    for tensor in (tensor for file in files for tensor in file.tensors):
        if tensor.name in tensors:
            faults.append(f"{tensor.name}: twice")
        tensors[tensor.name] = tensor
    with safe_open(options.safetensors, "np") as wanted:
        names = set(wanted.keys())
        faults += [f"{name}: missing" for name in sorted(names - tensors.keys())]
        faults += [f"{name}: not wanted" for name in sorted(tensors.keys() - names)]
        for name in sorted(names & tensors.keys()):
            theirs = wanted.get_tensor(name)
            with np.errstate(all="ignore"):
                ours = decoded(tensors[name]) if theirs.dtype == np.float32 else stored(tensors[name])
            if fault := difference(ours, theirs):
                faults.append(f"{name} ({tensors[name].tensor_type.name}): {fault}")
    if options.metadata:
        faults += check_metadata(files[0], json.loads(options.metadata.read_text(encoding="utf-8")))
    for fault in faults:
        print(f"{options.gguf.name}: {fault}")
    if not faults:
        print(f"{options.gguf.name}: {len(tensors)} tensors agree")
    sys.exit(1 if faults else 0)


main()
