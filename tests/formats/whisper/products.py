"""Products of models of whisper.cpp, which loads each: its numbers and vocabulary, and the tensors that were written."""

import struct
import sys
from pathlib import Path

import _pywhispercpp as whisper
import gguf
import numpy as np

HERE = Path(__file__).parent
sys.path += [str(HERE / "interop"), str(HERE.parents[1] / "products")]
import comparison  # noqa: E402
import whisper_files  # noqa: E402

PACKAGES = ["gguf", "pywhispercpp", "numpy"]
PAGES = ["formats/whisper"]
FILES = 4  # others are larger
Type = gguf.GGMLQuantizationType
FILE_TYPES = {"f32": (Type.F32, 0), "f16": (Type.F16, 1), "q4_0": (Type.Q4_0, 2), "q4_1": (Type.Q4_1, 3), "q8_0": (Type.Q8_0, 7),
              "q5_0": (Type.Q5_0, 8), "q5_1": (Type.Q5_1, 9), "q4_k": (Type.Q4_K, 12), "q6_k": (Type.Q6_K, 14)}
VOCABULARIES = {"5 tokens": whisper_files.VOCABULARY, "no tokens": [], "every byte": [bytes([b]) for b in range(256)],
                "empty and long": [b"", b"x" * 3000, b"\n", "日本語".encode(), b"a\xffb"],
                "1001 tokens": [f"<{i}>".encode() for i in range(1001)]}
DIMENSIONS = {
    "type": list(FILE_TYPES),
    "blocks": ["version 2", "version 1", "version 0"],
    "state": [4, 32, 256],
    "mels": [4, 1, 80, 128],
    "filters": [7, 1, 0, 201],
    "vocabulary": list(VOCABULARIES),
    "further tokens": [1, 0, 50],
    "order": ["declared", "reversed"],
    "unknown type": [False, True],
}
NUMBERS = ["n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx", "n_text_state", "n_text_head",
           "n_text_layer", "n_mels", "ftype"]


def is_block(case):
    return case["type"][0] == "q"


def possible(case):
    size = 256 if case["type"].endswith("_k") else 32
    return all([
        not is_block(case) or case["state"] % size == 0,
        is_block(case) or case["blocks"] == "version 0",
        case["state"] < 256 or case["type"].endswith("_k"),
        case["vocabulary"] != "no tokens" or case["further tokens"],  # whisper.cpp wants a vocabulary
    ])


def hides(case):
    return case["unknown type"] or is_block(case) and case["blocks"] != "version 2"


def stored(values, of, random):
    """The bytes of a tensor; gguf does not quantize to blocks of 256, whose bytes are any then."""
    if of in (Type.Q4_K, Type.Q6_K):
        elements, size = gguf.GGML_QUANT_SIZES[of]
        return random.integers(0, 64, values.size // elements * size, np.uint8).tobytes()
    return gguf.quants.quantize(values, of).tobytes()


def tensors_of(case):
    """Return (name, shape, type, bytes) of each tensor in the order of the file."""
    type_ = FILE_TYPES[case["type"]][0]
    whisper_files.STATE, whisper_files.MELS = case["state"], case["mels"]
    random, all_of_them = np.random.default_rng(1), []
    for name, shape in whisper_files.shapes().items():
        if name == "decoder.token_embedding.weight":
            shape = (vocabulary_size(case), case["state"])
        values = (random.integers(-64, 64, shape) / 32).astype(np.float32)
        large = len(shape) > 1 and not name.endswith(("bias", "positional_embedding"))
        of = Type.F32 if not large else type_ if len(shape) == 2 or type_ == Type.F32 else Type.F16
        all_of_them.append((name, shape, of, stored(values, of, random)))
    return all_of_them[::-1] if case["order"] == "reversed" else all_of_them


def vocabulary_size(case):
    return len(VOCABULARIES[case["vocabulary"]]) + case["further tokens"]


def write(case, path):
    path = path.with_suffix(".bin")
    tokens, state = VOCABULARIES[case["vocabulary"]], case["state"]
    file_type = FILE_TYPES[case["type"]][1] + 1000 * int(case["blocks"][-1])
    numbers = [vocabulary_size(case), 4, state, 2, 1, 5, state, 2, 1, case["mels"], file_type]
    filters = np.random.default_rng(2).random([case["mels"], case["filters"]], np.float32)
    data = struct.pack("<I11i", 0x67676D6C, *numbers) + struct.pack("<2i", *filters.shape) + filters.tobytes()
    data += struct.pack("<i", len(tokens)) + b"".join(struct.pack("<i", len(token)) + token for token in tokens)
    tensors, unread = {"mel_filters": filters}, []
    for name, shape, of, content in tensors_of(case):
        data += struct.pack("<3i", len(shape), len(name), of) + struct.pack(f"<{len(shape)}i", *reversed(shape))
        data += name.encode() + content
        if unread:
            continue
        if of > Type.F16 and case["blocks"] != "version 2":
            unread.append(name)  # and what follows
        else:
            tensors[name] = (of.name.lower().replace("_k", "_K"), list(shape), content)
    path.write_bytes(data)
    found = loaded(path, tokens)
    if case["unknown type"]:  # no program loads it
        name = b"another"
        path.write_bytes(data + struct.pack("<3i", 1, len(name), 99) + struct.pack("<i", 3) + name + b"bytes")
        unread = unread or [name.decode()]
    return path, comparison.Expected(tensors, unread, metadata=found)


def loaded(path, tokens):
    """The numbers and the vocabulary by whisper.cpp, as properties."""
    parameters = whisper.whisper_context_default_params()
    parameters.use_gpu = False
    context = whisper.whisper_init_from_file_with_params(str(path), parameters)
    if context is None:
        raise RuntimeError(f"{path}: whisper.cpp does not load it")
    numbers = {f"whisper.{name}": getattr(whisper, f"whisper_model_{name}")(context) for name in NUMBERS}
    numbers["whisper.ftype"] = struct.unpack_from("<i", path.read_bytes(), 44)[0]  # whisper.cpp has it without the version
    by_program = [bytes(whisper.whisper_token_to_bytes(context, i)) for i in range(len(tokens))]
    # Its interface ends a token at a zero byte.
    assert by_program == [token.split(b"\0")[0] for token in tokens], f"{path}: another vocabulary"
    return numbers | {"tokenizer.ggml.tokens": [characters(token) for token in tokens]}


def characters(token):
    """The alphabet of GPT-2: printable bytes are themselves, the others are the characters from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return "".join(chr(b) if b in printable else chr(256 + others.index(b)) for b in token)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
