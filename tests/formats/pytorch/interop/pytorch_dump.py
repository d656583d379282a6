"""What a file of PyTorch contains, as text that pytorch.cpp compares without a pickle reader.

NAME.expected has a line for each tensor and value, blanks between the parts; strings and paths are percent-coded
(everything but letters, digits, - _ and . of ASCII):

    file NAME                     the file or folder; first
    only tensors                  the file may have other values beside the tensors, and more names of them
    T PATH DTYPE SHAPE OFFSET SIZE TIE QUANTIZATION CLASS
    V PATH VALUE

DTYPE is stele's name, SHAPE 2x3 or -. The row-major, little-endian bytes are in NAME.bytes. Tensors with the same
elements have the same TIE, a number; others -. QUANTIZATION is a value or -, CLASS that of a subclass or -.

    null true false 5 f3ff0000000000000 s"text" b00ff [5,5] {"key":5}

is how values read: an f has the bits of a double, a b has bytes, a map has the order of its items; QUANTIZATION is
sorted by its keys.
"""

import _compat_pickle
import collections
import pickle
import struct
import types
import warnings

import torch

try:
    import numpy
except ImportError:
    numpy = None

NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
         "int16": "i16", "int8": "i8", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "bool",
         "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2",
         "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz", "float8_e8m0fnu": "f8_e8m0",
         "float4_e2m1fn_x2": "f4_e2m1"}
REAL = {"torch._utils", "torch._tensor", "torch.storage", "torch.nn.parameter", "_codecs", "numpy", "numpy.core.multiarray",
        "numpy._core.multiarray", "torch.serialization", "torch.jit._pickle"}


STORAGE = torch.storage.TypedStorage


class Opaque:
    """An object of a class that nobody imports."""
    name = None

    def __new__(cls, *args):
        self = object.__new__(cls)
        self.args, self.state, self.items, self.entries = args, None, [], {}
        return self

    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        self.state = state

    def append(self, item):
        self.items.append(item)

    def extend(self, items):
        self.items += items

    def __setitem__(self, key, value):
        self.entries[key] = value


class Parts:
    """A tensor in parts: sparse or nested."""

    def __init__(self, layout, parts):
        self.parts = {"layout": layout, **parts}


def sparse(layout, data):
    layout = layout if isinstance(layout, str) else str(layout)
    names = ("indices", "values", "size", "is_coalesced") if layout == "torch.sparse_coo" else \
        ("compressed_indices", "plain_indices", "values", "size")
    return Parts(layout, dict(zip(names, data)))


def nested(*data):
    return Parts("torch.nested", dict(zip(("values", "sizes", "strides", "offsets"), data)))


def stub(module, name):
    """Returns a class that stands for a name which nobody imports."""
    return type(name, (Opaque,), {"name": f"{module}.{name}" if module != "builtins" else name})


WRAPPER = stub("torch._utils", "_rebuild_wrapper_subclass")  # has no elements: its tensors are in its state
META = stub("torch._utils", "_rebuild_meta_tensor_no_storage")  # has no elements at all


def from_type(function, type_, args, state):
    if function is WRAPPER:
        return stub("torch._tensor", "_rebuild_from_type_v2")(function, type_, args, state)
    tensor = function(*args)
    if isinstance(type_, type) and issubclass(type_, Opaque):
        tensor.stele_class = type_.name
    return tensor


OVERRIDES = {"_rebuild_sparse_tensor": sparse, "_rebuild_sparse_csr_tensor": sparse, "_rebuild_nested_tensor": nested, "_rebuild_from_type_v2": from_type,
             "_rebuild_wrapper_subclass": WRAPPER, "_rebuild_meta_tensor_no_storage": META}


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        module, name = _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))
        if name in OVERRIDES and module.startswith("torch."):
            return OVERRIDES[name]
        if (module, name) in (("collections", "OrderedDict"), ("collections", "Counter"), ("collections", "defaultdict"), ("builtins", "set"),
                              ("builtins", "bytearray"), ("builtins", "bytes"), ("torch", "Size"), ("torch", "Tensor")):
            return super().find_class(module, name)
        if module == "torch":
            thing = getattr(torch, name, None)
            if name.endswith("Storage") or isinstance(thing, (torch.dtype, torch.qscheme)):
                return super().find_class(module, name)
        elif module in REAL:
            return super().find_class(module, name)
        return stub(module, name)


