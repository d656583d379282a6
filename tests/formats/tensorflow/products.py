"""Products of TensorFlow's checkpoints with names: by SaveV2, and by the Saver of TensorFlow 1."""

import base64
import itertools
import math
import os
import shutil
import sys
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
import ml_dtypes  # noqa: E402, F401: registers its dtypes
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.checkpoint.checkpoint_management import update_checkpoint_state_internal  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")
PACKAGES = ["tensorflow", "numpy", "ml_dtypes"]
PAGES = ["formats/tensorflow"]
COMPARED = ["metadata", "values", "annotations"]
NUMBERS = ["float32", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float64",
           "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
NARROW = ["int4", "uint4", "int2", "uint2"]  # read as integers of 8 bits
OPAQUE = ["qint8", "quint8", "qint16", "quint16", "qint32", "float8_e4m3b11fnuz", "float4_e2m1fn"]
UNASSIGNED = ["qint16", "quint16", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"]  # not by variables
SLOTS = {
    "none": None, "Adam": lambda: [v1.train.AdamOptimizer()], "Momentum": lambda: [v1.train.MomentumOptimizer(1.0, 0.9)],
    "Adagrad": lambda: [v1.train.AdagradOptimizer(1.0)], "Adadelta": lambda: [v1.train.AdadeltaOptimizer()],
    "AdagradDA": lambda: [v1.train.AdagradDAOptimizer(1.0, v1.train.get_or_create_global_step())],
    "Ftrl": lambda: [v1.train.FtrlOptimizer(1.0)], "RMSProp": lambda: [v1.train.RMSPropOptimizer(1.0)],
    "centered RMSProp": lambda: [v1.train.RMSPropOptimizer(1.0, centered=True)],
    "ProximalAdagrad": lambda: [v1.train.ProximalAdagradOptimizer(1.0)],
    "Adam twice": lambda: [v1.train.AdamOptimizer(), v1.train.AdamOptimizer()],
    "Adam and Momentum": lambda: [v1.train.AdamOptimizer(), v1.train.MomentumOptimizer(1.0, 0.9)],
    "named Mine": lambda: [v1.train.AdamOptimizer(name="Mine")],
    "moving average": lambda: [v1.train.ExponentialMovingAverage(0.9)],
}
DIMENSIONS = {
    "writer": ["SaveV2", "Saver", "Saver of resource variables"],
    "dtype": NUMBERS + NARROW + OPAQUE + ["string", "variant"],
    "shape": [[3, 5], [], [0], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 7 + [3], [1] * 64],
    "slices": ["none", "one", "rows", "columns", "uneven", "grid", "open"],
    "shards": [1, 2, 3],
    "name": ["weight", "a.b", "a/b", "日本語", "/a//b/", " \\x\n", "x" * 300, "w/Adam", "w/.ATTRIBUTES/table-keys",
             "w/.OPTIMIZER_SLOT/o/m/.ATTRIBUTES/VARIABLE_VALUE"],
    "members": [1, 9, 1001],
    "place": ["one .index", "checkpoint", "absolute path", "three kept", "variables"],
    "prefix": ["model", "日本 x'", "a.index", "sub/model"],
    "slots": list(SLOTS),
}
SPECIAL = [0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF]


def possible(case):
    shape, dtype = case["shape"], case["dtype"]
    if case["slices"] != "none":
        # An axis of TensorFlow's slices has elements; the names of slices end at 8 axes.
        if dtype in ("string", "variant") or not shape or 0 in shape or len(shape) > 8:
            return False
    if dtype == "string" and len(shape) > 32:
        return False  # crashes TensorFlow
    if dtype == "variant" and (case["members"] > 1 or shape or case["shards"] > 1):
        return False
    if case["members"] > 9 and (shape not in ([], [7]) or dtype != "float32" or case["writer"] != "SaveV2"
                                or case["place"] != "one .index"):
        return False
    if case["place"] == "variables" and case["prefix"] != "model" or case["place"] == "one .index" and "/" in case["prefix"]:
        return False
    if case["writer"] == "SaveV2":
        return case["slots"] == "none"
    if dtype in UNASSIGNED or dtype == "variant" or case["slices"] in ("uneven", "grid", "open"):
        return False
    if "resource" not in case["writer"] and (dtype in NARROW + OPAQUE or dtype.startswith("float8")) or len(shape) > 8:
        return False
    return case["slots"] == "none" or dtype == "float32" and case["name"] in ("weight", "a.b", "a/b") and case["shards"] == 1


def numbers(case, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    shape, name = case["shape"], case["dtype"]
    random = np.random.default_rng(seed)
    count = math.prod(shape)
    if name == "string":
        texts = [b"a", b"\xff\x00", "grün".encode(), b"", b"x" * 300, b"\"'\\\n"]
        return np.array([texts[(seed + i) % len(texts)] for i in range(count)], object).reshape(shape)
    dtype = np.dtype(tf.dtypes.as_dtype(name).as_numpy_dtype)
    bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
    if dtype.itemsize == 8 and count > 6:
        bits[:48] = np.frombuffer(np.array(SPECIAL, "<u8").tobytes(), np.uint8)
    if name in NARROW or name in ("bool", "float4_e2m1fn"):
        width = {"b": 1, "f": 4}.get(name[0]) or int(name[-1])
        bits &= (1 << width) - 1
        if name.startswith("int"):
            bits = (bits ^ (1 << width - 1)) - np.uint8(1 << width - 1)
    return bits.view(dtype).reshape(shape)


def tensor(case, seed):
    if case["dtype"] == "variant":
        made = tf.raw_ops.TensorListFromTensor(tensor=tf.constant(np.arange(6, dtype=np.float32).reshape(2, 3)), element_shape=[3])
        return tf.reshape(made, case["shape"])
    array = numbers(case, seed)
    if case["dtype"][0] == "q":
        of_bytes = tf.constant(array.view(array.dtype[0] if array.dtype.names else array.dtype))
        return tf.bitcast(of_bytes, tf.dtypes.as_dtype(case["dtype"]))
    return tf.constant(array)


def cuts(extent, parts):
    """Divide an axis: as many elements for each part as for the last, except that the first ones have one more."""
    ends = [extent * (i + 1) // parts for i in range(parts)]
    return [(begin, end - begin) for begin, end in zip([0] + ends, ends) if end > begin]


def boxes(case):
    """Return the slices of a tensor: for each axis the start and length, or None."""
    shape = case["shape"]
    longest = shape.index(max(shape)) if shape else 0
    whole = [[(0, n)] for n in shape]
    match case["slices"]:
        case "one":
            axes = whole
        case "rows" | "open":
            axes = [cuts(shape[0], 3), *whole[1:]]
            if case["slices"] == "open":
                axes[1:] = [[None]] * len(axes[1:])
        case "columns":
            axes = [*whole[:-1], cuts(shape[-1], 2)]
        case "uneven":
            n = shape[longest]
            axes = [[(0, 1), (1, n - 1)] if a == longest and n > 1 else [part] for a, (part,) in enumerate(whole)]
        case "grid":
            axes = [cuts(n, 2) for n in shape]
    return list(itertools.product(*axes))


def save(prefix, case, names, seed):
    """Save tensors by SaveV2, in several shards by MergeV2Checkpoints, as the Saver does; return the slices by name."""
    written = []  # name, its place, elements
    for i, name in enumerate(names):
        whole = tensor(case, seed + i)
        if case["slices"] == "none":
            written.append((name, "", whole))
            continue
        shape = case["shape"]
        for box in boxes(case):
            spec = " ".join(map(str, shape)) + " " + ":".join("-" if part is None else "{},{}".format(*part) for part in box)
            begin = [0 if part is None else part[0] for part in box]
            size = [n if part is None else part[1] for n, part in zip(shape, box)]
            view = tf.bitcast(whole, tf.dtypes.as_dtype(f"int{8 * whole.dtype.size}")) if whole.dtype.is_quantized else whole
            array = view.numpy()[tuple(slice(b, b + s) for b, s in zip(begin, size))]
            part = tf.constant(array)
            written.append((name, spec, tf.bitcast(part, whole.dtype) if whole.dtype.is_quantized else part))
    parts = [written[i::case["shards"]] for i in range(min(case["shards"], len(written)))]
    prefixes = [f"{prefix}_temp/part-{i}" for i in range(len(parts))] if len(parts) > 1 else [str(prefix)]
    for part, to in zip(parts, prefixes):
        tf.raw_ops.SaveV2(prefix=to, tensor_names=[p[0] for p in part], shape_and_slices=[p[1] for p in part],
                          tensors=[p[2] for p in part])
    if len(parts) > 1:
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(prefix))
    slices = {}
    for name, spec, _ in written:
        slices.setdefault(name, []).append(spec)
    return slices, set()


def partitioner(case):
    rank, count = len(case["shape"]), {"one": 1, "rows": 3, "columns": 2}.get(case["slices"])
    if count is None:
        return None
    axis = rank - 1 if case["slices"] == "columns" else 0
    return lambda shape, dtype: [min(count, n) if a == axis else 1 for a, n in enumerate(shape.as_list())]


def save_graph(prefix, case, names, seed):
    """Save variables by the Saver; return their slices by name, and the names of slots."""
    resource = "resource" in case["writer"]
    slots = set()
    with tf.Graph().as_default():
        variables = []
        for i, name in enumerate(names):
            own = name if case["slots"] != "none" else f"v{i}"
            with v1.device(f"/cpu:{i % case['shards']}"):
                variables.append(v1.get_variable(own, case["shape"], tf.dtypes.as_dtype(case["dtype"]), use_resource=resource,
                                                 initializer=v1.zeros_initializer() if case["slots"] != "none" else
                                                 lambda shape, dtype, partition_info=None: v1.placeholder(dtype, shape),
                                                 partitioner=partitioner(case)))
        if case["slots"] != "none":
            loss = sum(tf.reduce_sum(tf.convert_to_tensor(v)) for v in variables)
            for optimizer in SLOTS[case["slots"]]():
                if case["slots"] == "moving average":
                    optimizer.apply(v1.trainable_variables())
                    continue
                optimizer.minimize(loss)
                if case["slots"] != "named Mine":
                    slots |= {name_of(optimizer.get_slot(v, kind)) for v in v1.trainable_variables()
                              for kind in optimizer.get_slot_names()}
        saver = v1.train.Saver(None if case["slots"] != "none" else dict(zip(names, variables)), sharded=case["shards"] > 1)
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 3})) as session:
            for i, variable in enumerate(v1.global_variables()):
                made = case | {"shape": variable.shape.as_list()}
                assign(session, variable, numbers(made, seed + i) if variable.dtype.base_dtype.name == case["dtype"] else 7)
            saver.save(session, str(prefix), write_meta_graph=False, write_state=False)
        slices = {name: [part._get_save_slice_info().spec for part in variable] for name, variable in zip(names, variables)
                  if case["slices"] != "none"}
    return slices, slots


