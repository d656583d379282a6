"""llama_to_gguf: the key-value pairs and tensors of llama.cpp's convert_hf_to_gguf.py for a table of configurations.

The expected pairs follow conversion/base.py, conversion/llama.py and gguf-py/gguf/vocab.py of llama.cpp (2026), except
general.name and what else describes a model's page, and except the scores of a tokenizer.json (see the program).
"""

import json
import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import safetensors

PROGRAM = os.environ["LLAMA_TO_GGUF"]

WIDTH, HIDDEN, HEADS, KEY_HEADS, LAYERS = 16, 32, 2, 1, 2
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CONFIG = {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "max_position_embeddings": 64, "vocab_size": 16,
          "rms_norm_eps": 1e-5}

# ---- GGUF, read from its specification

SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TYPE_NAMES = {4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "string", 12: "f64"}
GGML = {0: ("f32", 4), 1: ("f16", 2), 30: ("bf16", 2)}


class Gguf:
    """The pairs (name -> (type, value)) and tensors (name -> (type, shape, bytes)) of a file."""

    def __init__(self, path):
        self.data, self.at = Path(path).read_bytes(), 4
        assert self.data[:4] == b"GGUF" and self.take("I") == 3
        tensors, pairs = self.take("Q"), self.take("Q")
        self.pairs = {}
        for _ in range(pairs):
            key, kind = self.text(), self.take("I")
            if kind == 9:
                element, count = self.take("I"), self.take("Q")
                self.pairs[key] = (f"[{TYPE_NAMES[element]}]", [self.value(element) for _ in range(count)])
            else:
                self.pairs[key] = (TYPE_NAMES[kind], self.value(kind))
        entries = []
        for _ in range(tensors):
            name = self.text()
            shape = [self.take("Q") for _ in range(self.take("I"))][::-1]
            entries.append((name, shape, self.take("I"), self.take("Q")))
        start = (self.at + 31) // 32 * 32
        self.tensors = {}
        for name, shape, kind, offset in entries:
            dtype, size = GGML[kind]
            for extent in shape:
                size *= extent
            self.tensors[name] = (dtype, shape, self.data[start + offset:start + offset + size])

    def take(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        return self.text() if kind == 8 else self.take(SIMPLE[kind])


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


# ---- models

def elements(dtype, count, first):
    """Numbers first, first + 1, …, exact in bf16."""
    numbers = [float(first + i) % 128 for i in range(count)]
    packed = struct.pack(f"<{count}f", *numbers)
    if dtype == "BF16":
        return b"".join(packed[i + 2:i + 4] for i in range(0, len(packed), 4))
    return struct.pack(f"<{count}e", *numbers) if dtype == "F16" else packed


def names(head_size, biases=False, tied=False):
    """The tensors of transformers: name -> shape."""
    out = {"model.embed_tokens.weight": None, "model.norm.weight": [WIDTH]}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        rows = {"self_attn.q_proj": [HEADS * head_size, WIDTH], "self_attn.k_proj": [KEY_HEADS * head_size, WIDTH],
                "self_attn.v_proj": [KEY_HEADS * head_size, WIDTH], "self_attn.o_proj": [WIDTH, HEADS * head_size],
                "mlp.gate_proj": [HIDDEN, WIDTH], "mlp.up_proj": [HIDDEN, WIDTH], "mlp.down_proj": [WIDTH, HIDDEN]}
        for name, shape in rows.items():
            out[f"{at}{name}.weight"] = shape
            if biases:
                out[f"{at}{name}.bias"] = shape[:1]
        out[at + "input_layernorm.weight"] = out[at + "post_attention_layernorm.weight"] = [WIDTH]
    if not tied:
        out["lm_head.weight"] = None
    return out


ADDED = [{"id": 0, "content": "<unk>", "special": True}, {"id": 1, "content": "<s>", "special": True},
         {"id": 2, "content": "</s>", "special": True}]


def sentencepiece():
    words = ["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab", "bb"]
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                "pair": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}},
                         {"Sequence": {"id": "B"}}]}
    return {"model": {"type": "BPE", "byte_fallback": True, "vocab": {w: i for i, w in enumerate(words)},
                      "merges": ["a b", "b b", "▁ ab"]},
            "decoder": {"type": "Sequence"}, "post_processor": template,
            "added_tokens": ADDED + [{"id": 10, "content": "<mine>", "special": False}]}


