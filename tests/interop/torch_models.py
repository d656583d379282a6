#!/usr/bin/env python3
"""Small models, exported by PyTorch to ONNX, with inputs: for import.sh.

torch_models.py OUT NAME [--dynamo]    writes OUT/MODEL_NAME.onnx and .npz; --dynamo: by torch.export's exporter
torch_models.py OUT NAME --tiny ...    writes OUT/run_MODEL_NAME.onnx of a few KB and .npz, for tests/formats/onnx/data
torch_models.py OUT --expect           writes .safetensors for each OUT/run_*.onnx and .npz: inputs and results

Weights are random with a fixed seed. Each model is exported with fixed extents, and with a batch (and a length) that is
open. The inputs of a tiny model that is open have other extents than those it was exported with. --expect needs
onnxruntime and safetensors, and not torch: they can be in another environment. bert_transformers needs transformers.
"""
import importlib.util
import pathlib
import sys

import numpy


def expect(folder):
    import onnxruntime
    from safetensors.numpy import save_file
    for path in sorted(folder.glob("run_*.onnx")):
        with numpy.load(path.with_suffix(".npz")) as arrays:
            inputs = dict(arrays)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        try:
            results = session.run(names, inputs)
        except Exception as error:  # it has several kinds; an exporter may fix extents that were to be open
            print(f"not run: {path.name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            continue
        tensors = {f"in.{name}": value for name, value in inputs.items()}
        tensors |= {f"out.{name}": value for name, value in zip(names, results)}
        save_file({name: numpy.ascontiguousarray(value) for name, value in tensors.items()},
                  path.with_suffix(".safetensors"))


if "--expect" in sys.argv:
    expect(pathlib.Path(sys.argv[1]))
    sys.exit()

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
    def __init__(self, stages):
        super().__init__()
        before = first = stages[0][0]
        self.stem = nn.Sequential(nn.Conv2d(3, first, 7, 2, 3, bias=False), nn.BatchNorm2d(first), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        blocks = []
        for after, groups in stages:  # the third: depthwise, two kernels a channel
            blocks += [Block(before, after, 1 if after == first else 2, groups), Block(after, after, 1, groups)]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, 10)

    def forward(self, image):
        y = functional.adaptive_avg_pool2d(self.blocks(self.stem(image)), 1)
        return self.head(torch.flatten(y, 1))


class Attention(nn.Module):
    def __init__(self, width, heads, places, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("allowed", torch.tril(torch.ones(1, 1, places, places)).bool())

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
    def __init__(self, width, places, causal):
        super().__init__()
        self.causal = causal
        self.attention = Attention(width, 4, places, causal)
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
    def __init__(self, words, places, width):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.types, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, places, False) for _ in range(2)])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids, mask, kinds):
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        x = self.norm(self.words(ids) + self.places(places) + self.types(kinds))
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class TransformersBert(nn.Module):
    """BertModel of transformers, with random weights."""

    def __init__(self, words, places, width):
        import transformers
        super().__init__()
        config = transformers.BertConfig(vocab_size=words, max_position_embeddings=places, hidden_size=width,
                                         num_hidden_layers=2, num_attention_heads=4, intermediate_size=4 * width)
        self.bert = transformers.BertModel(config)

    def forward(self, ids, mask, kinds):
        return self.bert(ids, mask, kinds, return_dict=False)[:2]


class Gpt2Tiny(nn.Module):
    def __init__(self, words, places, width):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.layers = nn.ModuleList([Layer(width, places, True) for _ in range(2)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        places = torch.arange(0, ids.shape[1], dtype=torch.long, device=ids.device).unsqueeze(0)
        x = self.words(ids) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.words.weight.t()


class Tagger(nn.Module):
    def __init__(self, kind, words, width, hidden):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = kind(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 7)

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


FULL = {"stages": ((16, 1), (32, 4), (64, 32), (128, 8)), "image": 64, "words": 100, "places": 64, "width": 64,
        "tagger": (16, 24)}
TINY = {"stages": ((4, 1), (8, 2), (16, 8), (32, 8)), "image": 20, "words": 20, "places": 16, "width": 8,
        "tagger": (4, 6)}


def inputs_of(sizes, batch, length):
    """Returns the inputs by name."""
    ids = torch.randint(0, sizes["words"], (batch, length), generator=torch.Generator().manual_seed(2))
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1, length - 3:] = 0
    image = torch.randn(batch, 3, sizes["image"], sizes["image"], generator=torch.Generator().manual_seed(3))
    return {"ids": ids, "mask": mask, "kinds": 1 - mask, "image": image}


def models(sizes):
    """Yields a name, a function that makes the model, and the open axes of its inputs."""
    words, text, tagger = {0: "batch", 1: "length"}, (sizes["words"], sizes["places"], sizes["width"]), sizes["tagger"]
    yield "resnet18", lambda: ResNet18(sizes["stages"]), {"image": {0: "batch"}}
    yield "bert_tiny", lambda: BertTiny(*text), {n: words for n in ("ids", "mask", "kinds")}
    if importlib.util.find_spec("transformers") is not None and sizes is FULL:
        yield "bert_transformers", lambda: TransformersBert(*text), {n: words for n in ("ids", "mask", "kinds")}
    yield "gpt2_tiny", lambda: Gpt2Tiny(*text), {"ids": words}
    yield "lstm_tagger", lambda: Tagger(nn.LSTM, sizes["words"], *tagger), {"ids": words}
    yield "gru_tagger", lambda: Tagger(nn.GRU, sizes["words"], *tagger), {"ids": {0: "batch"}}
    yield "decoder", Decoder, {"image": {0: "batch"}}


def main():
    out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    dynamo, tiny = "--dynamo" in sys.argv, "--tiny" in sys.argv
    sizes = TINY if tiny else FULL
    out.mkdir(parents=True, exist_ok=True)
    for model_name, make, axes in models(sizes):
        if dynamo and model_name == "lstm_tagger":  # that exporter fixes the length
            axes = {"ids": {0: "batch"}}
        torch.manual_seed(1)
        model = make().eval()
        for module in model.modules():  # running means that are not 0
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        for kind, open_axes in (("", None), ("_open", axes)):
            inputs = {n: inputs_of(sizes, 2, 12)[n] for n in axes}
            path = out / f"{'run_' if tiny else ''}{model_name}{kind}_{name}.onnx"
            options = {"dynamic_axes": open_axes} if open_axes else {}
            if dynamo:
                options = {"dynamo": True, "external_data": False}
                if open_axes:
                    options["dynamic_shapes"] = {n: {i: torch.export.Dim(d) for i, d in a.items()}
                                                 for n, a in open_axes.items()}
            elif int(torch.__version__.split(".")[0]) >= 2:
                options["dynamo"] = False
            try:
                program = torch.onnx.export(model, tuple(inputs.values()), str(path), input_names=list(inputs),
                                            **options)
                if tiny and dynamo:  # without stack traces, which are most of the file
                    for thing in (program.model, program.model.graph, *program.model.graph.all_nodes()):
                        thing.metadata_props.clear()
                        for value in getattr(thing, "outputs", ()):
                            value.metadata_props.clear()
                    program.save(str(path), external_data=False)
            except Exception as error:  # the exporter's own
                print(f"not exported: {path.name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
                path.unlink(missing_ok=True)
                continue
            if open_axes:  # other extents than the exporter has seen
                inputs = {n: inputs_of(sizes, 3, 9 if 1 in a else 12)[n] for n, a in axes.items()}
            numpy.savez(path.with_suffix(".npz"), **{n: v.numpy() for n, v in inputs.items()})


main()
