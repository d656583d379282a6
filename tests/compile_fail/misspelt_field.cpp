#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, wieght)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: wieght
// EXPECT: Linear
