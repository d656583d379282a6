"""Products of models of Keras: layers, nesting, policies, optimizers and kinds of files, by Keras (its backend of NumPy, which
compiles nothing)."""

import builtins
import datetime
import importlib.util
import io
import json
import logging
import os
import re
import sys
import time
import warnings
import zipfile
from pathlib import Path
from unittest import mock

os.environ |= {"KERAS_BACKEND": "numpy", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}

import h5py  # noqa: E402
import keras  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, optimizers  # noqa: E402
from keras.src.legacy.saving import legacy_h5_format  # noqa: E402
from keras.src.saving import saving_lib, serialization_lib  # noqa: E402

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[2] / "products"))
import comparison  # noqa: E402

spec = importlib.util.spec_from_file_location("hdf5_products", HERE.parent / "products.py")
hdf5 = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hdf5)

warnings.simplefilter("ignore")
logging.getLogger("absl").setLevel(logging.ERROR)
PACKAGES = ["keras", "h5py", "numpy", "ml_dtypes"]
PAGES = ["formats/keras"]
COMPARED = ["metadata"]
FILES = 14
FILE_BYTES = 14000

# A layer: its class, its arguments, and the shape of its input; a list: of integers.
LAYERS = {
    "Dense": ("Dense", {"units": 3}, (5,)),
    "Dense without bias": ("Dense", {"units": 3, "use_bias": False}, (5,)),
    "Dense of 1": ("Dense", {"units": 1}, (1,)),
    "Dense of 9 axes": ("Dense", {"units": 3}, (1, 2, 1, 1, 2, 1, 1, 2)),
    "Dense with LoRA": ("Dense", {"units": 3}, (5,)),
    "EinsumDense": ("EinsumDense", {"equation": "abc,cde->abde", "output_shape": (None, 2, 3), "bias_axes": "de"}, (7, 5)),
    "EinsumDense with LoRA": ("EinsumDense", {"equation": "abc,cd->abd", "output_shape": (None, 3)}, (7, 5)),
    "Embedding": ("Embedding", {"input_dim": 7, "output_dim": 3}, [5]),
    "Embedding with LoRA": ("Embedding", {"input_dim": 7, "output_dim": 3}, [5]),
    "ReversibleEmbedding": ("ReversibleEmbedding", {"input_dim": 7, "output_dim": 3, "tie_weights": False}, [5]),
    "ReversibleEmbedding tied": ("ReversibleEmbedding", {"input_dim": 7, "output_dim": 3, "tie_weights": True}, [5]),
    "Conv1D": ("Conv1D", {"filters": 3, "kernel_size": 2, "dilation_rate": 2}, (7, 4)),
    "Conv2D": ("Conv2D", {"filters": 3, "kernel_size": (2, 3), "strides": 2}, (5, 5, 2)),
    "Conv2D in groups": ("Conv2D", {"filters": 4, "kernel_size": 3, "groups": 2, "use_bias": False}, (5, 5, 2)),
    "Conv2D with LoRA": ("Conv2D", {"filters": 3, "kernel_size": 2}, (5, 5, 2)),
    "Conv3D": ("Conv3D", {"filters": 2, "kernel_size": 2}, (3, 3, 3, 1)),
    "Conv1DTranspose": ("Conv1DTranspose", {"filters": 3, "kernel_size": 2}, (4, 2)),
    "Conv2DTranspose": ("Conv2DTranspose", {"filters": 3, "kernel_size": (2, 1)}, (3, 3, 2)),
    "Conv3DTranspose": ("Conv3DTranspose", {"filters": 2, "kernel_size": 1}, (2, 2, 2, 3)),
    "DepthwiseConv1D": ("DepthwiseConv1D", {"kernel_size": 2, "depth_multiplier": 3}, (5, 2)),
    "DepthwiseConv2D": ("DepthwiseConv2D", {"kernel_size": 2, "depth_multiplier": 2}, (4, 4, 3)),
    "SeparableConv1D": ("SeparableConv1D", {"filters": 3, "kernel_size": 2}, (5, 2)),
    "SeparableConv2D": ("SeparableConv2D", {"filters": 3, "kernel_size": 2, "depth_multiplier": 2}, (5, 5, 2)),
    "BatchNormalization": ("BatchNormalization", {}, (5, 3)),
    "BatchNormalization without scale": ("BatchNormalization", {"scale": False, "center": False}, (3,)),
    "LayerNormalization": ("LayerNormalization", {"axis": [1, 2]}, (5, 3)),
    "RMSNormalization": ("RMSNormalization", {}, (3,)),
    "GroupNormalization": ("GroupNormalization", {"groups": 2}, (3, 4)),
    "UnitNormalization": ("UnitNormalization", {}, (3,)),
    "Normalization": ("Normalization", {"axis": -1}, (3,)),
    "Discretization": ("Discretization", {"bin_boundaries": [0.0, 1.0]}, (3,)),
    "PReLU": ("PReLU", {"shared_axes": [1]}, (4, 3)),
    "Dropout": ("Dropout", {"rate": 0.5, "seed": 3}, (3,)),
    "GaussianNoise": ("GaussianNoise", {"stddev": 0.5, "seed": 3}, (3,)),
    "RandomRotation": ("RandomRotation", {"factor": 0.5, "seed": 3}, (4, 4, 3)),
    "SimpleRNN": ("SimpleRNN", {"units": 3}, (4, 2)),
    "LSTM": ("LSTM", {"units": 3, "dropout": 0.1, "seed": 3, "recurrent_initializer": "glorot_uniform"}, (4, 2)),
    "LSTM stateful": ("LSTM", {"units": 3, "stateful": True}, (4, 2)),
    "GRU": ("GRU", {"units": 3}, (4, 2)),
    "GRU before": ("GRU", {"units": 3, "reset_after": False, "use_bias": False}, (4, 2)),
    "ConvLSTM1D": ("ConvLSTM1D", {"filters": 2, "kernel_size": 2}, (3, 4, 2)),
    "ConvLSTM2D": ("ConvLSTM2D", {"filters": 2, "kernel_size": 2}, (3, 4, 4, 1)),
    "RNN of cells": ("RNN", {"cell": [("LSTMCell", {"units": 2}), ("GRUCell", {"units": 3}), ("SimpleRNNCell", {"units": 1})]}, (4, 2)),
    "Bidirectional": ("Bidirectional", {"layer": ("LSTM", {"units": 2})}, (4, 2)),
    "Bidirectional of two": ("Bidirectional", {"layer": ("GRU", {"units": 2}), "backward_layer": ("LSTM", {"units": 2, "go_backwards": True})}, (4, 2)),
    "TimeDistributed": ("TimeDistributed", {"layer": ("Conv2D", {"filters": 2, "kernel_size": 2})}, (3, 4, 4, 1)),
    "SpectralNormalization": ("SpectralNormalization", {"layer": ("Dense", {"units": 3})}, (5,)),
    "MultiHeadAttention": ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3, "value_dim": 2, "seed": 3}, (4, 6)),
    "GroupQueryAttention": ("GroupQueryAttention", {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}, (4, 6)),
    "Attention": ("Attention", {"use_scale": True, "score_mode": "concat"}, (4, 6)),
    "AdditiveAttention": ("AdditiveAttention", {}, (4, 6)),
    "variables of each dtype": ("products>Variables", {}, (3,)),
    "own names": ("products>Names", {}, (3,)),
}
QUANTIZED = ["int8_from_float32", "int8_from_bfloat16", "int4_from_float32", "int4/2_from_float32", "float8_from_float32"]
OPTIMIZERS = {
    "none": None, "SGD": ("SGD", {}), "momentum": ("SGD", {"momentum": 0.5, "nesterov": True}), "Adam": ("Adam", {}),
    "Adam amsgrad, clipped": ("Adam", {"amsgrad": True, "clipnorm": 1.0}), "AdamW": ("AdamW", {"weight_decay": 0.01}),
    "EMA": ("Adam", {"use_ema": True, "ema_overwrite_frequency": 5}), "accumulated": ("SGD", {"gradient_accumulation_steps": 3}),
    "schedule": ("SGD", {"learning_rate": "CosineDecay"}), "Lion": ("Lion", {}), "Nadam": ("Nadam", {}), "Adamax": ("Adamax", {}),
    "Adagrad": ("Adagrad", {}), "Adadelta": ("Adadelta", {}), "RMSprop": ("RMSprop", {"momentum": 0.5, "centered": True}),
    "Ftrl": ("Ftrl", {}), "Lamb": ("Lamb", {}), "Adafactor": ("Adafactor", {}), "Muon": ("Muon", {}),
    "ScheduleFreeAdamW": ("ScheduleFreeAdamW", {}), "loss scale": ("LossScaleOptimizer", {"inner_optimizer": "Adam"}),
}
ATTENTION = ("MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention")
NOT_HERE = {"string", "float8_e4m3fn", "float8_e5m2"}  # dtypes that the backend lacks
SOME_LAYERS = ("Dense", "Embedding", "LSTM")
# How many of the values of a dimension every layer is combined with: the others treat all layers alike.
FOR_ALL_LAYERS = {"kind of file": 3, "nesting": 3, "policy": 3, "optimizer": 3, "layer name": 2}
DIMENSIONS = {
    "layer": list(LAYERS),
    "kind of file": [".keras", ".weights.h5", ".h5", ".weights.json", "folder", ".keras deflated"],
    "nesting": ["Sequential", "functional", "nested", "shared", "twelve", "subclass", "dictionary", "nested lists"],
    "policy": ["float32", "bfloat16", "mixed_float16", "float16", "float64", "mixed_bfloat16", *QUANTIZED],
    "optimizer": list(OPTIMIZERS),
    "trained": ["built", "no", "steps"],
    "layer name": ["layer", "a.b", "a\\b", "日本語", "0", " x\n", "..", "a@b", "x" * 300],
}
SUBCLASS = DIMENSIONS["nesting"][5:]


