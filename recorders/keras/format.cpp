// The row of the format, and its capabilities.
#include "stele/recorders/keras.hpp"

#include "hdf5/hdf5.hpp"

namespace stele::inline v0 {

const Capabilities& Hdf5Format::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true,
                                    .aliases = true,
                                    .metadata = true,
                                    .properties = true,
                                    .composites = true,
                                    .max_rank = detail::hdf5::max_rank,
                                    .holds = detail::hdf5::holds};
  return can;
}

const Capabilities& KerasFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true,
                                    .aliases = true,
                                    .metadata = true,
                                    .properties = true,
                                    .composites = true,
                                    .checksums = true,
                                    .max_rank = detail::hdf5::max_rank,
                                    .holds = detail::hdf5::holds};
  return can;
}

namespace detail {

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

}  // namespace detail
}  // namespace stele::inline v0
