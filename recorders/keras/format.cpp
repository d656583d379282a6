// The row of the format, and its capabilities.
#include "stele/recorders/keras.hpp"

namespace stele::inline v0::detail {

FormatFamily keras_formats() {
  static const KerasFormat model;
  static const Hdf5Format weights;
  static const FormatFamily::Member members[] = {{&model, {".keras"}}, {&weights, {".h5", ".hdf5"}}};
  return {.title = "Keras",
          .folder = "keras",
          .recorders = "KerasRecorder, Hdf5Recorder",
          .header = "recorders/keras.hpp",
          .files = "`.keras`, `.weights.h5`, `.h5`",
          .holds = "parameters, optimizer state, attributes, the configuration as text",
          .members = members};
}

}  // namespace stele::inline v0::detail
