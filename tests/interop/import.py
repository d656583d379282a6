#!/usr/bin/env python3
"""Models, inputs and expected outputs for import.sh, the runs of DL4J, and the table of the results.

import.py prepare WORK            writes WORK/cases and WORK/list.txt
import.py run WORK JAVA...        runs DL4J; starts it again if it ends in between
import.py table WORK [PAGE]       prints the tables, and writes them into PAGE; fails if a result is wrong

The cases: the node tests, light models and tests of PyTorch's operators that the onnx package has, with its results;
models of WORK/torch (torch_models.py: MODEL_torchVERSION.onnx) and tests/data, with onnxruntime's results. Each node test
is imported twice: with the shapes of its inputs, and with open extents. The inputs of node tests that are arguments
(shapes, axes, limits) or weights become initializers, as models have them.
"""
import collections
import pathlib
import subprocess
import sys

LIMIT = 1e-5
LIMIT_HALF = 4e-3  # float16
ARGUMENTS = {
    "Clip": (1, 2), "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "Dropout": (1, 2), "Expand": (1,),
    "OneHot": (1, 2), "Pad": (1, 2, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4), "Split": (1,),
    "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,), "Upsample": (1,),
    **{"Reduce" + kind: (1,) for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
                                          "SumSquare")},
}
# Inputs that models have as initializers.
WEIGHTS = {"BatchNormalization": (1, 2, 3, 4), "Conv": (1, 2), "ConvTranspose": (1, 2), "GRU": (1, 2, 3),
           "GroupNormalization": (1, 2), "LSTM": (1, 2, 3, 7), "RNN": (1, 2, 3)}
# Their results are not numbers of a certain value, or are decided by the last bit.
UNSTABLE = {"light_squeezenet": "logits of 9e9, where the last bit decides Softmax",
            "test_averagepool_2d_ceil_last_window_starts_on_pad": "the expected values have four digits",
            "test_attention_4d_causal_nonpad_continued_prefill_expanded": "one element of a higher rank",
            "test_attention_4d_causal_nonpad_negative_offset_structural_empty_expanded": "one element of a higher rank",
            "test_top_k_same_values": "equal elements come in another order",
            "test_top_k_same_values_largest": "equal elements come in another order",
            "test_top_k_same_values_2d": "equal elements come in another order",
            "test_matmul_bcast": "batches that are both open are taken for equal",
            "test_nllloss_NCd1d2d3d4d5_mean_weight_expanded": "1.1e-5, a sum of 32-bit floats in another order"}


def write(case, kind, rows):
    import numpy
    lines = []
    for i, (name, value) in enumerate(rows):
        path = case / f"{kind}{i}.npy"
        numpy.save(path, numpy.ascontiguousarray(value) if value.ndim else value)
        lines.append(f"{name}\t{path}\t{','.join(map(str, value.shape))}\n")
    (case / f"{kind}.txt").write_text("".join(lines))


def arguments_of(graph):
    names = set()
    for node in graph.node:
        for table in (ARGUMENTS, WEIGHTS):
            names.update(node.input[i] for i in table.get(node.op_type, ()) if i < len(node.input))
    return names


def node_case(model, inputs, outputs, open_extents):
    """Returns the model with arguments as initializers, its inputs and outputs; None: DL4J has no such tensors."""
    import numpy
    import onnx
    from onnx import numpy_helper
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    arguments, kept, rows = arguments_of(copy.graph), [], []
    plain = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    inputs, outputs = ([numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) and v.data_type in plain else v
                        for v in values] for values in (inputs, outputs))
    inputs, outputs = ([numpy.asarray(v) if isinstance(v, numpy.generic) else v for v in values]
                       for values in (inputs, outputs))
    bfloat16 = onnx.TensorProto.BFLOAT16  # NumPy's files do not have it
    outputs = [numpy_helper.to_array(v).astype(numpy.float32)
               if isinstance(v, onnx.TensorProto) and v.data_type == bfloat16 else v for v in outputs]
    if not all(isinstance(v, numpy.ndarray) and v.dtype.kind in "fiub" for v in (*inputs, *outputs)):
        return None
    weights = {i.name for i in copy.graph.initializer}
    values = [v for v in copy.graph.input if v.name not in weights]
    for value, content in zip(values, inputs):
        if value.name in arguments:
            copy.graph.initializer.append(numpy_helper.from_array(content, value.name))
            continue
        kept.append(value)
        rows.append((value.name, content))
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    if open_extents:
        for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
            for i, extent in enumerate(value.type.tensor_type.shape.dim):
                extent.dim_param = f"{value.name}_{i}"
    return copy, rows, [(o.name, v) for o, v in zip(copy.graph.output, outputs)]


