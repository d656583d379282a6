"""Products of ONNX's operators: what stele's import and export make of a node computes what onnxruntime computes of it.

    python3 tests/formats/onnx/operators/products.py STELE FOLDER [--update] [--only OPERATOR] [--java "java -cp ..."]

For each operator of cases.py: nodes with every pair of the values of its dimensions, of the versions of the operator, and of
the form: extents fixed, open, or all inputs constant. `stele import` makes a graph of DL4J of them, and ONNX of that
again, which onnxruntime runs; with --java (or build/interop/dl4j of `make interop-ir`), DL4J runs the graph too. An operator
that onnxruntime lacks is computed by onnx.reference. The nodes of an operator and version are one model. --update writes the
rows of the operators into the table of docs/generated/onnx-operators.md; without it, fewer equal cases than there are an error.
"""

import argparse
import collections
import hashlib
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ROOT = Path(__file__).resolve().parents[4]
sys.path += [str(ROOT / "tests" / "products"), str(ROOT / "tests" / "interop"), str(Path(__file__).parent)]
import cases  # noqa: E402
import comparison  # noqa: E402
import import_cases  # noqa: E402

PAGE = ROOT / "docs" / "generated" / "onnx-operators.md"
MARKS = "<!-- make products-operators -->\n", "<!-- end -->\n"
DL4J = ROOT / "build" / "interop" / "dl4j"
OLDEST, NEWEST = 7, 22
FORMS = ["fixed", "open", "constant"]


class Case:
    """A node, its inputs, and what became of it."""

    def __init__(self, number, values, made):
        self.values, self.name = values, f"c{number}"
        arrays, self.attributes, count = made
        while arrays and arrays[-1] is None:
            arrays = arrays[:-1]
        arguments = import_cases.ARGUMENTS.get(values["operator"], ()) + import_cases.WEIGHTS.get(values["operator"], ())
        self.inputs, self.constants, self.order = {}, {}, []
        for i, array in enumerate(arrays):
            name = "" if array is None else f"{self.name}_{i}"
            self.order.append(name)
            if name:
                constant = values["form"] == "constant" or i in arguments
                (self.constants if constant else self.inputs)[name] = np.asarray(array)
        self.outputs = [f"{self.name}_y{i}" for i in range(count)]
        self.expected, self.by_reference = None, False
        self.found = {}  # "onnxruntime", "DL4J" -> "equal", "refused: …" or what is wrong

    def node(self):
        attributes = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in self.attributes.items()}
        return helper.make_node(self.values["operator"], self.order, self.outputs, self.name, **attributes)

    def values_of_inputs(self):
        for name, array in self.inputs.items():
            extents = array.shape if self.values["form"] == "fixed" else [f"{name}_{i}" for i in range(array.ndim)]
            yield helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), extents)


def model_of(some):
    """Returns one model of the nodes."""
    graph = helper.make_graph([case.node() for case in some], "g", [v for case in some for v in case.values_of_inputs()],
                              [onnx.ValueInfoProto(name=name) for case in some for name in case.outputs],
                              [numpy_helper.from_array(a, n) for case in some for n, a in case.constants.items()])
    version = helper.make_opsetid("", some[0].values["opset"])
    return helper.make_model(graph, opset_imports=[version], ir_version=10)


