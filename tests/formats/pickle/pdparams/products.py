"""Products of the pickles of paddle.save: .pdparams and .pdopt, by PaddlePaddle."""

import collections
import math
import os
import sys
import warnings
from pathlib import Path

os.environ["GLOG_minloglevel"] = "2"
import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle.framework import io, io_utils  # noqa: E402

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / "paddle" / "interop"), str(HERE.parents[2] / "products")]
import comparison  # noqa: E402
from paddle_files import DTYPES, described  # noqa: E402

warnings.simplefilter("ignore")
PACKAGES = ["paddlepaddle", "numpy"]
PAGES = ["formats/pickle"]
COMPARED = ["values", "annotations"]
FILES = 20
OPTIMIZERS = {"SGD": {}, "Momentum": {"momentum": 0.5}, "Adam": {}, "AdamW": {"multi_precision": True}}
DIMENSIONS = {
    "saved by Paddle": ["state_dict", "OrderedDict", "tensors in containers", "one tensor", "list", *OPTIMIZERS],
    "dtype of Paddle": list(DTYPES),
    "protocol": [4, 3, 2],
    "shape": [[3, 5], [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 9],
    "key": ["weight", "a.b", "a/b", "日本語", "", " ", "a\\b", "k" * 300, "0"],
    "parameter": ["its key", "linear_0.w_0", "日本語"],
    "members": [1, 0, 9, 101],
    "slices": ["none", "of 63 bytes"],
    "rate": ["number", "scheduler"],
}
NAMELESS = ("one tensor", "list")


def possible(case):
    saved = case["saved by Paddle"]
    return all([
        saved not in NAMELESS or case["key"] == "weight" and case["slices"] == "none",
        saved != "one tensor" or case["members"] == 1,
        saved not in OPTIMIZERS or case["key"] == "weight" and case["parameter"] != "its key" and case["members"] == 1
        and case["dtype of Paddle"] in ("f32", "f64") and 0 not in case["shape"] and case["shape"],
        saved in OPTIMIZERS or case["rate"] == "number",
        case["slices"] == "none" or case["protocol"] < 4 and saved not in ("tensors in containers", "list"),
    ])


def hides(case):
    return case["members"] == 0 or 0 in case["shape"]


def tensor_of(case, i, key):
    """Random bits, with NaN payloads and denormals among them."""
    name, numpy = DTYPES[case["dtype of Paddle"]]
    dtype = np.dtype(numpy)
    bits = np.random.default_rng(i).integers(0, 256, math.prod(case["shape"]) * dtype.itemsize, np.uint8)
    array = (bits & 1 if name == "bool" else bits).view(dtype).reshape(case["shape"])
    tensor = paddle.to_tensor(array)
    if name.startswith("float8"):
        tensor = tensor.reshape([-1]).view(name).reshape(case["shape"]) if array.size else tensor.astype(name)
    tensor.name = key if case["parameter"] == "its key" else case["parameter"] + str(i)
    return tensor


def optimizer(case):
    """The state of an optimizer after one step."""
    weight = paddle.create_parameter(case["shape"], DTYPES[case["dtype of Paddle"]][0], name=case["parameter"],
                                     default_initializer=paddle.nn.initializer.Constant(0.5))
    rate = paddle.optimizer.lr.StepDecay(0.125, 3) if case["rate"] == "scheduler" else 0.125
    made = getattr(paddle.optimizer, case["saved by Paddle"])(rate, parameters=[weight], **OPTIMIZERS[case["saved by Paddle"]])
    weight.grad = paddle.ones_like(weight) * 2
    made.step()
    return made.state_dict()


def content(case):
    saved = case["saved by Paddle"]
    if saved in OPTIMIZERS:
        return optimizer(case)
    keys = [case["key"] + (str(i) if i else "") for i in range(case["members"])]
    tensors = {key: tensor_of(case, i, key) for i, key in enumerate(keys)}
    match saved:
        case "OrderedDict":
            return collections.OrderedDict(tensors)
        case "tensors in containers":
            return {"outer": [tensors, {}, 3, "x"], "epoch": 2, "rates": [0.5, None], "first": tuple(tensors.values())}
        case "one tensor":
            return tensors["weight"]
        case "list":
            return list(tensors.values())
    return tensors


def sliced(saved, protocol):
    """io_utils._unpack_saved_dict with slices of at most 63 bytes instead of 2^30 - 1, which files of gigabytes have."""
    table = {}
    for key, value in list(saved.items()):
        size = max(1, 63 // value.dtype.itemsize) if isinstance(value, np.ndarray) else 0
        if not size or value.size <= size:
            continue
        keys = [f"{key}@@.{i}" for i in range(math.ceil(value.size / size))]
        table[key] = {"OriginShape": value.shape, "slices": keys}
        flat = saved.pop(key).flatten()
        saved |= {part: flat[i * size:(i + 1) * size] for i, part in enumerate(keys)}
    if table:
        saved["UnpackBigParamInfor@@"] = table
    return saved


def write(case, path):
    path = path.with_suffix(".pdopt" if case["saved by Paddle"] in OPTIMIZERS else ".pdparams")
    io._unpack_saved_dict = sliced if case["slices"] != "none" else io_utils._unpack_saved_dict
    with paddle.utils.unique_name.guard():
        paddle.save(content(case), str(path), protocol=case["protocol"])
        loaded = paddle.load(str(path))
    tensors, values, names = {}, {}, {}
    flat(path.stem if isinstance(loaded, paddle.Tensor) else "", loaded, tensors, values, names)
    in_table = isinstance(loaded, dict) and "StructuredToParameterName@@" in paddle.load(str(path), keep_name_table=True)
    notes = {key: {"paddle.name": name} for key, name in names.items() if not in_table or name != key}
    return path, comparison.Expected(tensors, values=values, annotations=notes)


def flat(prefix, item, tensors, values, names):
    """Add the tensors, values and names of parameters of nested containers by their paths."""
    if isinstance(item, (paddle.Tensor, np.ndarray)):
        tensors[prefix] = bits_of(item)
        if isinstance(item, paddle.Tensor):
            names[prefix] = item.name
        return
    table = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, (list, tuple)) else ()
    below, rest, named = {}, {}, {}
    for key, value in table:
        flat(f"{prefix}.{key}" if prefix else str(key), value, below, rest, named)
    if below or not prefix or isinstance(item, dict) and item:
        tensors |= below
        values |= rest
        names |= named
    else:
        values[prefix] = list(item) if isinstance(item, tuple) else item


def bits_of(item):
    if isinstance(item, np.ndarray):
        return item
    dtype, shape, data = described(item.value().get_tensor()).split(" ")[:3]
    return dtype, [] if shape == "scalar" else [int(n) for n in shape.split("x")], b"" if data == "-" else bytes.fromhex(data)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
