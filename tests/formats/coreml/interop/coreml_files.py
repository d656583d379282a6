"""Core ML models that coremltools writes.

    coreml_files.py make FOLDER     writes the golden files of tests/formats/coreml/data (coremltools 9.0)
    coreml_files.py check STELE     compares what stele reads from models with the weights
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.models import datatypes
from coremltools.models.neural_network import NeuralNetworkBuilder

WEIGHT = ((np.arange(64 * 32) * 7 % 31).reshape(64, 32) / 8 - 1).astype(np.float32)
BIAS = np.arange(64, dtype=np.float32)
KERNEL = (np.arange(8 * 4 * 3 * 3).reshape(8, 4, 3, 3) % 17 / 4).astype(np.float32)


def program(target, precision=ct.precision.FLOAT32):
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 32))], opset_version=target)
    def made(x):
        weight = mb.const(val=WEIGHT, name="fc_weight")
        x = mb.maximum(x=x, y=mb.const(val=np.array([1.5], np.float32), name="floor"))
        y = mb.linear(x=x, weight=weight, bias=mb.const(val=BIAS, name="fc_bias"), name="fc")
        y = mb.reshape(x=y, shape=[1, 4, 4, 4], name="image")
        return mb.conv(x=y, weight=mb.const(val=KERNEL, name="conv_weight"), pad_type="same", name="conv")

    return ct.convert(made, convert_to="mlprogram", compute_precision=precision, minimum_deployment_target=target)


def linear(model, **options):
    config = cto.OpLinearQuantizerConfig(weight_threshold=0, **options)
    return cto.linear_quantize_weights(model, cto.OptimizationConfig(config))


def palettized(model, bits):
    config = cto.OpPalettizerConfig(mode="uniform", nbits=bits, weight_threshold=0)
    return cto.palettize_weights(model, cto.OptimizationConfig(config))


def pruned(model):
    config = cto.OpMagnitudePrunerConfig(target_sparsity=0.75, weight_threshold=0)
    return cto.prune_weights(model, cto.OptimizationConfig(config))


def models():
    old, new = program(ct.target.iOS16), program(ct.target.iOS18)
    return {
        "net": new,
        "f16": program(ct.target.iOS16, ct.precision.FLOAT16),
        "affine": linear(old, mode="linear"),
        "shift": linear(new, mode="linear"),
        "int4": linear(new, mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=16),
        "lut": palettized(old, 4),
        "lut3": palettized(new, 3),
        "sparse": pruned(new),
    }


def network():
    """A neural network of the old kind."""
    builder = NeuralNetworkBuilder([("x", datatypes.Array(32))], [("y", datatypes.Array(64))])
    builder.add_inner_product("fc", WEIGHT, BIAS, 32, 64, True, "x", "h")
    builder.add_batchnorm("norm", 64, BIAS, BIAS + 1, BIAS + 2, BIAS + 3, input_name="h", output_name="y")
    return ct.models.MLModel(builder.spec, skip_model_load=True)


def save(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models().items():
        shutil.rmtree(folder / f"{name}.mlpackage", ignore_errors=True)
        model.save(str(folder / f"{name}.mlpackage"))
    network().save(str(folder / "network.mlmodel"))
    from coremltools.models.neural_network import quantization_utils
    quantization_utils.quantize_weights(network(), 16).save(str(folder / "network16.mlmodel"))


def expected(model):
    """Return the numbers of the compressed weights, as coremltools decompresses them."""
    plain = cto.decompress_weights(model)
    found = {}
    reader = None
    for function in plain.get_spec().mlProgram.functions.values():
        for block in function.block_specializations.values():
            for op in block.operations:
                if op.type != "const":
                    continue
                value = op.attributes["val"]
                if value.WhichOneof("value") == "blobFileValue":
                    from coremltools.libmilstoragepython import _BlobStorageReader

                    reader = reader or _BlobStorageReader(plain.weights_dir + "/weight.bin")
                    shape = [d.constant.size for d in value.type.tensorType.dimensions]
                    data = np.array(reader.read_float_data(value.blobFileValue.offset), np.float32)
                    found[op.outputs[0].name] = data.reshape(shape)
    return found


def safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "U8": np.uint8, "I8": np.int8, "BOOL": np.bool_}
    found = {}
    for k, v in header.items():
        if v["dtype"] in types:
            numbers = np.frombuffer(data, types[v["dtype"]], int(np.prod(v["shape"])), 8 + size + v["data_offsets"][0])
            found[k] = numbers.reshape(v["shape"])
    return found


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        save(folder)

        def read(path):
            out = folder / "out.safetensors"
            subprocess.run([stele, "convert", path, out, "--quiet", "--allow-loss"], check=True)
            return safetensors(out)

        net = read(folder / "net.mlpackage")
        np.testing.assert_array_equal(net["fc_weight"], WEIGHT)
        np.testing.assert_array_equal(net["conv_weight"], KERNEL)
        np.testing.assert_array_equal(net["fc_bias"], BIAS)
        assert read(folder / "net.mlpackage/Data/com.apple.CoreML/model.mlmodel").keys() == net.keys()
        blobs = read(folder / "net.mlpackage/Data/com.apple.CoreML/weights/weight.bin")
        assert np.array_equal(blobs["0"], WEIGHT.reshape(-1)), blobs.keys()
        print("net: equal weights,", len(net), "constants,", len(blobs), "blobs")
        f16 = read(folder / "f16.mlpackage")
        weights = [v for k, v in f16.items() if k.startswith("fc_weight")]
        np.testing.assert_array_equal(weights[0], WEIGHT.astype(np.float16))
        print("f16: equal weights")
        for name in ("affine", "shift", "int4"):
            model = ct.models.MLModel(str(folder / f"{name}.mlpackage"), skip_model_load=True)
            found = read(folder / f"{name}.mlpackage")
            for key, values in expected(model).items():
                plain = key.removesuffix("_quantized").removesuffix("_to_fp32")
                ours = found.get(plain, found.get(key))
                np.testing.assert_allclose(ours, values, rtol=1e-6, atol=0)
                print(f"{name}: {key}: largest difference", float(np.abs(ours - values).max()))
        lut = read(folder / "lut.mlpackage")
        indices = lut["fc_weight_palettized.indices"]
        indices = np.stack([indices & 15, indices >> 4], 1).reshape(64, 32)
        model = ct.models.MLModel(str(folder / "lut.mlpackage"), skip_model_load=True)
        np.testing.assert_array_equal(lut["fc_weight_palettized.lut"][indices], expected(model)["fc_weight_palettized"])
        sparse = read(folder / "sparse.mlpackage")
        model = ct.models.MLModel(str(folder / "sparse.mlpackage"), skip_model_load=True)
        dense = expected(model)["fc_weight_sparsified"]
        np.testing.assert_array_equal(sparse["fc_weight_sparsified.nonzero_data"], dense[dense != 0])
        print("lut, sparse: equal parts;", "lut3:", sorted(read(folder / "lut3.mlpackage")))
        old = read(folder / "network.mlmodel")
        np.testing.assert_array_equal(old["fc.weights"].reshape(64, 32), WEIGHT)
        np.testing.assert_array_equal(old["norm.variance"], BIAS + 3)
        half = read(folder / "network16.mlmodel")
        np.testing.assert_array_equal(half["fc.weights"], WEIGHT.reshape(-1).astype(np.float16))
        print("neural network: equal weights")


if __name__ == "__main__":
    save(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
