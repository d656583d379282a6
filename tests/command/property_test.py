"""Nothing is lost in silence: for every command that writes, and every pair of formats, what the output lacks of the input
is an error or a row; and no command changes its inputs.

Inputs are golden files, one for each combination of a format and the kinds of content that it has, and files made here.
Input and output are compared by what `inspect`, `hash` and `diff` print.

Each format that is written meets each other one, and each kind of content that any format has. With STELE_TEST_FULL=1,
which takes several times as long, every input is converted to every format.
"""

import base64
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import STELE, TESTS, data_files, floats, run, safetensors

# Formats of one tensor, whose name is that of the file.
UNNAMED = {"npy", "nnef-tensor"}
# Other containers of the same content: only files made here are written as these.
CONTAINERS = {"burn-mpk.gz", "burn-bin.gz", "burn-json.gz", "json.gz", "json.zst", "sdnb", "sdz", "nnef-tgz", "safetensors-sharded"}
# To which each input is converted, whatever it contains.
ALWAYS = {"stele", "json", "safetensors"}
FULL = "STELE_TEST_FULL" in os.environ
# Files in memory, where they exist: each save waits for its disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
WORKERS = max(2, os.cpu_count() or 2)


# ---- inputs

def tensor(dtype, shape, content, **more):
    return {"$dtype": dtype, "shape": shape, **more, "data": base64.b64encode(content).decode()}


def record(path, members, metadata=None, layout=None):
    text = {"format": "stele-json", "version": 1, **({"layout": layout} if layout else {}), "metadata": metadata or {}, "record": members}
    path.write_text(json.dumps(text))
    return path


def gguf(path, pairs, tensors):
    """Write a GGUF file of version 3. `pairs`: {key: (type, bytes)}; `tensors`: {name: floats}."""
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, (kind, content) in pairs.items():
        head += text(key) + struct.pack("<I", kind) + content
    data = b""
    for name, numbers in tensors.items():
        head += text(name) + struct.pack("<IQIQ", 1, len(numbers), 0, len(data))
        data += floats(*numbers)
        data += bytes(-len(data) % 32)
    head += bytes(-len(head) % 32)
    path.write_bytes(head + data)
    return path


def made(folder):
    """Write the inputs that the golden files lack; return their paths."""
    weight = floats(1, -2, 3.5, 4, 5, 6)
    yield record(folder / "values.json", {
        "layer": {"weight": tensor("F32", [2, 3], weight), "bias": tensor("F32", [2], floats(1, 2))},
        "steps": tensor("I64", [], struct.pack("<q", 2 ** 60 + 1)), "hollow": tensor("F32", [0, 4], b""),
        "epoch": 7, "rate": 0.125, "clip": {"$f64": "inf"}, "large": 2 ** 63 - 1, "label": "net \u00e9\n", "on": True, "raw": {"$bytes": "AAH/"},
        "list": {"$value": [1, 2.5, "x", None, [True]]}, "map": {"$value": {"a": {"b": 1}, "": [], "e": {}}},
        "null": {"$value": None}, "empty": {"$value": []}, "blank": {"$value": {}}, "deep": {"$value": [[], {}, [None, [{}]]]}})
    yield record(folder / "metadata.json", {"w": tensor("F32", [6], weight)},
                 {"author": "A", "": "empty key", "format": "pt", "large": "x" * 5000, "odd \u00e9\n": "\u202e\t"})
    yield record(folder / "ties.json", {
        "encoder": {"weight": tensor("F32", [6], weight), "epoch": 3}, "decoder": {"weight": {"$ref": "encoder.weight"}}, "copy": {"$ref": "encoder"}})
    yield record(folder / "ids.json", {"a": tensor("F32", [6], weight, id="17"),
                                       "b": tensor("F32", [6], weight, annotations={"note": {"unit": "m", "n": [1, 2]}})})
    dtypes = {"F64": 64, "F16": 16, "BF16": 16, "F8_E4M3FN": 8, "F6_E2M3": 6, "F4_E2M1": 4, "I32": 32, "I16": 16, "I8": 8, "I4": 4, "U64": 64,
              "U32": 32, "U16": 16, "U8": 8, "U4": 4, "C64": 64, "C128": 128}
    yield record(folder / "dtypes.json", {dtype.lower(): tensor(dtype, [2, 4], bytes(range(bits))) for dtype, bits in dtypes.items()})
    yield record(folder / "rank.json", {"w": tensor("F32", [1] * 40 + [6], weight)})
    names = ["a b", "\u00e9", "a/b", "../up", "W:0", "x\ny", "\u202e", "0", "k.0.w", "k.00", "$ref", "__class__", "\\", "a\\.b", "'\"", "n" * 300]
    yield safetensors(folder / "names.safetensors", {n: ("F32", [1], floats(i)) for i, n in enumerate(names)})
    names = ["a..b", ".lead", "trail.", ".", "", "ok"]
    yield safetensors(folder / "segments.safetensors", {n: ("F32", [1], floats(i)) for i, n in enumerate(names)})
    yield safetensors(folder / "inside.safetensors", {n: ("F32", [1], floats(i)) for i, n in enumerate(["a", "a.b", "a.b.c", "b.0", "b.1", "b.x"])})
    yield safetensors(folder / "nothing.safetensors", {}, {"only": "metadata"})
    yield gguf(folder / "pairs.gguf", {
        "general.architecture": (8, struct.pack("<Q", 5) + b"llama"), "llama.block_count": (4, struct.pack("<I", 3)),
        "llama.rope.freq_base": (6, floats(10000)), "flag": (7, b"\1"), "wide": (11, struct.pack("<q", -2 ** 40)),
        "list": (9, struct.pack("<IQ3i", 5, 3, 1, -2, 3)), "words": (9, struct.pack("<IQQ", 8, 2, 1) + b"a" + struct.pack("<Q", 0))},
        {"blk.0.w": [1, 2, 3], "b": [4]})


