#include "stele/recorders/pickle.hpp"

namespace stele::inline v0::detail {

FormatFamily pickle_formats() {
  static const PickleFormat format;
  // A save to one of these extensions is an error of this format, whose message states that the format is read-only.
  static const FormatFamily::Member members[] = {{&format, {".pdparams", ".pdopt", ".pkl"}}};
  return {.title = "Pickles of NumPy arrays",
          .folder = "pickle",
          .recorders = "PickleRecorder",
          .header = "recorders/pickle.hpp",
          .files = "Paddle's `.pdparams`, `.pdopt`; `.pkl`; read only",
          .holds = "parameters, values",
          .members = members};
}

}  // namespace stele::inline v0::detail
