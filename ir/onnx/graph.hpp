// Reads the computation graph of an ONNX model. Field numbers: onnx.proto of onnx 1.23.
#pragma once

#include "ir/engine/model_graph.hpp"
#include "stele/options.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::ir {

/// Reads the graph of an ONNX file. Errors: malformed, unsupported, limit, duplicate, and those of the tensors.
Result<model::Graph> read_onnx(SourcePtr source, const LoadOptions& options);

}  // namespace stele::inline v0::detail::ir
