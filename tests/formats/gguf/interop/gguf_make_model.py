#!/usr/bin/env python3
"""A tiny random language model with a tokenizer, as a folder of Hugging Face.

    gguf_make_model.py KIND OUT

KIND is a row of MODELS: two layers, 64 columns. The tokenizers are trained on random syllables: byte-level BPE with the
regular expressions of Llama 3, Qwen 2 and GPT-2; BPE with bytes for unknown characters, as tokenizer.json and as
SentencePiece's tokenizer.model.
"""

import argparse
import json
import random
from pathlib import Path

import sentencepiece
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
VOCABULARY = 512

COMMON = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
          "initializer_range": 0.06, "tie_word_embeddings": False}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.06}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 512,
        "long_factor": [1.0 + i / 4 for i in range(8)], "short_factor": [1.0 + i / 8 for i in range(8)]}
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# name -> class, configuration, tokenizer
MODELS = {
    "llama": ("Llama", {"rope_parameters": LLAMA3_ROPE, "attention_bias": True}, "llama3"),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "head_dim": 32}, "json"),
    "mistral": ("Mistral", {"sliding_window": None}, "json"),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}, "pieces"),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}, "qwen2"),
    "qwen3": ("Qwen3", {"head_dim": 32}, "qwen2"),
    "gemma": ("Gemma", {"head_dim": 32, "tie_word_embeddings": True, "rms_norm_eps": 1e-6}, "pieces"),
    "gemma2": ("Gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "tie_word_embeddings": True},
               "pieces"),
    "gemma3": ("Gemma3", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "num_hidden_layers": 7,
                          "tie_word_embeddings": True}, "pieces"),
    "phi3": ("Phi3", {"sliding_window": None, "pad_token_id": 0}, "pieces"),
    "phi3-long": ("Phi3", {"sliding_window": None, "pad_token_id": 0, "rope_parameters": LONG,
                           "original_max_position_embeddings": 512, "max_position_embeddings": 1024}, "pieces"),
    "gpt2": ("GPT2", {}, "gpt2"),
}


def text():
    """Lines of random words; the same in each run."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(400)]
    words += ["123", "45", "2024", "don't", "you're"] * 20
    return [" ".join(draw.choices(words, k=12)) + ".\n" for _ in range(400)]


def byte_level(kind):
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "gpt2")
    if kind != "gpt2":
        words = Regex(LLAMA3 if kind == "llama3" else QWEN2)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(words, behavior="isolated"), whole])
    else:
        tokenizer.pre_tokenizer = whole
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(text(), trainers.BpeTrainer(
        vocab_size=VOCABULARY - 2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    post = [processors.ByteLevel(trim_offsets=False)]
    if kind == "llama3":
        bos = ("<|begin|>", tokenizer.token_to_id("<|begin|>"))
        post.append(processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
                                                  special_tokens=[bos]))
    tokenizer.post_processor = processors.Sequence(post)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token="<|end|>")


def with_bytes():
    """As LlamaTokenizerFast."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokenizer.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False,
                                                              special_tokens=special, max_token_length=16))
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = made["added_tokens"][:3]  # bytes are ordinary tokens
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                                unk_token="<unk>")


def pieces(out, prefix):
    out.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.strip() for line in text()), model_prefix=str(out / "tokenizer"),
        vocab_size=VOCABULARY - 1, model_type="bpe", byte_fallback=True, add_dummy_prefix=prefix, minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1)
    (out / "tokenizer.vocab").unlink()
    (out / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False,
        "tokenizer_class": "LlamaTokenizer", "chat_template": "{{ messages }}",
        "added_tokens_decoder": {str(VOCABULARY - 1): {"content": "<|mine|>", "special": True}}}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=MODELS)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    name, changes, kind = MODELS[options.kind]
    if kind == "pieces":
        pieces(options.out, not options.kind.startswith("gemma"))
        ids = {"bos_token_id": 1, "eos_token_id": 2}
    else:
        tokenizer = with_bytes() if kind == "json" else byte_level(kind)
        tokenizer.save_pretrained(options.out)
        assert len(tokenizer) == VOCABULARY, len(tokenizer)
        ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    settings = {**(GPT2 if name == "GPT2" else COMMON), **changes, **ids}
    config = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")(**settings)
    torch.manual_seed(0)
    model = getattr(transformers, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config)
    for parameter_name, parameter in model.named_parameters():  # all ones or zeros would hide a mix-up of names
        if "norm" in parameter_name or ".ln_" in parameter_name:
            torch.nn.init.normal_(parameter, mean=0.0 if name.startswith("Gemma") else 1.0, std=0.1)
        elif parameter_name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(options.out)


main()
