#!/usr/bin/env python3
"""GGUF files both ways against gguf-py, llama.cpp and transformers.

    gguf_both_ways.py BUILD WORK    BUILD: folder with the programs; WORK: for files

1. stele reads what gguf-py writes: values, key-value pairs, split sets; copies of stele are read by gguf-py.
2. gguf-py reads every block dtype that stele writes.
3. Mixtures: the blocks are those of llama.cpp's own quantizer, byte for byte.
4. Models of transformers that `stele convert` writes as GGUF run in llama.cpp: a Llama with rows of 256 columns in
   several mixtures, and a tiny model of each architecture. Their logits are those of transformers.
"""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

HERE = Path(__file__).resolve().parent
# Of gguf-py 0.19.0: no decoder for q1_0, no q2_0.
WRITTEN = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "tq1_0", "tq2_0",
           "mxfp4", "nvfp4"]
MIXTURES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S",
            "Q5_K_M", "Q6_K", "IQ4_NL", "TQ1_0", "TQ2_0", "MXFP4_MOE"]
# Largest differences of a logit that llama.cpp's own files of these mixtures have, with room for another machine.
LIMITS = {"F32": 1e-3, "F16": 0.02, "Q8_0": 0.12, "Q4_K_M": 0.9}

# The rows of gguf_make_model.py. llama.cpp computes gelu with a table of f16, which is the difference in f32 of gemma*
# and gpt2.
KINDS = ["llama", "llama-tied", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "phi3-long",
         "gpt2"]
LIMITS_OF_KINDS = {"f32": 4e-3, "f16": 0.02, "q8_0": 0.3}

build, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
failures = []


def run(*command, check=True):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if check and done.returncode != 0:
        failures.append(" ".join(str(part) for part in command))
        print(done.stdout + done.stderr)
    return done


def stele(*arguments):
    return run(build / "tools/stele/stele", *arguments)


def python(script, *arguments):
    done = run(sys.executable, HERE / script, *arguments)
    print(done.stdout.strip())
    return done


def expect(what, holds):
    print(("ok      " if holds else "FAILED  ") + what)
    if not holds:
        failures.append(what)


def blocks_of(path):
    return {t.name: (t.tensor_type.name, t.data.tobytes()) for t in gguf.GGUFReader(path).tensors}


def read_theirs():
    files = work / "files"
    python("gguf_files.py", files)
    for name in ("v2", "v3", "random", "split-00001-of-00003"):
        source = files / f"{name}.gguf"
        wanted = files / (name.split("-")[0] + ".safetensors")
        # As stele decodes it, and as gguf-py decodes stele's copy.
        stele("convert", source, work / f"{name}.safetensors", "--precision", "f32", "--allow-loss")
        python("gguf_check.py", source, work / f"{name}.safetensors")
        stele("convert", source, work / f"{name}-copy.gguf")
        metadata = ["--metadata", files / "metadata.json"] if name in ("v2", "v3") else []
        python("gguf_check.py", work / f"{name}-copy.gguf", wanted, *metadata)
    big = run(build / "tools/stele/stele", "inspect", files / "big.gguf", check=False)
    expect("a big-endian file is refused", big.returncode != 0 and "big-endian" in big.stderr)


def write_ours():
    random = np.random.default_rng(0)
    tensors = {"plain.weight": random.normal(size=(5, 512)).astype(np.float32),
               "scaled.weight": (random.normal(size=(4, 1024)) * np.exp2(random.integers(-20, 12, (4, 1)))).astype(np.float32),
               "bias": random.normal(size=7).astype(np.float32)}
    source = work / "floats.safetensors"
    save_file(tensors, source)
    for dtype in WRITTEN:
        out = work / f"ours-{dtype}.gguf"
        stele("convert", source, out, "--precision", dtype)
        stele("convert", out, work / "decoded.safetensors", "--precision", "f32", "--allow-loss")
        python("gguf_check.py", out, work / "decoded.safetensors")
        error = np.abs(load_file(work / "decoded.safetensors")["plain.weight"] - tensors["plain.weight"]).max()
        expect(f"{dtype}: largest error {error:.3g}", error < (2.5 if dtype.startswith("tq") else 1.1))


def mixtures(reference):
    for mixture in MIXTURES:
        theirs, ours = work / f"theirs-{mixture}.gguf", work / f"ours-{mixture}.gguf"
        python("gguf_quantize.py", reference, theirs, mixture)
        stele("convert", reference, ours, "--precision", mixture)
        a, b = blocks_of(theirs), blocks_of(ours)
        different = [name for name in a if a[name] != b.get(name)]
        expect(f"{mixture}: {len(a)} tensors with llama.cpp's bytes", a.keys() == b.keys() and not different)
        for name in different[:3]:
            print(f"    {name}: {b.get(name, ('missing',))[0]}, wants {a[name][0]}")


def main():
    work.mkdir(parents=True, exist_ok=True)
    read_theirs()
    write_ours()
    for folder, options in (("wide", []), ("wide-tied", ["--tied", "--rope-llama3"])):
        python("gguf_make_llama.py", work / folder, *options)
        for mixture, limit in LIMITS.items():
            out = work / f"{folder}-{mixture}.gguf"
            stele("convert", work / folder, out, "--precision", mixture)
            print(f"{folder} {mixture}: ", end="")
            python("gguf_llama.py", work / folder, out, "--limit", limit)
    mixtures(work / "wide-F32.gguf")
    for kind in KINDS:
        python("gguf_make_model.py", kind, work / kind)
        for precision, limit in LIMITS_OF_KINDS.items():
            out = work / f"{kind}-{precision}.gguf"
            stele("convert", work / kind, out, "--precision", precision)
            print(f"{kind} {precision}: ", end="")
            python("gguf_llama.py", work / kind, out, "--limit", limit)
    print(f"{len(failures)} failures" if failures else "all agree")
    for failure in failures:
        print("  " + failure)
    sys.exit(1 if failures else 0)


main()
