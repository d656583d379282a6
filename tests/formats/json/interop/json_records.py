#!/usr/bin/env python3
"""JSON records by Python's own json, gzip and base64, by pyzstd, and by the zstd program.

    json_records.py check FOLDER    the files that `interop_json write` made
    json_records.py write FOLDER    files for `interop_json read`
"""
import base64
import gzip
import json
import os
import subprocess
import sys

import numpy
import pyzstd

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?"}


def weight(i):
    k = numpy.arange(500 * 700, dtype=numpy.uint64)
    return ((k * numpy.uint64(2654435761) + numpy.uint64(i)) % numpy.uint64(1000003)).astype("<f4") / numpy.float32(1000)


def tensors():
    """Path to array, by the rule of json.cpp."""
    all_ = {}
    for i in range(3):
        all_[f"layers.{i}.weight"] = weight(i).reshape(500, 700)
        if i != 1:
            all_[f"layers.{i}.bias"] = numpy.array([0.1, -2, 65504], "<f2")
    all_["special"] = numpy.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3])
    all_["counts"] = numpy.array([[-2**63, 0, 2**63 - 1]])
    all_["mask"] = numpy.array([True, False])
    return all_


TEXT = "line\n\"ü\" \U0001F600"
ANY = {"$value": {"list": [None, True, 2.5]}}


def array(node):
    dtype = DTYPES[node["$dtype"]]
    if isinstance(node["data"], str):
        return numpy.frombuffer(base64.b64decode(node["data"], validate=True), dtype).reshape(node["shape"])
    if dtype == "<f2":  # read to the nearest f32 first
        return numpy.array(node["data"], "<f4").astype(dtype)
    return numpy.array(node["data"], dtype)


def check_document(text, name):
    document = json.loads(text)
    assert document["format"] == "stele-json" and document["version"] == 1 and document["metadata"] == {}, name
    record = document["record"]
    assert list(record) == ["layers", "special", "counts", "mask", "text", "any"], name
    found = {}
    for i, layer in enumerate(record["layers"]):
        for field, node in layer.items():
            if node is not None:
                found[f"layers.{i}.{field}"] = array(node)
    for field in ("special", "counts", "mask"):
        found[field] = array(record[field])
    for path, expected in tensors().items():
        value = found.pop(path)
        assert value.shape == expected.shape and value.tobytes() == expected.tobytes(), f"{name}: {path}"
    assert not found and record["text"] == TEXT and record["any"] == ANY, name


def check(folder):
    for name in ("plain.json", "pretty.json", "numbers.json"):
        with open(os.path.join(folder, name), "rb") as file:
            check_document(file.read(), name)
        print(f"{name}: ok")
    with open(os.path.join(folder, "plain.json"), "rb") as file:
        plain = file.read()
    with gzip.open(os.path.join(folder, "packed.json.gz")) as file:
        assert file.read() == plain, "gzip"
    path = os.path.join(folder, "packed.json.zst")
    unpacked = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    assert unpacked == plain, "zstd"
    with open(path, "rb") as file:
        assert pyzstd.decompress(file.read()) == plain, "pyzstd"
    assert pyzstd.SeekableZstdFile.is_seekable_format_file(path), "a seek table"
    with pyzstd.SeekableZstdFile(path) as file:  # by the table
        for at in (0, 1, 700000, len(plain) // 2, len(plain) - 5):
            file.seek(at)
            assert file.read(1000) == plain[at:at + 1000], f"seek to {at}"
    print("packed.json.gz, packed.json.zst: ok, by gzip, zstd, pyzstd, and parts of it by its seek table")


def tensor(value, numbers):
    name = next(name for name, dtype in DTYPES.items() if numpy.dtype(dtype) == value.dtype)
    data = value.tolist() if numbers else base64.b64encode(value.tobytes()).decode()
    return {"$dtype": name, "shape": list(value.shape), "data": data}


def document(numbers=False):
    all_ = {path: tensor(value, numbers) for path, value in tensors().items()}
    layers = [{field: all_[f"layers.{i}.{field}"] for field in ("weight", "bias") if f"layers.{i}.{field}" in all_}
              for i in range(3)]
    return {"format": "stele-json", "version": 1, "metadata": {},
            "record": {"layers": layers, "special": all_["special"], "counts": all_["counts"], "mask": all_["mask"],
                       "text": TEXT, "any": ANY}}


def write(folder):
    def save(name, content):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)

    plain = json.dumps(document()).encode()
    save("sorted.json", json.dumps(document(), sort_keys=True).encode())  # data before the shape
    save("indented.json", json.dumps(document(), indent=3, ensure_ascii=False).encode())
    save("numbers.json", json.dumps(document(numbers=True), indent=1).encode())
    save("one.json.gz", gzip.compress(plain))
    save("members.json.gz", gzip.compress(plain[:1000000]) + gzip.compress(plain[1000000:]))
    save("one.json.zst", subprocess.run(["zstd", "-cq", "-7"], input=plain, check=True, stdout=subprocess.PIPE).stdout)
    save("frames.json.zst", pyzstd.compress(plain[:1000000]) + pyzstd.compress(plain[1000000:]))
    with pyzstd.SeekableZstdFile(os.path.join(folder, "seekable.json.zst"), "w", max_frame_content_size=500000) as file:
        file.write(plain)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("check", "write"):
        sys.exit(__doc__)
    os.makedirs(sys.argv[2], exist_ok=True)
    {"check": check, "write": write}[sys.argv[1]](sys.argv[2])
