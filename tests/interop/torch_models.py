#!/usr/bin/env python3
"""Small models, exported by PyTorch to ONNX, with inputs: for import.sh.

torch_models.py OUT NAME [--dynamo]    writes OUT/MODEL_NAME.onnx and .npz; --dynamo: by torch.export's exporter

Weights are random with a fixed seed. Each model is exported with fixed extents, and with a batch (and a length) that is
open.
"""
import pathlib
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block; groups == channels is a depthwise convolution."""

    def __init__(self, before, after, stride, groups):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, groups=groups, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, groups=after if groups == before else groups, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.skip = nn.Sequential()
        if stride != 1 or before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.skip(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, before = [], 16
        for after, groups in ((16, 1), (32, 4), (64, 32), (128, 8)):
            blocks += [Block(before, after, 1 if after == 16 else 2, groups), Block(after, after, 1, groups)]
            before = after
        blocks[4] = Block(32, 64, 2, 32)  # depthwise, two kernels a channel
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(128, 10)

    def forward(self, image):
        y = functional.adaptive_avg_pool2d(self.blocks(self.stem(image)), 1)
        return self.head(torch.flatten(y, 1))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("allowed", torch.tril(torch.ones(64, 64)).bool().view(1, 1, 64, 64))

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        if self.causal:
            scores = scores.masked_fill(~self.allowed[:, :, :length, :length], float("-inf"))
        if mask is not None:
            scores = scores + (1 - mask[:, None, None, :].to(scores.dtype)) * -10000.0
        y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.causal = causal
        self.attention = Attention(width, 4, causal)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        gelu = functional.gelu
        if self.causal:
            x = x + self.attention(self.first_norm(x), mask)
            h = self.up(self.second_norm(x))
            return x + self.down(0.5 * h * (1 + torch.tanh(0.7978845608028654 * (h + 0.044715 * torch.pow(h, 3.0)))))
        x = self.first_norm(x + self.attention(x, mask))
        return self.second_norm(x + self.down(gelu(self.up(x))))


class BertTiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.types = nn.Embedding(100, 64), nn.Embedding(64, 64), nn.Embedding(2, 64)
        self.norm = nn.LayerNorm(64)
        self.layers = nn.ModuleList([Layer(64, False) for _ in range(2)])
        self.pooler = nn.Linear(64, 64)

    def forward(self, ids, mask, kinds):
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        x = self.norm(self.words(ids) + self.places(places) + self.types(kinds))
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Gpt2Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Embedding(64, 64)
        self.layers = nn.ModuleList([Layer(64, True) for _ in range(2)])
        self.norm = nn.LayerNorm(64)

    def forward(self, ids):
        places = torch.arange(0, ids.shape[1], dtype=torch.long, device=ids.device).unsqueeze(0)
        x = self.words(ids) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.words.weight.t()


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.encoder = kind(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 7)

    def forward(self, ids):
        return functional.log_softmax(self.head(self.encoder(self.words(ids))[0]), dim=-1)


class Decoder(nn.Module):
    """What image models have besides: transposed convolutions, interpolation, other norms and activations."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, padding=(1, 2), dilation=1, padding_mode="reflect")
        self.group, self.instance = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1, groups=2)
        self.slope, self.shuffle = nn.PReLU(8), nn.PixelShuffle(2)

    def forward(self, image):
        y = functional.hardswish(self.group(self.down(image)))
        y = functional.silu(self.instance(self.up(y)))
        y = functional.interpolate(self.slope(y), scale_factor=2, mode="bilinear", align_corners=False)
        y = functional.interpolate(y, scale_factor=0.5, mode="nearest")
        y = functional.avg_pool2d(functional.pad(y, (1, 0, 2, 1)), 3, 2, ceil_mode=True)
        return self.shuffle(y).clamp(-1, 1)


def models():
    ids = torch.randint(0, 100, (2, 12), generator=torch.Generator().manual_seed(2))
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    image = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    words = {0: "batch", 1: "length"}
    yield "resnet18", ResNet18, {"image": image}, {"image": {0: "batch"}}
    yield "bert_tiny", BertTiny, {"ids": ids, "mask": mask, "kinds": 1 - mask}, {n: words for n in ("ids", "mask", "kinds")}
    yield "gpt2_tiny", Gpt2Tiny, {"ids": ids}, {"ids": words}
    yield "lstm_tagger", lambda: Tagger(nn.LSTM), {"ids": ids}, {"ids": words}
    yield "gru_tagger", lambda: Tagger(nn.GRU), {"ids": ids}, {"ids": {0: "batch"}}
    yield "decoder", Decoder, {"image": image}, {"image": {0: "batch"}}


def main():
    out, name, dynamo = pathlib.Path(sys.argv[1]), sys.argv[2], "--dynamo" in sys.argv
    out.mkdir(parents=True, exist_ok=True)
    for model_name, make, inputs, axes in models():
        torch.manual_seed(1)
        model = make().eval()
        for module in model.modules():  # running means that are not 0
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        for kind, open_axes in (("", None), ("_open", axes)):
            path = out / f"{model_name}{kind}_{name}.onnx"
            options = {"dynamic_axes": open_axes} if open_axes else {}
            if dynamo:
                options = {"dynamo": True, "external_data": False}
                if open_axes:
                    options["dynamic_shapes"] = {n: {i: torch.export.Dim(d) for i, d in a.items()}
                                                 for n, a in open_axes.items()}
            elif int(torch.__version__.split(".")[0]) >= 2:
                options["dynamo"] = False
            try:
                torch.onnx.export(model, tuple(inputs.values()), str(path), input_names=list(inputs), **options)
            except Exception as error:  # the exporter's own
                print(f"not exported: {path.name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
                path.unlink(missing_ok=True)
                continue
            numpy.savez(path.with_suffix(".npz"), **{n: v.numpy() for n, v in inputs.items()})


main()
