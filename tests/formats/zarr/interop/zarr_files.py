#!/usr/bin/env python3
"""Folders of zarr, written by zarr-python and TensorStore, and folders of stele, read by them.

  zarr_files.py make FOLDER          writes the golden folders
  zarr_files.py check STELE FOLDER   converts folders with stele, and compares them with the programs
"""
import os
import shutil
import subprocess
import sys

import ml_dtypes
import numcodecs
import numpy as np
import tensorstore as ts
import zarr
from numcodecs import Blosc, GZip, Zlib, Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

SHAPE, CHUNKS = (5, 6), (2, 4)
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def values(dtype, shape=SHAPE):
    """Element i is i % 8."""
    return (np.arange(int(np.prod(shape))) % 8).astype(np.dtype(dtype)).reshape(shape)


def make_v2(path):
    root = zarr.open_group(path, mode="w", zarr_format=2, attributes={"author": "a test", "epoch": 3, "list": [1, None]})

    def add(group, name, dtype="float32", **settings):
        shape = settings.pop("shape", SHAPE)
        settings.setdefault("chunks", CHUNKS)
        settings.setdefault("compressors", None)
        array = group.create_array(name, shape=shape, dtype=dtype, **settings)
        array[...] = values(dtype, shape)
        return array

    types = root.create_group("types", attributes={"lost": True})
    for dtype in DTYPES:
        add(types, dtype, dtype, chunks=SHAPE)
    for name, code in (("big_f4", ">f4"), ("big_i2", ">i2"), ("big_c8", ">c8")):
        add(types, name, code, chunks=SHAPE)
    codecs = root.create_group("codecs")
    for name, codec in (("zlib", Zlib(1)), ("gzip", GZip(1)), ("zstd", Zstd(1))):
        add(codecs, name, chunks=SHAPE, compressors=codec)
    for inner in ("lz4", "lz4hc", "zstd", "zlib", "blosclz"):
        add(codecs, "blosc_" + inner, "float64", shape=(64, 64), chunks=(64, 64),
            compressors=Blosc(inner, clevel=5, shuffle=Blosc.SHUFFLE))
    add(codecs, "blosc_bits", "int32", shape=(64, 64), chunks=(64, 64), compressors=Blosc("lz4", shuffle=Blosc.BITSHUFFLE))
    add(codecs, "blosc_plain", "int32", shape=(64, 64), chunks=(64, 64),
        compressors=Blosc("lz4", clevel=0, shuffle=Blosc.NOSHUFFLE))
    add(codecs, "blosc_blocks", "int16", shape=(64, 66), chunks=(64, 66),
        compressors=Blosc("zstd", shuffle=Blosc.SHUFFLE, blocksize=1000))
    add(codecs, "blosc_c16", "complex128", shape=(20, 20), chunks=(8, 20), compressors="auto")
    add(codecs, "lz4", chunks=SHAPE, compressors=numcodecs.LZ4())
    add(codecs, "delta", "int32", chunks=SHAPE, filters=[numcodecs.Delta("<i4")])
    layers = root.create_group("layers")
    for i in range(2):
        layer = layers.create_group(str(i))
        array = add(layer, "weight", order="F")
        array.attrs["unit"] = "m"
        add(layer, "bias", shape=(6,), chunks=(6,))
    add(root, "slash", chunk_key_encoding={"name": "v2", "separator": "/"})
    root.create_array("scalar", shape=(), dtype="float32", chunks=(), compressors=None)[...] = 5
    root.create_array("empty", shape=(0, 3), dtype="float32", chunks=(1, 3), compressors=None)
    root.create_array("fill", shape=SHAPE, dtype="float32", chunks=CHUNKS, compressors=None, fill_value=3)[0:1, 0:1] = 1
    root.create_array("fill_nan", shape=(2,), dtype="float32", chunks=(2,), compressors=None, fill_value=np.nan)
    root.create_array("text", shape=(2,), dtype="<U4", chunks=(2,), compressors=None)[...] = ["ab", "c"]
    zarr.consolidate_metadata(path, zarr_format=2)


