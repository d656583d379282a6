#!/usr/bin/env python3
"""Exchange distributed checkpoints with torch.distributed.checkpoint, both ways: dcp.py BUILD_FOLDER.

PyTorch's processes use gloo, stele's MPI; both at world sizes 1, 2 and 4. Written with PyTorch 2.15.
"""

import os
import socket
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

SHAPES = {"a": ((13, 4), torch.float32, 1), "b": ((6,), torch.float32, 2), "c": ((5, 3, 2), torch.float64, 3)}
SIZES = (1, 2, 4)
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def whole(name):
    shape, dtype, salt = SHAPES[name]
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.int64) * 7 + salt) % 251).to(dtype).reshape(shape)


def state(size, placement, zeros=False):
    """The model as DTensors of one placement."""
    mesh = init_device_mesh("cpu", (size,))
    tensors = {}
    for name, (shape, dtype, _) in SHAPES.items():
        full = torch.zeros(shape, dtype=dtype) if zeros else whole(name)
        where = Shard(min(placement, len(shape) - 1)) if placement is not None else Replicate()
        tensors[name] = distribute_tensor(full, mesh, [where])
    return tensors


def worker(rank, size, port, job, folder, placement):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        if job == "save_hf":
            dcp.save(state(size, placement), storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True))
        elif job == "save_dcp":
            dcp.save(state(size, placement), checkpoint_id=folder)
        else:
            tensors = state(size, placement, zeros=True)
            dcp.load(tensors, storage_reader=HuggingFaceStorageReader(folder))
            for name, tensor in tensors.items():
                assert torch.equal(tensor.full_tensor(), whole(name)), name
    finally:
        dist.destroy_process_group()


def torch_processes(size, job, folder, placement):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (size, port, job, folder, placement), nprocs=size)


def mpi_processes(program, size, *arguments):
    done = subprocess.run(["mpirun", "-n", str(size), "--oversubscribe", program, *arguments], env=ENV,
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{arguments}, {size} processes: {done.stdout}{done.stderr}")


def main():
    program = os.path.join(sys.argv[1], "tests/mpi/mpi_interop")
    read, written = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            for placement in (0, 1, None):
                for job in ("save_hf", "save_dcp"):
                    path = os.path.join(folder, f"{job}-{size}-{placement}")
                    torch_processes(size, job, path, placement)
                    for readers in SIZES:
                        mpi_processes(program, readers, "read", path)
                        read += 1
            path = os.path.join(folder, f"stele-{size}")
            mpi_processes(program, size, "write", path)
            for readers in SIZES:
                for placement in (0, None):
                    torch_processes(readers, "load", path, placement)
                    written += 1
    print(f"torch {torch.__version__}: {read} checkpoints of PyTorch read into boxes, "
          f"{written} loads of stele's by PyTorch; world sizes {SIZES}")


if __name__ == "__main__":
    main()
