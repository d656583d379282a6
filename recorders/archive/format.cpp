// The row of the format, and its capabilities.
#include "stele/recorders/archive.hpp"

namespace stele::inline v0::detail {

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

}  // namespace stele::inline v0::detail
