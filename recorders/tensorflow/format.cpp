// The row of the format, and its capabilities.
#include "stele/recorders/tensorflow.hpp"

#include "encodings/tensor_bundle/bundle.hpp"

namespace stele::inline v0 {

const Capabilities& TensorBundleFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.checksums = true, .holds = detail::tensorflow::holds};
  return can;
}

namespace detail {

FormatFamily tensorflow_formats() {
  static const TensorBundleFormat format;
  static const FormatFamily::Member members[] = {{&format, {".index"}}};
  return {.title = "TensorFlow",
          .folder = "tensorflow",
          .recorders = "TensorBundleRecorder",
          .header = "recorders/tensorflow.hpp",
          .files = "`.index` and its shards; a folder",
          .holds =
              "checkpoints, SavedModel's variables: only read; optimizer state; [graphs](import.md) as SameDiff and "
              "ONNX files",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
