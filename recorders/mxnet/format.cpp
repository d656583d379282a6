// The row of the format, and its capabilities.
#include "stele/recorders/mxnet.hpp"

namespace stele::inline v0::detail {

FormatFamily mxnet_formats() {
  static const MxnetFormat format;
  static const FormatFamily::Member members[] = {{&format, {".params"}}};
  return {.title = "MXNet",
          .folder = "mxnet",
          .recorders = "MxnetRecorder",
          .header = "recorders/mxnet.hpp",
          .files = "`.params`",
          .holds = "parameters",
          .members = members};
}

}  // namespace stele::inline v0::detail