def name_of(variable):
    part = variable._get_save_slice_info()
    return variable.op.name if part is None else part.full_name


def assign(session, variable, value):
    session.run(variable.initializer, {variable.initializer.inputs[1]: value})


def write(case, path):
    path.mkdir()
    names = [case["name"] + (str(i) if i else "") for i in range(case["members"])]
    folder = path / "variables" if case["place"] == "variables" else path
    name = "variables" if case["place"] == "variables" else case["prefix"]
    kept = [f"{name}-{i}" for i in range(3)] if case["place"] == "three kept" else [name]
    for i, one in enumerate(kept):
        (folder / one).parent.mkdir(exist_ok=True)
        by = save if case["writer"] == "SaveV2" else save_graph
        slices, slots = by(folder / one, case, names, seed=100 * (len(kept) - 1 - i))
    if case["place"] not in ("one .index", "variables"):
        prefixes = [str(folder / one) for one in kept]
        update_checkpoint_state_internal(str(folder), prefixes[-1], prefixes, save_relative_paths=case["place"] != "absolute path")
    if case["place"] == "absolute path":  # as of a folder that was moved; the same bytes at each run
        state = folder / "checkpoint"
        state.write_text(state.read_text().replace(str(folder), "/checkpoints"))
    for rest in path.glob("**/*_temp"):
        shutil.rmtree(rest)
    return path, expected(str(folder / kept[-1]), slices, slots)


