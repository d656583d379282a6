"""Products of distributed checkpoints (torch.distributed.checkpoint), by PyTorch with one to three processes of gloo."""

import math
import multiprocessing
import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "interop"), str(HERE.parents[2] / "products")]
import comparison  # noqa: E402
import pytorch_dump as dump  # noqa: E402

warnings.simplefilter("ignore")
PACKAGES = ["torch"]
PAGES = ["formats/pytorch"]
COMPARED = ["values"]
FILES = 8
UNSENT = ("int16", "uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn")  # by gloo
DIMENSIONS = {
    "item dtype": ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                   "bool", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn"],
    "placement": ["plain", "replicated", "first axis", "last axis"],
    "ranks": [1, 2, 3],
    "item shape": [[5, 3], [], [1], [7], [0, 3], [2, 3, 4], [1, 1]],
    "state": ["flat", "nested", "list", "optimizer"],
    "item name": ["weight", "a.b", "a/b", "日本語", " x\n", "x" * 300],
    "writer": ["default", "a file for each item"],
    "items": [1, 0, 9],
}


def possible(case):
    return all([
        not case["placement"].endswith("axis") or case["item shape"],
        case["placement"] == "plain" or case["item dtype"] not in UNSENT,
        case["items"] or case["state"] != "list",
    ])


def tensor(case, seed):
    dtype, shape = getattr(torch, case["item dtype"]), case["item shape"]
    width = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, 256, [math.prod(shape) * width], dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return (bits & 1 if case["item dtype"] == "bool" else bits).view(dtype).reshape(shape)


def placed(case, seed, mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    whole = tensor(case, seed)
    match case["placement"]:
        case "replicated":
            return distribute_tensor(whole, mesh, [Replicate()])
        case "first axis":
            return distribute_tensor(whole, mesh, [Shard(0)])
        case "last axis":
            return distribute_tensor(whole, mesh, [Shard(whole.dim() - 1)])
    return whole


def state_of(case, mesh):
    items = [placed(case, i, mesh) for i in range(case["items"])]
    named = {case["item name"] + (str(i) if i else ""): item for i, item in enumerate(items)}
    match case["state"]:
        case "nested":
            return {"model": {"layers": named, "rate": 0.5}, "epoch": 3}
        case "list":
            return {"model": [{"w": item} for item in items], "names": ["a", "b"]}
        case "optimizer":
            state = {name: {"step": torch.tensor(3.0), "exp_avg": item} for name, item in named.items()}
            return {"model": named, "optimizer": {"state": state, "param_groups": [{"lr": 0.1, "params": list(named)}]}}
    return named | {"epoch": 3}


def work(rank, pipe, port):
    """A process: saves the parts of its rank."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import DeviceMesh
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", rank=rank, world_size=3, init_method=f"file://{port}")
    meshes = {count: DeviceMesh("cpu", list(range(count))) for count in (1, 2, 3)}
    while (job := pipe.recv()) is not None:
        case, path = job
        mesh = meshes[case["ranks"]]
        try:
            writer = dcp.FileSystemWriter(path, single_file_per_rank=case["writer"] != "a file for each item")
            dcp.save(state_of(case, mesh), storage_writer=writer, process_group=mesh.get_group())
            pipe.send(None)
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
    dist.destroy_process_group()


class Workers:
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.pipes, self.processes = [], []
        for rank in range(3):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(rank, theirs, Path(self.folder.name) / "store"), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def save(self, case, path):
        for pipe in self.pipes[:case["ranks"]]:
            pipe.send((case, path))
        failed = [error for error in [pipe.recv() for pipe in self.pipes[:case["ranks"]]] if error]
        if failed:
            raise RuntimeError(failed[0])


WORKERS = None


def write(case, path):
    global WORKERS
    WORKERS = WORKERS or Workers()
    WORKERS.save(case, path)
    return path, expected(path)


def contents(path):
    content = dump.Dump(dump.load(path))
    tensors = {name: dump.described(one)[:3] for name, one in content.tensors.items()}
    return tensors, {name: dump.to_value(value) for name, value in content.values.items()}


def expected(path):
    """What PyTorch loads in one process."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    whole = path.with_suffix(".whole")
    dcp_to_torch_save(path, whole)
    tensors, values = contents(whole)
    os.unlink(whole)
    return comparison.Expected(tensors, values=values)


def target(path):
    return path.parent / "back" / f"{path.name}.pt"


def read(path):
    return contents(path)[0]


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
