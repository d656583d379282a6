"""Products of Caffe's snapshots of a network: messages of Caffe's own caffe.proto, by protobuf."""

import math
import sys
from pathlib import Path

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mmdnn.conversion.caffe import caffe_pb2

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["mmdnn", "protobuf", "numpy"]
FILES = 24
PAGES = ["formats/caffe"]
V1 = caffe_pb2.V1LayerParameter
TYPES = {"Convolution": (V1.CONVOLUTION, "conv"), "InnerProduct": (V1.INNER_PRODUCT, "innerproduct"),
         "Deconvolution": (V1.DECONVOLUTION, None), "Embed": (None, None), "Scale": (None, None), "BatchNorm": (None, None),
         "PReLU": (None, None), "LSTM": (None, None), "Data": (V1.DATA, "data")}
PARTS = {"BatchNorm": ["mean", "variance", "factor"]} | dict.fromkeys(
    ["Convolution", "InnerProduct", "Deconvolution", "Embed", "Scale"], ["weight", "bias"])
DIMENSIONS = {
    "version": ["LayerParameter", "V1LayerParameter", "V0LayerParameter", "both"],
    "type": list(TYPES),
    "extents": ["shape", "num, channels, height, width", "both", "height, width"],
    "shape": [[3, 5], [7], [1], [], [0], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 32],
    "elements": ["data", "double_data", "both", "with gradients", "not packed", "none", "one too many"],
    "layer": ["conv1", "conv/3x3", "fc.1", "日本語", "a b", "a\\b", "x" * 256, "no name"],
    "network": ["name", "name and inputs", "name and shapes", "no name"],
    "blobs": [2, 1, 3, 0],
    "layers": [1, 9, 101],
}


def possible(case):
    old, oldest = TYPES[case["type"]]
    return all([
        case["version"] != "V1LayerParameter" or old is not None,
        case["version"] != "V0LayerParameter" or oldest is not None,
        case["extents"] == "shape" or len(case["shape"]) == 4 or 0 not in case["shape"] and 0 < len(case["shape"]) < 4,
        case["extents"] != "height, width" or 0 not in case["shape"],
        case["elements"] not in ("not packed", "none") or math.prod(case["shape"]) > 1,
    ])


def hides(case):
    unread = case["elements"] in ("not packed", "none", "one too many") or case["extents"] == "height, width"
    return unread or case["blobs"] == 0 or 0 in case["shape"]


def extents_of(case):
    """The extents of the file: four axes in old versions. An absent one is 0."""
    if case["extents"] == "shape":
        return case["shape"]
    return [1] * (4 - len(case["shape"])) + case["shape"]


def numbers(case, seed, dtype):
    """Random bits with infinities and denormals, but no NaN: protobuf for Python has only one."""
    count = math.prod(case["shape"]) + (case["elements"] == "one too many")
    array = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    edges = np.array([np.inf, -np.inf, -0.0, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max], dtype)
    array[2:7] = edges[:max(0, min(5, count - 2))]
    return np.where(np.isnan(array), dtype.type(1), array)


def unpacked():
    """The messages of caffe.proto with fields that are not packed: Caffe's parser reads them."""
    file = descriptor_pb2.FileDescriptorProto()
    caffe_pb2.DESCRIPTOR.CopyToProto(file)
    file.name = "unpacked.proto"
    for message in file.message_type:
        for field in message.field:
            field.options.ClearField("packed")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("caffe.NetParameter"))


def fill(blob, case, seed):
    shape, elements = extents_of(case), case["elements"]
    if case["extents"] in ("shape", "both"):
        blob.shape.dim.extend(case["shape"] if case["extents"] == "shape" else [9])
        blob.shape.SetInParent()
    if case["extents"] in ("num, channels, height, width", "both"):
        blob.num, blob.channels, blob.height, blob.width = shape
    elif case["extents"] == "height, width":
        blob.height, blob.width = shape[2:]
    if elements in ("double_data", "both"):
        blob.double_data.extend(numbers(case, seed, np.dtype("<f8")))
    if elements not in ("double_data", "none"):
        blob.data.extend(numbers(case, seed, np.dtype("<f4")))
    if elements == "with gradients":
        blob.diff.extend(numbers(case, seed, np.dtype("<f4")))


def add_layer(net, case, i):
    name, old = case["layer"] + (str(i) if i else ""), TYPES[case["type"]]
    if case["version"] in ("LayerParameter", "both"):
        layer = net.layer.add(type=case["type"])
    elif case["version"] == "V1LayerParameter":
        layer = net.layers.add(type=old[0])
    else:
        layer = net.layers.add().layer
        layer.type = old[1]
    if case["layer"] != "no name":
        layer.name = name
    for k in range(case["blobs"]):
        fill(layer.blobs.add(), case, 10 * i + k)


def write(case, path):
    path = path.with_suffix(".caffemodel")
    net = unpacked()() if case["elements"] == "not packed" else caffe_pb2.NetParameter()
    if case["network"] != "no name":
        net.name = "net"
    if case["network"] == "name and inputs":
        net.input.append("data")
        net.input_dim.extend([1, 3, 300, 4])
    elif case["network"] == "name and shapes":
        net.input.append("data")
        net.input_shape.add().dim.extend([1, 3, 300, 4])
    for i in range(case["layers"]):
        add_layer(net, case, i)
    if case["version"] == "both":  # Caffe refuses such a network; its parser reads it
        net.layers.add(name="old", type=V1.CONVOLUTION).blobs.add(num=1, channels=1, height=1, width=1).data.append(1)
    path.write_bytes(net.SerializeToString())
    return path, expected(case, path)


def expected(case, path):
    """What Caffe's parser has of the file, with the shapes of Blob::FromProto."""
    net = caffe_pb2.NetParameter.FromString(path.read_bytes())
    tensors, unread = {}, []
    layers = []  # in the order of the file
    for one in net.layers:  # V0LayerParameter is inside
        layer = one.layer if one.HasField("layer") else one
        name = layer.type if one.HasField("layer") else V1.LayerType.Name(layer.type)
        layers.append((layer, next((kind for kind, old in TYPES.items() if old[0] == layer.type or old[1] == name), "")))
    layers += [(one, one.type) for one in net.layer]
    for number, (layer, kind) in enumerate(layers):
        for k, blob in enumerate(layer.blobs):
            parts = PARTS.get(kind, [])
            path_of = f"{layer.name or number}.{parts[k] if k < len(parts) else k}"
            legacy = any(map(blob.HasField, ("num", "channels", "height", "width")))
            shape = [blob.num, blob.channels, blob.height, blob.width] if legacy else list(blob.shape.dim)
            array = np.array(blob.double_data, "<f8") if blob.double_data else np.array(blob.data, "<f4")
            if case["elements"] == "not packed" or not len(array) and math.prod(shape):
                unread.append(path_of)
            elif math.prod(shape) != len(array):
                return comparison.Expected(refused="malformed")
            else:
                tensors[path_of] = array.reshape(shape)
    return comparison.Expected(tensors, unread)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
