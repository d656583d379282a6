#!/usr/bin/env python3
"""Run a language model twice, from a folder of Hugging Face with transformers and from a GGUF file with llama.cpp, and compare.

    gguf_llama.py FOLDER FILE.gguf [--limit DIFFERENCE]
    gguf_llama.py OTHER.gguf FILE.gguf [--limit DIFFERENCE]    both with llama.cpp: the same blocks give the same logits

Prints the largest difference of a logit and the largest logit over a fixed list of token ids, in how many positions the
same token is the likeliest, and whether both make the same ids of some texts. The exit status is 1 when the largest
difference is above --limit, or ids of texts differ.

llama.cpp keeps keys and values as float32 here, so that float32 weights give an error of rounding only. It rounds what a
block type is multiplied with to 8 bits; with such types the difference is more than that of the weights alone.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from llama_cpp import GGML_TYPE_F32, Llama
from sentencepiece import SentencePieceProcessor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

COUNT = 16
TEXTS = ["Hello, world", " banana  split\n\n\tof 45123 things", "don't  you're", "grüße, 世界 🚀", ""]


def by_transformers(folder, ids):
    """The logits of the ids, and the ids of the texts."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    if (Path(folder) / "tokenizer.model").exists():
        processor = SentencePieceProcessor(str(Path(folder) / "tokenizer.model"))
        return logits, [[processor.bos_id(), *processor.encode(text)] for text in TEXTS]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return logits, [tokenizer(text)["input_ids"] for text in TEXTS]


def by_llama_cpp(path, ids):
    llama = Llama(path, n_ctx=256, n_batch=64, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False,
                  type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32)
    llama.eval(ids)
    return np.array(llama.scores[:len(ids)]), [llama.tokenize(text.encode(), add_bos=True, special=False) for text in TEXTS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reference")
    parser.add_argument("gguf")
    parser.add_argument("--limit", type=float)
    options = parser.parse_args()

    ids = [(97 * i + 31) % 500 for i in range(COUNT)]  # a vocabulary has 512 ids or more
    by = by_llama_cpp if options.reference.endswith(".gguf") else by_transformers
    wanted, wanted_texts = by(options.reference, ids)
    found, found_texts = by_llama_cpp(options.gguf, ids)
    if found.shape != wanted.shape:
        sys.exit(f"logits of shape {found.shape}, wants {wanted.shape}")

    faults = 0
    for text, theirs, ours in zip(TEXTS, wanted_texts, found_texts):
        if theirs != ours:
            print(f"{text!r}: ids {ours}, wants {theirs}")
            faults += 1

    difference = np.abs(found - wanted)
    likeliest = int((found.argmax(1) == wanted.argmax(1)).sum())
    print(f"max difference {difference.max():.3g}, mean {difference.mean():.3g}, max logit {np.abs(wanted).max():.3g}, "
          f"same likeliest token {likeliest} of {COUNT}, ids of {len(TEXTS) - faults} of {len(TEXTS)} texts agree")
    too_far = options.limit is not None and not difference.max() <= options.limit  # NaN is too far
    sys.exit(1 if too_far or faults else 0)


main()
