"""Files of PyTorch without PyTorch: Python's own pickle, with stand-ins for the names that torch.save writes."""

import io
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict


def module(name, **members):
    """Make an importable module, so that pickle writes its members by their names."""
    made = sys.modules.setdefault(name, types.ModuleType(name))
    for key, member in members.items():
        member.__module__, member.__qualname__ = name, key
        setattr(made, key, member)
    return made


def rebuild():
    raise NotImplementedError


FloatStorage = type("FloatStorage", (), {})
module("torch", FloatStorage=FloatStorage)
module("torch._utils", _rebuild_tensor_v2=rebuild)


class Tensor:
    """A tensor of f32."""

    def __init__(self, *numbers, shape=None, strides=None):
        self.numbers, self.shape, self.strides = numbers, (len(numbers),) if shape is None else shape, strides

    def __reduce__(self):
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.insert(0, step)
            step *= extent
        return rebuild, (Storage(self), 0, self.shape, self.strides or tuple(strides), False, OrderedDict())


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor


def number(value):
    """Return a tensor of rank 0."""
    return Tensor(value, shape=())


def save(content, path):
    """Write what torch.save does."""
    storages = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, found):
            if not isinstance(found, Storage):
                return None
            storages.append(found.tensor.numbers)
            return "storage", FloatStorage, str(len(storages) - 1), "cpu", len(storages[-1])

    data = io.BytesIO()
    Pickler(data, 2).dump(content)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", data.getvalue())
        file.writestr("archive/byteorder", "little")
        for key, numbers in enumerate(storages):
            file.writestr(f"archive/data/{key}", struct.pack(f"<{len(numbers)}f", *numbers))
        file.writestr("archive/version", "3\n")
    return path


def load(path):
    """Return the content of a file; tensors are Tensor."""
    with zipfile.ZipFile(path) as file:
        class Unpickler(pickle.Unpickler):
            def find_class(self, owner, name):
                if name == "_rebuild_tensor_v2":
                    return lambda storage, offset, shape, *_: Tensor(*storage, shape=shape)
                return super().find_class(owner, name)

            def persistent_load(self, key):
                raw = file.read(f"archive/data/{key[2]}")
                return struct.unpack(f"<{len(raw) // 4}f", raw)

        return Unpickler(io.BytesIO(file.read("archive/data.pkl"))).load()


def plain(content):
    """Return a content with tensors as lists, to compare."""
    if isinstance(content, Tensor):
        return [list(content.shape), list(content.numbers)]
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return type(content)(plain(value) for value in content)
    return content
