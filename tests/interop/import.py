#!/usr/bin/env python3
"""Models, inputs and expected outputs for import.sh, the runs of the imported models, and the tables of the results.

import.py prepare WORK [FOLDER]   writes WORK/cases and WORK/list.txt (import_cases.py); FOLDER: of own models, and no others
import.py run WORK JAVA...        runs DL4J, and onnxruntime on exported models; starts each again if it ends in between
import.py exported LIST           runs onnxruntime on exported.onnx of the cases of a list
import.py table WORK [PAGE [TENSORFLOW_PAGE]]    prints the tables, and writes them into the pages; fails if a result
                                                 is wrong

The cases: the node tests, light models and tests of PyTorch's operators that the onnx package has, with its results;
models of WORK/torch (torch_models.py: MODEL_torchVERSION.onnx) and of the golden files of ONNX, with onnxruntime's results; models and
operators of WORK/tensorflow (tensorflow_models.py), with TensorFlow's results. Each node test is imported twice: with
the shapes of its inputs, and with open extents. The inputs of node tests that are arguments (shapes, axes, limits) or
weights become initializers, as models have them. A case may have exported.onnx, the imported model written as ONNX.
"""
import collections
import pathlib
import subprocess
import sys

import import_cases

# Their results are not numbers of a certain value, or are decided by the last bit.
UNSTABLE = {"op_Const_u32": "DL4J reads no such dtype from NumPy's files",
            "op_Const_u64": "DL4J reads no such dtype from NumPy's files",
            "op_Igammac": "1.2e-5, a series of 32-bit floats",
            "op_Igammac_open": "1.2e-5, a series of 32-bit floats",
            "image": "7e-5: Resize rounds its weights",
            "image_saved": "7e-5: Resize rounds its weights",
            "test_gridsample_bicubic": "the expected values have four digits",
            "op_GatherNd_open": "onnx.checker wants the rank of an output, which is not known",
            "op_Round_i32": "TensorFlow 2.21 rounds integers to 0",
            "light_squeezenet": "logits of 9e9, where the last bit decides Softmax",
            "test_averagepool_2d_ceil_last_window_starts_on_pad": "the expected values have four digits",
            "test_attention_4d_causal_nonpad_continued_prefill_expanded": "one element of a higher rank",
            "test_attention_4d_causal_nonpad_negative_offset_structural_empty_expanded": "one element of a higher rank",
            "test_top_k_same_values": "equal elements come in another order",
            "test_top_k_same_values_largest": "equal elements come in another order",
            "test_top_k_same_values_2d": "equal elements come in another order",
            "test_matmul_bcast": "batches that are both open are taken for equal",
            "test_nllloss_NCd1d2d3d4d5_mean_weight_expanded": "1.1e-5, a sum of 32-bit floats in another order"}
TENSORFLOW = "tensorflow "
UNJUDGED = ("NOT_IMPLEMENTED", "No corresponding Numpy type")  # kernels and dtypes that onnxruntime and NumPy lack


def rows_of(work):
    return [line.rstrip("\n").split("\t") for line in open(work / "list.txt", encoding="utf-8")]


def run_all(work, program, command, folders):
    """Runs a program on folders; it prints a line "FOLDER RESULT" for each. Returns the results by folder."""
    results = {}
    while folders:
        (work / "folders.txt").write_text("\n".join(folders))
        with open(work / f"{program}.log", "a", encoding="utf-8") as log:
            done = subprocess.run([*command, str(work / "folders.txt")], stdout=subprocess.PIPE, stderr=log, text=True,
                                  check=False)
        for line in done.stdout.splitlines():
            folder, _, result = line.partition(" ")
            if folder in folders:
                results[folder] = result
        rest = [f for f in folders if f not in results]
        if rest and done.returncode == 0:
            sys.exit(f"{program} ended without all results")
        if rest:
            results[rest[0]] = f"failed: the process of {program} ended ({done.returncode})"
        folders = rest[1:]
    return results


