"""Products of zarr's folders, by zarr-python and TensorStore."""

import json
import math
import os
import sys
import warnings
from pathlib import Path

import ml_dtypes
import numcodecs
import numpy as np
import tensorstore as ts
import zarr
from zarr.codecs import (BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec)
from zarr.codecs import numcodecs as zarr3
from zarr.codecs.numcodecs import BZ2, CRC32, CRC32C, LZ4, LZMA, Shuffle, Zlib

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

warnings.filterwarnings("ignore")
PACKAGES = ["zarr", "numcodecs", "tensorstore", "ml_dtypes", "numpy"]
PAGES = ["formats/zarr"]
COMPARED = ["metadata", "values"]
NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
           "complex64", "complex128"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int4"]
OTHERS = ["S3", "U2", "M8[s]", "m8[ns]", "V5", "record", "string"]
DIMENSIONS = {
    "program": ["zarr-python", "TensorStore"],
    "version": [2, 3],
    "dtype": NUMBERS + NARROW + OTHERS,
    "codec": ["none", "default", "gzip", "zlib", "zstd", "zstd checksum", "crc32c", "blosc lz4", "blosc lz4hc", "blosc zlib",
              "blosc zstd", "blosc blosclz", "lz4", "bz2", "lzma", "gzip, crc32c", "crc32c, gzip", "crc32", "crc32c at start"],
    "shuffle": ["none", "byte", "bit"],
    "filter": ["none", "delta", "bitround", "quantize", "fixedscaleoffset", "packbits", "astype"],
    "order": ["C", "F", "transpose"],
    "byte order": ["<", ">"],
    "fill value": ["null", "zero", "one", "all bits", "sign", "infinity", "nan", "payload", "2^53 + 1"],
    "missing chunks": ["none", "some", "all"],
    "sharding": ["none", "index at the end", "index at the start", "index without checksum", "shards in shards", "gzip outside"],
    "keys": ["default", "/", "."],
    "shape": [[[], []], [[0], [3]], [[1], [1]], [[7], [3]], [[5, 6], [2, 4]], [[4, 3], [4, 3]], [[2, 3], [10, 10]],
              [[2, 0, 3], [1, 2, 3]], [[3, 4, 5], [2, 2, 2]], [[40, 30], [40, 30]], [[1] * 5 + [3], [1] * 5 + [2]],
              [[1] * 32, [1] * 32]],
    "tree": ["array", "group", "groups", "names", "nothing", "9 arrays"],
    "attributes": ["none", "strings", "JSON", "NaN"],
    "consolidated": [False, True],
    "store": ["folder", "zip"],
}
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FILTERS = {"delta": INTEGERS, "bitround": FLOATS, "quantize": FLOATS, "fixedscaleoffset": FLOATS, "packbits": ("bool",),
           "astype": ("int32", "float32")}
ATTRIBUTES = {"none": {}, "strings": {"author": "Ä", "license": "MIT", "": "x"}, "NaN": {"loss": math.nan, "good": "1"},
    "JSON": {"list": [1, None, {"a": 2.5}], "big": 2**63, "low": -2**63, "on": True, "text": "t", "none": None,
             "inner": {"x": {"y": []}}}}
NAMES = ["a.b", "c/日本語", "d e/0/1/2", "x" * 100, "layers.0/weight", "~!@#$%^&()+=", "c/0"]


