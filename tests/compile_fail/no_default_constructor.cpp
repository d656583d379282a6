#include <stele/record.hpp>

struct Linear {
  explicit Linear(int);
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto load(const stele::Snapshot& s) { return stele::load<Linear>(s); }
// EXPECT: this module needs a default constructor and no const members, or a static
// EXPECT: Linear