def signature(facts):
    """Return what makes one input unlike another."""
    tensors = facts["tensors"]
    return (facts["format"], bool(facts["values"]), bool(facts.get("properties")), *(name in facts for name in PARTS),
            any(t.get("tied") for t in tensors), any("annotations" in t for t in tensors))


# ---- comparison

PARTS = ("graph", "training", "optimizer")  # of a checkpoint, beside its tensors


def document(*arguments):
    """Run with --json; return the status and the document."""
    status, out, err = run(*arguments, "--json")
    return status, json.loads(out) if out else {"error": {"code": "", "message": err.decode()}}


def look_at(path, names=None):
    """Return all that a file contains, as a map; an error's text if it cannot be opened."""
    status, facts = document("inspect", path)
    more = ()
    if status != 0 and facts["error"]["code"] == "needs_layout" and names is not None:
        more = ("--names", names)
        status, facts = document("inspect", path, *more)
    if status != 0:
        return str(facts["error"])
    status, digests = document("hash", path, *more)
    if status != 0:
        return str(digests["error"])
    facts["digests"] = {t["name"]: t["digest"] for t in digests["files"][0]["tensors"]}
    return facts


def plain(values):
    """Return values by their paths; those in lists and maps by their own: readers tell some lists from containers, others not."""
    flat = {}

    def add(path, value):
        if not value or not isinstance(value, (dict, list)):  # an empty one counts as a value
            flat[path] = value
            return
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            add(f"{path}.{key}", member)
    for path, value in values.items():
        add(path, value)
    return flat


def contains(annotations, part):
    """Return whether annotations have all members of others; writers add defaults."""
    if isinstance(annotations, dict) and isinstance(part, dict):
        return all(key in annotations and contains(annotations[key], value) for key, value in part.items())
    return annotations == part


