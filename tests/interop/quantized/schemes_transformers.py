"""bitsandbytes and torchao, by transformers."""
import json
import tempfile

import torch
from safetensors import safe_open

from schemes import BF16, F16, F32, FP8, fill, grouped, linears, llama, read, save, scheme, state_of, write_config

# ---------------------------------------------------------------- 5. bitsandbytes

def gpt2(dtype=BF16, seed=7):
    """A GPT2LMHeadModel with seeded weights: its Conv1D store weights as [inputs, outputs]."""
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=32, n_embd=64, n_layer=1, n_head=2, dtype=dtype))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(fill(name, tuple(parameter.shape), generator))
    return model.to(dtype).eval()


def quantize_by_transformers(folder, config, model=None, **sizes):
    """Loads a plain model with a quantization_config, and saves what transformers made of it."""
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as plain:
        (model() if model else llama(**sizes)).save_pretrained(plain)
        model = AutoModelForCausalLM.from_pretrained(plain, quantization_config=config, device_map="cpu",
                                                     dtype=sizes.get("dtype", BF16))
    model.save_pretrained(folder)
    return model


def as_unquantized(name, weight):
    """transformers transposes the weights of Conv1D before it quantizes them."""
    conv1d = name.split(".")[-2] in ("c_attn", "c_proj", "c_fc")
    return weight.t().contiguous() if conv1d else weight


@scheme("bnb_nf4", kind="nf4")
@scheme("bnb_nf4_nested", kind="nf4", nested=True)
@scheme("bnb_fp4", kind="fp4", tied=False)
@scheme("bnb_fp4_nested_f16", kind="fp4", nested=True, dtype=F16)
@scheme("bnb_nf4_edges", kind="nf4", nested=True, hidden=72, inter=100)
@scheme("bnb_nf4_bf16_storage", kind="nf4", storage=BF16)
@scheme("bnb_nf4_f32_bias", kind="nf4", dtype=F32, bias=True)
@scheme("bnb_gpt2_nf4", kind="nf4", nested=True, model=gpt2)
def bnb_4bit(folder, kind, nested=False, storage=torch.uint8, **sizes):
    from bitsandbytes.functional import QuantState, dequantize_4bit
    from transformers import BitsAndBytesConfig
    quantize_by_transformers(folder, BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype=BF16,
        bnb_4bit_quant_storage=storage), **sizes)
    expected, expected_f32, states = {}, {}, {}
    tensors = read(folder)
    for name, tensor in tensors.items():
        if ".weight." in name:
            weight, _, part = name.partition(".weight.")
            states.setdefault(weight + ".weight", {})[part] = tensor
        else:
            expected[name] = tensor
    for name, parts in states.items():
        for target, dtype in (expected, None), (expected_f32, F32):
            state = QuantState.from_dict(dict(parts), device="cpu")
            state.dtype = dtype or state.dtype
            target[name] = as_unquantized(name, dequantize_4bit(tensors[name], state))
    return expected, expected_f32


@scheme("bnb_int8")
@scheme("bnb_int8_untied_f16", tied=False, dtype=F16)
@scheme("bnb_gpt2_int8", model=gpt2)
def bnb_int8(folder, **sizes):
    from bitsandbytes.functional import int8_vectorwise_dequant
    from transformers import BitsAndBytesConfig
    quantize_by_transformers(folder, BitsAndBytesConfig(load_in_8bit=True), **sizes)
    modules, expected = grouped(read(folder), ("SCB", "weight_format"))
    expected_f32 = {}
    for name, parts in modules.items():
        key = name + ".weight"
        expected_f32[key] = as_unquantized(key, int8_vectorwise_dequant(expected[key], parts["SCB"]))
        expected[key] = expected_f32[key].to(sizes.get("dtype", BF16))
    return expected, expected_f32


# ---------------------------------------------------------------- 7. torchao

