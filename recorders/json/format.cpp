// The row of the format, and its capabilities.
#include "stele/recorders/json.hpp"

namespace stele::inline v0 {

const Capabilities& JsonFormat::capabilities() const noexcept {
  static constexpr Capabilities plain{.nesting = true,
                                      .values = true,
                                      .aliases = true,
                                      .ids = true,
                                      .annotations = true,
                                      .metadata = true,
                                      .holds = [](DType dtype) { return is_known(dtype) && bits(dtype) != 0; }};
  static constexpr Capabilities checked = [] {
    Capabilities all = plain;
    all.checksums = true;
    return all;
  }();
  return options_.encoding == JsonEncoding::plain ? plain : checked;
}

namespace detail {

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

}  // namespace detail
}  // namespace stele::inline v0
