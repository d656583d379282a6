"""A reader of `.stele` files, written from docs/formats/stele.md. read(data) checks a file (or raises ValueError) and
returns its index flags, metadata, nodes, tensors (by path: dtype, shape, data, id and its form, annotations) and values
(by path). A map is a tuple of pairs; a string that is not UTF-8 has surrogates for its other bytes."""
import functools
import io
import math
import struct
from types import SimpleNamespace

import xxhash
import zstandard

MAGIC, FRAME, NO_TYPE, NAMED = b"\x93STELE\r\n", 1 << 20, 0xFFFFFFFF, ("module", "map", "variant")
KINDS = ("tensor", "value", "module", "list", "array", "tuple", "map", "variant", "none", "alias")
DTYPES = {int(code): (name, int(bits)) for code, name, bits in (dtype.split(":") for dtype in (
    "1:f64:64 2:f32:32 3:f16:16 4:bf16:16 5:f8_e4m3fn:8 6:f8_e5m2:8 7:f8_e8m0:8 8:f8_e4m3fnuz:8 9:f8_e5m2fnuz:8 "
    "10:f6_e2m3:6 11:f6_e3m2:6 12:f4_e2m1:4 16:i64:64 17:i32:32 18:i16:16 19:i8:8 20:i4:4 24:u64:64 25:u32:32 "
    "26:u16:16 27:u8:8 28:u4:4 32:bool:8 33:c64:64 34:c128:128 40:string:0 41:opaque:0").split())}
text = functools.partial(str, encoding="utf-8", errors="surrogateescape")
hash64 = xxhash.xxh3_64_intdigest


def check(holds, what):
    if not holds:
        raise ValueError(what)


def part(whole, at, size):
    check(at + size <= len(whole), "a part that ends after the whole")
    return whole[at:at + size]


