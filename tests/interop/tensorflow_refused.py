"""Models that the import must refuse, for tensorflow_models.py: control flow, strings, broken files."""
import shutil

import numpy
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import tensorflow_graphs as graphs

import keras

v1, raw = tf.compat.v1, tf.raw_ops
SPEC = tf.TensorSpec((None, 3), tf.float32, "x")


def loop(x):
    return tf.while_loop(lambda i, y: tf.reduce_sum(y * y) < 100.0, lambda i, y: (i + 1, y * 2.0 + 1.0), (0, x))[1]


def branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x), lambda: x * 2.0)


def switch(x):
    return tf.switch_case(tf.shape(x)[0], [lambda: x + 1.0, lambda: x * 2.0, lambda: tf.exp(x)])


def recurrent():
    keras.utils.set_random_seed(1)
    layer = keras.layers.LSTM(4, use_cudnn=False)
    layer.build((None, None, 3))
    return frozen(layer, tf.TensorSpec((None, None, 3), tf.float32, "x"), lower=True)


def lookup(x):
    content = tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0], tf.int64, tf.float32)
    table = tf.lookup.StaticHashTable(content, 0.0)
    return x + table.lookup(tf.cast(x, tf.int64))


def frozen(function, spec=SPEC, lower=False):
    """Returns a frozen graph; lower: v2's control flow becomes that of v1."""
    concrete = tf.function(function, autograph=False).get_concrete_function(spec)
    return convert_variables_to_constants_v2(concrete, lower_control_flow=lower).graph.as_graph_def()


def old(function, control_flow_v2=False):
    """Returns a graph of TensorFlow 1."""
    (v1.enable_control_flow_v2 if control_flow_v2 else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph:
            tf.identity(function(v1.placeholder(tf.float32, (None, 3), "x")), "y")
        return graph.as_graph_def()
    finally:
        v1.enable_control_flow_v2()


def variable(use_resource):
    return old(lambda x: x + v1.get_variable("v", initializer=numpy.float32([1, 2, 3]), use_resource=use_resource))


X = 'node {name: "x" op: "Placeholder" attr {key: "dtype" value {type: DT_FLOAT}}} '
T = 'attr {key: "T" value {type: DT_FLOAT}}'


def text(nodes, functions=""):
    return text_format.Parse(X + nodes + (f" library {{{functions}}}" if functions else ""), v1.GraphDef())


def call(name, function, argument):
    types = "".join(f'attr {{key: "{key}" value {{list {{type: DT_FLOAT}}}}}}' for key in ("Tin", "Tout"))
    return (f'{{name: "{name}" op: "PartitionedCall" input: "{argument}" {types} '
            f'attr {{key: "f" value {{func {{name: "{function}"}}}}}}}}')


def caller(name, called):
    """Returns a function that calls another one."""
    return (f'function {{signature {{name: "{name}" input_arg {{name: "a" type: DT_FLOAT}} '
            f'output_arg {{name: "r" type: DT_FLOAT}}}} node_def {call("call", called, "a")} '
            'ret {key: "r" value: "call:output:0"}}')


def relu(name, argument):
    return f'node {{name: "{name}" op: "Relu" input: "{argument}" {T}}} '


GRAPHS = {
    "while": lambda: frozen(loop), "if": lambda: frozen(branch), "case": lambda: frozen(switch),
    "while_lowered": lambda: frozen(loop, lower=True), "if_lowered": lambda: frozen(branch, lower=True),
    "while_v1": lambda: old(loop), "cond_v1": lambda: old(branch), "while_v2_in_v1": lambda: old(loop, True),
    "lstm_lowered": recurrent,
    "variable_v1": lambda: variable(False), "variable_resource": lambda: variable(True),
    "table": lambda: old(lookup),
    "decode_jpeg": lambda: old(lambda x: raw.DecodeJpeg(contents=v1.placeholder(tf.string, [], "bytes"))),
    "string_constant": lambda: old(lambda x: raw.StringJoin(inputs=["a", raw.AsString(input=x)])),
    "parse_example": lambda: old(lambda x: tf.io.parse_example(
        v1.placeholder(tf.string, [None], "examples"), {"a": tf.io.FixedLenFeature([3], tf.float32)})["a"]),
    "random": lambda: old(lambda x: x + tf.random.uniform(tf.shape(x))),
    "complex": lambda: old(lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64)))),
    "py_function": lambda: old(lambda x: raw.PyFunc(input=[x], token="t", Tout=[tf.float32])[0]),
    "recursive": lambda: text("node " + call("y", "f", "x"), caller("f", "f")),
    "function_cycle": lambda: text("node " + call("y", "f", "x"), caller("f", "g") + caller("g", "f")),
    "function_missing": lambda: text("node " + call("y", "f", "x")),
    "function_result_missing": lambda: text(
        "node " + call("y", "f", "x"), caller("f", "f").replace("call:o", "none:o").replace("PartitionedCall", "Relu")),
    "unknown_operator": lambda: text(f'node {{name: "y" op: "MyOperator" input: "x" {T}}}'),
    "graph_cycle": lambda: text(f'node {{name: "y" op: "Add" input: "x" input: "z" {T}}} ' + relu("z", "y")),
    "control_cycle": lambda: text(relu("y", "x").replace('input: "x"', 'input: "x" input: "^z"') + relu("z", "y")),
    "input_missing": lambda: text(relu("y", "nothing")), "output_missing": lambda: text(relu("y", "x:3")),
    "duplicate_name": lambda: text(relu("y", "x") + relu("y", "x")), "no_nodes": v1.GraphDef,
    "argument_missing": lambda: text(f'node {{name: "y" op: "AddV2" input: "x" {T}}}'),
}


