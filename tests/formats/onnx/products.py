"""Products of ONNX models: tensors of every type, storage and place, by the onnx package."""

import sys
import zlib
from pathlib import Path

import ml_dtypes  # noqa: F401: registers its dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, external_data_helper, helper, numpy_helper

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["onnx", "numpy", "ml_dtypes"]
PAGES = ["formats/onnx"]
COMPARED = ["metadata"]
FILES = 32
DTYPES = [name for name, number in TensorProto.DataType.items() if number]
NUMBERS = {"value_float": "FLOAT", "value_floats": "FLOAT", "value_int": "INT64", "value_ints": "INT64",
           "value_string": "STRING", "value_strings": "STRING"}
PLACES = ["initializer", "node's initializer", "sparse initializer", "Constant", *NUMBERS, "sparse_value", "attribute",
          "list attribute", "If", "If in If", "Loop", "list of graphs", "node without output", "node without names",
          "function", "function with overload", "function's default", "training"]
DIMENSIONS = {
    "data_type": ["FLOAT"] + [name for name in DTYPES if name != "FLOAT"],
    "storage": ["raw_data", "typed field", "one file", "aligned in one file", "a file each", "file without length",
                "file without offset", "file with checksum", "file in a folder"],
    "shape": [[3, 5], [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 32],
    "place": PLACES,
    "name": ["weight", "a.b", "a/b", "日本語", " x\n", "a\\b", "../up", "onnx::MatMul_12", "x" * 300],
    "members": [1, 0, 9, 101],
    "metadata_props": [{}, {"author": "Ä\n", "": "empty key", "license": ""}, {"long": "m" * 5000}],
    "texts": ["none", "model", "graph", "tensor", "properties of the graph", "properties of tensors"],
}
PACKED = {"UINT4": ("u4", 4), "INT4": ("i4", 4), "FLOAT4E2M1": ("f4_e2m1", 4), "FLOAT6E2M3": ("f6_e2m3", 6),
          "FLOAT6E3M2": ("f6_e3m2", 6)}
UNREAD = ("STRING", "UINT2", "INT2")  # stele has no such dtypes
SPECIAL = [0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF]


def possible(case):
    name, shape, place = case["data_type"], case["shape"], case["place"]
    outside = "file" in case["storage"]
    if place in NUMBERS:
        rank = 1 if place.endswith("s") else 0
        if name != NUMBERS[place] or case["storage"] != "typed field" or len(shape) != rank or "tensor" in case["texts"]:
            return False
    elif name == "STRING" and case["storage"] != "typed field":
        return False
    if name == "FLOAT8E8M0" and case["storage"] == "typed field" and 0 in shape:
        return False  # fails in the package
    if place.startswith("sparse") and (len(shape) != 1 or name == "STRING" or outside):
        return False
    return not (case["members"] > 9 and (case["storage"] == "a file each" or case["metadata_props"] or len(case["name"]) > 9))


def hides(case):
    return case["members"] == 0 or 0 in case["shape"] or case["data_type"] in UNREAD or case["place"].startswith("sparse")


def array_of(case, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    shape, name = case["shape"], case["data_type"]
    count, random = int(np.prod(shape)), np.random.default_rng(seed)
    if name == "STRING":
        return np.array([f"text {i}" for i in range(count)], object).reshape(shape)
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name))
    bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
    if dtype.itemsize == 8 and count > 6:
        bits[:48] = np.frombuffer(np.array(SPECIAL, "<u8").tobytes(), np.uint8)
    if name == "BOOL":
        bits &= 1
    if name in PACKED or name in UNREAD:  # an element is a byte in NumPy
        width = 2 if name in UNREAD else PACKED[name][1]
        bits &= 2**width - 1
        if name in ("INT4", "INT2"):
            bits = ((bits.astype(np.int8) << (8 - width)) >> (8 - width)).view(np.uint8)
    return bits.view(dtype).reshape(shape)


def tensor_of(case, name, number, files):
    """Returns a TensorProto; elements outside are written to files, next to `files`."""
    array, code = array_of(case, number), getattr(TensorProto, case["data_type"])
    if case["storage"] == "typed field":
        return typed(name, code, array)
    tensor = numpy_helper.from_array(array, name) if case["data_type"] != "BOOL" else helper.make_tensor(
        name, code, array.shape, array.tobytes(), raw=True)
    tensor.data_type = code
    if "file" in case["storage"]:
        store_outside(case["storage"], tensor, number, files)
    return tensor