def gpt2(pre_tokenizer):
    words = ["a", "b", "Ġ", "ab"]
    added = [{"id": 4, "content": "<|begin|>", "special": True}, {"id": 5, "content": "<|end|>", "special": False},
             {"id": 6, "content": "▁mine", "special": False}]
    return {"model": {"type": "BPE", "byte_fallback": False, "ignore_merges": True,
                      "vocab": {w: i for i, w in enumerate(words)}, "merges": [["a", "b"], ["a b", "a"]]},
            "pre_tokenizer": pre_tokenizer, "decoder": {"type": "ByteLevel"}, "added_tokens": added}


BYTES = {"type": "ByteLevel", "use_regex": True}
WORDS3 = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": LLAMA3}},
                                                {"type": "ByteLevel", "use_regex": False}]}
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES]}
SPM_SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "add_bos_token": True,
                "add_eos_token": False, "chat_template": "{{ x }}"}
GPT2_SETTINGS = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}


def pad(first, count):
    return [f"[PAD{i}]" for i in range(first, count)]


def spm_pairs(size=16):
    tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab", "bb", "<mine>"] + pad(11, size)
    scores = [-1000.0] * 4 + [-3.0] * 3 + [0.0, -2.0, -1.0] + [-1000.0] * (size - 10)
    return {"tokenizer.ggml.model": ("string", "llama"), "tokenizer.ggml.pre": ("string", "default"),
            "tokenizer.ggml.tokens": ("[string]", tokens), "tokenizer.ggml.scores": ("[f32]", scores),
            "tokenizer.ggml.token_type": ("[i32]", [3, 3, 3, 6] + [1] * 6 + [4] + [5] * (size - 11)),
            "tokenizer.ggml.bos_token_id": ("u32", 1), "tokenizer.ggml.eos_token_id": ("u32", 2),
            "tokenizer.ggml.unknown_token_id": ("u32", 0), "tokenizer.ggml.add_bos_token": ("bool", True),
            "tokenizer.ggml.add_eos_token": ("bool", False), "tokenizer.ggml.add_sep_token": ("bool", False),
            "tokenizer.chat_template": ("string", "{{ x }}")}


def gpt2_pairs(pre, size=16):
    tokens = ["a", "b", "Ġ", "ab", "<|begin|>", "<|end|>", " mine"] + pad(7, size)
    return {"tokenizer.ggml.model": ("string", "gpt2"), "tokenizer.ggml.pre": ("string", pre),
            "tokenizer.ggml.tokens": ("[string]", tokens),
            "tokenizer.ggml.token_type": ("[i32]", [1] * 4 + [3, 3, 4] + [5] * (size - 7)),
            "tokenizer.ggml.merges": ("[string]", ["a b", "aĠb a"]), "tokenizer.ggml.bos_token_id": ("u32", 4),
            "tokenizer.ggml.eos_token_id": ("u32", 5)}


def model_pairs(**changes):
    head = changes.pop("head", WIDTH // HEADS)
    out = {"general.architecture": ("string", "llama"), "general.type": ("string", "model"),
           "general.file_type": ("u32", 1), "general.quantization_version": ("u32", 2),
           "llama.block_count": ("u32", LAYERS), "llama.context_length": ("u32", 64),
           "llama.embedding_length": ("u32", WIDTH), "llama.feed_forward_length": ("u32", HIDDEN),
           "llama.attention.head_count": ("u32", HEADS), "llama.attention.head_count_kv": ("u32", KEY_HEADS),
           "llama.attention.layer_norm_rms_epsilon": ("f32", f32(1e-5)), "llama.attention.key_length": ("u32", head),
           "llama.attention.value_length": ("u32", head), "llama.rope.freq_base": ("f32", 10000.0),
           "llama.rope.dimension_count": ("u32", head), "llama.vocab_size": ("u32", 16)}
    for key, value in changes.items():
        out["llama." + key.replace("__", ".")] = value
    return out


LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "extrapolation_factor": 1.0,
        "attn_factor": 1.5, "beta_fast": 32, "beta_slow": 1, "rope_theta": 500000.0}

