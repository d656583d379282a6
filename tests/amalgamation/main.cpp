// Saves a struct and loads it, with the two files alone.
#include "stele.hpp"

struct Model {
  std::vector<float> weight;
  stele::Tensor<stele::float16, 2> bias;
  float dropout = 0;
};

int other_source();

int main() {
  const Model model{{1, 2, 3}, stele::Tensor<stele::float16, 2>::zeros({2, 3}), 0.5F};
  for (const char* path : {"one.stele", "one.safetensors", "one.gguf", "one.npz", "one.json"}) {
    if (auto saved = stele::save(model, path); !saved) return 1;
    auto loaded = stele::load<Model>(path);
    if (!loaded || loaded->weight != model.weight || loaded->bias.shape()[1] != 3) return 2;
  }
  return other_source();
}
