// The row of the format, and its capabilities.
#include "stele/recorders/json.hpp"

namespace stele::inline v0::detail {

FormatFamily json_formats() {
  static const JsonFormat plain({.encoding = JsonEncoding::plain});
  static const JsonFormat zstd({.encoding = JsonEncoding::zstd});
  static const JsonFormat gzip({.encoding = JsonEncoding::gzip});
  static const FormatFamily::Member members[] = {{&plain, {".json"}}, {&zstd, {".json.zst"}}, {&gzip, {".json.gz"}}};
  return {.title = "JSON",
          .folder = "json",
          .recorders = "JsonRecorder",
          .header = "recorders/json.hpp",
          .files = "`.json`, `.json.zst`, `.json.gz`",
          .holds = "full records, quantized tensors",
          .members = members};
}

}  // namespace stele::inline v0::detail
