"""Names of tensors and values: paths with dots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def split(name: str) -> list[str]:
    r"""Splits a path at its dots; `\.` is a dot in a name, `\\` a backslash, `\e` an empty segment."""
    if "\\" not in name:
        return name.split(".")
    parts, part, escaped = [], "", False
    for letter in name:
        if escaped:
            part += {"e": ""}.get(letter, letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == ".":
            parts.append(part)
            part = ""
        else:
            part += letter
    return [*parts, part]


class _Level(dict[str, Any]):
    """A level of names in a tree; a value may be a dict, too."""


def tree(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Returns entries as nested dicts and lists: a dot in a name begins a level."""
    root: dict[str, Any] = {}
    made: list[tuple[dict[str, Any], str]] = []
    for name, entry in entries:
        *levels, last = split(name)
        at = root
        for level in levels:
            while level in at and not isinstance(at[level], _Level):
                level += "."  # a tensor has the name
            if level not in at:
                at[level] = _Level()
                made.append((at, level))
            at = at[level]
        while last in at:
            last += "."
        at[last] = entry
    for above, key in reversed(made):
        above[key] = listed(above[key])
    return root


def listed(level: dict[str, Any]) -> Any:
    """Returns a level as a list if its names are the numbers from 0 on, else as a dict."""
    numbers = [str(i) for i in range(len(level))]
    return [level[number] for number in numbers] if level.keys() == set(numbers) else dict(level)
