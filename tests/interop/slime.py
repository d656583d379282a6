#!/usr/bin/env python3
"""Weight updates both ways against slime's own code: slime.py STELE SLIME.

STELE is the command; SLIME a checkout of https://github.com/THUDM/slime (tried: 624b824). Needs numpy, safetensors,
xxhash and zstandard. The engine's side is `local_checkpoint.py` of slime's patch of SGLang, the trainer's side
`slime/utils/disk_delta.py`; the class that writes the files needs GPUs, so its few lines that assemble them are here.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy
import zstandard


def load(name, text, folder):
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def engine_code(slime):
    patch = next(iter(sorted(slime.glob("docker/patch/*/sglang-pull_weights.patch")))).read_text()
    part = re.search(r"^\+\+\+ b/\S*/local_checkpoint\.py\n@@[^\n]*\n((?:\+[^\n]*\n)+)", patch, re.M)[1]
    return "".join(line[1:] + "\n" for line in part.splitlines())


def models():
    random = np.random.default_rng(7)
    first = {"a.weight": random.standard_normal((300, 70), dtype=np.float32), "b.weight": random.standard_normal(1000).astype(np.float16),
             "frozen": np.arange(50, dtype=np.int64)}
    versions = [first]
    for step in range(3):
        new = {name: tensor.copy() for name, tensor in versions[-1].items()}
        new["a.weight"][random.random((300, 70)) < 0.02] += np.float32(0.001)
        if step != 1:
            new["b.weight"][::17] *= np.float16(1.5)
        versions.append(new)
    return versions


def equal(a, b):
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and np.array_equal(a[n], b[n]) for n in a)


def publish(disk_delta, folder, old, new, version, encoding, algorithm):
    """What UpdateWeightFromDiskDelta writes on one rank."""
    delta, sums = {}, {}
    for name in new:
        before, after = old[name].reshape(-1).view(np.uint8), new[name].reshape(-1).view(np.uint8)
        diff = after ^ before if encoding == "xor" else disk_delta.overwrite_encode(after, after != before)
        if np.array_equal(before, after):
            continue
        delta[name] = np.frombuffer(zstandard.ZstdCompressor(level=1).compress(diff), dtype=np.uint8)
        sums[name] = disk_delta.checksum(algorithm, after)
    folder.mkdir(parents=True)
    file = "model-00001-of-00001.safetensors"
    (folder / file).write_bytes(safetensors.numpy.save(delta, metadata=sums))
    metadata = {"version": f"{version:06d}", "base_version": f"{version - 1:06d}", "delta_encoding": encoding,
                "compression_format": "zstd", "checksum_format": algorithm}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": metadata, "weight_map": {n: file for n in delta}}))


def main():
    stele, slime = sys.argv[1], Path(sys.argv[2])
    versions = models()
    checks = 0
    for encoding in ("xor", "overwrite"):
        for algorithm in ("xxh3-128", "adler32"):
            with tempfile.TemporaryDirectory() as name:
                work = Path(name)
                engine = load("local_checkpoint", engine_code(slime), work)
                trainer = load("disk_delta", (slime / "slime/utils/disk_delta.py").read_text(), work)
                for v, tensors in enumerate(versions):
                    (work / f"v{v}").mkdir()
                    safetensors.numpy.save_file(tensors, work / f"v{v}" / "model.safetensors", metadata={"format": "pt"})
                (work / "ours").mkdir()
                for v in range(1, len(versions)):
                    subprocess.run([stele, "delta", work / f"v{v - 1}/model.safetensors", work / f"v{v}/model.safetensors", "-o",
                                    work / "ours" / f"weight_v{v:06d}", "--to", "update", "--update-version", str(v), "--encoding", encoding,
                                    "--checksum", algorithm, "-q"], check=True)
                    publish(trainer, work / "theirs" / f"weight_v{v:06d}", versions[v - 1], versions[v], v, encoding, algorithm)
                for target in range(1, len(versions)):  # ours, by the engine's code, version after version
                    engine.pull(str(work / "local"), str(work / "v0"), str(work / "ours"), target)
                    assert equal(safetensors.numpy.load_file(work / "local" / "model.safetensors"), versions[target]), (encoding, target)
                    checks += 1
                updates = [work / "theirs" / f"weight_v{v:06d}" for v in range(1, len(versions))]
                for target in range(1, len(versions)):  # theirs, by stele
                    out = work / f"out{target}.safetensors"
                    subprocess.run([stele, "apply", work / "v0/model.safetensors", *updates[:target], "-o", out, "-q"], check=True)
                    assert equal(safetensors.numpy.load_file(out), versions[target]), (encoding, target)
                    checks += 1
                wrong = subprocess.run([stele, "apply", work / "v0/model.safetensors", updates[1], "-o", work / "wrong.safetensors"], capture_output=True)
                assert wrong.returncode == 2 and not (work / "wrong.safetensors").exists(), wrong
                checks += 1
    print(f"slime: {checks} checks, all agree")


if __name__ == "__main__":
    main()
