#!/usr/bin/env python3
"""Write the golden files of tests/formats/tensorflow/data with TensorFlow.

    pip install -r tests/formats/tensorflow/interop/requirements.txt
    python3 tests/formats/tensorflow/interop/make_golden_tensorflow.py [FOLDER]

Element k of the tensor NAME is k % 7 - 2 plus the sum of NAME's bytes modulo 5. In types.index it is k % 7 - 2, or k % 7 if
the dtype is unsigned, or k % 2 if it is bool; for integers of 2 bits, k % 4 and k % 4 - 2.
"""

import os
import pathlib
import shutil
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
SHAPE = (3, 5)  # an odd number of elements


def values(name, shape):
    k = np.arange(int(np.prod(shape, dtype=np.int64)))
    return (k % 7 - 2 + sum(name.encode()) % 5).reshape(shape)


def assign(name, variable):
    variable.assign(values(name, variable.shape).astype(variable.dtype.as_numpy_dtype))


def save(path, tensors):
    tf.raw_ops.SaveV2(prefix=str(path), tensor_names=list(tensors), shape_and_slices=[""] * len(tensors),
                      tensors=list(tensors.values()))


def types(folder):
    """Every dtype that TensorFlow saves, scalars, tensors without elements, strings, a variant."""
    k = np.arange(15).reshape(SHAPE)
    tensors = {}
    for name in ("float32 float64 int32 uint8 int16 int8 complex64 int64 bool bfloat16 uint16 complex128 float16 uint32 "
                 "uint64 float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 int2 uint2 "
                 "float4_e2m1fn").split():
        dtype = getattr(ml_dtypes, name, None) or getattr(np, name)
        low = 0 if name.startswith("uint") else 2
        numbers = k % 2 if name == "bool" else k % 4 - low if name.endswith("int2") else k % 7 - low
        tensors[name] = tf.constant(numbers.astype(dtype))
    for name, dtype in (("qint8", tf.qint8), ("qint32", tf.qint32)):
        tensors[name] = tf.quantization.quantize(tf.constant((k % 7 - 2).astype(np.float32)), -128.0, 127.0, dtype).output
    tensors["scalar"] = tf.constant(np.float32(1.5))
    tensors["empty"] = tf.zeros([2, 0, 3])
    tensors["text"] = tf.constant("hello")
    tensors["texts"] = tf.constant([[b"a", b"bcd", b""], [b"\xff\x00", "grün".encode(), b"x" * 200]])
    tensors["no_texts"] = tf.constant([], tf.string, [0, 2])
    tensors["variant"] = tf.raw_ops.TensorListFromTensor(tensor=tf.ones([2, 3]), element_shape=[3])
    save(folder / "types", tensors)
    save(folder / "one", {"w": tf.constant(values("w", (2, 3)).astype(np.float32))})
    save(folder / "hundred", {f"layer_{i}/w": tf.constant(values(f"layer_{i}/w", (i % 4, 3)).astype(np.float32))
                              for i in range(100)})
    tf.train.Checkpoint().write(str(folder / "zero"))


