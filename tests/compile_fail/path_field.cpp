#include <stele/record.hpp>

#include <filesystem>

struct Net {
  stele::Tensor<float, 2> weight;
  std::filesystem::path origin;
  STELE_MODULE(Net, weight, origin)
};

auto save(const Net& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "origin".*Net
// EXPECT-FIRST-CLANG: origin.*Net
// EXPECT-FIRST: a std::filesystem::path cannot be recorded: use std::string
// LINES-GCC: 10
// LINES-CLANG: 15
