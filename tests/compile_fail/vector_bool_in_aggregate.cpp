#include <stele/record.hpp>

#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<bool> bits;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "bits".*Linear
// EXPECT-FIRST-CLANG: bits.*Linear
// EXPECT-FIRST: std::vector<bool> cannot be recorded, because it stores bits: use stele::Tensor
// LINES-GCC: 10
// LINES-CLANG: 15
