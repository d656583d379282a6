// Opens bytes as a model of TensorFlow Lite, reads everything, and makes floats of quantized tensors.
#include <stele/quantize.hpp>
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  const stele::TfliteRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return;
  load_all(*opened);
  stele::LoadOptions options = lenient();
  options.dequantize = true;
  static_cast<void>(stele::load<std::map<std::string, stele::Tensor<float>>>(*opened, options));
  read_leaves(*opened, 4 * file.size() * (1 + opened->leaf_count()));  // tensors may share bytes
  static_cast<void>(recorder.verify(bytes_of(file)));
}