def path_of(name):
    """Return stele's path of a key that no graph of objects lists."""
    name = name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") or "\\e" for part in name.split("/"))


def value(item):
    if isinstance(item, list):
        return [value(one) for one in item]
    try:
        return item.decode()
    except UnicodeDecodeError:
        return {"$bytes": base64.b64encode(item).decode()}


def restored(reader, prefix, name, slices):
    """Read a tensor by TensorFlow, which joins slices of some dtypes only; of others, it reads each slice."""
    try:
        return reader.get_tensor(name)
    except ValueError:
        dtype = tf.dtypes.as_dtype(reader.get_variable_to_dtype_map()[name])
        array = np.zeros(reader.get_variable_to_shape_map()[name], dtype.as_numpy_dtype)
        for spec in slices[name]:
            (part,) = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=[name], shape_and_slices=[spec], dtypes=[dtype])
            place = [slice(None) if one == "-" else slice(int(one.split(",")[0]), sum(map(int, one.split(","))))
                     for one in spec.split(" ")[-1].split(":")]
            array[tuple(place)] = part.numpy()
        return array


def expected(prefix, slices, slots):
    """Read a checkpoint by TensorFlow."""
    reader = tf.train.load_checkpoint(prefix)
    out = comparison.Expected()
    for name, dtype in reader.get_variable_to_dtype_map().items():
        path, shape = path_of(name), reader.get_variable_to_shape_map()[name]
        if name in slots:
            out.lossy = True
            continue
        note = {path: {"tensorflow.dtype": "DT_" + dtype.name.upper()}}
        if dtype == tf.variant:  # TensorFlow has no arrays of these; its file has nothing else
            out.tensors[path] = ("opaque", shape, Path(f"{prefix}.data-00000-of-00001").read_bytes())
            out.annotations |= note
            continue
        array = restored(reader, prefix, name, slices)
        if dtype == tf.string:
            out.values[path] = value(array if isinstance(array, bytes) else array.tolist())
        elif dtype.name in NARROW:
            out.tensors[path] = array.astype("int8" if dtype.name[0] == "i" else "uint8")
            out.annotations |= note
        elif dtype.name in OPAQUE:
            out.tensors[path] = ("opaque", shape, array.tobytes())
            out.annotations |= note
        else:
            out.tensors[path] = np.asarray(array)
    return out


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
