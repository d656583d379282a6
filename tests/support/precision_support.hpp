// Shared by the tests of the conversion kernels.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "precision/kernels.hpp"
#include "precision/reference.hpp"
#include "stele/precision/convert.hpp"
#include "stele/precision/element.hpp"

namespace precision_test {

namespace pd = stele::precision_detail;
using stele::ConvertOutcome;
using stele::ConvertRules;
using stele::ConvertStatus;
using stele::DType;

/// Runs `f` once for every SIMD target of the float kernels that this machine supports.
template <class F>
void on_every_target(F f) {
  for (auto left = pd::available_targets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    pd::force_target(target);
    INFO("target ", std::string(pd::target_name(target)));
    f();
  }
  pd::force_target(0);
}

template <class To, class From>
std::vector<To> converted(DType from, const std::vector<From>& in, DType to, ConvertOutcome* outcome = nullptr,
                          ConvertRules rules = {.allow_overflow = true}) {
  std::vector<To> out(in.size());
  const auto r = convert(from, reinterpret_cast<const std::byte*>(in.data()), to,
                         reinterpret_cast<std::byte*>(out.data()), in.size(), rules);
  if (outcome != nullptr) {
    *outcome = r;
  } else {
    CHECK(r.status == ConvertStatus::ok);
  }
  return out;
}

/// Returns the index of the first difference, or the size.
template <class T>
std::size_t agreement(const std::vector<T>& a, const std::vector<T>& b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return i;
}

}  // namespace precision_test
