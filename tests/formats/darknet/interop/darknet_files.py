"""OpenCV and stele read the same weights from a file of Darknet.

    darknet_files.py check STELE

The golden files are those of Darknet itself: darknet_files.c beside this script.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np

CFG = """[net]
width=6
height=6
channels=2

[convolutional]
batch_normalize=1
filters=4
size=3
stride=1
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
filters=3
size=1
stride=1
pad=1
activation=linear
"""
# The layers of OpenCV, their blobs, and stele's names.
PLACES = [("conv_0", 0, "0.convolutional.weights"), ("bn_0", 0, "0.convolutional.rolling_mean"),
          ("bn_0", 1, "0.convolutional.rolling_variance"), ("bn_0", 2, "0.convolutional.scales"),
          ("bn_0", 3, "0.convolutional.biases"), ("conv_2", 0, "2.convolutional.weights"),
          ("conv_2", 1, "2.convolutional.biases")]


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        numbers = np.arange(4 * 4 + 4 * 2 * 9 + 3 + 3 * 4, dtype=np.float32) / 8 + 1
        (folder / "net.cfg").write_text(CFG)
        (folder / "net.weights").write_bytes(struct.pack("<3iQ", 0, 2, 0, 64) + numbers.tobytes())
        net = cv2.dnn.readNetFromDarknet(str(folder / "net.cfg"), str(folder / "net.weights"))
        subprocess.run([stele, "convert", folder / "net.weights", folder / "net.npz", "--quiet", "--allow-loss"], check=True)
        arrays = np.load(folder / "net.npz")
        for layer, blob, name in PLACES:
            expected = net.getParam(layer, blob).ravel()
            assert expected.tobytes() == arrays[name].tobytes(), (name, expected, arrays[name])
        assert arrays["0.convolutional.weights"].shape == (4, 2, 3, 3)
        print(f"net: OpenCV {cv2.__version__} and stele read equal weights")


if __name__ == "__main__":
    check(sys.argv[2])
