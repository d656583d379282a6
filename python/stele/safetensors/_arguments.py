"""Checks of the arguments that functions of this package share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ._errors import error_of

_FRAMEWORKS = {
    "pt": "pytorch",
    "torch": "pytorch",
    "pytorch": "pytorch",
    "np": "numpy",
    "numpy": "numpy",
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "jax": "flax",
    "flax": "flax",
    "mlx": "mlx",
    "paddle": "paddle",
}
_BACKENDS = ("mmap", "pread")
# Devices of torch that plug-ins add: torch.device() refuses them until the plug-in is imported.
_DEVICES = ("cpu", "cuda", "hpu", "mlu", "mps", "musa", "npu", "xla", "xpu")


def items_of(tensors: Any) -> Iterator[tuple[str, Any]]:
    """Returns the names and tensors of a dict. Errors: TypeError."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"a dict of tensors is expected, not {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"a tensor's name must be str, not {type(name).__name__}: {name!r}")
        yield name, tensor


def check_tensors(tensors: Any, kind: type, name: str) -> None:
    """Checks that the values of a dict are tensors of a framework. Errors: ValueError, as in safetensors."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, {name}] but received {type(tensors)}")
    for key, tensor in tensors.items():
        if not isinstance(tensor, kind):
            raise ValueError(f"Key `{key}` is invalid, expected {name} but received {type(tensor)}")


def not_contiguous(name: str) -> ValueError:
    return ValueError(
        f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Save the tensor that it is a"
        " part of, or call `.contiguous()` before saving."
    )


def strings_of(metadata: Mapping[str, str] | None) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"the metadata must be a dict, not {type(metadata).__name__}")
    for pair in metadata.items():
        for text in pair:
            if not isinstance(text, str):
                raise TypeError(f"the metadata has only str, not {type(text).__name__}: {text!r}")
    return dict(metadata)


def path_of(filename: Any) -> str:
    """Returns the path as str. Errors: TypeError."""
    path = filename if isinstance(filename, str) else os.fspath(filename)
    if not isinstance(path, str):
        raise TypeError(f"a path must be str or os.PathLike of str, not {type(path).__name__}")
    return os.path.join(".", "-") if path == "-" else path  # the library reads "-" as standard input


def _device(device: Any, framework: str) -> str | int:
    """Checks a device. Errors: SafetensorError."""
    if device is None:
        return "cpu"
    if isinstance(device, int) and device >= 0:
        return int(device)
    text = device if isinstance(device, str) else str(device)
    kind, colon, number = text.partition(":")
    if kind in _DEVICES and (not colon or number.isdecimal()):
        if kind == "mps" and number not in ("", "0"):
            raise error_of(f"device {text} is invalid: only mps or mps:0 is supported")
        return kind if kind in ("cpu", "mps") else f"{kind}:{number or 0}"
    if framework == "pytorch" and not isinstance(device, (int, float)):
        import torch

        with contextlib.suppress(RuntimeError):
            return str(torch.device(text))
    raise error_of(f"device {text} is invalid")


def opening_of(framework: Any, device: Any, backend: Any) -> tuple[str, str | int]:
    """Returns the framework and the device. Errors: SafetensorError, TypeError."""
    for name, text in (("framework", framework), ("backend", backend)):
        if not isinstance(text, str):
            raise TypeError(f"safe_open: {name} must be str, not {type(text).__name__}")
    kind = _FRAMEWORKS.get(framework)
    if kind is None:
        raise error_of(f"framework {framework} is invalid")
    place = _device(device, kind)
    if backend not in _BACKENDS:
        raise error_of(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    return kind, place
