// The row of the format, and its capabilities.
#include "stele/recorders/whisper.hpp"

namespace stele::inline v0::detail {

FormatFamily whisper_formats() {
  static const WhisperFormat format;
  static const FormatFamily::Member members[] = {{&format}};
  return {.title = "whisper.cpp",
          .folder = "whisper",
          .recorders = "WhisperRecorder",
          .header = "recorders/whisper.hpp",
          .files = "`ggml-*.bin`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace stele::inline v0::detail
