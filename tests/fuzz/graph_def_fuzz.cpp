// Imports a file as a TensorFlow graph or SavedModel. Checks that an imported graph can be sorted and that its tensors
// exist, and exports it as an ONNX model, which is either refused or can be read again.
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/sink.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>

#include "fuzz/require.hpp"

namespace {

/// Checks that no exception of the library itself occurred (user_exception).
void check(const stele::Error& error) {
  stele_test::require(error.code() != stele::Errc::user_exception && error.code() != stele::Errc::none);
}

bool small(const stele::Snapshot& parameters) {
  constexpr std::uint64_t most = 1 << 20;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < parameters.leaf_count(); ++i) {
    const std::uint64_t size = parameters.leaf(i).byte_size();
    if (size > most || (bytes += size) > most) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model = stele::import_tensorflow(std::span(reinterpret_cast<const std::byte*>(data), size));
  if (!model) {
    check(model.error());
    return 0;
  }
  stele_test::require(model->graph->order().has_value());
  std::unordered_set<std::string_view> variables;
  for (const stele::GraphVariable& variable : model->graph->variables) variables.insert(variable.name);
  for (const stele::GraphOperation& operation : model->graph->operations) {
    for (const auto& input : operation.inputs) stele_test::require(variables.contains(input));
  }
  for (const std::string& output : model->graph->outputs) stele_test::require(variables.contains(output));
  if (!small(model->parameters)) return 0;
  stele::BufferSink sink;
  const auto report = stele::export_onnx(*model, sink);
  if (!report) {
    check(report.error());
    return 0;
  }
  const stele::Bytes bytes = sink.take();
  stele_test::require(stele::OnnxRecorder<>().open(bytes).has_value());
  const auto again = stele::import_onnx(bytes);
  if (!again) check(again.error());
  return 0;
}
