"""Indices of parts of tensors; the rules are those of safetensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ._errors import SafetensorError


def checked(
    index: Any, shape: tuple[int, ...], failed: Callable[[str, str], SafetensorError]
) -> tuple[Any, ...]:
    """Returns an index of slices and numbers in range. `failed` makes an error of a text and a code.

    Unlike in NumPy, a slice that ends beyond its axis is an error.
    """
    if isinstance(index, list):
        if index:
            raise failed("Non empty lists are not implemented", "unsupported")
        index = slice(0, 0)
    parts = list(index) if isinstance(index, tuple) else [index]
    for position, part in enumerate(parts):
        if not (part is Ellipsis or isinstance(part, slice)):
            try:
                parts[position] = operator.index(part)
            except TypeError:
                text = f"Unsupported slice index at position {position}: expected slice, int, or ellipsis"
                raise failed(text, "invalid_argument") from None
        elif isinstance(part, slice):
            step = 1 if part.step is None else operator.index(part.step)
            if step < 1:
                text = f"Slice step must be a positive integer, got {step}"
                raise failed(text, "invalid_argument")
            low, high = (None if end is None else operator.index(end) for end in (part.start, part.stop))
            parts[position] = slice(low, high, step)
    dots = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise failed("Only one ellipsis (...) is allowed in slice index", "invalid_argument")
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None, None, 1)] * max(0, len(shape) - len(parts) + 1)
    for axis, (part, extent) in enumerate(zip(parts, shape)):
        ends = (part.start, part.stop) if isinstance(part, slice) else (part,)
        for end in ends:
            if end is not None and end + extent < 0:
                text = f"Invalid index {end} for dimension {axis} of size {extent}"
                raise failed(text, "invalid_argument")
        inside = [end + extent if end is not None and end < 0 else end for end in ends]
        parts[axis] = slice(inside[0], inside[1], part.step) if isinstance(part, slice) else inside[0]

    def refused(why: str) -> SafetensorError:
        text = f"Error during slicing [{', '.join(map(_shown, parts))}] with shape {list(shape)}: {why}"
        return failed(text, "invalid_argument")

    if len(parts) > len(shape):
        raise refused("more slicing indexes than dimensions in tensor")
    for axis, (part, extent) in reversed(list(enumerate(zip(parts, shape)))):
        low, high = (part.start or 0, part.stop) if isinstance(part, slice) else (part, part + 1)
        high = extent if high is None else high
        if (low >= extent or high > extent) and not low == high == extent == 0:
            asked = low if low >= extent else high - 1
            raise refused(f"index {asked} out of bounds for tensor dimension #{axis} of size {extent}")
    return tuple(parts)


def _shown(part: Any) -> str:
    """Returns an index as it is written."""
    if not isinstance(part, slice):
        return str(part)
    text = ":".join("" if end is None else str(end) for end in (part.start, part.stop))
    return text if part.step == 1 else f"{text}:{part.step}"
