// The row of the format, and its capabilities.
#include "stele/recorders/numpy.hpp"

namespace stele::inline v0::detail {

FormatFamily numpy_formats() {
  static const NpzFormat npz;
  static const NpyFormat npy;
  static const FormatFamily::Member members[] = {{&npz, {".npz"}}, {&npy, {".npy"}}};
  return {.title = "NumPy",
          .folder = "numpy",
          .recorders = "NpzRecorder, NpyRecorder",
          .header = "recorders/numpy.hpp",
          .files = "`.npz`; `.npy` for one tensor",
          .holds = "parameters; values and ties as JSON in an array (`.npz`)",
          .members = members};
}

}  // namespace stele::inline v0::detail
