#!/usr/bin/env python3
"""Compares what stele_reader.py reads from `.stele` files with what the library reads from them and writes as JSON.

    check_stele.py write FILE               a JSON record with every dtype, kind of node and form of id
    check_stele.py check FOLDER FILES...    after `interop_json stele FOLDER FILES...`

A record becomes JSON by docs/formats/json.md. `.json.zst` files are checked against that page as well.
"""
import base64
import json
import math
import pathlib
import random
import struct
import sys
import uuid

import xxhash
import zstandard

import stele_reader


def coded(name):
    """A name or key as JSON contains it; `name` is bytes."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return "$str:" + base64.b64encode(name).decode()
    return "$" + text if text.startswith("$") else text


def value(v):
    if isinstance(v, tuple):
        return {coded(key.encode("utf-8", "surrogateescape")): value(item) for key, item in v}
    if isinstance(v, list):
        return [value(item) for item in v]
    if isinstance(v, bytes):
        return {"$bytes": base64.b64encode(v).decode()}
    if isinstance(v, str):
        raw = v.encode("utf-8", "surrogateescape")
        return v if v == raw.decode("utf-8", "replace") else {"$str": base64.b64encode(raw).decode()}
    if isinstance(v, float) and not math.isfinite(v):
        bits = struct.unpack("<Q", struct.pack("<d", v))[0]
        return {"$f64": "nan" if bits == 0x7FF8 << 48 else f"0x{bits:016x}" if math.isnan(v) else str(v)}
    return v


def tensor(found):
    node = {"$dtype": found.dtype.upper(), "shape": list(found.shape)}
    if found.form:
        node["id"] = str(uuid.UUID(int=found.id)) if found.form == 2 else str(found.id)
    if found.annotations:
        node["annotations"] = value(found.annotations)
    return {**node, "data": base64.b64encode(found.data).decode()}


def document(record):
    """The JSON document of a record."""
    def children(i):
        child = i + 1
        while child < record.nodes[i].end:
            yield child
            child = record.nodes[child].end

    def key(i):
        name = record.nodes[i].name
        return coded(name) if isinstance(name, bytes) else str(name)

    def node(i):
        self = record.nodes[i]
        path = stele_reader.text(self.path)
        if self.kind == "tensor":
            return tensor(record.tensors[path])
        if self.kind == "value":
            v = value(record.values[path])
            return {"$value": v} if v is None or isinstance(record.values[path], (list, tuple)) else v
        if self.kind == "none":
            return None
        if self.kind == "alias":
            return {"$ref": coded(self.target.path)}
        inner = list(children(i))
        if self.kind == "variant":
            return {"$variant": key(inner[0]), "value": node(inner[0])} if inner else {"$variant": None}
        if self.kind in ("list", "array", "tuple"):
            whole = [record.nodes[child].name for child in inner] == list(range(len(inner)))
            return [node(c) for c in inner] if whole else {"$elements": {key(c): node(c) for c in inner}}
        version = {"$version": self.version} if self.version else {}
        return {**version, **{key(child): node(child) for child in inner}}

    layout = {1: {"layout": "flat"}, 2: {"layout": "guessed"}}.get(record.flags & 3, {})
    metadata = tuple(record.metadata.items())
    return {"format": "stele-json", "version": 1, **layout, "metadata": value(metadata), "record": node(0)}


def unpacked(raw):
    """The text of a `.json.zst`, after its index has been checked."""
    count, zero, magic = struct.unpack("<IBI", raw[-9:])
    table = raw[-9 - 8 * count:-9]
    assert zero == 0 and magic == 0x8F92EAB1 and struct.unpack("<II", raw[-17 - 8 * count:-9 - 8 * count]) == (
        0x184D2A5E, len(table) + 9)
    at, frames, plain = 0, [], []
    for size, length in struct.iter_unpack("<II", table):
        frames.append(raw[at:at + size])
        plain.append(length)
        at += size
    assert frames[0] == struct.pack("<II", 0x184D2A5D, 8) + b"stelejsn" and plain[0] == plain[-1] == 0
    index = frames[-1]
    assert index[:16] == struct.pack("<II", 0x184D2A5D, len(index) - 8) + b"stelejsn"
    assert index[16:24] == struct.pack("<Q", xxhash.xxh3_64_intdigest(table[:-8] + index[24:]))
    content = zstandard.ZstdDecompressor().decompress(index[32:])
    assert len(content) == struct.unpack("<Q", index[24:32])[0]
    text, hashes = b"", content[:8 * (count - 2)]
    for frame, length, digest in zip(frames[1:-1], plain[1:-1], struct.iter_unpack("<Q", hashes)):
        part = zstandard.ZstdDecompressor().decompress(frame)
        assert len(part) == length and digest == (xxhash.xxh3_64_intdigest(frame),)
        text += part
    rest = content[len(hashes):]
    tensors, _ = struct.unpack("<QQ", rest[:16])
    skeleton, end = b"", 0
    for at, length in struct.iter_unpack("<QQ", rest[16:16 + 16 * tensors]):
        skeleton += text[end:at] + b"null"
        end = at + (length & ~(1 << 63))
    assert skeleton + text[end:] == rest[16 + 16 * tensors:]
    return text


def write(path):
    """Everything that a JSON record can contain."""
    bits_of = {name.upper(): bits for name, bits in stele_reader.DTYPES.values() if bits}
    mebibyte = 1 << 20

    def made(dtype, shape, noise=b"", **more):
        size = -(-bits_of[dtype] * math.prod(shape) // 8) - len(noise)
        data = bytes((7 * k + k // 256) % (2 if dtype == "BOOL" else 256) for k in range(size)) + noise
        return {"$dtype": dtype, "shape": shape, **more, "data": base64.b64encode(data).decode()}

    scalars = [True, -1, 2**64 - 1, -2**63, 1.5, -0.0, "é", {"$str": "/w=="}, {"$bytes": "AAE="}]
    # The library writes annotations and metadata in the order of their keys' bytes.
    anything = {"": {}, "$$key": {"$f64": "0x7ff8000000000001"}, "deep": [[[[]]]], "list": scalars, "null": None,
                "$str:/w==": {"$f64": "-inf"}}
    record = {
        "$version": 7,
        "dtypes": {dtype: made(dtype, [3, 5, 3]) for dtype in bits_of},
        "frames": [made(dtype, [8 * mebibyte // bits_of[dtype] + 3])
                   for dtype in ("F64", "F32", "BF16", "F6_E2M3", "BOOL", "C64", "C128")],
        "plain frame": made("F32", [mebibyte // 2], noise=random.Random(1).randbytes(mebibyte)),
        "empty": [made("F32", [0, 3]), made("F4_E2M1", [0]), made("I64", [])],
        "ids": [made("F32", [2], id="18446744073709551615"),
                made("F32", [2], id="00112233-4455-6677-8899-aabbccddeeff", annotations=anything)],
        "names": {"a.b": made("U8", [1]), "a\\b": 1, "": 2, "$$dollar": {"$value": None}, "$str:/w==": False,
                  "0": "é"},
        "gaps": {"$elements": {"1": {"$version": 4294967295}, "5": [], "4294967294": {"$str": "/w=="}}},
        "variants": [{"$variant": "float", "value": made("F32", [1])}, {"$variant": None}],
        "map": {"there": {"$value": anything}, "absent": None},
        "ties": {"tensor": {"$ref": "ids.1"}, "value": {"$ref": "names.0"}, "container": {"$ref": "names"},
                 "dots": {"$ref": "names.a\\.b"}, "bytes": {"$ref": "$str:bmFtZXMu/w=="}},
    }
    metadata = {"$$dollar": "é", "key": "text", "$str:/w==": {"$str": "/w=="}}
    path.write_text(json.dumps({"format": "stele-json", "version": 1, "metadata": metadata, "record": record}))


def check(folder, files):
    count = 0
    for number, file in enumerate(files):
        own = [file] if file.suffix == ".stele" else [folder / f"{number}.stele", folder / f"{number}.compressed.stele"]
        text = (folder / f"{number}.json").read_text(encoding="utf-8")
        if file.name == "every.json":  # from write(): what the library reads is what the file contains
            assert json.dumps(json.loads(file.read_text(encoding="utf-8"))) == json.dumps(json.loads(text)), file
        assert unpacked((folder / f"{number}.json.zst").read_bytes()).decode() == text, file
        for name in own:
            record = stele_reader.read(name.read_bytes())
            assert json.dumps(document(record)) == json.dumps(json.loads(text)), (file, name)
            count += 1
    print(f"{count} .stele files: ok")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "write":
        write(pathlib.Path(sys.argv[2]))
    elif len(sys.argv) > 3 and sys.argv[1] == "check":
        check(pathlib.Path(sys.argv[2]), [pathlib.Path(file) for file in sys.argv[3:]])
    else:
        sys.exit(__doc__)
