// Nodes of ONNX that become several simpler ones before the rules run.
#pragma once

#include "ir/engine/model_graph.hpp"

namespace stele::inline v0::detail::ir {

/// Replaces an Einsum of more than two operands, with repeated labels or without a result by Einsums of one or two
/// operands, each with at most one repeated label; com.microsoft's FusedConv by Conv, Add and its activation. What
/// would make many nodes of a small file (of `file_bytes`) stays as it is.
void rewrite(model::Graph& graph, std::uint64_t file_bytes);

}  // namespace stele::inline v0::detail::ir
