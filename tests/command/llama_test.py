"""Models of the hub as GGUF files for llama.cpp: the pairs and tensors of llama.cpp's own converter.

The expected pairs of Llama follow conversion/base.py, conversion/llama.py and gguf-py/gguf/vocab.py of llama.cpp (2026),
except general.name and what else describes a model's page, and except the scores of a tokenizer.json (see
transforms/llama_cpp/tokenizer.cpp). Those of each architecture in llama_golden.json are from the converter itself
(tests/formats/gguf/interop/gguf_golden.py).
"""

import hashlib
import json
import struct
import tempfile
import unittest
from pathlib import Path

from support import document, run, safetensors

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


# ---- a model of each architecture

def decoder(*mlp, attention=("q", "k", "v"), norms=("input_layernorm", "post_attention_layernorm"), more=None):
    """The tensors of a model like Llama: name -> shape."""
    out = {"model.embed_tokens.weight": [16, WIDTH], "model.norm.weight": [WIDTH], "lm_head.weight": [16, WIDTH]}
    rows = {"q": 16, "k": 8, "v": 8, "qkv": 32}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        out |= {f"{at}self_attn.{a}_proj.weight": [rows[a], WIDTH] for a in attention}
        out |= {f"{at}self_attn.o_proj.weight": [WIDTH, 16]}
        out |= {f"{at}{norm}.weight": [WIDTH] for norm in norms}
        out |= {at + name: shape for part in mlp for name, shape in part.items()}
        out |= {at + name: shape for name, shape in (more or {}).items()}
    return out


def without_output(tensors):
    return {name: shape for name, shape in tensors.items() if name != "lm_head.weight"}


MLP = {"mlp.gate_proj.weight": [HIDDEN, WIDTH], "mlp.up_proj.weight": [HIDDEN, WIDTH],
       "mlp.down_proj.weight": [WIDTH, HIDDEN]}
EXPERTS = {"block_sparse_moe.gate.weight": [3, WIDTH]} | {
    f"block_sparse_moe.experts.{e}.{w}.weight": [WIDTH, HIDDEN] if w == "w2" else [HIDDEN, WIDTH]
    for e in range(3) for w in ("w1", "w2", "w3")}
FUSED = {"mlp.gate_up_proj.weight": [2 * HIDDEN, WIDTH], "mlp.down_proj.weight": [WIDTH, HIDDEN]}
HEAD_NORMS = {"self_attn.q_norm.weight": [8], "self_attn.k_norm.weight": [8]}
FOUR_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
GPT2_TENSORS = {"wte.weight": [16, WIDTH], "wpe.weight": [64, WIDTH], "ln_f.weight": [WIDTH], "ln_f.bias": [WIDTH]} | {
    f"h.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in {
        "ln_1.weight": [WIDTH], "ln_1.bias": [WIDTH], "ln_2.weight": [WIDTH], "ln_2.bias": [WIDTH],
        "attn.c_attn.weight": [WIDTH, 48], "attn.c_attn.bias": [48],
        "attn.c_proj.weight": [WIDTH, WIDTH], "attn.c_proj.bias": [WIDTH], "mlp.c_fc.weight": [WIDTH, 64],
        "mlp.c_fc.bias": [64], "mlp.c_proj.weight": [64, WIDTH], "mlp.c_proj.bias": [WIDTH]}.items()}
BUFFER = "h.0.attn.bias"  # of old files of GPT-2
GEMMA = {"head_dim": 8, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "query_pre_attn_scalar": 8,
         "sliding_window": 4}
LONG = {"type": "longrope", "long_factor": [1.5, 2.0, 2.5, 3.0], "short_factor": [1.0, 1.25, 1.5, 1.75]}

# kind -> the class, changes of config.json, the tensors
MODELS = {
    "llama": ("LlamaForCausalLM", {"rope_scaling": LLAMA3_ROPE, "rope_theta": 500000.0}, decoder(MLP)),
    "mistral": ("MistralForCausalLM", {"head_dim": 8, "rope_theta": 1000000.0, "sliding_window": None}, decoder(MLP)),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 3, "num_experts_per_tok": 2}, decoder(EXPERTS)),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True, "rope_theta": 1000000.0}, without_output(decoder(
        MLP, more={f"self_attn.{a}_proj.bias": [16 if a == "q" else 8] for a in "qkv"}))),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 8}, decoder(MLP, more=HEAD_NORMS)),
    "gemma": ("GemmaForCausalLM", GEMMA, without_output(decoder(MLP))),
    "gemma2": ("Gemma2ForCausalLM", GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
               without_output(decoder(MLP, norms=FOUR_NORMS))),
    "gemma3_text": ("Gemma3ForCausalLM", GEMMA | {"rope_local_base_freq": 10000.0, "rope_theta": 1000000.0},
                    without_output(decoder(MLP, norms=FOUR_NORMS, more=HEAD_NORMS))),
    "phi3": ("Phi3ForCausalLM", {"rope_scaling": LONG, "original_max_position_embeddings": 32, "sliding_window": 48,
                                 "pad_token_id": 0}, decoder(FUSED, attention=("qkv",))),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64, "n_ctx": 64,
                                 "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}, GPT2_TENSORS | {BUFFER: [1, 1, 4, 4]}),
}


