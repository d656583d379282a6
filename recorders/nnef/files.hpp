// Names of the files of a model, and their texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stele/bundle.hpp"
#include "stele/recorders/nnef.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::nnef {

inline constexpr std::string_view graph_file = "graph.nnef";
inline constexpr std::string_view quant_file = "graph.quant";
inline constexpr std::string_view ending = ".dat";
// First line of the graphs that stele writes. stele may replace such a graph: it has no operations that would be lost.
inline constexpr std::string_view made_here = "# Variables alone, by stele.\n";

/// Returns the text in lower case: labels must differ in more than capitals.
std::string lower(std::string_view text);

/// Reads a file of text. Errors: limit, those of the bundle.
Result<std::string> read_text(const Bundle& bundle, std::string_view name);

/// Checks that a folder is one whole model and nothing else: a tensor file for each label of the graph, or if there is
/// no graph, tensor files alone. Errors: exists (found() is another file), those of NnefFormat::open.
Status check_whole(const Bundle& folder);

/// Returns the container for a path.
NnefContainer container_at(NnefContainer container, std::string_view path) noexcept;

}  // namespace stele::inline v0::detail::nnef
