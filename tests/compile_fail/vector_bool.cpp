// std::vector<bool> stores bits, not bools.
#include <stele/record.hpp>

#include <vector>

struct Mask {
  std::vector<bool> bits;
  STELE_MODULE(Mask, bits)
};

auto save(const Mask& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "bits".*Mask
// EXPECT-FIRST-CLANG: bits.*Mask
// EXPECT-FIRST: std::vector<bool> cannot be recorded, because it stores bits: use stele::Tensor
// LINES-GCC: 10
// LINES-CLANG: 15
