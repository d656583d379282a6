// Opens bytes as a pickle of arrays, reads everything, and loads modules.
#include <stele/recorders/read_only.hpp>

#include <cstdint>
#include <map>
#include <string>

#include "fuzz/leaves.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele;
using namespace stele_test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const PickleRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return 0;
  const LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(load<Branch>(*opened, options));
  static_cast<void>(read_leaves(*opened, size));
  return 0;
}
