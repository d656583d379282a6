// The row of the format, and its capabilities.
#include "stele/recorders/binary.hpp"

namespace stele::inline v0 {

const Capabilities& SteleFormat::capabilities() const noexcept {
  static constexpr Capabilities all{.nesting = true,
                                    .values = true,
                                    .aliases = true,
                                    .ids = true,
                                    .type_names = true,
                                    .annotations = true,
                                    .metadata = true,
                                    .composites = true,
                                    .checksums = true,
                                    .holds = [](DType dtype) { return is_known(dtype); }};
  return all;
}

namespace detail {

FormatFamily stele_formats() {
  static const SteleFormat format;
  static const FormatFamily::Member members[] = {{&format, {".stele"}}};
  return {.title = "stele",
          .folder = "stele",
          .recorders = "BinaryRecorder, CompressedRecorder, BytesRecorder",
          .header = "recorders/binary.hpp",
          .files = "`.stele`; bytes in memory",
          .holds = "full records, quantized tensors, checksums",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
