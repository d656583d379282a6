// Lists the schemes of quantized weights that quantize_weights() encodes.
#include "passes/composites/encoded_schemes.hpp"

namespace stele::inline v0::detail::composites {
namespace {

constexpr EncodedScheme schemes[] = {
    {"fp8", "", Package::deepseek, Coding::float8, Scaling::largest, 8, 128, 128, false, DType::f32},
    {"int4", "pack-quantized", Package::compressed_tensors, Coding::integer, Scaling::largest, 4, 128, 1, true,
     DType::none},
    {"int8", "pack-quantized", Package::compressed_tensors, Coding::integer, Scaling::largest, 8, 0, 1, true,
     DType::none},
    {"nvfp4", "nvfp4-pack-quantized", Package::compressed_tensors, Coding::float4, Scaling::of_weight, 4, 16, 1, false,
     DType::f8_e4m3fn},
    {"mxfp4", "mxfp4-pack-quantized", Package::compressed_tensors, Coding::float4, Scaling::exponent, 4, 32, 1, false,
     DType::u8},
    {"mxfp8", "mxfp8-quantized", Package::compressed_tensors, Coding::float8, Scaling::exponent, 8, 32, 1, false,
     DType::u8},
    {"gptq", "", Package::gptq, Coding::integer, Scaling::largest, 4, 128, 1, true, DType::f16},
    {"awq", "", Package::awq, Coding::integer, Scaling::range, 4, 128, 1, true, DType::f16},
    {"nf4", "", Package::bitsandbytes, Coding::table, Scaling::largest, 4, 64, 1, false, DType::f32},
};

}  // namespace

Result<const EncodedScheme*> find_scheme(const WeightScheme& asked) {
  std::string all;
  for (const EncodedScheme& s : schemes) {
    if (s.name == asked.name) {
      const bool fits = asked.group == 0 || asked.group == s.group || (s.any_group && asked.group % 32 == 0);
      if (fits && asked.group <= (1U << 20)) return &s;
      return Error(Errc::invalid_argument, "the scheme has no such group")
          .expected(s.any_group ? "a multiple of 32" : std::to_string(s.group))
          .found(std::to_string(asked.group));
    }
    all += (all.empty() ? "" : ", ") + std::string(s.name);
  }
  return Error(Errc::invalid_argument, "no such scheme of quantized weights").expected(all).found(asked.name);
}

std::string obstacle(const EncodedScheme& scheme, std::uint64_t group, std::uint64_t n, std::uint64_t k) {
  const auto multiple = [](const char* what, std::uint64_t extent, std::uint64_t of) {
    return extent % of == 0 ? std::string()
                            : std::string(what) + " of " + std::to_string(extent) + " elements, no multiple of " +
                                  std::to_string(of);
  };
  if (n == 0 || k == 0) return "no elements";
  if (scheme.package == Package::bitsandbytes) return {};
  if (std::string why = multiple("rows", k, group != 0 ? group : 32 / scheme.bits); !why.empty()) return why;
  const bool words = scheme.package == Package::gptq || scheme.package == Package::awq;
  return multiple("columns", n, words ? 8 : scheme.row_group);
}

}  // namespace stele::inline v0::detail::composites
