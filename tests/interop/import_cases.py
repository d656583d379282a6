"""The cases of import.py: models, inputs and expected outputs."""
import os
import pathlib
import sys

LIMIT = 1e-5
LIMIT_HALF = 4e-3  # float16
LIMIT_MODEL = 3e-5  # whole models: their layers add up roundings
ROUNDINGS = 4

ARGUMENTS = {
    "Clip": (1, 2), "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "Dropout": (1, 2), "Expand": (1,),
    "OneHot": (1, 2), "Pad": (1, 2, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,),
    "Unsqueeze": (1,), "Upsample": (1,),
    **{"Reduce" + kind: (1,) for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
                                          "SumSquare")},
}
# Inputs that models have as initializers.
WEIGHTS = {"BatchNormalization": (1, 2, 3, 4), "Conv": (1, 2), "ConvTranspose": (1, 2), "GRU": (1, 2, 3),
           "GroupNormalization": (1, 2), "LSTM": (1, 2, 3, 7), "RNN": (1, 2, 3)}


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
    """Returns the largest error of an element, relative to it. Integers, infinities and NaN must be equal.

    An element near 0 may be a sum of larger numbers, which were rounded: the limit allows for ROUNDINGS spacings of the
    dtype at the largest element.
    """
    import numpy
    worst = 0.0
    for a, b in zip(expected, found):
        a, b = numpy.asarray(a), numpy.asarray(b)
        if a.shape != b.shape:
            return float("inf")
        if a.dtype.kind != "f":
            if not numpy.array_equal(a.astype(numpy.int64), b.astype(numpy.int64)):
                return float("inf")
            continue
        type_of, limit = numpy.finfo(a.dtype), LIMIT_HALF if a.dtype == numpy.float16 else LIMIT
        a, b = a.astype(numpy.float64), b.astype(numpy.float64)
        spacing = float(type_of.eps) * numpy.abs(a[numpy.isfinite(a)]).max(initial=0)
        wrong = (a != b) & ~(numpy.isnan(a) & numpy.isnan(b))
        a, b = a[wrong], b[wrong]
        if not numpy.isfinite([a, b]).all():
            return float("inf")
        error = numpy.abs(a - b) / (numpy.abs(a) + ROUNDINGS * spacing / limit + float(type_of.tiny))
        worst = max(worst, float(error.max(initial=0)))
    return worst


def found_error(case):
    """Returns the error of what RunGraphs has written."""
    import numpy
    outputs = [value for _, value in read(case, "outputs")]
    found = [numpy.load(case / f"found{i}.npy") for i in range(len(outputs))]
    # In DL4J an empty array may be a scalar, and one element may have another rank.
    found = [b.ravel()[:a.size].reshape(a.shape) if a.size <= b.size <= 1 else b for a, b in zip(outputs, found)]
    return error_of(outputs, found)


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


def golden():
    return pathlib.Path(os.environ["STELE_TEST_DATA"]) / "formats/onnx/data"


def whole_models(work):
    """Yields a path and inputs of models whose results are onnxruntime's."""
    import numpy
    random = numpy.random.default_rng(1)
    path = golden() / "mlp.onnx"
    yield path, [("x", random.standard_normal((2, 4)).astype(numpy.float32))]
    yield from models_in(work / "torch")


def models_in(folder):
    """Yields each model of a folder, with the inputs that a file beside it has: MODEL.npz, or in.NAME of MODEL.safetensors
    (that of MODEL_open.onnx, too)."""
    import numpy
    for path in sorted(folder.absolute().glob("*.onnx")):
        archive, tensors = path.with_suffix(".npz"), path.with_suffix(".safetensors")
        if archive.exists():
            with numpy.load(archive) as arrays:
                yield path, [(name, arrays[name]) for name in arrays.files]
            continue
        from safetensors.numpy import load_file
        if not tensors.exists():
            tensors = tensors.with_stem(path.stem.removesuffix("_open"))
        yield path, [(name[3:], value) for name, value in load_file(tensors).items() if name.startswith("in.")]


def tensorflow_cases(work):
    """Returns the folders that tensorflow_models.py wrote."""
    return sorted(path.parent for path in (work / "tensorflow").glob("*/inputs.txt"))


def tensorflow_group(name):
    """Returns the group of a case of TensorFlow: its operator, (models) or (refused)."""
    kind, _, rest = name.partition("_")
    if kind not in ("op", "refused"):
        return "tensorflow (models)"
    group = rest.partition("_")[0] if kind == "op" else "(refused)"
    return f"tensorflow {group}" + ("open" if kind == "op" and name.endswith("_open") else "")


def remove_results(case):
    for name in ("model.fb", "exported.onnx"):
        (case / name).unlink(missing_ok=True)


def read(case, kind):
    """Returns the names and arrays that write() wrote."""
    import numpy
    rows = (line.split("\t") for line in (case / f"{kind}.txt").read_text().splitlines())
    return [(name, numpy.load(path)) for name, path, _ in rows]


def exported_error(case):
    """Returns the error of what onnxruntime computes from exported.onnx, or a reason."""
    import onnx
    path = case / "exported.onnx"
    try:
        onnx.checker.check_model(path, full_check=True)
        wanted = {value.name for value in onnx.load(path, load_external_data=False).graph.input}
    except Exception as error:  # it has several kinds
        return "failed: check_model: " + " ".join(str(error).split())[:200]
    outputs = read(case, "outputs")
    names, found = run_onnxruntime(str(path), [row for row in read(case, "inputs") if row[0] in wanted], outputs)
    return str(error_of([v for _, v in outputs], found)) if names else "failed: " + found


def prepare(work, own=None):
    """Writes the cases and their list; own: a folder of models, which are then all."""
    import onnx
    listing, cases = [], work / "cases"

    def add(name, group, path, inputs, outputs, error):
        case = cases / name
        case.mkdir(parents=True, exist_ok=True)
        remove_results(case)
        write(case, "inputs", inputs)
        write(case, "outputs", outputs)
        listing.append(f"{path}\t{case / 'model.fb'}\t{group}\t{error}\n")

    def add_models(models, group):
        for path, inputs in models:
            names, outputs = run_onnxruntime(str(path), inputs, None)
            if names is None:
                sys.exit(f"onnxruntime does not run {path}: {outputs}")
            kind = "open" if group != "(models)" and path.stem.endswith("_open") else ""
            add(path.stem, group + kind, path, inputs, list(zip(names, outputs)), 0.0)

    if own:
        add_models(models_in(own), "(models)")
        (work / "list.txt").write_text("".join(listing))
        return
    add_models(whole_models(work), "(models)")
    add_models(models_in(golden() / "idioms"), "(idioms)")
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
    for case in tensorflow_cases(work):
        remove_results(case)
        path = case / "model.pb" if (case / "model.pb").exists() else case / "saved_model"
        listing.append(f"{path}\t{case / 'model.fb'}\t{tensorflow_group(case.name)}\t-\n")
    (work / "list.txt").write_text("".join(listing))
