"""Products of Core ML's neural networks, by coremltools."""

import contextlib
import io
import logging
import sys
from pathlib import Path

logging.disable(logging.CRITICAL)
import coremltools as ct  # noqa: E402
import numpy as np  # noqa: E402
from coremltools.models import datatypes  # noqa: E402
from coremltools.models.neural_network import NeuralNetworkBuilder, quantization_utils  # noqa: E402

sys.path.append(str(Path(__file__).parents[3] / "products"))
import comparison  # noqa: E402

PACKAGES = ["coremltools", "numpy"]
PAGES = ["formats/coreml"]
FILES = 16
DIMENSIONS = {
    "layer": ["inner product", "convolution", "deconvolution", "convolution 3D", "batch norm", "embedding", "embedding ND",
              "scale", "bias", "simple RNN", "GRU", "LSTM", "LSTM with peepholes", "bidirectional LSTM", "constant", "constant ND",
              "batched product", "layer norm"],
    "stored": ["32", "16", "8 linear", "8 linear_symmetric", "1 linear", "3 linear", "8 linear_lut", "4 linear_lut", "7 linear_lut"],
    "network": ["neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor"],
    "biased": [True, False],
    "extents": [[4, 6], [1, 1], [7, 3], [33, 5]],
    "layer's name": ["fc", "a.b", "a/b", "日本語", "", "x" * 300],
    "layers": [1, 0, 9],
}


def possible(case):
    if case["layer"] in ("constant", "constant ND", "batch norm", "layer norm", "bias") and not case["biased"]:
        return False
    return not (case["layer's name"] == "" and case["layers"] == 0)


def hides(case):
    return case["layers"] == 0 or " " in case["stored"]


def floats(random, *shape):
    return random.integers(-40, 40, shape).astype(np.float32) / 8


def add(case, builder, name, random):
    (o, i), biased = case["extents"], case["biased"]
    put = {"input_name": "x", "output_name": "y"}
    bias = floats(random, o) if biased else None
    match case["layer"]:
        case "inner product":
            builder.add_inner_product(name, floats(random, o, i), bias, i, o, biased, **put)
        case "convolution" | "deconvolution" as kind:
            is_deconv = kind == "deconvolution"
            shape = (3, 2, i, o)
            builder.add_convolution(name, i, o, 3, 2, 1, 1, "valid", 1, floats(random, *shape), bias, biased, is_deconv, **put)
        case "convolution 3D":
            builder.add_convolution3d(name, i, o, 1, 2, 3, floats(random, o, i, 1, 2, 3), bias, biased, **put)
        case "batch norm":
            builder.add_batchnorm(name, o, *(floats(random, o) for _ in range(4)), **put)
        case "embedding":
            builder.add_embedding(name, floats(random, o, i), bias, i, o, biased, "x", "y")
        case "embedding ND":
            builder.add_embedding_nd(name, "x", "y", i, o, floats(random, o, i), bias)
        case "scale":
            builder.add_scale(name, floats(random, o), bias, biased, "x", "y", [o], [o])
        case "bias":
            builder.add_bias(name, bias, "x", "y", [o])
        case "simple RNN":
            builder.add_simple_rnn(name, floats(random, o, o), floats(random, o, i), bias, o, i, "TANH", ["x", "h"], ["y", "k"])
        case "GRU":
            biases = [floats(random, o) for _ in range(3)] if biased else None
            builder.add_gru(name, [floats(random, o, o) for _ in range(3)], [floats(random, o, i) for _ in range(3)], biases, o, i,
                            ["x", "h"], ["y", "k"])
        case "constant":
            builder.add_load_constant(name, "y", floats(random, o), [1, 1, o])
        case "constant ND":
            builder.add_load_constant_nd(name, "y", floats(random, o, i), (o, i))
        case "batched product":
            builder.add_batched_mat_mul(name, ["x"], "y", False, False, i, o, floats(random, i, o), bias)
        case "layer norm":
            builder.add_layer_normalization(name, "x", "y", [o], floats(random, o), floats(random, o))
        case _:
            def matrices():
                return [floats(random, o, o) for _ in range(4)], [floats(random, o, i) for _ in range(4)], \
                    [floats(random, o) for _ in range(4)] if biased else None
            if case["layer"] == "bidirectional LSTM":
                builder.add_bidirlstm(name, *matrices(), *matrices(), o, i, ["x", "h", "c", "hb", "cb"], ["y", "k", "l", "kb", "lb"])
            else:
                peep = [floats(random, o) for _ in range(3)] if "peepholes" in case["layer"] else None
                builder.add_unilstm(name, *matrices(), o, i, ["x", "h", "c"], ["y", "k", "l"], peep=peep)


def arrays(message, name, found):
    """Add the weights in a layer's parameters as (name, field of WeightParams)."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if hasattr(value, "__len__") else [value]:
            if field.message_type.name == "WeightParams":
                found.append((f"{name}.{field.name}", one))
            elif field.message_type.name == "LSTMWeightParams":
                arrays(one, name, found)


def write(case, path):
    path = path.with_suffix(".mlmodel")
    random = np.random.default_rng(1)
    builder = NeuralNetworkBuilder([("x", datatypes.Array(3))], [("y", datatypes.Array(3))], disable_rank5_shape_mapping=True)
    for i in range(case["layers"]):
        add(case, builder, case["layer's name"] + (str(i) if i else ""), random)
    model = ct.models.MLModel(builder.spec, skip_model_load=True)
    bits, *mode = case["stored"].split()
    if bits != "32":
        with contextlib.redirect_stdout(io.StringIO()):
            model = quantization_utils.quantize_weights(model, int(bits), *(mode or ["linear"]))
    spec = model.get_spec() if hasattr(model, "get_spec") else model
    if case["network"] != "neuralNetwork":
        layers = list(spec.neuralNetwork.layers)
        getattr(spec, case["network"]).layers.extend(layers)
    ct.utils.save_spec(spec, str(path))
    read = ct.utils.load_spec(str(path))
    layers = getattr(read, read.WhichOneof("Type")).layers
    tensors, unread, seen = {}, [], {}
    for layer in layers:
        found = []
        arrays(getattr(layer, layer.WhichOneof("layer")), layer.name, found)
        for name, weights in found:
            if not (weights.floatValue or weights.float16Value or weights.rawValue or weights.int8RawValue):
                continue
            seen[name] = seen.get(name, 0) + 1
            name += f"#{seen[name]}" if seen[name] > 1 else ""
            if weights.floatValue:
                tensors[name] = np.array(weights.floatValue, np.float32)
            elif weights.float16Value:
                tensors[name] = np.frombuffer(weights.float16Value, np.float16)
            else:
                unread.append(name)
    return path, comparison.Expected(tensors, unread)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
