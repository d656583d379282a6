#!/usr/bin/env python3
"""Train a small digit classifier and write it with the safetensors library
and with PyTorch.

Writes, next to this script (or into the folder given as the last argument):

    digits.safetensors   the trained network, seven F32 tensors
    digits.pth           the same tensors: torch.save(net.state_dict(), path)
    digits-test.bin      the test images and their labels

With --pth, trains nothing: digits.pth is made from the digits.safetensors of
that folder.

The network is a multi-layer perceptron for 8x8 images with pixels 0..16:

    x = (pixels - normalize.mean) * normalize.scale
    x = relu(hidden.0.weight x + hidden.0.bias)
    x = relu(hidden.1.weight x)
    y = head.weight x + head.bias
    digit = argmax(y)

hidden.1 was trained without a bias, so the file has no hidden.1.bias.
README.md beside this script says where the images come from and which
library versions made the files in this folder.
"""

import pathlib
import struct
import sys

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

SEED = 1998
EPOCHS = 120
BATCH = 64
RATE = 3e-3
DECAY = 1e-3
SIZES = (64, 48, 32, 10)
WEIGHTS = ("hidden.0.weight", "hidden.1.weight", "head.weight")


def normalizer(images):
    """Mean and scale of every pixel. Pixels that hardly ever change keep the
    scale 1, so that the scale is always finite and never blows one up."""
    mean = images.mean(axis=0)
    scale = 1.0 / np.maximum(images.std(axis=0), 1.0)
    return mean, scale


def shifted(images, rng):
    """The images, each moved by at most one pixel in both directions."""
    padded = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    rows, columns = rng.choice(3, size=(2, len(images)), p=(0.2, 0.6, 0.2))
    moved = [p[r:r + 8, c:c + 8] for p, r, c in zip(padded, rows, columns)]
    return np.reshape(moved, (-1, 64))


def initial(rng):
    tensors = {}
    for name, inputs, outputs in zip(WEIGHTS, SIZES[:-1], SIZES[1:]):
        tensors[name] = rng.normal(0.0, np.sqrt(2.0 / inputs), (outputs, inputs))
    tensors["hidden.0.bias"] = np.zeros(SIZES[1])
    tensors["head.bias"] = np.zeros(SIZES[3])
    return tensors


def gradients(p, x, labels):
    """Gradients of the mean cross entropy; x is already normalised."""
    a = np.maximum(x @ p["hidden.0.weight"].T + p["hidden.0.bias"], 0.0)
    b = np.maximum(a @ p["hidden.1.weight"].T, 0.0)
    y = b @ p["head.weight"].T + p["head.bias"]
    y = np.exp(y - y.max(axis=1, keepdims=True))
    dy = y / y.sum(axis=1, keepdims=True)
    dy[np.arange(len(labels)), labels] -= 1.0
    dy /= len(labels)
    db = (dy @ p["head.weight"]) * (b > 0.0)
    da = (db @ p["hidden.1.weight"]) * (a > 0.0)
    return {
        "head.weight": dy.T @ b,
        "head.bias": dy.sum(axis=0),
        "hidden.1.weight": db.T @ a,
        "hidden.0.weight": da.T @ x,
        "hidden.0.bias": da.sum(axis=0),
    }


def train(images, labels):
    """Adam with decoupled weight decay, in f64; the result is rounded to f32."""
    rng = np.random.default_rng(SEED)
    mean, scale = normalizer(images)
    p = initial(rng)
    first = {name: np.zeros_like(value) for name, value in p.items()}
    second = {name: np.zeros_like(value) for name, value in p.items()}
    step = 0
    for epoch in range(EPOCHS):
        rate = RATE * 0.5 * (1.0 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(images))
        x = (shifted(images, rng) - mean) * scale
        for begin in range(0, len(order), BATCH):
            batch = order[begin:begin + BATCH]
            step += 1
            for name, gradient in gradients(p, x[batch], labels[batch]).items():
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient ** 2
                move = first[name] / (1.0 - 0.9 ** step)
                move /= np.sqrt(second[name] / (1.0 - 0.999 ** step)) + 1e-8
                if name in WEIGHTS:
                    move = move + DECAY * p[name]
                p[name] = p[name] - rate * move
    p["normalize.mean"] = mean
    p["normalize.scale"] = scale
    return {name: np.ascontiguousarray(v, dtype="<f4") for name, v in p.items()}


