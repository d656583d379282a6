// The row of the format, and its capabilities.
#include "stele/recorders/archive.hpp"

#include "dl4j/arrays.hpp"

namespace stele::inline v0 {

const Capabilities& ArchiveFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true,
                                    .aliases = true,
                                    .metadata = true,
                                    .checksums = true,
                                    .max_rank = 32,
                                    .holds = detail::samediff::holds};
  return can;
}

namespace detail {

FormatFamily archive_formats() {
  static const ArchiveFormat format;
  static const FormatFamily::Member members[] = {{&format, {".zip"}}};
  return {.title = "Archive (zip)",
          .folder = "archive",
          .recorders = "ArchiveRecorder",
          .header = "recorders/archive.hpp",
          .files = "`.zip`",
          .holds = "parameters, values; several versions, optimizer state, graph",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
