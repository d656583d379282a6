// The row of the format, and its capabilities.
#include "stele/recorders/onnx.hpp"

#include "encodings/onnx/fields.hpp"
#include "encodings/onnx/model.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0 {
namespace {

bool holds(DType dtype) { return detail::onnx::code_of(dtype) != 0; }
bool keeps_graph(std::string_view part) { return part == detail::graph_part || part == detail::onnx::texts_part; }

}  // namespace

const Capabilities& OnnxFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true, .aliases = true, .metadata = true, .holds = holds};
  // A model has one initializer for each name, so it cannot store aliases.
  static constexpr Capabilities into_model{.values = true, .metadata = true, .holds = holds, .keeps = keeps_graph};
  static constexpr Capabilities around{.metadata = true, .holds = holds, .keeps = keeps_graph};
  return structure_ != nullptr ? around : options_.model.empty() ? can : into_model;
}

namespace detail {

FormatFamily onnx_formats() {
  static const OnnxFormat format;
  static const FormatFamily::Member members[] = {{&format, {".onnx"}}};
  return {.title = "ONNX",
          .folder = "onnx",
          .recorders = "OnnxRecorder",
          .header = "recorders/onnx.hpp",
          .files = "`.onnx`",
          .holds =
              "initializers, also into an existing model; values as metadata; [graphs](import.md) from and to SameDiff "
              "files",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
