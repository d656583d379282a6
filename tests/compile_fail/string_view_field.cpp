#include <stele/record.hpp>

#include <string_view>

struct Net {
  stele::Tensor<float, 2> weight;
  std::string_view name;
};

auto save(const Net& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "name".*Net
// EXPECT-FIRST-CLANG: name.*Net
// EXPECT-FIRST: a std::string_view cannot be loaded, because it does not own its text: use std::string
// LINES-GCC: 10
// LINES-CLANG: 15