# name, changes of config.json, tokenizer.json, tokenizer_config.json, expected pairs, options of the tensors
CASES = [
    ("as Llama 2, with SentencePiece's tokenizer", {}, sentencepiece(), SPM_SETTINGS, model_pairs() | spm_pairs(), {}),
    ("as Llama 3, whose rotary embeddings have factors", {"rope_scaling": LLAMA3_ROPE, "rope_theta": 500000.0},
     gpt2(WORDS3), GPT2_SETTINGS,
     model_pairs(rope__freq_base=("f32", 500000.0)) | gpt2_pairs("llama-bpe"), {"dtype": "F16"}),
    ("an old linear scaling", {"rope_scaling": {"type": "linear", "factor": 2.0}}, sentencepiece(), SPM_SETTINGS,
     model_pairs(rope__scaling__type=("string", "linear"), rope__scaling__factor=("f32", 2.0)) | spm_pairs(), {}),
    ("a new linear scaling", {"rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 1e6}}, gpt2(BYTES),
     GPT2_SETTINGS, model_pairs(rope__scaling__type=("string", "linear"), rope__scaling__factor=("f32", 4.0),
                                rope__freq_base=("f32", 1e6)) | gpt2_pairs("gpt-2"), {}),
    ("yarn", {"rope_parameters": YARN}, gpt2(WORDS3), GPT2_SETTINGS,
     model_pairs(rope__scaling__type=("string", "yarn"), rope__scaling__factor=("f32", 4.0),
                 rope__scaling__original_context_length=("u32", 32), rope__scaling__yarn_ext_factor=("f32", 1.0),
                 rope__scaling__yarn_attn_factor=("f32", 1.5), rope__scaling__yarn_beta_fast=("f32", 32.0),
                 rope__scaling__yarn_beta_slow=("f32", 1.0), rope__freq_base=("f32", 500000.0)) | gpt2_pairs("llama-bpe"),
     {}),
    ("biases", {"attention_bias": True, "mlp_bias": True}, gpt2(WORDS3), GPT2_SETTINGS,
     model_pairs() | gpt2_pairs("llama-bpe"), {"biases": True}),
    ("a size of heads", {"head_dim": 4}, gpt2(WORDS3), GPT2_SETTINGS, model_pairs(head=4) | gpt2_pairs("llama-bpe"),
     {"head_size": 4, "biases": True}),
    ("buffers of an old file", {"rms_norm_eps": None, "max_position_embeddings": None}, sentencepiece(), SPM_SETTINGS,
     model_pairs(context_length=("u32", 2048), attention__layer_norm_rms_epsilon=("f32", f32(1e-6))) | spm_pairs(),
     {"more": {"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [4])}}),
    ("tied embeddings, ids of the configuration", {"bos_token_id": 4, "eos_token_id": [5, 6], "pad_token_id": 3},
     gpt2(WORDS3), {"add_prefix_space": False},
     {k: v for k, v in (model_pairs() | gpt2_pairs("llama-bpe")).items() if k != "tokenizer.ggml.eos_token_id"} |
     {"tokenizer.ggml.padding_token_id": ("u32", 3), "tokenizer.ggml.add_space_prefix": ("bool", False)},
     {"tied": True}),
    ("CodeLlama's vocabulary", {"vocab_size": 32016}, sentencepiece(), SPM_SETTINGS,
     model_pairs(vocab_size=("u32", 32016)) | spm_pairs(32016) |
     {f"tokenizer.ggml.{k}_token_id": ("u32", 32007 + i) for i, k in enumerate(["prefix", "suffix", "middle", "eot"])},
     {"tied": True}),
    ("SmolLM's vocabulary", {"vocab_size": 49152}, gpt2(DIGITS), GPT2_SETTINGS | {"add_bos_token": True},
     model_pairs(vocab_size=("u32", 49152)) | gpt2_pairs("smollm", 49152) |
     {"tokenizer.ggml.add_bos_token": ("bool", False)}, {"tied": True}),
    ("dynamic scaling, for which there is no key", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, sentencepiece(),
     SPM_SETTINGS, model_pairs() | spm_pairs(), {}),
]

NEW_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def new_name(name):
    module, kind = name.rsplit(".", 1)
    if module.startswith("model.layers."):
        layer, module = module[len("model.layers."):].split(".", 1)
        return f"blk.{layer}.{NEW_NAMES[module]}.{kind}"
    return f"{NEW_NAMES[module]}.{kind}"


def permuted(numbers, heads):
    """Rows of [heads, 2, half] as [heads, half, 2]."""
    half = len(numbers) // heads // 2
    return [numbers[(head * 2 + part) * half + i] for head in range(heads) for i in range(half) for part in range(2)]


class Llama(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def convert(self, changes, tokenizer, settings, dtype="BF16", head_size=WIDTH // HEADS, biases=False, tied=False,
                more=None):
        """Make a model, convert it; return the process, the file's path and the tensors that went in."""
        folder = Path(self.folder.name)
        config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
        tensors = {}
        for number, (name, shape) in enumerate(names(head_size, biases, tied).items()):
            shape = shape or [config["vocab_size"], WIDTH]
            count = shape[0] * (shape[1] if len(shape) > 1 else 1)
            tensors[name] = (dtype, shape, elements(dtype, count, number))
        for name, (own, shape) in (more or {}).items():
            tensors[name] = (own, shape, bytes(4 * shape[0]))
        safetensors(folder / "model.safetensors", tensors)
        for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", settings)):
            (folder / f"{name}.json").write_text(json.dumps(content))
        out = folder / "out.gguf"
        done = subprocess.run([PROGRAM, folder, out, "F16"], capture_output=True, timeout=60)
        return done, out, tensors

    def test_pairs_and_tensors(self):
        for name, changes, tokenizer, settings, pairs, options in CASES:
            with self.subTest(name):
                done, out, tensors = self.convert(changes, tokenizer, settings, **options)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                file = Gguf(out)
                for key in pairs.keys() | file.pairs.keys():
                    self.assertEqual(file.pairs.get(key), pairs.get(key), key)
                expected = {new_name(n): t for n, t in tensors.items() if not n.endswith("inv_freq")}
                factors = {"rope_freqs.weight"} if changes.get("rope_scaling") == LLAMA3_ROPE else set()
                self.assertEqual(file.tensors.keys(), expected.keys() | factors)
                for tensor, (dtype, shape, content) in expected.items():
                    self.check(tensor, file.tensors[tensor], dtype, shape, content)

    def check(self, name, found, dtype, shape, content):
        self.assertEqual(found[1], shape, name)
        self.assertEqual(found[0], "f32" if len(shape) == 1 else "f16", name)
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if dtype == "BF16":
            content = b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))
        numbers = list(struct.unpack(f"<{count}{'e' if dtype == 'F16' else 'f'}", content))
        rows = [numbers[i:i + count // shape[0]] for i in range(0, count, count // shape[0])]
        if ".attn_q." in name:
            rows = permuted(rows, HEADS)
        if ".attn_k." in name:
            rows = permuted(rows, KEY_HEADS)
        wanted = [n for row in rows for n in row]
        self.assertEqual(list(struct.unpack(f"<{count}{'f' if len(shape) == 1 else 'e'}", found[2])), wanted, name)

    def test_refused(self):
        unigram = {"model": {"type": "Unigram", "vocab": []}}
        for message, changes, tokenizer, more in (
                (b"model_type", {"model_type": "qwen2"}, sentencepiece(), {}),
                (b"longrope", {"rope_scaling": {"type": "longrope"}}, sentencepiece(), {}),
                (b"BPE", {}, unigram, {}),
                (b"pre_tokenizer", {}, gpt2({"type": "Whitespace"}), {}),
                (b"model.vision.weight", {}, sentencepiece(), {"model.vision.weight": ("F32", [4])})):
            with self.subTest(message):
                done, _, _ = self.convert(changes, tokenizer, SPM_SETTINGS, more=more)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)
