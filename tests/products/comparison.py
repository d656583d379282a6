"""What the products of all formats share: covering arrays, digests, and the comparison with stele.

`tests/formats/FORMAT/products.py` (or tests/composites/SCHEME/) declares the dimensions of a format, and writes a case by the
real program:

    DIMENSIONS = {"dtype": ["float32", …], "order": ["C", "F"], …}   # values that JSON has; the first ones are a possible case
    PACKAGES = ["numpy"]              # whose versions are recorded
    PAGES = ["formats/numpy"]         # of docs/, whose tables name every dimension
    COMPARED = ["metadata"]           # optional: which of Expected.metadata, values, ties, annotations are compared
    DECODED = True                    # optional: stele's tensors are the decoded weights of a scheme, not their parts
    FILES = 16                        # optional: how many files are committed at most; 0: none
    def possible(case): …             # optional: False for what the real program cannot write
    def hides(case): …                # optional: True if stele refuses the file or all its arrays
    def write(case, path): …          # writes a file, `path` and an extension; returns (its path, Expected), by the real program
    def target(path): …               # optional: where stele writes the same content again
    def read(path): …                 # optional: the real program's reading of that file: {name: array}

    python3 tests/formats/FORMAT/products.py STELE FOLDER [--update] [--only N]

writes all cases into FOLDER, compares them with stele (the command), converts each with stele, and reads the results with
the real program. It compares the digests with products.json next to it, or with --update writes that file, and the smallest
cases to data/products/, for `tools/test_data.py pack`. CI compares those (tests/products/products_test.py). The cases are
those of products.json, or, if it has other dimensions, new ones.
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

FILES = 40  # of a product in data.zip, at most
FILE_BYTES = 6000  # of one of them
PARTS = ("metadata", "values", "ties", "annotations")

NAMES = {"bool": "bool", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8_e4m3fn",
         "float8_e5m2": "f8_e5m2", "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz",
         "float8_e8m0fnu": "f8_e8m0"} | {f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint", "float")
                                         for bits in (8, 16, 32, 64)}


@dataclasses.dataclass
class Expected:
    """What a file holds, by the real program: its arrays by stele's names, and what stele leaves out, which it must say."""
    tensors: dict = dataclasses.field(default_factory=dict)  # name -> array, or (dtype of stele, shape, bytes)
    unread: tuple = ()  # names of entries that stele lists as unreadable
    metadata: dict = dataclasses.field(default_factory=dict)  # keys of `inspect --json`'s "properties"
    values: dict = dataclasses.field(default_factory=dict)  # path -> value, of its "values"
    ties: dict = dataclasses.field(default_factory=dict)  # name -> first name
    annotations: dict = dataclasses.field(default_factory=dict)  # name -> annotations
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


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def digest(tensors):
    """Return the digest of `stele hash` version 2 (docs/guide/command.md) of {name: (sha256, dtype, shape)}."""
    lines = ["stele hash 2\n"]
    for name in sorted(tensors, key=str.encode):
        of_bytes, dtype, shape = tensors[name]
        lines.append(f"{of_bytes}  {dtype}  [{', '.join(map(str, shape))}]  {len(name.encode())}  {name}\n")
    return sha("".join(lines))


def summary(tensors, unread, parts, compared):
    """Return what products.json says of an open file, of {name: (sha256, dtype, shape)}; equal JSON has equal digests."""
    names = sorted(unread)
    if len(names) > 10 or len(json.dumps(names)) > 1000:
        names = [f"{len(names)} names", sha(json.dumps(names))[:32]]
    found = {"tensors": len(tensors), "digest": digest(tensors)[:32], "unread": names}
    found |= {name: sha(json.dumps(parts[name], sort_keys=True))[:32] for name in compared if parts[name]}
    return {key: value for key, value in found.items() if value != []}


def row(expected, compared):
    """Return what products.json says of a case: what stele must find in its file."""
    if expected.refused:
        return {"refused": expected.refused}
    tensors = {name: content(array) for name, array in expected.tensors.items()}
    digests = {name: (hashlib.sha256(data).hexdigest(), dtype, shape) for name, (dtype, shape, data) in tensors.items()}
    return summary(digests, expected.unread, vars(expected), compared)


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


