"""Runs the command and writes the files of the checks."""
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples/data/digits.safetensors"
KEYS = {"access": "interop", "secret": "a/secret+with=signs", "region": "us-east-1"}


class Failure(Exception):
    """A check that does not hold."""


def need(condition, text):
    if not condition:
        raise Failure(text)


def ok(text):
    print("ok      " + text, flush=True)


def skipped(text):
    print("skipped " + text, flush=True)


# ---------------------------------------------------------------- the command

class Stele:
    """The command, with an environment of its own: no keys, tokens or proxies of the user."""

    def __init__(self, path, home):
        self.path = str(Path(path).resolve())
        home.mkdir(parents=True, exist_ok=True)
        drop = ("AWS_", "HF_", "CURL_", "SSL_", "XDG_", "HTTP_", "HTTPS_", "ALL_", "NO_")
        self.environment = {name: value for name, value in os.environ.items() if not name.upper().startswith(drop)}
        self.environment |= {"HOME": str(home)}

    def with_variables(self, **variables):
        other = object.__new__(Stele)
        other.path, other.environment = self.path, self.environment | variables
        return other

    def start(self, *arguments):
        """Starts the command; the caller waits for it."""
        words = [self.path, *(word if isinstance(word, bytes) else str(word).encode() for word in arguments)]
        return subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace")

    def run(self, *arguments, limit=300):
        """Returns the exit status, stdout and stderr."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure(f"{shown(arguments)}: runs longer than {limit} s") from None
        need(process.returncode in (0, 1, 2), f"{shown(arguments)}: exit status {process.returncode}: {err}")
        return process.returncode, out, err.strip()

    def __call__(self, *arguments):
        """Returns stdout; any other status than 0 is a failure."""
        status, out, err = self.run(*arguments)
        need(status == 0, f"{shown(arguments)}: status {status}: {err or out}")
        return out

    def refused(self, *arguments, says=()):
        """Returns the error message of a command that must fail, and that contains `says`."""
        status, out, err = self.run(*arguments)
        need(status == 2, f"{shown(arguments)}: must fail, but has the status {status}: {out}{err}")
        for text in [says] if isinstance(says, str) else says:
            need(text.lower() in err.lower(), f"{shown(arguments)}: the message has no {text!r}: {err}")
        return err

    def total(self, path):
        """Returns the digest of all tensors."""
        return self("hash", "--total", path).split()[0]

    def need_equal(self, a, b):
        self("diff", a, b)


def shown(arguments):
    return "stele " + " ".join(word.decode(errors="replace") if isinstance(word, bytes) else str(word)
                               for word in arguments)[:300]


# ---------------------------------------------------------------- files

def floats(size, seed):
    """Returns `size` bytes of f32 between 0.5 and 2, so that none is a NaN."""
    data = bytearray(random.Random(seed).randbytes(size))
    data[3::4] = b"\x3f" * (size // 4)
    return bytes(data)


def write_safetensors(path, count, tensor_bytes, seed=0, prefix="layer"):
    """Writes `count` tensors of random f32."""
    header = {f"{prefix}.{i:05}.weight": {"dtype": "F32", "shape": [tensor_bytes // 4],
                                          "data_offsets": [i * tensor_bytes, (i + 1) * tensor_bytes]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = floats(min(tensor_bytes, MIB), seed)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left, number = count * tensor_bytes, 0
        while left:  # each block begins with a number of its own, so that exchanged blocks are noticed
            piece = (struct.pack("<f", 1 + number / 2**20) + block[4:])[:left]
            file.write(piece)
            left, number = left - len(piece), number + 1
    return path


def header_bytes(path):
    """Returns the size of a safetensors file's index, with its length field."""
    with open(path, "rb") as file:
        return 8 + struct.unpack("<Q", file.read(8))[0]


def write_hub_folder(folder):
    """Writes a folder as the hub has it: two shards, their index and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    places = {}
    for i, name in enumerate(names):
        write_safetensors(folder / name, 3, 4096, seed=i, prefix=f"shard{i}")
        places |= {f"shard{i}.{j:05}.weight": name for j in range(3)}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 6 * 4096}, "weight_map": places}))
    (folder / "config.json").write_text('{"architectures": ["Interop"], "model_type": "interop"}')
    return folder


def digest(data):
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------- processes

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port, process, what, limit=60):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        need(process is None or process.poll() is None, f"{what} has ended")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise Failure(f"{what} does not listen after {limit} s")


@contextlib.contextmanager
def server(words, port, log, **options):
    """Runs a server until the block ends; its output goes to the file `log`."""
    with open(log, "ab") as output:
        process = subprocess.Popen([str(word) for word in words], stdout=output, stderr=output, **options)
    try:
        wait_for_port(port, process, f"{Path(words[0]).name} (its output: {log})")
        yield process
    finally:
        stop(process)


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def program(*names):
    """Returns the path of the first program that is installed."""
    for name in names:
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/go/bin")
        if found:
            return found
    return None