def graph_case(folder, make):
    folder.mkdir(parents=True)
    (folder / "model.pb").write_bytes(make().SerializeToString(deterministic=True))
    graphs.write_case(folder, {}, None)


def cut(folder):
    """Half a frozen graph."""
    graph_case(folder, lambda: old(lambda x: tf.tanh(x) + numpy.ones((100, 3), numpy.float32)))
    content = (folder / "model.pb").read_bytes()
    (folder / "model.pb").write_bytes(content[:len(content) // 2])


def saved_case(folder, change, function=lambda x, scale: x * scale):
    """A SavedModel, and what is wrong with it."""
    model = tf.Module()
    model.scale = tf.Variable([2.0, 3.0, 4.0])
    model.function = tf.function(lambda x: function(x, model.scale), autograph=False, input_signature=[SPEC])
    path = folder / "saved_model"
    tf.saved_model.save(model, str(path), signatures=model.function)
    change(path)
    graphs.write_case(folder, {}, None)


def shorten(path):
    for name in path.glob("variables/*"):
        name.write_bytes(name.read_bytes()[:-7])


def unsign(path):
    model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    model.meta_graphs[0].ClearField("signature_def")
    (path / "saved_model.pb").write_bytes(model.SerializeToString(deterministic=True))


def alter(path):
    data = path / "variables/variables.data-00000-of-00001"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])


SAVED = {
    "saved_without_variables": {"change": lambda path: shutil.rmtree(path / "variables")},
    "saved_without_model": {"change": lambda path: (path / "saved_model.pb").unlink()},
    "saved_without_data": {"change": lambda path: (path / "variables/variables.data-00000-of-00001").unlink()},
    "saved_short_variables": {"change": shorten}, "saved_altered_variables": {"change": alter},
    "saved_without_signature": {"change": unsign},
    "saved_while": {"change": lambda path: None, "function": lambda x, scale: loop(x * scale)},
    "saved_assign": {"change": lambda path: None, "function": lambda x, scale: x + scale.assign_add([1.0, 1.0, 1.0])},
}


def cases():
    """Yields the name of a case, and a function that writes it into a folder."""
    for name, make in GRAPHS.items():
        yield "refused_" + name, lambda folder, make=make: graph_case(folder, make)
    yield "refused_cut", cut
    for name, arguments in SAVED.items():
        yield "refused_" + name, lambda folder, arguments=arguments: saved_case(folder, **arguments)
