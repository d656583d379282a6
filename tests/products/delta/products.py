"""Products of deltas: versions of a model, written by safetensors and NumPy; what `stele apply` gives is the new version."""

import subprocess
import sys
from pathlib import Path

import ml_dtypes  # noqa: F401: registers its dtypes
import numpy as np
from safetensors.numpy import save_file

sys.path.append(str(Path(__file__).parents[1]))
import comparison  # noqa: E402

PACKAGES = ["numpy", "ml_dtypes", "safetensors"]
PAGES = ["formats/delta"]
FILES = 0  # they are stele's
DIMENSIONS = {
    "dtype": ["bool", "uint8", "int16", "float16", "bfloat16", "float32", "float64", "int64", "complex64", "float8_e4m3fn"],
    "count": [0, 1, 255, 256, 257, 1000, 70001, 1048576, 1048577],  # of elements; a block has 1048576
    "change": ["none", "first", "last", "gap 254", "gap 255", "gap 256", "gap 510", "1 in 100", "1 in 10", "half", "all", "sign"],
    "names": ["same", "renamed", "swapped", "new", "removed", "dtype", "shape"],  # in the last step
    "chain": ["one", "two", "three", "compact two", "compact three", "stepwise", "back"],
    "form": [".stele", ".json", "xor", "overwrite"],
    "base": [".safetensors", ".npz", ".stele", ".pth"],
    "out": [".safetensors", ".npz", ".stele", "in place"],
}
STEPS = {"one": 1, "two": 2, "three": 3, "compact two": 2, "compact three": 3, "stepwise": 2, "back": 2}


def possible(case):
    update = case["form"] in ("xor", "overwrite")
    if update and (case["names"] != "same" or case["chain"] not in ("one", "two", "three")):
        return False
    if case["out"] == "in place" and (update or case["base"] != ".safetensors" or case["names"] != "same"):
        return False
    if case["dtype"] in ("bfloat16", "float8_e4m3fn") and ".npz" in (case["base"], case["out"]):
        return False  # NumPy writes them without a type
    return not (case["count"] > 100000 and case["form"] == ".json")


def bits(random, dtype, count):
    data = random.integers(0, 2 if dtype == "bool" else 256, count * np.dtype(dtype).itemsize, np.uint8)
    return data.view(dtype)


def changed(random, array, how):
    """Return a copy with other bits in some elements."""
    copy, count = array.copy(), array.size
    if count == 0 or how == "none":
        return copy
    data = copy.view(np.uint8).reshape(count, -1)
    if how.startswith("gap "):
        where = list(range(int(how[4:]), count, int(how[4:]) + 1))
    else:
        where = {"first": [0], "last": [count - 1], "1 in 100": random.random(count) < 0.01, "1 in 10": random.random(count) < 0.1,
                 "half": random.random(count) < 0.5}.get(how, slice(None))
    if array.dtype == bool:
        data[where] ^= 1
    elif how == "sign":
        data[:, -1] ^= 0x80
    else:
        data[where] ^= random.integers(1, 256, data[where].shape, np.uint8)
    return copy


def versions_of(case):
    random = np.random.default_rng(3)
    dtype, count = case["dtype"], case["count"]
    versions = [{"w": bits(random, dtype, count), "o": bits(random, "float32", 300), "k": bits(random, dtype, 7)}]
    for _ in range(STEPS[case["chain"]]):
        versions.append({**versions[-1], "w": changed(random, versions[-1]["w"], case["change"])})
    last = versions[-1]
    match case["names"]:
        case "renamed":
            last["u.w"] = last.pop("w")
        case "swapped":
            last["k"], last["w"] = last["w"], last["k"]
        case "new":
            last["z"] = bits(random, dtype, count)
        case "removed":
            del last["o"]
        case "dtype":
            last["o"] = bits(random, "float64", 150)
        case "shape":
            last["o"] = last["o"].reshape(3, 100)
    if case["chain"] == "back":
        versions[-1] = versions[0]
    return versions


def run(*arguments):
    done = comparison.command(STELE, *arguments)  # noqa: F821: set by comparison.main
    if done.returncode:
        raise RuntimeError(f"stele {arguments}: {done.stderr.decode()}")


def save(tensors, path):
    if path.suffix == ".npz":
        np.savez(path, **tensors)
    elif path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        between = path.with_suffix(".between.safetensors")
        save_file(tensors, between)
        run("convert", between, path)


def write(case, path):
    path.mkdir()
    versions = versions_of(case)
    files = [path / f"v{i}{case['base']}" for i in range(len(versions))]
    for tensors, file in zip(versions, files):
        save(tensors, file)
    deltas = []
    for i in range(len(files) - 1):
        if case["form"].startswith("."):
            deltas.append(path / f"d{i}.delta{case['form']}")
            run("delta", files[i], files[i + 1], "-o", deltas[-1])
        else:
            deltas.append(path / f"d{i}")
            run("delta", files[i], files[i + 1], "-o", deltas[-1], "--to", "update", "--update-version", i + 1,
                "--encoding", case["form"], "--checksum", "adler32" if i % 2 else "xxh3-128")
    if case["chain"].startswith("compact"):
        run("compact", *deltas, "-o", path / f"all.delta{case['form']}")
        deltas = [path / f"all.delta{case['form']}"]
    if case["out"] == "in place":
        run("apply", files[0], *deltas, "--in-place")
        return files[0], comparison.Expected(versions[-1])
    now = files[0]
    for number, step in enumerate([[delta] for delta in deltas] if case["chain"] == "stepwise" else [deltas]):
        before, now = now, path / f"out{number}{case['out']}"
        run("apply", before, *step, "-o", now)
    return now, comparison.Expected(versions[-1])


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