def parts_of(seen):
    """Return the parts of a document of `inspect`, as Expected has them."""
    notes = {t["name"]: t.get("annotations", {}) for t in seen["tensors"]}
    return {"metadata": seen.get("properties", seen["metadata"]), "values": seen.get("values", {}),
            "ties": {t["name"]: t["tied_to"] for t in seen["tensors"] if "tied_to" in t},
            "annotations": {name: note for name, note in notes.items() if note and "unreadable" not in note}}


def merged(stele, path, folder):
    """Merge the adapter of PEFT in a folder into the model next to it; return the file, or the code of the error."""
    file = folder / f"{path.name}.safetensors"
    done = command(stele, "lora", "merge", path / "base.safetensors", path / "adapter", "-o", file)
    return done.stderr.decode().split(":")[1].strip() if done.returncode else file


def found_merged(stele, paths, compared, decoded):
    """Return what found() returns, of the models into which stele merges adapters."""
    with tempfile.TemporaryDirectory() as folder:
        models = [merged(stele, path, Path(folder)) for path in paths]
        rows = iter(found(stele, [model for model in models if isinstance(model, Path)], compared, decoded))
        return [next(rows) if isinstance(model, Path) else ({"refused": model}, {}, {}) for model in models]


def found(stele, paths, compared=("metadata",), decoded=False):
    """Return for each file what stele finds: (row as of row(), {name: (sha256, dtype, shape)}, the parts)."""
    if paths and (paths[0] / "adapter").is_dir():
        return found_merged(stele, paths, compared, decoded)
    inspected, hashed = [], []
    for begin in range(0, len(paths), 500):
        some = paths[begin:begin + 500]
        inspected += documents(stele, some, "inspect", *([] if decoded else ["--parts"]))
        hashed += documents(stele, some, "hash", "-a", "sha256") or [{}]
    rows = []
    for seen, hashes in zip(inspected, hashed, strict=True):
        if "error" in seen:
            rows.append(({"refused": seen["error"]["code"]}, {}, {}))
            continue
        if "tensors" not in hashes:
            rows.append(({"refused": "an element cannot be read"}, {}, {}))
            continue
        unread = [t["name"] for t in seen["tensors"] if "unreadable" in t.get("annotations", {})]
        shas = {t["name"]: t["digest"] for t in hashes["tensors"]}
        tensors = {t["name"]: (shas[t["name"]], t["dtype"], t["shape"]) for t in seen["tensors"] if t["name"] not in unread}
        parts = parts_of(seen)
        rows.append((summary(tensors, unread, parts, compared), tensors, parts))
    return rows


def differences(expected, result, compared):
    """Return lines that say how a file of the real program differs from what stele finds in it."""
    seen, tensors, parts = result
    wanted = row(expected, compared)
    if expected.refused or "refused" in seen:
        return [f"expected {wanted.get('refused', 'to open')}, found {seen.get('refused', 'an open file')}"]
    lines = []
    for name in sorted(set(expected.tensors) | set(tensors)):
        if name not in tensors or name not in expected.tensors:
            lines.append(f"{name!r}: {'not found' if name not in tensors else 'not expected'}")
            continue
        dtype, shape, data = content(expected.tensors[name])
        of_bytes = hashlib.sha256(data).hexdigest()
        if (of_bytes, dtype, list(shape)) != tensors[name]:
            equal = "other elements" if of_bytes != tensors[name][0] else "equal bytes"
            lines.append(f"{name!r}: expected {dtype} {shape}, found {tensors[name][1]} {tensors[name][2]}, {equal}")
    if wanted.get("unread") != seen.get("unread"):
        lines.append(f"unread: expected {sorted(expected.unread)}, found {seen.get('unread')}")
    for part in compared:
        ours, theirs = getattr(expected, part), parts[part]
        for key in sorted(set(ours) | set(theirs)):
            one, other = ours.get(key), theirs.get(key)
            if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
                lines.append(f"{part} {key!r}: expected {one!r}, found {other!r}")
    return lines


