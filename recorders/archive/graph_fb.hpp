// Reads and writes graph.fb and trainingConfig.fb.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stele/checkpoint.hpp"

namespace stele::inline v0::detail::archive {

/// Reads a graph in at most `memory` bytes. Errors: malformed (also if FlatBuffers' verifier rejects it), unsupported,
/// limit (needs more memory; nested too deep).
Result<Graph> read_graph(std::span<const std::byte> bytes, std::uint64_t memory);
/// Writes a graph. Errors: not_representable (nested too deep, a dtype that the files do not have), limit (2 GiB).
Result<std::string> write_graph(const Graph& graph);

struct Training {
  std::string json;                     // empty if there is no configuration
  std::vector<std::string> state_keys;  // keys of the columns of updater.txt
};
Result<Training> read_training(std::span<const std::byte> bytes, std::uint64_t memory);
std::string write_training(const Training& training, const TrainingConfig* config);

}  // namespace stele::inline v0::detail::archive
