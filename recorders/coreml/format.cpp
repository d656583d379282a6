// The row of the format, and its capabilities.
#include "stele/recorders/coreml.hpp"

namespace stele::inline v0::detail {

FormatFamily coreml_formats() {
  static const CoremlFormat format;
  static const FormatFamily::Member members[] = {{&format, {".mlpackage", ".mlmodel"}}};
  return {.title = "Core ML",
          .folder = "coreml",
          .recorders = "CoremlRecorder",
          .header = "recorders/coreml.hpp",
          .files = "a folder `.mlpackage`; `.mlmodel`; its `weight.bin`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace stele::inline v0::detail