def typed(name, code, array):
    """By the package's make_tensor, or as it would: it converts floats, which changes NaN."""
    field = helper.tensor_dtype_to_field(code)
    if code in (TensorProto.FLOAT8E8M0, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
                TensorProto.FLOAT8E5M2FNUZ):
        tensor = TensorProto(name=name, data_type=code, dims=array.shape)
        getattr(tensor, field).extend(array.view(np.uint8).ravel().tolist())
        return tensor
    return helper.make_tensor(name, code, array.shape, array)


def store_outside(storage, tensor, number, files):
    alone = storage in ("a file each", "file without length", "file without offset")
    location = f"{files.name}.data" + (f".{number}" if alone else "")
    if storage == "file in a folder":
        location = f"{files.name}.folder/Ä.data"
    path = files.parent / location
    path.parent.mkdir(exist_ok=True)
    path.touch()
    offset = None
    if storage == "aligned in one file":
        offset = -(-path.stat().st_size // 4096) * 4096
    external_data_helper.set_external_data(tensor, location, offset)
    external_data_helper.save_external_data(tensor, str(files.parent))
    if storage == "file with checksum":
        checksum = f"{zlib.crc32(tensor.raw_data):040x}"
        external_data_helper.set_external_data(tensor, location, *numbers_of(tensor), checksum=checksum)
    if storage in ("file without length", "file without offset"):
        external_data_helper.remove_external_data_field(tensor, storage.split()[-1])
    tensor.ClearField("raw_data")


def numbers_of(tensor):
    info = external_data_helper.ExternalDataInfo(tensor)
    return info.offset, info.length


def number_attribute(place, array):
    one = array.ravel().tolist()
    if place.startswith("value_string"):
        one = [text.encode() for text in one]
    return helper.make_attribute(place, one if place.endswith("s") else one[0],
                                 attr_type=getattr(AttributeProto, {"FLOAT": "FLOAT", "INT64": "INT", "STRING": "STRING"}[
                                     NUMBERS[place]] + ("S" if place.endswith("s") else "")))


def constant(name, tensor):
    return helper.make_node("Constant", [], [name], value=tensor)


def graph(nodes=(), initializers=(), name="g"):
    return helper.make_graph(list(nodes), name, [], [], list(initializers))


def model_of(case, files):
    place = case["place"]
    names = [case["name"] + (str(i) if i else "") for i in range(case["members"])]
    tensors = [] if place in NUMBERS else [tensor_of(case, name, i, files) for i, name in enumerate(names)]
    if case["texts"] == "tensor":
        for tensor in tensors:
            tensor.doc_string = "of a tensor"
    if case["texts"] == "properties of tensors":
        for tensor in tensors:
            tensor.metadata_props.add(key="k", value="v")
    main, functions = graph(), []
    constants = [constant(name, tensor) for name, tensor in zip(names, tensors)]
    match place:
        case "initializer":
            main = graph([], tensors)
        case "node's initializer":
            main = graph([helper.make_node("Identity", [name], [f"{i}"]) for i, name in enumerate(names)], tensors)
        case "sparse initializer" | "sparse_value":
            indices = numpy_helper.from_array(np.arange(*case["shape"], dtype=np.int64), "i")
            sparse = [helper.make_sparse_tensor(tensor, indices, [100]) for tensor in tensors]
            if place == "sparse_value":
                main = graph([helper.make_node("Constant", [], [name], sparse_value=one) for name, one in zip(names, sparse)])
            else:
                main.sparse_initializer.extend(sparse)
        case "Constant":
            main = graph(constants)
        case "attribute":
            main = graph([helper.make_node("ConstantOfShape", ["s"], [name], value=t) for name, t in zip(names, tensors)])
        case "list attribute":
            main = graph([helper.make_node("Own", [], ["y"], domain="own", list=tensors)] if tensors else [])
        case "If":
            main = graph([helper.make_node("If", ["c"], ["y"], then_branch=graph([], tensors), else_branch=graph())])
        case "If in If":
            inner = helper.make_node("If", ["c"], ["z"], then_branch=graph(), else_branch=graph(constants))
            main = graph([helper.make_node("If", ["c"], ["y"], then_branch=graph([inner]), else_branch=graph())])
        case "Loop":
            main = graph([helper.make_node("Loop", ["n", "c"], ["y"], body=graph(constants[1:], tensors[:1]))])
        case "list of graphs":
            main = graph([helper.make_node("Own", [], ["y"], domain="own", list=[graph(), graph([], tensors)])])
        case "node without output":
            main = graph([helper.make_node("Own", [], [], "the node", domain="own", body=graph([], tensors))])
        case "node without names":
            main = graph([helper.make_node("Own", [], [], domain="own", body=graph([], tensors))])
        case "function" | "function with overload":
            functions = [helper.make_function("own", "F", [], names[:1], constants, [helper.make_opsetid("", 21)],
                                              overload="over" if "overload" in place else None)]
        case "function's default":
            functions = [helper.make_function("own", "F", [], [], [], [helper.make_opsetid("", 21)], attribute_protos=[
                helper.make_attribute(name, tensor) for name, tensor in zip(names, tensors)])]
        case "training":
            pass
        case _:
            main = graph([])
            for i, name in enumerate(names):
                node = helper.make_node("Constant", [], [name])
                node.attribute.append(number_attribute(place, array_of(case, i)))
                main.node.append(node)
    model = helper.make_model(main, functions=functions, producer_name="onnx")
    if place == "training":
        model.training_info.add().initialization.CopyFrom(graph(constants[:1], tensors[1:]))
    return model


def write(case, path):
    files, path = path, path.with_suffix(".onnx")
    model = model_of(case, files)
    for key, value in case["metadata_props"].items():
        model.metadata_props.add(key=key, value=value)
    match case["texts"]:
        case "model":
            model.doc_string, model.domain, model.model_version = "a model", "org.example", 7
        case "graph":
            model.graph.doc_string = "of the graph"
        case "properties of the graph":
            model.graph.metadata_props.add(key="k", value="v")
    path.write_bytes(model.SerializeToString())
    return path, expected(case, path)


def expected(case, path):
    model = onnx.load(path, load_external_data=False)
    found = dict(tensors_of(model, path.parent))
    tensors = {name: value for name, value in found.items() if value is not None}
    nodes = [*model.graph.node, *(node for f in model.functions for node in f.node),
             *(node for t in model.training_info for node in t.initialization.node)]
    texts = case["texts"] in ("model", "graph", "properties of the graph") or "tensor" in case["texts"] and found
    return comparison.Expected(tensors, sorted(found.keys() - tensors.keys()),
                               {p.key: p.value for p in model.metadata_props}, lossy=bool(nodes or texts))


def content(tensor, folder):
    """Returns the package's array of a tensor; None: stele has no such dtype."""
    name = TensorProto.DataType.Name(tensor.data_type)
    if name in UNREAD:
        return None
    array = numpy_helper.to_array(tensor, str(folder))
    if name not in PACKED:
        return array
    dtype, width = PACKED[name]
    bits = np.unpackbits(array.view(np.uint8).reshape(-1, 1), axis=1, bitorder="little")[:, :width]
    return dtype, list(array.shape), np.packbits(bits, bitorder="little").tobytes()


def tensors_of(model, folder):
    """Yields the names of docs/formats/onnx.md, and the package's arrays."""
    yield from in_graph(model.graph, folder)
    for i, training in enumerate(model.training_info):
        yield from under(f"training_info.{i}.initialization", in_graph(training.initialization, folder))
    for function in model.functions:
        name = ".".join(filter(None, [function.domain, function.name, function.overload]))
        for node in function.node:
            yield from under(name, in_node(node, folder))
        for attribute in function.attribute_proto:
            yield from under(name, in_attribute(attribute, folder))


def under(prefix, tensors):
    for name, value in tensors:
        yield f"{prefix}.{name}" if name else prefix, value


def in_graph(part, folder):
    for tensor in part.initializer:
        yield tensor.name, content(tensor, folder)
    for sparse in part.sparse_initializer:
        yield sparse.values.name, None
    for node in part.node:
        yield from in_node(node, folder)


def in_node(node, folder):
    name = node.output[0] if node.output else node.name or node.op_type
    for attribute in node.attribute:
        if node.op_type != "Constant":
            yield from under(name, in_attribute(attribute, folder))
        elif attribute.name in NUMBERS:
            value = helper.get_attribute_value(attribute)
            kind = NUMBERS[attribute.name]
            yield name, None if kind == "STRING" else np.array(value, {"FLOAT": np.float32, "INT64": np.int64}[kind])
        else:
            yield name, content(attribute.t, folder) if attribute.HasField("t") else None


def in_attribute(attribute, folder):
    name = attribute.name
    if attribute.HasField("t"):
        yield name, content(attribute.t, folder)
    for i, tensor in enumerate(attribute.tensors):
        yield f"{name}.{i}", content(tensor, folder)
    if attribute.HasField("g"):
        yield from under(name, in_graph(attribute.g, folder))
    for i, part in enumerate(attribute.graphs):
        yield from under(f"{name}.{i}", in_graph(part, folder))


def read(path):
    model = onnx.load(path, load_external_data=False)
    return dict(tensors_of(model, path.parent))


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
