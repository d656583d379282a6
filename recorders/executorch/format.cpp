// The row of the format, and its capabilities.
#include "stele/recorders/executorch.hpp"

#include "file.hpp"

namespace stele::inline v0 {
namespace {

constexpr Capabilities executorch_abilities{.max_rank = detail::executorch::max_rank, .holds = [](DType dtype) {
                                              return detail::executorch::type_of(dtype) != nullptr;
                                            }};

}  // namespace

const Capabilities& PtdFormat::capabilities() const noexcept { return executorch_abilities; }

const Capabilities& PteFormat::capabilities() const noexcept { return executorch_abilities; }

namespace detail {

FormatFamily executorch_formats() {
  static const PtdFormat ptd;
  static const PteFormat pte;
  static const FormatFamily::Member members[] = {{&ptd, {".ptd"}}, {&pte, {".pte"}}};
  return {.title = "ExecuTorch",
          .folder = "executorch",
          .recorders = "PtdRecorder, PteRecorder",
          .header = "recorders/executorch.hpp",
          .files = "`.ptd`; `.pte`, only read",
          .holds = "parameters; the constants of a program (`.pte`)",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
