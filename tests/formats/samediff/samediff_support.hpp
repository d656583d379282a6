// A model for tests of SameDiff files, and the text of an array.
#pragma once

#include <stele/module.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/tensor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/dl4j.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace stele_test {

inline constexpr stele::SameDiffContainer containers[] = {stele::SameDiffContainer::fb, stele::SameDiffContainer::sdnb,
                                                          stele::SameDiffContainer::sdz};

struct Layer {
  stele::Tensor<float, 2> weight;
  std::optional<stele::Tensor<float, 1>> bias;
  STELE_MODULE(Layer, weight, bias)
};
struct Model {
  std::vector<Layer> layers;
  stele::Tensor<std::int64_t, 1> steps{{2}, {1, -2}};
  std::string note = "a note";
  STELE_MODULE(Model, layers, steps, note)
};

inline Model model(std::size_t rows) {
  Model m;
  for (std::size_t i = 1; i < 4; ++i) {
    m.layers.push_back({stele::Tensor<float, 2>({rows, i}), {}});
    if (i != 2) m.layers.back().bias = stele::Tensor<float, 1>({i});
    Random random(i);
    random.fill(std::as_writable_bytes(m.layers.back().weight.span()));
  }
  return m;
}

inline std::string array_text(const stele::LeafView& leaf, bool scalar = false) {
  const auto bytes = content(leaf);
  if (!bytes) return why(bytes);
  const std::string digits = hex_of(in_file_order(*bytes, leaf.dtype()));
  return std::string(java_name(leaf.dtype())) + " " + (scalar ? "scalar" : shape_text(leaf.shape())) + " " +
         (digits.empty() ? "-" : digits);
}

}  // namespace stele_test
