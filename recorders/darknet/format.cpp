// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

const Capabilities& DarknetFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.metadata = true, .holds = [](DType dtype) { return dtype == DType::f32; }};
  return can;
}

namespace detail {

FormatFamily darknet_formats() {
  static const DarknetFormat format;
  static const FormatFamily::Member members[] = {{&format, {".weights"}}};
  return {.title = "Darknet",
          .folder = "darknet",
          .recorders = "DarknetRecorder",
          .header = "recorders/read_only.hpp",
          .files = "`.weights` with its `.cfg`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
