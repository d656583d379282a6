#include "stele/recorders/nnef.hpp"

namespace stele::inline v0::detail {

FormatFamily nnef_formats() {
  static const NnefFormat folder({.container = NnefContainer::folder});
  static const NnefFormat tgz({.container = NnefContainer::tgz});
  static const NnefFormat tensor({.container = NnefContainer::tensor});
  static const FormatFamily::Member members[] = {{&folder, {".nnef"}}, {&tgz, {".nnef.tgz"}}, {&tensor, {".dat"}}};
  return {.title = "NNEF",
          .folder = "nnef",
          .recorders = "NnefRecorder",
          .header = "recorders/nnef.hpp",
          .files = "a folder `.nnef`; `.nnef.tgz`; `.dat` for one tensor",
          .holds = "parameters, quantized tensors",
          .members = members};
}

}  // namespace stele::inline v0::detail
