#!/usr/bin/env python3
"""Write the golden archives of tests/formats/archive/data, or compare them with what would be written.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/archive/interop/make_golden_archive.py [--check] FOLDER

Only Python's zipfile and the `flatbuffers` package are used; the slots below are those of dl4j/*.fbs,
written down anew. Element k of an array, counted in C order, is k - 2 (uint8: k, bool: k % 2), unless README.md says otherwise.
"""

import json
import pathlib
import struct
import sys
import zipfile

import flatbuffers

FLAGS = {"BOOL": 524288, "HALF": 4096, "FLOAT": 8192, "DOUBLE": 16384, "INT8": 32768, "INT16": 65536,
         "INT32": 131072, "INT64": 262144, "UINT8": 8388608 | 32768, "BFLOAT16": 2048, "UTF8": 1048576}
TYPES = {"BOOL": 1, "HALF": 3, "FLOAT": 5, "DOUBLE": 6, "INT8": 7, "INT16": 8, "INT32": 9, "INT64": 10, "UINT8": 11,
         "BFLOAT16": 17, "UTF8": 50}
CODES = {"BOOL": "?", "HALF": "e", "FLOAT": "f", "DOUBLE": "d", "INT8": "b", "INT16": "h", "INT32": "i",
         "INT64": "q", "UINT8": "B"}


def packed(dtype, values, big=False):
    end = ">" if big else "<"
    if dtype == "BFLOAT16":  # the upper half of a float
        return b"".join(struct.pack(end + "H", struct.unpack("<I", struct.pack("<f", v))[0] >> 16) for v in values)
    return struct.pack(f"{end}{len(values)}{CODES[dtype]}", *values)


def counted(dtype, count):
    if dtype in ("BOOL", "UINT8"):
        return [k % 2 == 1 for k in range(count)] if dtype == "BOOL" else list(range(count))
    return [k - 2 for k in range(count)]


