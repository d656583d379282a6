// The room at the bottom alone, which needs neither Boost nor xxHash.
#include <cstddef>
#include <iostream>

#include <stele/precision/convert.hpp>

int main() {
  const float from = 0.5F;
  double to = 0;
  const stele::ConvertOutcome outcome = stele::convert(stele::DType::f32, reinterpret_cast<const std::byte*>(&from),
                                                       stele::DType::f64, reinterpret_cast<std::byte*>(&to), 1);
  const bool ok = outcome.status == stele::ConvertStatus::ok && to == 0.5;
  std::cout << "conversion: " << (ok ? "ok" : "wrong") << "\n";
  return ok ? 0 : 1;
}
