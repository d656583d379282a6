// The remedy is that of the type within.
#include <stele/record.hpp>

#include <list>
#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<std::list<float>> history;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "history".*Linear
// EXPECT-FIRST-CLANG: history.*Linear
// EXPECT-FIRST: this kind of list cannot be recorded: use std::vector
// LINES-GCC: 10
// LINES-CLANG: 15
