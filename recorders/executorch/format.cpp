// The row of the format, and its capabilities.
#include "stele/recorders/executorch.hpp"

namespace stele::inline v0::detail {

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

}  // namespace stele::inline v0::detail