def logits(p, pixels, dtype):
    t = {name: value.astype(dtype) for name, value in p.items()}
    x = (pixels.astype(dtype) - t["normalize.mean"]) * t["normalize.scale"]
    x = np.maximum(x @ t["hidden.0.weight"].T + t["hidden.0.bias"], dtype(0))
    x = np.maximum(x @ t["hidden.1.weight"].T, dtype(0))
    y = x @ t["head.weight"].T + t["head.bias"]
    assert y.dtype == dtype
    return y


class Normalize(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(SIZES[0]))
        self.register_buffer("scale", torch.ones(SIZES[0]))

    def forward(self, pixels):
        return (pixels - self.mean) * self.scale


class Digits(torch.nn.Module):
    """The network as a module of PyTorch. Its names are those of the files."""

    def __init__(self):
        super().__init__()
        self.normalize = Normalize()
        self.hidden = torch.nn.ModuleList([
            torch.nn.Linear(SIZES[0], SIZES[1]),
            torch.nn.Linear(SIZES[1], SIZES[2], bias=False)])
        self.head = torch.nn.Linear(SIZES[2], SIZES[3])

    def forward(self, pixels):
        x = self.normalize(pixels)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.head(x)


def write_pth(model, path):
    """Write the tensors of a safetensors file as PyTorch does."""
    tensors = {name: torch.from_numpy(value.copy()) for name, value in load_file(model).items()}
    net = Digits()
    net.load_state_dict(tensors, strict=True)
    torch.save(net.state_dict(), path)

    # From here on only what was written counts.
    written = torch.load(path, weights_only=True)
    assert written.keys() == tensors.keys()
    for name, value in written.items():
        assert value.dtype == torch.float32, name
        assert torch.equal(value.view(torch.int32), tensors[name].view(torch.int32)), name
    net = Digits()
    net.load_state_dict(written, strict=True)
    return net


def write_images(path, images, labels):
    """8-byte magic, u32 count, u32 pixels an image, pixels, labels."""
    pixels = images.astype(np.uint8)
    assert np.array_equal(pixels, images) and pixels.max() <= 16
    header = b"DIGITS1\n" + struct.pack("<II", *pixels.shape)
    path.write_bytes(header + pixels.tobytes() + labels.astype(np.uint8).tobytes())


def read_images(path):
    data = path.read_bytes()
    assert data[:8] == b"DIGITS1\n"
    count, pixels = struct.unpack_from("<II", data, 8)
    assert len(data) == 16 + count * (pixels + 1)
    values = np.frombuffer(data, np.uint8, offset=16)
    return values[:count * pixels].reshape(count, pixels), values[count * pixels:]


def report_pth(folder, test):
    net = write_pth(folder / "digits.safetensors", folder / "digits.pth")
    pixels, expected = read_images(test)
    with torch.no_grad():
        y = net(torch.from_numpy(pixels.astype(np.float32))).numpy()
    right = int((y.argmax(axis=1) == expected).sum())
    print(f"test accuracy of digits.pth in PyTorch: {right / len(expected):.6f} ({right} of {len(expected)})")


def main():
    arguments = sys.argv[1:]
    folder = pathlib.Path(__file__).parent
    if arguments and arguments[-1] != "--pth":
        folder = pathlib.Path(arguments[-1])
    model, test = folder / "digits.safetensors", folder / "digits-test.bin"
    if "--pth" in arguments:
        report_pth(folder, test)
        return

    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.25, random_state=SEED, stratify=labels)

    save_file(train(train_x, train_y), model, metadata={"format": "pt"})
    model.chmod(0o644)  # the library leaves its files private to their owner
    write_images(test, test_x, test_y)

    # From here on only what was written counts.
    tensors = load_file(model)
    pixels, expected = read_images(test)
    for name, value in sorted(tensors.items()):
        assert value.dtype == np.float32 and np.isfinite(value).all(), name
    y = logits(tensors, pixels, np.float32)
    right = int((y.argmax(axis=1) == expected).sum())
    exact = logits(tensors, pixels, np.float64)
    top = np.sort(exact, axis=1)
    print(f"trained on {len(train_x)} images, tested on {len(expected)}")
    print(f"test accuracy in f32: {right / len(expected):.6f} ({right} of {len(expected)})")
    print(f"largest difference of a logit, f32 to f64: {np.abs(y - exact).max():.1e}")
    print(f"smallest lead of a first logit over the second: {(top[:, -1] - top[:, -2]).min():.1e}")
    report_pth(folder, test)


if __name__ == "__main__":
    main()
