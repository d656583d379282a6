"""Models as programs of TensorFlow 1 make them, with sessions, and graphs with functions of both kinds."""
import numpy
import tensorflow as tf

import tensorflow_graphs as graphs

v1 = tf.compat.v1


def network(x, sizes, use_resource):
    """A network with variables, control inputs, chains of Identity, and a rate that has a default."""
    channels = sizes["channels"][0]

    def variable(name, *shape, low=-0.5):
        random = graphs.random_of(name)
        return v1.get_variable(name, initializer=random.uniform(low, 1, shape).astype(numpy.float32),
                               use_resource=use_resource)

    with v1.variable_scope("first"):
        y = tf.nn.bias_add(tf.nn.conv2d(x, variable("w", 3, 3, 2, channels), 1, "SAME"), variable("b", channels))
        y, _, _ = v1.nn.fused_batch_norm(
            y, variable("gamma", channels, low=0.5), variable("beta", channels), variable("mean", channels),
            variable("variance", channels, low=0.5), is_training=False)
    with tf.control_dependencies([tf.no_op("ready"), v1.assert_greater(tf.shape(x)[0], 0)]):
        y = tf.identity(tf.identity(tf.nn.relu(y), "same"), "again")
    y = tf.nn.max_pool2d(y, 2, 2, "VALID")
    keep = v1.placeholder_with_default(numpy.float32(1), [], "keep")
    with tf.control_dependencies([y]):
        y = tf.reshape(y * keep, [-1, numpy.prod(y.shape[1:])])
    w = variable("w", int(y.shape[1]), 3)
    logits = v1.nn.xw_plus_b(y, w, variable("b", 3), name="logits")
    return logits, tf.nn.softmax(logits, name="chances"), tf.argmax(logits, 1, name="best")


def session_case(folder, sizes, is_open, saved, use_resource=False):
    array = graphs.random_of("tf1").uniform(-1, 1, (3 if is_open else 2, 4, 6, 2)).astype(numpy.float32)
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, (None if is_open else 2, 4, 6, 2), "x")
        found = network(x, sizes, use_resource)
        session.run(v1.global_variables_initializer())
        names = [t.op.name for t in found]
        if saved:
            folder.mkdir(parents=True)
            v1.saved_model.simple_save(session, str(folder / "saved_model"), {"image": x}, dict(zip(names, found)))
        expected = session.run(found, {x: array})
        if not saved:
            frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), names)
    if saved:
        feeds, outputs = graphs.run_saved(folder / "saved_model", {"image": array})
        graphs.write_case(folder, feeds, outputs)
        expected = [v for _, v in sorted(zip(names, expected))]  # by keys of the signature
    else:
        outputs = graphs.write_frozen(folder, frozen, {"x": array}, names)
    graphs.assert_close(expected, outputs.values(), folder.name)


def direct_call(folder, is_open):
    """A node whose operator is the name of a function, as Defun made them."""
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, tf.float32, func_name="Inner")
    def inner(a, b):
        return a * b, a - b

    @function.Defun(tf.float32, func_name="Outer")
    def outer(a):
        product, difference = inner(a, a + 1)
        return tf.split(tf.concat([product, difference], 1), 3, axis=1)[1], difference

    array = graphs.random_of("direct").uniform(-1, 1, (2, 3)).astype(numpy.float32)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None if is_open else 2, 3), "x")
        first, second = outer(x)
        names = [tf.add(first, 1.0, "y").op.name, second.name]
    graphs.write_frozen(folder, graph.as_graph_def(), {"x": array}, names)


def two_signatures(folder):
    """A SavedModel of two signatures, with other inputs and results, and of two variables of one name."""
    model = tf.Module()
    model.scale, model.offset = tf.Variable([2.0, 3.0], name="same"), tf.Variable([0.5, 0.75], name="same")
    model.first = tf.function(lambda b, a: {"difference": (a - b) * model.scale + model.offset, "a": tf.identity(a)},
                              autograph=False)
    model.second = tf.function(lambda x: x + model.scale, autograph=False)
    spec = tf.TensorSpec((None, 2))
    tf.saved_model.save(model, str(folder / "saved_model"), signatures={
        "serving_default": model.first.get_concrete_function(b=spec, a=spec),
        "other": model.second.get_concrete_function(spec)})
    random = graphs.random_of("two")
    arrays = {n: random.uniform(-1, 1, (3, 2)).astype(numpy.float32) for n in ("a", "b")}
    graphs.write_case(folder, *graphs.run_saved(folder / "saved_model", arrays))


def shards(folder):
    """A SavedModel whose variables are in two files, of several dtypes, one in two slices."""
    random, names = graphs.random_of("shards"), ("y", "count")
    arrays = {"x": random.uniform(-1, 1, (2, 4)).astype(numpy.float32)}
    config = v1.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        x = v1.placeholder(tf.float32, (None, 4), "x")
        with tf.device("/cpu:0"):
            w = v1.get_variable("w", (4, 3), initializer=v1.random_uniform_initializer(-1, 1, seed=1),
                                use_resource=False, partitioner=v1.fixed_size_partitioner(2))
        with tf.device("/cpu:1"):
            bias = v1.get_variable("bias", initializer=numpy.float16([1, -2, 3]), use_resource=False)
            count = v1.get_variable("count", initializer=numpy.int64(7), use_resource=False)
        found = [tf.add(tf.matmul(x, w), tf.cast(bias, tf.float32), "y"),
                 tf.add(tf.shape(x, out_type=tf.int64), count, "count_of")]
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder / "saved_model"), {"x": x}, dict(zip(names, found)))
        expected = session.run(found, {x: arrays["x"]})
    graphs.write_case(folder, arrays, {t.op.name: value for t, value in zip(found, expected)})


def cases(sizes):
    """Yields the name of a case, and a function that writes it into a folder."""
    for is_open in (False, True):
        kind = "_open" if is_open else ""
        for form, saved, use_resource in (("tf1", False, False), ("tf1_resource", False, True),
                                          ("tf1_saved", True, False), ("tf1_resource_saved", True, True)):
            yield form + kind, lambda f, args=(is_open, saved, use_resource): session_case(f, sizes, *args)
        yield "defun" + kind, lambda f, is_open=is_open: direct_call(f, is_open)
    yield "signatures_saved_open", two_signatures
    yield "shards_saved_open", shards