def product(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def in_order(values, shape, axes):
    """C-ordered values as they lie in memory, where axes[0] is the outermost axis there."""
    steps = [product(shape[k + 1:]) for k in range(len(shape))]
    out = []

    def walk(depth, at):
        if depth == len(axes):
            out.append(values[at])
            return
        for i in range(shape[axes[depth]]):
            walk(depth + 1, at + i * steps[axes[depth]])

    walk(0, 0)
    return out


def longs(b, numbers):
    b.StartVector(8, len(numbers), 8)
    for n in reversed(numbers):
        b.PrependInt64(n)
    return b.EndVector()


def doubles(b, numbers):
    b.StartVector(8, len(numbers), 8)
    for n in reversed(numbers):
        b.PrependFloat64(n)
    return b.EndVector()


def ints(b, numbers):
    b.StartVector(4, len(numbers), 4)
    for n in reversed(numbers):
        b.PrependInt32(n)
    return b.EndVector()


def offsets(b, all_offsets):
    b.StartVector(4, len(all_offsets), 4)
    for o in reversed(all_offsets):
        b.PrependUOffsetTRelative(o)
    return b.EndVector()


def texts(b, all_texts):
    return offsets(b, [b.CreateString(t) for t in all_texts])


def table(b, count, slots):
    b.StartObject(count)
    for slot, (kind, value) in slots.items():
        if kind == "offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        elif kind == "byte":
            b.PrependInt8Slot(slot, value, -128)  # -128: no default, so that it is always there
        elif kind == "long":
            b.PrependInt64Slot(slot, value, 0)
        elif kind == "bool":
            b.PrependBoolSlot(slot, value, False)
    return b.EndObject()


def shape_info(dtype, shape, axes=None):
    axes = list(range(len(shape))) if axes is None else axes
    strides, step = [0] * len(shape), 1
    for k in reversed(axes):
        strides[k], step = step, step * shape[k]
    order = "f" if len(shape) > 1 and axes == list(reversed(range(len(shape)))) else "c"
    empty = 8 if product(shape) == 0 else 0
    return [len(shape), *shape, *strides, FLAGS[dtype] | empty, 1, ord(order)]


def array_table(b, dtype, shape, content=None, info=None, big=False, external=None, total=0, content_first=False):
    """An Array; what is created first lies last in the file."""
    if content_first:
        info_at = longs(b, info)
        content_at = b.CreateByteVector(content) if content else 0
    else:
        content_at = b.CreateByteVector(content) if content else 0
        info_at = longs(b, info)
    names = texts(b, [external]) if external else 0
    slots = {0: ("offset", info_at), 1: ("offset", content_at), 2: ("byte", TYPES[dtype]), 3: ("byte", int(big))}
    if external:
        slots |= {5: ("long", total), 6: ("offset", names), 7: ("bool", True)}
    return table(b, 10, slots)


def finished(b, root):
    b.Finish(root)
    return bytes(b.Output())


def array(dtype, shape, values=None, axes=None, big=False, plain=False, content_first=False):
    values = counted(dtype, product(shape)) if values is None else values
    content = packed(dtype, in_order(values, shape, axes or list(range(len(shape)))), big)
    b = flatbuffers.Builder(0)
    info = shape if plain else shape_info(dtype, shape, axes)
    return finished(b, array_table(b, dtype, shape, content, info, big, content_first=content_first))


def strings(shape, values):
    encoded = [v.encode() for v in values]
    content, at = struct.pack(">q", len(encoded)) + struct.pack(">q", 0), 0
    for e in encoded:
        at += len(e)
        content += struct.pack(">q", at)
    b = flatbuffers.Builder(0)
    return finished(b, array_table(b, "UTF8", shape, content + b"".join(encoded), shape_info("UTF8", shape)))


def external(dtype, shape, name, axes=None, big=False):
    b = flatbuffers.Builder(0)
    size = len(packed(dtype, counted(dtype, product(shape))))
    return finished(b, array_table(b, dtype, shape, None, shape_info(dtype, shape, axes), big, name, size))


def graph_table(b, sub_graphs=()):
    def variable(name, dtype, shape, kind, deps=()):
        slots = {0: ("offset", b.CreateString(name)), 1: ("byte", TYPES[dtype]), 3: ("byte", kind)}
        if shape is not None:
            slots[2] = ("offset", longs(b, shape))
        if deps:
            slots[4] = ("offset", texts(b, deps))
        return table(b, 7, slots)

    def operation(name, op_name, inputs, outputs, **more):
        slots = {0: ("offset", b.CreateString(name)), 1: ("offset", b.CreateString(op_name)),
                 4: ("offset", texts(b, inputs)), 5: ("offset", texts(b, outputs))} | {
                     int(slot[1:]): value(b) for slot, value in more.items()}
        return table(b, 23, slots)

    variables = [variable("in", "FLOAT", [-1, 3], 3), variable("my/param/name", "FLOAT", [3, 2], 0),
                 variable("sum", "FLOAT", None, 2), variable("out", "FLOAT", None, 2, ["first"])]
    operations = [
        # The one that comes later stands first.
        operation("second", "tanh", ["sum"], ["out"], s2=lambda b: ("byte", 3), s3=lambda b: ("long", 29),
                  s18=lambda b: ("offset", texts(b, ["first"]))),
        operation("first", "matmul", ["in", "my/param/name"], ["sum"],
                  s3=lambda b: ("long", -273014250715117663),
                  s6=lambda b: ("offset", texts(b, ["transposeX", "transposeY", ""])),
                  s7=lambda b: ("offset", longs(b, [0, 1, -7])),
                  s8=lambda b: ("offset", texts(b, ["alpha"])), s9=lambda b: ("offset", doubles(b, [1.5])),
                  s10=lambda b: ("offset", texts(b, ["keep"])), s11=lambda b: ("offset", b.CreateByteVector(b"\1")),
                  s12=lambda b: ("offset", texts(b, ["to"])), s13=lambda b: ("offset", b.CreateByteVector(bytes([5]))),
                  s14=lambda b: ("offset", ints(b, [0, 2147483647])),
                  s15=lambda b: ("offset", array_table(b, "FLOAT", [], packed("FLOAT", [0.5], True),
                                                       shape_info("FLOAT", []), True)),
                  s21=lambda b: ("offset", texts(b, ["mode"])), s22=lambda b: ("offset", texts(b, ["same"]))),
    ]
    slots = {0: ("offset", offsets(b, variables)), 1: ("offset", offsets(b, operations)),
             2: ("offset", texts(b, ["out"]))}
    if sub_graphs:
        named = [table(b, 2, {0: ("offset", b.CreateString(n)), 1: ("offset", g)}) for n, g in sub_graphs]
        slots[4] = ("offset", offsets(b, named))
    return table(b, 5, slots)


def graph():
    b = flatbuffers.Builder(0)
    inner = table(b, 5, {})  # without any list
    return finished(b, graph_table(b, [("body", inner)]))


def training(updater, keys=()):
    config = {"updater": {"@class": "org.nd4j.linalg.learning.config." + updater, "learningRate": 0.001, "beta1": 0.9,
                          "beta2": 0.999, "epsilon": 1e-8},
              "regularization": [], "minimize": True, "dataSetFeatureMapping": ["in"],
              "dataSetLabelMapping": ["label"], "dataSetFeatureMaskMapping": None, "dataSetLabelMaskMapping": None,
              "lossVariables": ["out"], "iterationCount": 41, "epochCount": 3, "unknownMember": {"a": [1]}}
    b = flatbuffers.Builder(0)
    slots = {0: ("offset", b.CreateString(json.dumps(config)))}
    if keys:
        slots[1] = ("offset", texts(b, keys))
    return finished(b, table(b, 5, slots))


def full():
    """All that ADR-0001 says, and what a reader must bear."""
    bom = b"\xef\xbb\xbf"
    base = [
        ("my/param/name 0", array("FLOAT", [3, 2])),
        ("&MyParam* 1", array("FLOAT", [2, 3], big=True)),
        ("with%20blank%0A 2", array("DOUBLE", [2, 3], axes=[1, 0])),
        ("% 3", array("INT64", [4], big=True)),
        ("permuted 4", array("INT16", [2, 3, 4], axes=[2, 0, 1], big=True)),
        ("half 5", array("HALF", [5], big=True)),
        ("bf16 6", array("BFLOAT16", [5])),
        ("for_others 7", array("INT32", [3], content_first=True)),
        ("mask 8", array("BOOL", [3])),
        ("plain 9", array("UINT8", [2, 2], plain=True)),
        ("scalar 10", array("INT8", [])),
        ("none 11", array("FLOAT", [0, 3])),
        ("texts 12", strings([2], ["é", "two words"])),
        ("beside 13", external("FLOAT", [2, 2], "13.bin", big=True)),
        ("日本語 4000000000", array("FLOAT", [1], content_first=True, big=True)),
    ]
    entries = [("tags.txt", bom + b"base\r\n\r\nTuned\r\n"), ("base/", b""), ("base/params/", b"")]
    lines = "\r\n".join(line for line, _ in base) + "\r\nmap_param 0 MAP\r\n"
    entries.append(("base/params.txt", bom + lines.encode()))
    for line, content in base:
        entries.append((f"base/params/{line.split()[-1]}.fb", content))
    entries += [
        ("base/params/13.bin", packed("FLOAT", counted("FLOAT", 4), True)),
        ("base/params_maps.txt", b"map_param 0\n"), ("base/params_maps/0.fb", b"what a later version writes"),
        ("base/graph.fb", graph()), ("base/trainingConfig.fb", training("Adam")),
        ("base/updater.txt", b"&MyParam* 0 1\nmy/param/name 2 3\n"),
        ("base/updater/0.fb", array("FLOAT", [2, 3])), ("base/updater/1.fb", array("FLOAT", [2, 3], big=True)),
        ("base/updater/2.fb", array("FLOAT", [3, 2])), ("base/updater/3.fb", array("FLOAT", [3, 2], axes=[1, 0])),
        ("README.md", b"Not of the format.\n"),
        # Spelled otherwise than in tags.txt.
        ("tuned/params.txt", b"shared_param base/7\nown\t0\nmy/param/name BASE/0"),
        ("tuned/params/0.fb", array("FLOAT", [2], values=[0.25, -1e30])),
        ("tuned/updater.txt", b"my/param/name V=base/3"),
        ("tuned/trainingConfig.fb", training("Adam", ["M", "V"])),
    ]
    return entries


def least():
    """What no tag can do without."""
    return [("only/params.txt", b""), ("tags.txt", b"only")]


DEFLATED = (".txt", "/graph.fb", "/0.fb", "/3.fb", "/13.bin", "0000.fb")


def write(path, entries):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            deflated = name.endswith(DEFLATED) and content
            file.writestr(info, content, zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED)


def same(path, entries):
    with zipfile.ZipFile(path) as file:
        return [(i.filename, file.read(i)) for i in file.infolist()] == entries


if __name__ == "__main__":
    arguments = sys.argv[1:]
    check = arguments[0] == "--check"
    folder = pathlib.Path(arguments[-1])
    for archive_name, content in (("full.zip", full()), ("least.zip", least())):
        if not check:
            write(folder / archive_name, content)
        elif not same(folder / archive_name, content):
            sys.exit(f"{archive_name}: not what would be written")
