// Opens bytes as a file of Caffe, reads everything, loads modules.
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
  const CaffeRecorder<> recorder;
  static_cast<void>(recorder.format().recognises(bytes_of(file), size));
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return 0;
  const LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(load<Branch>(*opened, options));
  const bool whole = read_leaves(*opened, size);
  require(recorder.verify(bytes_of(file)).has_value() == whole);
  return 0;
}
