// Opens bytes as a model of TensorFlow Lite, reads everything, and makes floats of quantized tensors.
#include <stele/quantize.hpp>
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
  const TfliteRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return 0;
  LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  options.dequantize = true;
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(read_leaves(*opened, 4 * size * (1 + opened->leaf_count())));  // tensors may share bytes
  static_cast<void>(recorder.verify(bytes_of(file)));
  return 0;
}
