// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

const Capabilities& OrbaxFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.nesting = true, .values = true, .metadata = true};
  return can;
}

namespace detail {

FormatFamily orbax_formats() {
  static const OrbaxFormat format;
  static const FormatFamily::Member members[] = {{&format, {}}};
  return {.title = "Orbax",
          .folder = "orbax",
          .recorders = "OrbaxRecorder",
          .header = "recorders/read_only.hpp",
          .files = "a folder: an item, a step, or several steps",
          .holds = "parameters, optimizer state and values of JAX's train states: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
