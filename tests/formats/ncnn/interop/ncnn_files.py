"""Models of ncnn.

    ncnn_files.py make FOLDER    writes the golden files of tests/formats/ncnn/data
    ncnn_files.py check STELE    compares what the command reads with PyTorch's tensors and with ncnn

`net` and `sequence` are converted by pnnx. `layers` has layers that pnnx does not write: this script writes them, and
ncnn loads the file. After each layer, a MemoryData layer has known numbers, which ncnn returns only if it finds the
same places.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ncnn
import numpy as np
import pnnx
import torch
from torch import nn

F32, F16, I8, BOOK, RAW, PACKED = 0x0002C056, 0x01306B47, 0x000D4B38, 1, None, "packed"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.dw = nn.Conv2d(8, 8, (3, 5), groups=8, bias=False, padding=(1, 2))
        self.act = nn.PReLU(8)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.gn = nn.GroupNorm(2, 6)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 5)
        self.ln = nn.LayerNorm(5)
        self.scale = nn.Parameter(torch.rand(1, 5))

    def forward(self, x):
        x = self.act(self.dw(torch.sigmoid(self.conv(x))))
        x = self.bn(torch.relu(self.gn(self.up(x)))).mean((2, 3))
        return self.ln(self.fc(x)) * self.scale


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 4, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 6, batch_first=True)
        self.rnn = nn.RNN(6, 4, batch_first=True)
        self.att = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x, _ = self.lstm(self.embed(x))
        x, _ = self.gru(x)
        x, _ = self.rnn(x)
        return self.att(x, x, x)[0]


def models():
    torch.manual_seed(1)
    net, sequence = Net().eval(), Sequence().eval()
    net.bn.running_mean.uniform_()
    net.bn.running_var.uniform_(1, 2)
    return {"net": (net, torch.rand(1, 3, 8, 8), False), "sequence": (sequence, torch.randint(0, 10, (1, 7)), True)}


class Writer:
    """Writes a .param and a .bin file; remembers the tensors that a reader finds."""

    def __init__(self):
        self.lines, self.bytes, self.tensors, self.marks = [], b"", {}, {}
        self.random = np.random.default_rng(1)

    def blob(self, kind, shape):
        """Append an array of random numbers, and return it as a reader returns it."""
        count = int(np.prod(shape))
        if kind == BOOK:
            book = self.random.random(256, np.float32)
            indexes = self.random.integers(0, 256, count, np.uint8)
            head, data, stored = BOOK.to_bytes(4, "little") + book.tobytes(), book[indexes], indexes
        else:
            dtype = {F16: np.float16, I8: np.int8, PACKED: np.uint8}.get(kind, np.float32)
            data = (self.random.integers(0, 64, count) / (1 if kind in (I8, PACKED) else 8)).astype(dtype)
            head, stored = b"" if kind in (RAW, PACKED) else kind.to_bytes(4, "little"), data
        raw = stored.tobytes()
        self.bytes += head + raw + b"\0" * (-len(raw) % 4)
        return data.reshape(shape)

    def layer(self, type_, attributes, blobs, mark=True):
        name = f"l{len(self.lines)}"
        self.lines.append(f"{type_} {name} 1 1 in0 {name} {attributes}".rstrip())
        for part, kind, shape in blobs:
            self.tensors[f"{name}.{part}"] = self.blob(kind, shape)
        if mark:
            self.memory("0=2", RAW, (2,))

    def memory(self, attributes, kind, shape):
        name = f"m{len(self.lines)}"
        self.lines.append(f"MemoryData {name} 0 1 {name} {attributes}")
        self.tensors[f"{name}.data"] = self.marks[name] = self.blob(kind, shape)

    def save(self, path):
        lines = ["Input in0 0 1 in0", *self.lines]
        path.with_suffix(".param").write_text(f"7767517\n{len(lines)} {len(lines)}\n" + "\n".join(lines) + "\n")
        path.with_suffix(".bin").write_bytes(self.bytes)


def layers():
    w = Writer()
    scales = [("weight_int8_scales", RAW, (4,)), ("bottom_blob_int8_scales", RAW, (1,))]
    top = [("top_blob_int8_scales", RAW, (1,))]
    conv, bias = [("weight", I8, (4, 2, 3, 3))], [("bias", RAW, (4,))]
    w.layer("Convolution", "0=4 1=3 5=1 6=72 8=2", conv + bias + scales)
    w.layer("Convolution", "0=4 1=3 6=72 8=102", conv + scales + top)
    w.layer("Convolution", "0=4 1=3 19=1", [])
    depth = [("weight", I8, (4, 1, 1, 3))]
    w.layer("ConvolutionDepthWise", "0=4 1=3 11=1 5=1 6=12 7=4 8=1", depth + bias + scales)
    one = [("weight_int8_scales", RAW, (1,)), ("bottom_blob_int8_scales", RAW, (1,))]
    w.layer("ConvolutionDepthWise", "0=4 1=3 11=1 6=12 7=4 8=102", depth + one + top)
    w.layer("InnerProduct", "0=4 1=1 2=20 8=2", [("weight", I8, (4, 5))] + bias + scales)
    w.layer("InnerProduct", "0=4 2=20", [("weight", BOOK, (4, 5))])
    w.layer("Convolution1D", "0=4 1=3 5=1 6=24", [("weight", F16, (4, 2, 3))] + bias)
    w.layer("ConvolutionDepthWise1D", "0=4 1=3 6=12 7=4", [("weight", F32, (4, 1, 3))])
    w.layer("Convolution3D", "0=4 1=3 11=2 21=1 5=1 6=48", [("weight", F32, (4, 2, 1, 2, 3))] + bias)
    w.layer("ConvolutionDepthWise3D", "0=4 1=1 6=4 7=4", [("weight", F16, (4, 1, 1, 1, 1))])
    w.layer("Deconvolution", "0=4 1=2 5=1 6=32 28=0", [("weight", F32, (4, 2, 2, 2))] + bias)
    w.layer("Deconvolution1D", "0=4 1=2 6=16", [("weight", F32, (4, 2, 2))])
    w.layer("Deconvolution3D", "0=4 1=1 6=8", [("weight", F32, (4, 2, 1, 1, 1))])
    w.layer("DeconvolutionDepthWise", "0=4 1=2 6=16 7=4", [("weight", F32, (4, 1, 2, 2))])
    w.layer("DeconvolutionDepthWise1D", "0=4 1=2 6=8 7=4", [("weight", F32, (4, 1, 2))])
    w.layer("DeconvolutionDepthWise3D", "0=4 1=1 6=4 7=4", [("weight", F32, (4, 1, 1, 1, 1))])
    w.layer("DeformableConv2D", "0=4 1=1 5=1 6=8", [("weight", F16, (4, 2, 1, 1))] + bias)
    w.layer("Embed", "0=3 1=5 2=1 3=15 18=1",
            [("weight", I8, (5, 3)), ("bias", RAW, (3,)), ("weight_int8_scale", RAW, (1,))])
    w.layer("BatchNorm", "0=3 1=0.001", [(n, RAW, (3,)) for n in ("slope", "mean", "var", "bias")])
    w.layer("Bias", "0=3", [("bias", RAW, (3,))])
    w.layer("Scale", "0=3 1=1", [("scale", RAW, (3,)), ("bias", RAW, (3,))])
    w.layer("Scale", "0=-233", [])
    w.layer("PReLU", "0=3", [("slope", RAW, (3,))])
    w.layer("Normalize", "0=1 1=1 3=1", [("scale", RAW, (1,))])
    w.layer("Padding", "0=1 6=2", [("per_channel_pad", RAW, (2,))])
    norm = [("gamma", RAW, (3,)), ("beta", RAW, (3,))]
    w.layer("GroupNorm", "0=1 1=3", norm)
    w.layer("InstanceNorm", "0=3", norm)
    w.layer("LayerNorm", "0=3", norm)
    w.layer("LayerNorm", "0=3 2=0", [])
    w.layer("RMSNorm", "0=3", norm[:1])
    w.layer("Quantize", "0=2", [("scale", RAW, (2,))])
    w.layer("Dequantize", "0=2 1=2", [("scale", RAW, (2,)), ("bias", RAW, (2,))])
    w.layer("Requantize", "0=2 1=1 2=2", [("scale_in", RAW, (2,)), ("scale_out", RAW, (1,)), ("bias", RAW, (2,))])
    w.layer("RNN", "0=2 1=6",
            [("weight_xc", F32, (1, 2, 3)), ("bias_c", F32, (1, 1, 2)), ("weight_hc", F32, (1, 2, 2))])
    w.layer("GRU", "0=2 1=36 2=2",
            [("weight_xc", F16, (2, 6, 3)), ("bias_c", F16, (2, 4, 2)), ("weight_hc", F16, (2, 6, 2))])
    w.layer("LSTM", "0=2 1=36 3=3 8=2",
            [("weight_xc", I8, (1, 12, 3)), ("bias_c", F32, (1, 4, 3)), ("weight_hc", I8, (1, 12, 2)),
             ("weight_hr", F32, (1, 2, 3)), ("weight_xc_int8_scales", RAW, (1, 12)),
             ("weight_hc_int8_scales", RAW, (1, 12))])
    attention = [("q", 4, 4), ("k", 4, 3), ("v", 4, 2), ("out", 4, 4)]
    parts = [p for n, a, b in attention for p in ((f"{n}_weight", I8, (a, b)), (f"{n}_bias", RAW, (a,)))]
    w.layer("MultiHeadAttention", "0=4 1=2 2=16 3=3 4=2 18=2",
            parts + [(f"{n}_weight_int8_scales", RAW, (4,)) for n in "qkv"] + [("out_weight_int8_scale", RAW, (1,))])
    parts = [p for n, a, b in attention
             for p in ((f"{n}_weight_packed", PACKED, (a, (b * 6 + 7) // 8)), (f"{n}_bias", RAW, (a,)))]
    w.layer("MultiHeadAttention", "0=4 1=2 2=16 3=3 4=2 18=610",
            parts + [(f"{n}_weight_quantize_scales", RAW, (a, 1)) for n, a, b in attention]
            + [(f"{n}_weight_input_scales", RAW, (b,)) for n, a, b in attention])
    w.layer("Gemm", "3=1 5=1 6=1 8=4 9=6 10=4", [("B", F16, (4, 6)), ("C", F32, (1, 4))])
    w.layer("Gemm", "2=1 4=1 5=1 7=3 8=4 9=6 18=2",
            [("A", I8, (6, 3)), ("B", I8, (6, 4)), ("A_int8_scales", RAW, (3,)), ("B_int8_scale", RAW, (1,))])
    w.layer("Gemm", "3=1 5=1 8=4 9=70 18=401",
            [("B_packed", PACKED, (4, 35)), ("B_quantize_scales", RAW, (4, 2))])
    w.memory("0=3 21=0", F32, (3,))
    w.memory("0=5 21=0", F16, (5,))
    w.memory("0=4 1=3 21=0", BOOK, (3, 4))
    w.memory("0=4 1=3 2=2", RAW, (2, 3, 4))
    w.memory("0=4 1=3 2=2 11=2 21=0", 0, (2, 2, 3, 4))
    return w


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (model, inputs, half) in models().items():
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / f"{name}.pt"
            pnnx.export(model, str(path), (inputs,), fp16=half, check_trace=False)
            for ending in (".param", ".bin"):
                (folder / (name + ".ncnn" + ending)).write_bytes((path.parent / (name + ".ncnn" + ending)).read_bytes())
    layers().save(folder / "layers")


def load(path):
    net = ncnn.Net()
    net.opt.use_vulkan_compute = net.opt.use_packing_layout = False
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    if net.load_param(str(path) + ".param") != 0 or net.load_model(str(path) + ".bin") != 0:
        sys.exit(f"{path}: ncnn does not load it")
    return net


def expected(name, model):
    """Return the tensors of the converted model by the names of pnnx's layers."""
    state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    if name == "net":
        out = {"scale.data": state["scale"].reshape(5)}
        for layer, module, parts in (
                ("convsigmoid_0", "conv", ("weight", "bias")), ("convdw_10", "dw", ("weight",)),
                ("deconv_4", "up", ("weight", "bias")), ("linear_7", "fc", ("weight", "bias"))):
            out |= {f"{layer}.{p}": state[f"{module}.{p}"] for p in parts}
        out["deconv_4.weight"] = out["deconv_4.weight"].transpose(1, 0, 2, 3)
        out["prelu_8.slope"] = state["act.weight"]
        for layer, module in (("gn_5", "gn"), ("ln_6", "ln")):
            out |= {f"{layer}.gamma": state[f"{module}.weight"], f"{layer}.beta": state[f"{module}.bias"]}
        for part, key in (("slope", "weight"), ("mean", "running_mean"), ("var", "running_var"), ("bias", "bias")):
            out[f"bn_2.{part}"] = state[f"bn.{key}"]
        return out
    out = {"embed": state["embed.weight"], "rnn_xc": state["rnn.weight_ih_l0"], "rnn_hc": state["rnn.weight_hh_l0"],
           "q": state["att.in_proj_weight"][:4], "v": state["att.in_proj_weight"][8:],
           "out": state["att.out_proj.weight"], "out_bias": state["att.out_proj.bias"]}
    return out


