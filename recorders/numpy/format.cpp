// The row of the format, and its capabilities.
#include "stele/recorders/numpy.hpp"

#include "arrays.hpp"

namespace stele::inline v0 {

const Capabilities& NpzFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true,
      .aliases = true,
      .metadata = true,
      .composites = true,
      .checksums = true,
      .max_rank = detail::numpy::max_rank,
      .holds = [](DType dtype) { return detail::numpy::has(dtype) || detail::numpy::is_void(dtype); }};
  return can;
}

const Capabilities& NpyFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = detail::numpy::max_rank, .holds = detail::numpy::has};
  return can;
}

namespace detail {

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

}  // namespace detail
}  // namespace stele::inline v0
