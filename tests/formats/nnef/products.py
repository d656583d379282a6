"""Products of NNEF's tensor files, folders and archives, by the package nnef."""

import io
import math
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import nnef
import nnef.binary
import numpy as np

HERE = Path(__file__).parent
sys.path += [str(HERE / "interop"), str(HERE.parents[1] / "products")]
import comparison  # noqa: E402
from make_golden_nnef import pack  # noqa: E402

PACKAGES = ["nnef", "numpy"]
PAGES = ["formats/nnef"]
COMPARED = ["annotations"]
FILES = 24
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
QUANTIZATIONS = {
    "none": "",
    "linear": "linear_quantize(min = -1.5, max = 2.25, bits = 8)",
    "min_max": "min_max_linear_quantize(min = -2.0, max = 2.5, bits = 7, signed = true, symmetric = false)",
    "min_max symmetric": "min_max_linear_quantize(min = -2.0, max = 2.0, bits = 8, signed = true, symmetric = true)",
    "min_max unsigned": "min_max_linear_quantize(min = 9.765625e-4, max = 0.5, bits = 16, signed = false, symmetric = false)",
    "zero point": "zero_point_linear_quantize(zero_point = 128, scale = 0.0078125, bits = 8, signed = false, symmetric = false)",
    "zero point signed": "zero_point_linear_quantize(zero_point = -3, scale = 0.5, bits = 32, signed = true, symmetric = true)",
    "logarithmic": "logarithmic_quantize(max = 4.0, bits = 8)",
    "each channel": "zero_point_linear_quantize(zero_point = [[0], [3]], scale = [[0.5], [0.125]], bits = 8, signed = true, "
                    "symmetric = false)",
}
SCHEMES = {"linear_quantize": "linear", "min_max_linear_quantize": "linear", "zero_point_linear_quantize": "zero_point",
           "logarithmic_quantize": "logarithmic"}
DIMENSIONS = {
    "file": ["folder", "tgz", "tgz with ./", "tar", "tar of GNU", "tensor", "provisional tensor"],
    "dtype": ["float32", "float16", "float64", *INTEGERS, "bool", *(f"q{name}" for name in INTEGERS)],
    "quantization": list(QUANTIZATIONS),
    "shape": [[3, 5], [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 1, 2, 1, 2, 1, 2], [1] * 8],
    "label": ["weight", "conv1/filter", "a.b", "a.b/c-d/E_f.dat", "/lead/w", "x" * 150, "x" * 90 + "/" + "y" * 90,
              "日本語", "a b", "a\\b", "../up", "a//b", "a/./b", "graph.nnef"],
    "graph": ["variables", "operations", "a label twice", "no types", "annotated shapes"],
    "variables": [1, 0, 9, 101],
}


def possible(case):
    alone = case["file"].endswith("tensor")
    quantized = case["dtype"][0] == "q"
    return all([
        not alone or (case["label"], case["graph"], case["variables"], case["quantization"]) == ("weight", "variables", 1, "none"),
        case["file"] != "provisional tensor" or case["dtype"].startswith("float"),
        case["quantization"] != "each channel" or len(case["shape"]) > 1,
        case["quantization"] == "none" or quantized,  # the package gives all other entries to integers or floats, too
        case["variables"] or case["graph"] == "operations",  # a graph has results
        not case["label"].startswith("../") or case["file"] == "folder",  # the members of an archive stay within it
        case["file"] != "tar" or len(case["label"]) != 150,  # too long for a name without a folder
        case["file"] != "folder" or len(case["label"]) < 150 and case["label"] != "a\\b",  # not the name of a file everywhere
        case["label"] not in ("a//b", "a/./b") or case["file"] == "folder",  # not the names of members
    ])


def is_plain(label):
    """Whether stele reads a label: it has no empty part, `.`, `..` or backslash after a leading slash."""
    return "\\" not in label and all(part not in ("", ".", "..") for part in label.removeprefix("/").split("/"))


def hides(case):
    return case["variables"] == 0 or 0 in case["shape"] or not is_plain(case["label"])


def values(case, seed):
    """Random bits, with the NaN payloads and denormals among them."""
    dtype = np.dtype(case["dtype"].removeprefix("q"))
    bits = np.random.default_rng(seed).integers(0, 256, math.prod(case["shape"]) * dtype.itemsize, np.uint8)
    return (bits & 1 if dtype.kind == "b" else bits).view(dtype).reshape(case["shape"])


def labels_of(case):
    return [case["label"] + (str(i) if i else "") for i in range(case["variables"])]