def possible(case):
    layer, kind = case["layer"], case["kind of file"]
    quantized = case["policy"] in QUANTIZED
    if case["policy"].startswith("float8") and layer not in ("Dense", "Dense without bias", "Dense of 1", "EinsumDense"):
        return False
    if case["policy"].startswith("int4") and "with LoRA" in layer:
        return False
    if quantized and LAYERS[layer][0] not in ("Dense", "EinsumDense", "Embedding", "ReversibleEmbedding"):
        return False
    if kind == "folder" and any(case[name] != values[0] for name, values in DIMENSIONS.items() if name != "kind of file"):
        return False  # it is refused
    if kind == ".h5" and case["nesting"] in SUBCLASS:
        return False  # Keras writes functional models only
    if kind == ".h5" and case["optimizer"] in ("Adafactor", "Lamb"):
        return False  # Keras gives two variables one name, and does not find the class again
    if case["optimizer"] == "none" and case["trained"] != "built":
        return False
    if layer not in SOME_LAYERS and any(case[name] not in DIMENSIONS[name][:count] for name, count in FOR_ALL_LAYERS.items()
                                        if name != "policy" or not quantized):
        return False
    if case["trained"] == "steps" and (layer != "Dense" or case["nesting"] != "Sequential"):
        return False  # the values are not those of the steps: new shapes are only compiled again
    return True


