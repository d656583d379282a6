"""What the products of all formats share: covering arrays, digests, and the comparison with stele.

`tests/formats/FORMAT/products.py` (or `tests/composites/SCHEME/…`) declares the dimensions of a format, and writes a case
by the real program:

    DIMENSIONS = {"dtype": ["float32", …], "order": ["C", "F"], …}   # values that JSON has
    PACKAGES = ["numpy"]              # whose versions are recorded
    PAGES = ["formats/numpy"]         # docs/*.md whose tables name every dimension
    DECODED = True                    # optional: stele's tensors are the decoded weights, not their parts, and metadata are
                                      # not compared (tests/composites/)
    KEPT = 16                         # optional: files in data.zip, at most
    def cases(): …                    # optional: the cases, if they are not all pairs that are possible
    def possible(case): …             # optional: False for what the real program cannot write
    def write(case, path): …          # returns Expected, from the program's own arrays. `path` has the file's name without its
                                      # extension; write() returns the path, too: (path, Expected)
    def target(path): …               # optional: where stele writes the same content again
    def read(path): …                 # the real program's reading of that file: {name: array}

    python3 tests/formats/FORMAT/products.py STELE FOLDER [--update] [--only N]

writes all cases into FOLDER, compares them with stele (the command), converts each with stele, and reads the results with
the real program. It compares the digests with products.json next to it, or with --update writes that file, and the smallest
cases to data/products/, for `tools/test_data.py pack`. CI compares those (tests/products/products_test.py).
"""

import argparse
import dataclasses
import hashlib
import importlib.metadata
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = 40  # files of a product in data.zip, at most
KEPT_BYTES = 6000  # of one of them

NAMES = {"bool": "bool", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8_e4m3",
         "float8_e5m2": "f8_e5m2"} | {f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint", "float")
                                      for bits in (8, 16, 32, 64)}


@dataclasses.dataclass
class Expected:
    """What a file holds, by the real program: its arrays by stele's names, and what stele leaves out, which it must say."""
    tensors: dict = dataclasses.field(default_factory=dict)  # name -> array, or (dtype of stele, shape, bytes)
    unread: tuple = ()  # names of entries that stele lists as unreadable
    metadata: dict = dataclasses.field(default_factory=dict)  # keys of `inspect --json`'s "properties"
    refused: str | None = None  # the code of the error, if the file is not opened
    lossy: bool = False  # it is written again with --allow-loss only
    unwritable: str | None = None  # the code of the error when stele writes it in this format


def content(array):
    """Return (dtype, shape, bytes): a tensor's elements in row-major, little-endian order."""
    if isinstance(array, tuple):
        return array
    name = NAMES[array.dtype.name]
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return name, list(array.shape), array.tobytes("C")


def digest(tensors):
    """Return the digest of `stele hash` version 2 (docs/guide/command.md) of {name: (sha256, dtype, shape)}."""
    lines = ["stele hash 2\n"]
    for name in sorted(tensors, key=str.encode):
        sha, dtype, shape = tensors[name]
        lines.append(f"{sha}  {dtype}  [{', '.join(map(str, shape))}]  {len(name.encode())}  {name}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def summary(shas, unread, metadata):
    """Return what products.json says of an open file; equal JSON has equal digests."""
    names = sorted(unread)
    if len(names) > 10:
        names = [f"{len(names)} names", hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]]
    found = {"tensors": len(shas), "digest": digest(shas)[:32], "unread": names}
    if metadata:
        found["metadata"] = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()[:32]
    return {key: value for key, value in found.items() if value != []}


def row(expected):
    """Return what products.json says of a case: what stele must find in its file."""
    if expected.refused:
        return {"refused": expected.refused}
    tensors = {name: content(array) for name, array in expected.tensors.items()}
    shas = {name: (hashlib.sha256(data).hexdigest(), dtype, shape) for name, (dtype, shape, data) in tensors.items()}
    return summary(shas, expected.unread, expected.metadata)


