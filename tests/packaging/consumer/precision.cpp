// The room at the bottom alone, which needs neither Boost nor xxHash.
#include <array>
#include <cstddef>
#include <iostream>
#include <span>

#include <stele/precision/base64.hpp>
#include <stele/precision/blocks.hpp>
#include <stele/precision/complex.hpp>
#include <stele/precision/convert.hpp>
#include <stele/precision/element.hpp>
#include <stele/precision/settings.hpp>
#include <stele/precision/shuffle.hpp>

int main() {
  const float from = 0.5F;
  double to = 0;
  const stele::ConvertOutcome outcome = stele::convert(stele::DType::f32, reinterpret_cast<const std::byte*>(&from),
                                                       stele::DType::f64, reinterpret_cast<std::byte*>(&to), 1);
  std::array<char, stele::base64_size(4)> text{};
  stele::base64_encode(std::as_bytes(std::span(&from, 1)), text.data());
  std::array<std::byte, 4> parts{};
  stele::shuffle_bytes(reinterpret_cast<const std::byte*>(&from), parts.data(), 1, parts.size());
  const bool ok = outcome.status == stele::ConvertStatus::ok && to == 0.5 &&
                  stele::base64_decoded_size({text.data(), text.size()}) == 4 &&
                  static_cast<float>(stele::float16(from)) == from &&
                  stele::precision_spec<stele::HalfPrecision>().apply(stele::DType::f32) == stele::DType::f16 &&
                  stele::encodable(stele::DType::q8_0) && stele::dtype_of_v<std::complex<float>> == stele::DType::c64;
  std::cout << "conversion: " << (ok ? "ok" : "wrong") << "\n";
  return ok ? 0 : 1;
}