def make_v3(path):
    root = zarr.open_group(path, mode="w", zarr_format=3, attributes={"author": "a test"})

    def add(name, dtype="float32", **settings):
        shape = settings.pop("shape", SHAPE)
        settings.setdefault("chunks", CHUNKS)
        settings.setdefault("compressors", None)
        array = root.create_array(name, shape=shape, dtype=dtype, **settings)
        array[...] = values(dtype, shape)

    add("plain", dimension_names=["row", None], attributes={"unit": "m"})
    add("whole", chunks=SHAPE)
    add("big", serializer=BytesCodec(endian="big"))
    add("transposed", filters=[TransposeCodec(order=(1, 0))])
    add("transposed3", shape=(3, 4, 5), chunks=(2, 2, 2), filters=[TransposeCodec(order=(2, 0, 1))])
    add("gzip", compressors=GzipCodec(level=1))
    add("zstd", compressors=ZstdCodec(level=1, checksum=True))
    add("crc32c", compressors=Crc32cCodec())
    add("two", compressors=[Crc32cCodec(), GzipCodec(level=1)])
    add("blosc", compressors=BloscCodec(cname="zstd", typesize=4))
    add("dots", chunk_key_encoding={"name": "default", "separator": "."})
    add("v2_keys", chunk_key_encoding={"name": "v2", "separator": "."})
    add("sharded", shape=(9, 10), chunks=(2, 3), shards=(4, 6), compressors=ZstdCodec(level=1))
    array = root.create_array("shards_absent", shape=(8, 8), dtype="int32", chunks=(2, 2), shards=(4, 4),
                              compressors=None, fill_value=7)
    array[0:2, 0:2] = 1
    root.create_array("scalar", shape=(), dtype="int64", chunks=(), compressors=None)[...] = 5
    root.create_array("fill_inf", shape=(2,), dtype="float64", chunks=(2,), compressors=None, fill_value=-np.inf)
    root.create_array("fill_complex", shape=(2,), dtype="complex64", chunks=(2,), compressors=None, fill_value=1 + 2j)
    zarr.consolidate_metadata(path, zarr_format=3)


def store(path, driver, dtype, metadata=None):
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": path}, "metadata": metadata or {}}
    return ts.open(spec, create=True, delete_existing=True, dtype=getattr(ts, dtype), shape=SHAPE,
                   chunk_layout=ts.ChunkLayout(read_chunk_shape=CHUNKS)).result()


def make_tensorstore(path):
    for dtype in NARROW:
        store(f"{path}/v2/{dtype}", "zarr", dtype, {"compressor": None})[...] = values(dtype)
        store(f"{path}/v3/{dtype}", "zarr3", dtype)[...] = values(dtype)
    store(f"{path}/v3/int4", "zarr3", "int4")[...] = values(np.int8).astype(ml_dtypes.int4)
    for version in ("v2", "v3"):
        zarr.open_group(f"{path}/{version}", mode="a", zarr_format=int(version[1]))


def make_blosc(path):
    """Frames of Blosc, one after the other, of every width of elements. Byte i of the data is i // 256 % 7."""
    with open(path, "wb") as file:
        for width in (1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 24, 255):
            for codec in (b"lz4", b"zstd"):
                for shuffle in (Blosc.NOSHUFFLE, Blosc.SHUFFLE, Blosc.BITSHUFFLE):
                    for count, block in ((150, 0), (3001, 0), (9000, 4096)):
                        data = bytes(i // 256 % 7 for i in range(count))
                        file.write(numcodecs.blosc.compress(data, codec, 5, shuffle, block, typesize=width))


def make(folder):
    make_blosc(os.path.join(folder, "blosc.bin"))
    for name, write in (("v2.zarr", make_v2), ("v3.zarr", make_v3), ("tensorstore", make_tensorstore)):
        path = os.path.join(folder, name)
        shutil.rmtree(path, ignore_errors=True)
        write(path)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def arrays_of(group, prefix=""):
    found = {}
    for name, node in group.members():
        if isinstance(node, zarr.Group):
            found.update(arrays_of(node, prefix + name + "/"))
        else:
            found[prefix + name] = node[...]
    return found


def open_with_tensorstore(path):
    return ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}).result().read().result()


def check(stele, folder):
    count = 0
    for name in ("v2.zarr", "v3.zarr"):
        source, target = os.path.join(folder, name), os.path.join(folder, "again-" + name)
        expected = arrays_of(zarr.open_group(source, mode="r"))
        unreadable = {"codecs/blosc_blosclz", "codecs/delta", "text"}
        for path in unreadable & expected.keys():
            del expected[path]
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run([stele, "convert", source, target, "--allow-loss"], check=True, stdout=subprocess.DEVNULL)
        again = arrays_of(zarr.open_group(target, mode="r"))
        assert again.keys() == expected.keys(), (again.keys() ^ expected.keys())
        for path, array in expected.items():
            assert same(again[path], array.astype(array.dtype.newbyteorder("="))), path
            assert same(open_with_tensorstore(os.path.join(target, path)), again[path]), path
            count += 1
        assert dict(zarr.open_group(target, mode="r").attrs)["author"] == "a test"
    for version in ("v2", "v3"):
        target = os.path.join(folder, "again-" + version + ".zarr")
        shutil.rmtree(target, ignore_errors=True)
        source = os.path.join(folder, "tensorstore", version)
        subprocess.run([stele, "convert", source, target, "--allow-loss"], check=True, stdout=subprocess.DEVNULL)
        for dtype in NARROW:
            found = open_with_tensorstore(os.path.join(target, dtype))
            assert found.dtype == values(dtype).dtype and np.array_equal(found, values(dtype)), dtype
            count += 1
    print(f"{count} arrays compared with zarr {zarr.__version__}, TensorStore, numpy {np.__version__}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        make(sys.argv[3])
        check(sys.argv[2], sys.argv[3])