def run_onnxruntime(model, inputs, outputs):
    """Returns its outputs, or a reason."""
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()] if outputs is None else [name for name, _ in outputs]
        return names, session.run(names, dict(inputs))
    except Exception as error:  # it has several kinds
        return None, str(error).split("\n")[0][:100]


def error_of(expected, found):
    import numpy
    worst = 0.0
    for a, b in zip(expected, found):
        a, b = numpy.asarray(a).astype(numpy.float64), numpy.asarray(b).astype(numpy.float64)
        if a.shape != b.shape:
            return float("inf")
        if not a.size:
            continue
        same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
        difference = numpy.where(same, 0, numpy.abs(a - b)).max()
        worst = max(worst, float(difference) / max(numpy.abs(a[numpy.isfinite(a)]).max(initial=0), 1e-30))
    return worst


def node_tests():
    """Yields the group, the name, the model, the inputs and the outputs."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
    for test in collect_testcases(None):
        graph = test.model.graph
        group = graph.node[0].op_type
        if len(graph.node) > 1 or "_expanded" in test.name:
            group = "(functions)"
        if any(o.domain not in ("", "ai.onnx") for o in test.model.opset_import):
            continue
        inputs, outputs = test.data_sets[0]
        yield group, test.name, test.model, inputs, outputs
    folder = pathlib.Path(onnx.__file__).parent / "backend/test/data"

    def load(path):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)

    for kind in ("pytorch-converted", "pytorch-operator"):
        for test in sorted((folder / kind).iterdir()):
            data = test / "test_data_set_0"
            model = onnx.load(test / "model.onnx")
            names = [len(list(data.glob(pattern))) for pattern in ("input_*.pb", "output_*.pb")]
            yield (f"({kind})", test.name, model, [load(data / f"input_{i}.pb") for i in range(names[0])],
                   [load(data / f"output_{i}.pb") for i in range(names[1])])


def light_models():
    import numpy
    import onnx
    from onnx import numpy_helper
    folder = pathlib.Path(onnx.__file__).parent / "backend/test/data/light"
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        weights = {i.name for i in model.graph.initializer}
        inputs = []
        for value in model.graph.input:
            if value.name not in weights:
                shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
                count = int(numpy.prod(shape))
                inputs.append((value.name, (numpy.arange(count) / count).astype(numpy.float32).reshape(shape)))
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.with_name(path.stem + "_output_0.pb").read_bytes())
        yield path, inputs, [(model.graph.output[0].name, numpy_helper.to_array(tensor))]


def whole_models(work):
    """Yields a path and inputs of models whose results are onnxruntime's."""
    import numpy
    random = numpy.random.default_rng(1)
    path = pathlib.Path("tests/data/onnx/mlp.onnx").absolute()
    yield path, [("x", random.standard_normal((2, 4)).astype(numpy.float32))]
    for path in sorted((work / "torch").glob("*.onnx")):
        with numpy.load(path.with_suffix(".npz")) as arrays:
            yield path, [(name, arrays[name]) for name in arrays.files]


def prepare(work):
    import onnx
    listing, cases = [], work / "cases"

    def add(name, group, path, inputs, outputs, error):
        case = cases / name
        case.mkdir(parents=True, exist_ok=True)
        (case / "model.fb").unlink(missing_ok=True)
        write(case, "inputs", inputs)
        write(case, "outputs", outputs)
        listing.append(f"{path}\t{case / 'model.fb'}\t{group}\t{error}\n")

    for path, inputs in whole_models(work):
        names, outputs = run_onnxruntime(str(path), inputs, None)
        if names is None:
            sys.exit(f"onnxruntime does not run {path}: {outputs}")
        add(path.stem, "(models)", path, inputs, list(zip(names, outputs)), 0.0)
    for path, inputs, outputs in light_models():
        _, found = run_onnxruntime(str(path), inputs, outputs)
        add(path.stem, "(models)", path, inputs, outputs, error_of([outputs[0][1]], found))
    for group, name, model, inputs, outputs in node_tests():
        for kind in ("", "open"):
            made = node_case(model, inputs, outputs, kind == "open")
            if made is None:
                if not kind:
                    listing.append(f"{name}\t-\t{group}\tdtype\n")
                continue
            case = cases / (name + kind)
            case.mkdir(parents=True, exist_ok=True)
            onnx.save(made[0], case / "model.onnx")
            error = "-"
            if not kind:
                names, found = run_onnxruntime(made[0].SerializeToString(), made[1], made[2])
                error = error_of([v for _, v in made[2]], found) if names else found.replace("\t", " ")
            add(name + kind, group + kind, case / "model.onnx", made[1], made[2], error)
    (work / "list.txt").write_text("".join(listing))