class Cursor(io.BytesIO):
    def take(self, size):
        return part(self.read(size), 0, size)

    def numbers(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def value(self, level=0):
        kind, = self.numbers("B")
        check(kind <= 8 and level <= 64, "a value of an unknown kind, or nested too deep")
        if 1 <= kind <= 4:
            number, = self.numbers(("B", "<q", "<Q", "<d")[kind - 1])
            check(number <= 1 if kind == 1 else kind != 3 or number >> 63, "a bool or u64 out of range")
            return number == 1 if kind == 1 else number
        count, = self.numbers("<I") if kind else (0,)
        if kind == 7:
            return [self.value(level + 1) for _ in range(count)]
        if kind == 8:
            return tuple((text(self.take(*self.numbers("<I"))), self.value(level + 1)) for _ in range(count))
        return None if kind == 0 else text(self.take(count)) if kind == 5 else self.take(count)


def unframed(block, length, width):
    count = -(-length // FRAME)
    check(len(block) > 4 * count > 0, "a compressed block of an impossible size")
    frames, parts = Cursor(block[:-4 * count]), []
    for number, word in enumerate(struct.unpack(f"<{count}I", block[-4 * count:])):
        plain, frame = min(FRAME, length - number * FRAME), frames.take(word & 0x7FFFFFFF)
        if word >> 31 == 0:
            decoder = zstandard.ZstdDecompressor().decompressobj()
            shuffled, size, frame = decoder.decompress(frame), len(frame), bytearray(plain)
            check(decoder.eof and not decoder.unused_data and len(shuffled) == plain and size <= FRAME, "a frame")
            for byte in range(width):
                frame[byte::width] = shuffled[byte * (plain // width):(byte + 1) * (plain // width)]
        check(len(frame) == plain, "a plain frame of another length than its part")
        parts.append(frame)
    check(not frames.read(), "bytes after the last frame")
    return b"".join(parts)


def read(data):
    check(len(data) >= 192 and data[:8] == MAGIC, "not a .stele file")
    version, alignment, required, _, declared, zero, digest = struct.unpack("<IIQQQ16sQ", data[8:64])
    check(hash64(data[:56]) == digest and (version, alignment, required >> 1, any(zero)) == (1, 64, 0, 0), "the header")
    data = part(data, 0, max(declared, 192) if declared else len(data))
    start, size, total, zero, digest, magic = struct.unpack("<QQQ24sQ8s", data[-64:])
    check(declared in (0, total) and total == len(data) and magic == MAGIC[::-1] and not any(zero), "the trailer")
    check(start % 64 == 0 and start >= 64 and size >= 64 and start + size == total - 64, "the place of the index")
    check(hash64(data[start:-16]) == digest, "the hash of the index")
    cursor = Cursor(data[start:-64])
    node_count, entry_count, extent_count, *sizes, type_count, flags, zero = cursor.numbers("<IIQQQQII16s")
    sizes = 32 * node_count, 16 * type_count, 64 * entry_count, 8 * extent_count, *sizes, 16 * entry_count * required
    sections = [(cursor.take(size), cursor.take(-size % 8)) for size in sizes]
    check(flags >> 2 == required and not any(zero + b"".join(pad for _, pad in sections)), "index header, or padding")
    check(not cursor.read(), "bytes after the sections")
    nodes, types, entries, extents, values, metadata, strings, stored = (content for content, _ in sections)
    types = [(part(strings, at, size), version, zero) for at, size, version, zero in struct.iter_unpack("<4I", types)]
    extents, facts_of, expected = struct.unpack(f"<{extent_count}Q", extents), {}, {}  # by name: facts, alias, node
    pairs = struct.iter_unpack("<QQ", stored) if required else [(0, 0)] * entry_count
    for (at, size, *facts, bits, node, low, high), pair in zip(struct.iter_unpack("<IIQQQHHIIIQQ", entries), pairs):
        check(bits < 6 and facts[3] in DTYPES and sum(facts[4:]) <= extent_count and (pair[0] or not pair[1]), "entry")
        facts_of[part(strings, at, size)] = ((*facts, bits >> 1, low, high, *pair), bits & 1, node)
    names, cursor = list(facts_of), Cursor(metadata)
    check(names == sorted(names) and len(names) == entry_count and not any(t[2] for t in types), "an entry or a type")
    count, = cursor.numbers("<I") if metadata else (0,)
    pairs = [[cursor.take(size) for size in cursor.numbers("<II")] for _ in range(count)]
    check(not cursor.read() and all(a < b for (a, _), (b, _) in zip(pairs, pairs[1:])), "the metadata")
    metadata = {text(key): text(value) for key, value in pairs}
    record = SimpleNamespace(flags=flags, metadata=metadata, nodes=[], tensors={}, values={})
    above, following = [], 64
    for i, (kind, bits, zero, at, size, end, index, *place) in enumerate(struct.iter_unpack("<BBHIIIIIQ", nodes)):
        above = [container for container in above if container.end > i]
        named, parent = bits & 1, above[-1] if above else None
        check(kind < 10 and bits < 4 and not zero and (named or not size) and len(above) <= 512, "a node")
        check(i < end <= (parent.end if i else node_count) and (i or end == node_count), "the end of a subtree")
        check(2 <= kind <= 7 or end == i + 1 and index == {1: 0, 8: NO_TYPE}.get(kind, index), "a leaf")
        name = part(strings, at, size) if named else at
        step = (name.replace(b"\\", b"\\\\").replace(b".", b"\\.") or b"\\e") if named else b"%d" % at
        path = b"" if i == 0 else name if flags & 1 else parent.path + b"." * (len(above) > 1) + step
        node = SimpleNamespace(kind=KINDS[kind], name=name, path=path, end=end, names=set(), last=-1)
        record.nodes.append(node)
        if i:
            fits = named and end == i + 1 if flags & 1 else flags & 2 or named == (parent.kind in NAMED)
            check(fits and name not in parent.names and (named or name > parent.last), "a name among its siblings")
            parent.last = parent.last if named else name
            parent.names.add(name)
        cursor = Cursor(part(values, place[1], place[0]))
        value = cursor.value() if kind == 1 or place[0] else ()
        check(not cursor.read() and (kind < 2 or not place[0]) and (kind or isinstance(value, tuple)), "a node's value")
        if node.kind == "value":
            record.values[text(path)] = value
        elif node.kind == "alias":
            node.target = target = record.nodes[min(index, i)]
            check(target.end <= i and target.kind not in ("none", "alias"), "an alias of an alias or of what it is in")
            expected.update({path: (facts_of[target.path][0], 1, i)} if target.kind == "tensor" else {})
        elif node.kind == "tensor":
            check(names[index:index + 1] == [path], "the entry of a tensor")
            expected[path] = facts, *_ = (facts_of[path][0], 0, i)
            offset, length, digest, code, rank, first, form, low, high, size, stored_digest = facts
            (dtype, bits), shape, stop = DTYPES[code], extents[first:first + rank], offset + (size or length)
            count, fits = math.prod(shape), math.prod(filter(None, shape)) < 1 << 64
            check(fits and (not bits or -(-bits * count // 8) == length), "the length of a tensor")
            check(offset == following and stop <= start, "a block that does not follow the one before")
            raw, following = data[offset:stop], -(-stop // 64) * 64
            if size:
                check(hash64(raw) == stored_digest, "the hash of a compressed block")
                width = bits // (16 if dtype in ("c64", "c128") else 8)
                raw = unframed(raw, length, width if width in (2, 4, 8) else 1)
            check(hash64(raw) == digest and not any(data[stop:following]), "the hash of a tensor, or zeros after it")
            record.tensors[text(path)] = SimpleNamespace(
                dtype=dtype, shape=shape, data=raw, form=form, id=high << 64 | low, annotations=value)
        elif node.kind != "none":
            check(index == NO_TYPE or index < type_count, "a type")
            node.version = types[index][1] if index != NO_TYPE else 0
            above.append(node)
    ranks = sum(len(tensor.shape) for tensor in record.tensors.values())
    check(following == start and facts_of == expected and ranks <= extent_count, "entries, blocks or extents left over")
    return record