PICKLES = types.SimpleNamespace(__name__="pytorch_dump", Unpickler=Unpickler, load=pickle.load, dumps=pickle.dumps,
                                UnpicklingError=pickle.UnpicklingError)


def load(path):
    """Loads a file; objects of unknown classes become Opaque."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not torch.__version__.startswith("1."):
            return torch.load(path, map_location="cpu", pickle_module=PICKLES, weights_only=False)
        torch.serialization.pickle = PICKLES  # 1.13 ignores `pickle_module`
        try:
            return torch.load(path, map_location="cpu")
        finally:
            torch.serialization.pickle = pickle


def coded(text):
    return "".join(chr(b) if chr(b).isalnum() and b < 128 or chr(b) in "-_." else f"%{b:02X}" for b in
                   (text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))) or "%"


def text_of(value, ordered=True):
    """Returns a Value as text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if -2**63 <= value < 2**64:
            return str(value)
        return text_of({"__class__": "int", "args": [str(value)]})
    if isinstance(value, float):
        return "f" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return f's"{coded(value)}"'
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    items = value.items() if ordered else sorted(value.items())
    return "{" + ",".join(f'"{coded(str(k))}":{text_of(v)}' for k, v in items) + "}"


def is_plain(value):
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, bytes)) or numpy and isinstance(value, numpy.generic)


def to_value(thing):
    """Returns a thing without tensors as a Value."""
    if numpy and isinstance(thing, numpy.generic):
        thing = thing.item()
    if thing is None or isinstance(thing, (bool, int, float, str, bytes)):
        return thing
    if isinstance(thing, bytearray):
        return bytes(thing)
    if isinstance(thing, (list, tuple)):
        return [to_value(x) for x in thing]
    if isinstance(thing, dict):
        return {str(k): to_value(v) for k, v in thing.items()}
    if isinstance(thing, (torch.dtype, torch.qscheme)):
        return {"__class__": str(thing)}
    if isinstance(thing, torch.layout):
        return {"__class__": "torch.serialization._get_layout", "args": [str(thing)]}
    if isinstance(thing, type):
        return {"__class__": getattr(thing, "name", thing.__name__)}
    if isinstance(thing, set):
        return {"__class__": "set", "args": [to_value(x) for x in thing]}
    if numpy and isinstance(thing, numpy.dtype):
        _, args, state = thing.__reduce__()
        return {"__class__": "numpy.dtype", "args": to_value(args), "state": to_value(state)}
    assert isinstance(thing, Opaque), type(thing)
    parts = {"args": thing.args, "state": thing.state, "items": thing.items, "entries": thing.entries}
    return {"__class__": thing.name, **{k: to_value(v) for k, v in parts.items() if v not in (None, (), [], {})}}


def has_tensor(thing):
    if isinstance(thing, (torch.Tensor, Parts, STORAGE)) or numpy and isinstance(thing, numpy.ndarray):
        return True
    if isinstance(thing, Opaque):
        return any(map(has_tensor, (thing.args, thing.state, thing.items, thing.entries)))
    if isinstance(thing, dict):
        return any(map(has_tensor, thing.values()))
    return isinstance(thing, (list, tuple, set)) and any(map(has_tensor, thing))


