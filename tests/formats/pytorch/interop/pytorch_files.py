#!/usr/bin/env python3
"""Files of PyTorch, for tests/formats/pytorch/interop/pytorch.sh: written by it, and given back to it.

    pytorch_files.py make FOLDER          NAME.pt and others, beside each NAME.expected (pytorch_dump.py)
    pytorch_files.py check-ours FOLDER    what interop_pytorch wrote there: NAME.ours.pt

Both run with a new and an old PyTorch; `make` leaves out what the old one does not have, and says so. NAME.write marks
the files that interop_pytorch writes again, with the words that tell how; NAME.skeleton has the containers.
"""

import collections
import os
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch  # noqa: E402

import pytorch_dump as dump  # noqa: E402
import pytorch_models as models  # noqa: E402
import pytorch_objects as objects  # noqa: E402

OLD = torch.__version__.startswith("1.")
LEGACY = dict(_use_new_zipfile_serialization=False)


def left_out(name, error):
    print(f"left out: {name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")


def skeleton(thing):
    """Returns the containers of a thing as text: kinds, keys, and the attribute `_metadata`."""
    if isinstance(thing, dict):
        items = ", ".join(f"{k!r}: {skeleton(v)}" for k, v in thing.items())
        attribute = getattr(thing, "_metadata", None)
        return "{" + items + "}" + (f" metadata {skeleton_of_metadata(attribute)}" if attribute else "")
    if isinstance(thing, torch.Size):
        return "list"
    if isinstance(thing, (list, tuple)):
        text = ", ".join(map(skeleton, thing))
        return f"[{text}]" if isinstance(thing, list) else f"({text})"
    return "tensor" if isinstance(thing, torch.Tensor) else f"{type(thing).__name__}"


def skeleton_of_metadata(attribute):
    return {k: dict(v) for k, v in attribute.items()}


def save(folder, name, thing, write="", only_tensors=False, **options):
    """Saves a thing. `write`: what interop_pytorch does with the file: "", "again", "half", "checkpoint"."""
    path = folder / f"{name}.pt"
    torch.save(thing, path, **options)
    dump.write(path, dump.Dump(dump.load(path)), only_tensors=only_tensors)
    if write:
        (folder / f"{name}.write").write_text(write)
        (folder / f"{name}.skeleton").write_text(skeleton(thing))


def state_dicts(folder):
    for name in models.MODELS:
        for kind, optimizer in objects.OPTIMIZERS.items():
            model, state = models.trained(name, optimizer)
            if kind == "sgd":
                save(folder, name, model.state_dict(), "again half")
                save(folder, f"{name}_legacy", model.state_dict(), "again", **LEGACY)
                save(folder, f"{name}_module", model, only_tensors=True)
                save(folder, f"{name}_module_legacy", model, only_tensors=True, **LEGACY)
            scheduler = torch.optim.lr_scheduler.StepLR(state, 2, 0.5)
            plain = {k: v for k, v in scheduler.state_dict().items() if isinstance(v, (int, float, list, type(None)))}
            content = {"model_state_dict": model.state_dict(), "optimizer_state_dict": state.state_dict(),
                       "scheduler": plain, "epoch": 3, "best": 0.5}
            save(folder, f"{name}_{kind}", content, "again checkpoint")
            if kind == "adam":
                save(folder, f"{name}_adam_legacy", content, "again", **LEGACY)
    save(folder, "lightning", objects.lightning(models.trained("resnet", objects.OPTIMIZERS["adam"])[0]))
    save(folder, "lightning_legacy", objects.lightning(), **LEGACY)


