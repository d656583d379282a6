// The row of the format, and its capabilities.
#include "stele/recorders/binary.hpp"

namespace stele::inline v0::detail {

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

}  // namespace stele::inline v0::detail
