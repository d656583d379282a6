#!/usr/bin/env python3
"""Models, inputs and expected outputs for import.sh, and the table of its results.

import.py prepare WORK [MODELS]   writes WORK/cases and WORK/list.txt
import.py table WORK              prints the table; fails if a model that imports runs with another result

onnx's node tests have inputs that are arguments (shapes, axes, limits); they become initializers here, as models have
them. The expected outputs of node tests and light models are onnx's own; those of other models are onnxruntime's.
"""
import pathlib
import sys

LIMIT = 1e-5
ARGUMENTS = ("test_clip", "test_clip_default_min", "test_constant_pad", "test_edge_pad")
# Logits of 9e9, where the last bit (1024) decides Softmax.
UNSTABLE = ("light_squeezenet",)


def array(tensor, dtype):
    import numpy
    from onnx import numpy_helper
    if dtype == 16:  # bf16: its bits, in a tensor of bf16 or of u16
        bits = numpy.frombuffer(tensor.raw_data, numpy.uint16).astype(numpy.uint32) << 16
        return bits.view(numpy.float32).reshape(list(tensor.dims))
    return numpy_helper.to_array(tensor)


def read(path, dtype):
    import onnx
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return tensor, array(tensor, dtype)


def write(case, kind, rows):
    import numpy
    lines = []
    for i, (name, value) in enumerate(rows):
        path = case / f"{kind}{i}.npy"
        numpy.save(path, value)
        lines.append(f"{name}\t{path}\n")
    (case / f"{kind}.txt").write_text("".join(lines))


def node_case(folder, case):
    import numpy
    import onnx
    model = onnx.load(folder / "model.onnx")
    data = folder / "test_data_set_0"
    inputs, kept = [], []
    for i, value in enumerate(model.graph.input):
        tensor, content = read(data / f"input_{i}.pb", value.type.tensor_type.elem_type)
        integers = content.dtype in (numpy.int32, numpy.int64) and "gather" not in folder.name
        if i > 0 and (integers or folder.name in ARGUMENTS):
            tensor.name = value.name
            model.graph.initializer.append(tensor)
        else:
            kept.append(value)
            inputs.append((value.name, content))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    outputs = [(value.name, read(data / f"output_{i}.pb", value.type.tensor_type.elem_type)[1])
               for i, value in enumerate(model.graph.output)]
    onnx.save(model, case / "model.onnx")
    return case / "model.onnx", inputs, outputs


def light_case(path):
    import numpy
    import onnx
    model = onnx.load(path)
    weights = {i.name for i in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        if value.name in weights:
            continue
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        count = int(numpy.prod(shape))
        inputs.append((value.name, (numpy.arange(count) / count).astype(numpy.float32).reshape(shape)))
    output = model.graph.output[0]
    expected = read(path.with_name(path.stem + "_output_0.pb"), 1)[1]
    return path, inputs, [(output.name, expected)]


def golden_case(path):
    """A model of tests/data, run by onnxruntime."""
    import numpy
    import onnxruntime
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = numpy.random.default_rng(1)
    inputs = [(i.name, random.standard_normal([e if isinstance(e, int) else 2 for e in i.shape]).astype(numpy.float32))
              for i in session.get_inputs()]
    names = [o.name for o in session.get_outputs()]
    return path, inputs, list(zip(names, session.run(names, dict(inputs))))


def prepare(work, models):
    sources = [("mlp", lambda case: golden_case(pathlib.Path("tests/data/onnx/mlp.onnx").absolute()))]
    if models:
        for folder in sorted((models / "node").iterdir()):
            sources.append((folder.name, lambda case, folder=folder: node_case(folder, case)))
        for path in sorted((models / "light").glob("*.onnx")):
            sources.append((path.stem, lambda case, path=path: light_case(path)))
    with open(work / "list.txt", "w", encoding="utf-8") as listing:
        for name, make in sources:
            case = work / "cases" / name
            case.mkdir(parents=True, exist_ok=True)
            (case / "model.fb").unlink(missing_ok=True)
            path, inputs, outputs = make(case)
            write(case, "inputs", inputs)
            write(case, "outputs", outputs)
            listing.write(f"{path} {case / 'model.fb'}\n")


def table(work):
    imported = {}
    for line, result in zip(open(work / "list.txt", encoding="utf-8"), open(work / "imported.txt", encoding="utf-8")):
        imported[pathlib.Path(line.split()[1]).parent.name] = result.strip()
    ran = {}
    for line in open(work / "results.txt", encoding="utf-8"):
        folder, result = line.rstrip().split(" ", 1)
        ran[pathlib.Path(folder).name] = result
    wrong = equal = 0
    print("| model | largest relative error |\n|---|---|")
    for name, result in imported.items():
        if not result.startswith("ok"):
            print(f"| {name} | not imported: {result.split('(/')[0]} |")
            continue
        error = ran.get(name, "failed: not run")
        good = not error.startswith("failed") and float(error) <= LIMIT
        equal += good
        wrong += not good and name not in UNSTABLE
        print(f"| {name} | {error} |")
    print(f"\n{len(imported)} models, {equal} equal in DL4J")
    sys.exit(1 if wrong else 0)


if sys.argv[1] == "prepare":
    prepare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None)
else:
    table(pathlib.Path(sys.argv[2]))