def possible(case):
    blosc = case["codec"].startswith("blosc")
    rank = len(case["shape"][0])
    if case["sharding"] != "none" and (rank > 30 or rank == 0 and case["program"] == "zarr-python"):
        return False  # 2^32 chunks of a shard; zarr-python has no shards of rank 0
    if case["version"] == 2 and (case["sharding"] != "none" or case["order"] == "transpose"):
        return False
    if case["program"] == "TensorStore":
        codecs = ("none", "zstd", "gzip", "blosc lz4", "blosc zstd", "blosc zlib", "blosc blosclz", "blosc lz4hc")
        codecs += ("zlib", "bz2") if case["version"] == 2 else ("crc32c", "gzip, crc32c", "crc32c, gzip")
        return (case["dtype"] in NUMBERS + NARROW and case["sharding"] != "gzip outside"
                and case["codec"] in codecs and case["filter"] == "none"
                and (blosc or case["shuffle"] == "none") and case["store"] == "folder" and not case["consolidated"]
                and not (case["tree"] == "array" and case["attributes"] != "none"))
    if case["dtype"] in NARROW or (case["shuffle"] == "bit" and not blosc):
        return False
    if case["dtype"] in OTHERS and (case["fill value"] not in ("null", "zero") or case["filter"] != "none"):
        return False
    if case["dtype"] == "string" and (case["sharding"] != "none" or case["shuffle"] != "none"):
        return False
    if case["filter"] != "none" and case["dtype"] not in FILTERS[case["filter"]]:
        return False
    if case["dtype"] in ("record", "V5") and case["sharding"] != "none":
        return False  # fails in zarr-python
    # zarr-python writes files with these that it cannot read.
    v3 = case["version"] == 3
    return case["filter"] == "none" or not (case["byte order"] == ">" or case["sharding"] != "none" or
                                            v3 and (case["order"] != "C" or case["filter"] == "packbits") or
                                            case["filter"] in ("fixedscaleoffset", "packbits") and case["shuffle"] == "byte")


def fill(case):
    """The same bits for a number of any kind."""
    name = case["dtype"]
    dtype = np.dtype(name)
    part = {"complex64": np.dtype("float32"), "complex128": np.dtype("float64")}.get(name, dtype)
    size = part.itemsize
    floats = part.kind == "f" or name in NARROW[:5]
    if name == "int4":
        return np.int8({"zero": 0, "one": 1, "all bits": -1, "sign": -8}.get(case["fill value"], 5)).astype(dtype)[()]
    if case["fill value"] == "2^53 + 1":
        return np.array(2**53 + 1 if size == 8 else 77).astype(dtype)[()]
    if case["fill value"] == "one":
        return np.array(1, dtype)[()]
    if name == "bool":
        return np.bool_(case["fill value"] != "zero")
    infinity = np.array(np.inf, part).view(f"u{size}")[()] if floats else 0
    bits = {"zero": 0, "all bits": 2**(8 * size) - 1, "sign": 2**(8 * size - 1), "infinity": int(infinity),
            "nan": int(np.array(np.nan, part).view(f"u{size}")[()]) if floats else 99, "payload": int(infinity) | 3}
    one = np.array([bits[case["fill value"]]], f"u{size}").view(part)
    return np.concatenate([one, one]).view(dtype)[0] if part != dtype else one[0]


