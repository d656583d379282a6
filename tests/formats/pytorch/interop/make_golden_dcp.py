#!/usr/bin/env python3
"""Write the folders dcp_* of safetensors/data and dcp_mesh, dcp_ranks and dcp_adam of pytorch/data, in tests/formats.

    pip install torch==2.15.0 safetensors==0.8.0 numpy
    python3 tests/formats/pytorch/interop/make_golden_dcp.py safetensors|pytorch [FOLDER]

Starts processes with gloo. Element k of a tensor, counted in C order over the whole tensor, is k % 251 (k % 2 for
bool). README.md beside the files lists the tensors.
"""

import argparse
import os
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

WORLD = 4


def values(dtype, shape):
    count = 1
    for extent in shape:
        count *= extent
    k = torch.arange(count)
    data = k % 2 if dtype == torch.bool else k % 251
    return data.to(dtype).reshape(shape)


def state(mesh):
    """Tensors that are cut in every way that a mesh of two by two allows."""
    cut = lambda tensor, *placements: distribute_tensor(tensor, mesh, list(placements))
    return {
        "rows": cut(values(torch.float32, (10, 3)), Shard(0), Replicate()),
        "rows.all": cut(values(torch.float32, (7, 2)), Shard(0), Shard(0)),
        "columns": cut(values(torch.float32, (3, 9)), Replicate(), Shard(1)),
        "grid": cut(values(torch.bfloat16, (5, 6)), Shard(0), Shard(1)),
        "cube": cut(values(torch.int64, (2, 3, 5)), Shard(2), Shard(1)),
        "few": cut(values(torch.float16, (1, 4)), Shard(0), Replicate()),
        "whole": cut(values(torch.float64, (2, 2)), Replicate(), Replicate()),
        "mask": cut(values(torch.bool, (8,)), Shard(0), Shard(0)),
        "scalar": values(torch.float32, ()) + 3,
        "none": values(torch.float32, (0, 2)),
    }


def start(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)


def save_safetensors(rank, folder):
    start(rank, WORLD, 29512)
    all_tensors = state(init_device_mesh("cpu", (2, 2)))

    def write(name, tensors, **options):
        writer = HuggingFaceStorageWriter(path=str(folder / name), save_distributed=True, **options)
        dcp.save(tensors, storage_writer=writer)

    write("dcp_sharded", all_tensors)
    # Two files for each rank, by tensor.
    some = {key: all_tensors[key] for key in ("columns", "grid", "rows")}
    write("dcp_buckets", some, fqn_to_index_mapping={"columns": 2, "grid": 1, "rows": 2})
    write("dcp_consolidated", {key: all_tensors[key] for key in ("columns", "rows")}, enable_consolidation=True)
    dist.destroy_process_group()


def safetensors(folder):
    for name in ("dcp_sharded", "dcp_buckets", "dcp_consolidated", "dcp_rank0"):
        shutil.rmtree(folder / name, ignore_errors=True)
    mp.spawn(save_safetensors, (folder,), nprocs=WORLD)
    # One process, with an index.
    writer = HuggingFaceStorageWriter(path=str(folder / "dcp_rank0"), fqn_to_index_mapping={"a": 1, "b": 2})
    dcp.save({"a": values(torch.float32, (2, 3)), "b": values(torch.int32, (4,))}, storage_writer=writer, no_dist=True)


def save_mesh(rank, folder):
    start(rank, WORLD, 29513)
    mesh = init_device_mesh("cpu", (2, 2))
    tensors = state(mesh)
    # A chunk whose elements are in the order of columns.
    turned = distribute_tensor(values(torch.float32, (6, 4)), mesh, [Shard(1), Replicate()])
    local = turned.to_local()
    turned = DTensor.from_local(local.t().contiguous().t(), mesh, [Shard(1), Replicate()])
    assert not turned.to_local().is_contiguous()
    tensors |= {
        "turned": turned,
        "complex": values(torch.complex64, (3,)),
        "eight": values(torch.float32, (5,)).to(torch.float8_e4m3fn),
        "options": argparse.Namespace(weight=values(torch.float32, (2,)), rate=0.5),
        "list": [1, "two", {"three": [4.5, None]}],
    }
    os.chdir(folder)  # the metadata contain the path
    dcp.save({"all": tensors}, checkpoint_id="dcp_mesh")
    dist.destroy_process_group()


def save_ranks(rank, folder):
    start(rank, 2, 29514)
    mesh = init_device_mesh("cpu", (2,))
    tensors = {
        "rows": distribute_tensor(values(torch.float32, (5, 2)), mesh, [Shard(0)]),
        "whole": distribute_tensor(values(torch.float32, (3,)), mesh, [Replicate()]),
        "plain": values(torch.int64, (3,)),
        "rank": rank,
        f"own.{rank}": values(torch.int32, (2,)),
    }
    os.chdir(folder)
    dcp.save(tensors, checkpoint_id="dcp_ranks", use_collectives=False)
    dist.destroy_process_group()


def pytorch(folder):
    for name in ("dcp_mesh", "dcp_ranks", "dcp_adam"):
        shutil.rmtree(folder / name, ignore_errors=True)
    mp.spawn(save_mesh, (folder,), nprocs=WORLD)
    mp.spawn(save_ranks, (folder,), nprocs=2)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(values(torch.float32, tuple(parameter.shape)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    for _ in range(2):
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    names, states = get_state_dict(model, optimizer)
    os.chdir(folder)
    dcp.save({"model": names, "optimizer": states}, checkpoint_id="dcp_adam", no_dist=True)


def main():
    kind = sys.argv[1]
    default = pathlib.Path(__file__).resolve().parents[2] / kind / "data"
    {"safetensors": safetensors, "pytorch": pytorch}[kind](pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else default)


if __name__ == "__main__":
    main()
