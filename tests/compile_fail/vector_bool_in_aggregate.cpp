#include <stele/record.hpp>

#include <vector>

struct Mask {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<bool> bits;
};

auto save(const Mask& m) { return stele::snapshot_of(m); }
// EXPECT: a field of this module cannot be recorded
// EXPECT: Mask.*bits
