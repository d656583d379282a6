// The row of the format, and its capabilities.
#include "stele/recorders/mxnet.hpp"

#include "file.hpp"
#include "mxnet.hpp"

namespace stele::inline v0 {

const Capabilities& MxnetFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = detail::mxnet::max_rank,
                                    .holds = [](DType dtype) { return detail::mxnet::code_of(dtype) >= 0; },
                                    .keeps = [](std::string_view key) { return key == detail::mxnet::prefix_note; }};
  return can;
}

namespace detail {

FormatFamily mxnet_formats() {
  static const MxnetFormat format;
  static const FormatFamily::Member members[] = {{&format, {".params"}}};
  return {.title = "MXNet",
          .folder = "mxnet",
          .recorders = "MxnetRecorder",
          .header = "recorders/mxnet.hpp",
          .files = "`.params`",
          .holds = "parameters",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
