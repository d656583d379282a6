// Both fields are named, with the remedy for the first.
#include <stele/record.hpp>

#include <list>
#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::list<float> history;
  float* cache = nullptr;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST: history.*Linear.*cache
// EXPECT-FIRST: this kind of list cannot be recorded: use std::vector
// LINES-GCC: 10
// LINES-CLANG: 15
