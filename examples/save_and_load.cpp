// Saves a model and loads it. Plain structs need no macro; a class with private fields lists the recorded ones.
#include <cstdio>
#include <optional>
#include <vector>

#include <stele/stele.hpp>

struct Linear {  // a plain struct: tensors are recorded under their names
  stele::Tensor<float, 2> weight;
  std::vector<float> bias;
};

class Mlp {
 public:
  Mlp() = default;  // load() constructs a module by default; sizes and shapes come from the file
  explicit Mlp(std::size_t width) {
    layers.push_back({stele::Tensor<float, 2>::filled({1, width}, 0.5F), std::vector<float>(1)});
  }
  int calls = 0;  // not listed, so not in the file: such a field may have any type

 private:
  std::vector<Linear> layers;
  std::optional<std::vector<float>> scale;  // without a value, it has no entry in the file
  STELE_MODULE(Mlp, layers, scale)
};

int main() {
  const Mlp model(8);
  stele::save(model, "mlp.stele").value();  // the extension selects the format
  stele::save(model, "mlp.safetensors").value();
  Mlp same = stele::load<Mlp>("mlp.stele").value();   // the content selects the format
  stele::load_into(same, "mlp.safetensors").value();  // into an existing module; shapes must match
  std::printf("%s", stele::summary(same).c_str());
}

// Output:
// layers.0.weight  f32 [1, 8]  8
// layers.0.bias  f32 [1]  1
// 2 tensors, 9 parameters, 36 bytes
