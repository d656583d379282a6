"""Whole models for tensorflow_models.py: of Keras, and written with TensorFlow alone. Their weights are random."""
import math

import numpy
import tensorflow as tf

import keras
from keras import layers

FULL = {"width": 32, "words": 60, "places": 32, "channels": (8, 16), "image": (16, 18), "hidden": 12, "blocks": 2,
        "deep": True}
TINY = {"width": 4, "words": 8, "places": 8, "channels": (4, 6), "image": (8, 9), "hidden": 4, "blocks": 1,
        "deep": False}
HEADS = 2


def randomize(model):
    """Gives norms and biases values that are not 0 and 1."""
    random = numpy.random.default_rng(4)
    for variable in model.weights:
        low, high = (0.5, 1.5) if "variance" in variable.path or "gamma" in variable.path else (-0.5, 0.5)
        if len(variable.shape) < 2 and "seed" not in variable.path:
            variable.assign(random.uniform(low, high, variable.shape))
    return model


def mlp(sizes):
    x = inputs = keras.Input((6,), name="x")
    x = layers.Dense(sizes["hidden"], activation="relu")(x)
    if sizes["deep"]:
        x = layers.BatchNormalization(epsilon=1e-2)(x)
        x = layers.Dropout(0.5)(x)
    x = layers.Dense(sizes["hidden"], activation="tanh", use_bias=False)(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


class FusedNorm(layers.Layer):
    """FusedBatchNormV3, as Keras 2 wrote it."""

    def build(self, shape):
        self.rows = [self.add_weight(shape=(shape[-1],), name=name) for name in ("gamma", "beta", "mean", "variance")]

    def call(self, x):
        return tf.compat.v1.nn.fused_batch_norm(x, *self.rows, epsilon=1e-3, is_training=False)[0]


def cnn(sizes):
    first, second = sizes["channels"]

    def normed(y, activation):
        return layers.Activation(activation)(FusedNorm()(y))

    x = inputs = keras.Input((*sizes["image"], 3), name="image")
    x = layers.ZeroPadding2D(((1, 2), (0, 1)))(x)
    x = normed(layers.Conv2D(first, 3, strides=2, padding="valid", use_bias=False)(x), "relu6")
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for channels, stride in ((first, 1), (second, 2))[0 if sizes["deep"] else 1:]:
        y = normed(layers.Conv2D(channels, 3, strides=stride, padding="same", use_bias=False)(x), "swish")
        y = layers.BatchNormalization()(layers.Conv2D(channels, 3, padding="same")(y))
        if stride > 1:
            x = layers.Conv2D(channels, 1, strides=stride)(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = normed(layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(x), "relu")
    y = layers.AveragePooling2D(2, 1, padding="same")(x)
    if sizes["deep"]:
        z = normed(layers.SeparableConv2D(second, 3, padding="same", dilation_rate=2)(x), "leaky_relu")
        y = layers.Concatenate()([layers.Conv2D(4, 1, activation="elu")(y), z])
    x = layers.GlobalAveragePooling2D()(y)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


def mobilenet(sizes):
    return keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, classes=10)


def mobilenet_v3(sizes):
    return keras.applications.MobileNetV3Small((32, 32, 3), 0.35, weights=None, classes=10, dropout_rate=0)


def lstm(sizes):
    ids = keras.Input((5,), dtype="int32", name="ids")
    x = layers.Embedding(sizes["words"], sizes["width"])(ids)
    x = layers.Bidirectional(layers.LSTM(sizes["hidden"], unroll=True, return_sequences=True, use_cudnn=False))(x)
    x = layers.LSTM(sizes["hidden"], unroll=True, use_cudnn=False, go_backwards=True)(x)
    return keras.Model(ids, layers.Dense(3)(x))


def gru(sizes):
    x = keras.Input((5, 4), name="x")
    y = layers.GRU(sizes["hidden"], unroll=True, use_cudnn=False, return_sequences=True)(x)
    y = layers.GRU(sizes["hidden"], unroll=True, use_cudnn=False, reset_after=False)(y)
    return keras.Model(x, layers.Dense(3, activation="sigmoid")(y))


class Places(layers.Layer):
    """Embeddings of the places of a text."""

    def __init__(self, places, width):
        super().__init__(name="p")
        self.embedding = layers.Embedding(places, width, name="e")

    def call(self, ids):
        return self.embedding(tf.range(tf.shape(ids)[1]))[tf.newaxis]

    def compute_output_shape(self, shape):
        return 1, shape[1], self.embedding.output_dim


def bert_tiny_einsum(sizes):
    """Keras's attention: Einsum."""
    width, names = sizes["width"], ("ids", "mask", "kinds")
    ids, mask, kinds = (keras.Input((None,), dtype="int32", name=name) for name in names)
    x = layers.Embedding(sizes["words"], width, name="e0")(ids) + layers.Embedding(2, width, name="e1")(kinds)
    x = layers.LayerNormalization(epsilon=1e-6, name="n")(x + Places(sizes["places"], width)(ids))
    allowed = keras.ops.expand_dims(keras.ops.cast(mask, "bool"), 1)
    for i in range(sizes["blocks"]):
        attention = layers.MultiHeadAttention(HEADS, width // HEADS, flash_attention=False, name=f"a{i}")
        x = layers.LayerNormalization(name=f"b{i}")(x + attention(x, x, attention_mask=allowed))
        y = layers.Dense(2 * width, name=f"c{i}")(x)
        y = layers.Dense(width)(keras.activations.gelu(y, approximate=i > 0))
        x = layers.LayerNormalization(name=f"d{i}")(x + y)
    return keras.Model([ids, mask, kinds], [x, layers.Dense(width, activation="tanh")(x[:, 0])], name="m")


class Weights(tf.Module):
    def __init__(self):
        super().__init__()
        self.random, self.kept = numpy.random.default_rng(5), []

    def weight(self, *shape, around=0.0):
        scale = 1 / math.sqrt(shape[0]) if len(shape) > 1 else 0.3
        value = around + scale * self.random.standard_normal(shape)
        self.kept.append(tf.Variable(value.astype(numpy.float32), name=f"weight{len(self.kept)}"))
        return self.kept[-1]

    def dense(self, before, after, flat=True):
        w, b = self.weight(before, after), self.weight(after)
        if not flat:
            return lambda x: tf.matmul(x, w) + b
        return lambda x: tf.nn.bias_add(tf.reshape(
            tf.matmul(tf.reshape(x, [-1, before]), w), tf.concat([tf.shape(x)[:-1], [after]], 0)), b)

    def norm(self, width):
        gain, offset = self.weight(width, around=1.0), self.weight(width)

        def layer(x):
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            return tf.nn.batch_normalization(x, mean, variance, offset, gain, 1e-12)
        return layer


def gelu_tanh(x):
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def gelu_erf(x):
    return 0.5 * x * (1.0 + tf.math.erf(x / math.sqrt(2)))


def split_heads(x, width):
    shape = tf.shape(x)
    return tf.transpose(tf.reshape(x, [shape[0], shape[1], HEADS, width // HEADS]), [0, 2, 1, 3])


def join_heads(x, width):
    shape = tf.shape(x)
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [shape[0], shape[2], width])


class BertTiny(Weights):
    def __init__(self, sizes):
        super().__init__()
        self.width = width = sizes["width"]
        self.words, self.places = self.weight(sizes["words"], width), self.weight(sizes["places"], width)
        self.types, self.norm0 = self.weight(2, width), self.norm(width)
        self.blocks = [[*(self.dense(width, width) for _ in range(4)), self.norm(width),
                        self.dense(width, 2 * width, False), self.dense(2 * width, width), self.norm(width)]
                       for _ in range(sizes["blocks"])]
        self.pooler = self.dense(width, width)

    def __call__(self, ids, mask, kinds):
        length, width = tf.shape(ids)[1], self.width
        x = tf.gather(self.words, ids) + tf.expand_dims(tf.slice(self.places, [0, 0], [length, -1]), 0)
        x = self.norm0(x + tf.matmul(tf.one_hot(kinds, 2), self.types))
        bias = (1.0 - tf.cast(mask, tf.float32)[:, tf.newaxis, tf.newaxis, :]) * -10000.0
        for i, (query, key, value, out, norm1, up, down, norm2) in enumerate(self.blocks):
            q, k, v = (split_heads(f(x), width) for f in (query, key, value))
            scores = tf.multiply(tf.matmul(q, k, transpose_b=True), 1 / math.sqrt(width // HEADS)) + bias
            x = norm1(x + out(join_heads(tf.matmul(tf.nn.softmax(scores), v), width)))
            x = norm2(x + down((gelu_tanh if i else gelu_erf)(up(x))))
        return x, tf.tanh(self.pooler(tf.squeeze(x[:, 0:1, :], axis=1)))


class GptTiny(Weights):
    def __init__(self, sizes):
        super().__init__()
        self.width = width = sizes["width"]
        self.words, self.places = self.weight(sizes["words"], width), self.weight(sizes["places"], width)
        self.blocks = [[self.norm(width), self.dense(width, 3 * width), self.dense(width, width), self.norm(width),
                        self.dense(width, 2 * width), self.dense(2 * width, width)] for _ in range(sizes["blocks"])]
        self.last = self.norm(width)

    def __call__(self, ids):
        length = tf.shape(ids)[1]
        places = tf.range(length)
        x = tf.gather(self.words, ids) + tf.gather(self.places, places)
        for i, (norm1, qkv, out, norm2, up, down) in enumerate(self.blocks):
            q, k, v = (split_heads(t, self.width) for t in tf.split(qkv(norm1(x)), 3, axis=-1))
            scores = tf.matmul(q, k, transpose_b=True) * tf.math.rsqrt(tf.cast(tf.shape(v)[-1], tf.float32))
            if i:
                allowed = places[:, tf.newaxis] >= places
                scores = tf.where(allowed, scores, -1e9)
            else:
                allowed = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
                scores = scores * allowed - 1e10 * (1 - allowed)
            x = x + out(join_heads(tf.matmul(tf.nn.softmax(scores, axis=-1), v), self.width))
            x = x + down(gelu_tanh(up(norm2(x))))
        return tf.einsum("bld,wd->blw", self.last(x), self.words)


class Image(Weights):
    """What models of images have besides: resizing, transposed convolutions, and paddings."""

    def __init__(self, sizes):
        super().__init__()
        channels = sizes["channels"][0]
        self.first, self.bias = self.weight(3, 3, 3, channels), self.weight(channels)
        self.up, self.last = self.weight(3, 3, channels, channels), self.weight(1, 1, channels, 8)

    def __call__(self, image):
        x = tf.cast(image, tf.float32) / 127.5 - 1.0
        x = tf.image.resize(x, [9, 7], "bilinear")
        x = tf.pad(x, [[0, 0], [1, 1], [2, 1], [0, 0]], "REFLECT")
        x = tf.nn.leaky_relu(tf.nn.bias_add(tf.nn.conv2d(x, self.first, 2, "SAME"), self.bias))
        shape = tf.shape(x)
        x = tf.nn.conv2d_transpose(x, self.up, [shape[0], shape[1] * 2, shape[2] * 2, x.shape[3]], 2, "SAME")
        x = tf.nn.local_response_normalization(x, 2, 1.0, 0.1, 0.75)
        x = tf.image.resize(x, tf.shape(x)[1:3] // 2, "nearest")
        x = tf.nn.depth_to_space(tf.nn.conv2d(x, self.last, 1, "VALID"), 2)
        x = tf.clip_by_value(tf.math.l2_normalize(x, axis=-1), -0.9, 0.9)
        return x, tf.argmax(tf.nn.softmax(x), axis=-1)


class Functions(Weights):
    """Calls of functions that stay calls: nested, of two results, called twice, with variables."""

    def __init__(self, sizes):
        super().__init__()
        width = sizes["hidden"]
        self.w, self.b = self.weight(6, width), self.weight(width)

        def kept(function):
            return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})

        def both(x):
            a, total = scaled(layer(x), 2.0)
            b, _ = scaled(layer(-x), tf.cast(tf.shape(x)[0:1], tf.float32))
            return {"joined": tf.concat([a, b], axis=-1), "total": total}

        def call(x):
            found = outer(tf.tanh(x))
            return found["joined"] + 1.0, found["total"], scaled(x, 3.0)[1]

        scaled = kept(lambda x, scale: (x * scale, tf.reduce_sum(x, axis=-1, keepdims=True)))
        layer = kept(lambda x: tf.nn.relu(tf.matmul(x, self.w) + self.b))
        outer, self.call = kept(both), call

    def __call__(self, x):
        return self.call(x)


def networks():
    """Yields a name, a function that makes the model, and its inputs: shapes (None: open) and dtypes."""
    words = {"shape": (None, None), "dtype": "int32"}
    text = {"ids": words, "mask": words, "kinds": words}
    image = {"shape": (None, 32, 32, 3), "dtype": "float32"}
    yield "mlp", mlp, {"x": {"shape": (None, 6), "dtype": "float32"}}
    yield "cnn", cnn, {"image": {"shape": (None, "high", "wide", 3), "dtype": "float32"}}
    yield "mobilenet", mobilenet, {"image": image}
    yield "mobilenet_v3", mobilenet_v3, {"image": image}
    yield "lstm", lstm, {"ids": {"shape": (None, 5), "dtype": "int32"}}
    yield "gru", gru, {"x": {"shape": (None, 5, 4), "dtype": "float32"}}
    yield "bert_tiny_einsum", bert_tiny_einsum, text
    yield "bert_tiny_matmul", BertTiny, text
    yield "gpt_tiny", GptTiny, {"ids": words}
    yield "image", Image, {"image": {"shape": (None, None, None, 3), "dtype": "uint8"}}
    yield "functions", Functions, {"x": {"shape": (None, 6), "dtype": "float32"}}


def arrays_of(inputs, sizes, is_open):
    """Returns inputs by name, and their shapes with None; open models have other extents than fixed ones."""
    random, arrays, shapes = numpy.random.default_rng(6), {}, {}
    batch, length = (3, 7) if is_open else (2, 8)
    for name, row in inputs.items():
        free = [batch, length, length + 3] if row["dtype"] == "uint8" else [batch, length]
        named = {"high": sizes["image"][0], "wide": sizes["image"][1]}
        shape = tuple(free[i] if extent is None else named.get(extent, extent) for i, extent in enumerate(row["shape"]))
        shapes[name] = tuple(None if is_open and e is None else s for e, s in zip(row["shape"], shape))
        if row["dtype"] == "float32":
            arrays[name] = random.standard_normal(shape).astype(numpy.float32)
        elif name in ("mask", "kinds"):
            arrays[name] = numpy.ones(shape, numpy.int32)
            arrays[name][0, 4:] = 0
        else:
            high = 256 if row["dtype"] == "uint8" else sizes["words"]
            arrays[name] = random.integers(0, high, shape).astype(row["dtype"])
    return arrays, shapes
