#!/usr/bin/env python3
"""Prints the cost tables of docs/distributed.md: mpi.py BENCH_MPI PYTHON_WITH_TORCH.

Weak scaling uses 64 MiB for each process; strong scaling, 256 MiB in total. Runs stele::mpi (with MPI) and
torch.distributed.checkpoint (with gloo) one after the other in the same folder; takes the best of three. Both sync
their files.
"""

import os
import shutil
import subprocess
import sys

BENCH, PYTHON = sys.argv[1], sys.argv[2]
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
FOLDER = os.path.abspath("build/bench/mpi")

TORCH = """
import os, socket, sys, time, shutil
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp, torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
torch.set_num_threads(1)
def work(rank, size, port, folder, mib):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    state = {str(i): DTensor.from_local(torch.full((mib * 16, 1024), float(rank)), mesh, [Shard(0)]) for i in range(16)}
    save = load = 1e9
    for _ in range(3):
        if rank == 0: shutil.rmtree(folder, ignore_errors=True)
        dist.barrier()
        begin = time.monotonic()
        dcp.save(state, checkpoint_id=folder)
        save = min(save, time.monotonic() - begin)
        dist.barrier()
        begin = time.monotonic()
        dcp.load(state, checkpoint_id=folder)
        load = min(load, time.monotonic() - begin)
    dist.barrier()
    if rank == 0: print(f"{size} {mib} {save:.4f} {load:.4f}")
    dist.destroy_process_group()
if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (int(sys.argv[1]), port, sys.argv[2], int(sys.argv[3])), nprocs=int(sys.argv[1]))
"""


def run(*command):
    done = subprocess.run([str(part) for part in command], env=ENV, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def last(text):
    return [float(number) for number in text.splitlines()[-1].split()]


def main():
    os.makedirs("build/bench", exist_ok=True)
    script = os.path.abspath("build/bench/dcp_scale.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(TORCH)
    print("| processes | MiB each | stele save | load | dcp.save | dcp.load | save: dcp / stele | load: dcp / stele |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in ("weak", "strong"):
        for size in (1, 2, 4, 8):
            mib = 64 if kind == "weak" else 256 // size
            if kind == "strong" and mib == 64:
                continue
            shutil.rmtree(FOLDER, ignore_errors=True)
            _, _, save, load = last(run("mpirun", "-n", size, "--oversubscribe", BENCH, "scale", FOLDER, mib))
            shutil.rmtree(FOLDER, ignore_errors=True)
            _, _, dcp_save, dcp_load = last(run(PYTHON, script, size, FOLDER, mib))
            shutil.rmtree(FOLDER, ignore_errors=True)
            print(f"| {size} | {mib} | {save:.2f} s | {load:.2f} s | {dcp_save:.2f} s | {dcp_load:.2f} s "
                  f"| {dcp_save / save:.1f} | {dcp_load / load:.1f} |", flush=True)
    print()
    print("| processes | tensors | shapes | messages, packing | planning | index, writing | opening | memory |")
    print("|---|---|---|---|---|---|---|---|")
    for processes, tensors, shapes in ((1000, 2000, "equal"), (10000, 2000, "equal"), (1000, 2000, "different"),
                                       (2500, 2000, "different"), (5000, 2000, "different"), (10000, 2000, "different")):
        print(run(BENCH, "simulate", processes, tensors, shapes).strip(), flush=True)


main()
