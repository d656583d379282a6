#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto f(stele::Record<Linear>&& record) { return stele::from_record(std::move(record), 3); }
// EXPECT: this module has no from_record hook that takes these arguments
// EXPECT: Linear
