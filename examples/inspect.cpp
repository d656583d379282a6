// Lists the tensors and the metadata of a file in any format: `inspect FILE`. No class is needed, and no tensor is
// read.
#include <cstdio>
#include <exception>
#include <string>

#include <stele/stele.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: inspect FILE\n");
    return 2;
  }
  const stele::Snapshot file = stele::open(argv[1]).value();
  std::printf("%s", stele::summary(file).c_str());  // a line for each tensor: path, dtype, shape, number of elements
  for (const auto& [key, value] : file.metadata()) std::printf("metadata %s = %s\n", key.c_str(), value.c_str());
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

// Output:
// head.bias  f32 [10]  10
// head.weight  f32 [10, 32]  320
// hidden.0.bias  f32 [48]  48
// hidden.0.weight  f32 [48, 64]  3072
// hidden.1.weight  f32 [32, 48]  1536
// normalize.mean  f32 [64]  64
// normalize.scale  f32 [64]  64
// 7 tensors, 5114 parameters, 20456 bytes
// metadata format = pt