def arrays_differ(expected, read):
    """Return lines that say how the real program's reading of stele's file differs from its own file."""
    lines = [f"{name!r}: not {'written' if name in expected else 'in the first file'}"
             for name in sorted(set(expected) ^ set(read))]
    for name in sorted(set(expected) & set(read)):
        if content(expected[name]) != content(read[name]):
            lines.append(f"{name!r}: written with other elements, dtype or shape: {content(read[name])[:2]}")
    return lines


def covering(dimensions, possible, hides):
    """Return cases that contain each possible pair of values of two dimensions; always the same.

    A case that `hides` its elements, because stele refuses the file or its arrays, proves nothing of its other values: it
    only covers pairs that no other case can have."""
    names = list(dimensions)
    order = random.Random(1)
    pairs = {((a, i), (b, j)) for n, a in enumerate(names) for b in names[n + 1:]
             for i in range(len(dimensions[a])) for j in range(len(dimensions[b]))}
    cases = []

    def new(case):
        items = list(case.items())
        return {(a, b) for n, a in enumerate(items) for b in items[n + 1:]} & pairs

    def values(case):
        return {name: dimensions[name][i] for name, i in case.items()}

    def cover(pair, allowed, tries):
        for attempt in range(tries):
            # The fewer values differ from the first ones, the likelier is a case that is allowed.
            share = 1 - attempt / tries
            case = {name: order.randrange(len(dimensions[name])) if order.random() < share else 0 for name in names} | dict(pair)
            if allowed(values(case)):
                break
        else:
            return  # impossible
        best = new(case)
        for _ in range(100):  # change one value at a time
            name = order.choice(names)
            other = case | {name: order.randrange(len(dimensions[name]))} | dict(pair)
            if other != case and allowed(values(other)) and len(gain := new(other)) >= len(best):
                case, best = other, gain
        pairs.difference_update(best)
        cases.append(values(case))
    for allowed in (lambda case: possible(case) and not hides(case), possible):
        for pair in sorted(pairs):
            if pair in pairs:
                cover(pair, allowed, 400)
    return cases


def combinations(case):
    items = [(name, json.dumps(value)) for name, value in case.items()]
    return {(a, b) for i, a in enumerate(items) for b in items[i + 1:]}


def cases_of(product, committed):
    """Return the committed cases, or new ones if the dimensions are others."""
    before = json.loads(committed.read_text(encoding="utf-8")) if committed.exists() else {}
    if before.get("dimensions") != product.DIMENSIONS:
        return before, covering(product.DIMENSIONS, getattr(product, "possible", lambda case: True),
                                getattr(product, "hides", lambda case: False))
    items = product.DIMENSIONS.items()
    return before, [{name: values[i] for (name, values), i in zip(items, one["case"], strict=True)} for one in before["cases"]]


