"""Files of Caffe.

    caffe_files.py make FOLDER    writes the golden files of tests/formats/caffe/data
    caffe_files.py check STELE    OpenCV and stele read the same weights from a file

The messages are those of Caffe's own caffe.proto, compiled by protobuf (in the package mmdnn). Caffe writes its files as
such a message, without any other bytes (WriteProtoToBinaryFile).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
from mmdnn.conversion.caffe import caffe_pb2

PROTOTXT = """
name: "net"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 5 dim: 5 } } }
layer { name: "conv/3x3" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc.1" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 2 } }
"""


def numbers(shape, first):
    return (np.arange(np.prod(shape, dtype=int)) / 8 + first).astype(np.float32)


def blob(to, shape, first):
    to.shape.dim.extend(shape)
    to.data.extend(numbers(shape, first))


def net():
    """Return a network of version 2: two layers with weights, and one without."""
    message = caffe_pb2.NetParameter(name="net")
    for name, kind, shapes in (("data", "Input", []), ("conv/3x3", "Convolution", [(4, 2, 3, 3), (4,)]),
                               ("relu", "ReLU", []), ("fc.1", "InnerProduct", [(2, 36), (2,)])):
        layer = message.layer.add(name=name, type=kind)
        for i, shape in enumerate(shapes):
            blob(layer.blobs.add(), shape, 100 * i)
    return message


def kinds():
    """Return a network with other kinds of layers and blobs."""
    message = caffe_pb2.NetParameter()
    norm = message.layer.add(name="bn", type="BatchNorm")
    for i, shape in enumerate([(3,), (3,), (1,)]):
        blob(norm.blobs.add(), shape, i)
    for i in range(2):
        blob(message.layer.add(name=f"scale{i}", type="Scale").blobs.add(), (3,), i)
    blob(message.layer.add(name="slope", type="PReLU").blobs.add(), (), 5)
    doubles = message.layer.add(name="doubles", type="Embed").blobs.add()
    doubles.shape.dim.extend((2, 2))
    doubles.double_data.extend([0.5, 1.5, 2.5, 3.5])
    gradients = message.layer.add(name="gradients", type="Bias").blobs.add()
    blob(gradients, (2,), 0)
    gradients.diff.extend([1, 2])
    message.layer.add(name="none", type="Bias").blobs.add().shape.dim.extend((0, 3))
    return message


def old(version):
    """Return a network of version 1 or 0."""
    message = caffe_pb2.NetParameter(name="old", input=["data"], input_dim=[1, 3, 4, 4])
    types = caffe_pb2.V1LayerParameter
    for name, kind, number, shapes in (("conv1", "conv", types.CONVOLUTION, [(2, 3, 1, 1), (1, 1, 1, 2)]),
                                       ("ip", "innerproduct", types.INNER_PRODUCT, [(1, 1, 3, 2)])):
        layer = message.layers.add(bottom=["data"], top=[name])
        if version == 0:
            layer = layer.layer
            layer.type = kind
        else:
            layer.type = number
        layer.name = name
        for shape in shapes:
            to = layer.blobs.add(num=shape[0], channels=shape[1], height=shape[2], width=shape[3])
            to.data.extend(numbers(shape, 1))
    return message


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, message in (("net", net()), ("kinds", kinds()), ("v1", old(1)), ("v0", old(0))):
        (folder / f"{name}.caffemodel").write_bytes(message.SerializeToString())


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        (folder / "net.prototxt").write_text(PROTOTXT)
        read = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
        subprocess.run([stele, "convert", folder / "net.caffemodel", folder / "net.npz", "--quiet", "--allow-loss"],
                       check=True)
        arrays = np.load(folder / "net.npz")
        assert len(arrays.files) == 4, arrays.files
        for theirs, layer in (("conv", "conv/3x3"), ("fc.1", "fc.1")):  # OpenCV cuts the name at the slash
            for i, part in enumerate(("weight", "bias")):
                expected, found = read.getParam(theirs, i), arrays[f"{layer}.{part}"]
                assert found.tobytes() == expected.astype(np.float32).tobytes(), (layer, part)
        print(f"net: OpenCV {cv2.__version__} and stele read equal weights")


if __name__ == "__main__":
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
