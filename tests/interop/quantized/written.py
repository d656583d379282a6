#!/usr/bin/env python3
"""Proves that the packages of the hub load what `stele convert IN OUT --to hub --quantize SCHEME` writes.

written.py STELE [SCRATCH] [PATTERN...]    PATTERN: of SOURCE:SCHEME as printed, such as 'plain:*'

Sources: `plain`, a llama all of whose weights can be quantized; `partial`, one of f16 with biases and an extent of 448,
which groups and blocks of 128 do not divide; and checkpoints that are already quantized, by make.py.
For each source and scheme:
    files    the other files of the folder stay byte for byte, and config.json differs in quantization_config alone
             (a file that describes the quantization of the source, such as quantize_config.json, goes)
    decode   the package decodes every quantized weight; stele's decoding to f32 must have the same numbers, and after
             one rounding those that the package decodes to in its own dtype. What the package does not decode must be
             the other tensors of the model, plain and unchanged. The numbers must also be near those of the source
    load     transformers (and gptqmodel) load the folder without missing, unexpected or other-shaped tensors, and the
             logits are those of a plain model of the weights that stele decodes to
    scheme              decoded by, in f32 and then in its own dtype (always both)
    fp8                 transformers' Fp8Dequantize, the model's dtype; compressed-tensors' FP8BlockDequantizer the same
    int4 int8           compressed-tensors, the dtype of weight_scale
    nvfp4 mxfp4 mxfp8   compressed-tensors, bf16
    gptq                gptqmodel's TorchLinear, f16
    awq                 autoawq's dequantize_gemm, f16
    nf4                 bitsandbytes' dequantize_4bit, the dtype in quant_state

Logits: fp8 and compressed-tensors decode the weights when they load, so weights and logits must be those of the plain
model bit for bit (0). gptq, awq and nf4 stay packed, and their kernels round on the way (scales, products or sums to
bf16): their logits may be ROUNDING times as far from those calculated in f32 as a plain model's of that dtype are (0.2
here; a zero point of one weight that is off by one gives 1, a block's scale in another block's place 0.5).
"not run": a package that cannot run on a CPU; LIMITS has the messages and the reasons.

Packages as in make.py, and optimum==2.3.0. All takes half a minute; gptqmodel compiles a kernel when it first runs (4
minutes).
"""
import collections
import contextlib
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
from pathlib import Path

from schemes import BF16, F16, F32, fill, grouped  # first: it sets the environment of the packages
from schemes_compressed_tensors import CT_SUFFIXES, ct_decode_f32
from schemes_fp8 import fp8_block, fp8_decode
from schemes_gptq import awq, awq_modules, gptq, gptq_decode
import torch
from safetensors.torch import load_file

SCHEMES = {  # the largest distance from the source, relative to its norm: half as much again as these weights have
    "fp8": 0.04, "int4": 0.28, "int4:32": 0.21, "int8": 0.02, "nvfp4": 0.15, "mxfp4": 0.21, "mxfp8": 0.04, "gptq": 0.28,
    "awq": 0.25, "nf4": 0.18}

ROUNDING = 4

LIMITS = {  # part of a message: why it is no fault of the folder
    "must have the same dtype, but got Half and BFloat16":
        "compressed-tensors decodes this format to bf16 for f16 models too (its own folders fail the same way)",
}


class Fault(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Fault(text)


# ---------------------------------------------------------------- sources

def small_llama(folder, inter, tied, bias, dtype):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=inter, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                         tie_word_embeddings=tied, attention_bias=bias, dtype=dtype)
    model = LlamaForCausalLM(config).to(dtype)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            name = name.replace("down_proj", "o_proj")  # no row of 2^8 there: the logits would follow it alone
            parameter.copy_(fill(name, tuple(parameter.shape), generator))
    model.save_pretrained(folder)


