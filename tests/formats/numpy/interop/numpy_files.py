#!/usr/bin/env python3
"""Write the golden files of tests/formats/numpy/data with NumPy, and read files of stele with it.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/numpy/interop/numpy_files.py write FOLDER   the golden files, always with the same bytes
    python3 tests/formats/numpy/interop/numpy_files.py check FOLDER   files that interop_numpy wrote

Element k of every array, counted in C order, is k % 7 for unsigned numbers,
k % 2 for bools, and k % 7 - 2 for all others (the imaginary part is 0). The
dtypes that NumPy does not have are bytes that count up.
"""

import io
import json
import pathlib
import sys

import ml_dtypes
import numpy as np

SHAPE = (3, 5)
NUMBERS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
VOIDS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")


def values(dtype, shape=SHAPE):
    k = np.arange(int(np.prod(shape)))
    kind = np.dtype(dtype).kind
    numbers = k % 2 if kind == "b" else k % 7 if kind == "u" else k % 7 - 2
    return numbers.astype(dtype).reshape(shape)


def voids(name):
    """Bytes that count up: the elements of a dtype that NumPy does not have."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    return (np.arange(15 * dtype.itemsize) % 256).astype("u1").view(dtype).reshape(SHAPE)


def write(path, array, version=None):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version=version, allow_pickle=True)


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "f4.npy", values("<f4"))
    write(folder / "version2.npy", values("<f4"), (2, 0))
    write(folder / "version3.npy", values("<f4"), (3, 0))
    write(folder / "scalar.npy", np.array(1.5))
    write(folder / "one_axis.npy", values("<i8", (5,)))
    write(folder / "hollow.npy", values("<f4", (3, 0, 2)))
    write(folder / "four_axes.npy", values("<i2", (2, 1, 3, 2)))
    write(folder / "fortran.npy", np.asfortranarray(values("<f4", (2, 3, 4))))
    write(folder / "fortran_one_axis.npy", np.asfortranarray(values("<f4", (1, 4, 1))))
    write(folder / "big_endian.npy", values(">f4"))
    write(folder / "big_endian_fortran.npy", np.asfortranarray(values(">c16")))
    write(folder / "bfloat16.npy", voids("bfloat16"))
    write(folder / "objects.npy", np.array([None, 1]))
    write(folder / "strings.npy", np.array(["a", "bc"]))
    write(folder / "bytes.npy", np.array([b"a", b"bc"]))
    write(folder / "dates.npy", np.array(["2024-01-01"], "M8[D]"))
    write(folder / "structured.npy", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
    write(folder / "structured_names.npy", np.zeros(2, [("日本語", "<f4")]))  # version 3

    numbers = {dtype.replace("?", "b1"): values(dtype) for dtype in NUMBERS}
    np.savez(folder / "numbers.npz", **numbers)
    np.savez_compressed(folder / "compressed.npz", **numbers, big=values(">i4"), fortran=np.asfortranarray(values("<f8")))
    np.savez(folder / "unnamed.npz", values("<f4"), values("<i4", (2,)))
    np.savez(folder / "names.npz", **{"layers/0/weight": values("<f4"), "layers/0/bias": values("<f4", (5,)),
                                      "layers.1.weight": values("<f4"), "日本語": values("<u2", (3,)),
                                      "": values("|i1", (1,)), "a b": values("|u1", (2,))})
    np.savez(folder / "empty.npz")
    np.savez(folder / "voids.npz", **{name: voids(name) for name in VOIDS})
    np.savez(folder / "objects.npz", fine=values("<f4"), objects=np.array([None, 1]))


def require(condition, what):
    if not condition:
        sys.exit(f"numpy: {what}")


def check_array(name, array, dtype, shape=SHAPE):
    require(array.dtype == np.dtype(dtype) and array.shape == shape, f"{name} is {array.dtype} {array.shape}")
    require(array.tobytes() == values(dtype, shape).tobytes(), f"{name} has other values")


def check(folder):
    """Files of stele: all arrays, by numpy.load without pickles; mapped; and the same bytes as NumPy's."""
    for dtype in NUMBERS:
        name = dtype.replace("?", "b1")
        path = folder / f"{name}.npy"
        check_array(path, np.load(path), dtype)
        check_array(path, np.load(path, mmap_mode="r"), dtype)
        again = io.BytesIO()
        np.save(again, values(dtype))
        require(path.read_bytes() == again.getvalue(), f"{path} has other bytes than numpy.save writes")
    check_array("scalar", np.load(folder / "scalar.npy"), "<f4", ())
    check_array("hollow", np.load(folder / "hollow.npy"), "<f4", (3, 0, 2))
    check_array("axes", np.load(folder / "axes.npy"), "<f4", (1,) * 64)

    with np.load(folder / "numbers.npz") as file:
        require(sorted(file.files) == sorted(d.replace("?", "b1") for d in NUMBERS), f"numbers.npz: {file.files}")
        for dtype in NUMBERS:
            check_array(dtype, file[dtype.replace("?", "b1")], dtype)
    with np.load(folder / "voids.npz") as file:
        own = json.loads(file["__stele__"].tobytes())
        require(sorted(own["dtypes"]) == sorted(VOIDS), f"voids.npz: {own}")
        for name in VOIDS:
            array = file[name]
            require(array.dtype.kind == "V" and array.shape == SHAPE, f"{name} is {array.dtype}")
            typed = array.view(getattr(ml_dtypes, name))
            require(typed.tobytes() == voids(name).tobytes(), f"{name} has other bytes")
    with np.load(folder / "names.npz") as file:
        own = json.loads(file["__stele__"].tobytes())
        paths = {own["names"].get(key, key): key for key in file.files if key != "__stele__"}
        require(paths.keys() == set(json.loads((folder / "names.json").read_text())), f"names.npz: {paths}")
        for key in paths.values():
            check_array(key, file[key], "<f4", (2,))
    print("numpy: ok")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    (make if sys.argv[1] == "write" else check)(pathlib.Path(sys.argv[2]))
