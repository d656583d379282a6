#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  void* audit;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "audit".*Linear
// EXPECT-FIRST-CLANG: audit.*Linear
// EXPECT-FIRST: a raw pointer cannot be recorded: make it a std::unique_ptr, or a std::shared_ptr
// LINES-GCC: 10
// LINES-CLANG: 15