def lacks(before, after, lost=()):
    """Yield (kind, name) for each part of `before` that `after` lacks. The tensors of `lost` are known to be missing."""
    found = {t["name"]: t for t in after["tensors"]}
    digests = after["digests"]
    kept = [t["name"] for t in before["tensors"] if t["name"] not in lost]
    if after["format"] in UNNAMED and len(kept) == 1 == len(found):
        name = kept[0]
        found, digests = {name: dict(next(iter(found.values())), name=name)}, {name: next(iter(digests.values()))}
    for t in before["tensors"]:
        name, other = t["name"], found.get(t["name"])
        if other is None or (t["dtype"], t["shape"], before["digests"][name]) != (other["dtype"], other["shape"], digests[name]):
            yield "tensor", name
            continue
        if not contains(other.get("annotations", {}), t.get("annotations", {})):
            yield "annotations", name
    groups = [{t["name"]: t.get("tied_to", t["name"]) for t in facts["tensors"]} for facts in (before, after)]
    for name, first in groups[0].items():
        if name != first and groups[1].get(name) != groups[1].get(first) and name in found:
            yield "tie", name
    for key, text in before["metadata"].items():
        if after["metadata"].get(key) != text:
            yield "metadata", key
    for key, value in before.get("properties", {}).items():
        if after.get("properties", {}).get(key) != value and key not in before["metadata"]:  # compared above
            yield "property", key
    values = plain(after["values"])
    for path, value in plain(before["values"]).items():
        if path not in values or values[path] != value or type(values[path]) is not type(value):
            yield "value", path
    for path, value in before["values"].items():  # a list, map or null may become containers of the record, if a row says so
        if (value is None or isinstance(value, (dict, list))) and path not in after["values"]:
            yield "value", path
    if before["format"] == "pytorch":  # whose names have all of a checkpoint
        return
    for part in PARTS:
        if part in before and not set(before[part].split(", ")) <= set(after.get(part, "").split(", ")):
            yield part, ""


def is_listed(kind, name, rows):
    def row(path, *words):
        return any(r["what"] == "lost" and r["path"] == path and all(w in r["detail"] for w in words) for r in rows)
    if kind == "tensor":
        return row(name)
    if kind == "value":
        return any(row(path) for path in [name] + [name[:i] for i, c in enumerate(name) if c == "."])
    if kind in ("annotations", "tie"):
        return any(row(path, kind) for path in [name] + [name[:i] for i, c in enumerate(name) if c == "."])
    if kind == "property":
        return row("", "propert", name)
    if kind == "optimizer":
        return any("optimizer" in r["detail"] for r in rows)
    return row("", kind)


