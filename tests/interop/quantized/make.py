#!/usr/bin/env python3
"""Tiny checkpoints in the quantization schemes of the Hugging Face hub, written by the packages that own the schemes.

make.py OUT_DIR [SCHEME...]        without names: every scheme; a name ending in * takes all that start so
make.py --list                     prints the schemes

For each scheme:
    OUT_DIR/SCHEME/                         config.json and model.safetensors (or shards), as on the hub
    OUT_DIR/SCHEME.expected.safetensors     every logical tensor by its logical name, in the dtype in which the
                                            package's own decoder yields it; what is not quantized as it is
    OUT_DIR/SCHEME.expected_f32.safetensors the quantized ones again, where the decoder can calculate in f32
facts.md beside this file says what each folder holds and how it is decoded. The schemes are in schemes_*.py.

The package that a scheme belongs to writes the tensors and config.json, and reads the written file back for the
expected values; where a package cannot write on a CPU (gpt-oss, DeepSeek-V4, partial FP8 blocks, torchao's Int4Tensor),
its layout is written here and its decoder gives the expected values. Weights are seeded: a second run writes the same
tensors (the order of a file's metadata may differ). All schemes take one or two minutes and 50 MB.

Packages (Python 3.11, CPU only; --no-deps keeps CUDA out):
    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 transformers==5.24.0 compressed-tensors==0.20.0
                accelerate==1.15.0 mlx==0.32.4 mlx-cpu==0.32.4
    pip install --no-deps auto-round==0.16.1 py-cpuinfo
    pip install --no-deps torchao==0.18.0 bitsandbytes==0.50.2 autoawq==0.2.9 mlx-lm==0.32.2 comfy-kitchen==0.2.40
                hqq==0.2.8.post1 einops termcolor optimum-quanto==0.2.7 amd-quark==0.13 onnx ml_dtypes onnxslim
                nvidia-modelopt==0.47.0 peft==0.21.2 omegaconf antlr4-python3-runtime==4.9.3 pulp scipy nvidia-ml-py ninja
    pip install --no-deps --no-build-isolation gptqmodel==7.7.0   (with BUILD_CUDA_EXT=0)
    pip install --no-deps device-smi pypcre tokenicer logbar defuser threadpoolctl dill xxhash multiprocess pandas
                datasets pyarrow pillow protobuf requests urllib3 certifi charset-normalizer python-dateutil six pytz
                aiohttp
    pip install --no-deps --target DIR compressed-tensors==0.10.2   for the schemes ct_old_*, which are left out unless
                                                                    OLD_COMPRESSED_TENSORS=DIR
"""
import fnmatch
import json
import os
import pathlib
import shutil
import sys

from schemes import OLD, SCHEMES  # first: it sets the environment of the packages
import schemes_compressed_tensors
# Each registers its schemes:
import schemes_fp8  # noqa: F401
import schemes_gptq  # noqa: F401
import schemes_modelopt  # noqa: F401
import schemes_others  # noqa: F401
import schemes_transformers  # noqa: F401
import torch
from safetensors.torch import save_file


def run(name, out):
    function, arguments = SCHEMES[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(7)
    expected, expected_f32 = function(folder, **arguments)
    for suffix, content in ("expected", expected), ("expected_f32", expected_f32):
        path = out / f"{name}.{suffix}.safetensors"
        path.unlink(missing_ok=True)
        if content:
            save_file({key: tensor.detach().contiguous().clone() for key, tensor in sorted(content.items())}, path)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size >> 10} KiB, {len(expected)} logical tensors, f32 {len(expected_f32 or {})}", flush=True)


def main(arguments):
    if arguments[:1] == ["--old"]:
        return schemes_compressed_tensors.ct_old_process(**json.loads(arguments[1]))
    if arguments[:1] == ["--list"]:
        print("\n".join(SCHEMES))
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    torch.set_num_threads(1)
    import transformers
    transformers.logging.disable_progress_bar()
    out = pathlib.Path(arguments[0]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments[1:] or ["*"]
    failed = []
    for name in SCHEMES:
        if name.startswith("ct_old") and OLD not in os.environ:
            print(f"{name}: left out, {OLD} is not set")
        elif any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted):
            try:
                run(name, out)
            except Exception as error:
                import traceback
                traceback.print_exc()
                shutil.rmtree(out / name, ignore_errors=True)
                failed.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    print("\n".join(["failed:"] + failed) if failed else "all written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
