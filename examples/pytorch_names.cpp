// Loads a file whose names and layouts differ from those of the class. Rules rename and transpose; no data is read yet.
#include <cstdio>
#include <vector>

#include <stele/stele.hpp>
#include <stele/transform.hpp>

struct Linear {
  stele::Tensor<float, 2> weight;  // [in, out]; PyTorch has [out, in]
};
struct Model {
  std::vector<Linear> layers;
};

// In place of PyTorch, which saved `h.0.fc.weight`.
struct Block {
  Linear fc;
};
struct Net {
  std::vector<Block> h;
};

int main() {
  Net theirs;
  theirs.h.push_back({{stele::Tensor<float, 2>({3, 2}, {1, 2, 3, 4, 5, 6})}});
  stele::save(theirs, "theirs.safetensors").value();

  const std::vector<stele::Rename> rules = {{R"(^h\.(\d+)\.fc\.)", R"(layers.\1.)"}};
  stele::Snapshot file = stele::open("theirs.safetensors").value();
  file = stele::rename(file, rules).value();
  file = stele::transpose(file, "*.weight").value();
  const Model model = stele::load<Model>(file).value();
  std::printf("%s", stele::summary(model).c_str());
}

// Output:
// layers.0.weight  f32 [2, 3]  6
// 1 tensors, 6 parameters, 24 bytes
