// The row of the format, and its capabilities.
#include "stele/recorders/flax.hpp"

#include "flax.hpp"

namespace stele::inline v0 {

const Capabilities& FlaxFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.nesting = true,
                                    .values = true,
                                    .max_rank = 32,  // the maximum of NumPy before 2.0
                                    .holds = [](DType dtype) { return detail::flax::type_of(dtype) != nullptr; },
                                    .keeps = [](std::string_view key) { return key == detail::flax::scalar_note; }};
  return can;
}

namespace detail {

FormatFamily flax_formats() {
  static const FlaxFormat format;
  static const FormatFamily::Member members[] = {{&format, {".msgpack"}}};
  return {.title = "Flax",
          .folder = "flax",
          .recorders = "FlaxRecorder",
          .header = "recorders/flax.hpp",
          .files = "`.msgpack`",
          .holds = "parameters, values",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
