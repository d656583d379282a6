// The row of the format, and its capabilities.
#include "stele/recorders/gguf.hpp"

namespace stele::inline v0::detail {

FormatFamily gguf_formats() {
  static const GgufFormat format;
  static const FormatFamily::Member members[] = {{&format, {".gguf"}}};
  return {.title = "GGUF",
          .folder = "gguf",
          .recorders = "GgufRecorder",
          .header = "recorders/gguf.hpp",
          .files = "`.gguf`",
          .holds = "parameters, quantized blocks, typed metadata; values and ties as metadata; split sets: only read",
          .members = members};
}

}  // namespace stele::inline v0::detail
