// Replaces ONNX nodes by several simpler nodes before the rules run.
#pragma once

#include "ir/engine/model_graph.hpp"

namespace stele::inline v0::detail::ir {

/// Replaces an Einsum that has more than two operands, repeated labels or no result by Einsums of one or two operands,
/// each with at most one repeated label. Replaces com.microsoft's FusedConv by Conv, Add and its activation, and
/// operators of integers with scales by operators of floats, QuantizeLinear and DequantizeLinear. Keeps a node if its
/// replacement would need too many nodes for a file of `file_bytes`.
void rewrite(model::Graph& graph, std::uint64_t file_bytes);

}  // namespace stele::inline v0::detail::ir