class Dump:
    """The tensors and values of a thing, by their paths, in order."""

    def __init__(self, thing=None):
        self.tensors, self.values, self.keep = {}, {}, thing
        if thing is not None:
            self.add("tensor" if isinstance(thing, (torch.Tensor, STORAGE)) else "", thing)

    def add(self, path, thing):
        def below(key, value):
            self.add(f"{path}.{key}" if path else str(key), value)

        if isinstance(thing, torch.Tensor):
            self.tensors[path] = thing
        elif isinstance(thing, STORAGE):
            self.tensors[path] = torch.tensor([], dtype=thing.dtype).set_(thing)
        elif numpy and isinstance(thing, numpy.ndarray):
            little = numpy.ascontiguousarray(thing, thing.dtype.newbyteorder("<"))
            self.tensors[path] = torch.from_numpy(little.astype(little.dtype.newbyteorder("=")))
        elif isinstance(thing, Parts):
            for name, part in thing.parts.items():
                below(name, part)
        elif isinstance(thing, dict):
            if type(thing) not in (dict, collections.OrderedDict):
                below("__class__", f"collections.{type(thing).__name__}")
            for key, value in thing.items():
                below(key, value)
        elif isinstance(thing, torch.Size) or isinstance(thing, (list, tuple)) and is_plain(thing):
            self.values[path] = to_value(thing)
        elif isinstance(thing, (list, tuple)):
            for i, value in enumerate(thing):
                below(i, value)
        elif isinstance(thing, Opaque) and self.is_module(thing):
            self.add_module(path, thing)
        elif isinstance(thing, Opaque) and has_tensor(thing):
            below("__class__", thing.name)
            for key, value in (thing.state or {}).items():
                below(key, value)
            if thing.args:
                below("__args__", thing.args)
        else:
            self.values[path] = to_value(thing)

    @staticmethod
    def is_module(thing):
        return isinstance(thing.state, dict) and "_parameters" in thing.state

    def add_module(self, path, thing):
        """Adds what state_dict() of a torch.nn.Module gives."""
        hidden = thing.state.get("_non_persistent_buffers_set", ())
        for part in ("_parameters", "_buffers", "_modules"):
            for key, value in thing.state[part].items():
                if value is not None and (part != "_buffers" or key not in hidden):
                    self.add(f"{path}.{key}" if path else key, value)


def unpacked(tensor):
    """Returns the integers of a quantized tensor."""
    bits = {torch.quint4x2: 4, torch.quint2x4: 2}.get(tensor.dtype)
    if bits is None:
        return tensor.int_repr(), {torch.qint8: (8, True), torch.quint8: (8, False), torch.qint32: (32, True)}[tensor.dtype]
    packed = tensor.int_repr().reshape(-1).to(torch.uint8)
    parts = [(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return torch.stack(parts, 1).reshape(-1)[:tensor.numel()].reshape(tensor.shape), (bits, False)


def quantization(tensor, bits, signed):
    note = {"scheme": "zero_point", "bits": bits, "signed": signed}
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {**note, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    return {**note, "axis": tensor.q_per_channel_axis(), "scale": tensor.q_per_channel_scales().tolist(),
            "zero_point": tensor.q_per_channel_zero_points().tolist()}


def described(tensor):
    """Returns stele's dtype and shape, the bytes, and the quantization of a tensor."""
    note = None
    if tensor.is_quantized:
        tensor, kind = (unpacked(tensor.detach())[0], quantization(tensor, *unpacked(tensor.detach())[1]))
        note = kind
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = tensor.resolve_conj()
    if not tensor.is_quantized:
        tensor = tensor.resolve_neg()
    spelled = str(tensor.dtype).split(".")[1]
    flat = tensor.contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    shape = list(tensor.shape)
    if spelled == "float4_e2m1fn_x2":
        shape[-1] *= 2
    return NAMES.get(spelled, "opaque"), shape, data, note


def identity(tensor):
    if tensor.numel() == 0:
        return None
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())


def lines_of(dump, ties=True):
    """Returns the lines of a Dump with the bytes they refer to."""
    groups = collections.Counter(identity(t) for t in dump.tensors.values()) if ties else {}
    numbers, lines, data = {}, [], bytearray()
    for path, tensor in dump.tensors.items():
        key = identity(tensor)
        tie = "-" if key is None or groups.get(key, 0) < 2 else str(numbers.setdefault(key, len(numbers)))
        dtype, shape, content, note = described(tensor)
        kind = getattr(tensor, "stele_class", None)
        lines.append(" ".join(("T", coded(path), dtype, "x".join(map(str, shape)) or "-", str(len(data)),
                               str(len(content)), tie, text_of(note, False) if note else "-", coded(kind) if kind else "-")))
        data += content
    lines += [f"V {coded(path)} {text_of(value)}" for path, value in dump.values.items()]
    return lines, bytes(data)


def write(path, dump, name=None, only_tensors=False, ties=True):
    """Writes NAME.expected and NAME.bytes beside the file `path`. `ties`: the file keeps them."""
    lines, data = lines_of(dump, ties)
    base = name or path.name.rsplit(".", 1)[0]
    head = [f"file {coded(path.name)}"] + (["only tensors"] if only_tensors else [])
    (path.parent / f"{base}.expected").write_text("\n".join(head + lines) + "\n")
    (path.parent / f"{base}.bytes").write_bytes(data)
