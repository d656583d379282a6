// Runs one operation on a model of SIZE bytes in a separate process. Prints the maximum growth of the process's memory
// beyond the model in bytes, as counted by the system (VmHWM). benchmarks/memory.py calls it.
//
//   bench_memory OPERATION SIZE TENSOR_BYTES FILE
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "models.hpp"

namespace {

/// Returns a line of /proc/self/status, in bytes.
long long status(std::string_view name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return 1024 * std::atoll(line.c_str() + name.size() + 1);
  }
  std::fprintf(stderr, "no %s in /proc/self/status\n", name.data());
  std::exit(1);
}

/// Returns the growth of the memory's peak while `run` runs. The result of `run` still exists when the peak is read.
template <class F>
long long growth(F&& run) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is counted from here
  const long long before = status("VmRSS");
  const auto result = run();
  return status("VmHWM") - before;
}

stele::SaveOptions options() {
  stele::SaveOptions made;
  made.file.durability = stele::Durability::process;
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: bench_memory OPERATION SIZE TENSOR_BYTES FILE\n");
    return 2;
  }
  const std::string operation = argv[1];
  const auto size = static_cast<std::size_t>(std::atoll(argv[2]));
  const auto piece = static_cast<std::size_t>(std::atoll(argv[3]));
  const std::string path = argv[4];

  long long extra = 0;
  if (operation == "open") {
    extra = growth([&] { return stele::open(path).value(); });
  } else if (operation == "load") {
    extra = growth([&] { return stele::load<workload::List>(path).value(); }) - static_cast<long long>(size);
  } else {
    workload::List model;
    model.tensors.reserve(size / piece);
    for (std::size_t i = 0; i < size / piece; ++i) {
      model.tensors.push_back(workload::tensor<1>({piece / sizeof(float)}));
    }
    const auto save = [&](const auto& recorder) {
      extra = growth([&] { return recorder.save(model, path, options()).value(); });
    };
    if (operation == "save") {
      save(stele::BinaryRecorder<>());
    } else if (operation == "save f16") {
      save(stele::BinaryRecorder<stele::HalfPrecision>());
    } else if (operation == "save compressed") {
      save(stele::CompressedRecorder<>());
    } else if (operation == "save json.zst") {
      save(stele::JsonRecorder<>());
    } else if (operation == "save safetensors") {
      save(stele::SafetensorsRecorder<>());
    } else {
      std::fprintf(stderr, "unknown operation %s\n", operation.c_str());
      return 2;
    }
  }
  std::printf("%lld\n", extra);
  return 0;
}
