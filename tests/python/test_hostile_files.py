"""Damaged copies of the files of the tests and of ../shared, which other programs wrote.

Every use of the module returns a value or raises a stele.Error, in bounded time, and opening needs bounded memory.

By default a sample of the files, with few damages each; `--slow` takes all files. test_hostile.py damages files that
this module saves, and has files that are written by hand.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED, TEST_DATA, run_python
from test_hostile import HOSTILE

import stele

LARGEST_BYTES = 1 << 20
# A folder with more is copied for its files one by one.
FOLDER_FILES = 40
TEXTS = (".md", ".txt", ".py", ".expect", ".expected")

PROGRAM = """
import faulthandler, json, os, random, resource, signal, sys
faulthandler.enable()
faulthandler.register(signal.SIGALRM, chain=True)  # prints where it is, and ends the process
asan = "asan" in os.environ.get("LD_PRELOAD", "")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if not asan:
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import numpy as np, stele
SECONDS, EXTRA_BYTES = 20, 16 << 20
job = json.load(open(sys.argv[1]))
counts = {"opened": 0, "failed": 0}
worst = (0.0, "")


def memory(key):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) << 10
    return 0


def attempt(function, *arguments):
    '''Returns the function's result, or None if it raises a stele.Error.'''
    try:
        return function(*arguments)
    except stele.Error as error:
        assert error.code and (error.message or error.expected) and str(error).startswith(error.code), repr(error)
        counts["failed"] += 1
    return None


def part(tensor):
    try:
        return (tensor[0], tensor[..., ::-1]) if tensor.shape else tensor[()]
    except (TypeError, IndexError):
        assert tensor.dtype_name.startswith(("q", "iq", "string", "opaque")) or 0 in tensor.shape, tensor


def use(source, size, label):
    '''Opens a source of `size` bytes and uses everything. The label is printed first, in case of a crash.'''
    global worst
    print(label, flush=True)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    measured = job["measure"] and not asan
    if measured:
        with open("/proc/self/clear_refs", "w") as file:  # resets the peak
            file.write("5")
        before = memory("VmRSS:")
    file = attempt(stele.open, source)
    names = [] if file is None else list(file)
    if measured:
        used = memory("VmHWM:") - before
        worst = max(worst, (used / (2 * size + EXTRA_BYTES), f"{label}: {used:,} bytes to open {size:,}"))
        assert used <= 2 * size + EXTRA_BYTES, worst
    if file is not None:
        counts["opened"] += 1
        for name in ("format", "nbytes", "metadata", "properties", "tree", "checkpoint"):
            attempt(getattr, file, name)
        attempt(lambda: dict(file.values))
        attempt(repr, file), attempt(file._repr_html_)
        checkpoint = attempt(getattr, file, "checkpoint")
        for other in (checkpoint.optimizer.values() if checkpoint else ()):
            attempt(other.numpy)
        for name in names[:2000]:
            tensor = file[name]
            attempt(getattr, tensor, "annotations"), attempt(repr, tensor)
            if tensor.nbytes < 1 << 20:
                attempt(tensor.numpy), attempt(part, tensor), attempt(tensor.stats)
        attempt(file.numpy)
    signal.setitimer(signal.ITIMER_REAL, 0)


def write(path, data):
    os.unlink(path)  # file systems flush a file that is truncated and written again
    with open(path, "wb") as file:
        file.write(data)


