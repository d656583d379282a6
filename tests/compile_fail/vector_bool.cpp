// std::vector<bool> stores bits, not bools.
#include <stele/record.hpp>

#include <vector>

struct Mask {
  std::vector<bool> bits;
  STELE_MODULE(Mask, bits)
};

auto save(const Mask& m) { return stele::snapshot_of(m); }
// EXPECT: field 'bits' of module 'Mask' cannot be recorded
