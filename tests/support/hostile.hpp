// Shared by the tests of damaged files.
#pragma once

#include <ctime>

namespace stele_test {

/// Returns the seconds of processor time that `f` takes, which do not depend on what else the machine does.
template <class F>
double seconds(F f) {
  const std::clock_t begin = std::clock();
  f();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace stele_test