def values(case, shape, seed):
    name = case["dtype"]
    random = np.random.default_rng(seed)
    count = math.prod(shape)
    if name == "record":
        return np.zeros(shape, [("a", "<f4"), ("b", "<i2")])
    if name == "string":
        return np.full(shape, "ab", object)
    if name in OTHERS:
        return np.zeros(shape, name)
    if name == "int4":
        return random.integers(-8, 8, shape).astype(np.int8).astype(name)
    dtype = np.dtype(name)
    bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
    if count > 1000:  # compressible
        bits = np.repeat(bits[:len(bits) // 8 + 1], 8)[:len(bits)]
    if case["filter"] in ("bitround", "quantize", "fixedscaleoffset"):
        return random.random(shape).astype(dtype)
    return (bits & 1 if name == "bool" else bits).view(dtype).reshape(shape)


def codecs_v2(case, dtype):
    made = {
        "none": [], "gzip": [numcodecs.GZip(1)], "zlib": [numcodecs.Zlib(1)], "zstd": [numcodecs.Zstd(1)],
        "zstd checksum": [numcodecs.Zstd(1, checksum=True)], "crc32c": [numcodecs.CRC32C()], "lz4": [numcodecs.LZ4()],
        "bz2": [numcodecs.BZ2()], "lzma": [numcodecs.LZMA()], "gzip, crc32c": [numcodecs.GZip(1), numcodecs.CRC32C()],
        "crc32c, gzip": [numcodecs.CRC32C(), numcodecs.GZip(1)], "crc32": [numcodecs.CRC32()],
        "crc32c at start": [numcodecs.CRC32C(location="start")],
    }
    shuffle = ["none", "byte", "bit"].index(case["shuffle"])
    if case["codec"].startswith("blosc"):
        return [numcodecs.Blosc(case["codec"].split()[1], 5, shuffle)]
    return ([numcodecs.Shuffle(dtype.itemsize)] if shuffle else []) + made[case["codec"]]


def filters(case, dtype, kind):
    name, letter = dtype.name, dtype.str
    match case["filter"]:
        case "delta":
            return [kind.Delta(dtype=letter)]
        case "bitround":
            return [kind.BitRound(keepbits=3)]
        case "quantize":
            return [kind.Quantize(digits=2, dtype=letter)]
        case "fixedscaleoffset":
            return [kind.FixedScaleOffset(offset=0, scale=100, dtype=letter, astype="<i2")]
        case "packbits":
            return [kind.PackBits()]
        case "astype":
            return [kind.AsType(encode_dtype="<i8" if name == "int32" else "<f8", decode_dtype=letter)]
    return []


def codecs_v3(case, dtype):
    made = {
        "none": [], "gzip": [GzipCodec(level=1)], "zlib": [Zlib(level=1)], "zstd": [ZstdCodec(level=1)],
        "zstd checksum": [ZstdCodec(level=1, checksum=True)], "crc32c": [Crc32cCodec()], "lz4": [LZ4()], "bz2": [BZ2()],
        "lzma": [LZMA()], "gzip, crc32c": [GzipCodec(level=1), Crc32cCodec()],
        "crc32c, gzip": [Crc32cCodec(), GzipCodec(level=1)], "crc32": [CRC32()], "crc32c at start": [CRC32C(location="start")],
    }
    if case["codec"].startswith("blosc"):
        shuffle = {"none": "noshuffle", "byte": "shuffle", "bit": "bitshuffle"}[case["shuffle"]]
        return [BloscCodec(cname=case["codec"].split()[1], clevel=5, shuffle=shuffle, typesize=dtype.itemsize)]
    return ([Shuffle(elementsize=dtype.itemsize)] if case["shuffle"] != "none" else []) + made[case["codec"]]


def permutation(case, rank):
    axes = list(range(rank))
    return axes[::-1] if case["order"] == "F" else axes[1:] + axes[:1]


def settings(case, shape, chunk, dtype):
    """Arguments of zarr.create_array()."""
    found = {"shape": shape, "dtype": "str" if case["dtype"] == "string" else dtype, "chunks": chunk}
    if case["fill value"] != "null" and case["dtype"] not in OTHERS:
        found["fill_value"] = fill(case)
    separator = case["keys"]
    if case["version"] == 2:
        found["fill_value"] = found.get("fill_value")  # null
        if case["dtype"] in OTHERS and case["fill value"] == "zero":
            del found["fill_value"]
        if separator != "default":
            found["chunk_key_encoding"] = {"name": "v2", "separator": separator}
        found["order"] = case["order"]
        if case["codec"] != "default":
            *first, last = codecs_v2(case, dtype) or [None]
            found["compressors"] = last
            made = filters(case, dtype, numcodecs) + first
            if made:
                found["filters"] = made
        elif case["filter"] != "none":
            found["filters"] = filters(case, dtype, numcodecs)
        if case["dtype"] == "string" and "filters" in found:
            found["filters"] = [numcodecs.VLenUTF8()] + found["filters"]
        return found
    if separator != "default":
        found["chunk_key_encoding"] = {"name": "v2" if case["order"] == "F" else "default", "separator": separator}
    first = filters(case, dtype, zarr3)
    if case["order"] != "C":
        first.append(TransposeCodec(order=permutation(case, len(shape))))
    if first:
        found["filters"] = first
    if case["codec"] != "default":
        found["compressors"] = codecs_v3(case, dtype) or None
    if case["byte order"] == ">" and case["dtype"] not in OTHERS and dtype.itemsize > 1:
        found["serializer"] = BytesCodec(endian="big")
    if case["sharding"] == "none":
        return found
    shard = [2 * n for n in chunk]
    last = found.pop("compressors", [ZstdCodec()]) or []
    index = [BytesCodec()] + ([] if case["sharding"] == "index without checksum" else [Crc32cCodec()])
    inner = found.pop("filters", []) + [found.pop("serializer", BytesCodec())] + last
    if case["sharding"] == "shards in shards":
        inner = [ShardingCodec(chunk_shape=chunk, codecs=inner)]
        chunk = shard
        shard = [2 * n for n in chunk]
    where = "start" if case["sharding"] == "index at the start" else "end"
    outer = [GzipCodec(level=1)] if case["sharding"] == "gzip outside" else None
    found |= {"chunks": shard, "filters": None, "compressors": outer,
              "serializer": ShardingCodec(chunk_shape=chunk, codecs=inner, index_codecs=index, index_location=where)}
    return found


def fill_in(array, case, shape, chunk, seed):
    if case["missing chunks"] == "all":
        return
    data = values(case, shape, seed)
    if case["missing chunks"] == "some" and shape:
        first = tuple(slice(0, min(n, extent)) for n, extent in zip(chunk, shape))
        array[first] = data[first]
    else:
        array[...] = data


def write_zarr(case, path, names):
    """Returns the arrays of zarr-python; each is read from the file again."""
    shape, chunk = case["shape"]
    attributes = ATTRIBUTES[case["attributes"]]
    python = case["program"] == "zarr-python"
    config = settings(case, shape, chunk, dtype_of(case)) if python else None
    store = zarr.storage.ZipStore(path, mode="w") if case["store"] == "zip" else zarr.storage.LocalStore(path)
    if case["tree"] == "array" and not python:
        write_tensorstore(case, path, 1)
    elif case["tree"] == "array":
        array = zarr.create_array(store, zarr_format=case["version"], attributes=attributes, **config)
        fill_in(array, case, shape, chunk, 1)
    else:
        root = zarr.create_group(store, zarr_format=case["version"], attributes=attributes)
        for seed, name in enumerate(names):
            if not python:
                write_tensorstore(case, path / name, seed)
                continue
            array = root.create_array(name, attributes={"unit": "m"}, **config)
            fill_in(array, case, shape, chunk, seed)
        if case["consolidated"]:
            zarr.consolidate_metadata(store, zarr_format=case["version"])
    store.close()


def dtype_of(case):
    dtype = np.dtype([("a", "<f4"), ("b", "<i2")]) if case["dtype"] == "record" else np.dtype(
        object if case["dtype"] == "string" else case["dtype"])
    big = case["byte order"] == ">" and case["version"] == 2 and case["dtype"] not in ("record", "string")
    return dtype.newbyteorder(">") if big else dtype


def write_tensorstore(case, path, seed):
    shape, chunk = case["shape"]
    dtype = np.dtype(case["dtype"])
    blosc = case["codec"].startswith("blosc")
    shuffle = ["none", "byte", "bit"].index(case["shuffle"])
    cname = case["codec"].split()[1] if blosc else None
    value = None if case["fill value"] == "null" else fill(case)
    rank = len(shape)
    if case["version"] == 2:
        compressor = {"id": "blosc", "cname": cname, "clevel": 5, "shuffle": shuffle, "blocksize": 0} if blosc else {
            "id": case["codec"], "level": 1}
        letter = dtype.newbyteorder(case["byte order"]).str if case["dtype"] in NUMBERS else case["dtype"]
        metadata = {"compressor": None if case["codec"] == "none" else compressor, "dtype": letter,
                    "order": case["order"] if rank > 1 else "C",
                    "chunks": chunk, "shape": shape, "fill_value": None}
        if case["keys"] != "default":
            metadata["dimension_separator"] = case["keys"]
        spec = {"driver": "zarr", "metadata": metadata}
        options = {}
    else:
        bits = {"none": "noshuffle", "byte": "shuffle", "bit": "bitshuffle"}[case["shuffle"]]
        named = {"gzip": {"name": "gzip", "configuration": {"level": 1}}, "crc32c": {"name": "crc32c"},
                 "zstd": {"name": "zstd", "configuration": {"level": 1}}}
        last = [{"name": "blosc", "configuration": {"cname": cname, "clevel": 5, "shuffle": bits, "typesize": dtype.itemsize}}
                ] if blosc else [named[name] for name in case["codec"].split(", ") if name != "none"]
        first = [] if case["order"] == "C" else [
            {"name": "transpose", "configuration": {"order": permutation(case, rank)}}]
        endian = {"name": "bytes", "configuration": {"endian": "little" if case["byte order"] == "<" else "big"}}
        codecs = first + [endian if dtype.itemsize > 1 else {"name": "bytes"}] + last
        grid = chunk
        if case["sharding"] != "none":
            index = [{"name": "bytes", "configuration": {"endian": "little"}}] + (
                [] if case["sharding"] == "index without checksum" else [{"name": "crc32c"}])
            where = "start" if case["sharding"] == "index at the start" else "end"
            for _ in range(2 if case["sharding"] == "shards in shards" else 1):
                codecs = [{"name": "sharding_indexed", "configuration": {
                    "chunk_shape": grid, "codecs": codecs, "index_codecs": index, "index_location": where}}]
                grid = [2 * n for n in grid]
            if case["sharding"] == "gzip outside":
                codecs.append(named["gzip"])
        metadata = {"shape": shape, "data_type": case["dtype"], "codecs": codecs,
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}}}
        if case["keys"] != "default":
            metadata["chunk_key_encoding"] = {"name": "v2" if case["order"] == "F" else "default",
                                              "configuration": {"separator": case["keys"]}}
        spec = {"driver": "zarr3", "metadata": metadata}
    options = {} if value is None else {"fill_value": value}
    if options and case["version"] == 2:
        del spec["metadata"]["fill_value"]
    array = ts.open(spec | {"kvstore": {"driver": "file", "path": str(path)}}, create=True, **options).result()
    fill_in(array, case, shape, chunk, seed)


