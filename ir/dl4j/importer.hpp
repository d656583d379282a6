// Runs mapping rules on a framework's graph.
#pragma once

#include <cstdint>

#include "ir/engine/model_graph.hpp"
#include "stele/import.hpp"

namespace stele::inline v0::detail::ir {

inline constexpr int max_function_depth = 32;
/// Bounds functions that are called many times. A part is a node or one of its inputs, outputs and attributes: at least
/// two bytes of a file.
inline constexpr std::uint64_t base_parts = 1 << 16;
inline constexpr std::uint64_t bytes_of_part = 2;

/// Returns a graph as one of DL4J's. `rules`: if the options have none. Errors: those of import_onnx(), without those
/// of the file.
Result<Checkpoint> import_graph(model::Graph graph, const MappingSet& rules, const ImportOptions& options,
                                std::uint64_t file_bytes);

}  // namespace stele::inline v0::detail::ir