def tf1(folder, sharded):
    """Variables, partitioned ones and the slots of two optimizers, by the Saver of TensorFlow 1."""
    with tf.Graph().as_default():
        cut = lambda parts, axis: v1.fixed_size_partitioner(parts, axis=axis)
        with v1.device("/cpu:1" if sharded else ""):
            with v1.variable_scope("emb", partitioner=cut(3, 0)):
                rows = v1.get_variable("table", [100, 2])
            with v1.variable_scope("cols", partitioner=cut(2, 1)):
                columns = v1.get_variable("table", [3, 5])
        with v1.variable_scope("dense"):
            kernel, bias = v1.get_variable("kernel", [2, 3]), v1.get_variable("bias", [3])
        with v1.variable_scope("Adam"):  # a variable, not a slot
            v1.get_variable("Momentum", [2])
        loss = sum(tf.reduce_sum(tf.convert_to_tensor(x)) for x in (rows, columns, kernel, bias))
        v1.train.AdamOptimizer(0.1).minimize(loss)
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=v1.train.get_or_create_global_step())
        saver = v1.train.Saver(sharded=sharded)
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(v1.global_variables_initializer())
            for variable in v1.global_variables():
                part = variable._get_save_slice_info()
                if part is None:
                    value = values(variable.op.name, variable.shape.as_list())
                else:
                    whole = values(part.full_name, part.full_shape)
                    value = whole[tuple(slice(o, o + n) for o, n in zip(part.var_offset, part.var_shape))]
                variable.load(value.astype(variable.dtype.base_dtype.as_numpy_dtype), session)
            saver.save(session, str(folder / "model.ckpt"), global_step=100, write_meta_graph=False)


class Dense(tf.Module):
    def __init__(self, rows, columns, name):
        super().__init__(name=name)
        with self.name_scope:
            self.kernel = tf.Variable(tf.zeros([rows, columns]), name="kernel")
            self.bias = tf.Variable(tf.zeros([columns]), name="bias")


class Net(tf.Module):
    def __init__(self):
        super().__init__(name="net")
        self.first = Dense(2, 3, "first_layer")
        self.rest = [Dense(3, 3, "second_layer"), Dense(3, 1, "third_layer")]
        self.steps = tf.Variable(0, dtype=tf.int64, name="steps")


def tf2(folder, kind):
    """A model of nested modules, with an optimizer that has slot variables, or with one of Keras 3."""
    net = Net()
    named = {"net/first": net.first, "net/rest/0": net.rest[0], "net/rest/1": net.rest[1]}
    weights = {f"{path}/{name}": getattr(module, name) for path, module in named.items() for name in ("kernel", "bias")}
    gradients = [(tf.ones(w.shape), w) for w in weights.values()]
    if kind == "slots":
        optimizer = v1.train.AdamOptimizer(0.1)
    elif kind == "adam":
        optimizer = keras.optimizers.Adam(0.1)
    else:
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.apply_gradients(gradients)
    for name, variable in weights.items():
        assign(name, variable)
    assign("net/steps", net.steps)
    for i, (name, variable) in enumerate(weights.items()):
        if kind == "slots":
            for slot in ("m", "v"):
                assign(f"{name}/{slot}", optimizer.get_slot(variable, slot))
        else:
            lists = {"momentums": optimizer.momentums} if kind == "sgd" else \
                    {"momentums": optimizer._momentums, "velocities": optimizer._velocities}
            for slot, variables in lists.items():
                assign(f"{name}/{slot}", variables[i].value)
    tf.train.Checkpoint(net=net, optimizer=optimizer).save(str(folder / "ckpt"))


def names(folder):
    """Names that have dots, slashes and nothing else; a variable that two objects have."""
    shared = tf.Variable(values("a.b/c", [2]).astype(np.float32), name="shared.name")
    holder = tf.train.Checkpoint(x=shared)
    tf.train.Checkpoint(**{"a.b/c": shared, "holder": holder, "Ü": tf.Variable(3.0)}).write(str(folder / "names"))


def saved_model(folder):
    net = Net()
    for variable in net.variables:
        assign(variable.name.split(":")[0], variable)
    tf.saved_model.save(net, str(folder))
    for name in ("saved_model.pb", "fingerprint.pb"):
        (folder / name).unlink()
    shutil.rmtree(folder / "assets", ignore_errors=True)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tf1", "sharded", "slots", "adam", "sgd", "saved_model"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    types(folder)
    names(folder)
    saved_model(folder / "saved_model")
    for kind in ("slots", "adam", "sgd"):
        tf2(folder / kind, kind)
    tf1(folder / "tf1", False)
    tf1(folder / "sharded", True)


if __name__ == "__main__":
    main()
