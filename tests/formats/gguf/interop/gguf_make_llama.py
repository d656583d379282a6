#!/usr/bin/env python3
"""A tiny random Llama with a byte-level BPE tokenizer, as a folder of Hugging Face.

    gguf_make_llama.py OUT [--tied] [--rope-llama3] [--small]

Rows of 256 elements, so that every block type of GGUF can hold them; four heads of keys for eight of queries. --tied: one
tensor for the embeddings and the output. --rope-llama3: scaled rotary frequencies as in Llama 3.1. --small: rows of 64
elements, bfloat16, as in examples/data/llama (transformers 5.24).
"""

import argparse
import random
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
# How Llama 3 cuts text into words: llama.cpp knows it as "llama-bpe".
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_tokenizer(vocabulary):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary - 2, show_progress=False, special_tokens=[],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(400)]
    words += ["123", "45", "2024"] * 20  # numbers are cut after three digits by WORDS, not so by other rules
    tokenizer.train_from_iterator([" ".join(draw.choices(words, k=12)) + ".\n" for _ in range(400)], trainer)
    tokenizer.add_special_tokens([BOS, EOS])  # the last two ids, as in Llama 3
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos)])])
    assert tokenizer.get_vocab_size() == vocabulary
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=256)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--rope-llama3", action="store_true")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    vocabulary, width = (320, 64) if options.small else (512, 256)
    tokenizer = make_tokenizer(vocabulary)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    if options.rope_llama3:
        rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=1 if options.small else 2, num_attention_heads=4 if options.small else 8,
        num_key_value_heads=2 if options.small else 4, max_position_embeddings=256, rms_norm_eps=1e-5, rope_parameters=rope,
        tie_word_embeddings=options.tied, initializer_range=0.04, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id)
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.bfloat16 if options.small else torch.float32)
    for name, parameter in model.named_parameters():  # norms of all ones would hide a mix-up of names
        if name.endswith("norm.weight"):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


main()
