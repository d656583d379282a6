// Converts a framework's graph to a DL4J graph with mapping rules.
#pragma once

#include <cstdint>

#include "ir/engine/model_graph.hpp"
#include "stele/import.hpp"

namespace stele::inline v0::detail::ir {

inline constexpr int max_function_depth = 32;
/// Limits the expansion of functions that are called many times. A part is a node, or an input, output or attribute of
/// a node, and takes at least two bytes of a file.
inline constexpr std::uint64_t base_parts = 1 << 16;
inline constexpr std::uint64_t bytes_of_part = 2;

/// Converts a framework's graph to a DL4J graph. Uses `rules` if the options contain no rules. Errors: those of
/// import_onnx(), except errors of the file.
Result<Checkpoint> import_graph(model::Graph graph, const MappingSet& rules, const ImportOptions& options,
                                std::uint64_t file_bytes);

}  // namespace stele::inline v0::detail::ir