def run(work, java):
    folders = [pathlib.Path(row[1]).parent for row in rows_of(work) if row[1] != "-"]
    folders = [f for f in folders if (f / "outputs.txt").exists()]
    for program, command, model in (("java", java, "model.fb"),
                                    ("onnxruntime", [sys.executable, __file__, "exported"], "exported.onnx")):
        results = run_all(work, program, command, [str(f) for f in folders if (f / model).exists()])
        if program == "java":
            results = {f: import_cases.found_error(pathlib.Path(f)) if r == "ok" else r for f, r in results.items()}
        name = "results.txt" if program == "java" else "exported.txt"
        (work / name).write_text("".join(f"{f} {r}\n" for f, r in results.items()))


def run_exported(path):
    for folder in path.read_text().splitlines():
        print(folder, import_cases.exported_error(pathlib.Path(folder)), flush=True)


def limit_of(case, group):
    if group.endswith("(models)"):
        return import_cases.LIMIT_MODEL
    half = any("f2" in pathlib.Path(line.split("\t")[1]).read_bytes()[:128].decode("latin-1")
               for line in (case / "outputs.txt").read_text().splitlines())
    return import_cases.LIMIT_HALF if half else import_cases.LIMIT


def checked(case, group, note):
    """Returns an error as text, or a reason, and whether it is small enough."""
    if note.startswith("failed"):
        return note, False
    return f"{float(note):.0e}", float(note) <= limit_of(case, group)


class Result:
    """What became of a case."""

    def __init__(self, row, imported, ran, exported):
        path, _, self.group, self.theirs = row
        self.case, self.message = pathlib.Path(row[1]).parent, imported.replace(path, pathlib.Path(path).name)
        self.imported = imported.startswith("ok")
        self.reason = UNSTABLE.get(self.case.name) or UNSTABLE.get(self.case.name.removesuffix("open"))
        self.is_refused = self.group.endswith("(refused)")
        self.exported, self.note, self.exported_note = False, "", ""
        self.equal = self.exported_equal = False
        if self.is_refused:
            return
        if self.imported:
            self.note, self.equal = checked(self.case, self.group, ran.get(str(self.case), "failed: not run"))
        else:
            self.note = "not imported: " + imported.split(": found ")[-1][:100]
        if str(self.case) in exported:
            self.exported = True
            self.exported_note, self.exported_equal = checked(self.case, self.group, exported[str(self.case)])

    def wrong(self):
        """Yields what is wrong."""
        if self.is_refused and self.imported:
            yield "was imported, but must be refused"
        if self.is_refused or self.reason is not None:
            return
        if self.imported and not self.equal:
            yield self.note
        if self.exported and not self.exported_equal and not any(text in self.exported_note for text in UNJUDGED):
            yield "exported: " + self.exported_note

    def shown(self, note, equal):
        return note if equal or self.reason is None or not note else self.reason


def read_results(work):
    """Returns the results, and counts by group."""
    def table_of(name):
        path = work / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return dict(line.split(" ", 1) for line in lines)

    imported = (line.strip() for line in open(work / "imported.txt", encoding="utf-8"))
    ran, exported = table_of("results.txt"), table_of("exported.txt")
    groups, results = collections.defaultdict(collections.Counter), []
    for row in rows_of(work):
        count = groups[row[2]]
        count["all"] += 1
        if row[1] == "-":
            continue
        result = Result(row, next(imported), ran, exported)
        if result.theirs.replace(".", "").replace("e-", "").isdigit():
            count["onnxruntime"] += float(result.theirs) <= limit_of(result.case, result.group)
        count.update({k: getattr(result, k) for k in ("imported", "equal", "exported", "exported_equal")})
        results.append(result)
    return results, groups


