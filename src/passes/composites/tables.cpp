#include "passes/composites/tables.hpp"

#include <array>
#include <cmath>

#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::composites {
namespace {

/// Numbers with a sign bit above `bits` bits of magnitude.
template <class F>
TablePtr with_sign(unsigned bits, const F& size) {
  const unsigned count = 1U << bits;
  return make_table(2 * count, [&](unsigned code) { return code < count ? size(code) : -size(code - count); });
}

}  // namespace

TablePtr float8_table(DType dtype) {
  const auto make = [](DType d) {
    return make_table(256, [&](unsigned code) {
      const auto byte = static_cast<std::byte>(code);
      float number = 0;
      convert(d, &byte, DType::f32, reinterpret_cast<std::byte*>(&number), 1);
      return number;
    });
  };
  static const TablePtr e4m3 = make(DType::f8_e4m3fn), e5m2 = make(DType::f8_e5m2);
  return dtype == DType::f8_e4m3fn ? e4m3 : dtype == DType::f8_e5m2 ? e5m2 : make(dtype);
}

TablePtr integer_table(unsigned bits, bool centered) {
  static const auto all = [] {
    std::array<std::array<TablePtr, 2>, 9> tables;
    for (unsigned b = 1; b <= 8; ++b) {
      for (const unsigned c : {0U, 1U}) {
        const float half = c != 0 ? static_cast<float>(1U << (b - 1)) : 0.0F;
        tables[b][c] = make_table(1U << b, [&](unsigned code) { return static_cast<float>(code) - half; });
      }
    }
    return tables;
  }();
  return all[bits][centered ? 1 : 0];
}

TablePtr signed_table(unsigned bits) {
  const auto make = [](unsigned b) {
    const unsigned count = 1U << b;
    return make_table(count, [&](unsigned code) {
      return static_cast<float>(code) - (code < count / 2 ? 0.0F : static_cast<float>(count));
    });
  };
  static const TablePtr four = make(4), eight = make(8);
  return bits == 4 ? four : eight;
}

TablePtr e2m1_table() {
  static const TablePtr table = with_sign(3, [](unsigned size) {
    constexpr float sizes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return sizes[size];
  });
  return table;
}

TablePtr e2m3_table() {
  static const TablePtr table = with_sign(5, [](unsigned size) {
    const auto mantissa = static_cast<float>(size & 7U);
    const int exponent = static_cast<int>(size >> 3);
    return exponent == 0 ? mantissa / 8 : std::ldexp(8 + mantissa, exponent - 4);
  });
  return table;
}

TablePtr nf4_table() {
  static const TablePtr table = make_table(16, [](unsigned code) {
    constexpr float numbers[] = {-1,
                                 -0.6961928009986877F,
                                 -0.5250730514526367F,
                                 -0.39491748809814453F,
                                 -0.28444138169288635F,
                                 -0.18477343022823334F,
                                 -0.09105003625154495F,
                                 0,
                                 0.07958029955625534F,
                                 0.16093020141124725F,
                                 0.24611230194568634F,
                                 0.33791524171829224F,
                                 0.44070982933044434F,
                                 0.5626170039176941F,
                                 0.7229568362236023F,
                                 1};
    return numbers[code];
  });
  return table;
}

}  // namespace stele::inline v0::detail::composites
