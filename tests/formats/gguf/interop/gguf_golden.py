#!/usr/bin/env python3
"""Writes tests/command/llama_golden.json: pairs and tensors of llama.cpp's own converter for a tiny model of each kind.

    gguf_golden.py LLAMA_CPP    the folder of llama.cpp's sources, for example vendor/llama.cpp of llama_cpp_python's

Of llama.cpp 0c1e57098 (llama_cpp_python 0.3.36), with transformers 5.24.0. The tokenizers are left out: the converter
recognizes them by hashes of real vocabularies.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "tests/command"), sys.argv[1], sys.argv[1] + "/gguf-py"]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import base, get_model_class  # noqa: E402
from llama_test import MODELS, Gguf, make_model, summary  # noqa: E402


def converted(kind, folder):
    make_model(kind, folder, buffers=False)  # which the converter of this version refuses
    out = Path(folder) / "out.gguf"
    made = get_model_class(MODELS[kind][0])
    made.set_vocab = lambda self: None
    with torch.inference_mode():
        made(Path(folder), gguf.LlamaFileType.MOSTLY_F16, out, eager=True).write()
    file = Gguf(out)
    pairs = {key: pair for key, pair in file.pairs.items() if key not in ("general.name", "general.size_label")}
    return {"pairs": pairs, "tensors": {name: summary(name, tensor) for name, tensor in file.tensors.items()}}


golden = {}
for kind in MODELS:
    with tempfile.TemporaryDirectory() as folder:
        golden[kind] = converted(kind, folder)
text = json.dumps(golden, indent=1, sort_keys=True)
text = re.sub(r"\[[^\[\]]*\]", lambda part: " ".join(part[0].split()), text)
text = re.sub(r"\[[^\[\]]*(\[[^\[\]]*\][^\[\]]*)+\]", lambda part: " ".join(part[0].split()), text)
(ROOT / "tests/command/llama_golden.json").write_text(text + "\n")