def by_tensorstore(path):
    for driver in ("zarr3", "zarr"):
        try:
            return ts.open({"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}).result().read().result()
        except ValueError as error:
            first = error
    raise first


def names_of(case):
    return {"array": [""], "group": ["w"], "groups": ["layers/0/weight", "layers/0/bias", "layers/10/weight"], "names": NAMES,
            "nothing": [], "9 arrays": [f"p{i}" for i in range(9)]}[case["tree"]]


def stele_name(name):
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in name.split("/"))


REFUSED_CODECS = ("bz2", "lzma", "blosc blosclz", "crc32", "crc32c at start")


def unreadable(case):
    return (case["dtype"] in OTHERS or case["filter"] != "none" or case["codec"] in REFUSED_CODECS or
            case["sharding"] in ("shards in shards", "gzip outside"))


def hides(case):
    return case["store"] == "zip" or case["tree"] == "nothing" or unreadable(case)


def write(case, path):
    path = path.with_suffix(".zarr.zip" if case["store"] == "zip" else ".zarr")
    names = names_of(case)
    write_zarr(case, path, names)
    if case["store"] == "zip":
        return path, comparison.Expected(refused="unsupported")
    arrays = read_folder(path, names)
    attributes = {}
    if case["tree"] != "array":
        attributes = {key: {"$f64": "nan"} if isinstance(value, float) and math.isnan(value) else value
                      for key, value in dict(zarr.open_group(path, mode="r").attrs).items()}
    own = {path.stem.replace(".", "\\.") if name == "" else stele_name(name): name for name in names}
    if unreadable(case):
        return path, comparison.Expected(unread=tuple(own), metadata=attributes,
                                         lossy=bool(own) or case["attributes"] == "NaN")
    return path, comparison.Expected({stele: arrays[name] for stele, name in own.items()}, metadata=attributes,
                                     lossy=case["attributes"] == "NaN")


def read_folder(path, names):
    found = {}
    for name in names:
        at = os.path.join(path, name) if name else path
        try:
            array = zarr.open_array(at, mode="r")[...]
        except (ValueError, KeyError):
            array = by_tensorstore(at)
        array = np.asarray(array)
        found[name] = array.astype(np.int8) if array.dtype == ml_dtypes.int4 else array
    return found


def read(path):
    names = [str(p.parent.relative_to(path)) for p in sorted(path.rglob("zarr.json"))
             if json.loads(p.read_text())["node_type"] == "array"]
    names = ["" if name == "." else name for name in names]
    return {stele_name(name): array for name, array in read_folder(path, names).items()}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
