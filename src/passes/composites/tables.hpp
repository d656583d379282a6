// The numbers of the codes of each scheme.
#pragma once

#include "passes/composites/composite.hpp"

namespace stele::inline v0::detail::composites {

using TablePtr = std::shared_ptr<const Table>;

/// Returns a table with f(code) for the codes below `count`, and 0 for all further codes.
template <class F>
TablePtr make_table(unsigned count, const F& f) {
  auto table = std::make_shared<Table>();
  for (unsigned code = 0; code < count; ++code) (*table)[code] = f(code);
  return table;
}

/// Floats of 8 bits.
TablePtr float8_table(DType dtype);
/// Integers without a sign, minus half of their range if `centered`. `bits`: 1 to 8.
TablePtr integer_table(unsigned bits, bool centered);
/// Integers of 4 or 8 bits in two's complement.
TablePtr signed_table(unsigned bits);
/// The floats of 4 bits of OCP MX 1.0: e2m1.
TablePtr e2m1_table();
/// The floats of 6 bits of OCP MX 1.0: e2m3.
TablePtr e2m3_table();
/// The 16 numbers of bitsandbytes' nf4, which are quantiles of the normal distribution (bitsandbytes 0.50.2).
TablePtr nf4_table();

}  // namespace stele::inline v0::detail::composites
