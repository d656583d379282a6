#include <stele/record.hpp>

#include <complex>
#include <optional>
#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::optional<std::vector<std::complex<float>>> spectrum;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "spectrum".*Linear
// EXPECT-FIRST-CLANG: spectrum.*Linear
// EXPECT-FIRST: complex numbers need a header: include stele/precision/complex.hpp
// LINES-GCC: 10
// LINES-CLANG: 15
