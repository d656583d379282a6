"""What interop_pytorch wrote, loaded by PyTorch: `pytorch_files.py check-ours FOLDER`.

Every NAME.ours.pt is loaded with weights_only=True (1.13: see load()), and with mmap=True where PyTorch has it, and must have the tensors
of NAME.expected bit for bit, the same values, ties and containers. Models and optimizers load their states strictly and
take a further step, with the same result as from PyTorch's own file.
"""

import pickle

import torch

import pytorch_dump as dump
import pytorch_models as models
import pytorch_objects as objects
from pytorch_files import OLD, skeleton


class Findings:
    def __init__(self):
        self.count, self.ok, self.left_out = 0, 0, []

    def same(self, what, found, expected):
        if found == expected:
            return True
        self.count += 1
        expected, found = str(expected), str(found)
        at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
        start = at - 60 if at > 120 else 0
        print(f"FAIL  {what}: expected {expected[start:start + 300]}, found {found[start:start + 300]}")
        return False


def ways():
    yield "weights_only", dict(weights_only=True)
    if not OLD:
        yield "mmap", dict(weights_only=True, mmap=True)


def parsed(lines, data):
    """Returns the tensors, values and ties of lines as dicts."""
    tensors, values, ties = {}, {}, {}
    for line in lines:
        parts = line.split(" ")
        if parts[0] == "T":
            _, path, dtype, shape, offset, size, tie, note, _ = parts
            tensors[path] = dtype, shape, data[int(offset):int(offset) + int(size)], note
            if tie != "-":
                ties.setdefault(tie, set()).add(path)
        elif parts[0] == "V":
            values[parts[1]] = parts[2]
    return tensors, values, sorted(map(sorted, ties.values()))


def compare(findings, what, thing, base):
    expected = parsed(base.with_suffix(".expected").read_text().splitlines(), base.with_suffix(".bytes").read_bytes())
    found = parsed(*dump.lines_of(dump.Dump(thing)))
    for kind, theirs, ours in zip(("tensor", "value"), expected, found):
        for path in sorted(theirs.keys() | ours.keys()):
            findings.same(f"{what}: {kind} {path}", ours.get(path), theirs.get(path))
    findings.same(f"{what}: ties", found[2], expected[2])
    findings.same(f"{what}: containers", skeleton(thing), base.with_suffix(".skeleton").read_text())


def converted(findings, what, thing, original, dtype):
    for (path, ours), theirs in zip(dump.Dump(thing).tensors.items(), dump.Dump(original).tensors.values()):
        wanted = theirs.to(dtype) if theirs.is_floating_point() else theirs
        findings.same(f"{what}: {path}", (ours.dtype, torch.equal(ours, wanted)), (wanted.dtype, True))


def bits(tensor):
    return dump.described(tensor)[:3]


