#!/usr/bin/env python3
"""Measures reads over http with the latency of a network, relative to a plain download by parallel ranges.

speed.py STELE WORK [MIB]    STELE: the command (of a release build); WORK: a folder; MIB: of each file (512)

nginx serves two files of the same size, one of few large tensors and one of 20,000 small ones. Each answer is 30 ms
late: by tc in a network namespace where the kernel has netem, else by a proxy in Python, which costs a processor.
    curl      16 processes download a sixteenth each: the limit. To /dev/null, and to files (beside `convert`)
    stele     hash, convert to a local file, inspect
    fsspec    a file of fsspec, each tensor by seek and read; and cat_ranges, one request for each tensor
Each figure is the best of three rounds, which alternate, or of one round if it takes longer than 10 s. fsspec is
installed with pip if it is missing.
"""
import contextlib
import importlib.util
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

from common import MIB, Stele, header_bytes, skipped, write_safetensors
from proxies import Delayed, running
from servers import nginx, program, variables_of

DELAY = 0.030
ROUNDS = 3
STREAMS = 16
BUCKET = "bucket"  # a folder of the server
LONG = 10  # seconds; longer actions are measured once
FEW, MANY = 16, 20_000  # tensors
RUNAI = """
import sys, time
from runai_model_streamer import SafetensorsStreamer
begun, size = time.monotonic(), 0
with SafetensorsStreamer() as streamer:
    streamer.stream_file(sys.argv[1])
    for _, tensor in streamer.get_tensors():
        size += tensor.nbytes
print(time.monotonic() - begun, size)
"""
FSSPEC = ["fsspec==2026.9.0", "aiohttp==3.14.5"]


def inside_namespace(arguments):
    """Runs this script in a network namespace with netem. Returns its exit status, or None if the kernel has none."""
    if not (program("tc") and program("ip") and program("unshare")):
        return None
    prepare = f"ip link set lo up && tc qdisc add dev lo root netem delay {DELAY * 500:.0f}ms limit 1000000"
    if subprocess.run(["unshare", "-n", "sh", "-c", prepare], capture_output=True).returncode != 0:
        return None
    words = ["unshare", "-n", "sh", "-c", prepare + ' && exec "$@"', "sh", sys.executable, *sys.argv, "--netem"]
    return subprocess.run(words).returncode


def run_proxy(port, pipe):
    with running(Delayed(port, DELAY / 2)) as own:
        pipe.send(own)
        pipe.recv()  # until the other end closes


@contextlib.contextmanager
def delaying_proxy(port):
    """Runs the proxy in a process, beside the clients in Python. Yields its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_proxy, args=(port, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def timed(action, *arguments):
    """Returns the seconds of an action, or what it has measured itself."""
    begun = time.monotonic()
    measured = action(*arguments)
    return measured if isinstance(measured, float) else time.monotonic() - begun


def curl(url, size, to):
    """Downloads ranges by as many processes. `to`: a folder, or None."""
    step = -(-size // STREAMS)
    processes = [subprocess.Popen(["curl", "-sf", "-r", f"{i * step}-{min(size, (i + 1) * step) - 1}",
                                   "-o", str(to / f"range{i}") if to else "/dev/null", url]) for i in range(STREAMS)]
    if any([process.wait() for process in processes]):
        raise SystemExit(f"curl cannot download {url}")


def index_of(path):
    """Returns the ranges of a safetensors file's tensors."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    base = header_bytes(path)
    return [(base + begin, base + end) for begin, end in (entry["data_offsets"] for entry in header.values())]


def fsspec_file(url, path):
    """Reads each tensor of an open file, as programs that use safetensors' header and fsspec do."""
    import fsspec
    with fsspec.open(url, "rb").open() as file:
        file.read(header_bytes(path))
        for begin, end in index_of(path):
            file.seek(begin)
            if len(file.read(end - begin)) != end - begin:
                raise SystemExit("fsspec: a short read")


def fsspec_ranges(url, path):
    import fsspec
    ranges = index_of(path)
    files = fsspec.filesystem("http", skip_instance_cache=True)
    begins, ends = zip(*ranges)
    files.cat_ranges([url] * len(ranges), list(begins), list(ends))