def hides(case):
    return case["kind of file"] == "folder"


class Recorded:
    """Records what Keras reads of files: {path of a dataset: array}."""

    def __enter__(self):
        self.arrays = {}
        item, dataset = saving_lib.H5IOStore.__getitem__, legacy_h5_format.safe_get_h5_dataset

        def read_item(store, key):
            value = item(store, key)
            if store.mode == "r":
                self.arrays[f"{store._h5_entry_group.name}/{key}"] = value
            return value

        def read_dataset(group, name):
            found = dataset(group, name)
            self.arrays[found.name] = np.asarray(found)
            return found
        self.patches = [mock.patch.object(saving_lib.H5IOStore, "__getitem__", read_item),
                        mock.patch.object(legacy_h5_format, "safe_get_h5_dataset", read_dataset)]
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *_):
        for patch in self.patches:
            patch.stop()


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5)


def fixed():
    """Patch what differs between two runs: dates, and the addresses that Keras takes for the identity of an object."""
    seen = {}  # address -> number, and the object, so that it keeps its address

    def number(item):
        return seen.setdefault(builtins.id(item), (len(seen), item))[0]
    return [mock.patch.object(saving_lib.datetime, "datetime", Now), mock.patch.object(zipfile.time, "localtime", lambda _=0: time.gmtime(1767323045)),
            mock.patch.object(serialization_lib, "id", number, create=True)]


