// Quantized tensors that the tests of stele/quantize.hpp share.
#pragma once

#include <stele/quantize.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace stele_test::quantized {

using stele::DType;
using stele::Errc;
using stele::Snapshot;
using stele::Value;

using Doubles = std::vector<double>;
inline constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
std::vector<T> numbers(const stele::LeafView& leaf) {
  const std::string bytes = good(content(leaf));
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

inline Value note(std::initializer_list<std::pair<std::string, Value>> items) { return Value(Value::Map(items)); }
inline Value integer(std::int64_t i) { return Value(i); }

inline std::vector<float> decoded(const Snapshot& s) { return numbers<float>(good(stele::dequantize(s)).leaf(0)); }

}  // namespace stele_test::quantized
