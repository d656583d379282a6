"""Writes the files of tests/core/data/zip: zip files that contain files of models.

    model_zip.py ZIPALIGN FOLDER

ZIPALIGN is llamafile's program (Mozilla-Ocho/llamafile cfa861a, llamafile/zipalign.c). It needs Cosmopolitan's headers;
a few macros replace them for gcc: npassert, unassert, wontreturn, tinyprint, DEF_MEM_LEVEL 8. Needs zip 3.0, gguf 0.19,
safetensors 0.8.0, numpy 2.4.6.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

PROGRAM = b"MZqFpD='\n\0" + bytes(range(256))  # the first bytes of a llamafile, and others


def write_gguf(name, architecture, tensor, count):
    writer = gguf.GGUFWriter(name, architecture)
    writer.add_tensor(tensor, np.arange(count, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(*arguments):
    subprocess.run([str(a) for a in arguments], check=True)


def main(zipalign, out):
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_gguf("model.gguf", "llama", "token_embd.weight", 12)
        write_gguf("mmproj.gguf", "clip", "v.weight", 3)
        Path("net").mkdir()
        save_file({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, "net/model.safetensors")
        Path("net/config.json").write_text('{"model_type": "x"}\n' * 20)
        Path(".args").write_text("-m\nmodel.gguf\n")
        for path in Path(".").rglob("*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        for name, models in (("one.llamafile", ["model.gguf"]), ("two.llamafile", ["model.gguf", "mmproj.gguf"])):
            Path(name).write_bytes(PROGRAM)
            run(zipalign, "-j0", "-a", 256, name, *models, ".args")
            (out / name).write_bytes(Path(name).read_bytes())
        run("zip", "-q", "-X", "-0", "stored.zip", "model.gguf", ".args")
        (out / "stored.zip").write_bytes(Path("stored.zip").read_bytes())
        (out / "behind_program.bin").write_bytes(PROGRAM + Path("stored.zip").read_bytes())
        run("zip", "-q", "-X", "-9", "-r", "deflated.zip", "net")
        (out / "deflated.zip").write_bytes(Path("deflated.zip").read_bytes())
        run("zip", "-q", "-X", "nothing.zip", ".args")
        (out / "nothing.zip").write_bytes(Path("nothing.zip").read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
