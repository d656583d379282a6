// One safetensors file, for the single-file and sharded formats.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "snapshot/paths.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace safetensors {

/// Maximum size of a header in bytes, for reading and writing: the reference implementation's limit.
inline constexpr std::uint64_t max_header = 100'000'000;

/// Checks that safetensors can store the names, tensors and metadata. Errors: not_representable.
Status check(const Snapshot& snapshot, const LeafPaths& paths);

/// Writes a file with these leaves of a snapshot that passed check(). Does not commit the sink.
Status write(const Snapshot& snapshot, const LeafPaths& paths, std::span<const std::uint32_t> leaves,
             const std::map<std::string, std::string>& metadata, const Workers& workers, Sink& sink);

}  // namespace safetensors
}  // namespace detail
}  // namespace v0
}  // namespace stele
