// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

#include "file.hpp"

namespace stele::inline v0 {

const Capabilities& WhisperFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.properties = true, .max_rank = detail::ggml::max_rank};
  return can;
}

namespace detail {

FormatFamily whisper_formats() {
  static const WhisperFormat format;
  static const FormatFamily::Member members[] = {{&format}};
  return {.title = "whisper.cpp",
          .folder = "whisper",
          .recorders = "WhisperRecorder",
          .header = "recorders/read_only.hpp",
          .files = "`ggml-*.bin`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
