// Imports a file as an ONNX model, and checks that an imported graph refers to tensors that exist. Also parses text as
// an expression, as a step and as mapping rules.
#include <stele/import.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "fuzz/require.hpp"
#include "ir/rules/expression.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size < 4096) {
    static_cast<void>(stele::detail::ir::parse_expression(text));
    static_cast<void>(stele::detail::ir::parse_step(text));
    static_cast<void>(stele::MappingSet::open(bytes));
  }
  const auto model = stele::import_onnx(bytes);
  if (!model) return 0;
  for (const auto& operation : model->graph->operations) {
    for (const auto& input : operation.inputs) {
      stele_test::require(model->graph->variables.size() > 1000 || model->graph->find_variable(input) != nullptr);
    }
  }
  return 0;
}
