// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

const Capabilities& CoremlFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true};
  return can;
}

namespace detail {

FormatFamily coreml_formats() {
  static const CoremlFormat format;
  static const FormatFamily::Member members[] = {{&format, {".mlpackage", ".mlmodel"}}};
  return {.title = "Core ML",
          .folder = "coreml",
          .recorders = "CoremlRecorder",
          .header = "recorders/read_only.hpp",
          .files = "a folder `.mlpackage`; `.mlmodel`; its `weight.bin`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