def damaged(data, generator, count):
    '''Yields descriptions and damaged copies.'''
    size = len(data)
    if not size:
        return
    if count >= size:  # small: everywhere
        for at in range(size):
            yield f"cut {at}", data[:at]
    for number in range(count):
        at = generator.randrange(size)
        if number % 2:  # near the beginning or the end, where most formats have their structure
            at = min(size - 1, int(generator.expovariate(1 / 60)))
            at = at if number % 4 == 1 else size - 1 - at
        copy = bytearray(data)
        kind = generator.choice(["cut", "flip", "byte", "insert", "remove", "zero", "large", "noise"])
        if kind == "cut":
            del copy[at:]
        elif kind == "flip":
            copy[at] ^= 1 << generator.randrange(8)
        elif kind == "byte":
            copy[at] = generator.choice([0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)])
        elif kind == "insert":
            copy[at:at] = generator.randbytes(generator.choice([1, 4, 8]))
        elif kind == "remove":
            del copy[at : at + generator.choice([1, 4, 8])]
        elif kind == "zero":
            copy[at : at + 8] = bytes(len(copy[at : at + 8]))
        elif kind == "large":
            large = [b"\\xff" * 8, b"\\xff" * 4, (1 << 62).to_bytes(8, "little"), (1 << 31).to_bytes(8, "big")]
            value = generator.choice(large)
            copy[at : at + len(value)] = value
        else:
            for _ in range(20):
                copy[generator.randrange(size)] ^= 1 << generator.randrange(8)
        yield f"{kind} {at}", bytes(copy)


stele.open(stele.save({"a": np.ones(2)}, format="npz")).numpy()  # whatever is loaded once
for folder, names, targets, more in job["groups"]:
    paths = [os.path.join(below, name) for below, _, files in os.walk(folder) for name in files]
    total = more + sum(map(os.path.getsize, paths))
    for target in targets:
        use(target, total, f"{target} whole")
    for name in names:
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            whole = file.read()
        generator = random.Random(f"{job['seed']} {path[len(job['work']):]}")
        mine = [t for t in targets if t == path] or [t for t in targets if not os.path.isfile(t)] + targets[:2]
        for label, data in damaged(whole, generator, job["count"]):
            write(path, data)
            for target in mine[:3]:
                use(target, total + len(data) - len(whole), f"{target} {name} {label}")
            if mine == [path] and generator.random() < 0.25:
                use(data, len(data), f"{path} bytes {label}")
        write(path, whole)