class Run:
    """A run of a product, given the module that declares it."""

    def __init__(self, product, arguments):
        self.product, self.stele, self.folder = product, arguments.stele, arguments.folder
        self.committed = Path(product.__file__).with_name("products.json")
        self.before, self.cases = cases_of(product, self.committed)
        self.numbers = range(len(self.cases)) if arguments.only is None else [arguments.only]
        self.compared = getattr(product, "COMPARED", ["metadata"])
        self.decoded = getattr(product, "DECODED", False)
        self.faults = self.back = 0
        product.STELE = arguments.stele
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        written = [product.write(self.cases[i], self.folder / f"{i:03}") for i in self.numbers]
        self.paths = [Path(path) for path, _ in written]
        self.expected = [expected for _, expected in written]
        self.rows = [{"case": [values.index(self.cases[i][name]) for name, values in product.DIMENSIONS.items()],
                      **row(expected, self.compared)} for i, expected in zip(self.numbers, self.expected)]

    def fault(self, number, path, what, lines):
        self.faults += 1
        print(f"{what} {number} {json.dumps(self.cases[number])} {path}")
        for line in lines[:10]:
            print("   ", line)

    def read(self):
        """Compare what stele reads."""
        results = found(self.stele, self.paths, self.compared, self.decoded)
        for number, path, expected, result in zip(self.numbers, self.paths, self.expected, results):
            if row(expected, self.compared) != result[0]:
                self.fault(number, path, "read", differences(expected, result, self.compared))

    def write(self):
        """Compare what the real program reads of what stele writes."""
        for number, path, expected in zip(self.numbers, self.paths, self.expected):
            if not expected.refused:
                self.write_back(number, path, expected)

    def write_back(self, number, path, expected):
        to = Path(self.product.target(path)) if hasattr(self.product, "target") else self.folder / "back" / path.name
        to.parent.mkdir(exist_ok=True)
        options = []
        if expected.lossy or expected.unread:
            done = command(self.stele, "convert", path, to)
            if done.returncode == 0 and b"lost: " not in done.stdout + done.stderr:
                self.fault(number, path, "convert", ["a loss is neither an error nor a row of the report"])
            options = ["--allow-loss"]
        done = command(self.stele, "convert", path, to, *options)
        error = done.stderr.decode()
        if done.returncode != 0 or expected.unwritable:
            if not expected.unwritable or f"stele: {expected.unwritable}:" not in error:
                self.fault(number, path, "convert", [error or f"expected {expected.unwritable}"])
            return
        self.back += 1
        try:
            lines = arrays_differ(expected.tensors, self.product.read(to))
        except Exception as exception:  # of the real program: stele's file is wrong, or the program is
            lines = [f"{type(exception).__name__}: {exception}"]
        if lines:
            self.fault(number, path, "written", lines)

    def compare(self, versions):
        """Compare the digests with the committed ones."""
        for one, old in zip(self.rows, self.before["cases"], strict=True):
            old.pop("file", None)
            if one != old:
                self.faults += 1
                print(f"digest: {versions} writes other values than {self.before['versions']}: {one}, {old}"[:1000])

    def update(self, versions):
        """Write products.json, and the smallest files."""
        most = getattr(self.product, "FILES", FILES)
        if most:
            for number, name in self.keep(self.committed.parent / "data" / "products", most).items():
                self.rows[number]["file"] = name
        head = {"versions": versions, "pages": self.product.PAGES, "compared": self.compared, "decoded": self.decoded,
                "files": most, "dimensions": self.product.DIMENSIONS}
        lines = "".join(f' {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n' for key, value in head.items())
        text = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in self.rows)
        self.committed.write_text("{\n" + lines + ' "cases": [\n' + text + "\n ]\n}\n", encoding="utf-8")

    def keep(self, folder, most):
        """Copy small files that together have as many pairs of values as possible; return {number: name}."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        sizes = [sum(map(size, files_of(path))) for path in self.paths]
        left = {i: combinations(self.cases[i]) for i, one in enumerate(self.rows)
                if sizes[i] <= FILE_BYTES and (one.get("tensors") or "unread" in one or "refused" in one)}
        kept = {}
        while left and len(kept) < most:
            number = max(left, key=lambda i: (len(left[i]), -sizes[i], -i))
            new = left.pop(number)
            if not new:
                break
            kept[number] = self.paths[number].name
            for path in files_of(self.paths[number]):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
            left = {i: pairs - new for i, pairs in left.items()}
        return kept


def files_of(path):
    """Return the file of a case, and the files beside it that have the same name up to the dot."""
    return [path, *sorted(other for other in path.parent.glob(path.stem + ".*") if other != path)]


def size(path):
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size


def main(product):
    """Run a product, given the module that declares it."""
    parser = argparse.ArgumentParser(description=product.__doc__)
    parser.add_argument("stele", help="the command")
    parser.add_argument("folder", type=Path, help="for the files")
    parser.add_argument("--update", action="store_true", help="write products.json and the smallest files")
    parser.add_argument("--only", type=int, help="the number of one case")
    arguments = parser.parse_args()
    run = Run(product, arguments)
    run.read()
    if hasattr(product, "read"):
        run.write()
    versions = {name: importlib.metadata.version(name) for name in product.PACKAGES}
    if arguments.update:
        run.update(versions)
    elif arguments.only is None:
        run.compare(versions)
    print(f"{run.committed.parent.name}: {len(run.rows)} cases of {len(product.DIMENSIONS)} dimensions, "
          f"{run.back} written back, {run.faults} faults")
    sys.exit(run.faults != 0)
