// A program that loads one safetensors file into a class: the smallest use of the library.
#include <cstdio>

#include <stele/recorders/safetensors.hpp>

#include "model.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const auto model = stele::SafetensorsRecorder<>().load<Model>(arguments[1]);
  if (!model) {
    std::fputs(model.error().to_string().c_str(), stderr);
    return 1;
  }
  std::printf("%zu\n", static_cast<std::size_t>(model->second.bias.size()));
  return 0;
}
