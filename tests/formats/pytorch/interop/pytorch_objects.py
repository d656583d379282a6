"""Objects that make_golden_pytorch.py and pytorch_files.py save, made with the running PyTorch.

Element k of the tensor NAME, counted in row-major order, is by its dtype:

    bool                    k % 2
    unsigned integers       k % 7
    signed integers, floats k % 7 - 2 + (the sum of NAME's bytes) % 5
    complex                 the same, with the imaginary part k
    raw bytes (f8, bits)    byte k % 256

A view counts the elements of its base. Optimizer state is what three steps give.
"""

import collections
import io
import struct
import tarfile
import zipfile

import pickle

import torch
from torch import nn

RAW = ("float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2 "
       "bits8 bits16 bits1x8 bits2x4 bits4x2 complex32 bcomplex32").split()
PLAIN = ("uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool "
         "uint16 uint32 uint64").split()


def values(name, shape, dtype=torch.float32):
    """Returns the tensor NAME by the rule above."""
    n = 1
    for extent in shape:
        n *= extent
    k = torch.arange(n)
    spelled = str(dtype).split(".")[1]
    if spelled in RAW:
        size = torch.empty(0, dtype=dtype).element_size()
        return (torch.arange(n * size) % 256).to(torch.uint8).view(dtype).reshape(shape)
    if spelled == "bool":
        k = k % 2
    elif spelled.startswith("uint"):
        k = k % 7
    else:
        k = k % 7 - 2 + sum(name.encode()) % 5
    if dtype.is_complex:
        return torch.complex(k.double(), torch.arange(n).double()).to(dtype).reshape(shape)
    return k.to(dtype).reshape(shape)


def fill(module):
    """Gives every parameter and buffer of a module the values of its name."""
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            tensor.copy_(values(name, tensor.shape, tensor.dtype))
    return module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, bias=False)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.register_buffer("mask", torch.zeros(2, dtype=torch.bool))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.rate = 0.5
        self.sizes = [1, 2]

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(x)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 3)
        self.fc2 = nn.Linear(3, 4, bias=False)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class Plain(nn.Module):
    """Some files contain the source of every module's class: with this one, they have no source of PyTorch in them."""

    def __init__(self, child=None):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.child = child
        self.rate = 0.5

    def forward(self, x):
        return x @ self.weight.t()


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"a": Plain(), "b": Plain()})
        self.names = ["a", "b"]
        self.scale = 2

    def forward(self, x):
        return (self.layers["a"](x) + self.layers["b"](x)) * self.scale