def add_tokenizer(folder):
    """GPTQModel.load wants one; and it is more files to copy."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(48)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w0").save_pretrained(folder)


SOURCES = {
    "plain": (lambda folder: small_llama(folder, 512, False, False, BF16), list(SCHEMES)),
    # 448: bitsandbytes 0.50 decodes rows that 64 does not divide wrongly on a CPU, its own too
    "partial": (lambda folder: small_llama(folder, 448, True, True, F16), list(SCHEMES)),
    "fp8_block": (lambda folder: fp8_block(folder, hidden=128, inter=256, heads=2, kv=2), ["nvfp4", "gptq"]),
    "gptq4": (lambda folder: gptq(folder, bits=4, group=64, hidden=128, inter=192, kv=2), ["fp8", "int8"]),
    "awq": (lambda folder: awq(folder, group=32, hidden=64, inter=224, bias=True), ["int4:32", "int4:64"]),
}


# ---------------------------------------------------------------- decoding by the packages
# Each returns {weight: (numbers in f32, numbers in the package's dtype)} and the tensors that remain.
# `dtype`: the model's.

def decode_fp8(tensors, config, dtype):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    need(config["weight_block_size"] == [128, 128], "block size")
    decoded, rest = {}, dict(tensors)
    for name in [name for name in tensors if name.endswith(".weight_scale_inv")]:
        scale, weight = rest.pop(name), rest.pop(name.removesuffix("_scale_inv"))
        bf16, exact = fp8_decode((weight, scale))
        by_dtype = {kind: Fp8Dequantize(None)._dequantize_one(weight, scale, kind) for kind in (BF16, F32, dtype)}
        need(torch.equal(by_dtype[BF16], bf16) and torch.equal(by_dtype[F32], exact), f"{name}: two decoders")
        decoded[name.removesuffix("_scale_inv")] = exact, by_dtype[dtype]
    return decoded, rest


def decode_compressed_tensors(tensors, config, dtype):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    groups = QuantizationConfig.model_validate(config).config_groups
    need(list(groups) == ["group_0"], "groups")
    scheme = groups["group_0"]
    decoder = BaseCompressor.get_value_from_registry(getattr(scheme.format, "value", scheme.format))
    modules, rest = grouped(tensors, CT_SUFFIXES)
    decoded = {}
    for name, parts in modules.items():
        if "weight_packed" not in parts:
            parts["weight"] = rest.pop(name + ".weight")
        decoded[name + ".weight"] = (ct_decode_f32(decoder, dict(parts), scheme),
                                     decoder.decompress(dict(parts), scheme)["weight"])
    return decoded, rest


def decode_gptq(tensors, config, dtype):
    modules, rest = grouped(tensors, ("qweight", "qzeros", "scales", "g_idx"))
    decoded = {}
    for name, parts in modules.items():
        sizes = types.SimpleNamespace(in_features=parts["g_idx"].shape[0], out_features=parts["scales"].shape[1])
        decoded[name + ".weight"] = tuple(
            gptq_decode(dict(parts), sizes, config["bits"], config["group_size"], config["sym"],
                        config["desc_act"], config["checkpoint_format"], kind) for kind in (F32, F16))
    return decoded, rest


def decode_awq(tensors, config, dtype):
    need(config["version"] == "gemm" and config["zero_point"], "version")
    dequantize = awq_modules()[2]
    modules, rest = grouped(tensors, ("qweight", "qzeros", "scales"))
    return {name + ".weight": tuple(
        dequantize(parts["qweight"], parts["qzeros"], parts["scales"].to(kind), config["bits"],
                   config["group_size"]).T.contiguous() for kind in (F32, F16))
            for name, parts in modules.items()}, rest


def decode_bitsandbytes(tensors, config, dtype):
    from bitsandbytes.functional import QuantState, dequantize_4bit
    need(config["load_in_4bit"] and not config["bnb_4bit_use_double_quant"], "double quantization")
    states, rest, decoded = collections.defaultdict(dict), {}, {}
    for name, tensor in tensors.items():
        weight, dot, part = name.partition(".weight.")
        if dot:
            states[weight + ".weight"][part] = tensor
        else:
            rest[name] = tensor
    for name, parts in states.items():
        weight, numbers = rest.pop(name), []
        for kind in F32, None:
            state = QuantState.from_dict(dict(parts), device="cpu")
            state.dtype = kind or state.dtype
            numbers.append(dequantize_4bit(weight, state))
        decoded[name] = tuple(numbers)
    return decoded, rest


DECODERS = {"fp8": decode_fp8, "compressed-tensors": decode_compressed_tensors, "gptq": decode_gptq, "awq": decode_awq,
            "bitsandbytes": decode_bitsandbytes}


# ---------------------------------------------------------------- checks

def convert(stele, *arguments):
    result = subprocess.run([stele, "convert", "--quiet", *map(str, arguments)], capture_output=True, text=True)
    need(result.returncode == 0, f"stele: {result.stderr.strip()}")


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def dtype_of(folder):
    return getattr(torch, config_of(folder)["dtype"])


def check_files(source, folder):
    describes = {"quantize_config.json", "hf_quant_config.json"}
    others = {path.name for path in source.iterdir()} - {"config.json", "model.safetensors"} - describes
    found = {path.name for path in folder.iterdir()} - {"config.json", "model.safetensors"}
    need(found == others, f"files {sorted(found ^ others)}")
    for name in others:
        need((source / name).read_bytes() == (folder / name).read_bytes(), f"{name} differs")
    before, after = config_of(source), config_of(folder)
    before.pop("quantization_config", None)
    need(after.pop("quantization_config", None) is not None, "config.json has no quantization_config")
    need(before == after, "config.json differs in more than quantization_config")


def distance(numbers, source):
    return float((numbers - source).norm() / source.norm().clamp(min=1e-30))


def check_decoding(folder, ours, before, limit):
    """Returns what the package decodes, and what is wrong."""
    config = config_of(folder)
    decoded, rest = DECODERS[config["quantization_config"]["quant_method"]](
        load_file(folder / "model.safetensors"), config["quantization_config"], dtype_of(folder))
    faults = [] if decoded else ["no weight is quantized"]
    for name, (exact, native) in decoded.items():
        if name not in ours or exact.dtype != F32 or not torch.equal(ours[name], exact):
            faults.append(f"{name}: other numbers in f32")
        elif not torch.equal(ours[name].to(native.dtype), native):
            faults.append(f"{name}: other numbers in {native.dtype}")
        elif not distance(exact, before[name]) <= limit:
            faults.append(f"{name}: far from the source, {distance(exact, before[name]):.3}")
    for name, tensor in rest.items():
        if name not in before:
            faults.append(f"{name}: the package does not know it")
        elif tensor.dtype not in (BF16, F16, F32) or not torch.equal(tensor, before[name].to(tensor.dtype)):
            faults.append(f"{name}: not quantized, and not as in the source")
    faults += [f"{name}: no package finds it" for name in before if name not in decoded and name not in rest]
    faults += [f"{name}: stele does not find it" for name in before if name not in ours]
    return decoded, faults


@contextlib.contextmanager
def silence(path):
    """The packages print much: to a file."""
    sys.stdout.flush()
    kept = [os.dup(1), os.dup(2)]
    with open(path, "a") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os.dup2(kept[0], 1), os.dup2(kept[1], 2)
            os.close(kept[0]), os.close(kept[1])


def note(error, log):
    with open(log, "a") as file:
        traceback.print_exception(error, file=file)
    message = " ".join(str(error).split())[:400]
    return message if isinstance(error, Fault) else f"{type(error).__name__}: {message}"


def logits(model):
    ids = (torch.arange(3, 40) * 13 % model.config.vocab_size)[None]
    with torch.no_grad():
        return model.eval()(ids).logits.float()


def by_transformers(folder, dtype, **options):
    from transformers import AutoModelForCausalLM
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **options)
    for kind in "missing_keys", "unexpected_keys", "mismatched_keys":
        need(not info[kind], f"{kind} {sorted(map(str, info[kind]))[:3]}")
    return model


def by_gptqmodel(folder, dtype):
    from gptqmodel import BACKEND, GPTQModel
    return GPTQModel.load(str(folder), backend=BACKEND.TORCH, device="cpu", dtype=dtype).model


def ways(folder):
    """(name, how to load it, in which dtype it calculates with packed weights or None: it decodes them)"""
    from transformers import CompressedTensorsConfig
    method = config_of(folder)["quantization_config"]["quant_method"]
    packed = {"gptq": dtype_of(folder), "awq": dtype_of(folder), "bitsandbytes": BF16}.get(method)
    result = [("transformers", by_transformers, packed)]
    if method == "compressed-tensors":
        result.append(("transformers dequantize", lambda folder, dtype: by_transformers(
            folder, dtype, quantization_config=CompressedTensorsConfig(dequantize=True)), None))
    if method in ("gptq", "awq"):
        result.append(("gptqmodel", by_gptqmodel, packed))
    return result


def with_weights(plain, dtype, weights):
    """The plain model with other numbers for some weights."""
    model = by_transformers(plain, dtype)
    with torch.no_grad():
        for name, tensor in weights.items():
            model.get_parameter(name).copy_(tensor)
    return model


def check_loading(folder, plain, decoded, log):
    """Returns a text for each way to load the folder, and whether one failed. `plain`: what stele decodes to."""
    texts, failed = [], False
    dtype = dtype_of(folder)
    with silence(log):
        # The numbers are stele's (see check_decoding), rounded to the dtype of the package before that of the model.
        reference = with_weights(plain, dtype, {name: native for name, (_, native) in decoded.items()})
        expected = logits(reference)
        exact = logits(with_weights(plain, F32, {name: numbers for name, (numbers, _) in decoded.items()}))
    for name, load, packed in ways(folder):
        different = []
        try:
            with silence(log):
                model = load(folder, dtype)
                found = logits(model)
                if packed is None:
                    state = model.state_dict()
                    different = [key for key, tensor in reference.state_dict().items()
                                 if not torch.equal(tensor, state[key])]
        except Exception as error:
            message = note(error, log)
            reason = next((reason for part, reason in LIMITS.items() if part in message), None)
            failed = failed or reason is None
            texts.append(f"{name} not run: {reason}" if reason else f"{name} FAILED: {message}")
            continue
        tolerance = 0
        if packed is not None:
            with silence(log):
                tolerance = ROUNDING * float((logits(reference.to(packed)) - exact).abs().max())
        difference = float((found - (expected if packed is None else exact)).abs().max())
        bad = not difference <= tolerance or different
        failed = failed or bool(bad)
        texts.append(f"{name} {'FAILED' if bad else 'yes'}, logits {difference:.2g} (at most {tolerance:.2g})"
                     + (f", other weights {', '.join(different[:2])}" if different else ""))
    return texts, failed


def check(stele, source, scheme, work, log):
    """Prints a line, and returns whether all was right."""
    folder, plain = work / "out", work / "plain"
    decoded, faults, texts, failed = {}, [], [], True
    try:
        convert(stele, source, folder, "--to", "hub", "--quantize", scheme)
        convert(stele, folder, work / "f32.safetensors", "--precision", "f32")
        convert(stele, source, work / "before.safetensors", "--precision", "f32")
        dtype = {BF16: "bf16", F16: "f16"}[dtype_of(source)]
        convert(stele, folder, plain, "--to", "hub", "--precision", dtype)
        with silence(log):
            decoded, faults = check_decoding(folder, load_file(work / "f32.safetensors"),
                                             load_file(work / "before.safetensors"),
                                             SCHEMES.get(scheme) or SCHEMES[scheme.split(":")[0]])
        check_files(source, folder)
    except Exception as error:
        faults.append(note(error, log))
    try:
        texts, failed = check_loading(folder, plain, decoded, log)
    except Exception as error:
        texts = [f"stele's own decoding FAILED: {note(error, log)}"]
    dtypes = sorted({str(native.dtype).removeprefix("torch.") for _, native in decoded.values()})
    print(f"{source.name}:{scheme}  {len(decoded)} weights {' '.join(['float32'] + dtypes)} "
          f"{'equal' if not faults else f'FAILED ({len(faults)}): ' + ', '.join(faults[:2])};  "
          f"{';  '.join(texts)}", flush=True)
    return not faults and not failed


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    torch.set_num_threads(1)
    stele, patterns = arguments[0], arguments[2:] or ["*"]
    scratch = Path(arguments[1] if len(arguments) > 1 else tempfile.mkdtemp(prefix="written-")).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    log = scratch / "log"
    log.unlink(missing_ok=True)
    with silence(log):
        import transformers
        transformers.logging.disable_progress_bar()
    wrong = []
    for name, (make_source, schemes) in SOURCES.items():
        schemes = [scheme for scheme in schemes if any(fnmatch.fnmatchcase(f"{name}:{scheme}", p) for p in patterns)]
        source = scratch / name
        if schemes:
            shutil.rmtree(source, ignore_errors=True)
            with silence(log):
                make_source(source)
                add_tokenizer(source)
        for scheme in schemes:
            work = scratch / f"{name}-{scheme.replace(':', '-')}"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            if not check(stele, source, scheme, work, log):
                wrong.append(f"{name}:{scheme}")
    print(f"failed: {' '.join(wrong)} (the packages' output: {log})" if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
