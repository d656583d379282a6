"""Builds, freezes, runs and writes TensorFlow graphs: for tensorflow_models.py and its modules."""
import dataclasses
import os
import pathlib
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its sums depend on the processor
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy
import tensorflow as tf
from tensorflow.python.framework import meta_graph
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.saved_model import loader_impl

from import_cases import write


@dataclasses.dataclass
class Spec:
    """A tensor of given or random elements: an input (X) or a constant (W)."""
    shape: tuple
    dtype: str = "float32"
    low: float = -2
    high: float = 2
    value: object = None
    fed: bool = True

    def make(self, random):
        if self.value is not None:
            return numpy.asarray(self.value, self.dtype)
        kind = numpy.dtype(self.dtype).kind
        if kind == "b":
            return random.integers(0, 2, self.shape).astype(bool)
        if kind in "iu":
            return random.integers(self.low, self.high + 1, self.shape).astype(self.dtype)
        return random.uniform(self.low, self.high, self.shape).astype(self.dtype)


def X(*shape, **more):
    return Spec(shape, **more)


def W(*shape, **more):
    return Spec(shape, fed=False, **more)


def V(value, dtype="float32"):
    """Returns an input of given elements."""
    return Spec(numpy.shape(value), dtype, value=value)


def random_of(name):
    return numpy.random.default_rng(zlib.crc32(name.encode()))


def run_graph(graph_def, feeds, names):
    """Returns what TensorFlow computes, without its optimizer of graphs."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            return session.run([n if ":" in n else n + ":0" for n in names],
                               {n + ":0": v for n, v in feeds.items()})


def plain_name(tensor):
    """Returns a tensor's name as a case has it: without ":0"."""
    name = tensor if isinstance(tensor, str) else tensor.name
    return name.removesuffix(":0")


def write_case(folder, inputs, outputs):
    """Writes inputs and expected outputs by name; without outputs: a model that the import refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, "inputs", list(inputs.items()))
    if outputs:
        write(folder, "outputs", [(name, numpy.asarray(value)) for name, value in outputs.items()])


def write_frozen(folder, graph_def, feeds, names):
    """Writes a frozen graph with what it computes; returns the outputs by name."""
    folder.mkdir(parents=True, exist_ok=True)
    outputs = dict(zip(names, run_graph(graph_def, feeds, names)))
    (folder / "model.pb").write_bytes(graph_def.SerializeToString(deterministic=True))
    write_case(folder, feeds, outputs)
    return outputs


def freeze(function, specs):
    """Returns the frozen graph of a tf.function, and the names of its inputs and outputs."""
    frozen = convert_variables_to_constants_v2(function.get_concrete_function(*specs))
    return (frozen.graph.as_graph_def(), *([plain_name(t) for t in ends] for ends in (frozen.inputs, frozen.outputs)))


def signature_of(path, name="serving_default"):
    """Returns names of tensors by the keys of a signature: of inputs, of outputs."""
    model = loader_impl.parse_saved_model(str(path))
    signature = model.meta_graphs[0].signature_def[name]
    return ({k: plain_name(v.name) for k, v in sorted(signature.inputs.items())},
            {k: plain_name(v.name) for k, v in sorted(signature.outputs.items())})


def run_saved(path, arrays):
    """Runs a SavedModel's serving_default on arrays by key; returns inputs and outputs by the names of tensors."""
    inputs, outputs = signature_of(path)
    found = tf.saved_model.load(str(path)).signatures["serving_default"](
        **{k: tf.constant(v) for k, v in arrays.items()})
    return ({name: arrays[k] for k, name in inputs.items()}, {name: found[k].numpy() for k, name in outputs.items()})


def without_defaults(graph_def):
    """Removes attributes that have their default value, as SavedModels do."""
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta_graph.strip_graph_default_valued_attrs(meta)
    return meta.graph_def


def assert_close(expected, found, what):
    for a, b in zip(expected, found, strict=True):
        numpy.testing.assert_allclose(numpy.asarray(a), numpy.asarray(b), rtol=1e-4, atol=1e-5, err_msg=what)


def folder_of(text):
    return pathlib.Path(text).absolute()
