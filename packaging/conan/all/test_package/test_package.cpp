// Saves a model and loads it again, in a format that the package has.
#include <iostream>
#include <string>
#include <vector>

#include <stele/module.hpp>
#include <stele/recorders/any.hpp>
#include <stele/tensor.hpp>

struct Linear {
  stele::Tensor<float, 2> weight;
  std::vector<float> bias;
};
struct Model {
  std::vector<Linear> layers;
};

int main() {
  const stele::Format* format = stele::find_format("safetensors");
  if (format == nullptr) format = stele::formats().front();

  const Model model{{Linear{stele::Tensor<float, 2>::filled({10, 64}, 0.5F), std::vector<float>(10)}}};
  stele::save(model, "model.data", {.format = format}).value();
  const Model copy = stele::load<Model>("model.data").value();
  std::cout << format->name() << ": " << copy.layers.at(0).weight.size() << " elements\n";
  return copy.layers[0].weight.data()[639] == 0.5F ? 0 : 1;
}
