#include <stele/record.hpp>

#include <map>
#include <string>
#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::multimap<std::string, std::vector<float>> table;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "table".*Linear
// EXPECT-FIRST-CLANG: table.*Linear
// EXPECT-FIRST: a map with several elements for a key cannot be recorded: use std::map of std::vector
// LINES-GCC: 10
// LINES-CLANG: 15
