#!/usr/bin/env python3
"""Quantize a GGUF file with llama.cpp's own quantizer.

    gguf_quantize.py IN.gguf OUT.gguf TYPE [--pure]    TYPE: as in general.file_type: Q8_0, Q4_K_M, IQ4_NL, ...

--pure: one type for all tensors, where TYPE else stands for a mixture.
"""

import argparse
import ctypes
import sys

import llama_cpp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("type")
    parser.add_argument("--pure", action="store_true")
    options = parser.parse_args()
    number = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{options.type}")
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = number
    parameters.pure = options.pure
    parameters.nthread = 1
    sys.exit(llama_cpp.llama_model_quantize(options.source.encode(), options.target.encode(), ctypes.byref(parameters)))


main()