print("worst use of memory:", *worst)
print("done", counts["opened"], counts["failed"])
"""


def folders() -> list[Path]:
    """Returns the folders with files of the tests and of ../shared."""
    roots = [*sorted((TEST_DATA / "formats").glob("*/data")), TEST_DATA / "evolution" / "data"]
    roots += [TEST_DATA / "fuzz", SHARED / "fixtures"]
    return [root for root in roots if root.exists()]


def opens(path: Path) -> bool:
    try:
        stele.open(path).close()
    except stele.Error:
        return False
    return True


def places(root: Path) -> list[tuple[Path, list[str]]]:
    """Returns each folder below with the names of the files to damage."""
    found = []
    for below, _, names in sorted(os.walk(root)):
        folder = Path(below)
        sizes = {name: (folder / name).stat().st_size for name in sorted(names) if not name.endswith(TEXTS)}
        data = [name for name, size in sizes.items() if 0 < size <= LARGEST_BYTES]
        if data:
            found.append((folder, data))
    return found


def group(root: Path, folder: Path, data: list[str], work: Path) -> tuple[str, list[str], list[str], int]:
    """Copies a folder. Returns its copy, the files to damage, and the paths to open."""
    copy = work / name_of(root) / folder.relative_to(root)
    copy.mkdir(parents=True, exist_ok=True)
    files = [path for path in folder.iterdir() if path.is_file() and path.stat().st_size <= LARGEST_BYTES]
    for path in files if len(files) <= FOLDER_FILES else [folder / name for name in data]:
        if not (copy / path.name).exists():
            shutil.copyfile(path, copy / path.name)
    targets = [str(copy / name) for name in data if opens(copy / name)]
    if not targets:  # of parts of a file: the other files
        targets = [str(copy / path.name) for path in files if len(files) <= FOLDER_FILES and opens(copy / path.name)]
    if len(list(folder.iterdir())) <= FOLDER_FILES and opens(folder):
        targets.append(str(copy))
    if folder != root and len(list(folder.parent.iterdir())) <= FOLDER_FILES and opens(folder.parent):
        targets.append(str(copy.parent))
    return str(copy), data, targets, 0


def run(chosen: list[tuple[Path, Path, list[str]]], tmp_path: Path, count: int, seed: int) -> list[str]:
    """Damages every file `count` times. Returns the last lines of output."""
    work = tmp_path / "files"
    groups = [group(root, folder, data, work) for root, folder, data in chosen]
    # If the process ends early, its damaged file and its last label stay in the folder.
    job = {"groups": groups, "count": count, "seed": seed, "measure": True, "work": str(work)}
    (tmp_path / "job.json").write_text(json.dumps(job))
    return run_python(PROGRAM, str(tmp_path / "job.json"), timeout=3000).stdout.splitlines()[-2:]


def name_of(root: Path) -> str:
    return root.parent.name if root.name == "data" else root.name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "root" in metafunc.fixturenames:
        metafunc.parametrize("root", folders(), ids=name_of)


def test_a_sample_of_damaged_files_of_other_programs(tmp_path: Path) -> None:
    every = [(root, folder, name) for root in folders() for folder, data in places(root) for name in data]
    step = len(every) // 60 + 1
    chosen = [(root, folder, [name]) for root, folder, name in every[::step]]
    assert run(chosen, tmp_path, count=5, seed=1)[-1].startswith("done")


@pytest.mark.slow
def test_damaged_files_of_other_programs(root: Path, tmp_path: Path) -> None:
    lines = run([(root, folder, data) for folder, data in places(root)], tmp_path, count=60, seed=2)
    print(*lines, sep="\n")
    if lines[-1] == "done 0 0":
        pytest.skip("no file that can be opened")
    assert lines[-1].startswith("done")


def bombs() -> dict[str, bytes]:
    """Returns small files that claim to be, or decompress to, large ones."""
    zeros = bytes(32 << 20)
    text = b'{"metadata":{"float":"f32"},"item":' + b" " * (32 << 20) + b"{}}"
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        info = tarfile.TarInfo("graph.nnef")
        info.size = len(zeros)
        file.addfile(info, io.BytesIO(zeros))
    files = {
        "a.json.gz": gzip.compress(text),
        "b.json.gz": gzip.compress(b'{"a":[' + b"0," * (8 << 20) + b"0]}"),
        "a.mpk.gz": gzip.compress(b"\x81\xa4item\xc6\x04\0\0\0" + zeros),
        "a.bin.gz": gzip.compress(zeros),
        "a.nnef.tgz": gzip.compress(tar.getvalue()),
        "a.json": b'{"a":[' + b"0," * 1000,
    }
    archives = {"a.npz": "a.npy", "a.zip": "model.stele", "a.pt": "archive/data.pkl", "a.sdz": "model.sdnb"}
    for name, entry in archives.items():
        memory = io.BytesIO()
        with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(entry, zeros)
        files[name] = memory.getvalue()
    large = np.zeros(8 << 20, np.float32)
    for format, name in (("stele", "b.stele"), ("json.zst", "b.json.zst"), ("npz", "b.npz"), ("archive", "b.zip")):
        files[name] = stele.save({"a": large}, format=format, compress=format == "stele")
    return files


# Opening these decompresses them: the library stops at a bound of its own, about 160 MiB. Of JSON and of texts of NNEF.
MORE = {"a.json.gz": 40 << 20, "b.json.gz": 40 << 20, "a.nnef.tgz": 40 << 20}


def test_opening_files_that_are_written_by_hand_needs_bounded_memory(tmp_path: Path) -> None:
    groups = []
    for number, (name, data) in enumerate({**HOSTILE, **bombs()}.items()):
        folder = tmp_path / "files" / str(number)
        folder.mkdir(parents=True)
        path = folder / name.replace("/", " ")
        path.write_bytes(data)
        groups.append((str(folder), [], [str(path)], MORE.get(name, 0)))
    job = {"groups": groups, "count": 0, "seed": 0, "measure": True, "work": str(tmp_path)}
    (tmp_path / "job.json").write_text(json.dumps(job))
    lines = run_python(PROGRAM, str(tmp_path / "job.json"), timeout=300).stdout.splitlines()[-2:]
    print(*lines, sep="\n")
    assert lines[-1].startswith("done")
