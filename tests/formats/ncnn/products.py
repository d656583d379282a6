"""Products of ncnn's models, by ncnn: its layers ask for their arrays, and its reader decodes them."""

import ctypes
import sys
from pathlib import Path

import ncnn
import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["ncnn", "numpy"]
PAGES = ["formats/ncnn"]
FILES = 24
RAW, PACKED = "raw", "packed"
TAGS = {"float32": 0x0002C056, "no tag": 0, "float16": 0x01306B47, "int8": 0x000D4B38, "codebook": 0x12345678}


def convolution(axes, depth_wise=False, more="", scales=()):
    """Return a rule of a convolution: outputs, kernel, bias, elements, groups; the numbers of attributes are ncnn's."""
    def rule(o, i, bias):
        kernel = {1: (3,), 2: (2, 3), 3: (2, 2, 3)}[axes]
        shape = (o, 1 if depth_wise else i, *kernel)
        text = f"0={o} 1=3" + (" 11=2" if axes > 1 else "") + (" 21=2" if axes > 2 else "")
        text += f" 5={bias} 6={np.prod(shape)}" + (f" 7={o}" if depth_wise else "") + more
        return text, [("weight", "", shape), *[("bias", RAW, (o,))] * bias, *[(n, RAW, (size or o,)) for n, size in scales]]
    return rule


def affine(text, *names):
    return lambda o, i, bias: (text.format(o=o, i=i), [(name, RAW, (o,)) for name in names])


def recurrent(gates, biases, directions=1, hidden=None, int8=False):
    def rule(o, i, bias):
        h = hidden or o
        d, rows = directions, h * gates
        arrays = [("weight_xc", "", (d, rows, i)), ("bias_c", "", (d, biases, h)), ("weight_hc", "", (d, rows, o))]
        arrays += [("weight_hr", "", (d, o, h))] * (h != o)
        if int8:
            arrays += [("weight_xc_int8_scales", RAW, (d, rows)), ("weight_hc_int8_scales", RAW, (d, rows))]
        text = f"0={o} 1={d * rows * i} 2={2 if d == 2 else 0}" + (f" 3={h}" if hidden else "") + " 8=2" * int8
        return text, arrays
    return rule


