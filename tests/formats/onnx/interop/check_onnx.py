#!/usr/bin/env python3
"""Check ONNX files of the program interop_onnx with the onnx package.

    python3 tests/formats/onnx/interop/check_onnx.py PROGRAM GOLDEN WORK [MODEL...]
    python3 tests/formats/onnx/interop/check_onnx.py --large PROGRAM WORK

GOLDEN is ../data, WORK an empty folder, MODEL other models to copy. For each model: the copy has the same tensors;
the model with its own tensors saved into it is equal, and the checker accepts it. The golden network computes with
changed weights what NumPy computes. A network that is saved with its weights in a second file runs (in onnxruntime, if
that is installed).

--large: a model of 3 GB is saved, and opened by stele and by onnx. Its files in WORK are removed.
"""

import pathlib
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def constants(model):
    """Return the tensors of Constant nodes, by the name of the output."""
    return {node.output[0]: node.attribute[0].t for node in model.graph.node
            if node.op_type == "Constant" and node.attribute[0].name == "value"}


def tensors(model):
    all_of = {t.name: t for t in model.graph.initializer} | constants(model)
    return {name: (t.data_type, numpy_helper.to_array(t)) for name, t in all_of.items()}


def same(a, b):
    return a.keys() == b.keys() and all(a[n][0] == b[n][0] and a[n][1].tobytes() == b[n][1].tobytes()
                                        and a[n][1].shape == b[n][1].shape for n in a)


def normal(model):
    """The model with its tensors in raw_data, the way stele writes them."""
    for tensor in [*model.graph.initializer, *constants(model).values()]:
        raw = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        raw.doc_string = tensor.doc_string
        if not tensor.HasField("doc_string"):
            raw.ClearField("doc_string")
        tensor.CopyFrom(raw)
    return model


def network():
    """Return a network for (x @ weight + bias) * scale[0]: tensors large and small, raw and in fields of their types."""
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((32, 48)).astype(np.float32)
    bias = rng.standard_normal(48).astype(np.float32)
    scale = rng.standard_normal(700).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["a"]), helper.make_node("Add", ["a", "bias"], ["b"]),
             helper.make_node("Gather", ["scale", "first"], ["s"]), helper.make_node("Mul", ["b", "s"], ["y"])]
    initializers = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias"),
                    helper.make_tensor("scale", TensorProto.FLOAT, scale.shape, scale),
                    helper.make_tensor("first", TensorProto.INT64, [1], [0]),
                    helper.make_tensor("unused", TensorProto.INT32, [2000], range(2000))]
    initializers[0].doc_string = "the weight"
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 48])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(path, x):
    """Return what onnxruntime computes, or onnx's reference if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return ReferenceEvaluator(str(path)).run(None, {"x": x})[0]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def external(program, work):
    """Return the number of models, in one file and in two, that a save with external data makes wrong."""
    one, two = work / "network.onnx", work / "network_in_two.onnx"
    model = network()
    onnx.save(model, one)
    onnx.save(network(), two, save_as_external_data=True, location="theirs.data")
    x = np.random.default_rng(2).standard_normal((2, 32)).astype(np.float32)
    wrong = 0
    for source in (one, two):
        saved = work / "external.onnx"
        for file in (saved, work / "external.onnx.data"):
            file.unlink(missing_ok=True)
        subprocess.run([program, "external", source, saved], check=True)
        onnx.checker.check_model(str(saved), full_check=True)
        places = {t.name: {e.key: e.value for e in t.external_data}
                  for t in onnx.load(saved, load_external_data=False).graph.initializer}
        in_file = {name for name, place in places.items() if place.get("location") == "external.onnx.data"}
        good = in_file == {"weight", "scale", "unused"} and not any(places[n] for n in places.keys() - in_file)
        loaded = onnx.load(saved)
        good = good and same(tensors(loaded), tensors(model)) and loaded.graph.initializer[0].doc_string == "the weight"
        rest = network()
        for message in (loaded, rest):
            message.graph.ClearField("initializer")
        good = good and loaded == rest and run(saved, x).tobytes() == run(one, x).tobytes()
        print("ok  " if good else "FAIL", "external", source.name)
        wrong += not good
    return wrong


def large(program, work):
    """Save a model of 3 GB and compare all of its elements."""
    saved, data = work / "large.onnx", work / "large.onnx.data"

    def step(what, act):
        start = time.monotonic()
        act()
        print(f"ok   {what}: {time.monotonic() - start:.1f} s")

    try:
        step("saved", lambda: subprocess.run([program, "large", saved], check=True))
        print("    ", saved.stat().st_size, "+", data.stat().st_size, "bytes")
        step("all elements compared by stele", lambda: subprocess.run([program, "check", saved], check=True))
        step("checked by onnx", lambda: onnx.checker.check_model(str(saved)))
        model = onnx.load(saved)
        for number, tensor in enumerate(model.graph.initializer):
            array = numpy_helper.to_array(tensor).reshape(-1, 1000)
            assert (array == np.arange(1000, dtype=np.float32) * number).all(), tensor.name
            print("ok   loaded by onnx:", tensor.name)
    finally:
        saved.unlink(missing_ok=True)
        data.unlink(missing_ok=True)
    return 0


def main():
    if sys.argv[1] == "--large":
        return large(sys.argv[2], pathlib.Path(sys.argv[3]))
    program, golden, work, *others = sys.argv[1:]
    golden, work = pathlib.Path(golden), pathlib.Path(work)
    wrong = 0
    for path in [golden / "types.onnx", golden / "mlp.onnx", golden / "external.onnx", *map(pathlib.Path, others)]:
        theirs = onnx.load(path)
        subprocess.run([program, "copy", path, work / "copy.onnx"], check=True)
        subprocess.run([program, "into", path, work / "into.onnx"], check=True)
        copied, into = onnx.load(work / "copy.onnx"), onnx.load(work / "into.onnx")
        onnx.checker.check_model(into)
        good = same(tensors(copied), tensors(theirs)) and same(tensors(into), tensors(theirs)) and into == normal(theirs)
        print("ok  " if good else "FAIL", path.name, len(theirs.graph.initializer))
        wrong += not good

    subprocess.run([program, "train", golden / "mlp.onnx", work / "trained.onnx"], check=True)
    before, after = tensors(onnx.load(golden / "mlp.onnx")), tensors(onnx.load(work / "trained.onnx"))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    w0, b0, w1 = (before[n][1] for n in ("net.0.weight", "net.0.bias", "net.2.weight"))
    expected = np.maximum(x @ (w0 + 1) + b0, 0) @ (w1 + 1) + 1
    computed = ReferenceEvaluator(str(work / "trained.onnx")).run(None, {"x": x})[0]
    good = np.allclose(computed, expected, rtol=1e-6) and (after["net.0.bias"][1] == b0).all()
    print("ok  " if good else "FAIL", "trained", float(np.abs(computed - expected).max()))
    wrong += external(program, work)
    return 1 if wrong or not good else 0


if __name__ == "__main__":
    sys.exit(main())
