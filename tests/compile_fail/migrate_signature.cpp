#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};
template <>
struct stele::attributes<Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2)};
  static stele::Snapshot migrate(std::uint32_t, const stele::Snapshot& old) { return old; }
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: the migrate hook of this module's attributes has another signature than stele/module.hpp declares
// EXPECT: Linear
