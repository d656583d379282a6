// The row of the format, and its capabilities.
#include "stele/recorders/openvino.hpp"

namespace stele::inline v0::detail {

FormatFamily openvino_formats() {
  static const OpenvinoFormat format;
  static const FormatFamily::Member members[] = {{&format, {".xml"}}};
  return {.title = "OpenVINO IR",
          .folder = "openvino",
          .recorders = "OpenvinoRecorder",
          .header = "recorders/openvino.hpp",
          .files = "`.xml` with `.bin`",
          .holds = "constants; written into an existing model",
          .members = members};
}

}  // namespace stele::inline v0::detail
