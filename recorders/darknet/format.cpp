// The row of the format, and its capabilities.
#include "stele/recorders/darknet.hpp"

namespace stele::inline v0::detail {

FormatFamily darknet_formats() {
  static const DarknetFormat format;
  static const FormatFamily::Member members[] = {{&format, {".weights"}}};
  return {.title = "Darknet",
          .folder = "darknet",
          .recorders = "DarknetRecorder",
          .header = "recorders/darknet.hpp",
          .files = "`.weights` with its `.cfg`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace stele::inline v0::detail