def step_after(name, kind, content):
    """Loads a checkpoint strictly, takes a step and returns every tensor of the model and its optimizer."""
    torch.manual_seed(1)
    model = models.MODELS[name]()
    model.load_state_dict(content["model_state_dict"], strict=True)
    optimizer = objects.OPTIMIZERS[kind](model.parameters())
    optimizer.load_state_dict(content["optimizer_state_dict"])
    torch.manual_seed(2)
    output = model(model.batch())
    (output * torch.linspace(-1, 1, output.numel()).reshape(output.shape)).mean().backward()
    optimizer.step()
    tensors = {f"model {k}": bits(v) for k, v in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            tensors[f"{number} {key}"] = float(value) if key == "step" else bits(value)
    return tensors, [{key: value for key, value in group.items() if key != "param_names"}
                     for group in optimizer.state_dict()["param_groups"]]


def check_checkpoint(findings, what, ours, theirs):
    name, kind = what.split(".")[0].split("_")[:2]
    if name not in models.MODELS:
        return
    for number, state in theirs["optimizer_state_dict"]["state"].items():
        found = ours["optimizer_state_dict"]["state"].get(number, {})
        findings.same(f"{what}: state {number}", sorted(found), sorted(state))
        for key, value in state.items():
            known = found.get(key, "missing")
            if key == "step":  # a number or a tensor, by the version of PyTorch
                known, value = float(known), float(value)
            tensors = isinstance(value, torch.Tensor) and isinstance(known, torch.Tensor)
            findings.same(f"{what}: state {number} {key}", bits(known) if tensors else repr(known),
                          bits(value) if tensors else repr(value))
    findings.same(f"{what}: containers of the model", skeleton(ours["model_state_dict"]), skeleton(theirs["model_state_dict"]))
    groups = theirs["optimizer_state_dict"]["param_groups"], ours["optimizer_state_dict"]["param_groups"]
    for their_group, our_group in zip(*groups):
        for key in sorted((their_group.keys() | our_group.keys()) - {"param_names"}):  # that stele adds
            findings.same(f"{what}: group {key}", our_group.get(key, "missing"), their_group.get(key, "missing"))
    findings.same(f"{what}: a step later", step_after(name, kind, ours) == step_after(name, kind, theirs), True)


def check_model(findings, what, ours):
    model = models.MODELS[what]()
    model.load_state_dict(ours, strict=True)
    if hasattr(model, "head"):
        findings.same(f"{what}: tied", model.head.weight is model.embed.weight, True)
        findings.same(f"{what}: tied in the file", ours["head.weight"].data_ptr(), ours["embed.weight"].data_ptr())


def counted(shape, dtype=torch.float32):
    n = 1
    for extent in shape:
        n *= extent
    k = torch.arange(n)
    return (k % 2 if dtype == torch.bool else k % 7).to(dtype).reshape(shape)


def check_own(findings, name, ours):
    def equal(path, tensor):
        findings.same(f"own_{name}: {path}", bits(ours[path]), bits(tensor))

    if name == "zero":
        findings.same("own_zero", dict(ours), {})
    elif name == "mlp":
        model = objects.Mlp()
        model.load_state_dict(ours, strict=True)
        for path, tensor in model.state_dict().items():
            equal(path, counted(tensor.shape))
    elif name == "many":
        findings.same("own_many: names", list(ours), [f"layers.{i}" for i in range(10000)])
        for i in range(10000):
            equal(f"layers.{i}", counted((i % 5,)))
    elif name == "tied":
        findings.same("own_tied: names", sorted(ours), ["embed", "head", "other"])
        for path in ours:
            equal(path, counted((7, 5)))
        findings.same("own_tied: tied", ours["embed"].data_ptr() == ours["head"].data_ptr(), True)
        findings.same("own_tied: not tied", ours["embed"].data_ptr() == ours["other"].data_ptr(), False)
    elif name == "dtypes":
        names = {"f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i16": torch.int16,
                 "i8": torch.int8, "u8": torch.uint8, "boolean": torch.bool, "c64": torch.complex64, "u64": torch.uint64}
        for path, dtype in names.items():
            equal(path, counted((2, 5), dtype))
        equal("scalar", counted(()))
        equal("empty", counted((2, 0, 3)))
    else:
        findings.same(f"own_{name}", "unknown", "known")


def load(findings, path, base, options):
    """Loads a file of stele's. PyTorch 1.13 refuses every float and quantized tensor with weights_only, in its own files
    as well: a file is then loaded without, if PyTorch's own is refused for the same reason."""
    try:
        return torch.load(path, **options)
    except pickle.UnpicklingError as error:
        reason = str(error)
    try:
        torch.load(f"{base}.pt", **options)
        known = "no error"
    except pickle.UnpicklingError as error:
        known = str(error)
    findings.same(f"{path.name}: refused", reason, known if OLD else "no error")
    return torch.load(path, weights_only=False)


def check_file(findings, path, options):
    stem = path.name[:-len(".ours.pt")]
    base = path.parent / stem.split(".")[0]
    ours = load(findings, path, base, options)
    if stem.startswith("own_"):
        return check_own(findings, stem[4:], ours)
    if stem.endswith((".half", ".double")):
        dtype = torch.float16 if stem.endswith(".half") else torch.float64
        return converted(findings, stem, ours, dump.load(f"{base}.pt"), dtype)
    if not stem.endswith(".checkpoint"):
        compare(findings, stem, ours, base)
    if stem in models.MODELS:
        check_model(findings, stem, ours)
    if "checkpoint" in base.with_suffix(".write").read_text():
        check_checkpoint(findings, stem, ours, dump.load(f"{base}.pt"))


def has_new_dtypes(path):
    """True if the file has dtypes that PyTorch 1.13 lacks."""
    with objects.zipfile.ZipFile(path) as archive:
        return any(b"_rebuild_tensor_v3" in archive.read(n) for n in archive.namelist() if n.endswith("data.pkl"))


def check(folder):
    findings = Findings()
    files = sorted(folder.glob("*.ours.pt"))
    for path in files:
        if OLD and has_new_dtypes(path):
            findings.left_out.append(path.name)
            continue
        for way, options in ways():
            try:
                check_file(findings, path, options)
            except Exception as error:  # what PyTorch says of our file
                findings.same(f"{path.name}, {way}", f"{type(error).__name__}: {error}", "no error")
    if findings.left_out:
        print(f"left out, for their dtypes: {' '.join(findings.left_out)}")
    print(f"PyTorch {torch.__version__}: {len(files)} files that stele wrote, {findings.count} findings")
    return 1 if findings.count or not files else 0
