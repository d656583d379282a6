// The row of the format, and its capabilities.
#include "stele/recorders/caffe.hpp"

namespace stele::inline v0::detail {

FormatFamily caffe_formats() {
  static const CaffeFormat format;
  static const FormatFamily::Member members[] = {{&format, {".caffemodel"}}};
  return {.title = "Caffe",
          .folder = "caffe",
          .recorders = "CaffeRecorder",
          .header = "recorders/caffe.hpp",
          .files = "`.caffemodel`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace stele::inline v0::detail
