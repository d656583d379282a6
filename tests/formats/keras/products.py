"""Products of HDF5 files, by h5py."""

import ctypes
import functools
import json
import math
import sys
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["h5py", "numpy", "ml_dtypes"]
PAGES = ["formats/keras"]
COMPARED = ["metadata", "values"]
NUMBERS = ["<f4", "bool", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", ">u8", "<f2", ">f2", ">f4", "<f8", ">f8"]
COMPLEX = ["<c8", ">c8", "<c16", "native <c8", "native >c16"]
OPAQUE = ["bfloat16", "float8_e4m3fn", "float8_e8m0fnu"]
TEXTS = ["S3", "S3 spaces", "text", "ascii text"]
OTHERS = ["longdouble", "record of 1", "record of 2", "record of 9", "integers r, i", "halves r, i", "V3", "bfloat16 without name",
          "array", "vlen", "reference", "region", "24 bits", "bit field"]
FEW_FILTERS = [[], ["deflate"], ["shuffle", "lzf", "fletcher32"]]
UNKNOWN = ("scale-offset", "n-bit")
DIMENSIONS = {
    "libver": ["earliest", "v108", "v110", "v200"],
    "dtype": NUMBERS + COMPLEX + ["enum"] + OPAQUE + TEXTS + OTHERS,
    "datatype": ["own", "named"],
    "shape": [[7, 10], "null", [], [0], [1], [7], [3, 0, 2], [2, 3, 4, 5], [1] * 32, [2200], [3, 1]],
    "storage": ["contiguous", "compact", "chunks", "external", "virtual"],
    "chunks": ["whole", "cut", "of one element"],
    "maxshape": ["same", "larger", "first", "last", "all"],
    "resized": ["no", "grown", "shrunk"],
    "allocation": ["late", "early", "incremental"],
    "filters": [[], ["deflate"], ["shuffle", "deflate"], ["deflate", "shuffle"], ["fletcher32"], ["fletcher32", "deflate"],
                ["fletcher32", "shuffle"], ["lzf"], ["shuffle", "lzf", "fletcher32"], ["deflate", "lzf"], ["scale-offset"], ["n-bit"]],
    "edge chunks": ["filtered", "plain"],
    "filter mask": ["none", "all", "first"],
    "elements": ["all", "part", "none"],
    "fill value": ["default", "given", "undefined"],
    "group": ["root", "default", "compact", "dense", "compact ordered", "dense ordered"],
    "members": [1, 0, 9, 40],
    "name": ["weight", "a.b", "a\\b", "日本語", "0", " x\n", "..", "a@b", "x" * 300],
    "attributes": ["none", "scalars", "lists", "dense", "large", "2-D", "empty", "others", "names", "of the root"],
    "links": ["none", "hard", "soft", "dangling", "external", "to a group", "cycle", "named datatype"],
    "user block": [0, 512, 2048],
}
OF_ELEMENTS = ("maxshape", "resized", "edge chunks", "filter mask", "elements", "fill value")
LIBRARY = ctypes.CDLL(next(Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*")))
COLOURS = {"RED": 0, "BLUE": 1}


def possible(case):
    shape, dtype, chunked = case["shape"], case["dtype"], case["storage"] == "chunks"
    filters = case["filters"]
    if not chunked and (case["chunks"] != "whole" or case["maxshape"] != "same" or filters or case["edge chunks"] != "filtered"):
        return False
    if shape in ("null", []) and (chunked or case["storage"] in ("external", "virtual")):
        return False
    if shape == "null" and case["storage"] == "compact":
        return False
    if chunked and 0 in shape and case["maxshape"] in ("same", "first", "last"):
        return False  # a chunk has at most the extents of the dataset's maximum size
    if chunked and case["maxshape"] == "same" and case["resized"] != "no" or not chunked and case["resized"] != "no":
        return False
    if case["storage"] == "external" and dtype not in NUMBERS or case["storage"] == "virtual" and (
            dtype not in NUMBERS or case["libver"] == "earliest"):
        return False
    if case["storage"] == "compact" and case["allocation"] != "early":
        return False  # HDF5 fixes it
    if case["storage"] in ("external", "virtual") and (case["allocation"] != "late" or case["datatype"] == "named"):
        return False
    if dtype not in NUMBERS and filters not in FEW_FILTERS[:2 if dtype in TEXTS + OTHERS else 3]:
        return False  # the others treat bytes alike
    if set(filters) & set(UNKNOWN) and (dtype == "bool" or dtype.endswith("f2")):
        return False
    if case["edge chunks"] == "plain" and (not filters or case["libver"] in ("earliest", "v108")):
        return False
    if case["filter mask"] != "none" and (dtype not in NUMBERS or case["edge chunks"] == "plain" or case["elements"] != "all" or
                                          len(filters) < (2 if case["filter mask"] == "first" else 1) or
                                          set(filters) & set(UNKNOWN) or 0 in shape):
        return False
    if case["elements"] == "part" and (shape in ("null", []) or 0 in shape):
        return False
    unread = [dtype in OTHERS, case["storage"] in ("external", "virtual"), case["datatype"] == "named", shape == "null",
              bool(set(filters) & set(UNKNOWN)), "deflate" in filters and "lzf" in filters, dtype in TEXTS and chunked]
    if sum(unread) > 1 or any(unread) and any(case[name] != DIMENSIONS[name][0] for name in OF_ELEMENTS):
        return False  # elements that are not read prove nothing else
    if case["edge chunks"] == "plain" and case["resized"] != "no" and case["elements"] == "none":
        return False  # HDF5 2.0.0 fails: "incorrect metadata checksum"
    plain = dtype in NUMBERS + COMPLEX
    if case["elements"] != "all" and (not plain or case["fill value"] == "undefined"):
        return False
    if case["fill value"] != "default" and (not plain or shape == "null"):
        return False
    if case["members"] == 0 and case["name"] != "weight":
        return False
    if case["attributes"] == "large" and case["libver"] == "earliest":
        return False
    if dtype in ("reference", "region", "vlen") and case["fill value"] != "default":
        return False
    if case["links"] == "hard" and case["group"] == "root" and case["name"] > "z":
        return False  # a tie has its attributes under the first of its names
    return case["links"] == "none" or case["members"] != 0 or case["links"] in ("dangling", "external", "named datatype")


@functools.cache
def numpy_type(name):
    """Return the dtype in NumPy, and the type in HDF5, if h5py does not derive it."""
    match name:
        case "record of 1" | "record of 2" | "record of 9":
            return np.dtype([(f"m{i}", "<f4") for i in range(int(name[-1]))]), None
        case "integers r, i":
            return np.dtype([("r", "<i4"), ("i", "<i4")]), None
        case "halves r, i":
            return np.dtype([("r", "<f2"), ("i", "<f2")]), None
        case "array":
            return np.dtype(("<f4", 3)), None
        case "enum":
            return h5py.enum_dtype(COLOURS, "<i2"), None
        case "vlen":
            return h5py.vlen_dtype("<i4"), None
        case "reference":
            return h5py.ref_dtype, None
        case "region":
            return h5py.regionref_dtype, None
        case "text":
            return h5py.string_dtype(), None
        case "ascii text":
            return h5py.string_dtype("ascii"), None
        case "S3 spaces":
            made = h5py.h5t.C_S1.copy()
            made.set_size(3)
            made.set_strpad(h5py.h5t.STR_SPACEPAD)
            return np.dtype("S3"), made
        case "24 bits":
            made = h5py.h5t.STD_I32LE.copy()
            made.set_precision(24)
            return np.dtype("<i4"), made
        case "bit field":
            return np.dtype("u1"), h5py.h5t.STD_B8LE.copy()
        case "native <c8":
            return np.dtype("<c8"), h5py.h5t.COMPLEX_IEEE_F32LE
        case "native >c16":
            return np.dtype(">c16"), h5py.h5t.COMPLEX_IEEE_F64BE
        case "bfloat16 without name":
            return np.dtype(ml_dtypes.bfloat16), None
        case _:
            return np.dtype(name), None


def values(case, shape, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    name = case["dtype"]
    dtype = numpy_type(name)[0]
    count = int(np.prod(shape))
    random = np.random.default_rng(seed)
    if name in TEXTS:
        texts = ["", "a", "bc ", "xyz", "é" if name == "text" else "e"] if name != "S3 spaces" else ["", "a", "xyz"]
        flat = [texts[i % len(texts)] for i in random.integers(0, 60, count)]
        return np.array(flat, object if name.endswith("text") else "S3").reshape(shape)
    if name in ("bool", "enum"):
        return random.integers(0, 2, count).astype(dtype).reshape(shape)
    if name == "24 bits":
        return random.integers(-2**23, 2**23, count).astype(dtype).reshape(shape)
    if dtype.kind == "O" or name == "longdouble":
        return np.zeros(shape, dtype)
    bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
    special = np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000], "<u8").view("u1")
    if dtype.itemsize == 8 and bits.size > special.size:
        bits[:special.size] = special
    return bits.view(dtype.base).reshape([*shape, *dtype.shape])


def settings(case, shape, dtype, chunk, filters):
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_obj_track_times(False)
    if case["storage"] == "compact":
        made.set_layout(h5py.h5d.COMPACT)
    if case["storage"] == "external":
        made.set_external(b"/nowhere/other.raw", 0, h5py.h5f.UNLIMITED)
    if chunk:
        made.set_chunk(tuple(chunk))
        for name in filters:
            match name:
                case "deflate":
                    made.set_deflate(4)
                case "shuffle":
                    made.set_shuffle()
                case "fletcher32":
                    made.set_fletcher32()
                case "lzf":
                    made.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
                case "scale-offset":
                    made.set_scaleoffset(h5py.h5z.SO_INT if dtype.kind in "iu" else h5py.h5z.SO_FLOAT_DSCALE, 2)
                case "n-bit":
                    assert LIBRARY.H5Pset_nbit(ctypes.c_int64(made.id)) >= 0
        if case["edge chunks"] == "plain":  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS
            assert LIBRARY.H5Pset_chunk_opts(ctypes.c_int64(made.id), ctypes.c_uint(2)) >= 0
    times = {"early": h5py.h5d.ALLOC_TIME_EARLY, "late": h5py.h5d.ALLOC_TIME_LATE, "incremental": h5py.h5d.ALLOC_TIME_INCR}
    made.set_alloc_time(times[case["allocation"]])
    if case["fill value"] == "given":
        made.set_fill_value(values(case, [1], 99).reshape(()))
    elif case["fill value"] == "undefined":
        assert LIBRARY.H5Pset_fill_value(ctypes.c_int64(made.id), ctypes.c_int64(h5py.h5t.py_create(dtype).id), None) >= 0
    return made


def add(file, group, name, case, seed):
    shape = case["shape"]
    dtype, made = numpy_type(case["dtype"])
    made = made or h5py.h5t.py_create(dtype, logical=True)
    array = None if shape == "null" else values(case, shape, seed)
    if case["storage"] == "virtual":
        layout = h5py.VirtualLayout(tuple(shape), dtype)
        if array.size:
            layout[...] = h5py.VirtualSource("/nowhere/other.h5", "x", tuple(shape))
        group.create_virtual_dataset(name, layout)
        return
    if case["datatype"] == "named":
        key = f"type of {name}".encode()
        made = made.copy()
        made.commit(file.id, key, h5py.h5p.create(h5py.h5p.LINK_CREATE))
    chunk = None
    begin = shape
    if case["storage"] == "chunks":
        chunk = [1 if case["chunks"] == "of one element" else max(n, 1) if case["chunks"] == "whole" else n // 3 + 1 for n in shape]
        if case["resized"] != "no":
            free = [i < 4 if case["maxshape"] in ("all", "larger") else i == (0 if case["maxshape"] == "first" else len(shape) - 1)
                    for i in range(len(shape))]
            begin = [n if not f else n // 2 if case["resized"] == "grown" else n + 3 for n, f in zip(shape, free)]
    if shape == "null":
        space = h5py.h5s.create(h5py.h5s.NULL)
    elif not shape:
        space = h5py.h5s.create(h5py.h5s.SCALAR)
    else:
        most = {"same": shape, "larger": [n + 5 if i < 4 else n for i, n in enumerate(shape)], "all": [None] * len(shape), "first": [None, *shape[1:]],
                "last": [*shape[:-1], None]}[case["maxshape"]]
        space = h5py.h5s.create_simple(tuple(begin), tuple(h5py.h5s.UNLIMITED if n is None else n for n in most))
    properties = settings(case, begin, dtype, chunk, case["filters"])
    dataset = h5py.Dataset(h5py.h5d.create(group.id, name.encode(), made, space, properties))
    if case["dtype"] in OPAQUE:
        dataset.attrs["dtype"] = case["dtype"]
    if shape == "null" or case["storage"] == "external":
        return
    if case["resized"] != "no" and case["elements"] != "none":
        if 0 not in begin and case["dtype"] not in ("reference", "region", "vlen"):
            dataset[...] = values(case, begin, seed + 1000)
        dataset.resize(tuple(shape))
    elif case["resized"] != "no":
        dataset.resize(tuple(shape))
    if not array.size:
        return
    if case["elements"] == "all":
        if case["dtype"] in ("reference", "region", "vlen"):
            pass
        elif case["dtype"] in ("bit field", "V3", "bfloat16 without name", *OPAQUE):
            dataset.id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(array), dataset.id.get_type())
        else:
            dataset[...] = array
    elif case["elements"] == "part":
        half = tuple(slice((n + 1) // 2) for n in shape)
        dataset[half] = array[half]
    if case["filter mask"] != "none":
        mask_chunk(case, dataset, dtype, chunk)


def mask_chunk(case, dataset, dtype, chunk):
    """Write the first chunk again without some filters, as the mask of its filters says."""
    every = case["filter mask"] == "all"
    rest = [] if every else case["filters"][1:]
    padded = np.zeros(chunk, dtype)
    inside = tuple(slice(min(n, c)) for n, c in zip(dataset.shape, chunk))
    padded[inside] = dataset[inside]
    with h5py.File("memory", "w", driver="core", backing_store=False) as other:
        twin = other.create_dataset("x", chunk, dtype, chunks=tuple(chunk), dcpl=settings(case | {"fill value": "default"}, chunk, dtype, chunk, rest))
        twin[...] = padded
        skipped, data = twin.id.read_direct_chunk((0,) * len(chunk))
    mask = (1 << len(case["filters"])) - 1 if every else 1 | skipped << 1
    dataset.id.write_direct_chunk((0,) * len(chunk), data, mask)


def add_attributes(file, item, kind):
    attributes = item.attrs
    match kind:
        case "scalars" | "of the root":
            attributes = file.attrs if kind == "of the root" else attributes
            for name, value in {"flag": True, "i1": np.int8(-3), "big": np.array(-3, ">i4")[()], "u8": np.uint64(2**64 - 1),
                                "f2": np.float16(0.1), "f4": np.float32(0.1), "f8": -0.0, "nan": math.nan, "inf": -math.inf,
                                "text": "é\n", "nothing": "", "fixed": np.bytes_(b"ab "), "long": "x" * 5000}.items():
                attributes[name] = value
        case "lists":
            for name, value in {"flags": [True, False], "ints": [1, -2], "one": [5], "reals": np.array([0.1, 1e300], ">f8"),
                                "texts": ["a", "é", ""], "fixed": np.array([b"ab", b"c"]), "none": np.zeros(0, "<i4"),
                                "no texts": np.array([], "S3")}.items():
                attributes[name] = value
        case "dense":
            for i in range(12):
                attributes[f"a{i * 7 % 12}"] = i if i % 2 else f"text {i}"
        case "large":
            attributes["large"] = np.arange(30000) % 7
        case "2-D":
            attributes["table"] = np.arange(6.0).reshape(2, 3)
            attributes["kept"] = 1
        case "empty":
            attributes["none"] = h5py.Empty("f4")
            attributes["no text"] = h5py.Empty("S3")
        case "others":
            for name, value in {"complex": 1 + 2j, "pair": np.zeros((), [("a", "f4"), ("b", "f4")]), "opaque": np.void(b"abc"),
                                "reference": file.ref, "long double": np.longdouble(1)}.items():
                attributes[name] = value
            attributes.create("colour", 1, dtype=h5py.enum_dtype(COLOURS))
        case "names":
            for name in ("a.b", "a/b", "a@b", "日本語", " ", "x" * 300, "0"):
                attributes[name] = name


def write(case, path):
    path = path.with_suffix(".h5")
    kind = case["group"]
    with h5py.File(path, "w", libver=(case["libver"], "latest"), userblock_size=case["user block"],
                   track_order="ordered" in kind) as file:
        made = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        if "ordered" in kind:
            made.set_link_creation_order(h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED)
        if "compact" in kind or "dense" in kind:
            most = ctypes.c_uint(200 if "compact" in kind else 0)
            assert LIBRARY.H5Pset_link_phase_change(ctypes.c_int64(made.id), most, most) >= 0
        group = file if kind == "root" else h5py.Group(h5py.h5g.create(file.id, b"group", gcpl=made))
        names = [case["name"] + (str(i) if i else "") for i in range(case["members"])]
        for i, name in enumerate(names):
            add(file, group, name, case, i)
        first = group[names[0]] if names else group
        add_attributes(file, first, case["attributes"])
        match case["links"]:
            case "hard":
                file["zlink"] = first
            case "soft":
                file["zlink"] = h5py.SoftLink(first.name)
            case "dangling":
                file["zlink"] = h5py.SoftLink("/nowhere")
            case "external":
                file["zlink"] = h5py.ExternalLink("other.h5", "/x")
            case "to a group":
                file["zlink"] = file.create_group("a group")
            case "cycle":
                group["zlink"] = file
            case "named datatype":
                file["zlink"] = np.dtype("<f4")
    if case["user block"]:
        with open(path, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(case["user block"]))
    return path, expected(case, path)


def escaped(name):
    return name.replace("\\", "\\\\").replace(".", "\\.")


def json_value(value):
    """Return an attribute's value as stele's JSON, or None if stele leaves it out."""
    if isinstance(value, h5py.Empty):
        return [None]
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        return [value]
    array = np.asarray(value)
    if array.ndim > 1 or array.dtype.kind not in "biufSO" or array.dtype == np.longdouble:
        return None
    if array.dtype.kind == "O" and not all(isinstance(item, str) for item in array.reshape(-1)):
        return None

    def one(item):
        item = item.decode() if isinstance(item, bytes) else item
        if isinstance(item, float) and not math.isfinite(item):
            return {"$f64": "nan" if math.isnan(item) else "inf" if item > 0 else "-inf"}
        return item
    plain = array.tolist()
    return [[one(item) for item in plain] if array.ndim else one(plain)]


def attributes_of(item, found):
    """Add an object's attributes to `found`; return whether stele leaves any out."""
    lossy = False
    path = item.name.strip("/") if item.name != "/" else ""
    for name in item.attrs:
        typed = item.attrs.get_id(name)
        key = (f"{path}@" if path else "") + name
        if name == "dtype" and isinstance(item, h5py.Dataset) and item.shape is not None and not item.id.get_type().committed():
            continue  # the type of the elements
        value = json_value(item.attrs[name]) if typed.dtype is None or typed.dtype.kind != "V" else None
        if value is None:
            lossy = True
        else:
            found[key] = value[0]
            lossy = lossy or (typed.dtype is not None and h5py.check_enum_dtype(typed.dtype) not in (None, {"FALSE": 0, "TRUE": 1})
                              and typed.dtype.kind != "b")
    return lossy


def expected(case, path):
    tensors, texts, unread, metadata = {}, {}, [], {}
    with h5py.File(path) as file:
        group = file if case["group"] == "root" else file["group"]
        lossy = attributes_of(file, metadata)
        prefix = ""
        if group != file:
            lossy = attributes_of(group, metadata) or lossy
            prefix = "group."
        for i in range(case["members"]):
            name = case["name"] + (str(i) if i else "")
            dataset = group[name]
            lossy = attributes_of(dataset, metadata) or lossy
            tensor = prefix + escaped(name)
            if unreadable(case, dataset):
                unread.append(tensor)
            elif case["dtype"] in TEXTS:
                array = dataset[()]
                if case["dtype"] == "S3 spaces" or not case["dtype"].endswith("text"):
                    array = np.asarray(array)
                    texts[tensor] = [t.decode().rstrip(" " if "spaces" in case["dtype"] else "") for t in array.tolist()] if array.ndim else array.item().decode()
                else:
                    texts[tensor] = [t.decode() for t in array] if dataset.ndim else array.decode()
            else:
                tensors[tensor] = array_of(case, dataset)
            if case["datatype"] == "named":
                unread.append(escaped(f"type of {name}"))
        first = prefix + escaped(case["name"])
        match case["links"]:
            case "hard" if first not in texts:
                (unread.append("zlink") if first in unread else tensors.update({"zlink": tensors[first]}))
            case "hard":
                pass  # a tie of a value is not among the values
            case "cycle":
                unread.append(prefix + "zlink")
            case "soft" | "dangling" | "external" | "named datatype" | "to a group":
                unread.append("zlink")
    lossy = lossy or case["dtype"] == "enum" and bool(tensors)
    return comparison.Expected(tensors, sorted(set(unread)), metadata, values=texts, lossy=lossy)


def unreadable(case, dataset):
    """Return whether docs/formats/keras.md says that the dataset cannot be read."""
    if case["storage"] in ("external", "virtual") or case["shape"] == "null" or case["datatype"] == "named":
        return True
    if case["dtype"] in OTHERS:
        return True
    if case["dtype"] in TEXTS:
        stored = case["storage"] == "compact" or dataset.id.get_offset() is not None
        return len(case["shape"]) > 1 or 0 not in case["shape"] and (case["storage"] == "chunks" or not stored)
    unknown = set(case["filters"]) & set(UNKNOWN) or len(set(case["filters"]) & {"deflate", "lzf"}) > 1
    return bool(unknown) and 0 not in case["shape"]


def array_of(case, dataset):
    if case["dtype"] in OPAQUE:
        return dataset[()].view(case["dtype"])
    array = np.asarray(dataset[()])
    return array.astype(array.dtype.base, copy=False)


def all_attributes(file):
    found = {}

    def visit(_, item):
        attributes_of(item, found)
    visit("", file)
    file.visititems(visit)
    return found


def read(path):
    """Read a file of stele's, whose attributes are those of the first file."""
    found = {}
    with h5py.File(path) as file:
        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                array = np.asarray(item[()])
                found[".".join(map(escaped, name.split("/")))] = array.view(item.attrs["dtype"]) if item.dtype.kind == "V" else array
        file.visititems(visit)
        attributes = all_attributes(file)
    own = json.loads(attributes.pop("stele", "{}"))
    found |= {tie: found[target] for tie, target in own.get("aliases", {}).items() if target in found}
    attributes |= json.loads(attributes.pop("stele.properties", '{"values": {}}'))["values"]
    with h5py.File(path.parents[1] / path.name) as file:
        first = all_attributes(file)
    for key in sorted(first.keys() | attributes.keys()):
        if json.dumps(first.get(key)) != json.dumps(attributes.get(key)):
            raise ValueError(f"attribute {key!r}: {str(first.get(key))[:100]}, written as {str(attributes.get(key))[:100]}")
    return found


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
