#!/usr/bin/env python3
"""Check ONNX files of the program interop_onnx with the onnx package.

    python3 tests/interop/check_onnx.py PROGRAM GOLDEN WORK [MODEL...]

GOLDEN is tests/data/onnx, WORK an empty folder, MODEL other models to copy. For each model: the copy has the same tensors;
the model with its own tensors saved into it is equal, and the checker accepts it. The golden network computes with
changed weights what NumPy computes.
"""

import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


def tensors(model):
    return {t.name: (t.data_type, numpy_helper.to_array(t)) for t in model.graph.initializer}


def same(a, b):
    return a.keys() == b.keys() and all(a[n][0] == b[n][0] and a[n][1].tobytes() == b[n][1].tobytes()
                                        and a[n][1].shape == b[n][1].shape for n in a)


def normal(model):
    """The model with its initializers in raw_data, the way stele writes them."""
    for tensor in model.graph.initializer:
        raw = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        raw.doc_string = tensor.doc_string
        if not tensor.HasField("doc_string"):
            raw.ClearField("doc_string")
        tensor.CopyFrom(raw)
    return model


def main():
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
    return 1 if wrong or not good else 0


if __name__ == "__main__":
    sys.exit(main())
