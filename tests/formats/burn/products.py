"""Products of records and packs, by Burn 0.21 (Rust; see interop/v21)."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = []
VERSIONS = {"burn": "0.21.0"}
PAGES = ["formats/burn"]
COMPARED = ["metadata", "values", "annotations"]
DIMENSIONS = {
    "file": [".mpk", ".mpk.gz", ".json", ".json.gz", ".mpk bytes", ".bpk", ".bin", ".bin.gz", ".bin bytes"],
    "written file": [".mpk", ".mpk.gz", ".json", ".json.gz"],
    "precision": ["Full", "Half", "Double"],
    "kind": ["float", "int", "bool", "q8s", "q8f of blocks"],
    "shape": [[3, 5], [4, 6], [7], [1], [0], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1, 1, 1, 1, 1], [2, 1, 3, 1, 2, 1]],
    "container": ["vec", "plain", "array", "tuple", "enum", "vec of enums", "vec of options", "vec of vecs", "structs"],
    "members": [1, 0, 9, 101, 1001],
    "name": ["weight", "größe", "日本語", "type", "_0", "bytes", "id", "x123456789_123456789_123456789_123456789_123456789"],
    "content": ["module", "Adam", "AdaGrad", "SGD"],
}
LISTS = ["vec", "vec of enums", "vec of options", "vec of vecs", "structs"]  # of any number of members
DTYPES = {"F16": "f16", "F32": "f32", "F64": "f64", "I16": "i16", "I32": "i32", "I64": "i64"}
CASES, IDS = {}, {}  # of each file: what Burn wrote, and its ids


@functools.cache
def burn():
    target = ROOT / "build" / "interop-burn" / "target"
    subprocess.run(["cargo", "build", "--locked", "--quiet", "--manifest-path",
                    ROOT / "tests/formats/burn/interop/v21/Cargo.toml", "--bin", "burn-products-v21"], check=True,
                   env=os.environ | {"CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"})
    return subprocess.Popen([target / "debug" / "burn-products-v21"], text=True, encoding="utf-8", stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)


def ask(what, path, case):
    """Let Burn write or read a file; return what it reads. Its recorders of files append their extension."""
    whole = case["file"] == ".bpk" or case["file"].endswith("bytes")
    program = burn()
    program.stdin.write(json.dumps({what: str(path) if whole else str(path).removesuffix(case["file"]), "case": case}) + "\n")
    program.stdin.flush()
    answer = json.loads(program.stdout.readline())
    assert "error" not in answer, (case, path, answer)
    return answer


def possible(case):
    module = case["content"] == "module"
    if not module and (case["file"] == ".bpk" or case["kind"] != "float" or case["container"] != "vec" or
                       case["name"] != "weight" or 0 in case["shape"]):
        return False
    if case["file"] == ".bpk" and (case["precision"] == "Double" or case["written file"] != ".mpk"):
        return False  # Burn has no such setting; stele writes a pack
    if case["kind"].startswith("q8") and (case["shape"] not in ([3, 5], [4, 6]) or (case["file"] == ".bpk" and
                                                                                    case["shape"] != [4, 6])):
        return False  # Burn's packs only hold quantized tensors whose size is a multiple of 4
    if case["members"] == 1001 and (case["container"], case["name"]) != ("vec", "weight"):
        return False  # which would take Burn minutes
    return case["container"] in LISTS or case["members"] == 1


def hides(case):
    return bare(case).startswith(".bin") or case["members"] == 0 or 0 in case["shape"]


def bare(case):
    return case["file"].split()[0]


def write(case, path):
    path = path.with_name(path.name + bare(case))
    answer = ask("write", path, case)
    if bare(case).startswith(".bin"):
        return path, comparison.Expected(refused="needs_layout")
    found = Found(answer)
    CASES[path.name.split(".")[0]], IDS[path.name.split(".")[0]] = case, found.ids
    return path, comparison.Expected(found.tensors, metadata=found.metadata, values=found.values, annotations=found.annotations)


class Found:
    """What Burn reads in a file, by stele's paths."""

    def __init__(self, answer):
        self.tensors, self.values, self.annotations, self.ids, self.metadata = {}, {}, {}, {}, {}
        if "pack" in answer:
            for name, parameter in answer["pack"].items():
                self.tensor(name, parameter["param"], parameter["id"], pack=True)
            self.metadata = answer["metadata"]
        else:
            self.walk("", answer["tree"])

    def walk(self, path, item):
        if isinstance(item, dict) and item.keys() == {"id", "param"}:
            self.tensor(path, item["param"], item["id"])
        elif isinstance(item, dict) and item.keys() == {"bytes", "shape", "dtype"}:
            self.tensor(path, item, None)
        elif isinstance(item, dict | list):
            for name, inner in item.items() if isinstance(item, dict) else enumerate(item):
                self.walk(f"{path}.{name}" if path else str(name), inner)
        elif item is not None:
            self.values[path] = item

    def tensor(self, path, data, number, pack=False):
        dtype, shape, content = data["dtype"], data["shape"], bytes(data["bytes"])
        notes = {} if number is not None or pack else {"burn.bare": True}
        if isinstance(dtype, dict) and "QFloat" in dtype:
            notes |= {"burn.dtype": dtype, "burn.shape": shape}
            self.tensors[path] = "u8", [len(content)], content
        else:
            self.tensors[path] = "bool" if isinstance(dtype, dict) else DTYPES[dtype], shape, content
        if notes:
            self.annotations[path] = notes
        self.ids[path] = number


def target(path):
    stem = path.name.split(".")[0]
    case = CASES[stem]
    return path.parent / "back" / (stem + (".bpk" if case["file"] == ".bpk" else case["written file"]))


def options(path):
    """Return the name of the format: the extension .json alone is that of stele's JSON."""
    suffix = target(path).name.removeprefix(path.name.split(".")[0])
    return ["--to", "burnpack" if suffix == ".bpk" else "burn-" + suffix[1:]]


def read(path):
    stem = path.name.split(".")[0]
    case = CASES[stem] | {"file": path.name[len(stem):]}
    found = Found(ask("read", path, case))
    other = {name for name in IDS[stem].keys() & found.ids.keys() if IDS[stem][name] != found.ids[name]}
    assert not other, f"{len(other)} ids differ, such as that of {min(other)}"
    return found.tensors


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
