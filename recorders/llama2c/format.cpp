// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

const Capabilities& Llama2cFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.aliases = true, .properties = true};
  return can;
}

namespace detail {

FormatFamily llama2c_formats() {
  static const Llama2cFormat format;
  static const FormatFamily::Member members[] = {{&format}};
  return {.title = "llama2.c",
          .folder = "llama2c",
          .recorders = "Llama2cRecorder",
          .header = "recorders/read_only.hpp",
          .files = "`.bin` of llama2.c",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
