// Names of a model's files, and helpers that read its text files.
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
// First line of the graphs that stele writes. A save may replace such a graph, because it has no operations to lose.
inline constexpr std::string_view made_here = "# Variables alone, by stele.\n";
/// The graph of a model without tensors. NNEF's readers require an input, and a result that is no input.
inline constexpr std::string_view empty_graph =
    "# Variables alone, by stele.\nversion 1.0;\n\ngraph variables(none) -> (all) {\n"
    "    none = external<scalar>(shape = [1]);\n    all = copy(none);\n}\n";

/// Returns the text in lower case. Used to compare labels, which must not differ only in case.
std::string lower(std::string_view text);

/// Reads a text file. Errors: limit, those of the bundle.
Result<std::string> read_text(const Bundle& bundle, std::string_view name);

/// Checks that a folder contains one whole model and nothing else: a tensor file for each label of the graph, or only
/// tensor files if there is no graph. Errors: exists (found() is another file), those of NnefFormat::open.
Status check_whole(const Bundle& folder);

/// Returns the container for a path.
NnefContainer container_at(NnefContainer container, std::string_view path) noexcept;

}  // namespace stele::inline v0::detail::nnef
