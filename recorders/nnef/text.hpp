// graph.nnef and graph.quant, as far as parameters need them (NNEF 1.0.5, sections 3 and 5.3): variables are looked for
// wherever they stand, all else is passed over. Names, labels and values are views of the text.
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

namespace stele {
inline namespace v0 {
namespace detail {
namespace nnef {

/// `id = variable<scalar>(shape = [2, 3], label = 'conv1/filter');`
struct Variable {
  std::string_view id;  // empty within an expression
  std::string_view label;
  std::optional<std::vector<std::uint64_t>> shape;  // absent: an expression
};
/// Errors: malformed, unsupported (another version than 1).
Result<std::vector<Variable>> read_graph(std::string_view text);

/// `"id": operation(…);`: the operations' texts by id. Errors: malformed, duplicate.
Result<std::map<std::string_view, std::string_view>> read_quantizations(std::string_view text);

/// Annotates what such an operation says: `quantization`, where it is one for a whole tensor, else its text.
void note_operation(std::string_view operation, Annotations& notes);

/// The operation for an annotation `quantization`; empty where it has none.
std::string operation_of(const Value& quantization);

}  // namespace nnef
}  // namespace detail
}  // namespace v0
}  // namespace stele
