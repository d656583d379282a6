// Makes the configuration of quantized weights.
#include "passes/composites/written_configuration.hpp"

#include <string_view>
#include <utility>

namespace stele::inline v0::detail::composites {
namespace {

Value list_of(const std::vector<std::string>& texts) {
  Value::List list;
  for (const std::string& text : texts) list.emplace_back(text);
  return Value(std::move(list));
}

/// Adds a pattern for each kept module, so that gptqmodel leaves it unchanged.
void add_exceptions(Value::Map& config, const Modules& modules) {
  Value::Map exceptions;
  for (const std::string& module : modules.kept) {
    std::string pattern = "-:^";
    for (const char c : module) {
      if (std::string_view(".+*?()[]{}|^$\\").find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
    exceptions.emplace_back(pattern + "$", Value(Value::Map()));
  }
  config.emplace_back("dynamic", Value(std::move(exceptions)));
}

}  // namespace

Value config_of(const EncodedScheme& scheme, std::uint64_t group, const Modules& modules) {
  const std::vector<std::string>& kept = modules.kept;
  const auto integer = [](std::uint64_t number) { return Value(static_cast<std::int64_t>(number)); };
  switch (scheme.package) {
    case Package::deepseek:
      return Value(Value::Map{{"activation_scheme", Value("dynamic")},
                              {"fmt", Value("e4m3")},
                              {"modules_to_not_convert", list_of(kept)},
                              {"quant_method", Value("fp8")},
                              {"weight_block_size", Value(Value::List{integer(128), integer(128)})}});
    case Package::compressed_tensors: {
      Value::Map weights{{"dynamic", Value(false)},
                         {"group_size", group != 0 ? integer(group) : Value()},
                         {"num_bits", integer(scheme.bits)}};
      if (scheme.scaling == Scaling::of_weight) weights.emplace_back("scale_dtype", Value("torch.float8_e4m3fn"));
      if (scheme.scaling == Scaling::exponent) weights.emplace_back("scale_dtype", Value("torch.uint8"));
      const bool tensor = scheme.scaling == Scaling::of_weight;
      weights.emplace_back("strategy", Value(group == 0 ? "channel" : tensor ? "tensor_group" : "group"));
      weights.emplace_back("symmetric", Value(true));
      weights.emplace_back("type", Value(scheme.coding == Coding::integer ? "int" : "float"));
      const Value format{std::string(scheme.format)};
      Value::Map one{{"format", format},
                     {"input_activations", Value()},
                     {"output_activations", Value()},
                     {"targets", Value(Value::List{Value("Linear")})},
                     {"weights", Value(std::move(weights))}};
      return Value(Value::Map{{"config_groups", Value(Value::Map{{"group_0", Value(std::move(one))}})},
                              {"format", format},
                              {"ignore", list_of(kept)},
                              {"quant_method", Value("compressed-tensors")},
                              {"quantization_status", Value("compressed")},
                              {"version", Value("0.20.0")}});
    }
    case Package::gptq: {
      Value::Map config{{"bits", integer(scheme.bits)},  {"checkpoint_format", Value("gptq")},
                        {"desc_act", Value(false)},      {"group_size", integer(group)},
                        {"lm_head", Value(false)},       {"pack_dtype", Value("int32")},
                        {"quant_method", Value("gptq")}, {"sym", Value(true)}};
      if (modules.unfit) {  // gptqmodel reads the first key, transformers the second
        add_exceptions(config, modules);
        config.emplace_back("modules_in_block_to_quantize", Value(Value::List{list_of(modules.quantized)}));
      }
      return Value(std::move(config));
    }
    case Package::awq: {
      Value::Map config{
          {"bits", integer(scheme.bits)}, {"group_size", integer(group)}, {"modules_to_not_convert", list_of(kept)},
          {"quant_method", Value("awq")}, {"version", Value("gemm")},     {"zero_point", Value(true)}};
      if (modules.unfit) add_exceptions(config, modules);
      return Value(std::move(config));
    }
    case Package::bitsandbytes:
      return Value(Value::Map{{"_load_in_4bit", Value(true)},
                              {"_load_in_8bit", Value(false)},
                              {"bnb_4bit_compute_dtype", Value("bfloat16")},
                              {"bnb_4bit_quant_storage", Value("uint8")},
                              {"bnb_4bit_quant_type", Value("nf4")},
                              {"bnb_4bit_use_double_quant", Value(false)},
                              {"llm_int8_skip_modules", list_of(kept)},
                              {"load_in_4bit", Value(true)},
                              {"load_in_8bit", Value(false)},
                              {"quant_method", Value("bitsandbytes")}});
  }
  return {};
}

}  // namespace stele::inline v0::detail::composites
