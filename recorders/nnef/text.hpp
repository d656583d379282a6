// Parses graph.nnef and graph.quant as far as parameters need them (NNEF 1.0.5, sections 3 and 5.3). Finds variables
// anywhere and skips everything else. Names, labels and values are views of the text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::nnef {

/// A variable: `id = variable<scalar>(shape = [2, 3], label = 'conv1/filter');`
struct Variable {
  std::string_view id;  // empty if the variable is inside an expression
  std::string_view label;
  std::optional<std::vector<std::uint64_t>> shape;  // nullopt if the shape is an expression
};
struct GraphText {
  std::vector<Variable> variables{};
  bool has_operations = false;  // operations other than variable() and external()
};
/// Reads the variables of a graph. Errors: malformed, unsupported (a version other than 1).
Result<GraphText> read_graph(std::string_view text);

/// Reads lines `"id": operation(…);` and returns the operations by id. Errors: malformed, duplicate.
Result<std::map<std::string_view, std::string_view>> read_quantizations(std::string_view text);

/// Adds an operation to the annotations: as `quantization` if it applies to the whole tensor, else as text.
void note_operation(std::string_view operation, Annotations& notes);

/// Returns the operation for a `quantization` annotation, or an empty string if NNEF has none.
std::string operation_of(const Value& quantization);

}  // namespace stele::inline v0::detail::nnef
