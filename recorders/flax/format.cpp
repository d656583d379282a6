// The row of the format, and its capabilities.
#include "stele/recorders/flax.hpp"

namespace stele::inline v0::detail {

FormatFamily flax_formats() {
  static const FlaxFormat format;
  static const FormatFamily::Member members[] = {{&format, {".msgpack"}}};
  return {.title = "Flax",
          .folder = "flax",
          .recorders = "FlaxRecorder",
          .header = "recorders/flax.hpp",
          .files = "`.msgpack`",
          .holds = "parameters, values",
          .members = members};
}

}  // namespace stele::inline v0::detail
