// The differences between numbers and their quantized form.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

struct Differences {
  double largest = 0, sum = 0, squares = 0;

  void add(double difference) {
    const double size = std::abs(difference);
    largest = std::max(largest, size);
    sum += size;
    squares += size * size;
  }
  /// Returns the end of a row of a Report, for `count` numbers.
  std::string text(std::uint64_t count) const {
    const auto n = static_cast<double>(count);
    char all[96];
    std::snprintf(all, sizeof all, "; largest error %.3g, mean %.3g, root mean square %.3g", largest, sum / n,
                  std::sqrt(squares / n));
    return all;
  }
};

/// Differences that one thread sets and another one reads.
struct SharedDifferences {
  std::atomic<double> largest = 0, sum = 0, squares = 0;

  void set(const Differences& d) { largest = d.largest, sum = d.sum, squares = d.squares; }
  Differences get() const { return {largest, sum, squares}; }
};

}  // namespace stele::inline v0::detail
