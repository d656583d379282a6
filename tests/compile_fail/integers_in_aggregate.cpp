// Weights, or a stride? Neither is guessed.
#include <stele/record.hpp>

#include <vector>

struct Conv {
  stele::Param<stele::Tensor<float, 4>> weight;
  std::vector<int> stride;
};

auto save(const Conv& m) { return stele::snapshot_of(m); }
// EXPECT: a sequence of integers in a plain aggregate may be weights or a constant
// EXPECT: Conv.*stride
// EXPECT: list the fields to record with STELE_MODULE, or skip it
