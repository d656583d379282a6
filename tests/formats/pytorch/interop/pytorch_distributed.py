"""Folders of torch.distributed.checkpoint for pytorch_files.py: by one process and by four."""

import os
import pathlib
import socket
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing

import pytorch_dump as dump
import pytorch_models as models
import pytorch_objects as objects

PROCESSES = 4
ROWS = {"even": (8, 3), "uneven": (5, 3), "few": (2, 4), "long": (1000, 300)}


def squares():
    """Tensors over a 2 x 2 mesh, by their placements."""
    return {"both": ((4, 6), "01"), "uneven_both": ((5, 7), "01"), "swapped": ((6, 4), "10"), "rows": ((7, 2), "0r"),
            "columns": ((3, 8), "r1"), "twice": ((9, 2), "00"), "deep": ((3, 4, 5), "02"), "half": ((6, 2), "0r", torch.float16),
            "f8": ((4, 4), "01", torch.float8_e4m3fn), "counts": ((4,), "0r", torch.int64), "flags": ((5,), "0r", torch.bool)}


def state_of(rank=None):
    """Returns the state of a process; without a rank, the whole."""
    whole = rank is None
    state = {"model": {}, "square": {}, "plain": objects.values("plain", (2,), torch.int64),
             "scalar": objects.values("scalar", (), torch.float64), "epoch": 3, "rate": 0.5, "name": "net",
             "list": [objects.values("list.0", (2,)), {"deep": objects.values("deep", (1,))}]}
    if not whole:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        line, square = init_device_mesh("cpu", (PROCESSES,)), init_device_mesh("cpu", (2, 2))
    for name, shape in ROWS.items():
        tensor = objects.values(name, shape)
        state["model"][name] = tensor if whole else distribute_tensor(tensor, line, [Shard(0)])
    for name, (shape, places, *dtype) in squares().items():
        tensor = objects.values(name, shape, *dtype)
        if not whole:
            if tensor.element_size() == 1 and tensor.dtype not in (torch.bool,):
                tensor_ = tensor.view(torch.uint8)  # gloo does not send f8
                sent = distribute_tensor(tensor_, square, [Replicate() if p == "r" else Shard(int(p)) for p in places])
                from torch.distributed.tensor import DTensor
                tensor = DTensor.from_local(sent.to_local().view(*dtype), square, sent.placements, shape=sent.shape,
                                            stride=sent.stride())
            else:
                tensor = distribute_tensor(tensor, square, [Replicate() if p == "r" else Shard(int(p)) for p in places])
        state["square"][name] = tensor
    return state


def sharded_tensor(rank):
    """Returns a ShardedTensor in four pieces of unequal rows."""
    from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
    whole, bounds = objects.values("sharded", (10, 3)), [0, 1, 4, 6, 10]
    rows = whole[bounds[rank]:bounds[rank + 1]].clone()
    return init_from_local_shards([Shard.from_tensor_and_offsets(rows, [bounds[rank], 0], rank)], 10, 3)


def process(rank, folder, port):
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    os.chdir(folder)
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    state = state_of(rank)
    dcp.save({**state, "sharded": sharded_tensor(rank)}, checkpoint_id="dcp4")
    dcp.save({**state, "sharded": sharded_tensor(rank)},
             storage_writer=dcp.FileSystemWriter("dcp4_items", single_file_per_rank=False))
    flat = {f"model.{k}": v for k, v in state["model"].items()}
    dcp.save(flat, storage_writer=dcp.HuggingFaceStorageWriter("dcp_safetensors4", save_distributed=True))
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def make(folder):
    here = pathlib.Path.cwd()
    os.chdir(folder)
    try:
        one()
        torch.multiprocessing.spawn(process, (str(pathlib.Path.cwd()), free_port()), PROCESSES)
    finally:
        os.chdir(here)
    whole = {**state_of(), "sharded": objects.values("sharded", (10, 3))}
    for name in ("dcp4", "dcp4_items"):
        dump.write(folder / name, dump.Dump(whole))
    dump.write(folder / "dcp_safetensors4", dump.Dump({"model": whole["model"]}))


def one():
    from torch.distributed.checkpoint.state_dict import get_state_dict
    state = {**state_of(), "none": None, "config": {"rate": 0.5, "names": ["a", "b"], "big": 2**70}, "empty": {},
             "no_elements": objects.values("no_elements", (0, 3))}
    dcp.save(state, checkpoint_id="dcp1", no_dist=True)
    dump.write(pathlib.Path("dcp1"), dump.Dump(state))
    model, optimizer = models.trained("transformer", objects.OPTIMIZERS["adamw"])
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id="dcp1_optimizer", no_dist=True)
    dump.write(pathlib.Path("dcp1_optimizer"), dump.Dump({"model": dict(weights), "optimizer": moments}), ties=False)
    flat = {k: v.clone() for k, v in model.state_dict().items()}
    dcp.save(flat, storage_writer=dcp.HuggingFaceStorageWriter("dcp_safetensors"), no_dist=True)
    dump.write(pathlib.Path("dcp_safetensors"), dump.Dump(flat))
    shards = {k: 1 + i % 2 for i, k in enumerate(flat)}
    dcp.save(flat, storage_writer=dcp.HuggingFaceStorageWriter("dcp_safetensors_files", fqn_to_index_mapping=shards),
             no_dist=True)
    dump.write(pathlib.Path("dcp_safetensors_files"), dump.Dump(flat))
