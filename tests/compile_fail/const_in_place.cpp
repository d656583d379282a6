#include <stele/record.hpp>

struct Linear {
  const stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto load(Linear& m, const stele::Snapshot& s) { return stele::load_into(m, s); }
// EXPECT: a const member cannot be loaded in place: make new objects with a static
// EXPECT: Linear
