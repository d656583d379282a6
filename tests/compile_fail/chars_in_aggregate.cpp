// Characters are integers that no tensor has.
#include <stele/record.hpp>

#include <vector>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<char> names;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "names".*Linear
// EXPECT-FIRST-CLANG: names.*Linear
// EXPECT-FIRST: a sequence of integers in a plain aggregate may be weights or a constant: list the fields to record with STELE_MODULE, or skip
// LINES-GCC: 10
// LINES-CLANG: 15
