"""Products of .fb files, by DL4J's SameDiff (Java and Maven; see interop/dl4j)."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = []
VERSIONS = {"nd4j-native": "1.0.0-M2.1"}
PAGES = ["formats/samediff"]
COMPARED = ["metadata", "values"]
DIMENSIONS = {
    "dtype": ["FLOAT", "DOUBLE", "HALF", "BFLOAT16", "BOOL", "BYTE", "SHORT", "INT", "LONG", "UBYTE", "UINT16", "UINT32",
              "UINT64", "UTF8"],
    "order": ["C", "F", "view", "permuted"],
    "shape": [[3, 5], [2, 3, 4, 5], [7], [1], [1, 4, 1], [], [0], [2, 0, 3], [1, 2, 1, 3, 1, 2], [1] * 32, None],
    "kind": ["constant", "variable", "both"],
    "members": [1, 0, 9, 1001],
    "name": ["weight", "a.b", "a/b", "größe/日本語/😀", " x\n", "a\\b", "a..b", ".a", "../up:\"'", "100%,", "7", "x\0y", "x" * 300],
    "graph": ["none", "operation", "placeholders", "loss"],
    "updater": ["none", "Adam", "AMSGrad", "Nadam", "AdaMax", "Nesterovs", "RmsProp", "AdaGrad", "AdaDelta", "Sgd",
                "NoOp"],
    "state": ["saved", "not saved"],
    "written form": [".fb", ".sdz", ".sdnb"],
}
DTYPES = {"FLOAT": "f32", "DOUBLE": "f64", "HALF": "f16", "BFLOAT16": "bf16", "BOOL": "bool", "BYTE": "i8", "SHORT": "i16",
          "INT": "i32", "LONG": "i64", "UBYTE": "u8", "UINT16": "u16", "UINT32": "u32", "UINT64": "u64"}
FLOATS = ["FLOAT", "DOUBLE", "HALF", "BFLOAT16"]
FORMS, SAVED = {}, {}  # of each file: the form that stele writes, and what DL4J saved


@functools.cache
def dl4j():
    work = ROOT / "build" / "interop" / "dl4j"
    subprocess.run(["mvn", "-q", "-B", "-f", ROOT / "tests/formats/samediff/interop/dl4j/pom.xml", "package",
                    f"-DbuildDirectory={work}"], check=True)
    return subprocess.Popen(["java", "-cp", f"{work}/classes:{work}/lib/*", "stele.Products"], text=True, encoding="utf-8",
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(request):
    """Return DL4J's answer. Its loaded graphs do not show if a placeholder has any rank or rank 0."""
    program = dl4j()
    program.stdin.write(json.dumps(request) + "\n")
    program.stdin.flush()
    answer = json.loads(program.stdout.readline())
    return {key: facts if isinstance(facts, str) else
            [fact.removesuffix(" scalar").removesuffix(" unknown") if fact.startswith("placeholder ") else fact for fact in facts]
            for key, facts in answer.items()}


def possible(case):
    shape, dtype = case["shape"], case["dtype"]
    empty = shape is None or 0 in shape
    if dtype == "UTF8" and (empty or case["order"] != "C" or len(shape) > 6):
        return False
    if case["order"] != "C" and (empty or not 2 <= len(shape) <= 6):
        return False
    if case["kind"] != "constant" and (empty or dtype not in FLOATS):
        return False  # SameDiff has no such variables
    if case["members"] == 1001 and shape == [2, 3, 4, 5]:
        return False  # large, and nothing new
    return case["updater"] == "none" or case["graph"] == "loss"


def hides(case):
    return case["members"] == 0 or case["shape"] is None or 0 in case["shape"]


def misread(case):
    """Whether SameDiff.load() reads arrays of DL4J's own file wrongly, or not at all (interop/dl4j/ANSWERS.md)."""
    return case["dtype"] in ("BFLOAT16", "UINT16", "UINT32", "UINT64") or case["shape"] is None or (
        case["dtype"] == "UBYTE" and case["order"] in ("F", "permuted"))


def arrays_of(facts):
    return sorted(fact for fact in facts if fact.split()[0] in ("variable", "array", "state"))


def differ(saved, loaded):
    """Return some of the facts that only one of two graphs has."""
    return [fact[:200] for fact in sorted(set(saved) ^ set(loaded))[:6]] if isinstance(loaded, list) else loaded


def write(case, path):
    path = path.with_suffix(".fb")
    answer = ask({"write": str(path), "case": case})
    saved = answer["memory"]
    assert isinstance(saved, list), (case, saved)
    assert arrays_of(saved) == sorted(answer["stored"]), (case, path, "DL4J writes other arrays")
    assert saved == answer["loaded"] or misread(case), (case, path, differ(saved, answer["loaded"]))
    FORMS[path.name], SAVED[path.name] = case["written form"], saved
    tensors, values = arrays(saved)
    return path, comparison.Expected(tensors, values=values)


def arrays(facts):
    """Return the arrays in the facts of a graph, and the values of its strings."""
    tensors, values = {}, {}
    for name, dtype, shape, content in (fact.split()[1:] for fact in facts if fact.startswith("array ")):
        extents = [] if shape == "scalar" else [int(extent) for extent in shape.split("x")]
        if dtype == "UTF8":
            texts = [bytes.fromhex(text).decode() for text in content.replace("-", "").split(",")]
            values[unquote(name)] = nested(texts, extents)
            continue
        data = bytes.fromhex(content.replace("-", ""))
        tensors[unquote(name)] = DTYPES[dtype], extents if data or extents else [0], data
    return tensors, values


def nested(items, shape):
    if not shape:
        return items[0]
    size = len(items) // shape[0]
    return [nested(items[i * size:(i + 1) * size], shape[1:]) for i in range(shape[0])]


def target(path):
    return (path.parent / "back" / path.name).with_suffix(FORMS[path.name])


def read(path):
    """Return the arrays by DL4J, whose releases read .fb alone: stele writes the others in this form again."""
    file = path.with_suffix(".fb")
    if path != file:
        comparison.command(STELE, "convert", path, file)  # noqa: F821
    answer = ask({"read": str(file)})
    saved, facts = SAVED[file.name], answer["loaded"]
    if isinstance(facts, str):
        assert "Unknown datatype: [UINT" in facts, facts
    if isinstance(facts, str) or any(fact.endswith(" scalar -") for fact in saved):
        # SameDiff.load() does not have these types, and makes empty scalars FLOAT; its tables have both.
        saved, facts = arrays_of(saved), sorted(answer["stored"])
    assert saved == facts, differ(saved, facts)
    return arrays(facts)[0]


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
