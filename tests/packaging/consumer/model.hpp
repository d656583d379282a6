// The module that the programs here save and load.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <utility>
#include <vector>

#include <stele/module.hpp>
#include <stele/tensor.hpp>

class Linear {
 public:
  Linear() = default;
  Linear(std::size_t in, std::size_t out, float first) : weight(stele::Tensor<float, 2>::filled({out, in}, first)) {}
  bool is(std::size_t in, std::size_t out, float first) const {
    return weight.shape()[0] == out && weight.shape()[1] == in && weight.data()[out * in - 1] == first;
  }

 private:
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Linear, weight)
};

struct Model {
  std::vector<Linear> layers;
};

inline Model make_model() {
  Model model;
  model.layers.emplace_back(4, 3, 0.5F);
  model.layers.emplace_back(3, 2, -2.0F);
  return model;
}

inline void check(const Model& model, const char* what) {
  if (model.layers.size() == 2 && model.layers[0].is(4, 3, 0.5F) && model.layers[1].is(3, 2, -2.0F)) {
    std::cout << what << ": ok\n";
    return;
  }
  std::cerr << what << ": another model came back\n";
  std::exit(1);
}