def tensors(stele, path):
    out = path.with_suffix(".npz")
    subprocess.run([stele, "convert", str(path), str(out), "--quiet"], check=True)
    with np.load(out) as file:
        return {k: file[k] for k in file.files if not k.startswith("__")}


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for name, (model, inputs, _) in models().items():
            read = tensors(stele, folder / f"{name}.ncnn.param")
            other = tensors(stele, folder / f"{name}.ncnn.bin")
            if read.keys() != other.keys():
                sys.exit(f"{name}: the two files of the pair differ")
            net = load(folder / f"{name}.ncnn")
            with torch.no_grad():
                wanted = model(inputs)[0].numpy()
            extractor = net.create_extractor()
            source = inputs[0].numpy()
            extractor.input("in0", ncnn.Mat(source.astype(np.int32) if source.dtype == np.int64 else source))
            np.testing.assert_allclose(np.array(extractor.extract("out0")[1]).ravel(), wanted.ravel(), atol=5e-3)
            if name == "net":
                known = expected(name, model)
                if read.keys() != known.keys():
                    sys.exit(f"{name}: names: {sorted(read.keys() ^ known.keys())}")
                for key, value in known.items():
                    np.testing.assert_array_equal(read[key], value, key)
            else:
                values = [v.reshape(-1) for v in read.values() if v.dtype == np.float16]
                for key, value in expected(name, model).items():
                    half = value.astype(np.float16).reshape(-1)
                    if key == "out_bias":
                        continue
                    if not any(v.shape == half.shape and (v == half).all() for v in values):
                        sys.exit(f"{name}: no tensor has the values of {key}")
            print(f"{name}: {len(read)} tensors, equal to PyTorch's; ncnn computes the same")
        made = layers()
        read = tensors(stele, folder / "layers.param")
        if list(sorted(read)) != sorted(made.tensors):
            sys.exit(f"layers: names: {sorted(read.keys() ^ made.tensors.keys())}")
        for key, value in made.tensors.items():
            if read[key].dtype != value.dtype:
                sys.exit(f"layers: {key}: {read[key].dtype} instead of {value.dtype}")
            np.testing.assert_array_equal(read[key], value, key)
        net = load(folder / "layers")
        for key, value in made.marks.items():
            found = np.array(net.create_extractor().extract(key)[1])
            np.testing.assert_array_equal(found.ravel(), value.astype(np.float32).ravel(), key)
        print(f"layers: {len(read)} tensors; ncnn finds {len(made.marks)} marks at the same places")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
