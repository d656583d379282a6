#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
};

auto& f(stele::Record<Linear>& record) { return stele::get<"nope">(record); }
// EXPECT: this module records no field of that name
// EXPECT: Linear
// EXPECT: nope|110, 111, 112, 101
