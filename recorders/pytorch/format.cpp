// The row of the format, and its capabilities.
#include "stele/recorders/pytorch.hpp"

#include "plan.hpp"
#include "stele/quantize.hpp"
#include "storage.hpp"

namespace stele::inline v0 {

const Capabilities& PytorchFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true,
      .aliases = true,
      .metadata = true,
      .composites = true,
      .checksums = true,
      .holds = detail::pytorch::holds,
      .keeps = [](std::string_view key) { return key == quantization_key || key == detail::pytorch::dtype_key; }};
  return can;
}

namespace detail {

FormatFamily pytorch_formats() {
  static const PytorchFormat format;
  static const FormatFamily::Member members[] = {{&format, {".pt", ".pth", ".ckpt"}}};
  return {.title = "PyTorch",
          .folder = "pytorch",
          .recorders = "PytorchRecorder",
          .header = "recorders/pytorch.hpp",
          .files = "`.pt`, `.pth`, `.ckpt`; loads `.bin`, `.pt2`, and folders of distributed checkpoints, too",
          .holds = "parameters, values, quantized tensors; optimizer state; TorchScript, `.pt2` and folders: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
