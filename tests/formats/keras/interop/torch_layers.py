"""Runs the models of keras_files.py in PyTorch, with the tensors that stele converted.

    torch_layers.py FOLDER    reads NAME.safetensors and NAME.npz (inputs, Keras' predictions), compares; then writes
                              NAME_torch.safetensors with other numbers, and PyTorch's predictions to NAME_torch.npz

Needs only torch and numpy, of any version: Debian's torch 1.13 is enough.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn


def load(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
    return {name: torch.from_numpy(np.frombuffer(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]],
                                                 types[t["dtype"]]).reshape(t["shape"]).copy())
            for name, t in header.items() if not name.startswith("optimizer")}


def save(tensors, path):
    header, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.numpy().tobytes()
        kind = {"float32": "F32", "int64": "I64"}[str(tensor.numpy().dtype)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.batch_normalization = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, eps=1e-3)
        self.dense, self.out = nn.Linear(8, 3), nn.Linear(3, 2)

    def forward(self, x):
        x = self.batch_normalization(self.first(x.permute(0, 3, 1, 2)))
        return self.out(torch.relu(self.dense(x.permute(0, 2, 3, 1).flatten(1))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise_conv2d = nn.Conv2d(2, 4, 2, groups=2)
        self.conv2d_transpose = nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.layer_normalization = nn.LayerNorm(3, eps=1e-5)
        self.dense_1 = nn.Linear(192, 2, bias=False)

    def forward(self, x):
        x = self.conv2d_transpose(self.depthwise_conv2d(x.permute(0, 3, 1, 2)))
        return self.dense_1(self.layer_normalization(x.permute(0, 2, 3, 1)).flatten(1))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.embedding, self.conv1d = Encoder(), nn.Embedding(7, 3), nn.Conv1d(3, 3, 2)
        self.lstm, self.gru = nn.LSTM(3, 2, batch_first=True), nn.GRU(2, 2, batch_first=True)
        self.dense_2 = nn.Linear(4, 2)

    def forward(self, picture, words):
        z = self.conv1d(self.embedding(words).transpose(1, 2)).transpose(1, 2)
        z = self.gru(self.lstm(z)[0])[0][:, -1]
        return self.dense_2(torch.cat([self.encoder(picture), z], 1))


def main(folder):
    for name, model in {"conv": Conv(), "nested": Nested()}.items():
        tensors = {key.replace("head\\.out", "out"): value for key, value in load(folder / f"{name}.safetensors").items()}
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        assert all(key.endswith("num_batches_tracked") for key in missing) and not unexpected, (missing, unexpected)
        arrays = np.load(folder / f"{name}.npz")
        inputs = [torch.from_numpy(arrays[key]) for key in sorted(arrays) if key.startswith("input")]
        model.eval()
        with torch.no_grad():
            worst = np.abs(model(*inputs).numpy() - arrays["expected"]).max()
            assert worst < 1e-5, worst
            print(f"{name}: PyTorch {torch.__version__} predicts the same (largest difference {worst:.1e})")
            torch.manual_seed(4)
            for parameter in [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]:
                parameter.copy_(torch.rand_like(parameter) * 0.5)
            np.savez(folder / f"{name}_torch.npz", expected=model(*inputs).numpy())
        save({key.replace("out.", "head\\.out.") if key.startswith("out.") else key: value
              for key, value in model.state_dict().items()}, folder / f"{name}_torch.safetensors")


main(Path(sys.argv[1]))
