"""Models of whisper.cpp: check STELE compares what the command reads with what this script wrote, and has whisper.cpp
load the same files. The golden files are made by whisper.cpp's own programs (tests/formats/whisper/data/README.md).

    whisper_files.py check STELE
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import _pywhispercpp as whisper
import gguf
import numpy as np

STATE, MELS, VOCABULARY = 32, 4, [b"!", b" a", "é".encode(), b"\xff\x00", b"the"]
F32, F16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16
TYPES = {"f16": (F16, 1), "q4_0": (gguf.GGMLQuantizationType.Q4_0, 2002),
         "q4_1": (gguf.GGMLQuantizationType.Q4_1, 2003),
         "q5_0": (gguf.GGMLQuantizationType.Q5_0, 2008), "q5_1": (gguf.GGMLQuantizationType.Q5_1, 2009),
         "q8_0": (gguf.GGMLQuantizationType.Q8_0, 2007)}


def shapes():
    """Return the shape of each tensor of a Whisper model with one layer on each side."""
    n, out = STATE, {}

    def block(prefix, attentions):
        for attention in attentions:
            for part in ("query", "key", "value", "out"):
                out[f"{prefix}.{attention}.{part}.weight"] = (n, n)
                if part != "key":
                    out[f"{prefix}.{attention}.{part}.bias"] = (n,)
            out[f"{prefix}.{attention}_ln.weight"] = out[f"{prefix}.{attention}_ln.bias"] = (n,)
        out.update({f"{prefix}.mlp.0.weight": (4 * n, n), f"{prefix}.mlp.0.bias": (4 * n,),
                    f"{prefix}.mlp.2.weight": (n, 4 * n), f"{prefix}.mlp.2.bias": (n,),
                    f"{prefix}.mlp_ln.weight": (n,), f"{prefix}.mlp_ln.bias": (n,)})

    out.update({"encoder.positional_embedding": (4, n), "encoder.conv1.weight": (n, MELS, 3),
            "encoder.conv1.bias": (n, 1), "encoder.conv2.weight": (n, n, 3), "encoder.conv2.bias": (n, 1)})
    block("encoder.blocks.0", ["attn"])
    out.update({"encoder.ln_post.weight": (n,), "encoder.ln_post.bias": (n,), "decoder.positional_embedding": (5, n),
            "decoder.token_embedding.weight": (6, n)})
    block("decoder.blocks.0", ["attn", "cross_attn"])
    return out | {"decoder.ln.weight": (n,), "decoder.ln.bias": (n,)}


def write(path, kind):
    """Write a model, and return its tensors as floats."""
    type_, file_type = TYPES[kind]
    random, tensors = np.random.default_rng(1), {"mel_filters": np.arange(28, dtype=np.float32).reshape(MELS, 7) / 8}
    data = struct.pack("<I11i", 0x67676D6C, 6, 4, STATE, 2, 1, 5, STATE, 2, 1, MELS, file_type)
    data += struct.pack("<2i", MELS, 7) + tensors["mel_filters"].tobytes() + struct.pack("<i", len(VOCABULARY))
    for token in VOCABULARY:
        data += struct.pack("<i", len(token)) + token
    for name, shape in shapes().items():
        values = (random.integers(-64, 64, shape) / 32).astype(np.float32)
        large = len(shape) > 1 and not name.endswith(("bias", "positional_embedding"))
        of = F32 if not large else type_ if len(shape) == 2 else F16
        stored = gguf.quants.quantize(values, of)
        tensors[name] = gguf.quants.dequantize(stored, of).reshape(shape)
        data += struct.pack("<3i", len(shape), len(name), of) + struct.pack(f"<{len(shape)}i", *reversed(shape))
        data += name.encode() + stored.tobytes()
    path.write_bytes(data)
    return tensors


def check(stele):
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            path, out = Path(folder) / f"ggml-{kind}.bin", Path(folder) / f"{kind}.gguf"
            tensors = write(path, kind)
            parameters = whisper.whisper_context_default_params()
            parameters.use_gpu = False
            context = whisper.whisper_init_from_file_with_params(str(path), parameters)
            if context is None or whisper.whisper_n_vocab(context) != 6:
                sys.exit(f"{kind}: whisper.cpp does not load it")
            if whisper.whisper_token_to_str(context, 2) != "é":
                sys.exit(f"{kind}: whisper.cpp reads another vocabulary")
            subprocess.run([stele, "convert", str(path), str(out), "--quiet"], check=True)
            read = gguf.GGUFReader(out)
            found = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in read.tensors}
            if found.keys() != tensors.keys():
                sys.exit(f"{kind}: names: {sorted(found.keys() ^ tensors.keys())}")
            for name, value in tensors.items():
                np.testing.assert_array_equal(found[name].reshape(value.shape), value, name)
            tokens = read.fields["tokenizer.ggml.tokens"].contents()
            if tokens != ["!", "Ġa", "Ã©", "ÿĀ", "the"]:
                sys.exit(f"{kind}: the vocabulary is {tokens}")
            if read.fields["whisper.ftype"].contents() != TYPES[kind][1]:
                sys.exit(f"{kind}: another ftype")
            print(f"{kind}: {len(found)} tensors, equal to those written; whisper.cpp loads the file")


if __name__ == "__main__":
    check(sys.argv[2])
