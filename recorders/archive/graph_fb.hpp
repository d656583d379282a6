// graph.fb and trainingConfig.fb.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stele/checkpoint.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace archive {

/// `memory` bounds what it takes. Errors: malformed (also where FlatBuffers' verifier refuses it), unsupported, limit
/// (more than that; nested too deep).
Result<Graph> read_graph(std::span<const std::byte> bytes, std::uint64_t memory);
/// Errors: not_representable (nested too deep, a dtype that files have none for), limit (2 GiB).
Result<std::string> write_graph(const Graph& graph);

struct Training {
  std::string json;                     // empty: no configuration
  std::vector<std::string> state_keys;  // of the columns of updater.txt
};
Result<Training> read_training(std::span<const std::byte> bytes, std::uint64_t memory);
std::string write_training(const Training& training, const TrainingConfig* config);

}  // namespace archive
}  // namespace detail
}  // namespace v0
}  // namespace stele
