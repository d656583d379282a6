#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  volatile float flag = 0;
  STELE_MODULE(Linear, weight, flag)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "flag".*Linear
// EXPECT-FIRST-CLANG: flag.*Linear
// EXPECT-FIRST: a volatile field cannot be recorded: leave it out of the list
// LINES-GCC: 10
// LINES-CLANG: 15