def runai(endpoint, name):
    """Reads all tensors over s3:// of nginx, which ignores signatures. Returns the seconds without Python's start."""
    environment = os.environ | variables_of(endpoint) | {
        "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0", "RUNAI_STREAMER_CONCURRENCY": str(STREAMS),
        "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run([sys.executable, "-c", RUNAI, f"s3://{BUCKET}/{name}"], env=environment, capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise SystemExit(f"runai-model-streamer: {done.stderr.strip()[-500:]}")
    return float(done.stdout.split()[0])


def have_fsspec():
    if importlib.util.find_spec("fsspec") and importlib.util.find_spec("aiohttp"):
        return True
    words = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q", *FSSPEC]
    if subprocess.run(words, capture_output=True).returncode != 0:
        skipped("fsspec: pip cannot install it")
        return False
    importlib.invalidate_caches()
    return True


def actions(stele, endpoint, path, work, peers):
    """Returns (name, limit, action) of each measurement of one file."""
    url = f"{endpoint}/{BUCKET}/{path.name}"
    size, to = path.stat().st_size, work / "ranges"
    to.mkdir(exist_ok=True)
    out = work / "out.safetensors"
    found = [("curl to /dev/null", None, lambda: curl(url, size, None)),
             ("curl to files", None, lambda: curl(url, size, to)),
             ("stele hash", "curl to /dev/null", lambda: stele("hash", "--total", url)),
             ("stele convert", "curl to files", lambda: stele("convert", "--quiet", url, out)),
             ("stele inspect", "curl to /dev/null", lambda: stele("inspect", "--largest", "1", url))]
    if importlib.util.find_spec("runai_model_streamer_s3"):
        found.append(("runai streamer", "curl to /dev/null", lambda: runai(endpoint, path.name)))
    if peers:
        found += [("fsspec, file", "curl to /dev/null", lambda: fsspec_file(url, path)),
                  ("fsspec, cat_ranges", "curl to /dev/null", lambda: fsspec_ranges(url, path))]
    return found


def measure(stele, endpoint, path, work, peers):
    todo = actions(stele, endpoint, path, work, peers)
    best = {}
    for _ in range(ROUNDS):
        for name, _, action in todo:
            if best.get(name, 0) < LONG:
                best[name] = min(best.get(name, LONG * 1000), timed(action))
    size = path.stat().st_size
    print(f"{path.name}: {size / MIB:.0f} MiB", flush=True)
    for name, limit, _ in todo:
        ratio = f"  {best[name] / best[limit]:6.2f} of {limit}" if limit else ""
        print(f"    {name:20} {best[name]:7.2f} s {size / MIB / best[name]:8.0f} MiB/s{ratio}", flush=True)


def measure_files(stele, port, work, mib, folder):
    peers = have_fsspec()
    if not importlib.util.find_spec("runai_model_streamer_s3"):
        skipped("runai-model-streamer: not installed")
    for name, count in (("few.safetensors", FEW), ("many.safetensors", MANY)):
        path = write_safetensors(folder / BUCKET / name, count, mib * MIB // count // 4 * 4)
        measure(stele, f"http://127.0.0.1:{port}", path, work, peers)
        path.unlink()


def main(arguments):
    netem = "--netem" in arguments
    arguments = [word for word in arguments if word != "--netem"]
    if len(arguments) < 2 or not program("nginx"):
        print(__doc__ if len(arguments) < 2 else "nginx is not installed")
        return 2
    if not netem and (status := inside_namespace(arguments)) is not None:
        return status
    work = Path(arguments[1]).resolve()
    folder = work / "served"
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    stele, mib = Stele(arguments[0], work / "home"), int(arguments[2]) if len(arguments) > 2 else 512
    with nginx(work, folder, workers=2, logged=False) as web:
        port = int(web.url.rsplit(":", 1)[1])
        print(f"delay of {DELAY * 1000:.0f} ms by {'netem' if netem else 'a proxy'}; {os.cpu_count()} processors")
        if netem:
            measure_files(stele, port, work, mib, folder)
        else:
            with delaying_proxy(port) as proxy:
                measure_files(stele, proxy, work, mib, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