def command(stele, *arguments):
    done = subprocess.run([stele, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"stele {arguments[0]}: status {done.returncode}: {done.stderr[-2000:].decode()}")
    return done


def documents(stele, paths, subcommand, *options):
    """Return the part of each file in the document of a subcommand; a file alone has no list."""
    text = command(stele, subcommand, *options, "--json", *paths).stdout
    document = json.loads(text)
    return document["files"] if "files" in document else [document]


def merged(stele, path, folder):
    """Merge the adapter of PEFT in a folder into the model next to it; return the file, or the code of the error."""
    done = command(stele, "lora", "merge", path / "base.safetensors", path / "adapter", "-o", folder / f"{path.name}.safetensors")
    return done.stderr.decode().split(":")[1].strip() if done.returncode else folder / f"{path.name}.safetensors"


def found_merged(stele, paths):
    """Return what found() returns, of the models into which stele merges adapters."""
    with tempfile.TemporaryDirectory() as folder:
        models = [merged(stele, path, Path(folder)) for path in paths]
        rows = iter(found(stele, [model for model in models if isinstance(model, Path)], decoded=True))
        return [next(rows) if isinstance(model, Path) else ({"refused": model}, {}, {}) for model in models]


def found(stele, paths, decoded=False):
    """Return for each file what stele finds: (row as of row(), {name: (sha256, dtype, shape)}, properties)."""
    if paths and (paths[0] / "adapter").is_dir():
        return found_merged(stele, paths)
    inspected = []
    for begin in range(0, len(paths), 200):
        inspected += documents(stele, paths[begin:begin + 200], "inspect", *([] if decoded else ["--parts"]))
    opened = [path for path, seen in zip(paths, inspected) if "error" not in seen]
    hashed = {}
    for begin in range(0, len(opened), 200):
        part = opened[begin:begin + 200]
        hashes = documents(stele, part, "hash", "-a", "sha256")
        if len(hashes) != len(part):  # an element cannot be read
            hashes = [(documents(stele, [path], "hash", "-a", "sha256") or [None])[0] for path in part]
        hashed.update(zip(part, hashes))
    rows = []
    for path, seen in zip(paths, inspected):
        if "error" in seen:
            rows.append(({"refused": seen["error"]["code"]}, {}, {}))
            continue
        if not hashed[path] or "tensors" not in hashed[path]:
            rows.append(({"refused": "an element cannot be read"}, {}, {}))
            continue
        unread = [t["name"] for t in seen["tensors"] if "unreadable" in t.get("annotations", {})]
        shas = {t["name"]: t["digest"] for t in hashed[path]["tensors"]}
        tensors = {t["name"]: (shas[t["name"]], t["dtype"], t["shape"]) for t in seen["tensors"] if t["name"] not in unread}
        properties = {} if decoded else seen.get("properties", seen["metadata"])
        rows.append((summary(tensors, unread, properties), tensors, properties))
    return rows


def differences(expected, result):
    """Return lines that say how a file of the real program differs from what stele finds in it."""
    seen, tensors, properties = result
    if expected.refused or "refused" in seen:
        return [f"expected {row(expected).get('refused', 'to open')}, found {seen.get('refused', 'an open file')}"]
    lines = []
    for name in sorted(set(expected.tensors) | set(tensors)):
        if name not in tensors or name not in expected.tensors:
            lines.append(f"{name!r}: {'not found' if name not in tensors else 'not expected'}")
            continue
        dtype, shape, data = content(expected.tensors[name])
        sha = hashlib.sha256(data).hexdigest()
        if (sha, dtype, list(shape)) != tensors[name]:
            same = "other elements" if sha != tensors[name][0] else "equal bytes"
            lines.append(f"{name!r}: expected {dtype} {shape}, found {tensors[name][1]} {tensors[name][2]}, {same}")
    if row(expected).get("unread") != seen.get("unread"):
        lines.append(f"unread: expected {sorted(expected.unread)}, found {seen.get('unread')}")
    for key in sorted(set(expected.metadata) | set(properties)):
        one, other = expected.metadata.get(key), properties.get(key)
        if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
            lines.append(f"metadata {key!r}: expected {one!r}, found {other!r}")
    return lines


def arrays_differ(expected, read):
    """Return lines that say how the real program's reading of stele's file differs from its own file."""
    lines = [f"{name!r}: not {'written' if name in expected else 'in the first file'}"
             for name in sorted(set(expected) ^ set(read))]
    for name in sorted(set(expected) & set(read)):
        if content(expected[name]) != content(read[name]):
            lines.append(f"{name!r}: written with other elements, dtype or shape: {content(read[name])[:2]}")
    return lines


def covering(dimensions, strength, possible):
    """Return cases that contain each possible combination of values of `strength` dimensions; always the same."""
    from allpairspy import AllPairs
    names = list(dimensions)

    def valid(values):
        return len(values) < len(names) or possible(dict(zip(names, values)))
    cases = [dict(zip(names, values)) for values in AllPairs(list(dimensions.values()), filter_func=valid, n=strength)]
    # A filter of whole cases can make the tool drop a combination that has another partner: fill in at random.
    order = random.Random(1)
    covered = {pair for case in cases for pair in combinations(case)}
    for _ in range(4000):
        case = {name: order.choice(values) for name, values in dimensions.items()}
        new = combinations(case) - covered
        if new and possible(case):
            cases.append(case)
            covered |= new
    return cases


def combinations(case):
    items = [(name, json.dumps(value)) for name, value in case.items()]
    return {(a, b) for i, a in enumerate(items) for b in items[i + 1:]}


def main(product):
    """Run a product, given the module that declares it."""
    parser = argparse.ArgumentParser(description=product.__doc__)
    parser.add_argument("stele", help="the command")
    parser.add_argument("folder", type=Path, help="for the files")
    parser.add_argument("--update", action="store_true", help="write products.json and the smallest files")
    parser.add_argument("--only", type=int, help="the number of one case")
    arguments = parser.parse_args()
    home = Path(product.__file__).parent
    possible = getattr(product, "possible", lambda case: True)
    triples = covering(product.DIMENSIONS, 3, possible) if getattr(product, "TRIPLES", False) else None
    if hasattr(product, "cases"):
        cases = product.cases()
    else:
        cases = triples or covering(product.DIMENSIONS, 2, possible)
    numbers = range(len(cases)) if arguments.only is None else [arguments.only]
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    written = [product.write(cases[i], arguments.folder / f"{i:03}") for i in numbers]
    paths = [Path(path) for path, _ in written]
    faults = 0

    def fault(number, what, lines):
        nonlocal faults
        faults += 1
        print(f"{what} {number} {json.dumps(cases[number])} {paths[list(numbers).index(number)]}")
        for line in lines[:10]:
            print("   ", line)

    decoded = getattr(product, "DECODED", False)
    results = found(arguments.stele, paths, decoded)
    for number, (_, expected), result in zip(numbers, written, results):
        if row(expected) != result[0]:
            fault(number, "read", differences(expected, result))
    back = 0
    for number, path, (_, expected) in zip(numbers, paths, written):
        if expected.refused or not hasattr(product, "read"):
            continue
        if hasattr(product, "target"):
            to = Path(product.target(path))
        else:
            to = arguments.folder / "back" / path.name
        to.parent.mkdir(exist_ok=True)
        done = command(arguments.stele, "convert", path, to, *(["--allow-loss"] if expected.lossy or expected.unread else []))
        error = done.stderr.decode()
        if done.returncode != 0 or expected.unwritable:
            if not expected.unwritable or f"stele: {expected.unwritable}:" not in error:
                fault(number, "convert", [error or f"expected {expected.unwritable}"])
            continue
        back += 1
        try:
            lines = arrays_differ(expected.tensors, product.read(to))
        except Exception as error:  # of the real program: stele's file is wrong, or the program is
            lines = [f"{type(error).__name__}: {error}"]
        if lines:
            fault(number, "written", lines)

    versions = {name: importlib.metadata.version(name) for name in product.PACKAGES}
    rows = [{"case": [values.index(cases[i][name]) for name, values in product.DIMENSIONS.items()], **row(expected)} for i, (_, expected) in zip(numbers, written)]
    committed = home / "products.json"
    if arguments.update:
        kept = keep(home, cases, rows, paths, getattr(product, "KEPT", KEPT))
        for number, name in kept.items():
            rows[number]["file"] = name
        text = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in rows)
        head = {"versions": versions, "pages": product.PAGES, **({"decoded": True} if decoded else {}),
                "dimensions": product.DIMENSIONS}
        lines = "".join(f' {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n' for key, value in head.items())
        committed.write_text("{\n" + lines + ' "cases": [\n' + text + "\n ]\n}\n", encoding="utf-8")
    elif arguments.only is None:
        before = json.loads(committed.read_text(encoding="utf-8"))
        for one, old in zip(rows, before["cases"]):
            old.pop("file", None)
            if one != old:
                faults += 1
                print(f"digest: {versions} writes other values than {before['versions']}: {one}, {old}")
        if len(rows) != len(before["cases"]):
            sys.exit("products.json has other cases: --update")
    print(f"{home.name}: {len(rows)} cases of {len(product.DIMENSIONS)} dimensions, {back} written back, {faults} faults")
    sys.exit(faults != 0)


def keep(home, cases, rows, paths, most):
    """Copy small files that together have as many pairs of values as possible; return {number: name}."""
    folder = home / "data" / "products"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def size(path):
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size
    sizes = [size(path) for path in paths]
    left = {i: combinations(cases[i]) for i, one in enumerate(rows)
            if sizes[i] <= KEPT_BYTES and (one.get("tensors") or "unread" in one or "refused" in one)}
    kept = {}
    while left and len(kept) < most:
        number = max(left, key=lambda i: (len(left[i]), -sizes[i], -i))
        new = left.pop(number)
        if not new:
            break
        kept[number] = paths[number].name
        (shutil.copytree if paths[number].is_dir() else shutil.copy)(paths[number], folder / paths[number].name)
        left = {i: pairs - new for i, pairs in left.items()}
    return kept
