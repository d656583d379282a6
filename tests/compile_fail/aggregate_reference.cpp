#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  float& shared;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: the fields of this plain aggregate cannot be counted .more than 100, or a reference.: list those to record
// EXPECT: Linear