def state_of(path):
    """Return a digest of a file, or of all files of a folder and their names."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        digest.update(os.fsencode(file) + b"\0")
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Case:
    """One input, through every command."""

    def __init__(self, source, formats):
        self.source, self.formats, self.faults = source, formats, []
        self.name = str(source.relative_to(TESTS)) if source.is_relative_to(TESTS) else source.name

    def fault(self, command, target, what):
        self.faults.append((command, self.name, target, what))

    def check(self, command, target, outputs, rows, before):
        """Compare outputs, which together hold the input, with it."""
        after = None
        lost = {r["path"] for r in rows if r["what"] == "lost" and not r["detail"].startswith("its ")}
        names = self.source
        if lost & {t["name"] for t in before["tensors"]}:  # the file has the others
            names = outputs[0].parent / "names.txt"
            kept = [t["name"] for t in before["tensors"] if t["name"] not in lost]
            names.write_text("".join(name + "\n" for name in kept))
            if any(ord(letter) < 32 for name in kept for letter in name):
                return None  # a layout cannot have these names, without which some formats cannot be read
        for out in outputs:
            facts = look_at(out, names)
            if isinstance(facts, str):
                return self.fault(command, target, f"output: {facts}")
            if target == "pytorch" and any(part in before for part in PARTS) and before["format"] != "pytorch":
                # A checkpoint has its parameters in a part of their own.
                prefix = "model_state_dict."
                for t in facts["tensors"]:
                    for key in ("name", "tied_to"):
                        t[key] = t.get(key, t["name"]).removeprefix(prefix)
                facts["digests"] = {name.removeprefix(prefix): digest for name, digest in facts["digests"].items()}
                facts["values"] = {name.removeprefix(prefix): value for name, value in facts["values"].items()}
            if after is None:
                after = facts
                continue
            after["tensors"] += facts["tensors"]
            for key in ("values", "metadata", "digests"):
                after[key].update(facts[key])
        if after is None:
            return self.fault(command, target, "no output")
        for kind, name in lacks(before, after, lost):
            if not is_listed(kind, name, rows):
                self.fault(command, target, f"{kind}: {name}")
        return None

    def written(self, command, target, arguments, out, before):
        """Run without and, if that is an error, with --allow-loss; compare. A failed run leaves no file."""
        status, found = document(*arguments)
        if status == 2:
            if not found["error"]["message"]:
                self.fault(command, target, "error without a message")
            if any(out.parent.iterdir()):
                self.fault(command, target, "a failed run leaves a file")
            arguments += ("--allow-loss",)
            status, found = document(*arguments)
            if status == 2:
                return
        rows = found.get("rows", []) + [row for file in found.get("files", []) for row in file["rows"]]
        rows += [{"what": "lost", "path": t["name"], "detail": t["error"]} for t in found.get("lost", [])]  # of repair
        outputs = [Path(f["file"]) for f in found["files"]] if "files" in found else [Path(found["out"])]
        if missing := [o for o in outputs if not o.exists()]:
            self.fault(command, target, f"reported, but not there: {missing}")
            return
        self.check(command, target, outputs, rows, before)
        if command == "convert" and not self.source.is_relative_to(TESTS):
            dry = document(*arguments, "--dry-run")
            planned = [row for row in found["rows"] if row["what"] != "written"]  # files beside the named one
            if dry != (0, dict(found, written=False, rows=planned)):
                self.fault(command, target, f"a dry run is unlike: {dry}")

    def run(self):
        before = look_at(self.source)
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            state = state_of(self.source)
            folder = Path(name)

            def fresh(out):
                shutil.rmtree(folder)
                folder.mkdir()
                return folder / out
            for target, extension in self.formats:
                if target in CONTAINERS and self.source.is_relative_to(TESTS):
                    continue
                out = fresh("out" + (extension or ".folder"))
                self.written("convert", target, ("convert", self.source, out, "--to", target), out, before)
            for target, extension in self.formats:
                if target == "stele" or (target == "safetensors" and len(self.formats) > len(ALWAYS) + 1):
                    out = fresh("out" + extension)
                    self.written("merge", target, ("merge", self.source, "-o", out), out, before)
                    out = fresh("out" + extension)
                    self.written("split", target, ("split", self.source, out), out, before)
                    out = fresh("out" + extension)
                    self.written("repair", target, ("repair", self.source, out), out, before)
            self.pages(before, fresh)
            if state_of(self.source) != state:
                self.fault("*", "*", "the input has changed")
        return self.faults

    def pages(self, before, fresh):
        run("report", self.source, "-o", fresh("page.html"))
        out = fresh("model.hpp")
        status, found = document("embed", self.source, "-o", out, "--object")
        if status == 0:
            self.check("embed", "stele", [out.with_suffix(".stele")], found["rows"], before)
        for t in before["tensors"][:1]:
            for target in ("w.npy", "w.bin", "w.stele"):
                out = fresh(target)
                status, found = document("extract", self.source, t["name"], "-o", out)
                if status == 0 and not target.endswith(".bin"):
                    one = dict(before, tensors=[t], values={}, metadata={} if target == "w.npy" else before["metadata"])
                    for part in ("properties", *PARTS):
                        one.pop(part, None)
                    self.check("extract", target, [out], found["rows"], one)


class Property(unittest.TestCase):
    def inputs(self, folder):
        paths = [p for p in data_files() if p.suffix not in (".md", ".txt", ".expect", ".expected", ".bytes", ".py", ".tsv") and
                 p.parent.name != "tar" and not (p.is_file() and p.stat().st_size > 100000)]
        with ThreadPoolExecutor(WORKERS) as pool:
            facts = list(pool.map(lambda p: document("inspect", p), paths))
        kinds = {}
        for path, (status, found) in zip(paths, facts):
            if status == 0:
                kinds.setdefault(signature(found), path)
        return kinds, list(made(folder))

    def cases(self, folder, formats):
        golden, own = self.inputs(folder)
        self.assertGreater(len(golden) + len(own), 40)
        yield from (Case(path, formats) for path in own)
        written = {name for name, _ in formats} - CONTAINERS
        met, contents = set(), set()  # formats, and kinds of content, that were converted to all formats
        for (name, *content), path in golden.items():
            whole = FULL or tuple(content) not in contents or (name not in met and name in written)
            if whole:
                met.add(name)
                contents.add(tuple(content))
            yield Case(path, formats if whole else [f for f in formats if f[0] in ALWAYS or f[0] == name])

    def test_nothing_is_lost_in_silence(self):
        formats = [(f["name"], f["extension"]) for f in document("formats")[1]["formats"] if f["writes"]]
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            cases = list(self.cases(Path(folder), formats))
            with ThreadPoolExecutor(WORKERS) as pool:
                faults = [fault for found in pool.map(Case.run, cases) for fault in found]
        self.assertEqual(faults, [], "\n" + "\n".join(" | ".join(fault) for fault in faults))


if __name__ == "__main__":
    unittest.main()
