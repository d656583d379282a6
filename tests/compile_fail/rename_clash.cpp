#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight, bias;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::rename("weight", "bias")};
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: two recorded fields of this module have the same name
// EXPECT: Linear
