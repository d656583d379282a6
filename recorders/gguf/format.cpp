// The row of the format, and its capabilities.
#include "stele/recorders/gguf.hpp"

#include "encodings/gguf/file.hpp"
#include "encodings/gguf/types.hpp"

namespace stele::inline v0 {

const Capabilities& GgufFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true,
      .aliases = true,
      .metadata = true,
      .properties = true,
      .max_rank = detail::gguf::max_rank,
      .holds = [](DType dtype) { return detail::gguf::type_of(dtype) != detail::gguf::no_type; }};
  return can;
}

namespace detail {

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

}  // namespace detail
}  // namespace stele::inline v0
