"""Files of Keras and h5py, both ways.

    keras_files.py make FOLDER    writes the golden files of tests/formats/keras/data
    keras_files.py check STELE    what Keras writes and the command converts, Keras loads again, with equal predictions
    keras_files.py torch PROGRAM PYTHON    the layers in PyTorch, both ways: PROGRAM is interop_keras, PYTHON has torch
"""

import ctypes
import itertools
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import h5py  # noqa: E402
import keras  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402


def conv():
    """Return a compiled model after one step of Adam, and its input."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4, 4, 1)), layers.Conv2D(2, 3, name="first"), layers.BatchNormalization(),
                              layers.Flatten(), layers.Dense(3, activation="relu"), layers.Dense(2, name="head.out")])
    model.compile(keras.optimizers.Adam(0.1), keras.losses.MeanSquaredError())
    x = np.random.default_rng(0).normal(size=(8, 4, 4, 1)).astype("float32")
    model.fit(x, np.ones((8, 2), "float32"), verbose=0)
    return model, x


def nested():
    """Return a functional model with a model inside and one layer of each kind, and its inputs."""
    keras.utils.set_random_seed(2)
    image = keras.Input((5, 5, 2))
    y = layers.DepthwiseConv2D(2, depth_multiplier=2)(image)
    y = layers.Conv2DTranspose(3, 2, strides=2)(y)
    y = layers.LayerNormalization(epsilon=1e-5)(y)
    encoder = keras.Model(image, layers.Dense(2, use_bias=False)(layers.Flatten()(y)), name="encoder")
    words = keras.Input((6,), dtype="int32")
    z = layers.Embedding(7, 3)(words)
    z = layers.Conv1D(3, 2)(z)
    z = layers.LSTM(2, return_sequences=True)(z)
    z = layers.GRU(2)(z)
    picture = keras.Input((5, 5, 2))
    out = layers.Dense(2)(layers.Concatenate()([encoder(picture), z]))
    model = keras.Model([picture, words], out)
    for weight in model.weights:  # biases are zeros at first
        weight.assign(np.random.default_rng(len(weight.path)).normal(size=weight.shape) * 0.5)
    generator = np.random.default_rng(3)
    return model, [generator.normal(size=(2, 5, 5, 2)).astype("float32"), generator.integers(0, 7, (2, 6))]


def quantized():
    """Return a model of dense layers without a bias, in each kind of integers that Keras quantizes to."""
    keras.utils.set_random_seed(4)
    return keras.Sequential([keras.Input((4,)), *(layers.Dense(4, use_bias=False, dtype=f"{kind}_from_float32", name=f"dense{i}")
                                                  for i, kind in enumerate(("int8", "int4/-1", "int4/2")))])


def types(path, **options):
    """Write datasets of every kind with h5py."""
    with h5py.File(path, "w", **options) as file:
        for name in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16", ">f4", ">i2"):
            file["types/" + name.replace("?", "bool").replace(">", "big_")] = np.arange(3).astype(name)
        bf16 = file.create_dataset("types/bf16", data=np.arange(3).astype(ml_dtypes.bfloat16))
        bf16.attrs["dtype"] = "bfloat16"
        file["types/void"] = np.zeros(2, "V3")
        file["scalar"] = np.float32(2.5)
        file["empty"] = np.zeros((0, 2), "f4")
        file["text"] = "é"
        file["fixed"] = np.array([b"ab", b"c"])
        data = np.arange(70, dtype="f4").reshape(7, 10)
        file.create_dataset("chunks/plain", data=data, chunks=(3, 4))
        file.create_dataset("chunks/gzip", data=data, chunks=(3, 4), compression="gzip")
        file.create_dataset("chunks/all", data=data, chunks=(4, 10), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("chunks/single", data=data, chunks=(7, 10), compression="gzip")
        file.create_dataset("chunks/lzf", data=data, chunks=(3, 4), compression="lzf")
        part = file.create_dataset("chunks/part", (7, 10), "f4", chunks=(3, 4), fillvalue=1.5)
        part[:3, :4] = data[:3, :4]
        file.create_dataset("unwritten", (3,), "f4", fillvalue=7)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((2,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, compact).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2], "f4"))
        file["links/again"] = file["scalar"]
        file["links/group"] = file["chunks"]
        file["links/soft"] = h5py.SoftLink("/scalar")
        file["links/other"] = h5py.ExternalLink("other.h5", "/x")
        layout = h5py.VirtualLayout((3,), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
        file.create_virtual_dataset("links/virtual", layout)
        file.create_dataset("links/external", (3,), "f4", external=[("other.raw", 0, 12)])
        file.attrs.update({"flag": True, "count": 3, "rate": 0.5, "name": "é", "list": [1, 2], "texts": ["a", "b"],
                           "fixed": np.bytes_("ab"), "none": h5py.Empty("f4"), "nothing": np.array([]),
                           "table": np.zeros((2, 2))})
        file["scalar"].attrs["unit"] = "m"


def latest(path):
    """Write a file of the newest version of the format, whose groups have at most 8 members each."""
    with h5py.File(path, "w", libver="latest") as file:
        for name in ("f8", "f4", "?", "c8", ">f4", "i2"):
            file["types/" + name.replace("?", "bool").replace(">", "big_")] = np.arange(3).astype(name)
        data = np.arange(70, dtype="f4").reshape(7, 10)
        file.create_dataset("chunks/plain", data=data, chunks=(3, 4))
        file.create_dataset("chunks/gzip", data=data, chunks=(3, 4), compression="gzip")
        file.create_dataset("chunks/all", data=data, chunks=(4, 10), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("chunks/single", data=data, chunks=(7, 10), compression="gzip")
        file.create_dataset("chunks/one", data=data, chunks=(7, 10))
        file.create_dataset("chunks/growing", data=data, chunks=(3, 4), maxshape=(None, 10))
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_chunk((3, 4))
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((7, 10))
        h5py.h5d.create(file.id, b"chunks/early", h5py.h5t.IEEE_F32LE, space, early).write(
            h5py.h5s.ALL, h5py.h5s.ALL, data)
        file["many"] = np.float32(1)
        for i in range(12):
            file[f"group/member{i}"] = np.float32(i)
        file["links/soft"] = h5py.SoftLink("/many")
        file["links/other"] = h5py.ExternalLink("other.h5", "/x")
        file["links/again"] = file["many"]
        file.attrs.update({"flag": True, "name": "é", "list": [1, 2]})


# Datasets, the extents to which they may grow, and their chunks. `growing/grown`: created smaller, then resized.
SHAPES = {
    "fixed/whole": ((7, 10), (7, 10), (3, 4)), "fixed/one": ((4, 2), (4, 2), (4, 2)),
    "growing/line": ((5,), (12,), (2,)), "growing/cut": ((3, 2), (4, 2), (4, 2)),
    "growing/last": ((4, 8), (4, 16), (2, 4)), "growing/first": ((4, 8), (9, 8), (2, 4)),
    "growing/both": ((7, 10), (9, 31), (3, 4)), "growing/cube": ((3, 5, 4), (4, 5, 9), (2, 2, 3)),
    "growing/grown": ((7, 10), (9, 31), (3, 4)), "open/rows": ((7, 10), (None, 10), (3, 4)),
    "open/columns": ((7, 10), (10, None), (3, 4)), "open/any": ((7, 10), (None, None), (3, 4))}
# Filters; "early": none, and chunks that are allocated when the dataset is created; "plain": not at the edges.
FILTERS = ["none", "early", "gzip", "shuffle gzip fletcher", "fletcher plain", "shuffle gzip fletcher plain"]


def add_chunks(file, name, shape, filters, dtype="f4"):
    """Add a dataset whose element i is i."""
    extents, largest, chunk = SHAPES[shape]
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk(chunk)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY if "early" in filters else h5py.h5d.ALLOC_TIME_INCR)
    for word, add in (("shuffle", settings.set_shuffle), ("gzip", lambda: settings.set_deflate(4)),
                      ("fletcher", settings.set_fletcher32)):
        if word in filters:
            add()
    if "plain" in filters:  # h5py has no function for this
        library = ctypes.CDLL(next(Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*")))
        library.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
        assert library.H5Pset_chunk_opts(settings.id, 2) >= 0  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS
    maximum = tuple(h5py.h5s.UNLIMITED if extent is None else extent for extent in largest)
    begin = tuple(extent // 2 for extent in extents) if shape == "growing/grown" else extents
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple(begin, maximum),
                    settings, links)
    if shape == "growing/grown":
        file[name][...] = 1
        file[name].resize(extents)
    file[name][...] = np.arange(np.prod(extents)).reshape(extents).astype(dtype)


def chunks(path, dtypes=("f4",), filters=FILTERS, **options):
    """Write datasets with each index of chunks and filter."""
    with h5py.File(path, "w", **options) as file:
        for dtype in dtypes:
            for shape in SHAPES:
                for words in filters:
                    add_chunks(file, f"{dtype}/{shape}/{words.replace(' ', '_')}"[0 if len(dtypes) > 1 else 3:], shape,
                               words, dtype)


def paged(path):
    """Write arrays of chunks that are so long that they have pages, of which the last ones are written."""
    with h5py.File(path, "w", libver="latest") as file:
        for name, shape, maxshape in (("fixed", 2100, 2100), ("extensible", 150_000, None)):
            data = file.create_dataset(name, (shape,), "i1", chunks=(1,), maxshape=(maxshape,), fillvalue=-1)
            data[:3] = [0, 1, 2]
            data[-10:] = np.arange(10)


def others(path):
    """Write datasets and attributes of kinds that are not tensors, beside one that is."""
    colours = h5py.enum_dtype({"RED": 0, "BLUE": 1}, basetype="i1")
    pair = np.dtype([("first", "f4"), ("second", "f4")])
    with h5py.File(path, "w") as file:
        file["w"] = np.arange(3, dtype="f4")
        file["pair"] = np.zeros(1, pair)
        file["nested"] = np.zeros(1, [("pair", pair), ("i", "i4")])
        file["rows"] = np.zeros(1, [("r", "f4", 3), ("i", "f4")])
        file["halves"] = np.zeros(1, [("r", "f2"), ("i", "f2")])
        file.create_dataset("colours", data=np.array([0, 1], "i1"), dtype=colours)
        file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        file.create_dataset("references", data=[file["w"].ref], dtype=h5py.ref_dtype)
        attributes = file["w"].attrs
        attributes.update({"unit": "m", "half": np.float16(0.5), "complex": 1 + 2j, "complexes": np.ones(2, "c8"),
                           "pair": np.zeros((), pair), "opaque": np.void(b"abc"), "table": np.zeros((2, 2)),
                           "reference": file["w"].ref, "region": file["w"].regionref[:2]})
        attributes.create("colour", 1, dtype=colours)
        lists = np.empty(1, object)
        lists[0] = np.arange(2, dtype="i4")
        attributes.create("lists", lists, dtype=h5py.vlen_dtype("i4"))
        file["type"] = np.dtype("f4")
        attributes.create("named", 1, dtype=file["type"])


def member(i, unicode=True, size=0):
    """Return the name of a link or attribute: in another order than the numbers, and padded to `size` letters."""
    return ("é" if unicode and i % 2 == 0 else "m") + str(i * 7919 % 10007) + "x" * max(0, size - 5)


def heaps(path, libver="earliest", members=9, unicode=True, ordered=False, attributes=0, block=0, size=0, links=False):
    """Write a group and a dataset whose links and attributes are in fractal heaps if there are more than eight.

    links: the members are links to one dataset."""
    low = (libver, "latest") if libver != "latest" else libver
    with h5py.File(path, "w", libver=low, userblock_size=block, track_order=ordered) as file:
        group = file.create_group("group", track_order=ordered)
        w = file.create_dataset("w", data=np.arange(3, dtype="f4"), track_order=ordered)
        for i in range(members):
            group[member(i, unicode, size)] = w if links else np.float32(i)
        group["other"] = h5py.ExternalLink("other.h5", "/x")
        for i in range(attributes):
            w.attrs[member(i, unicode)] = i
            group.attrs[member(i, unicode)] = f"text {i}"
        if attributes > 9 and libver != "earliest":  # objects outside the blocks of the heap
            w.attrs["large"] = np.arange(3000) % 7
            w.attrs["larger"] = np.arange(9000) % 7
    if block:
        with open(path, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(block))


# The files of stele's own tests; `make interop-keras` compares all products of these settings. Large files are deflated,
# in a model of Keras.
HEAPS = {
    "heaps_earliest.h5": {"block": 512},
    "heaps_v108.h5": {"libver": "v108", "ordered": True, "attributes": 9, "block": 2048},
    "heaps_latest.h5": {"libver": "latest", "attributes": 9},
    "heaps_many.keras": {"libver": "latest", "members": 300, "attributes": 100},
    "heaps_ordered.keras": {"libver": "latest", "members": 300, "ordered": True, "attributes": 100},
    "heaps_long.keras": {"libver": "latest", "members": 1001, "size": 700, "links": True}}


def write_heaps(folder):
    for name, settings in HEAPS.items():
        heaps(folder / "heaps.h5", **settings)
        if name.endswith(".h5"):
            (folder / "heaps.h5").rename(folder / name)
        else:
            with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
                file.writestr(zipfile.ZipInfo("metadata.json"), "{}")
                file.writestr(zipfile.ZipInfo("model.weights.h5"), (folder / "heaps.h5").read_bytes(),
                              zipfile.ZIP_DEFLATED)
            (folder / "heaps.h5").unlink()
    filtered_heap(folder / "heap_filtered.h5")


def filtered_heap(path):
    """Write a group whose links are in a deflated heap; h5py has no function for this."""
    library = ctypes.CDLL(next(Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*")))
    library.H5Pset_deflate.argtypes = [ctypes.c_int64, ctypes.c_uint]
    with h5py.File(path, "w", libver="latest") as file:
        settings = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        assert library.H5Pset_deflate(settings.id, 4) >= 0
        group = h5py.Group(h5py.h5g.create(file.id, b"group", gcpl=settings))
        for i in range(20):
            group[member(i)] = np.float32(i)
        file["w"] = np.arange(3, dtype="f4")


def check_heaps(stele, folder):
    """Compare the links, attributes and elements of every product of settings with what stele saves again."""
    count = 0
    for values in itertools.product(("earliest", "v108", "v110", "latest"), (0, 1, 9, 1001), (False, True),
                                    (False, True), (0, 3, 9, 300), (0, 512, 1024)):
        if values[1] == 1001 and (values[4] != 9 or values[5] != 512):
            continue  # these take longer
        settings = dict(zip(("libver", "members", "unicode", "ordered", "attributes", "block"), values, strict=True))
        path, again = folder / "heaps.h5", folder / "heaps_again.h5"
        path.unlink(missing_ok=True)
        again.unlink(missing_ok=True)
        heaps(path, **settings)
        subprocess.run([stele, "convert", path, again, "--quiet", "--except", "group.other"], check=True)
        before, after = content(path, ["group/other"]), content(again)
        before.pop("w@larger", None)  # more than 64 KiB: in the attribute stele.properties
        found = {key: value for key, value in after.items() if not key.startswith("@")}
        assert before == found, (settings, before.keys() ^ found.keys())
        count += 1
    print(f"h5py: equal links and attributes in {count} files")


def sharded(folder):
    """Write the weights of three layers in several files, with an index. The variables of `second` are in two files.

    Number i of a variable is i + 100 n, for the n-th variable."""
    folder.mkdir(parents=True, exist_ok=True)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8, name="first"), layers.Dense(8, name="second"),
                              layers.Embedding(5, 2, name="third")])
    for n, weight in enumerate(model.weights):
        weight.assign(np.arange(np.prod(weight.shape)).reshape(weight.shape) + 100 * n)
    model.save_weights(folder / "m.weights.json", max_shard_size=256 / 1024**3)


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    sharded(folder / "sharded")
    model, _ = conv()
    model.save(folder / "conv.keras")
    model.save_weights(folder / "conv.weights.h5")
    model.save(folder / "conv.h5")
    model, _ = nested()
    model.save(folder / "nested.keras")
    quantized().save(folder / "quantized.keras")
    quantized().save(folder / "quantized.h5")
    types(folder / "types.h5")
    latest(folder / "latest.h5")
    chunks(folder / "chunks.h5", libver="latest")
    paged(folder / "paged.h5")
    others(folder / "others.h5")
    write_heaps(folder)


def content(path, without=()):
    """Return the datasets and attributes of a file, without these links."""
    found = {}
    with h5py.File(path) as file:
        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = (item.dtype.str, item.shape, np.asarray(item[()]).tobytes())
            found.update({f"{name}@{key}": repr(value) for key, value in item.attrs.items()})
        visit("", file)
        assert all(isinstance(file.get(name, getlink=True), h5py.ExternalLink) for name in without)
        file.visititems(visit)
    return found


def check(stele):
    def convert(*arguments):
        subprocess.run([stele, "convert", *map(str, arguments), "--quiet"], check=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, (model, x) in {"conv": conv(), "nested": nested()}.items():
            expected = model.predict(x, verbose=0)
            for suffix in ("keras", "weights.h5", "h5"):
                path, again = folder / f"{name}.{suffix}", folder / f"{name}_again.{suffix}"
                (model.save_weights if suffix == "weights.h5" else model.save)(path)
                convert(path, again)
                if suffix != "keras":
                    assert content(path) == content(again), again
                if suffix == "weights.h5":
                    loaded = keras.saving.load_model(folder / f"{name}.keras")
                    for weight in loaded.weights:
                        weight.assign(np.zeros(weight.shape, weight.dtype))
                    loaded.load_weights(again)
                else:
                    loaded = keras.saving.load_model(again)
                assert np.array_equal(loaded.predict(x, verbose=0), expected), again
                if suffix == "keras" and name == "conv":
                    pairs = zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
                    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)
                print(f"{again.name}: equal predictions")
            # Through safetensors, and the numbers that other programs see.
            convert(folder / f"{name}.keras", folder / f"{name}.safetensors")
            convert(folder / f"{name}.safetensors", folder / f"{name}_back.keras")
            loaded = keras.saving.load_model(folder / f"{name}_back.keras")
            assert np.array_equal(loaded.predict(x, verbose=0), expected)
            print(f"{name}.safetensors: equal predictions")
        check_heaps(stele, folder)
        types(folder / "types.h5")
        convert(folder / "types.h5", folder / "types_again.h5", "--except", "links.*", "--except", "types.void",
                "--except", "chunks.lzf")
        before, after = content_of_types(folder / "types.h5"), content_of_types(folder / "types_again.h5")
        assert before == after, [(k, before.get(k), after.get(k)) for k in before if before[k] != after.get(k)]
        print("h5py: equal elements of every kind")


def check_torch(program, python):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        models = {"conv": conv(), "nested": nested()}
        for name, (model, x) in models.items():
            model.save(folder / f"{name}.keras")
            inputs = x if isinstance(x, list) else [x]
            np.savez(folder / f"{name}.npz", expected=model.predict(x, verbose=0),
                     **{f"input{i}": array for i, array in enumerate(inputs)})
            subprocess.run([program, "to", folder / f"{name}.keras", folder / f"{name}.safetensors"], check=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        subprocess.run([python, Path(__file__).with_name("torch_layers.py"), folder], check=True, env=environment)
        for name, (model, x) in models.items():
            subprocess.run([program, "from", folder / f"{name}_torch.safetensors", folder / f"{name}.keras",
                            folder / f"{name}_back.keras"], check=True)
            loaded = keras.saving.load_model(folder / f"{name}_back.keras")
            expected = np.load(folder / f"{name}_torch.npz")["expected"]
            worst = np.abs(loaded.predict(x, verbose=0) - expected).max()
            assert worst < 1e-5, worst
            print(f"{name}: Keras predicts what PyTorch does (largest difference {worst:.1e})")


def content_of_types(path):
    """Return the elements of the numeric datasets, in native byte order."""
    names = ["scalar", "empty", "unwritten", "compact"]
    with h5py.File(path) as file:
        names += ["chunks/" + n for n in ("plain", "gzip", "all", "single", "part")]
        names += ["types/" + n for n in file["types"] if n != "void"]
        return {n: (file[n].dtype.newbyteorder("=").str, file[n].shape,
                    np.asarray(file[n]).astype(file[n].dtype.newbyteorder("=")).tobytes()) for n in names}


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    elif sys.argv[1] == "torch":
        check_torch(*sys.argv[2:])
    else:
        check(sys.argv[2])
