#!/usr/bin/env python3
"""Writes the golden files of tests/formats/pytorch/data with PyTorch, newest or old: the names then end in _113.

    build/interop-pytorch/bin/python tests/formats/pytorch/interop/make_golden_pytorch.py [FOLDER]
    /usr/bin/python3 tests/formats/pytorch/interop/make_golden_pytorch.py [FOLDER]              Debian's PyTorch 1.13

README.md there tells what is in each file, pytorch_objects.py which values the tensors have.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.multiprocessing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pytorch_objects as objects  # noqa: E402

warnings.simplefilter("ignore")
OLD = torch.__version__.startswith("1.")
SUFFIX = "_113" if OLD else ""


def save(name, thing, **options):
    torch.save(thing, f"{name}{SUFFIX}.pt", **options)


def state_dicts():
    save("linear", objects.fill(objects.Mlp()).state_dict())
    save("net", objects.fill(objects.Net()).state_dict())
    save("tensor", objects.values("tensor", (2, 3)))
    save("many", objects.many())
    save("adam", objects.checkpoint("adam"))
    save("sgd", objects.checkpoint("sgd"))
    save("lightning", objects.lightning())
    for name in ("views", "dtypes", "quantized", "sparse", "parameters", "containers"):
        save(name, getattr(objects, name)())
    save("values", objects.plain_values())
    save("opaque", objects.opaque())
    save("module", objects.fill(objects.Net()))
    save("meta", {"weight": torch.empty(2, 3, device="meta"), "bias": objects.values("bias", (2,))})
    if not OLD:
        save("nested", objects.nested_tensors())
    import numpy as np
    save("numpy", {"scalar": np.float32(0.5), "integer": np.int64(3), "array": np.arange(6, dtype="<i2").reshape(2, 3),
                   "big": np.arange(3, dtype=">f4"), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
                   "dtype": np.dtype("float32"), "tensor": objects.values("tensor", (2,))})


def containers():
    legacy = dict(_use_new_zipfile_serialization=False)
    save("legacy", objects.fill(objects.Mlp()).state_dict(), **legacy)
    views = objects.views()
    save("legacy_views", {k: v for k, v in views.items() if not v.is_complex() and k not in ("neg", "imag")}, **legacy)
    save("legacy_adam", objects.checkpoint("adam"), **legacy)
    source = torch.serialization.get_source_lines_and_file
    torch.serialization.get_source_lines_and_file = lambda *a: (*source(*a)[:2], "pytorch_objects.py")
    save("legacy_module", objects.fill(objects.Plain(objects.Plain())), **legacy)
    if OLD:
        return
    for protocol in (3, 4, 5):
        torch.save(objects.checkpoint("sgd"), f"protocol{protocol}.pt", pickle_protocol=protocol)
    base = objects.values("base", (3, 4), torch.float64)
    objects.save_tar("tar.pt", {"base": base, "view": base[1:, ::2], "bytes": objects.values("bytes", (5,), torch.uint8)},
                     {"epoch": 3})
    loaded = torch.load("tar.pt", weights_only=False)
    assert torch.equal(loaded["state"]["view"], base[1:, ::2]) and loaded["epoch"] == 3
    objects.rezip("net.pt", "deflated.pt")
    thing = {"f32": objects.values("f32", (2, 3)), "f64": objects.values("f64", (3,), torch.float64),
             "i16": objects.values("i16", (5,), torch.int16), "u8": objects.values("u8", (3,), torch.uint8),
             "bf16": objects.values("bf16", (3,), torch.bfloat16)}
    torch.save(thing, "scratch.pt")
    objects.rezip("scratch.pt", "big_endian.pt", objects.zipfile.ZIP_STORED,
                  objects.big_endian({str(i): t.element_size() for i, t in enumerate(thing.values())}))
    os.unlink("scratch.pt")
    assert all(torch.equal(t, thing[k]) for k, t in torch.load("big_endian.pt").items())


def without_paths(source, path):
    """Writes an archive again with PyTorch's own writer, without the entries that have paths of this machine."""
    reader, writer = torch._C.PyTorchFileReader(source), torch._C.PyTorchFileWriter(path)
    for record in reader.get_all_records():
        if not record.endswith(".debug_pkl") and record not in ("version", ".data/version", ".data/serialization_id"):
            data = reader.get_record(record)
            writer.write_record(record, data, len(data))
    writer.write_end_of_file()


