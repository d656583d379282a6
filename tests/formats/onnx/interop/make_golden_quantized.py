#!/usr/bin/env python3
"""Write a small convolutional network as onnxruntime's quantizers change it, with onnxruntime's results: run_quantized_*.

    pip install numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 safetensors==0.8.0
    python3 tests/formats/onnx/interop/make_golden_quantized.py [FOLDER]    FOLDER: in place of ../data

qdq: QuantizeLinear and DequantizeLinear, a scale for each channel. qoperator: QLinearConv and others. dynamic:
activations are quantized when the model runs. onnxruntime runs them as they are, without fusing nodes, because its fused
kernels round at other places.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from safetensors.numpy import save_file

RANDOM = np.random.default_rng(43)
IMAGE = (1, 2, 8, 8)


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def network(opset):
    weights = {"c1.w": real(4, 2, 3, 3) / 3, "c1.b": real(4) / 3, "c2.w": real(6, 4, 3, 3) / 6, "c2.b": real(6) / 3,
               "fc.w": real(6, 5) / 2, "fc.b": real(5) / 3, "out.w": real(5, 3) / 2}
    nodes = [
        helper.make_node("Conv", ["x", "c1.w", "c1.b"], ["h1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h1"], ["h2"]),
        helper.make_node("MaxPool", ["h2"], ["h3"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["h3", "c2.w", "c2.b"], ["h4"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h4"], ["h5"]),
        helper.make_node("GlobalAveragePool", ["h5"], ["h6"]),
        helper.make_node("Flatten", ["h6"], ["h7"]),
        helper.make_node("Gemm", ["h7", "fc.w", "fc.b"], ["h8"]),
        helper.make_node("Relu", ["h8"], ["h9"]),
        helper.make_node("MatMul", ["h9", "out.w"], ["h10"]),
        helper.make_node("Softmax", ["h10"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3))],
                              [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


class Images(CalibrationDataReader):
    def __init__(self):
        self.left = [{"x": real(*IMAGE)} for _ in range(8)]

    def get_next(self):
        return self.left.pop() if self.left else None


def main(to):
    with tempfile.TemporaryDirectory() as folder:
        floats = f"{folder}/floats.onnx"
        onnx.save(network(17), floats)
        made = {}
        for name, how in (("qdq", QuantFormat.QDQ), ("qoperator", QuantFormat.QOperator)):
            made[name] = f"{folder}/{name}.onnx"
            quantize_static(floats, made[name], Images(), quant_format=how, per_channel=True, weight_type=QuantType.QInt8)
        made["dynamic"] = f"{folder}/dynamic.onnx"
        quantize_dynamic(floats, made["dynamic"], weight_type=QuantType.QUInt8)
        for name, path in made.items():
            model = onnx.load(path)
            for known in (model.graph.value_info, model.metadata_props):
                del known[:]
            content = model.SerializeToString(deterministic=True)
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            inputs = {"x": real(*IMAGE)}
            (result,) = session.run(None, inputs)
            (to / f"run_quantized_{name}.onnx").write_bytes(content)
            save_file({"in.x": inputs["x"], "out.y": result}, to / f"run_quantized_{name}.safetensors")


main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data"))