def make_model(kind, folder, buffers=True):
    name, changes, tensors = MODELS[kind]
    config = CONFIG | {"model_type": kind, "architectures": [name]} | changes
    if kind == "gpt2":
        config = {"model_type": kind, "architectures": [name], "vocab_size": 16} | changes
    folder = Path(folder)
    made = {}
    for number, (tensor, shape) in enumerate(tensors.items()):
        count = 1
        for extent in shape:
            count *= extent
        if buffers or tensor != BUFFER:
            made[tensor] = ("BF16", shape, elements("BF16", count, number))
    safetensors(folder / "model.safetensors", made)
    tokenizer = gpt2(BYTES)  # with as many tokens as the embedding has rows
    tokenizer["added_tokens"] += [{"id": i, "content": f"<{i}>", "special": True} for i in range(7, 16)]
    for file, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", GPT2_SETTINGS)):
        (folder / f"{file}.json").write_text(json.dumps(content))


def summary(name, tensor):
    """The dtype, the shape and a digest of the elements; the numbers of factors."""
    dtype, shape, content = tensor
    if name.startswith("rope_"):
        return [dtype, shape, list(struct.unpack(f"<{shape[0]}f", content))]
    return [dtype, shape, hashlib.sha256(content).hexdigest()[:16]]


class Llama(unittest.TestCase):
    def setUp(self):
        self.folder, self.outputs = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.outputs.cleanup)

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
        out = Path(self.outputs.name) / "out.gguf"
        out.unlink(missing_ok=True)
        done = run("convert", folder, out, "--precision", "f16")
        return done, out, tensors

    def test_pairs_and_tensors(self):
        for name, changes, tokenizer, settings, pairs, options in CASES:
            with self.subTest(name):
                done, out, tensors = self.convert(changes, tokenizer, settings, **options)
                self.assertEqual(done[0], 0, done[2].decode())
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
        lower = gpt2(WORDS3) | {"normalizer": {"type": "Lowercase"}}
        prefixed = gpt2(BYTES | {"add_prefix_space": True})
        for message, changes, tokenizer, more in (
                ("model_type", {"model_type": "bert"}, sentencepiece(), {}),
                ("model_type", {"model_type": None, "architectures": ["X"]}, sentencepiece(), {}),
                ("longrope", {"rope_scaling": {"type": "longrope"}}, sentencepiece(), {}),
                ("hidden_act", {"hidden_act": "gelu"}, sentencepiece(), {}),
                ("partial_rotary_factor", {"partial_rotary_factor": 0.5}, sentencepiece(), {}),
                ("num_attention_heads", {"num_attention_heads": None}, sentencepiece(), {}),
                ("num_attention_heads", {"num_attention_heads": -2}, sentencepiece(), {}),
                ("4 heads of 8 rows", {"num_attention_heads": 4, "head_dim": 8}, sentencepiece(), {}),
                ("blk.2.attn_norm.weight", {"num_hidden_layers": 3}, sentencepiece(), {}),
                ("model.layers.1.", {"num_hidden_layers": 1}, sentencepiece(), {}),
                ("a matrix", {}, sentencepiece(), {"model.embed_tokens.weight": ("F32", [16])}),
                ("BPE", {}, unigram, {}),
                ("pre_tokenizer", {}, gpt2({"type": "Whitespace"}), {}),
                ("pre_tokenizer", {}, prefixed, {}),
                ("normalizer", {}, lower, {}),
                ("model.vision.weight", {}, sentencepiece(), {"model.vision.weight": ("F32", [4])})):
            with self.subTest(message):
                done, out, _ = self.convert(changes, tokenizer, SPM_SETTINGS, more=more)
                self.assertNotEqual(done[0], 0)
                self.assertIn(message, done[2].decode())
                self.assertIn("--raw", done[2].decode())
                self.assertFalse(out.exists())

    def test_raw_and_other_files(self):
        _, out, tensors = self.convert({}, sentencepiece(), SPM_SETTINGS)
        folder = Path(self.folder.name)
        for source in (folder, folder / "model.safetensors"):
            document("convert", source, out)
            self.assertIn("blk.0.attn_q.weight", Gguf(out).tensors)
            document("convert", source, out, "--raw")
            self.assertEqual(Gguf(out).tensors.keys(), tensors.keys())
            self.assertEqual(Gguf(out).pairs["general.architecture"], ("string", "stele"))
        # Without a configuration, the names alone do not make a file that llama.cpp runs.
        (folder / "config.json").unlink()
        done = run("convert", folder / "model.safetensors", out)
        self.assertIn("config.json is missing", done[2].decode())
        self.assertNotEqual(done[0], 0)
        safetensors(folder / "other.safetensors", {"a.weight": ("F32", [2, 2], bytes(16))})
        document("convert", folder / "other.safetensors", out)
        self.assertEqual(list(Gguf(out).tensors), ["a.weight"])
        # A configuration of another program names no architecture.
        (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DModel"}))
        document("convert", folder / "other.safetensors", out)
        self.assertEqual(list(Gguf(out).tensors), ["a.weight"])

    def test_precisions(self):
        for precision, matrix, file_type in (("native", "bf16", 32), ("f32", "f32", 0), ("f16", "f16", 1),
                                             ("bf16", "bf16", 32), ("F32", "f32", 0), ("BF16", "bf16", 32)):
            with self.subTest(precision):
                _, out, _ = self.convert({}, gpt2(BYTES), GPT2_SETTINGS)
                rows = document("convert", self.folder.name, out, "--precision", precision)["rows"]
                self.assertIn("5 vectors", json.dumps(rows))
                file = Gguf(out)
                self.assertEqual({t[0] for t in file.tensors.values() if len(t[1]) == 2}, {matrix})
                self.assertEqual({t[0] for t in file.tensors.values() if len(t[1]) == 1}, {"f32"})
                self.assertEqual(file.pairs["general.file_type"], ("u32", file_type))
        for words in (["--precision", "f64"], ["--quantize", "8"], ["--quantize", "int4"]):
            done = run("convert", self.folder.name, out, *words)
            self.assertIn("llama.cpp has no such precision", done[2].decode())

    def test_matrices_of_another_dtype_have_rows(self):
        short, wide = "rows of 16 elements, no multiple of", "q5_0, not q4_K: rows of 32 elements, no multiple of 256"
        kept = "f32, not {}: llama.cpp keeps this tensor's precision"
        for kind, precision, tensor, detail in (
                ("llama", "q4_K", "blk.0.ffn_up.weight", f"f16, not q4_K: {short} 256"),
                ("llama", "q4_K", "blk.0.ffn_down.weight", wide),
                ("llama", "q8_0", "blk.0.ffn_up.weight", f"f16, not q8_0: {short} 32"),
                ("llama", "q8_0", "blk.0.ffn_down.weight", None),
                ("llama", "Q4_K_S", "blk.1.ffn_up.weight", f"f16, not q4_K: {short} 256"),
                ("llama", "f16", "blk.0.ffn_up.weight", None),
                ("mixtral", "q8_0", "blk.0.ffn_gate_inp.weight", kept.format("q8_0")),
                ("mixtral", "Q8_0", "blk.0.ffn_gate_inp.weight", kept.format("Q8_0")),
                ("mixtral", "f16", "blk.1.ffn_gate_inp.weight", kept.format("F16")),
                ("mixtral", "f32", "blk.1.ffn_gate_inp.weight", None),
                ("mixtral", "q4_K", "blk.1.ffn_down_exps.weight", wide),
                ("gpt2", "q4_K", "position_embd.weight", kept.format("q4_K")),
                ("gpt2", "Q4_K_M", "position_embd.weight", kept.format("Q4_K_M"))):
            with self.subTest(f"{kind} {precision} {tensor}"), tempfile.TemporaryDirectory() as folder:
                make_model(kind, folder)
                out = Path(self.outputs.name) / "out.gguf"
                for words in ([], ["--dry-run"]):
                    rows = document("convert", folder, out, "--precision", precision, *words)["rows"]
                    found = {r["path"]: r["detail"] for r in rows if r["what"] == "kept"}
                    self.assertEqual(found.get(tensor), detail)

    def test_settings_that_llama_cpp_ignores_have_rows(self):
        for changes, row in (({"model_type": "mistral", "sliding_window": 32}, "sliding_window"),
                             ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type"),
                             ({"tie_word_embeddings": True}, "lm_head.weight")):
            with self.subTest(row):
                _, out, _ = self.convert(changes, sentencepiece(), SPM_SETTINGS)
                rows = document("convert", self.folder.name, out)["rows"]
                self.assertIn(("unused", row), [(r["what"], r["path"]) for r in rows])

    def test_files_that_are_not_used_have_a_row(self):
        _, out, _ = self.convert({}, gpt2(BYTES), GPT2_SETTINGS)
        for name in ("README.md", "generation_config.json", "merges.txt"):
            (Path(self.folder.name) / name).write_text("{}")
        rows = document("convert", self.folder.name, out)["rows"]
        self.assertEqual([r["detail"] for r in rows if r["what"] == "lost"],
                         ["the files beside the weights: README.md, generation_config.json"])

    def test_byte_level_by_default_cuts_words(self):
        _, out, _ = self.convert({}, gpt2({"type": "ByteLevel"}), GPT2_SETTINGS)
        self.assertEqual(Gguf(out).pairs["tokenizer.ggml.pre"], ("string", "gpt-2"))

    def test_words_that_are_merged_have_another_name(self):
        tokenizer = gpt2(WORDS3)
        tokenizer["model"]["ignore_merges"] = False
        _, out, _ = self.convert({}, tokenizer, GPT2_SETTINGS)
        self.assertEqual(Gguf(out).pairs["tokenizer.ggml.pre"], ("string", "dbrx"))

    def test_integers_above_64_bits_are_no_error(self):
        _, out, _ = self.convert({}, gpt2(BYTES), GPT2_SETTINGS | {"model_max_length": 10**30})
        self.assertEqual(Gguf(out).pairs["tokenizer.ggml.pre"], ("string", "gpt-2"))

    def test_pieces_of_sentencepiece(self):
        def field(number, content):
            return bytes([number << 3 | 2, len(content)]) + content

        def piece(text, score, kind):
            return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))

        model = b"".join([piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3), piece("<0x0A>", 0, 6),
                          piece("▁a", -1, 1), piece("▁", -2, 1), piece("a", -3, 1)])
        kind, normalizer = field(2, b"\x18\x02"), field(3, b"\x18\x00")  # BPE; no space before a text
        folder = Path(self.folder.name)
        (folder / "added_tokens.json").write_text(json.dumps({"<mine>": 7}))
        settings = SPM_SETTINGS | {"added_tokens_decoder": {"8": {"content": "<|end|>", "special": False}}}
        for content, error in ((model + kind + normalizer, None), (model + kind, None), (model, "unigram"),
                               (model + kind + b"\x0a\xff", "malformed")):
            (folder / "tokenizer.model").write_bytes(content)
            done, out, _ = self.convert({}, {}, settings)
            if error:
                self.assertIn(error, done[2].decode())
                continue
            self.assertEqual(done[0], 0, done[2].decode())
            pairs = Gguf(out).pairs
            pad = [f"[PAD{i}]" for i in range(9, 16)]
            self.assertEqual(pairs["tokenizer.ggml.tokens"][1],
                             ["<unk>", "<s>", "</s>", "<0x0A>", "▁a", "▁", "a", "<mine>", "<|end|>", *pad])
            self.assertEqual(pairs["tokenizer.ggml.token_type"][1], [2, 3, 3, 6, 1, 1, 1, 4, 3] + [5] * 7)
            self.assertEqual(pairs["tokenizer.ggml.scores"][1],
                             [0, 0, 0, 0, -1, -2, -3, -1000, -1000] + [-10000] * 7)
            prefix = pairs.get("tokenizer.ggml.add_space_prefix")
            self.assertEqual(prefix, ("bool", False) if content.endswith(normalizer) else None)

    def test_each_architecture_has_the_tensors_of_the_converter(self):
        golden = json.loads((Path(__file__).parent / "llama_golden.json").read_text())
        self.assertEqual(golden.keys(), MODELS.keys())
        for kind, expected in golden.items():
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                make_model(kind, folder)
                out = Path(self.outputs.name) / "out.gguf"
                document("convert", folder, out, "--precision", "f16")
                file = Gguf(out)
                for key, pair in expected["pairs"].items():
                    self.assertEqual(list(file.pairs.get(key, ())), pair, key)
                self.assertEqual(file.tensors.keys(), expected["tensors"].keys())
                for name, tensor in file.tensors.items():
                    found, wanted = summary(name, tensor), expected["tensors"][name]
                    self.assertEqual(found[:2], wanted[:2], name)
                    if name.startswith("rope_"):  # computed in float32 by the converter
                        for a, b in zip(found[2], wanted[2], strict=True):
                            self.assertAlmostEqual(a / b, 1, delta=1e-6)
                    else:
                        self.assertEqual(found[2], wanted[2], name)
