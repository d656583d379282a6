// The row of the format, and its capabilities.
#include "stele/recorders/zarr.hpp"

#include "encodings/zarr/metadata.hpp"
#include "zarr.hpp"

namespace stele::inline v0 {

const Capabilities& ZarrFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true,
                                    .aliases = true,
                                    .metadata = true,
                                    .properties = true,
                                    .composites = true,
                                    .max_rank = detail::zarr::max_rank,
                                    .holds = [](DType dtype) { return detail::zarr::type_of(dtype) != nullptr; },
                                    .keeps =
                                        [](std::string_view key) {
                                          return key == detail::zarr::attributes_note ||
                                                 key == detail::zarr::dimensions_note;
                                        }};
  return can;
}

namespace detail {

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

}  // namespace detail
}  // namespace stele::inline v0