def cases_of(name):
    """Returns the cases of an operator by its version."""
    dimensions, make = cases.OPERATORS[name]
    versions = {max(s.since_version, OLDEST) for s in onnx.defs.get_all_schemas_with_history()
                if s.name == name and s.domain == "" and s.since_version <= NEWEST and not s.deprecated}
    newest = 9 if name == "Upsample" else 10 if name == "Scatter" else NEWEST if versions else 0
    own = [s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and s.domain == ""]
    versions = sorted(versions | {max(newest, min(own))})
    versions = sorted({versions[0], versions[len(versions) // 2], versions[-1]})
    dimensions = {"operator": [name], "opset": versions[::-1], "form": FORMS, **dimensions}

    def made(values):
        seed = int.from_bytes(hashlib.sha256(json.dumps(values).encode()).digest()[:4], "little")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(values, np.random.default_rng(seed))
    rows = comparison.covering(dimensions, lambda values: made(values) is not None, lambda values: False)
    groups = collections.defaultdict(list)
    for number, values in enumerate(rows):
        groups[values["opset"]].append(Case(number, values, made(values)))
    return groups


def run_onnxruntime(model, some):
    return import_cases.run_onnxruntime(model, [item for case in some for item in case.inputs.items()],
                                        [(name, None) for case in some for name in case.outputs])


def expect(some):
    """Sets what onnxruntime computes, or onnx.reference."""
    model = model_of(some)
    names, found = run_onnxruntime(model.SerializeToString(), some)
    if names is None and len(some) > 1:
        return halves(expect, some)
    if names is None and some[0].values["operator"] in cases.WITHOUT_REFERENCE:
        return None
    if names is None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ReferenceEvaluator(model).run(None, some[0].inputs)
        except Exception:  # it has several kinds
            return None
    found = iter(found)
    for case in some:
        case.expected, case.by_reference = [np.asarray(next(found)) for _ in case.outputs], names is None
    return None


def halves(function, some, *arguments):
    middle = len(some) // 2
    function(some[:middle], *arguments)
    function(some[middle:], *arguments)


def judge(case, program, found):
    expected = case.expected
    if program == "onnxruntime" and case.by_reference:  # it has no kernel for 64 bits: the export casts, which it reports
        with np.errstate(over="ignore"):
            expected = [a.astype(np.float32) if a.dtype == np.float64 else a for a in expected]
    error = import_cases.error_of(expected, found)
    half = any(a.dtype == np.float16 for a in (*case.inputs.values(), *case.constants.values(), *case.expected))
    limit = import_cases.LIMIT_HALF if half else import_cases.LIMIT
    case.found[program] = "equal" if error <= limit else f"error {error:.0e}"


class Run:
    def __init__(self, arguments):
        self.stele, self.folder, self.java = arguments.stele, arguments.folder, arguments.java
        self.waiting = []  # (folder, cases) for DL4J

    def imported(self, some, number=0):
        """Imports the nodes; compares the export in onnxruntime, and prepares the graph for DL4J."""
        folder = self.folder / f"{some[0].values['operator']}_{some[0].values['opset']}_{some[0].name}_{len(some)}_{number}"
        folder.mkdir()
        onnx.save(model_of(some), folder / "model.onnx")
        done = comparison.command(self.stele, "import", folder / "model.onnx", folder / "exported.onnx", "--opset", 22, "-q")
        if done.returncode != 0:
            self.refused(done.stderr.decode(), some, number)
            return
        names, found = run_onnxruntime(str(folder / "exported.onnx"), some)
        if names is None and len(some) > 1:
            halves(self.imported, some, number + 1)
            return
        if names is None:
            some[0].found["onnxruntime"] = f"does not run: {found}"
        else:
            found = iter(found)
            for case in some:
                judge(case, "onnxruntime", [next(found) for _ in case.outputs])
        done = comparison.command(self.stele, "import", folder / "model.onnx", folder / "model.fb", "-q")
        if done.returncode != 0:
            for case in some:
                case.found["DL4J"] = f"is not written: {done.stderr.decode()}"
        elif self.java and not any(a.dtype in (np.uint32, np.uint64) for case in some for a in case.inputs.values()):
            import_cases.write(folder, "inputs", [item for case in some for item in case.inputs.items()])
            rows = zip((name for case in some for name in case.outputs), (a for case in some for a in case.expected))
            import_cases.write(folder, "outputs", list(rows))
            self.waiting.append((folder, some))

    def refused(self, error, some, number):
        """Marks the nodes that an error lists as refused, and imports the others."""
        listed = dict(re.findall(r"(?:found |; )(c\d+) \([^)]*\): (.*?)(?=; c\d+ \(| \(/|$)", error, re.S))
        rest = [case for case in some if case.name not in listed]
        for case in some:
            if case.name in listed:
                case.found = dict.fromkeys(("onnxruntime", "DL4J"), "refused: " + listed[case.name].strip())
        if listed and rest:
            self.imported(rest, number + 1)
        elif not listed and len(some) > 1:
            halves(self.imported, some, number + 1)
        elif not listed:
            some[0].found = dict.fromkeys(("onnxruntime", "DL4J"), ("refused: " if "unsupported" in error else "fails: ") + error.strip())

    def run_dl4j(self):
        """Runs DL4J on the graphs that wait; if one fails, on each of its nodes alone."""
        again = []
        results = self.results([folder for folder, _ in self.waiting])
        for folder, some in self.waiting:
            result = results.get(str(folder), "failed: the process ended")
            if result == "ok":
                found = iter([np.load(folder / f"found{i}.npy") for i in range(sum(len(case.outputs) for case in some))])
                for case in some:
                    # In DL4J an empty array may be a scalar, and one element may have another rank.
                    judge(case, "DL4J", [b.ravel()[:a.size].reshape(a.shape) if a.size <= b.size <= 1 else b
                                         for a, b in ((a, next(found)) for a in case.expected)])
            elif len(some) > 1:
                again += [some[:len(some) // 2], some[len(some) // 2:]]
            else:
                some[0].found["DL4J"] = result
        self.waiting = []
        if again:
            for some in again:
                self.imported(some, 1000 + len(self.waiting))
            self.run_dl4j()

    def results(self, folders):
        results = {}
        while folders:
            (self.folder / "list.txt").write_text("\n".join(map(str, folders)))
            done = subprocess.run([*self.java, str(self.folder / "list.txt")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True, check=False)
            results |= dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(str(self.folder)))
            left = [folder for folder in folders if str(folder) not in results]
            if left:
                results[str(left[0])] = f"failed: the process ended ({done.returncode})"
            folders = left[1:]
        return results


def judged(every):
    """Prints what is wrong; returns the row of each operator, and the number of faults."""
    reasons, wrong, rows = collections.Counter(), 0, {}
    for name, group in sorted(every.items()):
        known = [case for case in group if case.expected is not None]
        counts = collections.Counter(cases=len(known))
        for case in known:
            states = case.found
            if all(state.startswith("refused") for state in states.values()):
                counts["refused"] += 1
                reasons[name, re.sub(r"c\d+_|\[[^]]*\]", "", next(iter(states.values())))[9:160]] += 1
                continue
            for program, state in states.items():
                counts[program] += state == "equal"
                if state != "equal":
                    wrong += 1
                    print(f"{program} {json.dumps(case.values)}: {state[:300]}")
        counts["ran"] = sum("DL4J" in case.found and not case.found["DL4J"].startswith("refused") for case in known)
        rows[name] = [counts[column] for column in ("cases", "refused", "onnxruntime", "ran", "DL4J")]
    for (name, reason), count in sorted(reasons.items()):
        print(f"refused {name} {count}: {reason}")
    return rows, wrong


HEAD = """| operator | dimensions | cases | refused | exported: equal in onnxruntime | run by DL4J | equal in DL4J | proven |
|---|---|---|---|---|---|---|---|
"""


def rows_of(text):
    cells = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return {row[0]: [int(cell) for cell in row[2:7]] for row in cells if row[0] in cases.OPERATORS}


def worse(old, new):
    """Whether a smaller share of an operator's cases is equal than its row of the page says."""
    return old is not None and (new[2] * old[0] < old[2] * new[0] or new[4] * old[3] < old[4] * new[3])


def table(before, rows):
    """Returns the table of docs/generated/onnx-operators.md, with rows replaced."""
    rows = rows_of(before) | rows
    lines = [line_of(name, ", ".join(["opset", "form", *cases.OPERATORS[name][0]]), numbers) for name, numbers in sorted(rows.items())]
    return HEAD + "".join(lines) + line_of("all", "", [sum(column) for column in zip(*rows.values())])


def line_of(name, dimensions, numbers):
    share = numbers[2] * 100 // max(numbers[0], 1)
    return f"| {name} | {dimensions} | {' | '.join(map(str, numbers))} | {share} % |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stele", help="the command")
    parser.add_argument("folder", type=Path, help="for the files")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--only", help="operators, by commas")
    parser.add_argument("--java", help="the command that runs stele.RunGraphs", default=f"java -cp {DL4J}/classes:{DL4J}/lib/*")
    arguments = parser.parse_args()
    classes = Path(arguments.java.split(" -cp ")[-1].split(":")[0])
    arguments.java = [*arguments.java.split(), "stele.RunGraphs"] if classes.is_dir() else None
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    arguments.folder = arguments.folder.resolve()
    run, every = Run(arguments), {}
    for name in arguments.only.split(",") if arguments.only else sorted(cases.OPERATORS):
        every[name] = []
        for group in cases_of(name).values():
            expect(group)
            group = [case for case in group if case.expected is not None]
            every[name] += group
            # DL4J reads no arrays of these dtypes from NumPy's files.
            unsigned = [c for c in group if any(a.dtype in (np.uint32, np.uint64) for a in c.inputs.values())]
            for some in ([c for c in group if c not in unsigned], unsigned):
                if some:
                    run.imported(some)
    if run.java:
        run.run_dl4j()
    rows, wrong = judged(every)
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    old, after = rest.split(MARKS[1])
    fallen = [name for name, found in rows.items() if worse(rows_of(old).get(name), found)]
    if arguments.update:
        PAGE.write_text(before + MARKS[0] + table(old, rows) + MARKS[1] + after, encoding="utf-8")
    print(f"operators: {len(every)} operators, {sum(map(len, every.values()))} cases, {wrong} faults")
    print("".join(f"{name}: fewer cases are equal than the table says\n" for name in fallen), end="")
    sys.exit(len(fallen) != 0 and not arguments.update)


if __name__ == "__main__":
    main()
