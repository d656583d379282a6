"""Containers in which nothing is found: an empty model is one, and a model with members that are not read is an error."""

import io
import json
import struct
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

from support import data, document, run, safetensors

UNKNOWN = b"\0\1unknown" * 20


def zipped(path, entries):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return path


def tarred(path, entries, mode="w"):
    with tarfile.open(path, mode) as file:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def folder(path, entries):
    for name, content in entries.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def entries_of(path):
    """Return the members of a container as {name: bytes}; None for another file."""
    if path.is_dir():
        return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            return {name: file.read(name) for name in file.namelist()}
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as file:
            return {m.name: file.extractfile(m).read() for m in file if m.isfile()}
    return None


def write_like(original, path, entries):
    if original.is_dir():
        return folder(path, entries)
    if zipfile.is_zipfile(original):
        return zipped(path, entries)
    return tarred(path, entries, "w:gz" if original.read_bytes()[:2] == b"\x1f\x8b" else "w")


GRAPH = b"version 1.0;\ngraph g(x) -> (y) {\n  x = external(shape = [1]);\n  y = copy(x);\n}\n"
PT2 = {"m/archive_format": b"pt2", "m/archive_version": b"0", "m/byteorder": b"little"}
EMPTY_SAFETENSORS = b"\2\0\0\0\0\0\0\0{}"
# Containers of other programs: name, how it is written, members without the unknown one, the unknown member.
FOREIGN = [
    ("program.pt2", zipped, PT2, "m/data/aotinductor/model/library.so"),
    ("weights.pt2", zipped, PT2, "m/data/weights/weight_0"),
    ("blob.pt2", zipped, PT2, "m/data/aotinductor/model/library_weights.blob"),
    ("later.pt2", zipped, PT2, "m/data/later/thing.bin"),
    ("archive.pt", zipped, {"archive/data.pkl": b"\x80\2}q\0.", "archive/version": b"3\n"}, "archive/data/0"),
    ("model.nnef.tar", tarred, {"graph.nnef": GRAPH}, "weights.bin"),
    ("nnef", folder, {"graph.nnef": GRAPH}, "weights.dat"),
    ("zarr3", folder, {"zarr.json": b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'}, "w/c/0"),
    ("zarr2", folder, {".zgroup": b'{"zarr_format": 2}'}, "w/0.0"),
    ("hub", folder, {"config.json": b"{}", "model.safetensors": EMPTY_SAFETENSORS}, "pytorch_model.bin"),
    ("set", folder, {"model.safetensors.index.json": b'{"metadata": {}, "weight_map": {}}'}, "model-00001-of-00001.safetensors"),
]


def tensors_of(path):
    """Return {name: (shape, numbers)} of a safetensors file with f32 tensors."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, tensor in header.items():
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        found[name] = (tensor["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", content[begin:end])))
    return found


class ContainersTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def check_empty(self, path):
        status, out, err = run("verify", path)
        self.assertEqual(status, 0, out + err)
        status, _, err = run("convert", path, self.folder / "out.stele")
        self.assertEqual(status, 0, err)
        self.assertNotIn("no tensor was found", json.dumps(document("inspect", path)))

    def check_nothing(self, path, member):
        member = member.rsplit("/", 1)[-1]
        (self.folder / "out.stele").unlink(missing_ok=True)
        for words in (["verify", path], ["convert", path, self.folder / "out.stele"],
                      ["convert", path, self.folder / "out.safetensors"], ["merge", path, "-o", self.folder / "out.stele"]):
            status, out, err = run(*words)
            self.assertNotEqual(status, 0, (words, out, err))
            self.assertIn(member.encode(), out + err)
        self.assertFalse((self.folder / "out.stele").exists())
        self.assertIn(member, json.dumps(document("inspect", path)["notes"]))
        status, _, err = run("convert", path, self.folder / "out.stele", "--allow-loss")
        self.assertEqual(status, 0, err)
        self.assertIn(member.encode(), err)

    def test_containers_that_are_written(self):
        """Every format that this build writes."""
        empty = safetensors(self.folder / "empty.safetensors", {})
        containers = []
        for format in document("formats")["formats"]:
            if not format.get("writes", True):
                continue
            out = self.folder / ("empty_" + format["name"] + format["extension"])
            status, _, _ = run("convert", empty, out, "--to", format["name"])
            # The format has no empty models, or no names.
            if status != 0 or not out.exists() or b"needs_layout" in run("verify", out)[1]:
                continue
            with self.subTest(format=format["name"]):
                self.check_empty(out)
            entries = entries_of(out)
            if entries is None:
                continue
            roots = {name.split("/")[0] for name in entries} if all("/" in name for name in entries) else set()
            member = (roots.pop() + "/" if len(roots) == 1 else "") + "unknown.bin"
            containers.append(format["name"])
            more = write_like(out, self.folder / ("more_" + out.name), {**entries, member: UNKNOWN})
            with self.subTest(format=format["name"], member=member):
                if format["name"] == "npz":  # each entry is listed, also one that is not an array
                    self.assertEqual([t["name"] for t in document("inspect", more)["tensors"]], [member])
                else:
                    self.check_nothing(more, member)
        self.assertGreater(len(containers), 3, containers)

    def test_containers_of_other_programs(self):
        for name, write, entries, member in FOREIGN:
            with self.subTest(name=name):
                self.check_empty(write(self.folder / name, entries))
                self.check_nothing(write(self.folder / ("more_" + name), {**entries, member: UNKNOWN}), member)

    def test_weights_beside_a_compiled_library(self):
        """A package of AOTInductor: views of two storages, one of them transposed, one a part."""
        out = self.folder / "out.safetensors"
        status, _, err = run("convert", data("pytorch") / "aoti.pt2", out)
        self.assertEqual(status, 0, err)
        self.assertIn(b"the program", err)
        embed = [float(i) for i in range(12)]
        whole = [20.0 + i for i in range(18)]
        expected = {"head.weight": ([4, 3], embed), "turned": ([3, 4], embed[0::3] + embed[1::3] + embed[2::3]),
                    "whole": ([6, 3], whole), "part": ([3, 3], whole[6:15])}
        self.assertEqual(tensors_of(out), expected)

    def test_a_weight_that_is_not_in_its_file(self):
        """PyTorch 2.15 writes an offset beyond the end for a part of a storage that no weight has whole."""
        entries = entries_of(data("pytorch") / "aoti.pt2")
        config = next(name for name in entries if name.endswith("weights_config.json"))
        listed = json.loads(entries[config])
        listed["part"][3] = 12
        path = zipped(self.folder / "part.pt2", {**entries, config: json.dumps(listed).encode()})
        found = {t["name"]: t for t in document("inspect", path)["tensors"]}
        self.assertEqual(set(found), set(listed))
        status, _, err = run("convert", path, self.folder / "out.safetensors")
        self.assertEqual(status, 2)
        self.assertIn(b"part", err)


if __name__ == "__main__":
    unittest.main()
