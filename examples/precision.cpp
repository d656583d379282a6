// Stores a model with fewer bits: a recorder's precision converts the tensors while they are saved.
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <stele/stele.hpp>

struct Model {
  stele::Tensor<float, 2> weight;
};

template <class Precision>
void save_with(const Model& model, const char* path) {
  const stele::Report saved = stele::BinaryRecorder<Precision>().save(model, path).value();
  stele::LoadOptions options;
  options.dequantize = true;  // 8 and 4 bits as floats again; otherwise they load as integers
  const Model again = stele::load<Model>(path, options).value();  // any precision loads into the same class
  std::printf("%-12s %4zu KiB, element 1: %.5f\n", path, std::size_t{std::filesystem::file_size(path)} / 1024,
              double{again.weight[1]});
  if (!saved.empty()) std::printf("  %s\n", std::string(saved[0].detail).c_str());
}

int main() {
  Model model{stele::Tensor<float, 2>({512, 512})};
  for (std::size_t i = 0; i < model.weight.size(); ++i) model.weight[i] = std::sin(static_cast<float>(i));
  save_with<stele::NativePrecision>(model, "native.stele");
  save_with<stele::HalfPrecision>(model, "half.stele");
  save_with<stele::BrainPrecision>(model, "bf16.stele");
  save_with<stele::Quantized8>(model, "8bits.stele");
}

// Output:
// native.stele 1024 KiB, element 1: 0.84147
// half.stele    512 KiB, element 1: 0.84131
// bf16.stele    512 KiB, element 1: 0.83984
// 8bits.stele   256 KiB, element 1: 0.84314
//   f32 -> 8 bits in [-1, 1]; largest error 0.00392, mean 0.00193, root mean square 0.00224