def run(work, java):
    results = {}
    folders = [row[1].removesuffix("/model.fb") for row in rows_of(work) if row[1] != "-"]
    folders = [f for f in folders if pathlib.Path(f, "model.fb").exists()]
    while folders:
        (work / "folders.txt").write_text("\n".join(folders))
        with open(work / "java.log", "a", encoding="utf-8") as log:
            done = subprocess.run([*java, str(work / "folders.txt")], stdout=subprocess.PIPE, stderr=log, text=True,
                                  check=False)
        for line in done.stdout.splitlines():
            folder, _, result = line.partition(" ")
            if folder in folders:
                results[folder] = result
        rest = [f for f in folders if f not in results]
        if rest and done.returncode == 0:
            sys.exit("DL4J ended without all results")
        if rest:
            results[rest[0]] = f"failed: DL4J's process ended ({done.returncode})"
        folders = rest[1:]
    (work / "results.txt").write_text("".join(f"{f} {r}\n" for f, r in results.items()))


def rows_of(work):
    return [line.rstrip("\n").split("\t") for line in open(work / "list.txt", encoding="utf-8")]


def half(case):
    return any("f2" in pathlib.Path(line.split("\t")[1]).read_bytes()[:128].decode("latin-1")
               for line in (case / "outputs.txt").read_text().splitlines())


def result_of(case, imported, ran):
    """Returns the error of DL4J's outputs as text, or a reason, and whether it is small enough."""
    if not imported.startswith("ok"):
        return "not imported: " + imported.split(": found ")[-1][:100], False
    note = ran.get(str(case), "failed: not run")
    if note.startswith("failed"):
        return note, False
    return f"{float(note):.0e}", float(note) <= (LIMIT_HALF if half(case) else LIMIT)


def model_rows(models):
    """A row for each model and exporter: with fixed extents and with open ones."""
    rows = collections.defaultdict(dict)
    for name, note in models:
        kind = "open" if "_open" in name else "fixed"
        model, _, exporter = name.replace("_open", "").partition("_torch")
        rows[(model, "PyTorch " + exporter if exporter else "")][kind] = note
    lines = ["| model | exporter | fixed extents | open extents |", "|---|---|---|---|"]
    return lines + [f"| {model} | {exporter} | {row.get('fixed', '')} | {row.get('open', '')} |"
                    for (model, exporter), row in sorted(rows.items())]


def table(work, page):
    imported = (line.strip() for line in open(work / "imported.txt", encoding="utf-8"))
    ran = dict(line.rstrip("\n").split(" ", 1) for line in open(work / "results.txt", encoding="utf-8"))
    groups = collections.defaultdict(collections.Counter)
    wrong, models = [], []
    for _, out, group, theirs in rows_of(work):
        count = groups[group]
        count["all"] += 1
        if out == "-":
            continue
        result, case = next(imported), pathlib.Path(out).parent
        if theirs.replace(".", "").replace("e-", "").isdigit():
            count["onnxruntime"] += float(theirs) <= (LIMIT_HALF if half(case) else LIMIT)
        note, equal = result_of(case, result, ran)
        count["imported"] += result.startswith("ok")
        count["equal"] += equal
        reason = UNSTABLE.get(case.name.removesuffix("open"))
        if result.startswith("ok") and not equal and reason is None:
            wrong.append((case.name, note))
        if group == "(models)":
            models.append((case.name, note if equal or reason is None else reason))
    lines = ["| operator | tests | onnxruntime equal | imported | DL4J equal | open: imported | equal |",
             "|---|---|---|---|---|---|---|"]
    total, none = collections.Counter(), []
    for group in sorted(groups):
        if group.endswith("open") or group == "(models)":
            continue
        count, free = groups[group], groups[group + "open"]
        total.update(count)
        total.update({"open " + k: v for k, v in free.items()})
        if not count["imported"]:
            none.append(group)
            continue
        lines.append(f"| {group} | {count['all']} | {count['onnxruntime']} | {count['imported']} | {count['equal']} | "
                     f"{free['imported']} | {free['equal']} |")
    lines.append(f"| all | {total['all']} | {total['onnxruntime']} | {total['imported']} | {total['equal']} | "
                 f"{total['open imported']} | {total['open equal']} |")
    lines += ["", "Not imported: " + ", ".join(none) + "."]
    text = "\n".join(model_rows(models) + [""] + lines) + "\n"
    print(text)
    for name, note in wrong:
        print(f"WRONG {name}: {note[:300]}")
    for name in page:
        old = pathlib.Path(name).read_text(encoding="utf-8")
        mark = "<!-- make interop-ir -->\n"
        pathlib.Path(name).write_text(old[:old.index(mark) + len(mark)] + text, encoding="utf-8")
    sys.exit(1 if wrong else 0)


if sys.argv[1] == "prepare":
    prepare(pathlib.Path(sys.argv[2]))
elif sys.argv[1] == "run":
    run(pathlib.Path(sys.argv[2]), sys.argv[3:])
else:
    table(pathlib.Path(sys.argv[2]), sys.argv[3:])
