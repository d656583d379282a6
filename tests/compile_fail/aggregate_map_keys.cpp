#include <stele/record.hpp>

#include <map>
#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::map<int, std::vector<float>> table;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "table".*Linear
// EXPECT-FIRST-CLANG: table.*Linear
// EXPECT-FIRST: a map whose keys are not strings cannot be recorded, because the keys become names: use std::string
// LINES-GCC: 10
// LINES-CLANG: 15
