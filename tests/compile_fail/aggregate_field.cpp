// A field of a plain aggregate that cannot be recorded: its name, its type and what to do come first.
#include <stele/record.hpp>

#include <functional>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::function<void()> audit;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "audit".*function.*Linear
// EXPECT-FIRST-CLANG: audit.*function.*Linear
// EXPECT-FIRST: this field cannot be recorded: list the fields to record with STELE_MODULE
// LINES-GCC: 10
// LINES-CLANG: 15