def attention(term):
    def rule(o, i, bias):
        e, k, v = 4 * o, 2 * i, 3 * i
        bits = term // 100
        arrays = []
        for name, a, b in (("q", e, e), ("k", e, k), ("v", e, v), ("out", e, e)):
            arrays.append((f"{name}_weight_packed", PACKED, (a, (b * bits + 7) // 8)) if bits else (f"{name}_weight", "", (a, b)))
            arrays.append((f"{name}_bias", RAW, (a,)))
        if term == 2:
            arrays += [(f"{n}_weight_int8_scales", RAW, (e,)) for n in "qkv"] + [("out_weight_int8_scale", RAW, (1,))]
        if bits:
            size = 32 << term % 10
            sizes = [("q", e), ("k", k), ("v", v), ("out", e)]
            arrays += [(f"{n}_weight_quantize_scales", RAW, (e, -(-b // size))) for n, b in sizes]
            arrays += [(f"{n}_weight_input_scales", RAW, (b,)) for n, b in sizes] * (term // 10 % 10)
        return f"0={e} 1=2 2={e * e} 3={k} 4={v}" + f" 18={term}" * (term > 0), arrays
    return rule


def gemm(term, form):
    def rule(o, i, bias):
        m, n, k = i + 2, o, 7 * i
        if form == "B":
            bits, size = term // 100, 32 << term % 10
            arrays = [("B_packed", PACKED, (n, (k * bits + 7) // 8))] if bits else [("B", "", (n, k))]
            arrays += [("C", "", (1, n))] * bias
            if bits:
                arrays += [("B_quantize_scales", RAW, (n, -(-k // size)))]
                arrays += [("B_input_scales", RAW, (k,))] * (term // 10 % 10)
            return f"3=1 5=1 6={bias} 8={n} 9={k} 10={4 if bias else -1}" + f" 18={term}" * (term > 0), arrays
        arrays = [("A", "", (k, m) if form == "AT" else (m, k)), ("B", "", (k, n))] + [("C", "", (m, n))] * bias
        arrays += [("A_int8_scales", RAW, (m,)), ("B_int8_scale", RAW, (1,))] * (term == 2)
        return f"2={int(form == 'AT')} 4=1 5=1 6={bias} 7={m} 8={n} 9={k} 10={3 if bias else -1}" + f" 18={term}" * (term > 0), arrays
    return rule


def memory(axes, tagged):
    def rule(o, i, bias):
        shape = (i, 2, 3, o)[-axes:]
        ids = dict(zip((0, 1, 2) if axes < 4 else (0, 1, 11, 2), reversed(shape)))
        text = " ".join(f"{key}={extent}" for key, extent in ids.items())
        return text + " 21=0" * tagged, [("data", "" if tagged else RAW, shape)]
    return rule


SCALES = (("weight_int8_scales", 0), ("bottom_blob_int8_scales", 1))
TOP = (("top_blob_int8_scales", 1),)
LAYERS = {
    "Convolution": convolution(2), "Convolution 8=2": convolution(2, more=" 8=2", scales=SCALES),
    "Convolution 8=102": convolution(2, more=" 8=102", scales=SCALES + TOP),
    "Convolution 19=1": lambda o, i, bias: (f"0={o} 1=3 19=1", []),
    "ConvolutionDepthWise": convolution(2, True), "ConvolutionDepthWise 8=1": convolution(2, True, " 8=1", SCALES),
    "ConvolutionDepthWise 8=102": convolution(2, True, " 8=102", (("weight_int8_scales", 1), SCALES[1]) + TOP),
    "Convolution1D": convolution(1), "Convolution3D": convolution(3), "ConvolutionDepthWise1D": convolution(1, True),
    "ConvolutionDepthWise3D": convolution(3, True), "Deconvolution": convolution(2), "Deconvolution1D": convolution(1),
    "Deconvolution3D": convolution(3), "DeconvolutionDepthWise": convolution(2, True),
    "DeconvolutionDepthWise1D": convolution(1, True), "DeconvolutionDepthWise3D": convolution(3, True),
    "DeformableConv2D": convolution(2),
    "InnerProduct": lambda o, i, bias: (f"0={o} 1={bias} 2={o * i}", [("weight", "", (o, i)), *[("bias", RAW, (o,))] * bias]),
    "InnerProduct 8=2": lambda o, i, bias: (f"0={o} 1={bias} 2={o * i} 8=2", [
        ("weight", "", (o, i)), *[("bias", RAW, (o,))] * bias, *[(n, RAW, (size or o,)) for n, size in SCALES]]),
    "Embed": lambda o, i, bias: (f"0={o} 1={i} 2={bias} 3={o * i}", [("weight", "", (i, o)), *[("bias", RAW, (o,))] * bias]),
    "Embed 18=1": lambda o, i, bias: (f"0={o} 1={i} 2={bias} 3={o * i} 18=1", [
        ("weight", "", (i, o)), *[("bias", RAW, (o,))] * bias, ("weight_int8_scale", RAW, (1,))]),
    "BatchNorm": affine("0={o}", "slope", "mean", "var", "bias"), "Bias": affine("0={o}", "bias"),
    "Scale": affine("0={o} 1=1", "scale", "bias"), "PReLU": affine("0={o}", "slope"), "Normalize": affine("3={o}", "scale"),
    "Padding": affine("0=1 6={o}", "per_channel_pad"), "GroupNorm": affine("0=1 1={o}", "gamma", "beta"),
    "InstanceNorm": affine("0={o}", "gamma", "beta"), "LayerNorm": affine("0={o}", "gamma", "beta"),
    "LayerNorm 2=0": affine("0={o} 2=0"), "RMSNorm": affine("0={o}", "gamma"), "Quantize": affine("0={o}", "scale"),
    "Dequantize": affine("0={o} 1={o}", "scale", "bias"),
    "Requantize": affine("0={o} 1={o} 2={o}", "scale_in", "scale_out", "bias"),
    "RNN": recurrent(1, 1), "GRU": recurrent(3, 4), "GRU 2=2": recurrent(3, 4, 2), "LSTM": recurrent(4, 4),
    "LSTM 3=3": recurrent(4, 4, hidden=3), "LSTM 8=2": recurrent(4, 4, int8=True), "LSTM 2=2": recurrent(4, 4, 2),
    "MultiHeadAttention": attention(0), "MultiHeadAttention 18=2": attention(2), "MultiHeadAttention 18=610": attention(610),
    "MultiHeadAttention 18=401": attention(401), "MultiHeadAttention 18=802": attention(802),
    "Gemm": gemm(0, "B"), "Gemm 4=1": gemm(0, "A"), "Gemm 2=1": gemm(0, "AT"), "Gemm 18=2": gemm(2, "AT"),
    "Gemm 18=400": gemm(400, "B"), "Gemm 18=611": gemm(611, "B"), "Gemm 18=802": gemm(802, "B"),
    "MemoryData": memory(1, False), "MemoryData 2 axes": memory(2, False), "MemoryData 21=0": memory(1, True),
    "MemoryData 3 axes 21=0": memory(3, True), "MemoryData 4 axes 21=0": memory(4, True),
    "ReLU": affine("0=0.1"), "OwnLayer": affine("0={o}", "weight"),
}
DIMENSIONS = {
    "layer": list(LAYERS),
    "tag": list(TAGS),
    "extents": [[4, 2], [1, 1], [7, 3], [33, 5]],
    "bias": [1, 0],
    "name": ["conv1", "a.b", "a/b", "日本語", "..", "x" * 255],
    "members": [1, 0, 9, 101],
    "opened": [".param", ".bin"],
}


def possible(case):
    plain = not any(kind == "" for _, kind, _ in LAYERS[case["layer"]](4, 2, 0)[1])
    return not plain or case["tag"] == "float32"


def hides(case):
    return case["members"] == 0 or case["layer"] in ("ReLU", "OwnLayer", "Convolution 19=1", "LayerNorm 2=0")


def array(kind, shape, random):
    """Return the bytes of an array of random numbers."""
    count = int(np.prod(shape))
    if kind in ("int8", PACKED):
        data = random.integers(0, 256, count, np.uint8).tobytes()
    elif kind == "codebook":
        data = random.standard_normal(256, np.float32).tobytes() + random.integers(0, 256, count, np.uint8).tobytes()
    else:
        data = (random.standard_normal(count) * 10.0 ** random.integers(-7, 4, count)).astype(
            "float16" if kind == "float16" else "float32").tobytes()
    head = b"" if kind in (RAW, PACKED) else TAGS[kind].to_bytes(4, "little")
    return head + data + b"\0" * (-len(data) % 4)


class Bytes(ncnn.DataReader):
    """Gives ncnn the bytes of a file."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    def __init__(self, data):
        super().__init__()
        self.data, self.at = data, 0

    def read(self, to, size):
        part = self.data[self.at:self.at + size]
        ctypes.memmove(self.address(to, None), part, len(part))
        self.at += len(part)
        return len(part)


class Arrays(ncnn.ModelBin):
    """Remembers the arrays that a layer reads."""

    def __init__(self, file):
        super().__init__()
        self.file, self.found = ncnn.ModelBinFromDataReader(file), []

    def load(self, *arguments):
        mat = self.file.load(*arguments)
        self.found.append(np.array(mat))
        return mat


def arrays_of(kind, text, reader):
    """Return the arrays that ncnn's layer reads."""
    layer, parameters, arrays = ncnn.create_layer(kind), ncnn.ParamDict(), Arrays(reader)
    for one in text.split():
        key, value = one.split("=")
        parameters.set(int(key), float(value) if "." in value else int(value))
    if layer.load_param(parameters) != 0 or layer.load_model(arrays) != 0:
        raise ValueError(f"ncnn refuses {kind} {text}")
    return arrays.found


def write(case, path):
    random = np.random.default_rng(1)
    kind = case["layer"].split()[0]
    text, parts = LAYERS[case["layer"]](*case["extents"], case["bias"])
    lines, names, data = ["Input in0 0 1 in0"], [], b""
    for i in range(case["members"]):
        names.append(case["name"][:255 - (3 if i else 0)] + (str(i) if i else ""))
        lines.append(f"{kind} {names[-1]} 1 1 in0 out{i} {text}")
        for _, stored, shape in parts:
            data += array(stored or case["tag"], shape, random)
    path.with_suffix(".param").write_text(f"7767517\n{len(lines)} {len(lines)}\n" + "\n".join(lines) + "\n", encoding="utf-8")
    path.with_suffix(".bin").write_bytes(data)
    path = path.with_suffix(case["opened"])
    if kind == "OwnLayer":  # ncnn knows it as little
        return path, comparison.Expected(unread=names[:1])
    reader, tensors = Bytes(data), {}
    for name in names:
        for (part, stored, shape), found in zip(parts, arrays_of(kind, text, reader), strict=True):
            if found.size != np.prod(shape):
                raise ValueError(f"{kind} {part}: ncnn reads {found.shape}")
            exact = "float16" if (stored or case["tag"]) == "float16" else "uint8" if stored == PACKED else found.dtype
            tensors[f"{name}.{part}"] = found.reshape(shape).view(exact) if stored == PACKED else found.reshape(shape).astype(exact)
    if reader.at != len(data):
        raise ValueError(f"{kind} {text}: ncnn leaves {len(data) - reader.at} bytes")
    return path, comparison.Expected(tensors)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