def save(case, folder):
    """Write a folder by nnef.save_graph, and graph.quant, which it leaves out."""
    labels = labels_of(case)
    if case["graph"] == "a label twice":
        labels.append(labels[0])
    kind = {"b": "logical", "f": "scalar", "q": "scalar"}.get(case["dtype"][0], "integer")
    typed = "" if case["graph"] == "no types" and kind == "scalar" else f"<{kind}>"
    lines = ["none = external<scalar>(shape = [1]);"]
    lines += [f"w{i} = variable{typed}(shape = {case['shape']}, label = '{label}');" for i, label in enumerate(labels)]
    results = [f"w{i}" for i in range(len(labels))]
    if case["graph"] == "operations":
        lines.append("more = relu(none);")
        results.append("more")
    graph = nnef.parse_string(f"version 1.0; graph net(none) -> ({', '.join(results)}) {{ {' '.join(lines)} }}")
    for i, label in enumerate(labels):
        old = graph.tensors[f"w{i}"]
        quantization = {"op-name": "any"} if case["dtype"][0] == "q" else {}
        graph.tensors[f"w{i}"] = nnef.Tensor(old.name, old.dtype, case["shape"], values(case, labels.index(label)), quantization)
    shutil.rmtree(folder, ignore_errors=True)
    nnef.save_graph(graph, str(folder), annotate_shapes=case["graph"] == "annotated shapes")
    if how := QUANTIZATIONS[case["quantization"]]:
        (folder / "graph.quant").write_text("".join(f'"w{i}": {how};\n' for i in range(len(labels))))


def write(case, path):
    if case["file"].endswith("tensor"):
        path = path.with_suffix(".dat")
        with open(path, "wb") as file:
            if case["file"] == "tensor":
                nnef.write_tensor(file, values(case, 0), quantized=case["dtype"][0] == "q")
            else:
                nnef.binary._write_tensor_provisional(file, values(case, 0))
        notes = {path.stem: {"nnef.quantized": True}} if case["dtype"][0] == "q" else {}
        provisional = {path.stem: values(case, 0)}  # the package reads float32 alone of these
        return path, comparison.Expected(read(path) if case["file"] == "tensor" else provisional, annotations=notes)
    folder = path.with_name(path.name + ".nnef")
    save(case, folder)
    expected = expected_of(case, folder)
    if case["file"] == "folder":
        return folder, expected
    how = {"tgz": (".nnef.tgz", False, True, tarfile.PAX_FORMAT), "tgz with ./": (".nnef.tgz", True, True, tarfile.PAX_FORMAT),
           "tar": (".nnef.tar", False, False, tarfile.USTAR_FORMAT), "tar of GNU": (".nnef.tar", False, False, tarfile.GNU_FORMAT)}
    suffix, dot, compressed, form = how[case["file"]]
    archive = path.with_name(path.name + suffix)
    pack(folder, archive, dot, compressed, form)
    shutil.rmtree(folder)
    return archive, expected


def expected_of(case, folder):
    if not all(map(is_plain, labels_of(case))):
        return comparison.Expected(refused="malformed")
    tensors, quantizations = load(folder)
    written = case["variables"] == 0 or all(c.isascii() and (c.isalnum() or c in "_-./") for c in case["label"])
    notes = {name: note for name, how in quantizations.items() if (note := noted(how, case))}
    return comparison.Expected(tensors, annotations=notes, lossy=case["graph"] == "operations",
                               unwritable=None if written else "not_representable")


def noted(how, case):
    """The annotations of a quantized tensor, by what the package has of graph.quant."""
    if not how:
        return {"nnef.quantized": True} if case["dtype"][0] == "q" else {}
    numbers = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in how.items() if key != "op-name"}
    if any(isinstance(value, list) for value in numbers.values()):
        return {"nnef.quantization": QUANTIZATIONS[case["quantization"]], "nnef.quantized": True}
    width = 8 * np.dtype(case["dtype"][1:]).itemsize
    stored = {} if numbers["bits"] == width else {"nnef.bits": width}
    return stored | {"nnef.quantized": True, "quantization": {"scheme": SCHEMES[how["op-name"]], **numbers}}


def name_of(label):
    return label.removeprefix("/").replace(".", "\\.").replace("/", ".")


def load(folder):
    """Return ({name: array}, {name: quantization}) of a folder, by nnef.load_graph."""
    graph = nnef.load_graph(str(folder))
    tensors = {name_of(operation.attribs["label"]): graph.tensors[operation.outputs["output"]]
               for operation in graph.operations if operation.name == "variable"}
    return {name: np.asarray(t.data) for name, t in tensors.items()}, {name: t.quantization for name, t in tensors.items()}


def load_any(path):
    if path.is_dir():
        return load(path)
    data = path.read_bytes()
    with tempfile.TemporaryDirectory() as inside, tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(inside, filter="data")
        return load(inside)


def target(path):
    """The same kind of file; stele writes no uncompressed archives."""
    back = path.parent / "back" / path.name
    return back.with_suffix(".tgz") if back.suffix == ".tar" else back


def read(path):
    if path.suffix == ".dat":
        with open(path, "rb") as file:
            return {path.stem: np.asarray(nnef.read_tensor(file))}
    tensors, quantizations = load_any(path)
    source = path.parent.parent / path.name
    if path.parent.name == "back":
        before = load_any(source if source.exists() else source.with_suffix(".tar"))[1]
        assert repr(plain(before)) == repr(plain(quantizations)), f"another quantization: {quantizations} for {before}"
    return tensors


def plain(quantizations):
    """Quantizations without the deprecated name of an operation, and without what it means by itself."""
    meaning = {"linear_quantize": {"op-name": "min_max_linear_quantize", "signed": False, "symmetric": False}}
    return {name: sorted((how | meaning.get(how.get("op-name"), {})).items()) for name, how in sorted(quantizations.items())}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
