#!/usr/bin/env python3
"""Checks the includes between the folders of the library (docs/design.md, Folders).

Usage: tools/folders.py

Folders below one folder include each other without a cycle, at every level; those of src/ include only folders above
them in the table. Recorders do not include each other. Encodings make no Snapshot. No dependencies.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = ("precision", "src", "transforms", "encodings", "training", "graph", "dl4j", "ir", "recorders", "remote", "deltas",
              "device", "checkpoints", "torch")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
NOT_IN_ENCODINGS = ("snapshot", "passes", "module")  # of src/


def included(source, text):
    """Yields the paths of the library's own sources that a source includes."""
    for name in INCLUDE.findall(text):
        for folder in (source.parent, ROOT / "src", ROOT, ROOT / source.relative_to(ROOT).parts[0]):
            path = (folder / name).resolve()
            if path.is_file():
                if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in COMPONENTS:
                    yield path.relative_to(ROOT)
                break


def cycle(edges):
    """Returns the folders of a cycle, or an empty list."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return []
        path.append(folder)
        for other in sorted(edges.get(folder, ())):
            if found := visit(other):
                return found
        done.add(path.pop())
        return []

    return next(filter(None, map(visit, sorted(edges))), [])


def main():
    order = re.findall(r"^\| `src/(\w+)/`", (ROOT / "docs/design.md").read_text(encoding="utf-8"), re.MULTILINE)
    errors = [f"docs/design.md does not list src/{folder.name}/" for folder in (ROOT / "src").iterdir()
              if folder.is_dir() and folder.name not in order]
    levels = {}  # folder -> its folders -> those that they include
    for path in sorted(path for top in COMPONENTS for path in (ROOT / top).rglob("*.[ch]pp")):
        source, text = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        if source.parts[0] == "encodings" and "SnapshotBuilder" in text:
            errors.append(f"{source} makes a Snapshot")
        for other in included(path, text):
            if other == source:
                continue
            level = next(i for i, part in enumerate(source.parts) if i >= len(other.parts) or other.parts[i] != part)
            if level + 1 >= len(source.parts) or level + 1 >= len(other.parts):
                continue  # one of them is in a folder around that of the other
            above, here, there = source.parts[:level], source.parts[level], other.parts[level]
            levels.setdefault(above, {}).setdefault(here, set()).add(there)
            if (above == ("src",) and {here, there} <= set(order) and order.index(there) > order.index(here)
                    or above == ("recorders",) and here != "any"
                    or source.parts[0] == "encodings" and other.parts[0] == "src" and other.parts[1] in NOT_IN_ENCODINGS):
                errors.append(f"{source} includes {other}")
    for above, edges in levels.items():
        if found := cycle(edges):
            errors.append(f"a cycle in {'/'.join(above)}/: {' -> '.join(found)}")
    print("\n".join(errors) or "the includes follow docs/design.md")
    return len(errors) != 0


sys.exit(main())
