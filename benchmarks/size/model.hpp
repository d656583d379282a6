// The model of the programs whose size is measured.
#pragma once

#include <stele/tensor.hpp>

struct Linear {
  stele::Tensor<float, 2> weight;
  stele::Tensor<float, 1> bias;
};
struct Model {
  Linear first, second;
};
