// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

const Capabilities& NcnnFormat::capabilities() const noexcept {
  static constexpr Capabilities can{};
  return can;
}

namespace detail {

FormatFamily ncnn_formats() {
  static const NcnnFormat format;
  static const FormatFamily::Member members[] = {{&format, {".param"}, ".bin"}};
  return {.title = "ncnn",
          .folder = "ncnn",
          .recorders = "NcnnRecorder",
          .header = "recorders/read_only.hpp",
          .files = "`.param` and its `.bin`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
