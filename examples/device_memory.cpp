// Loads a model into the memory of a GPU if there is one, else into main memory, and saves it from there.
#include <cstdio>

#include <stele/device.hpp>
#include <stele/stele.hpp>

template <class Matrix>
struct Model {  // the same model, with any tensor
  Matrix weight, bias;
};

template <class Matrix>
int load_and_save(const char* where, stele::Transfer* transfer) {
  auto model = stele::load<Model<Matrix>>("model.safetensors", {.transfer = transfer});
  if (!model) return std::fprintf(stderr, "%s\n", model.error().to_string().c_str()), 1;
  auto saved = stele::save(*model, "copy.safetensors", {.transfer = transfer});
  if (!saved) return std::fprintf(stderr, "%s\n", saved.error().to_string().c_str()), 1;
  std::fprintf(stderr, "loaded into the memory of %s\n", where);
  std::printf("%s", stele::summary(stele::open("copy.safetensors").value()).c_str());
  return 0;
}

int main() {
  using Host = stele::Tensor<float, 2>;
  const Model<Host> trained{Host::filled({256, 128}, 0.5F), Host::filled({1, 256}, 1)};
  stele::save(trained, "model.safetensors").value();

  const auto driver = stele::device::Driver::find();
  if (!driver) {
    std::fprintf(stderr, "%s\n", driver.error().to_string().c_str());
    return load_and_save<Host>("the processor", nullptr);
  }
  const auto transfer = stele::device::make_transfer(*driver).value();
  return load_and_save<stele::device::Tensor<float, 2>>(driver->name(0).value().c_str(), transfer.get());
}

// Output:
// bias  f32 [1, 256]  256
// weight  f32 [256, 128]  32768
// 2 tensors, 33024 parameters, 132096 bytes
