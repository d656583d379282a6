// The row of the format, and its capabilities.
#include "stele/recorders/onnx.hpp"

namespace stele::inline v0::detail {

FormatFamily onnx_formats() {
  static const OnnxFormat format;
  static const FormatFamily::Member members[] = {{&format, {".onnx"}}};
  return {.title = "ONNX",
          .folder = "onnx",
          .recorders = "OnnxRecorder",
          .header = "recorders/onnx.hpp",
          .files = "`.onnx`",
          .holds =
              "initializers, also into an existing model; values as metadata; [graphs](import.md) from and to SameDiff "
              "files",
          .members = members};
}

}  // namespace stele::inline v0::detail