def programs():
    net = objects.fill(objects.Nested()).eval()
    for name, program in (("script", torch.jit.script(net)), ("trace", torch.jit.trace(net, torch.ones(1, 3)))):
        program.save("scratch.pt")
        without_paths("scratch.pt", f"{name}{SUFFIX}.pt")
        assert torch.equal(torch.jit.load(f"{name}{SUFFIX}.pt")(torch.ones(1, 3)), net(torch.ones(1, 3)))
    os.unlink("scratch.pt")
    if OLD:
        return
    program = torch.export.export(objects.fill(objects.Mlp()), (torch.ones(1, 2),))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # has paths of this machine
    torch.export.save(program, "export.pt2")


def libtorch():
    """Compiles pytorch_libtorch.cpp against the libtorch that belongs to this PyTorch, and runs it."""
    source = str(HERE / "pytorch_libtorch.cpp")
    root = pathlib.Path(torch.__file__).parent
    api = "include/torch/csrc/api/include"
    if (root / api).is_dir():  # the package of PyPI
        options = [f"-I{root}/include", f"-I{root}/{api}", f"-L{root}/lib", f"-Wl,-rpath,{root}/lib",
                   "-Wl,--allow-shlib-undefined"]
    else:  # Debian's libtorch-dev
        options = ["-I/usr/" + api]
    with tempfile.TemporaryDirectory() as work:
        program = f"{work}/pytorch_libtorch"
        subprocess.run(["g++-12", "-std=c++17" if OLD else "-std=c++20", "-O0", source, "-o", program, *options,
                        "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
        subprocess.run([program, SUFFIX], check=True)


def sharded(rank, folder):
    """One of four processes: rows, and both axes of a 2 x 2 mesh, and a replicated tensor."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29517")
    dist.init_process_group("gloo", rank=rank, world_size=4)
    line = init_device_mesh("cpu", (4,))
    square = init_device_mesh("cpu", (2, 2))
    state = {"model": {"rows": distribute_tensor(objects.values("rows", (5, 3)), line, [Shard(0)]),
                       "square": distribute_tensor(objects.values("square", (4, 6)), square, [Shard(0), Shard(1)]),
                       "replicated": distribute_tensor(objects.values("replicated", (3,)), line, [Replicate()]),
                       "plain": objects.values("plain", (2,), torch.int64)}, "epoch": 3}
    dcp.save(state, checkpoint_id=folder)
    dist.barrier()
    dist.destroy_process_group()


def distributed():
    import torch.distributed.checkpoint as dcp
    for folder in ("dcp1", "dcp4", "dcp_safetensors"):
        shutil.rmtree(folder, ignore_errors=True)
    net = objects.fill(objects.Mlp())
    state = {"model": net.state_dict(), "list": [objects.values("list.0", (2,)), {"a": 1}], "epoch": 3,
             "scalar": objects.values("scalar", (), torch.int64), "none": None, "config": {"rate": 0.5, "name": "net"},
             "empty": objects.values("empty", (0, 3))}
    dcp.save(state, checkpoint_id="dcp1", no_dist=True)
    torch.multiprocessing.spawn(sharded, ("dcp4",), 4)
    dcp.save(net.state_dict(), storage_writer=dcp.HuggingFaceStorageWriter("dcp_safetensors"), no_dist=True)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "data")
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # so that no file has a path of this machine
    state_dicts()
    containers()
    programs()
    libtorch()
    if not OLD:
        distributed()
    print(f"PyTorch {torch.__version__}: {len(list(folder.glob('*')))} entries in {folder}")


if __name__ == "__main__":
    main()
