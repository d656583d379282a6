// The row of the format, and its capabilities.
#include "stele/recorders/samediff.hpp"

#include "dl4j/arrays.hpp"

namespace stele::inline v0 {

const Capabilities& SameDiffFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true, .aliases = true, .metadata = true, .max_rank = 32, .holds = detail::samediff::holds};
  return can;
}

namespace detail {

FormatFamily samediff_formats() {
  static const SameDiffFormat fb({.container = SameDiffContainer::fb});
  static const SameDiffFormat sdnb({.container = SameDiffContainer::sdnb});
  static const SameDiffFormat sdz({.container = SameDiffContainer::sdz});
  static const FormatFamily::Member members[] = {{&fb, {".fb"}}, {&sdnb, {".sdnb"}}, {&sdz, {".sdz"}}};
  return {.title = "SameDiff",
          .folder = "samediff",
          .recorders = "SameDiffRecorder",
          .header = "recorders/samediff.hpp",
          .files = "`.fb`, `.sdnb` (one file or several), `.sdz`",
          .holds = "parameters, values; optimizer state, graph: DL4J's own files",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