def typed(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def zeros(shape, dtype):
    return np.zeros(shape, typed(dtype))


@keras.saving.register_keras_serializable("products")
class Variables(layers.Layer):
    """A layer with a variable of each dtype that Keras has."""

    def build(self, shape):
        for i, dtype in enumerate(sorted(set(keras.src.backend.common.dtypes.ALLOWED_DTYPES) - NOT_HERE)):
            self.add_weight(name=dtype, shape=(2, 3) if i % 4 else (), dtype=dtype, initializer=zeros, trainable=False)
        self.add_weight(name="empty", shape=(0, 2), trainable=False)

    def call(self, x):
        return x


@keras.saving.register_keras_serializable("products")
class Names(layers.Layer):
    """A layer that names its variables in a file, as a user's layer may."""

    NAMES = ("kernel", "a.b", "日本語", "10", "9", "inner/x", " ")

    def build(self, shape):
        self.all = [self.add_weight(name=f"w{i}", shape=(i,)) for i in range(len(self.NAMES))]

    def save_own_variables(self, store):
        for name, variable in zip(self.NAMES, self.all):
            store[name] = variable.value

    def load_own_variables(self, store):
        for name, variable in zip(self.NAMES, self.all):
            variable.assign(store[name])

    def call(self, x):
        return x


def made(kind, arguments, **more):
    """Return a layer, and those inside, given as pairs of a name and arguments."""
    def inner(value):
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            return [inner(one) for one in value]
        if isinstance(value, tuple) and value and isinstance(value[0], str) and isinstance(value[-1], dict):
            return made(*value, **({"dtype": more["dtype"]} if "dtype" in more else {}))
        return value
    cls = keras.saving.get_registered_object(kind) or getattr(layers, kind)
    return cls(**{key: inner(value) for key, value in arguments.items()}, **more)


def new_layer(case, suffix=""):
    kind, arguments, _ = LAYERS[case["layer"]]
    return made(kind, arguments, dtype=case["policy"], name=case["layer name"] + suffix)


def applied(layer, x):
    if type(layer).__name__ in ("Attention", "AdditiveAttention"):
        return layer([x, x])
    return layer(x, x) if type(layer).__name__ in ("MultiHeadAttention", "GroupedQueryAttention") else layer(x)


def new_input(case):
    shape = LAYERS[case["layer"]][2]
    batch = 2 if "stateful" in case["layer"] else None
    return keras.Input(batch_shape=(batch, *shape), dtype="int32" if isinstance(shape, list) else "float32")


@keras.saving.register_keras_serializable("products")
class Net(keras.Model):
    """A model whose layers are attributes: one, or in containers."""

    def __init__(self, case, **options):
        super().__init__(**options)
        self.case = dict(case)
        new = [new_layer(case, str(i) if i else "") for i in range(3)]
        self.plain = new
        match case["nesting"]:
            case "subclass":
                setattr(self, case["layer name"] + "/x", new[0])
                setattr(self, case["layer name"], new[1])
                self.again = new[1]
                self._private = new[2]
                self.own = self.add_weight(name="own", shape=(2, 3))
            case "dictionary":
                self.blocks = {case["layer name"]: new[0], "b": new[1], "a": new[2]}
            case "nested lists":
                self.blocks = [[new[0]], {"x": [new[1], {"y": new[2]}]}, []]

    def call(self, x):
        return [applied(layer, x) for layer in self.plain]

    compute_output_spec = call

    def get_config(self):
        return {"case": self.case, "name": self.name}


def new_model(case):
    """Return a model of these dimensions."""
    keras.utils.clear_session(free_memory=False)
    nesting = case["nesting"]
    if nesting in SUBCLASS:
        model = Net(case)
        model(new_input(case))
    elif nesting == "Sequential" and LAYERS[case["layer"]][0] not in ATTENTION:
        model = keras.Sequential([new_input(case), new_layer(case)])
    else:
        x = new_input(case)
        y = [applied(new_layer(case, str(i) if i else ""), x) for i in range(12 if nesting == "twelve" else 1)]
        if nesting == "shared":
            other, layer = new_input(case), new_layer(case)
            model = keras.Model([x, other], [applied(layer, x), applied(layer, other)])
        else:
            model = keras.Model(x, y)
        for _ in range(2 if nesting == "nested" else 0):
            x = new_input(case)
            model = keras.Model(x, model(x))
    if "with LoRA" in case["layer"]:
        for layer in model._flatten_layers():
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(2)
    if how := OPTIMIZERS[case["optimizer"]]:
        model.compile(new_optimizer(*how), keras.losses.MeanSquaredError())
        if case["trained"] != "no":
            model.optimizer.build(model.trainable_variables)
    return model


def new_optimizer(kind, arguments):
    arguments = dict(arguments)
    if "inner_optimizer" in arguments:
        arguments["inner_optimizer"] = optimizers.get(arguments["inner_optimizer"])
    if "learning_rate" in arguments:
        arguments["learning_rate"] = optimizers.schedules.CosineDecay(0.1, 10)
    return getattr(optimizers, kind)(**arguments)


def fill(case, model):
    """Give the variables random bits: NaN with payloads, infinities and denormals, too."""
    for i, variable in enumerate(model.variables + (model.optimizer.variables if case["optimizer"] != "none" else [])):
        dtype = typed(variable.dtype)
        random = np.random.default_rng(i)
        bits = random.integers(0, 256, int(np.prod(variable.shape)) * dtype.itemsize, np.uint8)
        variable.assign((bits & 1 if dtype == bool else bits).view(dtype).reshape(variable.shape))


def prepared(case):
    model = new_model(case)
    if case["trained"] == "steps":
        for _ in range(2):
            model.optimizer.apply([np.ones(v.shape, v.dtype) for v in model.trainable_variables])
    fill(case, model)
    return model


def write(case, path):
    CASES[path.name] = case
    model, kind = prepared(case), case["kind of file"]
    path = path.with_name(path.name + ("" if kind == "folder" else kind.split()[0]))
    patches = fixed()
    for patch in patches:
        patch.start()
    match kind:
        case ".keras" | ".h5":
            model.save(path)
        case ".keras deflated":
            model.save(path)
            deflate(path)
        case ".weights.h5":
            model.save_weights(path)
        case ".weights.json":
            model.save_weights(path, max_shard_size=4500 / 1024**3)
        case "folder":
            keras.saving.save_model(model, path, zipped=False)
    for patch in patches:
        patch.stop()
    return path, expected(case, path)


def deflate(path):
    """Compress the members of a file, as programs that pack it again do."""
    with zipfile.ZipFile(path) as file:
        members = [(info, file.read(info)) for info in file.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for info, data in members:
            file.writestr(zipfile.ZipInfo(info.filename, info.date_time), data, zipfile.ZIP_DEFLATED)


def neighbours(path):
    """Return the files of an index."""
    return sorted(path.parent.glob(path.name.split(".")[0] + "_*.weights.h5")) if path.suffix == ".json" else []


CASES = {}


def loads(case):
    """Return whether Keras loads its own file: a `.h5` says neither that elements are bfloat16, nor which axes are normalized."""
    other = "bfloat16" in case["policy"] and "mixed" not in case["policy"] or case["layer"] in ("LayerNormalization", "variables of each dtype")
    return case["kind of file"] != ".h5" or not other


def loaded(case, path):
    """Return the arrays that Keras reads while it loads a model or its weights: {path of a dataset: array}."""
    with Recorded() as recorded:
        if not loads(case):
            with h5py.File(path) as file:
                groups = [file["model_weights"][name] for name in legacy_h5_format.load_attributes_from_hdf5_group(file["model_weights"], "layer_names")]
                for group in [*groups, *(file[name] for name in ["optimizer_weights"] if name in file)]:
                    for name in legacy_h5_format.load_attributes_from_hdf5_group(group, "weight_names"):
                        if name in group:  # what stele does not read is lost in what it writes
                            legacy_h5_format.safe_get_h5_dataset(group, name)
        elif ".weights." in path.name:
            new_model(case).load_weights(path)
        else:
            keras.utils.clear_session(free_memory=False)
            keras.saving.load_model(path)
        if case["kind of file"] != ".h5":
            read_rest(path, recorded.arrays)
    return recorded.arrays


def read_rest(path, arrays):
    """Let Keras read the variables of layers and optimizers that are not built yet when it loads a model: it skips them."""
    for one in hdf5_files(path):
        found = []
        with h5py.File(one) as file:
            file.visititems(lambda name, item: found.append(f"/{name}") if isinstance(item, h5py.Dataset) else None)
        left = [name for name in found if name not in arrays]
        if left:
            store = saving_lib.H5IOStore(one, mode="r")
            for name in left:
                group, _, key = name.strip("/").rpartition("vars/")
                store.get(group.strip("/"))[key]
            store.close()


def hdf5_files(path):
    """Yield the HDF5 files of a model."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as file:
            yield io.BytesIO(file.read("model.weights.h5"))
    else:
        yield from neighbours(path) or [path]


def attributes(path):
    found = {}
    for one in hdf5_files(path):
        with h5py.File(one) as file:
            found |= hdf5.all_attributes(file)
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as file:
            found |= {name: file.read(name).decode() for name in ("config.json", "metadata.json")}
    return found


def named(arrays):
    return {".".join(map(hdf5.escaped, name.strip("/").split("/"))): array for name, array in arrays.items()}


def expected(case, path):
    if path.is_dir():
        return comparison.Expected(refused="unsupported")
    arrays = named(loaded(case, path))
    unread = [name for name, array in arrays.items() if array.dtype.kind == "V" and array.dtype.name not in comparison.NAMES]
    return comparison.Expected({name: array for name, array in arrays.items() if name not in unread}, unread, attributes(path))


def target(path):
    return path.parent / "back" / path.name.replace(".weights.json", ".weights.h5")


def read(path):
    return named(loaded(CASES[path.name.split(".")[0]], path))


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
