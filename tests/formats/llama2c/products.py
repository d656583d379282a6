"""Products of llama2.c's models, written by its export.py and read by its run.c and runq.c.

    LLAMA2C=CHECKOUT products.py STELE FOLDER
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).parent
CHECKOUT = Path(os.environ["LLAMA2C"])
sys.path += [str(CHECKOUT), str(HERE.parents[1] / "products")]
import comparison  # noqa: E402
import export  # noqa: E402
import model  # noqa: E402

PACKAGES = ["torch"]
PAGES = ["formats/llama2c"]
COMPARED = ["metadata", "ties"]
DECODED = True
FILES = 24
DIMENSIONS = {
    "version": [0, 1, 2],
    "classifier": ["shared", "own"],
    "dim": [8, 2, 32, 96],
    "hidden_dim": [24, 1, 48, 64],
    "n_layers": [1, 2, 11],
    "n_heads": [1, 2, 4],
    "n_kv_heads": [1, 2, 4],
    "vocab_size": [12, 1, 7],
    "max_seq_len": [6, 1, 5],
    "group_size": [64, 32, 2],
    "elements": ["normal", "bits", "zeros"],
}


def groups(case):
    """Return the size of a group, which export.py halves until it divides dim."""
    size = case["group_size"]
    while case["dim"] % size:
        size //= 2
    return size


def possible(case):
    if case["dim"] % (2 * case["n_heads"]) or case["n_heads"] % case["n_kv_heads"]:
        return False
    if case["version"] != 2:
        return case["group_size"] == 64
    return case["elements"] != "bits" and case["dim"] * case["hidden_dim"] % groups(case) == 0


def net_of(case):
    torch.manual_seed(7)
    net = model.Transformer(model.ModelArgs(**{name: case[name] for name in ("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size",
                                                                             "hidden_dim", "max_seq_len")}))
    if case["classifier"] == "own":
        net.output.weight = torch.nn.Parameter(torch.randn_like(net.output.weight))
    with torch.no_grad():
        for parameter in net.parameters():
            if case["elements"] == "bits":  # NaN with payloads, infinities, denormals
                parameter.view(torch.int32).copy_(torch.randint(-2**31, 2**31, parameter.shape, dtype=torch.int32))
            elif case["elements"] == "zeros":
                parameter[:1] = 0  # groups of zeros have the scale 0
            elif parameter.dim() == 1:
                parameter.copy_(torch.randn(parameter.shape))
    return net


def write(case, path):
    path = path.with_suffix(".bin")
    net = net_of(case)
    with contextlib.redirect_stdout(io.StringIO()):
        match case["version"]:
            case 0:
                export.legacy_export(net, path)
            case 1:
                export.version1_export(net, path)
            case 2:
                export.version2_export(net, path, case["group_size"])
    return path, expected(case, path, net)


PROGRAMS = tempfile.TemporaryDirectory()


def program(quantized):
    path = Path(PROGRAMS.name) / str(quantized)
    if not path.exists():
        subprocess.run(["gcc", "-O1", "-w", *(["-DQUANTIZED"] if quantized else []), "-I", CHECKOUT, "-o", path,
                        HERE / "interop" / "llama2c_weights.c", "-lm"], check=True)
    return path


def read_by_program(path, quantized):
    """Return {name: bytes}, as run.c or runq.c reads them."""
    dump = path.with_suffix(".dump")
    subprocess.run([program(quantized), path, dump], check=True)
    data, found = dump.read_bytes(), {}
    dump.unlink()
    while data:
        line, _, data = data.partition(b"\n")
        name, count = line.decode().split()
        found[name], data = data[:4 * int(count)], data[4 * int(count):]
    return found


def serialized(tensor):
    """Return the bytes that export.py writes: numbers of Python, which makes NaN quiet."""
    file = io.BytesIO()
    export.serialize_fp32(file, tensor)
    return file.getvalue()


def expected(case, path, net):
    """What the programs read; no program reads version 1, and groups that cross rows: codes and scales stay apart."""
    weights = {name: tensor for name, tensor in net.state_dict().items() if not name.endswith("mask")}
    if case["version"] == 1:
        found = {name: serialized(tensor) for name, tensor in weights.items()}
    else:
        found = read_by_program(path, case["version"] == 2)
    tensors = {name: ("f32", list(weights[name].shape), data) for name, data in found.items()}
    for name in weights if case["version"] == 2 else []:
        if weights[name].dim() == 2 and weights[name].shape[1] % groups(case) and weights[name].numel() > groups(case):
            codes, scales, _ = export.quantize_q80(weights[name], groups(case))
            tensors[name] = ("i8", list(weights[name].shape), codes.numpy().tobytes())
            tensors[f"{name}_scale"] = scales.numpy()
    if case["version"] == 0:  # run.c skips them
        tensors |= {name: getattr(net, name)[:case["max_seq_len"]].numpy() for name in ("freqs_cos", "freqs_sin")}
    # export.py compares the elements: NaN differ, and two equal classifiers are shared.
    shared = torch.equal(net.tok_embeddings.weight, net.output.weight)
    numbers = {name: case[name] for name in ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len")}
    numbers |= {"version": case["version"], "shared_classifier": shared} | ({"group_size": groups(case)} if case["version"] == 2 else {})
    return comparison.Expected(tensors, ties={"output.weight": "tok_embeddings.weight"} if shared else {},
                               metadata={f"llama2c.{name}": value for name, value in numbers.items()})


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
