// The row of the format, and its capabilities.
#include "stele/recorders/samediff.hpp"

namespace stele::inline v0::detail {

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

}  // namespace stele::inline v0::detail
