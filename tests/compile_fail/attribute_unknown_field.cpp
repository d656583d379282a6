#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};
template <>
struct stele::attributes<Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("wieght", "kernel")};
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: an attribute of this module names a field that it does not have
// EXPECT: Linear
