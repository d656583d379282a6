// Shared by the tests of damaged files.
#pragma once

#include <chrono>

namespace stele_test {

/// Returns the seconds that `f` takes.
template <class F>
double seconds(F f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace stele_test