class Config:
    """An object that no reader without this class can make."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class WithSlots:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __reduce__(self):
        return WithSlots, (self.a, self.b)


class Holder:
    def __init__(self, weight):
        self.weight = weight
        self.kind = "holder"


class Sub(torch.Tensor):
    pass


def steps(module, optimizer, count=3):
    """Takes steps along fixed gradients."""
    for step in range(count):
        for i, parameter in enumerate(module.parameters()):
            parameter.grad = values(f"{i}", parameter.shape, parameter.dtype) * (step + 1) / 8
        optimizer.step()
    return optimizer


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-7),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.5, initial_accumulator_value=0.25),
}


def checkpoint(kind, module=None):
    module = fill(module or Mlp())
    optimizer = OPTIMIZERS[kind](module.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    steps(module, optimizer)
    return {"model_state_dict": module.state_dict(), "optimizer_state_dict": optimizer.state_dict(),
            "scheduler": {k: v for k, v in scheduler.state_dict().items() if isinstance(v, (int, float, list))},
            "epoch": 3, "loss": 0.25}


def lightning(module=None):
    module = fill(module or Mlp())
    optimizer = steps(module, OPTIMIZERS["adam"](module.parameters()))
    hyper = Config(hidden=3, name="net", nested=Config(rate=0.5, layers=[1, 2]))
    return {"epoch": 1, "global_step": 6, "pytorch-lightning_version": "1.9.5", "state_dict": module.state_dict(),
            "loops": {"fit_loop": {"epoch_progress": {"current": {"ready": 2, "done": 1}}}},
            "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": values("score", ()),
                                                              "best_k_models": {}, "dirpath": "checkpoints"}},
            "optimizer_states": [optimizer.state_dict()], "lr_schedulers": [],
            "hparams_name": "config", "hyper_parameters": {"config": hyper, "lr": 0.01}}


def views():
    base = values("base", (4, 6))
    shared = values("shared", (10,))
    overlapping = values("overlapping", (6,)).as_strided((4, 3), (1, 1))
    result = {"base": base, "whole": base.view(-1), "again": base, "row": base[1], "column": base[:, 2],
              "block": base[1:3, 2:5], "transposed": base.t(), "steps": base[::2, ::3],
              "first": shared[:4], "second": shared[4:], "expanded": values("expanded", (3, 1)).expand(3, 4),
              "overlapping": overlapping, "permuted": values("permuted", (2, 3, 4)).permute(2, 0, 1),
              "one": values("one", (5,))[3], "none": shared[2:2]}
    complex_ = values("complex", (2, 3), torch.complex64)
    result["conj"], result["conj_t"] = complex_.conj(), complex_.t().conj()
    # A storage has one dtype in a file, so these have their own.
    result["neg"] = values("neg", (2, 3), torch.complex64).conj().imag
    result["imag"] = values("imag", (2, 3), torch.complex128).imag
    result["complex"] = complex_
    return result


def dtypes():
    result = {}
    for name in PLAIN + RAW:
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue
        try:
            tensor = values(name, (3, 4), dtype)
            torch.save(tensor, io.BytesIO())
        except (KeyError, RuntimeError) as error:
            print(f"left out: {name}: {str(error).splitlines()[0]}")
            continue
        result[name] = tensor
    result["scalar"] = values("scalar", ())
    result["empty"] = values("empty", (2, 0, 3), torch.int16)
    result["rank6"] = values("rank6", (1, 2, 1, 3, 2, 1), torch.float64)
    return result


def quantized(sub_byte=True):
    x = values("x", (2, 4))
    scales, zeros = torch.tensor([0.25, 0.5], dtype=torch.float64), torch.tensor([1, 2])
    result = {}
    for dtype in (torch.qint8, torch.quint8, torch.qint32):
        name = str(dtype).split(".")[1]
        result[name] = torch.quantize_per_tensor(x, 0.25, 3, dtype)
        result[name + "_axis0"] = torch.quantize_per_channel(x, scales, zeros, 0, dtype)
    result["axis1"] = torch.quantize_per_channel(x.t().contiguous(), scales, zeros, 1, torch.qint8)
    result["view"] = result["qint8"].t()
    result["float_axis0"] = torch.quantize_per_channel(x, scales.float(), zeros.float() / 2, 0, torch.quint8)
    if sub_byte:
        for dtype in (torch.quint4x2, torch.quint2x4):
            name = str(dtype).split(".")[1]
            result[name] = torch.quantize_per_channel(x, scales.float(), zeros.float(), 0, dtype)
    return result


def sparse():
    x = values("x", (4, 6)) * (values("x", (4, 6)) > 2)
    result = {"coo": x.to_sparse(), "hybrid": x.to_sparse(1),
              "uncoalesced": torch.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], values("u", (3,), torch.float64), (2, 3))}
    for name, arguments in (("csr", ()), ("csc", ()), ("bsr", ((2, 3),)), ("bsc", ((2, 3),))):
        try:
            tensor = getattr(x, "to_sparse_" + name)(*arguments)
            torch.save(tensor, io.BytesIO())
        except (AttributeError, RuntimeError) as error:
            print(f"left out: {name}: {str(error).splitlines()[0]}")
            continue
        result[name] = tensor
    return result


def parameters():
    parameter = nn.Parameter(values("parameter", (2, 3)))
    stated = nn.Parameter(values("stated", (3,)), requires_grad=False)
    stated.tag = "tag"
    sub = values("sub", (2,)).as_subclass(Sub)
    sub.note = "note"
    return {"parameter": parameter, "stated": stated, "sub": sub,
            "buffer": nn.parameter.Buffer(values("buffer", (2,))) if hasattr(nn.parameter, "Buffer") else values("buffer", (2,)),
            "grad": values("grad", (2,)).requires_grad_()}


def nested_tensors():
    parts = [values("a", (2, 3)), values("b", (1, 3))]
    return {"strided": torch.nested.nested_tensor(parts)}


class Wrapper(torch.Tensor):
    """A subclass without elements of its own, as libraries of quantization have them."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)

    def __init__(self, data, scale):
        self.data_, self.scale = data, scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(str(function))


def wrapped():
    return {"weight": Wrapper(values("data", (2, 3), torch.int8), values("scale", (2,))), "bias": values("bias", (2,))}


def plain_values():
    return {"int": 3, "negative": -70000, "long": 2**40, "big": 2**70, "negative_big": -2**100, "unsigned": 2**64 - 1,
            "float": 0.1, "infinite": float("inf"), "true": True, "false": False, "none": None, "string": "häuser",
            "long_string": "x" * 300, "empty_string": "", "bytes": b"\x00\xffab", "bytearray": bytearray(b"ab"),
            "list": [1, 2.5, "a", None, True], "list_of_lists": [[1, 2], [3]], "tuple": (1, 2), "empty_list": [],
            "empty_tuple": (), "empty_dict": {}, "empty_ordered": collections.OrderedDict(),
            "nested": {"a": {"b": [{"c": 1}, 2], "d": ({"e": 2},)}}, 5: "integer key", "dict": {0: "zero", 1: {2: 3}},
            "dotted.key": {"a.b": 1}, "complex": complex(1, -2), "size": torch.Size([2, 3]), "empty_size": torch.Size([]),
            "dtype": torch.float16, "device": torch.device("cpu"), "cuda": torch.device("cuda", 1),
            "counter": collections.Counter("aab"),
            "tensor": values("tensor", (2,))}


