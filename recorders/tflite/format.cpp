// The row of the format.
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {

namespace detail {

FormatFamily tflite_formats() {
  static const TfliteFormat format;
  static const FormatFamily::Member members[] = {{&format, {".tflite"}}};
  return {.title = "TensorFlow Lite",
          .folder = "tflite",
          .recorders = "TfliteRecorder",
          .header = "recorders/read_only.hpp",
          .files = "`.tflite`",
          .holds = "parameters: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
