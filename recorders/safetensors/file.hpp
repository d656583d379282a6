// One safetensors file, for the formats of one and of several.
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

/// The reference's own bound of a header, for reading and writing.
inline constexpr std::uint64_t max_header = 100'000'000;

/// Whether names, tensors and metadata can stand in such files. Errors: not_representable.
Status check(const Snapshot& snapshot, const LeafPaths& paths);

/// Writes a file of these leaves of a snapshot that check() has let through. The sink is not committed.
Status write(const Snapshot& snapshot, const LeafPaths& paths, std::span<const std::uint32_t> leaves,
             const std::map<std::string, std::string>& metadata, const Workers& workers, Sink& sink);

}  // namespace safetensors
}  // namespace detail
}  // namespace v0
}  // namespace stele