def things(folder):
    cases = {name: getattr(objects, name)() for name in ("views", "dtypes", "quantized", "sparse", "parameters", "many",
                                                         "containers")}
    cases["values"], cases["opaque"] = {**objects.plain_values(), "no_bytes": b""}, objects.opaque()
    cases["bare"] = objects.values("bare", (3, 2))
    cases["bare_scalar"] = objects.values("bare_scalar", (), torch.float64)
    cases["list_of_tensors"] = [objects.values("a", (2,)), objects.values("b", (3,), torch.int8)]
    cases["tuple_of_tensors"] = tuple(cases["list_of_tensors"])
    cases["empty"], cases["empty_ordered"] = {}, collections.OrderedDict()
    cases["large"] = {f"w{i}": torch.randn(300, 700 + i, generator=torch.Generator().manual_seed(i)) for i in range(3)}
    cases["large_views"] = {"t": cases["large"]["w0"].t(), "s": cases["large"]["w1"][::3, 5:-5:7],
                            "p": cases["large"]["w2"][:, :700].reshape(30, 10, 70, 10).permute(3, 1, 2, 0)}
    cases["unicode"] = {"häuser.Ü": objects.values("u", (2,)), "日本": objects.values("j", (1,)), "a/b": objects.values("ab", (1,)),
                        "..": objects.values("dots", (1,)), "": objects.values("empty", (1,)), " ": objects.values("blank", (1,))}
    try:
        cases["nested"] = objects.nested_tensors()
        torch.save(cases["nested"], folder / "scratch")
    except (AttributeError, RuntimeError) as error:
        del cases["nested"]
        left_out("nested", error)
    try:
        cases["wrapper"] = objects.wrapped()
        torch.save(cases["wrapper"], folder / "scratch")
    except (AttributeError, RuntimeError, TypeError) as error:
        del cases["wrapper"]
        left_out("wrapper", error)
    writable = {"views": "again", "quantized": "", "many": "again half", "containers": "again", "bare": "again",
                "bare_scalar": "again", "list_of_tensors": "again", "tuple_of_tensors": "again", "empty": "again",
                "empty_ordered": "again", "large": "again half", "large_views": "again", "unicode": ""}
    for name, thing in cases.items():
        save(folder, name, thing, writable.get(name, ""))
        try:
            save(folder, f"{name}_legacy", thing, **LEGACY)
        except (RuntimeError, AttributeError, NotImplementedError, ValueError) as error:
            left_out(f"{name}_legacy", error)
    exact = objects.dtypes()
    for name in ("complex32", "bcomplex32", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"):
        exact.pop(name, None)
    save(folder, "dtypes_plain", exact, "again")
    integers = {k: v for k, v in objects.quantized(False).items() if not k.startswith("float")}
    save(folder, "quantized_integers", integers, "again")
    save(folder, "numpy", numpy_things())
    save(folder, "meta", {"weight": torch.empty(2, 3, device="meta"), "bias": objects.values("bias", (2,))})


def numpy_things():
    import numpy as np
    arrays = {d: np.arange(6).reshape(2, 3).astype(d) for d in ("<f2", "<f4", ">f8", "<i2", ">i4", "|u1", "|b1", "<c8")}
    return {"scalars": {d: np.arange(3).astype(d)[1] for d in ("f4", "f8", "i1", "i8", "u4", "?")}, "arrays": arrays,
            "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "empty": np.zeros((0, 2)), "none": np.float64(2.5),
            "dtype": np.dtype("int16"), "tensor": objects.values("tensor", (2,))}


def containers(folder):
    thing = {"model": models.trained("recurrent", objects.OPTIMIZERS["sgd"])[0].state_dict(), "epoch": 3,
             "values": {k: v for k, v in objects.plain_values().items() if k != "tensor"}}
    for protocol in (2, 3, 4, 5):
        save(folder, f"protocol{protocol}", thing, pickle_protocol=protocol)
        save(folder, f"protocol{protocol}_legacy", thing, pickle_protocol=protocol, **LEGACY)
    path = folder / "protocol2.pt"
    expected = dump.Dump(dump.load(path))
    for name in ("weights.bin", "checkpoint.ckpt", "without_extension", "model.pth"):
        (folder / name).write_bytes(path.read_bytes())
        dump.write(folder / name, expected, "renamed_" + name.partition(".")[0])
    objects.rezip(path, folder / "deflated.pt")
    objects.rezip(path, folder / "stored.pt", objects.zipfile.ZIP_STORED, root="other/root".partition("/")[0])
    for name in ("deflated", "stored"):
        dump.write(folder / f"{name}.pt", expected)
    if OLD:
        left_out("big_endian, tar", Exception("written with the new version"))
        return
    # PyTorch 2.15 swaps no bytes of dtypes without a storage class (uint16 and larger).
    swapped = {name: objects.values(name, (2, 3), getattr(torch, name)) for name in objects.PLAIN if name[:5] not in
               ("uint1", "uint3", "uint6")}
    save(folder, "scratch", swapped)
    sizes = {str(i): t.element_size() // (2 if t.is_complex() else 1) for i, t in enumerate(swapped.values())}
    objects.rezip(folder / "scratch.pt", folder / "big_endian.pt", objects.zipfile.ZIP_STORED, objects.big_endian(sizes))
    for file in folder.glob("scratch*"):
        file.unlink()
    loaded = torch.load(folder / "big_endian.pt")
    assert all(torch.equal(t, loaded[name]) for name, t in swapped.items())
    dump.write(folder / "big_endian.pt", dump.Dump(swapped))
    base = objects.values("base", (5, 7), torch.float64)
    tensors = {"base": base, "view": base[1:, ::2], "again": base, "i": objects.values("i", (5,), torch.int64)}
    objects.save_tar(folder / "tar.pt", tensors, {"epoch": 3, "names": ["a", "b"]})
    dump.write(folder / "tar.pt", dump.Dump(dump.load(folder / "tar.pt")))


def programs(folder):
    """TorchScript and exported programs: their parameters and buffers."""
    modules = {"resnet": models.Resnet().eval(), "recurrent": models.Recurrent(), "net": objects.fill(objects.Net()).eval(),
               "nested": objects.fill(objects.Nested())}
    for name, module in modules.items():
        batch = {"net": lambda: torch.ones(1, 2, 4, 4), "nested": lambda: torch.ones(1, 3)}.get(name) or module.batch
        made = {f"script_{name}": lambda: torch.jit.script(module), f"trace_{name}": lambda: torch.jit.trace(module, batch())}
        for file, make_program in made.items():
            path = folder / f"{file}.pt"
            try:
                make_program().save(str(path))
            except (RuntimeError, OSError) as error:
                left_out(file, error)
                continue
            dump.write(path, dump.Dump(torch.jit.load(str(path)).state_dict()), only_tensors=True)
        if not hasattr(torch, "export"):
            left_out(f"export_{name}", Exception("no torch.export"))
            continue
        path = folder / f"export_{name}.pt2"
        torch.export.save(torch.export.export(module, (batch(),)), path)
        program = torch.export.load(path)
        constants = {k: v for k, v in program.constants.items() if isinstance(v, torch.Tensor)}
        dump.write(path, dump.Dump({**program.state_dict, **constants}), only_tensors=True)


def libtorch(folder):
    """What the C++ side of this PyTorch writes: `torch.jit.load` reads all but the pickled value."""
    import make_golden_pytorch
    here = pathlib.Path.cwd()
    os.chdir(folder)
    try:
        make_golden_pytorch.libtorch()
    finally:
        os.chdir(here)
    for path in sorted(folder.glob("libtorch_*.pt")):
        if path.name.startswith("libtorch_pickle"):
            dump.write(path, dump.Dump(dump.load(path)))
        else:
            loaded = torch.jit.load(str(path))
            tensors = dict(loaded.state_dict())
            for name, module in loaded.named_modules():  # an optimizer's state is in attributes
                tensors.update({f"{name}.{kind}": getattr(module, kind) for kind in ("exp_avg", "exp_avg_sq")
                                if isinstance(getattr(module, kind, None), torch.Tensor)})
            dump.write(path, dump.Dump(tensors), only_tensors=True)


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    state_dicts(folder)
    things(folder)
    containers(folder)
    programs(folder)
    libtorch(folder)
    try:
        import pytorch_distributed
    except (ImportError, ValueError) as error:
        left_out("dcp", error)
    else:
        pytorch_distributed.make(folder)
    for file in folder.glob("scratch*"):
        file.unlink()
    print(f"PyTorch {torch.__version__}: {len(list(folder.glob('*.expected')))} files")


def expect(folder):
    """Describes golden files: all that this PyTorch loads, and those of TorchScript."""
    for path in sorted(folder.glob("*.pt")):
        if path.name.startswith(("script", "trace")):
            dump.write(path, dump.Dump(torch.jit.load(str(path)).state_dict()), only_tensors=True)
        elif not path.name.startswith(("meta", "module", "legacy_module", "libtorch")):
            dump.write(path, dump.Dump(dump.load(path)))


def main():
    warnings.simplefilter("ignore")
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
        return 0
    if len(sys.argv) == 3 and sys.argv[1] == "expect":
        expect(pathlib.Path(sys.argv[2]))
        return 0
    if len(sys.argv) == 3 and sys.argv[1] == "check-ours":
        import pytorch_check
        return pytorch_check.check(pathlib.Path(sys.argv[2]))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
