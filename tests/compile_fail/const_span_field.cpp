#include <stele/record.hpp>

#include <span>

struct Net {
  std::span<const float> weight;
  STELE_MODULE(Net, weight)
};

auto save(const Net& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "weight".*Net
// EXPECT-FIRST-CLANG: weight.*Net
// EXPECT-FIRST: a std::span is recorded if its elements are numbers that a load can write
// LINES-GCC: 10
// LINES-CLANG: 15