def opaque():
    return {"config": Config(rate=0.5, nested=Config(n=1, names=["a", "b"])), "slots": WithSlots(1, "b"),
            "holder": Holder(values("holder.weight", (2,))), "function": torch.relu, "class": Config,
            "list": [Config(n=2), 1], "set": {1}, "range": range(3), "default": collections.defaultdict(list, {"a": [1]}),
            "weight": values("weight", (2,))}


def containers():
    """Tensors at every kind of place."""
    t = values("t", (2,))
    return {"list": [t, values("u", (1,)), 3], "tuple": (values("v", (2,)), {"w": values("w", (1,))}), 0: values("0", (2,)),
            "dict": {1: values("1", (1,)), "a.b": values("a.b", (1,))}, "again": t,
            "deep": [[[values("deep", (1,))]]], "dotted": {"x": collections.OrderedDict(y=values("y", (1,)))}}


def many():
    """More than ten storages, whose keys sort differently as text."""
    return {f"layer.{i}.weight": values(f"layer.{i}.weight", (i % 4, 3)) for i in range(13)}


def save_tar(path, tensors, extra):
    """Writes the form that PyTorch before 0.1.10 wrote: no PyTorch of today does.

    `tensors` may share storages. torch.load(path, weights_only=False) reads it.
    """
    storages, records = {}, []
    for name, tensor in tensors.items():
        storage = tensor.storage()
        storages.setdefault(storage.data_ptr(), (len(storages) + 1, storage))
        records.append((name, tensor, storages[storage.data_ptr()][0]))

    class Tensor:
        def __init__(self, key):
            self.key = key

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return str(obj.key) if isinstance(obj, Tensor) else None

    kind = {torch.float32: "Float", torch.float64: "Double", torch.int64: "Long", torch.uint8: "Byte"}
    out = {"sys_info": io.BytesIO(), "storages": io.BytesIO(), "tensors": io.BytesIO(), "pickle": io.BytesIO()}
    pickle.dump({"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}},
                out["sys_info"], 2)
    pickle.dump(len(storages), out["storages"], 2)
    for key, storage in storages.values():
        dtype = next(t.dtype for _, t, k in records if k == key)
        pickle.dump((key, "cpu", getattr(torch, kind[dtype] + "Storage")), out["storages"], 2)
        elements = torch.tensor([], dtype=dtype).set_(storage)
        out["storages"].write(struct.pack("<q", elements.numel()) + elements.numpy().tobytes())
    pickle.dump([], out["storages"], 2)
    pickle.dump(len(records), out["tensors"], 2)
    for key, (_, tensor, storage) in enumerate(records, 100):
        pickle.dump((key, storage, getattr(torch, kind[tensor.dtype] + "Tensor")), out["tensors"], 2)
        out["tensors"].write(struct.pack("<i4x", tensor.dim()) + struct.pack(f"<{tensor.dim()}q", *tensor.shape) +
                             struct.pack(f"<{tensor.dim()}q", *tensor.stride()) + struct.pack("<q", tensor.storage_offset()))
    objects = collections.OrderedDict((name, Tensor(key)) for key, (name, _, _) in enumerate(records, 100))
    Pickler(out["pickle"], 2).dump({"state": objects, **extra})
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in out.items():
            info = tarfile.TarInfo(name)
            info.size = len(data.getvalue())
            tar.addfile(info, io.BytesIO(data.getvalue()))


def rezip(source, path, compression=zipfile.ZIP_DEFLATED, change=None, root=None):
    """Writes a zip file again with Python's module, as users do; `change` may change the bytes of an entry."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", compression) as new:
        for entry in old.namelist():
            data = old.read(entry)
            if change is not None:
                data = change(entry, data)
            head, _, tail = entry.partition("/")
            info = zipfile.ZipInfo(f"{root or head}/{tail}", (1980, 1, 1, 0, 0, 0))
            info.compress_type = compression
            new.writestr(info, data)


def big_endian(item_sizes):
    """Returns a change for rezip() that makes the storages big-endian; `item_sizes` is by storage key."""
    def change(entry, data):
        name = entry.partition("/")[2]
        if name == "byteorder":
            return b"big"
        if name.startswith("data/"):
            size = item_sizes[name[5:]]
            return b"".join(data[i:i + size][::-1] for i in range(0, len(data), size))
        return data
    return change
