#include <stele/record.hpp>

#include <map>
#include <string>

struct Heads {
  std::multimap<std::string, stele::Tensor<float, 1>> heads;
  STELE_MODULE(Heads, heads)
};

auto save(const Heads& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "heads".*Heads
// EXPECT-FIRST-CLANG: heads.*Heads
// EXPECT-FIRST: a map with several elements for a key cannot be recorded: use std::map of std::vector
// LINES-GCC: 10
// LINES-CLANG: 15
