"""Products of the files of torch.save, by PyTorch."""

import collections
import copy
import math
import sys
import warnings
import zipfile
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
sys.path += [str(HERE / "interop"), str(HERE.parents[1] / "products")]
import comparison  # noqa: E402
import pytorch_dump as dump  # noqa: E402
import pytorch_objects as objects  # noqa: E402

warnings.simplefilter("ignore")
PACKAGES = ["torch"]
PAGES = ["formats/pytorch"]
COMPARED = ["values", "ties", "annotations"]
QUANTIZED = ["qint8", "quint8", "qint32", "qint8 channels", "quint8 real", "quint4x2 real", "quint2x4 real"]
OPAQUE = ["complex32", "bcomplex32", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"]
UNTYPED = ["uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu",
           "float4_e2m1fn_x2", *OPAQUE]  # those of _rebuild_tensor_v3
DIMENSIONS = {
    "dtype": ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64",
              "complex128", *UNTYPED, *QUANTIZED],
    "holder": ["dict", "tensor", "OrderedDict", "list", "tuple", "namedtuple", "integer keys", "nested", "module", "checkpoint",
               "object", "defaultdict"],
    "container": ["zip", "zip deflated", "stream"],
    "protocol": [2, 3, 4, 5],
    "byte order": ["little", "big"],
    "shape": [[3, 5], [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 33],
    "view": ["whole", "transposed", "part", "steps", "expanded", "overlapping", "conj", "neg"],
    "kind": ["tensor", "Parameter", "Parameter with state", "Buffer", "subclass", "requires_grad", "coo", "csr", "nested", "meta",
             "wrapper", "storage"],
    "tie": ["none", "same", "view", "copy"],
    "name": ["weight", "a.b", "a/b", "日本語", "", " x\n", "a\\b", "7", "x" * 300],
    "device": ["cpu", "cuda:1", "mps"],
    "members": [1, 0, 9, 101],
}
NAMELESS = ("tensor", "list", "tuple", "namedtuple", "integer keys")
Pair = collections.namedtuple("Pair", "first second")
SPECIAL = [0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF]


def possible(case):
    dtype, view, kind, holder = case["dtype"], case["view"], case["kind"], case["holder"]
    quantized = dtype in QUANTIZED
    floating = dtype in ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
    rank, size = len(case["shape"]), math.prod(case["shape"])
    rules = [
        holder not in NAMELESS or case["name"] == "weight",
        holder != "tensor" or case["members"] == 1 and case["tie"] == "none",
        holder != "module" or case["name"] not in ("a.b", ""),
        case["members"] or case["tie"] == "none",
        case["container"] != "stream" or case["byte order"] == "little" and dtype not in UNTYPED,  # PyTorch does not read it
        case["byte order"] == "little" or not quantized and dtype not in UNTYPED[:3] + OPAQUE[:2] + ["bits16"],  # PyTorch does not swap them
        view != "conj" or dtype.startswith("complex"),
        view != "neg" or floating or dtype in ("int8", "int64"),
        view not in ("transposed", "steps") or rank >= 2 and size > 1,
        view not in ("part", "expanded", "overlapping") or 1 <= rank < 30 and size > 0,
        kind in ("tensor", "Parameter", "meta") or rank < 30,
        kind not in ("requires_grad",) or floating,
        kind not in ("coo", "csr") or rank == 2 and floating and view == "whole" and size,
        kind not in ("nested",) or rank == 2 and size and dtype == "float32" and view == "whole",
        kind not in ("meta", "wrapper", "storage", "coo", "csr", "nested") or case["tie"] != "view" and not quantized and view in ("whole",),
        kind not in ("coo", "csr", "nested", "meta", "wrapper", "storage") or holder != "module",
        kind not in ("coo", "csr", "nested", "wrapper") or case["name"] != "",  # its members would have the names of its siblings
        kind != "storage" or dtype not in UNTYPED and holder != "tensor",
        not quantized or kind in ("tensor", "Parameter") and case["device"] == "cpu" and size and view in ("whole", "transposed", "part", "steps"),
        "real" not in dtype and "channels" not in dtype or rank == 2 and view == "whole",
        dtype not in ("bcomplex32",) or view == "whole",
        case["tie"] != "copy" or kind in ("tensor", "Parameter", "Buffer", "requires_grad", "coo") and "real" not in dtype,
        case["tie"] != "view" or view in ("whole", "part") and rank < 30 and " " not in dtype,
        size < 100 or case["members"] < 20,
    ]
    return all(rules)


def plain(name, shape, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    dtype = getattr(torch, name)
    width = torch.empty(0, dtype=dtype).element_size()
    count = math.prod(shape) * width
    bits = torch.randint(0, 256, [count], dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    if name == "bool":
        bits &= 1
    if width >= 8 and count >= 48:
        bits[:48] = torch.tensor([part for number in SPECIAL for part in number.to_bytes(8, "little")], dtype=torch.uint8)
    return bits.view(dtype).reshape(shape)


def quantized(name, shape, seed):
    dtype, _, how = name.partition(" ")
    numbers = torch.randint(-9, 90, shape, generator=torch.Generator().manual_seed(seed)).float() / 4
    if not how:
        return torch.quantize_per_tensor(numbers, 0.25, 3, getattr(torch, dtype))
    scales = 2.0 ** -torch.arange(1, shape[1] + 1)
    if how == "channels":
        return torch.quantize_per_channel(numbers, scales.double(), torch.arange(shape[1]), 1, getattr(torch, dtype))
    return torch.quantize_per_channel(numbers, scales[:shape[0]], torch.arange(shape[0]) / 2, 0, getattr(torch, dtype))


def viewed(case, seed):
    """A tensor of the case's shape, by its view."""
    shape, name = case["shape"], case["dtype"]
    make = quantized if name in QUANTIZED else plain
    match case["view"]:
        case "transposed":
            return make(name, shape[::-1], seed).permute(*range(len(shape) - 1, -1, -1))
        case "part":
            return make(name, [shape[0] + 3, *shape[1:]], seed)[2:-1]
        case "steps":
            return make(name, [2 * n for n in shape], seed)[tuple(slice(None, None, 2) for _ in shape)]
        case "expanded":
            return make(name, [1, *shape[1:]], seed).expand(shape)
        case "overlapping":
            return make(name, [sum(shape) + 1], seed).as_strided(shape, [1] * len(shape))
        case "conj" | "neg":
            numbers = make(name, shape, seed)
            if name not in OPAQUE:
                numbers[numbers != numbers] = 1 + 1j if numbers.is_complex() else 1  # PyTorch negates equal NaN and 0 as it likes
            return torch._conj(numbers) if case["view"] == "conj" else torch._neg_view(numbers)
    return make(name, shape, seed)


def member(case, seed):
    tensor = viewed(case, seed)
    match case["kind"]:
        case "Parameter":
            return nn.Parameter(tensor, requires_grad=False)
        case "Parameter with state":
            parameter = nn.Parameter(tensor, requires_grad=False)
            parameter.tag = "tag"
            return parameter
        case "Buffer":
            return nn.parameter.Buffer(tensor)
        case "subclass":
            return tensor.as_subclass(objects.Sub)
        case "requires_grad":
            return tensor.detach().requires_grad_()
        case "coo":
            rows, columns = case["shape"]
            return torch.sparse_coo_tensor([[0, rows - 1, rows - 1], [columns - 1, 0, 0]], plain(case["dtype"], [3], seed), (rows, columns))
        case "csr":
            rows, columns = case["shape"]
            return torch.sparse_csr_tensor([0] + [1] * rows, [columns - 1], plain(case["dtype"], [1], seed), (rows, columns))
        case "nested":
            return torch.nested.nested_tensor([tensor, tensor[:1]])
        case "meta":
            return torch.empty(case["shape"], dtype=getattr(torch, case["dtype"]), device="meta")
        case "wrapper":
            return objects.Wrapper(tensor, torch.arange(2.0))
        case "storage":
            return tensor.storage()
    return tensor


class Net(nn.Module):
    pass


def held(case):
    """The object of the case: its tensors in its holder."""
    members = [member(case, i) for i in range(case["members"])]
    names = [case["name"] + (str(i) if i else "") for i in range(len(members))]
    if case["tie"] != "none":
        one = members[0]
        members.append({"same": lambda: one, "copy": lambda: copy.deepcopy(one), "view": lambda: one.detach()[None]}[case["tie"]]())
        names.append("again")
    named = dict(zip(names, members))
    match case["holder"]:
        case "tensor":
            return members[0]
        case "dict":
            return named
        case "OrderedDict":
            ordered = collections.OrderedDict(named)
            ordered._metadata = collections.OrderedDict({"": {"version": 1}, "norm": {"version": 2}})
            return ordered
        case "list":
            return [*members, 3, None]
        case "tuple":
            return (*members, (1, 2))
        case "namedtuple":
            return Pair(members, "second")
        case "integer keys":
            return dict(enumerate(members)) | {"rate": 0.1, -2: 2**40}
        case "nested":
            return {"first": {"layers": [collections.OrderedDict(named), []], "empty": {}}, "second": {5: (True, [1, 2.5])}}
        case "module":
            net = Net()
            for name, tensor in named.items():
                is_parameter = isinstance(tensor, nn.Parameter)
                (net.register_parameter if is_parameter else net.register_buffer)(name, tensor)
            net.child = nn.Linear(1, 1, bias=False)
            nn.init.ones_(net.child.weight)
            return net
        case "checkpoint":
            net = objects.fill(objects.Mlp())
            optimizer = objects.steps(net, objects.OPTIMIZERS["sgd"](net.parameters()))
            return {"model": collections.OrderedDict(named), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.5}
        case "object":
            return objects.Config(rate=0.5, **{"tensors": named})
    return collections.defaultdict(list, named)


def write(case, path):
    path = path.with_suffix(".pt")
    torch.serialization.location_tag, before = lambda storage: case["device"], torch.serialization.location_tag
    source = torch.serialization.get_source_lines_and_file
    torch.serialization.get_source_lines_and_file = lambda *a: (*source(*a)[:2], "products.py")
    try:
        torch.save(held(case), path, pickle_protocol=case["protocol"], _use_new_zipfile_serialization=case["container"] != "stream")
    finally:
        torch.serialization.location_tag, torch.serialization.get_source_lines_and_file = before, source
    change = None
    if case["byte order"] == "big":
        change = objects.big_endian(collections.defaultdict(lambda: 1) | element_sizes(path))
    if case["byte order"] == "big" or case["container"] == "zip deflated":
        stored = path.rename(path.with_suffix(".stored"))
        objects.rezip(stored, path, zipfile.ZIP_DEFLATED if "deflated" in case["container"] else zipfile.ZIP_STORED, change)
        stored.unlink()
    return path, expected(case, path)


def element_sizes(path):
    """The bytes of a number in each storage of a zip file: what PyTorch swaps on a machine of the other order."""
    dtypes = {}

    class Rebuilt(dump.Opaque):
        def __init__(self, key, offset, size, stride, grad, hooks, dtype, *rest):
            dtypes[key] = dtype

    class Unpickler(dump.Unpickler):
        def persistent_load(self, identity):
            kind, key = identity[1:3]
            dtypes.setdefault(key, getattr(kind, "dtype", torch.uint8))
            return key

        def find_class(self, module, name):
            known = module in ("torch", "collections") and not name.startswith("Size")
            return Rebuilt if name == "_rebuild_tensor_v3" else super().find_class(module, name) if known else dump.stub(module, name)
    with zipfile.ZipFile(path) as file:
        name = next(n for n in file.namelist() if n.endswith("/data.pkl"))
        Unpickler(file.open(name)).load()
    halves = {torch.complex64: 4, torch.complex128: 8}
    return {key: halves.get(dtype) or torch.empty(0, dtype=dtype).element_size() for key, dtype in dtypes.items()}


def array(tensor):
    dtype, shape, data, _ = dump.described(tensor)
    return dtype, shape, data


def contents(path):
    """A file by torch.load: its tensors, values, ties and annotations by stele's names."""
    content = dump.Dump(dump.load(path))
    ties, notes, first = {}, {}, {}
    for name, tensor in content.tensors.items():
        kind, note = getattr(tensor, "stele_class", None), dump.described(tensor)[3]
        notes[name] = {key: value for key, value in (("pytorch.class", kind), ("quantization", note)) if value}
        if dump.described(tensor)[0] == "opaque":
            notes[name]["pytorch.dtype"] = str(tensor.dtype).split(".")[1]
        key = dump.identity(tensor)
        if key and first.setdefault(key, name) != name:
            ties[name] = first[key]
    alone = "" if isinstance(content.keep, dict) else "tensor"
    values = {name or alone: dump.to_value(value) for name, value in content.values.items()}
    return content, {"values": values, "ties": ties, "annotations": {k: v for k, v in notes.items() if v}}


KEPT = {}


def expected(case, path):
    """Classes are lost; negated integers, which no operation of PyTorch makes, are not read."""
    content, metadata = contents(path)
    unread = {name for name, tensor in content.tensors.items() if tensor.is_neg() and not tensor.dtype.is_floating_point and not tensor.is_complex()}
    metadata = {part: {k: v for k, v in names.items() if k not in unread} for part, names in metadata.items()}
    tensors = {name: array(tensor) for name, tensor in content.tensors.items() if name not in unread}
    lossy = "__class__" in str(metadata["values"])
    KEPT[path.name] = skeleton(content.keep), {**metadata, "lossy": lossy or unread}, list(tensors)
    packed = any(note["quantization"]["bits"] < 8 for note in metadata["annotations"].values() if "quantization" in note)
    return comparison.Expected(tensors, unread, **metadata, lossy=lossy and not packed,
                               unwritable="not_representable" if packed else None)


def skeleton(thing):
    """Containers, keys and attributes of a thing of torch.load, as text."""
    if isinstance(thing, dict):
        items = ", ".join(f"{k!r}: {skeleton(v)}" for k, v in thing.items())
        return f"{type(thing).__name__}{{{items}}} {dict(getattr(thing, '_metadata', {}))}"
    if isinstance(thing, (list, tuple)):
        return f"{'list' if isinstance(thing, list) else 'tuple'}({', '.join(map(skeleton, thing))})"
    if isinstance(thing, dump.Parts):
        return skeleton(thing.parts)  # as stele writes it
    if isinstance(thing, (torch.Tensor, dump.STORAGE)):
        return "tensor"
    return repr(thing) if isinstance(thing, (bool, int, float, str, type(None))) else "other"


def read(path):
    """What PyTorch reads of a file of stele; its containers, values and ties are those of the first file."""
    content, metadata = contents(path)
    shape, before, names = KEPT[path.name]
    if before["lossy"]:  # items of lists have other numbers if objects without tensors are lost
        assert len(names) == len(content.tensors), f"{len(content.tensors)} tensors instead of {len(names)}"
        return {name: array(tensor) for name, tensor in zip(names, content.tensors.values())}
    assert "other" in shape or skeleton(content.keep) == shape, f"{skeleton(content.keep)} instead of {shape}"
    for part in ("values", "ties"):
        assert metadata[part] == before[part], f"{part}: {metadata[part]} instead of {before[part]}"
    for name, note in before["annotations"].items():
        after = metadata["annotations"].get(name, {})
        assert {**note, "pytorch.class": 0} == {**after, "pytorch.class": 0}, f"{name}: {after} instead of {note}"
    return {name: array(tensor) for name, tensor in content.tensors.items()}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