def torchao_expected(folder):
    """Tensor subclasses made again from the file, and decoded."""
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict
    tensors, metadata = read(folder), {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            metadata.update(file.metadata())
    state, rest = unflatten_tensor_state_dict(tensors, metadata)
    assert not rest, list(rest)
    expected, expected_f32 = {}, {}
    for name, tensor in state.items():
        if type(tensor) is torch.Tensor:
            expected[name] = tensor
        elif type(tensor).__name__ == "Int4Tensor":
            expected_f32[name] = int4_decode(tensor)
            expected[name] = expected_f32[name].to(tensor.dtype)
        else:
            expected[name] = tensor.dequantize()
            try:
                expected_f32[name] = tensor.dequantize(output_dtype=F32)
            except TypeError:
                pass
    return expected, expected_f32


def torchao_config(kind):
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.prototype.mx_formats.inference_workflow import NVFP4WeightOnlyConfig
    from torchao.quantization import (Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig,
                                      Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerAxis, PerGroup, PerRow, PerTensor)
    from torchao.quantization.quant_primitives import MappingType
    return {"int8": lambda: Int8WeightOnlyConfig(),
            "int8_group": lambda: Int8WeightOnlyConfig(granularity=PerGroup(32)),
            "int8_dynamic": lambda: Int8DynamicActivationInt8WeightConfig(),
            "float8": lambda: Float8WeightOnlyConfig(granularity=PerRow()),
            "float8_tensor": lambda: Float8WeightOnlyConfig(granularity=PerTensor()),
            "intx4": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
            "intx3_asym": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerAxis(0),
                                                       mapping_type=MappingType.ASYMMETRIC),
            "mxfp8": lambda: MXDynamicActivationMXWeightConfig(),
            "mxfp4": lambda: MXDynamicActivationMXWeightConfig(activation_dtype=torch.float4_e2m1fn_x2,
                                                               weight_dtype=torch.float4_e2m1fn_x2),
            "nvfp4": lambda: NVFP4WeightOnlyConfig()}[kind]()


@scheme("torchao_int8", kind="int8")
@scheme("torchao_int8_group", kind="int8_group", tied=False)
@scheme("torchao_int8_dynamic", kind="int8_dynamic")
@scheme("torchao_float8", kind="float8")
@scheme("torchao_float8_tensor", kind="float8_tensor")
@scheme("torchao_intx4", kind="intx4")
@scheme("torchao_intx3_asym", kind="intx3_asym", hidden=36, inter=100)
@scheme("torchao_mxfp8", kind="mxfp8")
@scheme("torchao_mxfp4", kind="mxfp4")
@scheme("torchao_nvfp4", kind="nvfp4", inter=176)
def torchao(folder, kind, **sizes):
    from transformers import TorchAoConfig
    quantize_by_transformers(folder, TorchAoConfig(torchao_config(kind)), **sizes)
    return torchao_expected(folder)


def int4_decode(tensor):
    """mslk's int4_row_quantize_zp read backwards: q in -8..7, low nibble first, w = q * scale + zero_point."""
    packed = tensor.qdata.view(torch.uint8).int()
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    codes = torch.where(codes > 7, codes - 16, codes).to(F32)
    group = tensor.block_size[-1]
    scale, zero = (part.to(F32).t().repeat_interleave(group, -1) for part in (tensor.scale, tensor.zero_point))
    return codes * scale + zero


@scheme("torchao_int4_plain")
def torchao_int4_plain(folder):
    """Int4Tensor: torchao makes it with mslk (CUDA) only, so its parts are made here by mslk's formula; the file is
    torchao's."""
    from torchao.quantization import Int4Tensor, Int4WeightOnlyConfig
    model = llama()
    state = state_of(model)
    for name, module in linears(model):
        weight, group = module.weight.detach(), 32
        blocks = weight.float().unflatten(-1, (-1, group))
        low, high = blocks.amin(-1), blocks.amax(-1)
        scale = (high - low).clamp(min=1e-6) / 15
        codes = ((blocks - low[..., None]) / scale[..., None]).round().clamp(0, 15).int().flatten(-2) - 8
        packed = ((codes[:, 1::2] << 4) | (codes[:, ::2] & 15)).to(torch.uint8).view(torch.int8)
        state[name + ".weight"] = Int4Tensor(packed, scale.t().to(weight.dtype).contiguous(),
                                             (low + scale * 8).t().to(weight.dtype).contiguous(), [1, group],
                                             list(weight.shape))
    return torchao_save(folder, model, state, Int4WeightOnlyConfig(group_size=32))


@scheme("torchao_float8_dynamic")
def torchao_float8_dynamic(folder):
    """Float8Tensor with settings for activations, which torchao's config makes on a GPU only."""
    from torchao.float8.inference import Float8MMConfig
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, Float8Tensor, PerRow
    from torchao.quantization.quantize_.workflows import QuantizeTensorToFloat8Kwargs
    model = llama()
    state = state_of(model)
    mm_config = Float8MMConfig(use_fast_accum=True)
    for name, module in linears(model):
        state[name + ".weight"] = Float8Tensor.from_hp(
            module.weight.detach(), granularity=PerRow(), mm_config=mm_config,
            act_quant_kwargs=QuantizeTensorToFloat8Kwargs(FP8, PerRow(), mm_config=mm_config))
    return torchao_save(folder, model, state, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()))


def torchao_save(folder, model, state, config):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from transformers import TorchAoConfig
    tensors, metadata = flatten_tensor_state_dict(state)
    write_config(folder, model.config, json.loads(TorchAoConfig(config).to_json_string(use_diff=False)))
    save(folder, tensors, {"format": "pt", **metadata})
    return torchao_expected(folder)
