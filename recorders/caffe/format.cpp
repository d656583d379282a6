// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

const Capabilities& CaffeFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = 32,
                                    .holds = [](DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }};
  return can;
}

namespace detail {

FormatFamily caffe_formats() {
  static const CaffeFormat format;
  static const FormatFamily::Member members[] = {{&format, {".caffemodel"}}};
  return {.title = "Caffe",
          .folder = "caffe",
          .recorders = "CaffeRecorder",
          .header = "recorders/read_only.hpp",
          .files = "`.caffemodel`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
