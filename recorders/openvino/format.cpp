// The row of the format, and its capabilities.
#include "stele/recorders/openvino.hpp"

#include "snapshot/data.hpp"

namespace stele::inline v0 {
namespace {

bool holds(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
    case DType::f6_e2m3:
    case DType::f6_e3m2:
      return false;
    default:
      return bits(dtype) != 0 && dtype_class(dtype) != DTypeClass::complex;
  }
}

bool keeps_graph(std::string_view part) { return part == detail::graph_part; }

}  // namespace

const Capabilities& OpenvinoFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.composites = true, .holds = holds, .keeps = keeps_graph};
  return can;
}

namespace detail {

FormatFamily openvino_formats() {
  static const OpenvinoFormat format;
  static const FormatFamily::Member members[] = {{&format, {".xml"}, ".bin"}};
  return {.title = "OpenVINO IR",
          .folder = "openvino",
          .recorders = "OpenvinoRecorder",
          .header = "recorders/openvino.hpp",
          .files = "`.xml` with `.bin`",
          .holds = "constants; written into an existing model",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