def lines_of(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|",
            *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def model_name(name):
    """Returns the model, by what it was made, and whether its extents are open."""
    kind = "open" if "_open" in name else "fixed"
    name = name.replace("_open", "")
    model, _, exporter = name.partition("_torch")
    return model, "PyTorch " + exporter if exporter else "", kind


def tensorflow_name(name):
    kind = "open" if name.endswith("_open") else "fixed"
    name = name.removesuffix("_open")
    return name.removesuffix("_saved"), "SavedModel" if name.endswith("_saved") else "frozen", kind


def model_lines(models, name_of, maker, with_exported):
    """A row for each model and its maker: with fixed extents and with open ones."""
    rows = collections.defaultdict(dict)
    for result in models:
        model, made_by, kind = name_of(result.case.name)
        rows[(model, made_by)][kind] = result.shown(result.note, result.equal)
        rows[(model, made_by)]["exported " + kind] = result.shown(result.exported_note, result.exported_equal)
    head = ["model", maker, "fixed extents", "open extents"]
    kinds = ["fixed", "open"]
    if with_exported:
        head += ["exported to ONNX, onnxruntime: fixed", "open"]
        kinds += ["exported fixed", "exported open"]
    return lines_of(head, ([*key, *(row.get(k, "") for k in kinds)] for key, row in sorted(rows.items())))


def operator_lines(groups, columns, open_columns):
    """A row for each operator that can be imported, and one for all; then the names of the others."""
    total, none, rows = collections.Counter(), [], []

    def cells(count, free):
        return [count[c] for c in columns.values()] + [free[c] for c in open_columns.values()]

    for group in sorted(groups):
        if group.endswith("open") or group in ("(models)", "(refused)"):
            continue
        count, free = groups[group], groups.get(group + "open", collections.Counter())
        total.update(count)
        total.update({"open " + k: v for k, v in free.items()})
        if not count["imported"]:
            none.append(group)
            continue
        rows.append([group, *cells(count, free)])
    rows.append(["all", *cells(total, {k: total["open " + k] for k in open_columns.values()})])
    return lines_of(["operator", *columns, *open_columns], rows) + ["", "Not imported: " + ", ".join(none) + "."]


def onnx_lines(results, groups):
    exported = any(result.exported for result in results)
    columns = {"tests": "all", "onnxruntime equal": "onnxruntime", "imported": "imported", "DL4J equal": "equal"}
    free = {"open: imported": "imported", "equal": "equal"}
    if exported:
        columns |= {"exported to ONNX": "exported", "onnxruntime equal to it": "exported_equal"}
        free |= {"exported": "exported", "equal to it": "exported_equal"}
    models = [r for r in results if r.group == "(models)"]
    return model_lines(models, model_name, "exporter", exported) + [""] + operator_lines(groups, columns, free)


def tensorflow_lines(results, groups):
    groups = {k.removeprefix(TENSORFLOW): v for k, v in groups.items()}
    models = [r for r in results if r.group.endswith("(models)")]
    refused = [(r.case.name.removeprefix("refused_"), r.message.replace("|", "\\|")[:300])
               for r in results if r.is_refused]
    columns = {"cases": "all", "imported": "imported", "equal in DL4J": "equal", "exported to ONNX": "exported",
               "equal in onnxruntime": "exported_equal"}
    return [*model_lines(models, tensorflow_name, "form", True), "",
            *operator_lines(groups, columns, {f"open: {k}": v for k, v in columns.items()}), "",
            *lines_of(["refused model", "message"], sorted(refused))]


def table(work, pages):
    results, groups = read_results(work)
    for i, lines_for in enumerate((onnx_lines, tensorflow_lines)):
        own = [r for r in results if r.group.startswith(TENSORFLOW) == bool(i)]
        own_groups = {k: v for k, v in groups.items() if k.startswith(TENSORFLOW) == bool(i)}
        if not own and i:
            break
        text = "\n".join(lines_for(own, own_groups)) + "\n"
        print(text)
        if i < len(pages):
            page = pathlib.Path(pages[i])
            old, mark = page.read_text(encoding="utf-8"), "<!-- make interop-ir -->\n"
            page.write_text(old[:old.index(mark) + len(mark)] + text, encoding="utf-8")
    wrong = [(result.case.name, note) for result in results for note in result.wrong()]
    for name, note in wrong:
        print(f"WRONG {name}: {note[:300]}")
    sys.exit(1 if wrong else 0)


if sys.argv[1] == "prepare":
    import_cases.prepare(*map(pathlib.Path, sys.argv[2:]))
elif sys.argv[1] == "run":
    run(pathlib.Path(sys.argv[2]), sys.argv[3:])
elif sys.argv[1] == "exported":
    run_exported(pathlib.Path(sys.argv[2]))
else:
    table(pathlib.Path(sys.argv[2]), sys.argv[3:])
