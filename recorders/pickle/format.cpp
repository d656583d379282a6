// The row of the format, and its capabilities.
#include "stele/recorders/read_only.hpp"

#include "encodings/npy/header.hpp"

namespace stele::inline v0 {

const Capabilities& PickleFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true, .holds = detail::numpy::has};
  return can;
}

namespace detail {

FormatFamily pickle_formats() {
  static const PickleFormat format;
  // A save to one of these extensions is an error of this format, whose message states that the format is read-only.
  static const FormatFamily::Member members[] = {{&format, {".pdparams", ".pdopt", ".pkl"}}};
  return {.title = "Pickles of NumPy arrays",
          .folder = "pickle",
          .recorders = "PickleRecorder",
          .header = "recorders/read_only.hpp",
          .files = "Paddle's `.pdparams`, `.pdopt`; `.pkl`; read only",
          .holds = "parameters, values",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
