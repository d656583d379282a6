// The row of the format, and its capabilities.
#include "stele/recorders/zarr.hpp"

namespace stele::inline v0::detail {

FormatFamily zarr_formats() {
  static const ZarrFormat format;
  static const FormatFamily::Member members[] = {{&format, {".zarr"}}};
  return {.title = "Zarr",
          .folder = "zarr",
          .recorders = "ZarrRecorder",
          .header = "recorders/zarr.hpp",
          .files = "a folder `.zarr`",
          .holds = "parameters, values, typed properties",
          .members = members};
}

}  // namespace stele::inline v0::detail
